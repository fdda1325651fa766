"""Cells of the documentation's tables, compared with what the records give, without the code that made the tables.

python tests/recomputed.py [--seed N] [--cells N] [--all]
    compares cells, drawn by a seed, with the records; exits with 1 where one differs

A table stands between `<!-- measured: NAME -->` and `<!-- /measured -->`; recomputed_tables.py has a function for each
NAME. A cell agrees where the number, rounded to the printed digits, is the printed one. Intervals are percentile
bootstraps with the seeds of the package, which fix their resamples, so they need no tolerance.
"""

import argparse
import math
import random
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from recomputed_tables import ROOT, TABLES, Rows, Value

BLOCK = re.compile(r"^<!-- measured: (\w+) -->\n(.*?)^<!-- /measured -->", re.DOTALL | re.MULTILINE)
OUTSIDE = {  # blocks that hold no table of records, and what they hold
    "picture": "a picture and a sentence",
    "lead": "sentences",
    "scales": "sentences",
    "gpu_memory": "a sentence",
    "example": "what a command prints",
    "published_models": "what benchmarks print",
    "predicted_scaling": "what a benchmark prints",
}
MARKS = re.compile(r"\s*([†‡§¶‖*#]|\(?busy machine\)?)")  # in cells and heads
NUMBER = re.compile(r"([+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?)(?: ?(ms|µs|s|%|[KMG]iB|B)(?!\w))?")
UNITS = {"s": 1, "ms": 1e-3, "µs": 1e-6, "%": 1e-2, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, None: 1}
BRACKETS = re.compile(r"\s*\(([^()]*)\)")


class Table(NamedTuple):
    """A table of a page, as printed; `lines`: the line of the page of each row, from 0."""

    page: str
    name: str
    head: list[str]
    rows: list[list[str]]
    lines: list[int]


class Cell(NamedTuple):
    """A cell of a table, and what the records give for it: numbers and texts in their order; nothing: it is empty."""

    table: Table
    row: int
    column: int
    parts: list[Value | str]

    @property
    def text(self) -> str:
        return self.table.rows[self.row][self.column]

    def __str__(self) -> str:
        table = self.table
        place = f"{table.page}, {table.name}, row {self.row + 1} ({table.rows[self.row][0]}), {table.head[self.column]}"
        texts = [part if isinstance(part, str) else f"{part.number:.6g}" for part in self.parts]
        return f"{place}: printed {self.text!r}, recomputed {''.join(texts)!r}"


def split(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def blocks(page: str, text: str) -> Iterator[tuple[str, list[Table]]]:
    """The name of each measured block of a page, and its tables."""
    for match in BLOCK.finditer(text):
        tables, before = [], ""
        for number, line in enumerate(match[2].split("\n"), text[: match.start(2)].count("\n")):
            if line.startswith("|") and not before.startswith("|"):
                tables.append(Table(page, match[1], [MARKS.sub("", cell) for cell in split(line)], [], []))
            elif line.startswith("|") and not re.fullmatch(r"[-:| ]+", line):
                tables[-1].rows.append(split(line))
                tables[-1].lines.append(number)
            before = line
        yield match[1], tables


def read_pages() -> dict[str, str]:
    paths = [ROOT / "README.md", ROOT / "docs/results.md", *sorted(ROOT.glob("docs/explanation/*.md"))]
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in paths}


@cache
def recomputed(name: str) -> list[Rows]:
    """Heads and rows of the tables of a block."""
    made = TABLES[name]()
    return made if isinstance(made, list) else [made]


def ceil_div(expected: Any) -> list[Value | str]:
    """What a function of a table gives for a cell, as a list."""
    whole = expected if isinstance(expected, list) else [] if expected is None else [expected]
    return [part if isinstance(part, str | Value) else Value(part) for part in whole]


