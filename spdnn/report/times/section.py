"""The section `times`: the parts of each run's time, the survivors by layer, and ladders of settings."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.times.figures import figures
from spdnn.report.times.values import values

SECTION = Section("times", "Where the time goes", Path(__file__).parent, values, figures)
