"""The section `cases`, the first of the page: each case with its verdict."""

from pathlib import Path

from spdnn.report.cases.values import values
from spdnn.report.common.section import Section

SECTION = Section("cases", "Verdict", Path(__file__).parent, values)
