"""The section `schedules`: runs of the task graph. A page without any says how to run them."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.schedules.figures import figures
from spdnn.report.schedules.values import values

SECTION = Section(
    "schedules", "Schedules", Path(__file__).parent, values, figures,
    absent="Schedules of the task graph are not shown, for none of these runs is of the engine taskgraph. "
    "<code>snakemake --configfile config/schedules.yaml</code> runs them.",
)  # fmt: skip
