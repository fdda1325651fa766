"""The sections of the report, in the order of the page.

A new section is a folder next to these, with a SECTION, and an entry of the list: docs/how-to/add-a-section.md.
"""

from spdnn.report.calls.section import SECTION as CALLS
from spdnn.report.cases.section import SECTION as CASES
from spdnn.report.limits.section import SECTION as LIMITS
from spdnn.report.networks.section import SECTION as NETWORKS
from spdnn.report.operations.section import SECTION as OPERATIONS
from spdnn.report.others.section import SECTION as OTHERS
from spdnn.report.overview.section import SECTION as OVERVIEW
from spdnn.report.own.section import SECTION as OWN
from spdnn.report.peers.section import SECTION as PEERS
from spdnn.report.provenance.section import SECTION as PROVENANCE
from spdnn.report.reductions.section import SECTION as REDUCTIONS
from spdnn.report.scaling.section import SECTION as SCALING
from spdnn.report.schedules.section import SECTION as SCHEDULES
from spdnn.report.times.section import SECTION as TIMES

SECTIONS = [
    OVERVIEW, OWN, NETWORKS, TIMES, LIMITS, REDUCTIONS, SCALING, SCHEDULES, PEERS, CALLS, OPERATIONS, CASES,
    OTHERS, PROVENANCE,
]  # fmt: skip
