"""A table is declared once, column by column; HTML (spdnn/report/common/blocks.py), CSV, terminal and Markdown follow.

What a cell says is a phrase: a text, a number with its unit, or several one after the other. Texts may come from
anywhere, so each output makes them harmless.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple, Union

from spdnn.core.shown import RATES, printable, significant, size, time, unit_of_rate

NOTHING = "–"  # what a cell without a value shows
GAP = "  "  # between columns of a terminal
NARROWEST_COLUMN = 12  # columns of a terminal that a column of texts has at least
LONGEST_TEXT = 2000  # characters of a text
COLOURS = {"good": "\x1b[32m", "bad": "\x1b[31m"}  # of a terminal, by the kind of a phrase
PLAIN = "\x1b[0m"
CODE = r"\x1b\[\d+m"  # of a colour


@dataclass(frozen=True)
class Unit:
    """How numbers are written.

    Attributes:
        name: follows the name of a column.
        write: a number as text.
        csv: ends the name of a column in CSV, where numbers are in this unit.
        choice: "rate" or "seconds", of numbers for which a reader of the page may choose another unit.
    """

    name: str = ""
    write: Callable[[float], str] = significant
    csv: str = ""
    choice: str = ""


NUMBER = Unit()
RATIO = Unit(write=partial(significant, digits=3))
PERCENT = Unit(write=lambda share: f"{significant(100 * share, 3)} %")
SECONDS = Unit("seconds", csv="_seconds", choice="seconds")
RATE = Unit(RATES[0][1], lambda rate: significant(rate / RATES[0][0]), "_edges_per_second", "rate")
BILLIONS = Unit("10⁹", lambda number: significant(number / 1e9))
BYTES = Unit(write=size, csv="_bytes")
DURATION = Unit(write=time, csv="_seconds")


@dataclass(frozen=True)
class Number:
    """A number within a text; `text`: as it is written, where that is not as its unit writes it."""

    value: float
    unit: Unit = NUMBER
    text: str = ""


@dataclass(frozen=True)
class Styled:
    """A part of a text.

    Attributes:
        parts: what it says.
        kind: soft, mark, chip, good, bad, code or another class of the page's style.
        href: where a link leads; file: the name of the file that it is saved as; name: its anchor.
        title: what a pointer that rests on it reads.
    """

    parts: "Phrase"
    kind: str = ""
    href: str = ""
    file: str = ""
    name: str = ""
    title: str = ""


Phrase = Union[str, int, float, Number, Styled, Unit, Sequence["Phrase"], None]  # noqa: UP007  it names itself
mark, code, bad, good = (partial(Styled, kind=kind) for kind in ("mark", "code", "bad", "good"))  # of a phrase
SHORT = Styled("s", "seconds")  # the unit of a number in SECONDS, after it; a reader of the page may choose another


def plain(phrase: Phrase, rates: tuple[float, str] = RATES[0], colours: bool = False) -> str:
    """A phrase as text on one line; `rates`: (scale, name) of the unit of rates; `colours`: as a terminal has them."""
    match phrase:
        case None:
            return ""
        case str():
            return printable(phrase, LONGEST_TEXT)
        case int() | float():
            return significant(phrase)
        case Number():
            return phrase.text or write(phrase.value, phrase.unit, rates)
        case Unit():
            return rates[1] if phrase.name and phrase.choice == "rate" else phrase.name
        case Styled():
            text, colour = plain(phrase.parts, rates, colours), COLOURS.get(phrase.kind) if colours else None
            return f"{colour}{text}{PLAIN}" if colour else text
    return "".join(plain(part, rates, colours) for part in phrase)


def between(low: float, high: float, unit: Unit = NUMBER) -> Phrase:
    """An interval."""
    return Number(low, unit), " to ", Number(high, unit)


def write(value: float, unit: Unit, rates: tuple[float, str]) -> str:
    """A number as its unit writes it; a rate in that of `rates`."""
    return significant(value / rates[0]) if unit.choice == "rate" else unit.write(value)


class Cell(NamedTuple):
    """What one row says in one column: the value, and what stands below it."""

    value: Phrase
    below: Phrase = None


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        name: its head.
        value: a function of a row: a phrase, a number in `unit`, or None. A column without any value is left out.
        unit: of its numbers, which stand on the right; None: texts.
        below: a function of a row: what stands below the value, such as its interval; in CSV, in a column KEY_below.
        csv: its name in CSV, the KEY; by default from name and unit.
    """

    name: str
    value: Callable[[Any], Phrase]
    unit: Unit | None = None
    below: Callable[[Any], Phrase] | None = None
    csv: str = ""

    def cell(self, row: Any) -> Cell:
        """What the row says in this column."""
        value = self.value(row)
        if self.unit and isinstance(value, int | float):
            value = Number(value, self.unit)
        return Cell(value, self.below(row) if self.below else None)

    def head(self, rates: tuple[float, str] = RATES[0]) -> str:
        """Name and unit."""
        return ", ".join(filter(None, (self.name, plain(self.unit, rates))))

    @property
    def parts(self) -> int:
        """Of a cell: the value, and what is below it where the column has that."""
        return 2 if self.below else 1

    @property
    def key(self) -> str:
        """Its name in CSV."""
        slug = re.sub(r"\W+", "_", self.name.lower()).strip("_")
        return self.csv or (slug + (self.unit.csv if self.unit else "")).strip("_")


