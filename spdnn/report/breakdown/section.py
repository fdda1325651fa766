"""The section `times`: what each run's time was made of. Survivors and ladders are part of it."""

from pathlib import Path

from spdnn.report.breakdown.figures import figures
from spdnn.report.breakdown.values import values
from spdnn.report.common.section import Section

SECTION = Section("times", "Where the time goes", Path(__file__).parent, values, figures)
