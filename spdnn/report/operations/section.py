"""The section `operations`: sparse operations for deep learning, from operation records."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.operations.figures import figures
from spdnn.report.operations.values import values

SECTION = Section(
    "operations", "Sparse operations", Path(__file__).parent, values, figures,
    heading="Sparse operations for deep learning",
    absent="Sparse operations for deep learning are not shown, for there are no records of them. "
    "<code>spdnn ops bench -o FOLDER</code> and <code>snakemake --configfile config/ops.yaml</code> make them.",
)  # fmt: skip
