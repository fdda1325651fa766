"""Matrices as others write them: Matrix Market (.mtx, .mtx.gz), SciPy sparse (.npz), NumPy (.npy, .npz), text (.csv).

As layers, a matrix is inputs x outputs, or outputs x inputs where the user says so: one a file, a folder of them in
natural order, or a .txt list of files. As inputs, it is count x neurons. Nothing is ever unpickled. State dicts, which
.npz may hold too, are read in state_dicts.py.
"""

import codecs
import io
import math
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from spdnn.core import progress, safe_open
from spdnn.core import sparse as sp
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs, shape_hint
from spdnn.core.network import MemoryNetwork, check_indices
from spdnn.core.validation import quote, shorten
from spdnn.formats import lines, state_dicts, steps
from spdnn.formats.archive import natural
from spdnn.formats.checks import check_widths
from spdnn.formats.detection import MATRICES
from spdnn.formats.options import OUTPUTS, ReadOptions
from spdnn.formats.steps import Step
from spdnn.formats.tensors import NpzArchive, read_array

MATRIX_MARKET = (".mtx", ".mtx.gz")
UNSOUND = "this is no sound .npz file of plain numbers"
BANNER = "%%matrixmarket"
WEIGHTS = "those of a network are NAME.weight (outputs, inputs) and NAME.bias; or use spdnn.from_matrices"
ARRAY_BLOCK = 1 << 20  # bytes of text of the layout `array` parsed at a time


def open_network(path: Path, options: ReadOptions) -> MemoryNetwork:
    """The network of matrices in a file, a list (.txt) or a folder, or of a state dict. Raises as open_network."""
    if path.suffix.lower() == ".npz" and path.is_file() and state_dicts.is_state_dict(archive := NpzArchive(path)):
        return state_dicts.read_network(archive, "state dict", options)
    options.refuse_epsilon(path)
    return steps.network_of(path, _read_steps(path, options), "matrices", options.layers)


def _read_steps(path: Path, options: ReadOptions) -> Iterator[Step]:
    """The first matrices, each read when it is asked for; at the end, that their rows are known."""
    names, shapes, layers = sources(path), [], options.layers
    of_all = zip(names, options.biases(path, len(names)), options.activations(path, len(names)), strict=True)
    for name, bias, activation in progress.bar(islice(of_all, layers), "read network", len(names[:layers])):
        matrix = read_matrix(name, WEIGHTS)
        if matrix.ndim != 2:
            raise InputError(f"{name}: a layer is a matrix, not an array of {matrix.ndim} dimensions")
        shapes.append(matrix.shape)
        weight = matrix if options.rows == OUTPUTS else matrix.T
        yield Step("matrix" if name == path else name.name, "linear", weight, 0.0 if bias is None else bias, activation)
    steps.check_told(path, shapes, options.rows)


def open_inputs(path, neurons: int | None = None, count: int | None = None) -> Inputs:
    """The first `count` inputs (count x neurons) in .npz (SciPy sparse, or one NumPy array), .npy, .mtx, .csv.

    Raises:
        InputError: as for layers; or an array that is not a matrix of real numbers.
    """
    matrix = read_matrix(path, "inputs are one array: save it alone")
    if matrix.dtype.kind not in "fiub" or matrix.ndim != 2 or 0 in matrix.shape:
        hint = shape_hint(matrix.shape)
        raise InputError(
            f"{path}: inputs must be a real matrix (inputs, neurons), not {matrix.dtype} {matrix.shape}{hint}"
        )
    with safe_open.name_errors(path):
        inputs = Inputs.from_array(matrix).owned()
    inputs.description = {"source": "matrix", "path": Path(path).name, "sha256": inputs.sha256}
    return inputs if count is None else inputs.first(count)


def read_matrix(path, several: str = "save one matrix alone"):
    """The matrix in a .mtx, .mtx.gz, .npz, .npy or .csv file: SciPy sparse, or NumPy where it is stored densely.

    `several` ends the sentence that refuses an .npz of several arrays.
    """
    path = Path(path)
    if path.name.lower().endswith(MATRIX_MARKET):
        return _matrix_market(safe_open.whole(path), str(path))
    if path.suffix.lower() not in (".npz", ".npy", ".csv"):
        raise InputError(f"{path}: a matrix is in a .npz, .npy, .mtx, .mtx.gz or .csv file")
    matrix = _text(path) if path.suffix.lower() == ".csv" else _numpy(path, several)
    check_widths(path, *matrix.shape, entries=matrix.nnz if sp.issparse(matrix) else matrix.size)
    return matrix


