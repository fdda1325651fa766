"""Inputs in a store: a .safetensors file of their rows as they are in memory (bits, dense or CSR).

The record (container.py): format "spdnn-inputs", kind "bits", "dense" or "csr", neurons, count, description, and sha256
(Inputs.sha256, of the rows stored). The tensors: `data` (bits: uint8 (rows, ceil(neurons / 8)); dense: float32 (rows,
neurons)); or `data`, `indices` and `indptr` (CSR).
"""

import hashlib

import numpy as np

from spdnn.core import safe_open
from spdnn.core import sparse as sp
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs, arrays_of
from spdnn.formats import container
from spdnn.formats.checks import check_widths

FORMAT = "spdnn-inputs"
MOST_STORED = 10**9  # inputs, however few rows repeat
CSR = ("data", "indices", "indptr")


def write_inputs(path, inputs: Inputs, durable: bool = True) -> None:
    """Store inputs, whole or not at all (`durable`: see files.replacing). Raises SpdnnError if that cannot be done."""
    record = {name: getattr(inputs, name) for name in ("kind", "neurons", "count", "sha256", "description")}
    with container.creating(path, {"format": FORMAT, **record}, durable=durable) as writer:
        arrays = {name: getattr(inputs.data, name) for name in CSR} if inputs.kind == "csr" else {"data": inputs.data}
        for name, array in arrays.items():
            writer.write(name, array, "write inputs")


def open_inputs(path, neurons: int | None = None, count: int | None = None) -> Inputs:
    """The first `count` inputs of a store, as read_inputs; it has a width of its own."""
    inputs = read_inputs(path)
    return inputs if count is None else inputs.first(count)


@safe_open.releasing()
def read_inputs(path) -> Inputs:
    """Inputs from a store, in memory; InputError where it is damaged or no such store."""
    record, tensors = container.read_record(path, FORMAT)
    kind, neurons, count, description, expected = (
        record.get(name) for name in ("kind", "neurons", "count", "description", "sha256")
    )
    if kind not in ("bits", "dense", "csr"):
        raise InputError(f"{path}: inputs of kind {kind!r}; they must be 'bits', 'dense' or 'csr'")
    if type(count) is not int or count < 1:
        raise InputError(f"{path}: {count!r} inputs; there must be at least 1")
    if type(neurons) is not int or neurons < 1 or not isinstance(description, dict):
        raise InputError(f"{path}: the file is damaged: {neurons!r} neurons, or no description")
    if count > MOST_STORED:
        raise InputError(f"{path}: {count} inputs; at most {MOST_STORED:,} are possible here")
    check_widths(path, neurons)
    if missing := [name for name in (CSR if kind == "csr" else CSR[:1]) if name not in tensors]:
        raise InputError(f"{path}: the file is damaged: it has no tensor {missing[0]!r}")
    try:
        data = tensors["data"]
        if kind == "csr":
            indices, indptr = tensors["indices"], tensors["indptr"]
            data = sp.csr_array((data, indices, indptr), shape=(indptr.size - 1, neurons))
        inputs = Inputs(data, neurons, count, description).owned()
        if inputs.kind != kind:
            raise ValueError(f"rows of {data.dtype} {data.shape}, and not {kind}")
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: the file is damaged ({safe_open.brief(error)})") from error
    digest = hashlib.sha256()
    for array in arrays_of(inputs):
        for block in container.blocks(array.reshape(-1).view(np.uint8), "read inputs"):
            digest.update(block.data)
    inputs.known_sha256 = digest.hexdigest()
    if inputs.sha256 != expected:
        digests = f"their SHA-256 is {inputs.sha256}, the header says {expected}"
        raise InputError(f"{path}: the inputs are damaged: {digests}")
    return inputs
