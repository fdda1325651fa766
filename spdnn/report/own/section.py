"""The section `own`: networks that are none of the twelve."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.own.figures import figures
from spdnn.report.own.values import values

SECTION = Section("own", "Other networks", Path(__file__).parent, values, figures)
