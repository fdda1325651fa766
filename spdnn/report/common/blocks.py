"""What a section of the report is made of, and its HTML: paragraphs, tables, figures, folds, parts with a heading.

A section lists such blocks; none of them holds HTML, so that nothing in a record can be markup.
"""

import base64
import gzip
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Union

from spdnn.core.shown import RATES, plural, printable
from spdnn.core.table import LONGEST_TEXT, NOTHING, Cell, Number, Phrase, Rows, Styled, Unit, plain, write
from spdnn.report.common.drawing import Drawing, Figure

PLAIN_BYTES = 60_000  # longer texts in links are compressed
NAME, LONG_TEXT = 34, 60  # characters from which a column's texts get more room
# Colours of figures, as they are in files, and the variables of the page's style that stand for them.
THEME = {
    "#1f2933": "ink", "#262626": "ink", "#ffffff": "card", "#e3e6ea": "grid", "#8a8f98": "edge", "#9aa1ab": "edge",
    "#f1f3f5": "tint", "#c9ced6": "line", "#c3c8cf": "rest", "#7b8794": "edge",
}  # fmt: skip


@dataclass(frozen=True)
class Paragraph:
    """A sentence or several; `kind`: soft, note or another class of the page's style; `name`: its anchor."""

    text: Phrase
    kind: str = ""
    name: str = ""


@dataclass(frozen=True)
class Part:
    """Blocks under a heading of their own; `name`: its anchor."""

    heading: Phrase
    blocks: Sequence["Block"]
    name: str = ""


@dataclass(frozen=True)
class Fold:
    """Blocks that a reader unfolds."""

    summary: Phrase
    blocks: Sequence["Block"]
    name: str = ""


@dataclass(frozen=True)
class Terms:
    """Terms and what they mean; `anchored`: links to `term-NAME` lead to each."""

    pairs: Sequence[tuple[Phrase, Phrase]]
    anchored: bool = False


@dataclass(frozen=True)
class Bullets:
    """A list."""

    items: Sequence[Phrase]


@dataclass(frozen=True)
class Tiles:
    """Large numbers side by side: (what, number, unit, of what)."""

    numbers: Sequence[tuple[str, str, str, str]]


Block = Union[Paragraph, Part, Fold, Terms, Bullets, Tiles, Rows, Figure]  # noqa: UP007


@dataclass(frozen=True)
class Section:
    """One part of the page.

    Attributes:
        name: of its anchor, and of the folder of its figures; no two sections have the same.
        title: in the table of contents, and above the section.
        blocks: what it shows.
        heading: above the section, where it is longer than the title.
    """

    name: str
    title: str
    blocks: Sequence[Block]
    heading: str = ""

    def every(self, kind: type) -> Iterator:
        """The blocks of a kind, those within others too."""
        return _every(self.blocks, kind)


def _every(blocks: Sequence[Block], kind: type) -> Iterator:
    for block in blocks:
        if isinstance(block, kind):
            yield block
        elif isinstance(block, Part | Fold):
            yield from _every(block.blocks, kind)


def term(text: str, name: str = "") -> Styled:
    """A word that the glossary explains, under `name`."""
    return Styled(text, "term", f"#term-{anchor(name or text)}")


def anchor(text: str) -> str:
    """A name for an element."""
    return re.sub(r"[^\w.]+", "-", re.sub("[,']", "", text.lower())).strip("-.")


