"""The section `cases`, each case with its verdict."""

from pathlib import Path

from spdnn.report.cases.values import values
from spdnn.report.common.section import Section

SECTION = Section("cases", "Verification", Path(__file__).parent, values)