def _numpy(path: Path, several: str):
    """The matrix in a .npz or .npy file."""
    if path.suffix.lower() == ".npy":
        return _dense(read_array(path))
    archive = NpzArchive(path)
    if "format" not in archive:
        name = archive.only(several)
        with safe_open.name_errors(path, UNSOUND):
            return _dense(archive.any(name))
    with safe_open.name_errors(path, UNSOUND):
        for name in archive:
            archive.shape(name)
    with safe_open.sound(f"{path}: {UNSOUND}"):
        return check_indices(sp.load_npz(path))


def _text(path: Path) -> np.ndarray:
    """float32: a row a line, its numbers separated by commas; the first line may be a heading."""
    rows: list[np.ndarray] = []
    full = [(number, text) for number, text in safe_open.lines(path) if text]
    for number, text in full:
        fields = text.split(",")
        if len(fields) > 1 and not all(map(str.strip, fields)):
            raise InputError(f"{path}:{number}: an empty field; neither that nor an index of rows is allowed")
        if lines.is_heading(path, number, text) or (number == full[0][0] and _numbers_columns(path, full)):
            continue
        row = _row(fields)
        if row is None:
            wrong = next(field.strip() for field in fields if _row([field]) is None)
            allowed = "a finite number that float32 can hold; a row has such numbers, separated by commas"
            if len(parts := re.split(r"[;\s]\s*", wrong)) > 1 and _row(parts) is not None:
                allowed = "one number: separate numbers by commas"
            raise InputError(f"{path}:{number}: value {quote(wrong)} is not {allowed}")
        if rows and row.size != rows[0].size:
            raise InputError(f"{path}:{number}: {row.size} numbers; the rows before have {rows[0].size}, as all must")
        rows.append(row)
    if not rows:
        raise InputError(f"{path}: it holds no row of numbers, separated by commas")
    return np.stack(rows)


def _numbers_columns(path: Path, full: list[tuple[int, str]]) -> bool:
    """Whether the first line is the heading 0,1,2... that pandas gives columns without names, above floats.

    Raises:
        InputError: it may as well be a row: it is short, or whole numbers follow.
    """
    (number, text), *below = full[:2]
    numbered = text.replace(" ", "") == ",".join(map(str, range(text.count(",") + 1)))
    if numbered and (text.count(",") < 2 or not below or re.search(r"(^|,)\s*[+-]?\d+\s*(,|$)", below[0][1])):
        raise InputError(
            f"{path}:{number}: {quote(text)} may be a heading or a row; leave out the heading (pandas: "
            "header=False), or write the row as 0.0,1.0"
        )
    return numbered


def _row(fields: list[str]) -> np.ndarray | None:
    """The numbers in some fields; None where one is none, or none that float32 can hold."""
    try:
        with np.errstate(over="ignore"):
            row = np.array(list(map(float, fields)), np.float32)
    except ValueError:
        return None
    return row if np.isfinite(row).all() and "_" not in "".join(fields) else None


