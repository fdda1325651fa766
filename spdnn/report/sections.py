"""The sections of the report in the order of the page: docs/how-to/add-a-section.md.

A section is a module with a function `section`: from a Collection, its Section (spdnn/report/common/blocks.py), or None
where there is nothing to show; and perhaps ABSENT, a sentence on what is not shown and which command makes it.

Data flows one way, and each step has one owner::

    records, verdicts, published tables --rendering--> Collection   the contents of the page; nothing is worded yet
    Collection --groups--> Groups, in the Collection too            runs that are compared
    Collection --section--> Section                                 sentences, tables with their rows, figures
    Figures --drawing--> Drawings                                   plots, saved as SVG and CSV
    Section, Drawings --blocks.Writer--> HTML

A section knows of others only what it links to.
"""

from types import ModuleType

from spdnn.core.places import load

SECTIONS = [
    "spdnn.report.overview",  # the first screen; its heading is the page's first
    "spdnn.report.own",
    "spdnn.report.calls",
    "spdnn.report.networks",
    "spdnn.report.times",
    "spdnn.report.limits",
    "spdnn.report.reductions",
    "spdnn.report.scaling",
    "spdnn.report.schedules",
    "spdnn.report.peers",
    "spdnn.report.operations",
    "spdnn.report.cases",
    "spdnn.report.others",
    "spdnn.report.provenance",
]


def modules() -> list[ModuleType]:
    """The sections, imported."""
    return [load(place) for place in SECTIONS]
