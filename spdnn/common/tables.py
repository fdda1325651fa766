"""The tables of `config/`: where they are, next to a checkout's package or inside an installed one, and their rows."""

import csv
from collections.abc import Iterator
from pathlib import Path

from spdnn.common import door
from spdnn.common.errors import InputError, Unavailable

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent


def table(name: str) -> Path:
    """The path of the table `name` (data.tsv, baselines.csv, truth/1024.tsv...).

    Raises:
        Unavailable: the package was installed without it.
    """
    in_checkout = (CHECKOUT / "pyproject.toml").is_file() and (CHECKOUT / "Snakefile").is_file()
    path = (CHECKOUT / "config" if in_checkout else PACKAGE / "tables") / name
    if not path.is_file():
        raise Unavailable(f"the table {name} is not where it should be: {path}")
    return path


def rows(path: Path, columns: tuple[str, ...]) -> Iterator[tuple[dict[str, str], str]]:
    """The rows of a CSV table: (each cell by its column, `path line n`).

    Raises:
        InputError: it cannot be read, has other columns, or a row has more or fewer cells.
    """
    try:
        with open(door.checked(path, "table"), newline="", encoding="utf-8") as stream:
            reader = csv.reader(stream, strict=True)
            if tuple(next(reader, ())) != columns:
                raise InputError(f"{path} line 1: the columns must be {','.join(columns)}")
            for cells in reader:
                where = f"{path} line {reader.line_num}"
                if len(cells) != len(columns):
                    raise InputError(f"{where}: {len(cells)} cells, not {len(columns)}")
                yield dict(zip(columns, cells, strict=True)), where
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: it cannot be read as a CSV table in UTF-8 ({door.brief(error)})") from error