def _dense(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else array  # SciPy knows no float16


def sources(path: Path) -> list[Path]:
    """The files of the layers, in order."""
    if path.is_dir():
        files = [
            file
            for file in safe_open.listing(path)
            if file.name.lower().endswith(MATRICES) and safe_open.plain_file(file)
        ]
        kinds = sorted({".npz" if file.suffix.lower() == ".npz" else ".mtx" for file in files})
        if len(kinds) != 1:
            raise InputError(
                f"{path}: it holds both .mtx and .npz files; a network's layers are of one kind"
                if kinds
                else f"{path}: no layers in it; they are .mtx, .mtx.gz or .npz files, or n{{N}}-l{{k}}.tsv"
            )
        return sorted(files, key=lambda file: natural(file.name))
    if path.suffix.lower() != ".txt":
        return [path]
    paths = []
    for number, line in safe_open.lines(path):
        if not line:
            continue
        file = path.parent / line
        if not file.name.lower().endswith(MATRICES):
            raise InputError(f"{path}:{number}: {quote(line)} is not a .mtx, .mtx.gz or .npz file")
        with safe_open.reading(f"{path}:{number}: {file}"):
            there = file.is_file()
        if not there:
            raise InputError(f"{path}:{number}: there is no file {file}")
        paths.append(file)
    if not paths:
        raise InputError(f"{path}: the list is empty; it names one file a line")
    return paths


def _matrix_market(content: bytes, where: str):
    """The matrix in the text of a .mtx file; ours to parse, since SciPy's reader lets much pass."""
    stream = io.BytesIO(content.removeprefix(codecs.BOM_UTF8))
    banner = stream.readline().decode("utf-8", "replace").lower().split()
    if len(banner) != 5 or banner[:2] != [BANNER, "matrix"]:
        raise InputError(f"{where}:1: this is not Matrix Market; it begins with '%%MatrixMarket matrix ...'")
    layout, kind, symmetry = banner[2:]
    if kind not in ("real", "integer", "pattern") or symmetry not in ("general", "symmetric", "skew-symmetric"):
        what = shorten(f"{kind} and {symmetry}")
        raise InputError(f"{where}:1: a matrix that is {what}; weights are real, integer or pattern")
    sizes, number = _sizes(stream, where, layout)
    if symmetry != "general" and sizes[0] != sizes[1]:
        raise InputError(f"{where}:{number}: {sizes[0]} x {sizes[1]} and {symmetry}; such a matrix is square")
    if layout == "array":
        return _array(stream.read(), where, number, sizes, symmetry)
    form = lines.LineFormat("row", "column", sizes[0], sizes[1], None if kind == "pattern" else "value", tabs=False)
    rest = stream.read()
    parts = [lines.parse(text, where, form, number + line) for text, line in lines.blocks(io.BytesIO(rest))]
    rows, columns, values = map(np.concatenate, zip(*(parts or [lines.parse(b"", where, form)]), strict=True))
    if rows.size != sizes[2]:
        raise InputError(f"{where}: {rows.size} entries, though line {number} says {sizes[2]}; is the file cut short?")
    check_widths(f"{where}:{number}", *sizes[:2], entries=rows.size)
    keys = rows * sizes[1] + columns
    if symmetry != "general":
        keys = np.maximum(rows, columns) * sizes[1] + np.minimum(rows, columns)
    if (again := lines.find_repeated(keys)) is not None:
        raise InputError(
            f"{where}:{lines.line_of(rest, again, number + 1)}: row {rows[again] + 1}, column {columns[again] + 1} is "
            "given twice; each entry is allowed once"
        )
    if symmetry != "general":
        off = rows != columns
        sign = np.float32(1 if symmetry == "symmetric" else -1)
        rows, columns = np.concatenate([rows, columns[off]]), np.concatenate([columns, rows[off]])
        values = np.concatenate([values, sign * values[off]])
    return sp.coo_array((values, (rows, columns)), shape=sizes[:2])


def _array(rest: bytes, where: str, number: int, sizes: list[int], symmetry: str) -> np.ndarray:
    """The numbers of the layout `array`, one a line and column by column; of a symmetric matrix those of one half."""
    rows, columns = sizes
    diagonal = 0 if symmetry == "skew-symmetric" else 1
    shape = (columns, rows) if symmetry == "general" else (rows * (rows - 1 + 2 * diagonal) // 2,)
    count = math.prod(shape)
    if 2 * count > len(rest) + 1:  # a digit and a line's end
        raise InputError(f"{where}:{number}: the file is too short to hold {rows} x {columns} numbers")
    parts, position = [], 0
    for text, _ in lines.blocks(io.BytesIO(rest), ARRAY_BLOCK):
        words = text.split()
        parts.append(_numbers(words[: count - position], where, number, position))
        position += len(words)
    if position != count:
        raise InputError(f"{where}: {position} numbers, though line {number} says {count}")
    values = np.concatenate([np.zeros(0), *parts]).reshape(shape)
    if symmetry == "general":
        return np.ascontiguousarray(values.T)
    matrix, half = np.zeros((rows, columns)), np.triu_indices(rows, 1 - diagonal)  # (column, row) of each number
    matrix[half] = values if diagonal else -values
    matrix[half[1], half[0]] = values
    return matrix


def _numbers(words: list[bytes], where: str, line: int, before: int) -> np.ndarray:
    """float64: the numbers that words after that line are, of which so many came before these."""
    for k, word in enumerate(words, before + 1):
        if not lines.NUMBER.fullmatch(word.decode("latin-1")):
            text = quote(word.decode("utf-8", "replace"))
            raise InputError(f"{where}: number {k} after line {line}, {text}, is none")
    return np.fromiter(map(float, words), np.float64, len(words))


def _sizes(stream: io.BytesIO, where: str, layout: str) -> tuple[list[int], int]:
    """Rows, columns and, of coordinates, entries; and the number of their line. Notes and blank lines are passed."""
    number, line = 2, stream.readline()
    while line and (line.startswith(b"%") or not line.strip()):
        number, line = number + 1, stream.readline()
    sizes = [int(part) for part in line.split() if part.isdigit() and len(part) < 19]
    length = {"array": 2, "coordinate": 3}.get(layout)
    if len(sizes) != length or len(line.split()) != length or min(sizes[:2]) < 1:
        text = quote(line.decode("utf-8", "replace").strip())
        raise InputError(f"{where}:{number}: {text} is not the size; that is rows, columns and entries")
    check_widths(f"{where}:{number}", *sizes[:2])
    return sizes, number
