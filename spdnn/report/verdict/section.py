"""The section `cases`: each case and its verdict."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.verdict.values import values

SECTION = Section("cases", "Verdict", Path(__file__).parent, values)
