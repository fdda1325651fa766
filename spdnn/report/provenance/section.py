"""The section `provenance`, the last of the page: what numbers include, machines, commands and all records."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.provenance.values import values

SECTION = Section("provenance", "Records and glossary", Path(__file__).parent, values)