def compare(pages: Mapping[str, str]) -> tuple[list[Cell], list[str]]:
    """The cells of all tables of pages, and sentences on tables that cannot be compared cell by cell."""
    cells, wrong = [], []
    for name, tables in (block for page, text in pages.items() for block in blocks(page, text)):
        if name in OUTSIDE:
            continue
        if name not in TABLES:
            wrong.append(f"{name}: no function of recomputed_tables.py gives it, and OUTSIDE does not name it")
            continue
        found = recomputed(name)
        if len(tables) != len(found):
            wrong.append(f"{name}: {len(tables)} tables printed, {len(found)} recomputed")
        for table, (head, rows) in zip(tables, found, strict=False):
            sizes = {len(row) for row in [*table.rows, *rows]}
            if table.head != head or len(table.rows) != len(rows) or sizes != {len(head)}:
                wrong.append(f"{name}: {len(table.rows)} rows of {table.head}, recomputed {len(rows)} of {head}")
                continue
            cells += [Cell(table, i, j, ceil_div(one)) for i, row in enumerate(rows) for j, one in enumerate(row)]
    return cells, wrong


def agrees(cell: Cell) -> bool:
    """Whether a cell, read from left to right, has the texts and the numbers that are expected, and nothing more."""
    rest = MARKS.sub("", cell.text)
    for part in cell.parts:
        if isinstance(part, str):
            if not rest.startswith(part):
                return False
            rest = rest.removeprefix(part)
            continue
        match = NUMBER.match(rest)
        if not match or not rounds(match, part.number):
            return False
        rest = rest[match.end() :]
        if (facts := BRACKETS.match(rest)) and (hold := check_facts(facts[1], part)) is not None:
            if not hold:
                return False
            rest = rest[facts.end() :]
    return not rest


def rounds(match: re.Match, number: float, unit: str | None = None) -> bool:
    """Whether a number rounds to the printed one; `unit`: of one that is printed without.

    Zeros at its end may not be printed, so two digits count at least; in percent, the printed ones. Whole numbers are
    printed in full.
    """
    shown, unit = float(match[1].replace(",", "")), match[2] or unit
    if isinstance(number, int):
        return shown == number and unit is None
    mantissa, _, exponent = match[1].partition("e")
    half = 0.5 * 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    if unit != "%" and shown:
        half = min(half, 0.05 * 10.0 ** math.floor(math.log10(abs(shown))))
    return abs(number / UNITS[unit] - shown) <= half * (1 + 1e-9)


def check_facts(text: str, value: Value) -> bool | None:
    """Whether brackets after a number are true of it: "n = 5", "4.6 to 5.6", "fastest 4.9"; None: they say else."""
    hold = True
    for part in re.split(r"[;,] ", text):
        numbers, kind = list(NUMBER.finditer(part)), NUMBER.sub("#", part)
        if kind in ("n = #", "n=#"):
            hold &= int(numbers[0][1].replace(",", "")) in value.counts
        elif kind == "fastest #" and value.fastest is not None:
            hold &= rounds(numbers[0], value.fastest)
        elif kind == "# to #" and value.ends:
            hold &= all(rounds(one, end, numbers[1][2]) for one, end in zip(numbers, value.ends(), strict=True))
        else:
            return None
    return hold


def drawn(cells: Sequence[Cell], seed: int, count: int) -> list[Cell]:
    """Cells that print something, drawn by a seed."""
    return random.Random(seed).sample([cell for cell in cells if cell.text], count)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare cells of the documentation's tables with the records.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cells", type=int, default=20, help="how many are drawn")
    parser.add_argument("--all", action="store_true", help="every cell, empty ones too")
    options = parser.parse_args()
    cells, wrong = compare(read_pages())
    chosen = cells if options.all else drawn(cells, options.seed, options.cells)
    differing = [cell for cell in chosen if not agrees(cell)]
    print(*wrong, *differing, f"{len(chosen)} cells compared, {len(differing)} differ", sep="\n")
    return bool(wrong or differing)


if __name__ == "__main__":
    sys.exit(main())
