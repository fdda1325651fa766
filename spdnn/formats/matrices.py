"""Matrices as others write them: Matrix Market (.mtx, .mtx.gz), SciPy sparse (.npz), NumPy (.npy, .npz).

As layers, a matrix is inputs x outputs: one a file, a folder of them in natural order, or a .txt list of
files. As inputs, it is count x neurons. Nothing is ever unpickled.
"""

import io
import math
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from spdnn.common import files, progress
from spdnn.common.errors import InputError
from spdnn.formats import lines, safetensors
from spdnn.formats.archive import natural
from spdnn.formats.checks import check_widths, listing, plain_file, reading, sound
from spdnn.problem.features import Inputs
from spdnn.problem.network import Layer, MemoryNetwork, check_chain, check_indices, digest_of_layers, layer_activations

MATRIX_MARKET = (".mtx", ".mtx.gz")
LAYERS = (*MATRIX_MARKET, ".npz")
BANNER = "%%matrixmarket"


def read_network(
    path, bias: float | None = None, clip: float | None = None, layers: int | None = None, last: str = "relu"
) -> MemoryNetwork:
    """A network from a matrix file, a folder or a .txt list of them, or a .safetensors file.

    Args:
        path: .mtx, .mtx.gz, .npz (one layer each), .safetensors, .txt (a path a line, from the list's
            folder), or a folder whose .mtx or .npz files are the layers in natural order (l2 before l10).
        bias: one number for all layers; 0 by default. Not for .safetensors with biases.
        clip: YMAX of a clipped ReLU, or None for a plain ReLU.
        layers: how many of the first layers to take; all by default.
        last: the last layer's activation, 'relu' or 'none'.

    Raises:
        InputError: a file that is missing, damaged or of another kind; an entry out of range, given twice,
            NaN or infinite; widths that do not chain; fewer than `layers`.
    """
    path = files.existing(path, "network")
    if layers is not None and layers < 1:
        raise InputError(f"{layers} layers asked for; a network has at least 1")
    if path.suffix == ".safetensors":
        network = safetensors.read_layers(path, bias, clip, layers, last)
    else:
        names = _sources(path)[:layers]
        activations = layer_activations(len(names), clip, last)
        network = [
            Layer.from_matrix(read_matrix(name), 0.0 if bias is None else bias, activation, str(name))
            for name, activation in zip(progress.bar(names, "read network", len(names)), activations, strict=True)
        ]
    if layers is not None and len(network) < layers:
        raise InputError(f"{path}: {layers} layers asked for; it has {len(network)}")
    check_chain([layer.header for layer in network], str(path))
    digest = digest_of_layers(layer.sha256() for layer in network)
    kind = "safetensors" if path.suffix == ".safetensors" else "matrices"
    return MemoryNetwork(network, {"source": kind, "path": path.name, "sha256": digest})


def read_inputs(path) -> Inputs:
    """Inputs (count x neurons) from .npz (SciPy sparse, or one NumPy array), .npy, .mtx or .mtx.gz.

    Raises:
        InputError: as for layers; or an array that is not a matrix of real numbers.
    """
    matrix = read_matrix(path)
    if matrix.dtype.kind not in "fiub" or matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(f"{path}: inputs are a matrix of real numbers, not {matrix.dtype} of shape {matrix.shape}")
    try:
        inputs = Inputs.from_array(matrix)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error
    inputs.description = {"source": "matrix", "path": Path(path).name, "sha256": inputs.sha256}
    return inputs


def read_matrix(path):
    """The matrix in a .mtx, .mtx.gz, .npz or .npy file: SciPy sparse, or NumPy where it is stored densely."""
    path = files.existing(path, "file")
    if path.name.endswith(MATRIX_MARKET):
        return _matrix_market(lines.whole(path), str(path))
    matrix = _numpy(path)
    check_widths(path, *matrix.shape)
    return matrix


def _numpy(path: Path):
    """The matrix in a .npz or .npy file."""
    with sound(f"{path}: this is no sound {path.suffix} file of plain numbers"):
        if path.suffix == ".npy":
            return _dense(np.load(path, allow_pickle=False))
        with np.load(path, allow_pickle=False) as archive:
            if "format" not in archive.files:
                if len(archive.files) != 1:
                    raise InputError(f"{path}: {len(archive.files)} arrays and no sparse matrix; one is allowed")
                return _dense(archive[archive.files[0]])
        return check_indices(sp.load_npz(path))


def _dense(array) -> np.ndarray:
    if not isinstance(array, np.ndarray):
        raise ValueError("several arrays under the name of one")
    return array.astype(np.float32) if array.dtype == np.float16 else array  # SciPy knows no float16


