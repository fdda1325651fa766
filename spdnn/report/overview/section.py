"""The section `overview`: the first screen. Its heading is the page's first."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.overview.figures import figures
from spdnn.report.overview.values import values

SECTION = Section("overview", "Overview", Path(__file__).parent, values, figures)