@dataclass(frozen=True)
class Table:
    """A table of rows of one kind.

    Attributes:
        title: what it shows; caption: what a reader must know, above it.
        columns: the first is the name of a row.
        name: of its file and element; empty: it has none.
        record: a function of a row: the number of its record on the page, or None.
        kind: a function of a row: a class of the page's style, such as "ours".
    """

    title: str
    columns: Sequence[Column]
    caption: Phrase = ""
    name: str = ""
    record: Callable[[Any], int | None] = field(default=lambda row: None)
    kind: Callable[[Any], str] = field(default=lambda row: "")

    def filled(self, rows: Sequence[Any]) -> tuple[list[Column], list[list[Cell]]]:
        """(the columns in which a row has a value, the cells of each row in these)."""
        cells = [[column.cell(row) for column in self.columns] for row in rows]
        shown = [k for k in range(len(self.columns)) if k == 0 or any(row[k].value is not None for row in cells)]
        return [self.columns[k] for k in shown], [[row[k] for k in shown] for row in cells]

    def of(self, rows: Sequence[Any], **more: Any) -> "Rows":
        """The table with these rows; `more`: attributes of Rows."""
        return Rows(self, rows, **more)

    def csv(self, rows: Iterable[Any]) -> str:
        """All rows and columns as CSV, numbers as they are; what is below a value has a column of its own."""
        names = [name for column in self.columns for name in (column.key, f"{column.key}_below")[: column.parts]]
        return csv_text(
            names,
            ([_raw(part) for column in self.columns for part in column.cell(row)[: column.parts]] for row in rows),
        )

    def texts(self, rows: Sequence[Any], colours: bool = False) -> tuple[list[Column], list[list[str]]]:
        """(columns, heads and then each row as texts): what is below a value follows it in brackets."""
        columns, cells = self.filled(rows)
        rates = unit_of_rate(max((number for row in cells for cell in row for number in _rates(cell.value)), default=0))
        lines = [[column.head(rates) for column in columns]]
        for row in cells:
            pairs = [[plain(part, rates, colours) for part in cell] for cell in row]
            lines.append([f"{value} ({below})" if below else value or NOTHING for value, below in pairs])
        return columns, lines

    def text(self, rows: Sequence[Any], width: int | None = None, colours: bool = False) -> str:
        """Lines for a terminal of `width` columns; None: as wide as the texts are."""
        columns, lines = self.texts(rows, colours)
        sizes = [max(map(columns_of, texts)) for texts in zip(*lines, strict=True)]
        # Where the terminal is too narrow, the widest column of texts is made narrower, and its texts have more lines.
        texts = [k for k, column in enumerate(columns) if not column.unit]
        while width and sum(sizes) + len(GAP) * (len(sizes) - 1) > width:
            widest = max(texts, key=sizes.__getitem__, default=0)
            if sizes[widest] <= NARROWEST_COLUMN:
                break
            sizes[widest] -= 1
        out = []
        for line in lines:
            parts = [
                [text] if column.unit else wrapped(text, size)
                for text, size, column in zip(line, sizes, columns, strict=True)
            ]
            for pieces in zip_longest(*parts, fillvalue=""):
                blanks = [" " * (size - columns_of(piece)) for size, piece in zip(sizes, pieces, strict=True)]
                aligned = [
                    blank + piece if column.unit else piece + blank
                    for blank, piece, column in zip(blanks, pieces, columns, strict=True)
                ]
                out.append(GAP.join(aligned).rstrip())
        return "\n".join(out)

    def markdown(self, rows: Sequence[Any]) -> str:
        """A table in Markdown."""
        columns, lines = self.texts(rows)
        rule = ["---:" if column.unit else "---" for column in columns]
        escaped = [[text.replace("|", "\\|").replace("<", "&lt;") for text in line] for line in lines]
        return "\n".join(f"| {' | '.join(line)} |" for line in [escaped[0], rule, *escaped[1:]]) + "\n"


