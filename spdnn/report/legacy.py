"""Sections that have templates, until they are blocks."""

import inspect
from dataclasses import dataclass, replace
from pathlib import Path

from spdnn.core.shown import RATES
from spdnn.report.common import blocks, words
from spdnn.report.common.blocks import Section, Writer, themed
from spdnn.report.common.collection import fair
from spdnn.report.common.drawing import style

HERE = Path(__file__).resolve().parent
MOST = {"runs": 150, "rows": 100, "details": 60, "groups": 8, "lines": 20}


@dataclass
class Template:
    entry: "Legacy"
    values: dict

    def every(self):
        if not self.entry.figures:
            return
        with style():
            for figure in list(self.entry.figures(self.values)):
                if callable(figure.plot):
                    yield figure
                    continue
                yield replace(
                    figure, plot=lambda narrow, f=figure: f.narrow if narrow else f.plot, narrow=bool(figure.narrow)
                )


@dataclass
class Legacy:
    NAME: str
    title: str
    values: object
    figures: object = None
    heading: str = ""
    ABSENT: object = ""

    def section(self, collection):
        values = self.values(collection)
        return values and Section(self.NAME, self.title, [Template(self, values)], self.heading)


def _block(writer, block):
    if not isinstance(block, Template):
        return _before(writer, block)
    import jinja2

    folder = Path(inspect.getfile(inspect.unwrap(block.entry.values))).parent
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.FileSystemLoader(folder), jinja2.FileSystemLoader(HERE)]),
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        themed=themed, significant=words.significant, plural=words.plural, printable=words.printable
    )
    template = environment.get_template("template.html.j2")
    return template.render(
        most=MOST, words=words, link=blocks.link, values=block.values, figures=writer.drawings,
        fair=lambda runs, most: fair(runs, most, lambda run: (run.case, run.setting), lambda run: run.record.created),
        rates={"scale": writer.rates[0], "name": writer.rates[1], "all": RATES},
    )  # fmt: skip


def _every(found, kind):
    for block in found:
        if isinstance(block, Template):
            yield from block.every()
        else:
            yield from _every_before([block], kind)


_before, Writer.block = Writer.block, _block
_every_before, blocks._every = blocks._every, _every
