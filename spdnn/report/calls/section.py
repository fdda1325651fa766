"""The section `calls`: one's own networks, called with batches of inputs, beside other libraries."""

from pathlib import Path

from spdnn.report.calls.figures import figures
from spdnn.report.calls.values import values
from spdnn.report.common.section import Section

SECTION = Section("calls", "Latency", Path(__file__).parent, values, figures, heading="Latency and throughput by batch")
