"""The section `others`: records of other runs, in groups of their own."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.others.values import values

SECTION = Section("others", "Other records", Path(__file__).parent, values)
