"""Text files of entries, one `row column value` a line, 1-based: parsed in C, diagnosed line by line.

The slow parser is the authority on what a line may hold. The fast one takes only blocks in which nothing can be amiss;
every other block the slow one reads, which finds the line at fault and says what is wrong with it.
"""

import codecs
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from spdnn.core.errors import InputError
from spdnn.core.validation import quote
from spdnn.kernels import dispatch

PARSED_BYTES = 1 << 25  # bytes of text parsed at a time, where a file is not parsed whole
INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
FULL = re.compile(rb"\S[^\r\n]*")  # of a line that is not blank, from its first character that is none


@dataclass(frozen=True)
class LineFormat:
    """What the fields of a line are: `row column value`, or `row column` alone when `value` is None.

    `rows` and `columns` are the highest numbers allowed; fields are parted by `tabs`, else by any blanks.
    """

    row: str
    column: str
    rows: int
    columns: int
    value: str | None = "value"
    tabs: bool = True


def blocks(stream, size: int = PARSED_BYTES) -> Iterator[tuple[bytes, int]]:
    """Whole lines of a stream, about `size` bytes at a time, each with the number of its first line."""
    rest, line = [], 1
    while chunk := stream.read(size):
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            rest.append(chunk)
            continue
        block = b"".join([*rest, chunk[:cut]])
        rest = [chunk[cut:]]
        yield block, line
        line += block.count(b"\n")
    if last := b"".join(rest):
        yield last, line


def parse(block: bytes, where: str, form: LineFormat, first_line: int = 1) -> tuple[np.ndarray, ...]:
    """The entries of some lines, in their order; blank lines hold none.

    Args:
        block: the text.
        where: the file's name, for messages.
        form: what the fields are and may be.
        first_line: the number of the block's first line in its file.

    Returns:
        rows and columns, int64, 0-based; values, float32 (ones when the form has no value).

    Raises:
        InputError: `where:line: ...` of the first line that is not as `form` says: fields missing or too
            many, not a number, a number out of range, a value that is NaN, infinite or too large for float32.
    """
    block = block.removeprefix(codecs.BOM_UTF8) if first_line == 1 else block
    rows, columns, values = _fast(block, form) or _slow(block, where, form, first_line)
    return rows - 1, columns - 1, values


def line_of(block: bytes, entry: int, first_line: int = 1) -> int:
    """The number of the line that holds entry `entry` (0-based) of `block`."""
    return next(itertools.islice(_lines(block, first_line), entry, None))[0]


def find_repeated(keys: np.ndarray) -> int | None:
    """The position of the first key (int64) that an earlier one equals, or None; quick when keys ascend."""
    if (keys[1:] > keys[:-1]).all():
        return None
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    again = order[1:][ordered[1:] == ordered[:-1]]
    return int(again.min()) if again.size else None


def is_heading(path: Path, number: int, text: str) -> bool:
    """Whether a line is the first of a .csv and holds no number."""
    return number == 1 and path.suffix == ".csv" and not any(map(_is_number, text.split(",")))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _lines(block: bytes, first_line: int) -> Iterator[tuple[int, bytes]]:
    """(number, line) of every line that is not blank; lines end with a newline, a return, or both."""
    number, end = first_line, 0
    for full in FULL.finditer(block):
        gap = block[end : full.start()]
        number += gap.count(b"\n") + gap.count(b"\r") - gap.count(b"\r\n")
        begin, end = end + max(gap.rfind(b"\n"), gap.rfind(b"\r")) + 1, full.end()
        yield number, block[begin:end]


def _fast(block: bytes, form: LineFormat) -> tuple[np.ndarray, ...] | None:
    """What `_slow` gives, compiled; None where anything could be amiss, or that is not built."""
    compiled = dispatch.find_module()
    if compiled is None:
        return None
    room = compiled.count_lines(block) + 1
    rows, columns, values = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(room, np.float32)
    valued = form.value is not None
    count = compiled.read_entries(block, form.tabs, valued, form.rows, form.columns, rows, columns, values)
    return None if count < 0 else (rows[:count], columns[:count], values[:count])


def _slow(block: bytes, where: str, form: LineFormat, first_line: int) -> tuple[np.ndarray, ...]:
    rows, columns, values = [], [], []
    for number, line in _lines(block, first_line):
        row, column, value = _entry(line.decode("utf-8", "replace"), f"{where}:{number}", form)
        rows.append(row)
        columns.append(column)
        values.append(value)
    return np.array(rows, np.int64), np.array(columns, np.int64), np.array(values, np.float32)


def _entry(line: str, where: str, form: LineFormat) -> tuple[int, int, np.float32]:
    fields = [field.strip() for field in (line.split("\t") if form.tabs else line.split())]
    names = [name for name in (form.row, form.column, form.value) if name]
    if len(fields) != len(names):
        parted = f"{', '.join(names)}, parted by {'tabs' if form.tabs else 'blanks'}"
        raise InputError(f"{where}: {quote(line)} has {len(fields)} of {len(names)} fields; a line is {parted}")
    numbers = []
    for field, what, highest in zip(fields, (form.row, form.column), (form.rows, form.columns), strict=False):
        if not INTEGER.fullmatch(field) or not 1 <= int(field) <= highest:
            raise InputError(f"{where}: {what} {quote(field)} is not one of 1 to {highest}")
        numbers.append(int(field))
    if form.value is None:
        return *numbers, np.float32(1)
    with np.errstate(over="ignore"):
        value = np.float32(float(fields[2])) if NUMBER.fullmatch(fields[2]) else np.float32(np.nan)
    if not np.isfinite(value):
        raise InputError(f"{where}: {form.value} {quote(fields[2])} is not a finite number that float32 can hold")
    return *numbers, value
