"""The section `scaling`: runs on several ranks. A page without any says how to run them."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.scaling.figures import figures
from spdnn.report.scaling.values import values

SECTION = Section(
    "scaling", "Scaling", Path(__file__).parent, values, figures,
    absent="Scaling over several ranks is not shown, for none of these runs had more than one. "
    "<code>snakemake --configfile config/strong.yaml</code> (the same inputs on more ranks) and "
    "<code>snakemake --configfile config/weak.yaml</code> (inputs that grow with the ranks) run them.",
)  # fmt: skip
