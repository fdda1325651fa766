"""A sparse deep neural network: an ordered sequence of layers, read one at a time.

One layer computes `Y <- activation(Y W + b)` on row vectors Y. W is kept **by output**: for each output neuron
the ascending list of the input neurons it reads (the columns of W; CSC). That is the order in which every
engine consumes it, so reading a layer is preparing it.
"""

import abc
import copy
import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np

from spdnn.core import arrays, progress, safe_open
from spdnn.core import sparse as sp
from spdnn.core.errors import InputError
from spdnn.core.numbers import check_whole
from spdnn.core.shown import WithRepr, plural
from spdnn.core.validation import quote

ARRAYS = ("offsets", "indices", "values", "bias")  # of a Layer
FIELDS = ("inputs", "outputs", *ARRAYS, "activation")
NARROW_WIDTH = 65_536  # widest layer input that uint16 indices can number


def index_dtype(width: int) -> np.dtype:
    """The narrowest index type for input neurons 0..width-1: uint16 up to 65,536, uint32 above."""
    return np.dtype(np.uint16 if width <= NARROW_WIDTH else np.uint32)


@dataclass(frozen=True)
class Activation:
    """`min(max(y, low), high)`: ReLU, ReLU clipped at `ymax`, or none.

    Example:
        >>> import spdnn
        >>> spdnn.Activation("relu", ymax=32).high
        32.0
    """

    name: str = "relu"
    ymax: float | None = None

    def __post_init__(self) -> None:
        if self.ymax is not None:
            try:
                object.__setattr__(self, "ymax", float(self.ymax))
            except (TypeError, ValueError):
                raise InputError(f"clip {self.ymax!r} is not a number") from None
        if self.name not in ("relu", "none"):
            raise InputError(f"activation {self.name!r} is not known: it must be 'relu' or 'none'")
        if self.ymax is not None and (self.name == "none" or not (0 < self.ymax < math.inf)):
            raise InputError(f"clip {self.ymax!r} with activation {self.name!r}: a clip is a positive number on 'relu'")

    @property
    def low(self) -> float:
        return 0.0 if self.name == "relu" else -math.inf

    @property
    def high(self) -> float:
        return math.inf if self.ymax is None else self.ymax

    def __str__(self) -> str:
        return self.name if self.ymax is None else f"{self.name} clipped at {self.ymax:g}"


RELU = Activation("relu")
IDENTITY = Activation("none")


@dataclass(frozen=True)
class Header:
    """Facts of a layer without its weights."""

    inputs: int
    outputs: int
    edges: int
    bias: np.float32 | np.ndarray = field(repr=False)
    activation: Activation
    single_value: bool

    @property
    def entries(self) -> int:
        """The weights with their zeros."""
        return self.inputs * self.outputs

    @property
    def keeps_zero(self) -> bool:
        """Whether a row of zeros is still zeros after this layer: activation(bias) is 0 for every output."""
        return bool(np.all(self.bias <= 0) if self.activation.name == "relu" else np.all(self.bias == 0))

    @property
    def nbytes(self) -> int:
        """Bytes of the layer's arrays in memory."""
        return (
            self.edges * index_dtype(self.inputs).itemsize
            + (0 if self.single_value else 4 * self.edges)
            + 8 * (self.outputs + 1)
            + 4 * np.size(self.bias)
        )


