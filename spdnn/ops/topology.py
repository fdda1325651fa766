"""The topology of a sparse matrix: the positions of its nonzeros without their values, by compressed rows (CSR)."""

from typing import Any

import numpy as np

from spdnn.core.arrays import freeze, settled
from spdnn.core.errors import InputError
from spdnn.core.graphs import outside_graphs
from spdnn.core.locks import cached_property
from spdnn.core.numbers import whole
from spdnn.core.shown import WithRepr

MOST_COLUMNS_16 = 1 << 16  # that 16-bit indices reach
MOST_COLUMNS = (1 << 31) - 1  # that 32-bit indices reach; rows are numbered with as many bits
INDEX_BITS = (16, 32)


class Topology(WithRepr):
    """The positions of the nonzeros of a matrix; matrices with other values, and batches of values, share one.

    Attributes:
        shape: (rows, columns).
        offsets: int64 (rows + 1,); the nonzeros of row i are offsets[i] .. offsets[i + 1] - 1.
        columns: uint16 or int32 (nnz,), ascending in each row, none twice.

    The arrays are read-only: kernels follow them unchecked, and what is derived from them is kept.

    Example:
        >>> from spdnn import ops
        >>> ops.Topology((2, 3), offsets=[0, 2, 3], columns=[0, 2, 1]).sparsity
        0.5
    """

    @outside_graphs
    def __init__(self, shape: tuple[int, int], offsets: Any, columns: Any, index_bits: int | None = None):
        """Copy and check the arrays.

        Args:
            shape: (rows, columns), each at least 1.
            offsets, columns: whole numbers, as in the attributes, of any integer type.
            index_bits: 16 or 32; by default 16 where they reach.

        Raises:
            InputError: a shape out of range, offsets that are no ascending sequence from 0 to the number of columns
                given, columns that are unsorted, given twice or beyond the width, or index_bits that do not reach.
        """
        try:
            rows, width = shape
        except (TypeError, ValueError):
            raise InputError(f"shape {shape!r}: a matrix has two numbers, (rows, columns)") from None
        rows, width = _size(rows, "rows"), _size(width, "columns")
        self.shape = (rows, width)
        self.offsets = freeze(np.array(_whole(offsets, "offsets"), np.int64))
        if self.offsets.shape != (rows + 1,):
            raise InputError(f"offsets have shape {self.offsets.shape}; {rows} rows need ({rows + 1},)")
        columns = np.array(_whole(columns, "columns"))  # before they are checked: another thread may write to them
        _check(rows, width, self.offsets, columns)
        self.columns = freeze(columns.astype(_index_type(width, index_bits), copy=False))

    def __setstate__(self, state: dict) -> None:  # of pickle and deepcopy
        self.__dict__.update(state, offsets=settled(state["offsets"]), columns=settled(state["columns"]))

    @property
    def rows(self) -> int:
        return self.shape[0]

    @property
    def nnz(self) -> int:
        """How many nonzeros there are, explicit zeros among them."""
        return self.columns.size

    @property
    def sparsity(self) -> float:
        """The part of the matrix that is no nonzero, 0 to 1."""
        return 1 - self.nnz / (self.shape[0] * self.shape[1])

    @property
    def index_bits(self) -> int:
        return 8 * self.columns.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of offsets and columns."""
        return self.offsets.nbytes + self.columns.nbytes

    @cached_property
    def lengths(self) -> np.ndarray:
        """int64 (rows,): nonzeros of each row."""
        return np.diff(self.offsets)

    @cached_property
    def order(self) -> np.ndarray:
        """int32 (rows,): the row swizzle: rows by descending length, equal ones in order (Sputnik, section V-C)."""
        return np.argsort(-self.lengths, kind="stable").astype(np.int32)

    @cached_property
    def row_numbers(self) -> np.ndarray:
        """int32 (nnz,): the row of each nonzero."""
        return np.repeat(np.arange(self.rows, dtype=np.int32), self.lengths)

    @cached_property
    def transposed(self) -> "tuple[Topology, np.ndarray]":
        """(topology of the transpose, int64 (nnz,) permutation): its values are values[permutation].

        Made once, and kept: transposing a matrix with other values is then one gather.
        """
        permutation = np.argsort(self.columns, kind="stable").astype(np.int64, copy=False)
        counts = np.bincount(self.columns, minlength=self.shape[1])
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        transpose = Topology.__new__(Topology)  # sound by construction
        transpose.shape, transpose.offsets = self.shape[::-1], offsets
        bits = 16 if self.index_bits == 16 and self.rows <= MOST_COLUMNS_16 else 32
        transpose.columns = self.row_numbers[permutation].astype(_index_type(self.rows, bits))
        return transpose, permutation

    def __eq__(self, other) -> bool:
        if not isinstance(other, Topology):
            return NotImplemented
        return self is other or (
            self.shape == other.shape
            and np.array_equal(self.offsets, other.offsets)
            and np.array_equal(self.columns, other.columns)
        )

    __hash__ = object.__hash__  # arrays have none; what is kept for a topology is kept for this object

    def _facts(self) -> dict[str, str]:
        shape = f"{self.shape[0]} x {self.shape[1]}"
        return {"shape": shape, "nonzeros": f"{self.nnz} nonzeros", "indices": f"{self.index_bits}-bit indices"}


def _size(size, what: str) -> int:
    number = whole(size)
    if number is None or not 1 <= number <= MOST_COLUMNS:
        raise InputError(f"{size!r} {what}: a matrix has 1 to {MOST_COLUMNS:,}")
    return number


def _whole(array, what: str) -> np.ndarray:
    try:
        result = np.asarray(array)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what} are no array ({' '.join(str(error).split())})") from error
    if not result.size and result.ndim == 1:  # an empty list has the type of float64
        result = result.astype(np.int64)
    if result.ndim != 1 or result.dtype.kind not in "iu":
        raise InputError(f"{what} must be a list of whole numbers, not {result.ndim}-dimensional {result.dtype}")
    return result


def _index_type(width: int, bits: int | None) -> np.dtype:
    if bits is not None and whole(bits) not in INDEX_BITS:
        raise InputError(f"index_bits {bits!r}: they must be 16 or 32")
    if bits == 16 and width > MOST_COLUMNS_16:
        raise InputError(f"16-bit indices reach {MOST_COLUMNS_16:,} columns, and the matrix has {width:,}")
    return np.dtype(np.uint16 if bits == 16 or (bits is None and width <= MOST_COLUMNS_16) else np.int32)


def _check(rows: int, width: int, offsets: np.ndarray, columns: np.ndarray) -> None:
    descends = (offsets[1:] < offsets[:-1]).any()  # not their difference, which may overflow
    if offsets[0] != 0 or offsets[-1] != columns.size or descends:
        raise InputError(f"offsets must ascend from 0 to the {columns.size} nonzeros, row by row")
    if not columns.size:
        return

    def row(nonzero) -> int:
        return int(np.searchsorted(offsets, nonzero, side="right")) - 1

    beyond = (columns < 0) | (columns >= width) if columns.dtype.kind == "i" else columns >= width
    if beyond.any():
        at = int(beyond.argmax())
        raise InputError(f"row {row(at)} has column {columns[at]}; a matrix of {width} columns has 0 to {width - 1}")
    falls = columns[1:] <= columns[:-1]
    starts = offsets[1:-1]
    falls[starts[(starts > 0) & (starts < columns.size)] - 1] = False  # a new row may begin anywhere
    if falls.any():
        at = int(falls.argmax()) + 1
        what = "twice" if columns[at] == columns[at - 1] else f"after column {columns[at - 1]}"
        raise InputError(f"row {row(at)} has column {columns[at]} {what}; columns must ascend in each row")
