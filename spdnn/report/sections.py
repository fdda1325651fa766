"""The sections of the report, in the order of the page: docs/how-to/add-a-section.md."""

from spdnn.report.calls import section as calls
from spdnn.report.cases import values as cases
from spdnn.report.common.section import Section
from spdnn.report.limits import figures as limits_figures
from spdnn.report.limits import values as limits
from spdnn.report.networks import section as networks
from spdnn.report.operations import figures as operations_figures
from spdnn.report.operations import values as operations
from spdnn.report.others import values as others
from spdnn.report.overview import figures as overview_figures
from spdnn.report.overview import values as overview
from spdnn.report.own import section as own
from spdnn.report.peers import section as peers
from spdnn.report.provenance import values as provenance
from spdnn.report.reductions import figures as reductions_figures
from spdnn.report.reductions import values as reductions
from spdnn.report.scaling import figures as scaling_figures
from spdnn.report.scaling import values as scaling
from spdnn.report.schedules import section as schedules
from spdnn.report.times import figures as times_figures
from spdnn.report.times import values as times

SECTIONS = [
    # The first screen; its heading is the page's first.
    Section("overview", "Overview", overview.values, overview_figures.figures),
    Section("own", "Networks of your own", own.values, own.figures),
    Section("calls", "Latency", calls.values, calls.figures, heading="Latency and throughput by batch"),
    Section("networks", "The twelve networks", networks.values, networks.figures),
    Section("times", "Where the time goes", times.values, times_figures.figures),
    Section(
        "limits", "How far from the limit", limits.values, limits_figures.figures,
        absent="The distance to the machine's limits is not shown: the machine was not measured with these "
        "runs. <code>spdnn challenge</code>, <code>spdnn infer</code> and the workflow measure it.",
    ),
    Section("reductions", "What the reductions leave out", reductions.values, reductions_figures.figures),
    Section(
        "scaling", "Scaling", scaling.values, scaling_figures.figures,
        absent="Scaling is not shown: nothing was run on several numbers of threads, ranks or GPUs. "
        "<code>snakemake --configfile config/strong.yaml</code> (the same inputs on more ranks) and "
        "<code>snakemake --configfile config/weak.yaml</code> (inputs that grow with the ranks) run them.",
    ),
    Section(
        "schedules", "Schedules", schedules.values, schedules.figures,
        absent="Schedules of the task graph are not shown: none of these runs used the engine taskgraph. "
        "<code>snakemake --configfile config/schedules.yaml</code> runs them.",
    ),
    Section(
        "peers", "Other libraries", peers.values, peers.figures, heading="Other libraries in the same run",
        absent="Other libraries on the challenge's problems are not shown: none was timed. "
        "<code>snakemake --configfile config/peers.yaml</code> and <code>spdnn bench kernels</code> time them.",
    ),
    Section(
        "operations", "Sparse operations", operations.values, operations_figures.figures,
        heading="Sparse operations for deep learning",
        absent="Sparse products and attention beside other libraries are not shown: there are no records of them. "
        "<code>spdnn bench sets -o FOLDER</code> and <code>snakemake --configfile config/ops.yaml</code> make them.",
    ),
    Section("cases", "Verification", cases.values),
    Section("others", "Other records", others.values),
    Section("provenance", "Records and glossary", provenance.values),
]  # fmt: skip