def _sources(path: Path) -> list[Path]:
    """The files of the layers, in order."""
    if path.is_dir():
        files = [file for file in listing(path) if file.name.endswith(LAYERS) and plain_file(file)]
        kinds = sorted({".npz" if file.suffix == ".npz" else ".mtx" for file in files})
        if len(kinds) != 1:
            raise InputError(
                f"{path}: it holds both .mtx and .npz files; a network's layers are of one kind"
                if kinds
                else f"{path}: no layers in it; they are .mtx, .mtx.gz or .npz files, or n{{N}}-l{{k}}.tsv"
            )
        return sorted(files, key=lambda file: natural(file.name))
    if path.suffix != ".txt":
        return [path]
    listed = []
    for number, line in enumerate(lines.whole(path).decode("utf-8", "replace").splitlines(), 1):
        if not line.strip():
            continue
        file = path.parent / line.strip()
        if not file.name.endswith(LAYERS):
            raise InputError(f"{path}:{number}: {lines.shown(line.strip())} is not a .mtx, .mtx.gz or .npz file")
        with reading(f"{path}:{number}: {file}"):
            there = file.is_file()
        if not there:
            raise InputError(f"{path}:{number}: there is no file {file}")
        listed.append(file)
    if not listed:
        raise InputError(f"{path}: the list is empty; it names one file a line")
    return listed


def _matrix_market(content: bytes, where: str):
    """The matrix in the text of a .mtx file; ours to parse, since SciPy's reader lets much pass."""
    stream = io.BytesIO(content)
    banner = stream.readline().decode("utf-8", "replace").lower().split()
    if len(banner) != 5 or banner[:2] != [BANNER, "matrix"]:
        raise InputError(f"{where}:1: this is not Matrix Market; it begins with '%%MatrixMarket matrix ...'")
    layout, kind, symmetry = banner[2:]
    if kind not in ("real", "integer", "pattern") or symmetry not in ("general", "symmetric", "skew-symmetric"):
        raise InputError(f"{where}:1: a matrix that is {kind} and {symmetry}; weights are real, integer or pattern")
    sizes, number = _sizes(stream, where, layout)
    if symmetry != "general" and sizes[0] != sizes[1]:
        raise InputError(f"{where}:{number}: {sizes[0]} x {sizes[1]} and {symmetry}; such a matrix is square")
    if layout == "array":
        return _array(stream.read(), where, number, sizes, symmetry)
    form = lines.Form("row", "column", sizes[0], sizes[1], None if kind == "pattern" else "value", tabs=False)
    rest = stream.read()
    rows, columns, values = lines.parse(rest, where, form, number + 1)
    if rows.size != sizes[2]:
        raise InputError(f"{where}: {rows.size} entries, though line {number} says {sizes[2]}; is the file cut short?")
    keys = rows * sizes[1] + columns
    if symmetry != "general":
        keys = np.maximum(rows, columns) * sizes[1] + np.minimum(rows, columns)
    if (again := lines.repeated(keys)) is not None:
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
    words = rest.split()
    if len(words) != count:
        raise InputError(f"{where}: {len(words)} numbers, though line {number} says {count}")
    wrong = next((k for k, word in enumerate(words) if not lines.NUMBER.fullmatch(word.decode("latin-1"))), None)
    if wrong is not None:
        said = lines.shown(words[wrong].decode("utf-8", "replace"))
        raise InputError(f"{where}: number {wrong + 1} after line {number}, {said}, is none")
    values = np.array(words, dtype="S").astype(np.float64).reshape(shape)
    if symmetry == "general":
        return np.ascontiguousarray(values.T)
    matrix, half = np.zeros((rows, columns)), np.triu_indices(rows, 1 - diagonal)  # (column, row) of each number
    matrix[half] = values if diagonal else -values
    matrix[half[1], half[0]] = values
    return matrix


def _sizes(stream: io.BytesIO, where: str, layout: str) -> tuple[list[int], int]:
    """Rows, columns and, of coordinates, entries; and the number of their line. Notes and blank lines are passed."""
    number, line = 2, stream.readline()
    while line and (line.startswith(b"%") or not line.strip()):
        number, line = number + 1, stream.readline()
    sizes = [int(part) for part in line.split() if part.isdigit() and len(part) < 19]
    length = {"array": 2, "coordinate": 3}.get(layout)
    if len(sizes) != length or len(line.split()) != length or min(sizes[:2]) < 1:
        said = lines.shown(line.decode("utf-8", "replace").strip())
        raise InputError(f"{where}:{number}: {said} is not the size; that is rows, columns and entries")
    check_widths(f"{where}:{number}", *sizes[:2])
    return sizes, number
