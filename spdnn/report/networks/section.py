"""The section `networks`: this project and the best published figures, by official network."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.networks.values import values

SECTION = Section("networks", "The twelve networks", Path(__file__).parent, values)
