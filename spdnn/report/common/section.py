"""The contract of a section of the page: its values, its figures and its template, in the files of one folder.

Data flows one way, and each step has one owner::

    records, verdicts, published tables --rendering--> Collection   the contents of the page; nothing is worded yet
    Collection --predictions--> Groups, in the Collection too       runs that are compared, and what models predict
    Collection --Section.values--> values                           section.py: what is shown, read from records
    values --Section.figures--> Figures, saved as Drawings          section.py: plots, titles and captions
    values, drawings --Section.template--> HTML                     template.html.j2: the text below the heading

Where `section.py` would be long, `values.py` and `figures.py` share its work.
`spdnn.report.sections` lists the sections in the order of the page. `spdnn.report.page` goes through that list for the
headings, the table of contents and the figures. A section knows of others only what it links to.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import Drawing, Figure, save, style

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
