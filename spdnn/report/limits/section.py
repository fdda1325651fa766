"""The section `limits`: each run under the roofline of its machine."""

from pathlib import Path

from spdnn.report.common.section import Section
from spdnn.report.limits.figures import figures
from spdnn.report.limits.values import values

SECTION = Section(
    "limits", "How far from the limit", Path(__file__).parent, values, figures,
    absent="How far these runs are from their machines' limits is not shown: the machine was not measured with them. "
    "Records that <code>spdnn challenge</code>, <code>spdnn infer</code> and the workflow write today have it.",
)  # fmt: skip