@dataclass(frozen=True)
class Rows:
    """A table with its rows, as a section of the report has it.

    Attributes:
        title, caption, name: in place of the table's.
        most: rows that are shown.
        opened: whether it is unfolded.
    """

    table: Table
    rows: Sequence[Any]
    title: str = ""
    caption: Phrase = ""
    name: str = ""
    most: int = 100
    opened: bool = False


def csv_text(names: Sequence[str], rows: Iterable[Sequence]) -> str:
    """A CSV table. Texts that a spreadsheet would run as a formula are set off by an apostrophe."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        texts = ("" if value is None else value for value in row)
        writer.writerow(
            f"'{text}" if isinstance(text, str) and text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
            for text in texts
        )
    return stream.getvalue()


def _raw(phrase: Phrase) -> Any:
    """A number itself, and else the text; nothing for what is not known."""
    while isinstance(phrase, Styled):
        phrase = phrase.parts
    value = phrase.value if isinstance(phrase, Number) else phrase
    return value if isinstance(value, int | float) else "" if value == NOTHING else plain(value)


def _rates(phrase: Phrase) -> Iterator[float]:
    """The rates in a phrase."""
    if isinstance(phrase, Number) and phrase.unit.choice == "rate":
        yield phrase.value
    elif isinstance(phrase, Styled):
        yield from _rates(phrase.parts)
    elif isinstance(phrase, list | tuple):
        for part in phrase:
            yield from _rates(part)


def columns_of(text: str) -> int:
    """The columns of a terminal that a text takes: two for a wide letter, none for an accent over another letter."""
    return sum(
        0 if unicodedata.category(sign) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in re.sub(CODE, "", text)
    )


def wrapped(text: str, room: int) -> list[str]:
    """Lines of at most `room` columns, between words where that is possible."""
    lines = [""]
    for word in text.split(" "):
        joined = f"{lines[-1]} {word}" if lines[-1] else word
        if columns_of(joined) <= room:
            lines[-1] = joined
            continue
        lines += [word] if lines[-1] else []
        lines[-1] = word
        while columns_of(lines[-1]) > room:
            head = _fitting(lines[-1], room)
            lines[-1:] = [head, lines[-1][len(head) :]]
    return _closed(lines)


def _closed(lines: Sequence[str]) -> list[str]:
    """The lines, each with its colour ended at its end, and begun again on the next."""
    out, colour = [], ""
    for line in lines:
        codes = re.findall(CODE, line)
        begun, colour = colour, codes[-1].replace(PLAIN, "") if codes else colour
        out.append(f"{begun}{line}{PLAIN if colour else ''}")
    return out


def _fitting(text: str, room: int) -> str:
    """As much of the beginning as `room` columns hold."""
    width = 0
    for index, sign in enumerate(text):
        width += columns_of(sign)
        if width > room:
            return text[:index]
    return text
