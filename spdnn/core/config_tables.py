"""The tables of `config/`: their paths in a checkout or an installed package, their rows, and checks of their cells."""

import csv
import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from spdnn.core import safe_open
from spdnn.core.errors import InputError, Unavailable
from spdnn.core.validation import quote

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent


def table(name: str) -> Path:
    """The path of the table `name` (data.tsv, truth/1024.tsv...). Raises Unavailable where the package lacks it."""
    in_checkout = (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "workflow/Snakefile").is_file()
    path = (CHECKOUT / "config" if in_checkout else PACKAGE / "tables") / name
    if not path.is_file():
        raise Unavailable(f"the table {name} is not where it should be: {path}")
    return path


def check_filled(cells: dict[str, str], names: Iterable[str], where: str) -> None:
    """Raise InputError where one of these cells is empty."""
    for name in names:
        if not cells[name].strip():
            raise InputError(f"{where}: {name} is empty")


def positive(text: str, name: str, where: str) -> float:
    """The positive number in the cell of column `name`; InputError where it is none."""
    number = float(text) if re.fullmatch(r"\d+(\.\d+)?(e[+-]?\d+)?", text) else math.nan
    if not 0 < number < math.inf:
        raise InputError(f"{where}: {name} {quote(text)} must be a positive number")
    return number


def whole(text: str, name: str, where: str, most: int = 999_999_999) -> int:
    """The whole number from 1 in the cell of column `name`; InputError where it is none."""
    if not re.fullmatch(r"[1-9]\d{0,8}", text) or int(text) > most:
        raise InputError(f"{where}: {name} {quote(text)} must be a whole number from 1 to {most:,}")
    return int(text)


def rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[dict[str, str], str]]:
    """The rows of a CSV table: (each cell by its column, `path line n`).

    Raises:
        InputError: it cannot be read, has other columns, or a row has more or fewer cells.
    """
    try:
        with open(safe_open.check_file(path, "table"), newline="", encoding="utf-8-sig") as stream:
            reader = csv.reader(stream, strict=True)
            if tuple(next(reader, ())) != columns:
                raise InputError(f"{path} line 1: the columns must be {','.join(columns)}")
            for cells in reader:
                where = f"{path} line {reader.line_num}"
                if len(cells) != len(columns):
                    raise InputError(f"{where}: {len(cells)} cells, not {len(columns)}")
                yield dict(zip(columns, cells, strict=True)), where
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: it cannot be read as a CSV table in UTF-8 ({safe_open.brief(error)})") from error