@dataclass(frozen=True, eq=False, repr=False)
class Layer(WithRepr):
    """One layer, by output neuron.

    Its arrays are its own, and read-only: those that it is given are copied.

    Attributes:
        inputs, outputs: the widths; W is inputs x outputs.
        offsets: int64 (outputs + 1,); output j reads indices[offsets[j]:offsets[j+1]].
        indices: uint16 or uint32 (edges,); input neurons, strictly ascending within an output.
        values: float32 (edges,), or one float32 for the whole layer.
        bias: float32 (outputs,), or one float32 for the whole layer.
        activation: applied after the bias.

    Example:
        >>> import spdnn
        >>> layer = spdnn.Layer.from_matrix([[1, 0], [0, 2], [0, 3]], bias=-1)
        >>> layer.edges, layer.indices
        (3, array([0, 1, 2], dtype=uint16))
    """

    inputs: int
    outputs: int
    offsets: np.ndarray
    indices: np.ndarray
    values: np.ndarray | np.float32
    bias: np.ndarray | np.float32 = np.float32(0)
    activation: Activation = RELU

    def __post_init__(self) -> None:
        for name in ("inputs", "outputs"):
            object.__setattr__(self, name, check_whole(getattr(self, name), name))
        for name in ARRAYS:
            object.__setattr__(self, name, arrays.copied(getattr(self, name), name))

    def __setstate__(self, state: dict) -> None:  # of pickle and deepcopy
        self.__dict__.update(state, **{name: arrays.settled(state[name]) for name in ARRAYS})

    @classmethod
    def frozen(cls, *fields: Any) -> "Layer":
        """As the constructor, of all fields, with arrays made for this layer: they become read-only, none is copied."""
        layer = object.__new__(cls)
        named: dict[str, Any] = dict(zip(FIELDS, fields, strict=True))
        layer.__dict__.update(named)
        for name in ARRAYS:
            arrays.freeze(named[name])
        return layer

    def changed(self, **fields: Any) -> "Layer":
        """This layer with other fields, as `frozen` takes them."""
        fields = {**self.__dict__, **fields}
        return Layer.frozen(*(fields[name] for name in FIELDS))

    @property
    def edges(self) -> int:
        return int(self.indices.size)

    @property
    def single_value(self) -> bool:
        return np.ndim(self.values) == 0

    @property
    def header(self) -> Header:
        return Header(self.inputs, self.outputs, self.edges, self.bias, self.activation, self.single_value)

    @property
    def nbytes(self) -> int:
        return self.header.nbytes

    def _facts(self) -> dict[str, str]:
        widths = f"{self.inputs} -> {self.outputs}"
        return {"widths": widths, "edges": plural(self.edges, "edge"), "activation": str(self.activation)}

    def matrix(self, dtype: Any = np.float32) -> "sp.csc_array":
        """W as a SciPy CSC array (inputs x outputs)."""
        values = np.broadcast_to(self.values, self.indices.shape).astype(dtype)
        places = self.indices.astype(np.int32), self.offsets.copy()  # SciPy may change them in place
        return sp.csc_array((values, *places), shape=(self.inputs, self.outputs))

    def sha256(self) -> str:
        """A digest of everything the layer holds, independent of how it is stored."""
        digest = hashlib.sha256()
        digest.update(f"{self.inputs} {self.outputs} {self.activation.name} {self.activation.ymax}".encode())
        for array in (self.offsets, self.indices, np.atleast_1d(self.values), np.atleast_1d(self.bias)):
            digest.update(f"{array.dtype.str}{array.size}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def check(self, where: str) -> "Layer":
        """The layer itself when it is sound; else an InputError, which begins with `where`, for the rule broken."""
        if self.inputs < 1 or self.outputs < 1:
            raise InputError(f"{where}: a layer of {self.inputs} x {self.outputs}; both widths must be at least 1")
        offsets, indices = self.offsets, self.indices
        if offsets.dtype != np.int64 or offsets.shape != (self.outputs + 1,):
            raise InputError(f"{where}: offsets must be int64 of length outputs + 1 = {self.outputs + 1}")
        if offsets[0] != 0 or offsets[-1] != indices.size or (np.diff(offsets) < 0).any():
            raise InputError(f"{where}: offsets must ascend from 0 to the number of edges, {indices.size}")
        if indices.dtype != index_dtype(self.inputs):
            raise InputError(f"{where}: indices are {indices.dtype}, not {index_dtype(self.inputs)}")
        if indices.size:
            if int(indices.max()) >= self.inputs:
                raise InputError(
                    f"{where}: input neuron {int(indices.max())} (counted from 0) is out of range; "
                    f"the layer has {self.inputs} input neurons"
                )
            rising = indices[1:] > indices[:-1]
            rising[(starts := offsets[1:-1])[(starts > 0) & (starts < indices.size)] - 1] = True
            if not rising.all():
                output = int(np.searchsorted(offsets, int(np.argmin(rising)) + 1, side="right")) - 1
                raise InputError(f"{where}: the inputs of output neuron {output} (from 0) are unsorted or repeated")
        for array, what, size in ((self.values, "weight", indices.size), (self.bias, "bias", self.outputs)):
            if array.dtype != np.float32:
                raise InputError(f"{where}: the {what} is {array.dtype}, not float32")
            if np.shape(array) not in ((), (size,)):
                each = "edge" if what == "weight" else "output; a matrix is (inputs, outputs)"
                mismatch = f"{where}: the {what} is of shape {np.shape(array)}; it must be one number, or {size}"
                raise InputError(f"{mismatch}, one for each {each}")
            if not np.isfinite(array).all():
                raise InputError(f"{where}: a {what} is NaN or infinite; only finite numbers are allowed")
        return self

    @classmethod
    def from_matrix(cls, matrix: Any, bias: Any = 0.0, activation: Activation = RELU, where: str = "matrix") -> "Layer":
        """A layer from a matrix of shape (inputs, outputs): SciPy's, NumPy's, torch's or any other array.

        Entries that are zero are no edges; duplicates are summed in the matrix's own type, as its toarray() does.

        Args:
            matrix: any real dtype; rounded to float32.
            bias: a number or a vector of `outputs` numbers, rounded to float32; None is 0.

        Raises:
            InputError: not a matrix, complex, NaN or infinite (also after rounding), or a bias of another length.
        """
        if sp.issparse(matrix):
            matrix = check_sparse(matrix, f"{where}: this sparse matrix is damaged")
        else:
            matrix = arrays.host(matrix, f"{where}: the matrix")
            if matrix.ndim != 2:
                raise InputError(f"{where}: a layer is a matrix, not an array of {matrix.ndim} dimensions")
        if matrix.dtype.kind not in "fiub":
            raise InputError(f"{where}: weights of type {matrix.dtype} are not real numbers")
        if matrix.dtype == np.float16:  # SciPy has no sparse float16
            matrix = matrix.astype(np.float32)
        columns: Any = sum_duplicates(matrix, sp.csc_array) if sp.issparse(matrix) else sp.csc_array(matrix)
        with np.errstate(over="ignore"):
            columns = columns.astype(np.float32)
        columns.eliminate_zeros()
        columns.sort_indices()
        inputs, outputs = columns.shape
        biases = arrays.host(0.0 if bias is None else bias, f"{where}: the bias")
        if biases.dtype.kind not in "fiub":
            raise InputError(f"{where}: bias {quote(bias)} is not a number or a vector of numbers")
        with np.errstate(over="ignore"):
            bias = np.array(biases, np.float32, order="C")[()]
        offsets, indices = columns.indptr.astype(np.int64), columns.indices.astype(index_dtype(inputs))
        values = common_value(columns.data)
        return cls.frozen(inputs, outputs, offsets, indices, values, bias, activation).check(where)


def check_sparse(matrix: Any, what: str) -> Any:
    """As check_indices; but what is wrong is an InputError, whose sentence begins with `what`."""
    try:
        return check_indices(matrix)
    except Exception as error:  # of SciPy and NumPy, nearly anything
        raise InputError(f"{what}: {safe_open.brief(error)}") from None


def check_indices(matrix: Any) -> Any:
    """A SciPy sparse matrix or array, when none of its indices lies outside: SciPy and ours would follow them.

    SciPy's own check passes over offsets that end at 0, and knows only some of the formats. Values of another byte
    order, of which SciPy converts only some formats, become this machine's. A ValueError says what is wrong.
    """
    if matrix.ndim != 2:
        raise ValueError(f"it has {matrix.ndim} dimensions")
    if not matrix.dtype.isnative:
        matrix = matrix.astype(np.float32 if matrix.dtype == ">f2" else matrix.dtype.newbyteorder("="))
    rows, columns = matrix.shape
    if matrix.format == "csr":
        _check_compressed(matrix, rows, columns, 1)
    elif matrix.format == "csc":
        _check_compressed(matrix, columns, rows, 1)
    elif matrix.format == "bsr":
        height, width = matrix.data.shape[1:] if matrix.data.ndim == 3 else (0, 0)
        if min(height, width) < 1 or rows % height or columns % width:
            raise ValueError(f"blocks of shape {matrix.data.shape[1:]} in {rows} x {columns}")
        _check_compressed(matrix, rows // height, columns // width, 3)
    elif matrix.format == "dia":
        offsets, data = matrix.offsets, matrix.data
        if offsets.ndim != 1 or offsets.dtype.kind != "i" or data.ndim != 2 or len(data) != len(offsets):
            raise ValueError(f"{len(offsets)} diagonals with data of shape {data.shape}")
        outside, different = max(1, rows, columns), len(set(offsets.tolist()))
        if ((offsets <= -outside) | (offsets >= outside)).any() or different < len(offsets):
            raise ValueError(f"a diagonal that is there twice, or lies outside of {rows} x {columns}")
    else:
        if matrix.format == "lil":
            lengths = [len(row) for row in matrix.rows]
            if len(lengths) != rows or lengths != [len(row) for row in matrix.data]:
                raise ValueError("rows whose columns and values are not as many")
        entries = matrix.tocoo()
        for indices, size in zip(entries.coords, entries.shape, strict=True):
            if len(indices) != len(entries.data):
                raise ValueError(f"{len(entries.data)} values for {len(indices)} indices")
            _check_range(indices, size)
    return matrix


def _check_compressed(matrix, rows: int, columns: int, dimensions: int) -> None:
    indptr, indices, data = matrix.indptr, matrix.indices, matrix.data
    kinds, shapes = {indptr.dtype.kind, indices.dtype.kind}, (indptr.ndim, indices.ndim, data.ndim)
    if kinds - {"i", "u"} or shapes != (1, 1, dimensions):
        raise ValueError(f"offsets and indices of {indptr.dtype} and {indices.dtype}, or of more dimensions than one")
    if len(indptr) != rows + 1 or indptr[0] != 0 or (indptr[1:] < indptr[:-1]).any() or indptr[-1] > len(indices):
        raise ValueError(f"offsets that do not ascend from 0 to the {len(indices)} entries, {rows + 1} of them")
    if len(data) != len(indices):
        raise ValueError(f"{len(data)} values for {len(indices)} indices")
    _check_range(indices, columns)


def _check_range(indices: np.ndarray, size: int) -> None:
    if indices.size and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        raise ValueError(f"an index of {int(indices.min())} or {int(indices.max())} in {size}")


def sum_duplicates(matrix: Any, form: type) -> Any:
    """A copy of a sound SciPy sparse matrix as `form` (csr_array or csc_array), sorted, each entry there once.

    Duplicates are summed in the matrix's own type and in the order in which they are stored: as toarray() does.
    """
    if matrix.dtype == np.float16:  # which SciPy cannot add
        matrix = matrix.astype(np.float32)
    if matrix.format in ("csr", "csc", "bsr"):
        matrix = matrix.copy()
        matrix.prune()  # of what lies behind its last entry, for which tocoo() has no row
    result = form(matrix, copy=True)
    result.sum_duplicates()
    if result.nnz == matrix.nnz:
        return result
    # SciPy sorts before it sums, and the order of duplicates gets lost: another rounding.
    lengths, outer = np.diff(result.indptr), 0 if form is sp.csr_array else 1
    width = result.shape[1 - outer]
    keys = np.repeat(np.arange(lengths.size), lengths) * width + result.indices
    entries = matrix.tocoo()
    places = np.searchsorted(keys, entries.coords[outer].astype(np.int64) * width + entries.coords[1 - outer])
    result.data = np.zeros(keys.size, result.dtype)
    np.add.at(result.data, places, entries.data)
    return result


def common_value(values: np.ndarray) -> np.ndarray | np.float32:
    """The one value that all of `values` (float32) are, or `values` themselves when they differ."""
    if values.size and (values == values[0]).all():
        return np.float32(values[0])
    return np.float32(0) if values.size == 0 else values


class Network(WithRepr, abc.ABC):
    """An ordered sequence of layers whose widths chain. Reading one layer never needs another in memory."""

    #: where the layers come from: a dictionary fit for JSON, kept in every record
    description: dict

    @property
    @abc.abstractmethod
    def depth(self) -> int:
        """The number of layers."""

    @abc.abstractmethod
    def header(self, k: int) -> Header:
        """Facts of layer k (0-based) without its weights."""

    @abc.abstractmethod
    def layer(self, k: int) -> Layer:
        """Layer k (0-based). Several threads may ask at once."""

    def repeated(self, k: int) -> tuple[Layer, np.ndarray] | None:
        """Layer k as it is made, where that is of fewer outputs: (the layer of these, uint32 (outputs,), which of them
        each output of layer k repeats); None: it is not."""
        return None

    @property
    def inputs(self) -> int:
        return self.header(0).inputs

    @property
    def outputs(self) -> int:
        return self.header(self.depth - 1).outputs

    @property
    def width(self) -> int:
        """The widest the features ever get, the inputs included."""
        return max([self.inputs, *(self.header(k).outputs for k in range(self.depth))])

    @property
    def edges(self) -> int:
        return sum(self.header(k).edges for k in range(self.depth))

    @property
    def entries(self) -> int:
        """The weights of all layers with their zeros."""
        return sum(self.header(k).entries for k in range(self.depth))

    @property
    def nbytes(self) -> int:
        return sum(self.header(k).nbytes for k in range(self.depth))

    def _facts(self) -> dict[str, str]:
        return {
            "widths": f"{self.inputs} -> {self.outputs}",
            "depth": plural(self.depth, "layer"),
            "edges": plural(self.edges, "edge"),
        }

    def neuron_classes(self, k: int) -> np.ndarray | None:
        """Of each output of the original layer k, the output here that has its values: an array of integers.

        None: the outputs are the original ones. They differ where identical neurons were merged
        (spdnn/engines/reductions/neurons.py).
        """
        return None

    def in_memory(self, k: int) -> bool:
        """Whether layer k is in memory already, so that reading it takes none."""
        return False

    def release(self, k: int) -> None:
        """Layer k is not needed soon: memory that can be filled again may be returned."""

    def layers(self) -> Iterator[Layer]:
        for k in range(self.depth):
            yield self.layer(k)

    def first(self, depth: int) -> "Network":
        """The network of the first `depth` layers. Raises InputError where there are fewer."""
        depth = check_whole(depth, "layers")
        if not 1 <= depth <= self.depth:
            raise InputError(f"{depth} layers asked for; the network has 1 to {self.depth}")
        return self if depth == self.depth else _FirstLayers(self, depth)

    def layer_sha256(self, k: int) -> str:
        """The digest of layer k (Layer.sha256); sources that keep it need not read the layer."""
        return self.layer(k).sha256()

    def sha256(self) -> str:
        """A digest of all layers, whatever they are stored in."""
        layers = progress.bar(range(self.depth), "digest of the network", self.depth)
        return digest_of_layers(self.layer_sha256(k) for k in layers)

    def identity(self) -> str:
        """A digest that names the network: cheap where a formula or a checksummed file defines it."""
        return hashlib.sha256(json.dumps(self.description, sort_keys=True).encode()).hexdigest()


def digest_of_layers(digests: Iterator[str]) -> str:
    """The digest of a network from the digests of its layers, in order."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()


def _of_whole(method: str) -> Any:
    """A method that asks the whole network for its layer k."""
    return lambda self, k: getattr(self._network, method)(k)


class _FirstLayers(Network):
    def __init__(self, network: Network, depth: int):
        self._network, self._depth = network, depth
        self.description = {**network.description, "first_layers": depth}

    depth = property(lambda self: self._depth)
    header, layer, repeated, in_memory, release, neuron_classes, layer_sha256 = map(
        _of_whole, ("header", "layer", "repeated", "in_memory", "release", "neuron_classes", "layer_sha256")
    )


class MemoryNetwork(Network):
    """A network whose layers are all in memory. Raises InputError for no layer, or widths that do not chain."""

    def __init__(self, layers: Sequence[Layer], description: dict | None = None):
        self._layers, description = list(layers), copy.deepcopy(description)
        if not self._layers:
            raise InputError("a network needs at least one layer")
        for k, layer in enumerate(self._layers, 1):
            layer.check(f"layer {k}")
        check_chain([layer.header for layer in self._layers])
        self._description, self._identity = description, ""

    @property
    def description(self) -> dict:
        if self._description is None:
            self._description = {"source": "memory", "sha256": self.identity()}
        return self._description

    @property
    def depth(self) -> int:
        return len(self._layers)

    def header(self, k: int) -> Header:
        return self._layers[k].header

    def layer(self, k: int) -> Layer:
        return self._layers[k]

    def in_memory(self, k: int) -> bool:
        return True

    def identity(self) -> str:
        """The digest of all layers: that of a store of them, too."""
        self._identity = self._identity or self.sha256()
        return self._identity


def check_chain(headers: Sequence[Header], where: str = "network") -> None:
    """Raise InputError when a layer does not take as many inputs as the one before it gives."""
    for k in range(1, len(headers)):
        if headers[k].inputs != headers[k - 1].outputs:
            raise InputError(
                f"{where}: layer {k + 1} takes {headers[k].inputs} inputs but layer {k} has "
                f"{headers[k - 1].outputs} outputs; widths must chain"
            )


def from_matrices(matrices: Sequence, bias: Any = 0.0, clip: float | None = None, *, last: str) -> MemoryNetwork:
    """A network from a list of SciPy sparse (or NumPy) matrices, each (inputs, outputs).

    Args:
        matrices: one a layer, widths chaining.
        bias: one number for all layers, or a list with a number, a vector or None (0) for each layer; 0 by default.
        clip: YMAX of a clipped ReLU in every layer, or None for a plain ReLU.
        last: activation of the last layer, 'relu' (as the others) or 'none' (logits). It must be given.

    Raises:
        InputError: see Layer.from_matrix; no list of matrices, or another number of biases than of layers.

    Example:
        >>> import numpy as np, spdnn
        >>> spdnn.from_matrices([np.eye(4, 3), np.ones((3, 2))], bias=[0.5, None], last="none")
        MemoryNetwork(4 -> 2, 2 layers, 9 edges)
    """
    if isinstance(matrices, (str, PathLike)):
        raise InputError(f"matrices {quote(matrices)}: they are a list of matrices; spdnn.open_network reads files")
    if not isinstance(matrices, Iterable) or getattr(matrices, "ndim", None) == 2:
        raise InputError(f"matrices is a {type(matrices).__name__}; it must be a list of matrices, one for each layer")
    matrices = list(matrices)
    if not matrices:
        raise InputError("a network needs at least one layer; the list of matrices is empty")
    biases = list(bias) if isinstance(bias, (list, tuple)) else [bias] * len(matrices)
    if len(biases) != len(matrices):
        raise InputError(f"{len(biases)} biases for {len(matrices)} layers; give one for all or one for each")
    activations = layer_activations(len(matrices), clip, last)
    return MemoryNetwork(
        [
            Layer.from_matrix(matrix, bias, activation, f"layer {k}")
            for k, (matrix, bias, activation) in enumerate(zip(matrices, biases, activations, strict=True), 1)
        ]
    )


def layer_activations(depth: int, clip: float | None, last: str) -> list[Activation]:
    """The activation of each of `depth` layers: ReLU clipped at `clip` (None: not clipped), the last one apart."""
    if last not in ("relu", "none"):
        raise InputError(f"last activation {last!r} is not known: it must be 'relu' or 'none'")
    usual = Activation("relu", clip)
    return [usual] * (depth - 1) + [usual if last == "relu" else IDENTITY]
