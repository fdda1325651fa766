"""The section `reductions`: the work that each exact reduction leaves out."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.reductions.figures import figures
from spdnn.report.reductions.values import values

SECTION = Section("reductions", "What the reductions leave out", Path(__file__).parent, values, figures)