def link(name: str, text: str, kind: str) -> dict[str, str]:
    """A data: address that holds `text`, plain or, where it is long, gzip; and the name of the file that it becomes.

    Args:
        kind: its media type, such as text/csv.
    """
    content = text.encode()
    if len(content) > PLAIN_BYTES:
        name, kind, content = f"{name}.gz", "application/gzip", gzip.compress(content, 9, mtime=0)
    else:
        kind = f"{kind};charset=utf-8"
    return {"name": name, "href": f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"}


@dataclass(frozen=True)
class Writer:
    """Writes blocks as HTML.

    Attributes:
        rates: (scale, name) of the page's unit of rates.
        drawings: the figures by name; those that are not drawn are left out.
    """

    rates: tuple[float, str] = RATES[0]
    drawings: Mapping[str, Drawing] = field(default_factory=dict)

    def blocks(self, blocks: Sequence[Block]) -> str:
        """Blocks one after the other."""
        return "".join(map(self.block, blocks))

    def block(self, block: Block) -> str:
        """One of them."""
        match block:
            case Paragraph():
                return f"<p{_id(block.name)}{_class(block.kind)}>{self.phrase(block.text)}</p>\n"
            case Part():
                head = f"<h3{_id(block.name)}>{self.phrase(block.heading)}</h3>"
                return f"<section>\n{head}\n{self.blocks(block.blocks)}</section>\n"
            case Fold():
                summary = f"<summary>{self.phrase(block.summary)}</summary>"
                return f"<details{_id(block.name)}>{summary}\n{self.blocks(block.blocks)}</details>\n"
            case Terms():
                pairs = "".join(
                    f"<dt{_id(f'term-{anchor(plain(name))}' if block.anchored else '')}>{self.phrase(name)}</dt>"
                    f"<dd>{self.phrase(meaning)}</dd>\n"
                    for name, meaning in block.pairs
                )
                return f"<dl>\n{pairs}</dl>\n"
            case Bullets():
                return "<ul>\n" + "".join(f"<li>{self.phrase(item)}</li>\n" for item in block.items) + "</ul>\n"
            case Tiles():
                tiles = "".join(
                    f'<div><dt>{what}</dt><dd>{number} <small>{unit}</small></dd><dd class="of">{of}</dd></div>\n'
                    for what, number, unit, of in (map(self.phrase, texts) for texts in block.numbers)
                )
                return f'<dl class="tiles">\n{tiles}</dl>\n'
            case Rows():
                return self.table(block)
        return self.figure(block)

    def table(self, shown: Rows) -> str:
        """A table, folded; it can be sorted."""
        table, rows = shown.table, shown.rows[: shown.most]
        columns, cells = table.filled(rows)
        longest = [max((len(plain(row[k].value)) for row in cells), default=0) for k in range(len(columns))]
        styles = ["number" if column.unit else _room(size) for column, size in zip(columns, longest, strict=True)]
        heads = "".join(
            f'<th scope="col"{_class("number" if column.unit else "")}>'
            f"{', '.join(filter(None, map(self.phrase, (column.name, column.unit))))}</th>"
            for column in columns
        )
        lines = []
        for row, (first, *rest) in zip(rows, cells, strict=True):
            number = table.record(row)
            record = "" if number is None else f' data-record="{number}"'
            others = "".join(
                f"<td{_class(style)}>{self.cell(cell)}</td>" for style, cell in zip(styles[1:], rest, strict=True)
            )
            head = f'<th scope="row"{_class(styles[0])}>{self.cell(first)}</th>'
            lines.append(f"<tr{_class(table.kind(row))}{record}>{head}{others}</tr>\n")
        label, name = html.escape(printable(shown.title or table.title)), shown.name or table.name
        caption = self.phrase(shown.caption or table.caption)
        caption = f">\n<caption>{caption}</caption>" if caption else f' aria-label="{label}">'
        more, left = len(shown.rows) - len(rows), ""
        if more > 0:
            rest = f'{plural(more, "more row")} left off here; all are in <a href="#records">the records</a>.'
            left = f'<p class="soft">{rest}</p>\n'
        return (
            f'<details class="table"{" open" if shown.opened else ""}{_id(name and f"table-{name}")}>'
            f"<summary>{label}</summary>\n"
            f'<div class="scroll" role="region" tabindex="0" aria-label="{label}">\n'
            f'<table{_id(name)} class="sortable"{caption}\n<thead><tr>{heads}</tr></thead>\n'
            f"<tbody>\n{''.join(lines)}</tbody></table>\n</div>\n{left}</details>\n"
        )

    def cell(self, cell: Cell) -> str:
        """What a cell says, and below it the rest."""
        if cell.value is None:
            return NOTHING
        room = _class("long" if len(plain(cell.below)) > NAME else "")
        return self.phrase(cell.value) + (
            "" if cell.below is None else f"<br><small{room}>{self.phrase(cell.below)}</small>"
        )

    def figure(self, figure: Figure) -> str:
        """A figure with its caption and data; a telephone sees the narrow one, where there is one."""
        drawing = self.drawings.get(figure.name)
        if drawing is None:
            return ""
        data = link(f"{drawing.name}.csv", drawing.csv, "text/csv")
        both = (("wide", drawing.svg), ("narrow", drawing.narrow)) if drawing.narrow else (("", drawing.svg),)
        plots = "".join(f"<div{_class(kind)}>{svg}</div>" for kind, svg in both)
        # Colours follow the page's, light or dark.
        plots = re.sub("|".join(THEME), lambda colour: f"var(--{THEME[colour[0]]})", plots)
        return (
            f'<figure id="figure-{drawing.name}">\n<div class="scroll" role="region" tabindex="0" '
            f'aria-label="Figure: {html.escape(drawing.title)}">{plots}</div>\n'
            f"<figcaption>{html.escape(drawing.caption)} "
            f'<a class="data" download="{data["name"]}" href="{data["href"]}">Data of this figure (CSV)</a>'
            "</figcaption>\n</figure>\n"
        )

    def phrase(self, phrase: Phrase) -> str:
        """A phrase; its texts are escaped, its numbers can be sorted and written in other units."""
        match phrase:
            case None:
                return ""
            case str():
                return html.escape(printable(phrase, LONGEST_TEXT), quote=False)
            case int() | float():
                return self.phrase(Number(phrase))
            case Number():
                choice = f' data-unit="{phrase.unit.choice}"' if phrase.unit.choice else ""
                text = phrase.text or write(phrase.value, phrase.unit, self.rates)
                return f'<data value="{phrase.value:.12g}"{choice}>{html.escape(text)}</data>'
            case Unit():
                name = html.escape(plain(phrase, self.rates))
                return f'<span data-unit-name="{phrase.choice}">{name}</span>' if name and phrase.choice else name
            case Styled():
                text, kind = self.phrase(phrase.parts), phrase.kind
                title = f' title="{html.escape(plain(phrase.title))}"' if phrase.title else ""
                if phrase.href:
                    file = f' download="{html.escape(phrase.file)}"' if phrase.file else ""
                    return (
                        f'<a{_id(phrase.name)}{_class(kind)}{file} href="{html.escape(phrase.href)}"{title}>{text}</a>'
                    )
                return f"<code>{text}</code>" if kind == "code" else f"<span{_class(kind)}{title}>{text}</span>"
        return "".join(map(self.phrase, phrase))


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


def _id(name: str) -> str:
    return f' id="{html.escape(name)}"' if name else ""


def _room(size: int) -> str:
    return "long" if size > LONG_TEXT else "name" if size > NAME else ""
