"""What commands print: tables as wide as the terminal, sentences, colours."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from spdnn.core.table import COLOURS, PLAIN, Table

NARROWEST_TERMINAL = 40  # columns of a terminal that lines are made for


def has_colours() -> bool:
    """Whether standard output shows colours; NO_COLOR (no-color.org) and a dumb terminal have none."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def colour_text(text: str, kind: str) -> str:
    """The text in the colour of a kind, good or bad, where colours are shown."""
    return f"{COLOURS[kind]}{text}{PLAIN}" if has_colours() else text


def width() -> int | None:
    """The columns of the terminal; None where there is none, so that nothing is cut."""
    return max(NARROWEST_TERMINAL, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None


def show(table: Table, rows: Sequence[Any]) -> None:
    """Print a table; letters that standard output cannot show are replaced."""
    say(table.text(rows, width(), has_colours()).split("\n"))


def say(lines: Iterable[str], wrapped: bool = False) -> None:
    """Print lines, as `show` does; `wrapped`: each is a sentence that may need several."""
    if wrapped and (columns := width()):
        lines = [
            line for text in lines
            for line in textwrap.wrap(text, columns, subsequent_indent="  ", break_on_hyphens=False) or [""]
        ]  # fmt: skip
    encoding = sys.stdout.encoding or "utf-8"
    print("\n".join(lines).encode(encoding, "replace").decode(encoding))
