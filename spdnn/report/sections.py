"""The sections of the report, in the order of the page: docs/how-to/add-a-section.md."""

from spdnn.report.calls.figures import figures as calls_figures
from spdnn.report.calls.values import values as calls
from spdnn.report.cases.values import values as cases
from spdnn.report.common.section import Section
from spdnn.report.limits.figures import figures as limits_figures
from spdnn.report.limits.values import values as limits
from spdnn.report.networks.figures import figures as networks_figures
from spdnn.report.networks.values import values as networks
from spdnn.report.operations.figures import figures as operations_figures
from spdnn.report.operations.values import values as operations
from spdnn.report.others.values import values as others
from spdnn.report.overview.figures import figures as overview_figures
from spdnn.report.overview.values import values as overview
from spdnn.report.own.figures import figures as own_figures
from spdnn.report.own.values import values as own
from spdnn.report.peers.figures import figures as peers_figures
from spdnn.report.peers.values import values as peers
from spdnn.report.provenance.values import values as provenance
from spdnn.report.reductions.figures import figures as reductions_figures
from spdnn.report.reductions.values import values as reductions
from spdnn.report.scaling.figures import figures as scaling_figures
from spdnn.report.scaling.values import values as scaling
from spdnn.report.schedules.figures import figures as schedules_figures
from spdnn.report.schedules.values import values as schedules
from spdnn.report.times.figures import figures as times_figures
from spdnn.report.times.values import values as times

SECTIONS = [
    Section("overview", "Overview", overview, overview_figures),  # the first screen; its heading is the page's first
    Section("own", "Networks of your own", own, own_figures),
    Section("calls", "Latency", calls, calls_figures, heading="Latency and throughput by batch"),
    Section("networks", "The twelve networks", networks, networks_figures),
    Section("times", "Where the time goes", times, times_figures),
    Section(
        "limits", "How far from the limit", limits, limits_figures,
        absent="The distance to the machine's limits is not shown: the machine was not measured with these "
        "runs. <code>spdnn challenge</code>, <code>spdnn infer</code> and the workflow measure it.",
    ),
    Section("reductions", "What the reductions leave out", reductions, reductions_figures),
    Section(
        "scaling", "Scaling", scaling, scaling_figures,
        absent="Scaling is not shown: nothing was run on several numbers of threads, ranks or GPUs. "
        "<code>snakemake --configfile config/strong.yaml</code> (the same inputs on more ranks) and "
        "<code>snakemake --configfile config/weak.yaml</code> (inputs that grow with the ranks) run them.",
    ),
    Section(
        "schedules", "Schedules", schedules, schedules_figures,
        absent="Schedules of the task graph are not shown: none of these runs used the engine taskgraph. "
        "<code>snakemake --configfile config/schedules.yaml</code> runs them.",
    ),
    Section(
        "peers", "Other libraries", peers, peers_figures, heading="Other libraries in the same run",
        absent="Other libraries on the challenge's problems are not shown: none was timed. "
        "<code>snakemake --configfile config/peers.yaml</code> and <code>spdnn bench kernels</code> time them.",
    ),
    Section(
        "operations", "Sparse operations", operations, operations_figures,
        heading="Sparse operations for deep learning",
        absent="Sparse products and attention beside other libraries are not shown: there are no records of them. "
        "<code>spdnn bench sets -o FOLDER</code> and <code>snakemake --configfile config/ops.yaml</code> make them.",
    ),
    Section("cases", "Verification", cases),
    Section("others", "Other records", others),
    Section("provenance", "Records and glossary", provenance),
]  # fmt: skip
