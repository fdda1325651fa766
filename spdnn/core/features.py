"""The inputs of an inference, the rows of the first Y: as bits, dense or sparse; and parts of them."""

import copy
import hashlib
import math
from typing import Any

import numpy as np

from spdnn.core import arrays
from spdnn.core import sparse as sp
from spdnn.core.errors import InputError
from spdnn.core.network import check_sparse, sum_duplicates
from spdnn.core.numbers import check_whole, whole_or_none
from spdnn.core.shown import WithRepr

BITS_BYTES, BITS_EACH = 1 << 29, 64  # bytes that sparse inputs may take as bits: so many, or so many for each nonzero


class Inputs(WithRepr):
    """`count` rows of `neurons` values, kept as bits when binary, else dense float32 or CSR float32.

    Bits and dense rows are kept where they lie, for they may be large; they are not written to, and an inference takes
    what is there while it runs. A CSR array is copied.

    `count` may exceed the rows that are stored (`base`): row i is then stored row i mod base, so that scaling
    studies need no more memory or disk.

    Args:
        data: uint8 (base, ceil(neurons / 8)) as numpy.packbits(bits, axis=1) gives it;
            or float32 (base, neurons); or a SciPy CSR array, float32.
        neurons: the width, needed when `data` holds bits.
        count: the number of inputs; by default, the rows stored.
        description: where they come from, fit for JSON, kept in every record.

    Attributes:
        own: nobody but these inputs can write to their rows.
        known_sha256: what `sha256` is, where it is known; of rows that may change, it is None.
        total: of all inputs; `count` is of those that are run here, which `part` makes fewer.
        cut_from: the digest of the inputs that these are the first of, computed from their rows here; or None.
        numbers: int64 (count,), which they are of the whole; None: all.

    Raises:
        InputError: no rows, a width or dtype that does not fit, NaN or infinite values.

    Example:
        >>> import spdnn
        >>> spdnn.Inputs.from_array([[0, 1, 1], [1, 0, 0]]).dense([1])
        array([[1., 0., 0.]], dtype=float32)
    """

    def __init__(
        self, data: Any, neurons: int | None = None, count: int | None = None, description: dict | None = None
    ):
        neurons = whole_or_none(neurons, "neurons")
        if sp.issparse(data):
            check_sparse(data, "inputs are not a sound CSR array")
            data = sum_duplicates(data, sp.csr_array)
            self.kind, self.neurons, values = "csr", int(data.shape[1]), data.data
        elif data.dtype == np.uint8 and data.ndim == 2 and neurons is not None:
            self.kind, self.neurons, values = "bits", neurons, None
            if data.shape[1] != (self.neurons + 7) // 8:
                raise InputError(
                    f"bits of {self.neurons} neurons take {(neurons + 7) // 8} bytes a row, not {data.shape[1]}"
                )
            if self.neurons % 8 and (data[:, -1] & (0xFF >> self.neurons % 8)).any():
                raise InputError(f"a row of packed bits has ones behind its {self.neurons} neurons; these must be 0")
        elif data.dtype == np.float32 and data.ndim == 2:
            self.kind, self.neurons, values = "dense", data.shape[1], data
        else:
            raise InputError("inputs must be packed bits (uint8) with their width, float32 rows, or a CSR array")
        if neurons is not None and neurons != self.neurons:
            raise InputError(f"inputs have {self.neurons} neurons, not {neurons}")
        if values is not None and values.dtype != np.float32:
            raise InputError(f"inputs must be float32 numbers, not {values.dtype}")
        self.data: Any = data
        self.own = self.kind == "csr"
        self.known_sha256: str | None = None
        self.check()
        self.base = int(data.shape[0])
        self.count = self.base if count is None else check_whole(count, "count")
        if self.base < 1 or self.neurons < 1 or self.count < 1:
            raise InputError(f"{self.count} inputs of {self.neurons} neurons: there must be at least one of each")
        self.description = copy.deepcopy(description) or {"source": "memory"}
        self.total, self.numbers = self.count, None
        self.cut_from: str | None = None

    @classmethod
    def from_array(cls, array: Any, description: dict | None = None) -> "Inputs":
        """Inputs from any real matrix (count, neurons); kept as bits when all are 0 or 1.

        Args:
            array: of NumPy, SciPy (sparse), torch, JAX, CuPy, or anything with DLPack or that NumPy takes; rounded to
                float32, after duplicates of a sparse one were summed in its own type.

        Raises:
            InputError: no matrix of real finite numbers.
        """
        array = array if sp.issparse(array) else arrays.host(array, "the array of inputs")
        if sp.issparse(array):
            array = check_sparse(array, "inputs are not a sound sparse matrix")
        if array.dtype.kind not in "fiub":
            raise InputError(f"inputs of type {array.dtype} are not real numbers")
        with np.errstate(over="ignore"):
            if sp.issparse(array):
                rows: Any = sum_duplicates(array, sp.csr_array).astype(np.float32)
                rows.eliminate_zeros()
                small = rows.shape[0] * (rows.shape[1] + 7) // 8 <= max(BITS_BYTES, BITS_EACH * rows.nnz)
                if (rows.data == 1).all() and rows.shape[0] and rows.shape[1] and small:
                    return cls(_pack_sparse(rows), rows.shape[1], None, description).owned()
                return cls(rows, None, None, description)
            dense = np.ascontiguousarray(array, dtype=np.float32)
        if dense.ndim != 2:
            raise InputError(f"inputs are a matrix (inputs, neurons), not {dense.shape}{shape_hint(dense.shape)}")
        if dense.size and ((dense == 0) | (dense == 1)).all():
            return cls(np.packbits(dense != 0, axis=1), dense.shape[1], None, description).owned()
        inputs = cls(dense, None, None, description)
        return inputs if np.may_share_memory(dense, array) else inputs.owned()

    def owned(self) -> "Inputs":
        """These inputs, of rows that were made for them: read-only from now on, with a digest that is kept."""
        self.own = True
        if self.kind != "csr":
            arrays.freeze(self.data)
        return self

    def __copy__(self) -> "Inputs":
        other = object.__new__(Inputs)
        other.__dict__.update(self.__dict__)
        return other

    def __setstate__(self, state: dict) -> None:  # of pickle and deepcopy: a copy of rows is nobody else's
        self.__dict__.update(state)
        if self.kind != "csr":
            self.data = arrays.settled(self.data)
        self.own = True

    def _facts(self) -> dict[str, str]:
        return {"rows": f"{self.count} x {self.neurons}", "kept as": self.kind}

    def check(self) -> None:
        """Raise InputError where a value is NaN or infinite."""
        if self.kind != "bits" and not np.isfinite(self.data.data if self.kind == "csr" else self.data).all():
            raise InputError("inputs must be finite float32 numbers; there is a NaN or an infinity")

    def check_width(self, neurons: int, where: str = "the array of inputs") -> None:
        """Raise InputError, which begins with `where`, unless the inputs are `neurons` wide as the network's are."""
        if self.neurons != neurons:
            shape = (self.base, self.neurons)
            raise InputError(f"{where} is {shape}; the network takes (inputs, {neurons}){shape_hint(shape, neurons)}")

    def first(self, count: int) -> "Inputs":
        """The first `count` inputs; more than there are repeats them in order."""
        count = check_whole(count, "count")
        if count < 1:
            raise InputError(f"{count} inputs asked for; there must be at least 1")
        data = self.data[:count] if count < self.base else self.data
        inputs = Inputs(data, self.neurons, count, {**self.description, "count": count})
        inputs.own, inputs.cut_from = inputs.own or self.own, self.cut_from
        if count < self.base and "official_sha256" in self.description:
            inputs.cut_from = self.sha256  # whether they are official is asked of the rows, never of a description
        return inputs

    def part(self, numbers: np.ndarray) -> "Inputs":
        """The inputs `numbers` (int64, ascending, 0-based), which keep their numbers; no row is copied."""
        part = copy.copy(self)
        part.numbers, part.count = np.asarray(numbers, dtype=np.int64), len(numbers)
        return part

    def numbers_of(self, start: int, stop: int) -> np.ndarray:
        """int64: the numbers of inputs start..stop-1 of these, counted from 0 in the whole that these are a part of."""
        span = slice(start, min(stop, self.count))
        return np.arange(span.start, span.stop) if self.numbers is None else self.numbers[span]

    def stored_rows(self, rows: np.ndarray) -> np.ndarray:
        """The stored rows (int64) behind the inputs `rows` (0-based)."""
        return np.asarray(rows, dtype=np.int64) % self.base

    def dense(self, rows: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
        """The inputs `rows` (0-based) as (len(rows), neurons)."""
        part = self.data[self.stored_rows(rows)]
        if self.kind == "bits":
            return np.unpackbits(part, axis=1, count=self.neurons).astype(dtype)
        return (part.toarray() if self.kind == "csr" else part).astype(dtype)

    @property
    def nonzeros(self) -> int:
        """Nonzero values in the stored rows."""
        if self.kind == "bits":
            return int(np.bitwise_count(self.data).sum(dtype=np.int64))
        return int(self.data.nnz if self.kind == "csr" else np.count_nonzero(self.data))

    @property
    def nbytes(self) -> int:
        if self.kind == "csr":
            return self.data.data.nbytes + self.data.indices.nbytes + self.data.indptr.nbytes
        return self.data.nbytes

    @property
    def sha256(self) -> str:
        """The digest of the stored rows as they are now; of packed bits, just of their bytes, as the challenge's files
        are."""
        if self.known_sha256 is not None:
            return self.known_sha256
        digest = hashlib.sha256()
        for array in arrays_of(self):
            digest.update(array.data)
        if self.own:
            self.known_sha256 = digest.hexdigest()
        return digest.hexdigest()


def arrays_of(inputs: Inputs) -> list[np.ndarray]:
    """The arrays that the digest of inputs is of."""
    if inputs.kind == "csr":
        return [inputs.data.indptr.astype(np.int64), inputs.data.indices.astype(np.int64), inputs.data.data]
    return [np.ascontiguousarray(inputs.data)]


def shape_hint(shape: tuple[int, ...], neurons: int | None = None) -> str:
    """What may be meant by an array `x` of another shape than (inputs, neurons), as the end of a sentence; or ''."""
    width = math.prod(shape[1:])
    if len(shape) == 2 and shape[0] == neurons:
        return "; transpose it?"
    if len(shape) == 1 and neurons in (None, *shape):
        return "; one input is x[None]"
    if len(shape) > 2 and neurons in (None, width):
        return f"; x.reshape({shape[0]}, {width}) is one"
    return ""


def _pack_sparse(rows: Any) -> np.ndarray:
    packed = np.zeros((rows.shape[0], (rows.shape[1] + 7) // 8), dtype=np.uint8)
    row = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    column = rows.indices
    np.bitwise_or.at(packed, (row, column >> 3), np.uint8(128) >> (column & 7).astype(np.uint8))
    return packed
