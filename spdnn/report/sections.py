"""The sections of the report in the order of the page, and what a section is: docs/how-to/add-a-section.md.

A section has values, figures and a template, in the files of one folder.

Data flows one way, and each step has one owner::

    records, verdicts, published tables --rendering--> Collection   the contents of the page; nothing is worded yet
    Collection --predictions--> Groups, in the Collection too       runs that are compared, and what models predict
    Collection --Section.values--> values                           section.py: what is shown, read from records
    values --Section.figures--> Figures, saved as Drawings          section.py: plots, titles and captions
    values, drawings --Section.template--> HTML                     template.html.j2: the text below the heading

Where `section.py` would be long, `values.py` and `figures.py` share its work. `spdnn.report.page` goes through SECTIONS
for the headings, the table of contents and the figures. A section knows of others only what it links to.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from spdnn.report.calls import section as calls
from spdnn.report.cases import values as cases
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import Drawing, Figure, save, style
from spdnn.report.limits import section as limits
from spdnn.report.networks import section as networks
from spdnn.report.operations import figures as operations_figures
from spdnn.report.operations import values as operations
from spdnn.report.others import values as others
from spdnn.report.overview import section as overview
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

TEMPLATE = "template.html.j2"


@dataclass(frozen=True)
class Section:
    """One part of the page.

    Attributes:
        name: of its anchor, and of the folder of its figures; no two sections have the same.
        title: in the table of contents, and above the section.
        values: what the template and the figures get, from a Collection; None: the section has nothing to show.
        figures: the figures of those values, if it has any. Title and caption of each are next to the code of its plot.
        heading: above the section, where it is longer than the title.
        absent: HTML, one sentence on what is not shown and which command makes it; printed where there are no values.
    """

    name: str
    title: str
    values: Callable[[Collection], dict | None]
    figures: Callable[[dict], Iterable[Figure]] | None = None
    heading: str = ""
    absent: str = ""

    @property
    def folder(self) -> Path:
        """The folder of its values, that of TEMPLATE too: HTML with `values`, the drawn `figures`, `page.HELPERS`."""
        return Path(inspect.getfile(inspect.unwrap(self.values))).parent

    def drawings(self, values: dict) -> list[Drawing]:
        """Its figures as files hold them; raises Unavailable without seaborn."""
        if self.figures is None:
            return []
        with style():
            return [save(figure, self.name) for figure in self.figures(values)]


SECTIONS = [
    # The first screen; its heading is the page's first.
    Section("overview", "Overview", overview.values, overview.figures),
    Section("own", "Networks of your own", own.values, own.figures),
    Section("calls", "Latency", calls.values, calls.figures, heading="Latency and throughput by batch"),
    Section("networks", "The twelve networks", networks.values, networks.figures),
    Section("times", "Where the time goes", times.values, times_figures.figures),
    Section(
        "limits", "How far from the limit", limits.values, limits.figures,
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
