"""Inputs in HDF5: their rows as they are in memory (bits, dense or CSR), with a checksum.

format = "spdnn-inputs", version = 1, kind = "bits" | "dense" | "csr", neurons, count, description (JSON),
sha256 (Inputs.sha256, of the rows stored), and the datasets
data (bits: uint8 (rows, ceil(neurons / 8)); dense: float32 (rows, neurons)) or data, indices, indptr (CSR).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import h5py
import numpy as np
import scipy.sparse as sp

from spdnn import progress
from spdnn.errors import InputError
from spdnn.features import Inputs
from spdnn.formats import hdf5
from spdnn.formats.checks import check_widths

FORMAT = "spdnn-inputs"
BLOCK = 1 << 24  # bytes read at a time


def write_inputs(path, inputs: Inputs) -> None:
    """Store inputs, whole or not at all. Raises SpdnnError when the file cannot be written."""
    with hdf5.creating(path, FORMAT) as (file, check):
        file.attrs.update(
            kind=inputs.kind,
            neurons=inputs.neurons,
            count=inputs.count,
            sha256=inputs.sha256,
            description=json.dumps(inputs.description),
        )
        for name in ("data", "indices", "indptr") if inputs.kind == "csr" else ("data",):
            _put(file, name, getattr(inputs.data, name) if inputs.kind == "csr" else inputs.data, check)


def read_inputs(path) -> Inputs:
    """Inputs from a store; all of it is read and checked.

    Raises:
        InputError: not such a store, damaged or cut short.
    """
    file = hdf5.opening(path, FORMAT)
    with file:
        with hdf5.telling(path):
            kind, neurons, count = (
                hdf5.text(file, "kind"),
                hdf5.whole(file, "neurons"),
                hdf5.whole(file, "count"),
            )
            description, expected = hdf5.dictionary(file, "description"), hdf5.text(file, "sha256")
        if kind not in ("bits", "dense", "csr"):
            raise InputError(f"{path}: inputs of kind {kind!r}; they must be 'bits', 'dense' or 'csr'")
        if count < 1:
            raise InputError(f"{path}: {count} inputs; there must be at least 1")
        check_widths(path, neurons)
        with hdf5.telling(path):
            data, digest = _csr(file, neurons) if kind == "csr" else _rows(file["data"], kind, neurons)
    if digest != expected:
        raise InputError(f"{path}: the inputs are damaged: their SHA-256 is {digest}, the store says {expected}")
    return Inputs(data, neurons, count, description)


def _put(file: h5py.File, name: str, array: np.ndarray, check: Callable[[], None]) -> None:
    stored = file.create_dataset(name, array.shape, array.dtype)
    step = max(1, BLOCK * len(array) // max(1, array.nbytes))
    for start in progress.bar(range(0, len(array), step), "write inputs", -(-len(array) // step), "block"):
        stored[start : start + step] = array[start : start + step]
        check()


def _rows(stored: h5py.Dataset, kind: str, neurons: int) -> tuple[np.ndarray, str]:
    dtype, width = (np.uint8, (neurons + 7) // 8) if kind == "bits" else (np.float32, neurons)
    if stored.dtype != dtype or stored.ndim != 2 or stored.shape[0] < 1 or stored.shape[1] != width:
        raise ValueError(f"rows of {stored.dtype} {stored.shape} for {neurons} neurons")
    data, digest = np.empty(stored.shape, dtype), hashlib.sha256()
    step = max(1, BLOCK // max(1, width * data.itemsize))
    for start in progress.bar(range(0, len(data), step), "read inputs", -(-len(data) // step), "block"):
        data[start : start + step] = stored[start : start + step]
        digest.update(data[start : start + step].data)
    return data, digest.hexdigest()


def _csr(file: h5py.File, neurons: int) -> tuple[sp.csr_array, str]:
    data, indices, indptr = file["data"][:], file["indices"][:], file["indptr"][:]
    if data.dtype != np.float32 or indptr.size < 2:
        raise ValueError(f"CSR rows of {data.dtype}, {indptr.size - 1} of them")
    digest = hashlib.sha256()
    for array in (indptr.astype(np.int64), indices.astype(np.int64), data):
        digest.update(array.data)
    matrix = sp.csr_array((data, indices, indptr), shape=(indptr.size - 1, neurons))
    matrix.check_format(full_check=True)
    return matrix, digest.hexdigest()
