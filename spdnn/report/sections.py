"""The sections of the report, in the order of the page.

A new one is a folder beside these, with a SECTION, and a line in the list: docs/how-to/add-a-section.md.
"""

from __future__ import annotations

from spdnn.report.breakdown.section import SECTION as BREAKDOWN
from spdnn.report.networks.section import SECTION as NETWORKS
from spdnn.report.operations.section import SECTION as OPERATIONS
from spdnn.report.peers.section import SECTION as PEERS
from spdnn.report.provenance.section import SECTION as PROVENANCE
from spdnn.report.reductions.section import SECTION as REDUCTIONS
from spdnn.report.roofline.section import SECTION as ROOFLINE
from spdnn.report.scaling.section import SECTION as SCALING
from spdnn.report.schedules.section import SECTION as SCHEDULES
from spdnn.report.verdict.section import SECTION as VERDICT

SECTIONS = [
    VERDICT, NETWORKS, SCALING, BREAKDOWN, SCHEDULES, ROOFLINE, PEERS, REDUCTIONS, OPERATIONS, PROVENANCE,
]  # fmt: skip
