"""The section `peers`: other libraries in the same run. A page without any says how to run them."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.peers.figures import figures
from spdnn.report.peers.values import values

SECTION = Section(
    "peers", "Peers", Path(__file__).parent, values, figures,
    heading="Peers in the same run",
    absent="Peers are not shown, for no other library was timed in these runs. "
    "<code>snakemake --configfile config/peers.yaml</code> and <code>spdnn peers</code> do that.",
)  # fmt: skip
