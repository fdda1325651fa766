"""The .smtx files of the Deep Learning Matrix Collection: where the nonzeros of a matrix are, as text.

Three lines: `rows, columns, nonzeros`; the rows + 1 offsets; the columns of the nonzeros, both parted by blanks.
Source: Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-A.
"""

import codecs
import re

import numpy as np

from spdnn.core import files, safe_open
from spdnn.core.errors import InputError

LINES = 3
MOST_DIGITS = 18  # of a number: more do not fit into int64


def read(path) -> tuple[tuple[int, int], np.ndarray, np.ndarray]:
    """(shape, offsets int64 (rows + 1,), columns int64 (nonzeros,)) of a file.

    The counts agree when this returns; whether offsets and columns ascend is for ops.Topology to say.

    Raises:
        InputError: not a file of that form; the sentence names the line.
    """
    path = safe_open.existing(path, "file")
    with safe_open.name_errors(path, "it cannot be read as a .smtx file"):
        content = safe_open.whole(path)
    return parse(content, str(path))


def parse(content: bytes, where: str) -> tuple[tuple[int, int], np.ndarray, np.ndarray]:
    """What `read` gives, of a file's content; errors begin with `where`."""
    try:
        lines = content.removeprefix(codecs.BOM_UTF8).decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{where}: it cannot be read as a .smtx file ({safe_open.brief(error)})") from error
    while lines and not lines[-1].strip():
        lines.pop()
    if len(lines) not in (LINES - 1, LINES):
        raise InputError(f"{where}: {len(lines)} lines; a .smtx file has {LINES}: sizes, offsets, columns")
    sizes, offsets = _numbers(where, 1, lines[0].replace(",", " ")), _numbers(where, 2, lines[1])
    columns = _numbers(where, 3, lines[2] if len(lines) == LINES else "")
    if sizes.size != 3:
        raise InputError(f"{where}, line 1: {sizes.size} numbers; it must have rows, columns and nonzeros")
    rows, width, nonzeros = map(int, sizes)
    if offsets.size != rows + 1:
        raise InputError(f"{where}, line 2: {offsets.size} offsets; {rows} rows need {rows + 1}")
    if columns.size != nonzeros:
        raise InputError(f"{where}, line 3: {columns.size} columns; line 1 says {nonzeros} nonzeros")
    return (rows, width), offsets, columns


def write(path, shape: tuple[int, int], offsets: np.ndarray, columns: np.ndarray) -> None:
    """Write such a file, whole or not at all."""
    lines = (
        f"{shape[0]}, {shape[1]}, {columns.size}",
        *(" ".join(map(str, array.tolist())) for array in (offsets, columns)),
    )
    files.write_text(path, "\n".join(lines) + "\n")


def _numbers(where, number: int, line: str) -> np.ndarray:
    wrong = re.search(rf"[^0-9\s]|[0-9]{{{MOST_DIGITS + 1},}}", line)
    if wrong:
        raise InputError(
            f"{where}, line {number}: {line[wrong.start() :][:20]!r} is no whole number from 0 to 10^{MOST_DIGITS}"
        )
    return np.array(line.split(), dtype=np.int64)
