"""Topologies and arrays that the tests of the operations' CUDA kernels share."""

import numpy as np

from spdnn.ops import Topology

FLOAT, HALF = np.dtype(np.float32), np.dtype(np.float16)


def topology(lengths, columns, seed=0, index_bits=None):
    """Rows of these lengths, at random places."""
    random = np.random.default_rng(seed)
    places = [np.sort(random.choice(columns, length, replace=False)) for length in lengths]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    return Topology((len(lengths), columns), offsets, np.concatenate(places).astype(np.int64), index_bits)


def scattered(rows, columns, nonzeros, seed=0, index_bits=None):
    """So many nonzeros anywhere."""
    random = np.random.default_rng(seed)
    rows_of = random.choice(rows * columns, nonzeros, replace=False) // columns
    return topology(np.bincount(rows_of, minlength=rows), columns, seed, index_bits)


# Every residue of a row's start modulo 8, empty rows between them; rows of one chunk exactly, of more, of one more.
RAGGED = [1, 0, 3, 4, 5, 0, 0, 7, 8, 9, 31, 32, 33, 2, 64, 65, 1, 1, 1, 1, 129, 6]
SHAPES = {
    "11 x 55": lambda bits: scattered(11, 55, 60, 1, bits),
    "7 x 96, 333 nonzeros": lambda bits: scattered(7, 96, 333, 2, bits),
    "ragged": lambda bits: topology(RAGGED, 140, 3, bits),
    "all empty": lambda bits: topology([0] * 9, 5, 4, bits),
    "one column": lambda bits: topology([1, 0, 1, 1, 0, 1], 1, 5, bits),
    "one row": lambda bits: topology([77], 90, 6, bits),
    "one nonzero": lambda bits: topology([0, 0, 1], 3, 7, bits),
}


def misaligned(device, host, elements):
    """`host` on the device, at so many elements past a multiple of 16 bytes."""
    raw = device.upload(np.concatenate([np.full(elements, np.nan, host.dtype), host.reshape(-1)]))
    return raw[elements:].reshape(host.shape)


def random_values(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
