"""What the tests of the operations share: random matrices, and no choice of tiles carried from run to run."""

import numpy as np
import pytest

from spdnn import ops


@pytest.fixture(autouse=True)
def tuned_file(tmp_path, monkeypatch):
    """A file of tuned tiles of this test's own."""
    monkeypatch.setenv("SPDNN_TUNED", str(tmp_path / "tuned.json"))
    return tmp_path / "tuned.json"


@pytest.fixture
def random_matrix():
    """A function that makes a random sparse matrix with a given number of nonzeros."""

    def made(rows, columns, nonzeros, seed=0, dtype=np.float32, batch=None, index_bits=None):
        random = np.random.default_rng(seed)
        places = np.sort(random.choice(rows * columns, nonzeros, replace=False))
        offsets = np.searchsorted(places, columns * np.arange(rows + 1))
        topology = ops.Topology((rows, columns), offsets, places % columns, index_bits)
        shape = (nonzeros,) if batch is None else (batch, nonzeros)
        return ops.SparseMatrix(topology, random.standard_normal(shape).astype(dtype))

    return made
