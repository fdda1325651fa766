"""The section `cases`, the first. It lists each case with its verdict."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.verdict.values import values

SECTION = Section("cases", "Verdict", Path(__file__).parent, values)
