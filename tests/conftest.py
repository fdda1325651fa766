"""Shared fixtures; and the rule on what may be left out.

A test marked `needs("x")` is left out where x is absent, with a reason that `make test` lists; with CI set it fails.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from spdnn.network import from_matrices

ROOT = Path(__file__).resolve().parents[1]
MNIST = "mnist/train-images-idx3-ubyte.gz"


def mnist_path() -> Path | None:
    """The MNIST file of the mirror, or one fetched earlier."""
    from spdnn.sources.fetch import cache_folder

    candidates = [cache_folder() / MNIST]
    mirror = os.environ.get("SPDNN_MIRROR")
    if mirror and not mirror.startswith("http"):
        candidates.insert(0, Path(mirror) / MNIST)
    return next((path for path in candidates if path.is_file()), None)


def peer(name: str) -> bool:
    """Whether the library behind the engine `name` is installed."""
    from spdnn.engines import engine

    return engine(name, usable=False).missing() is None


def slurm_installed() -> bool:
    """Whether a Slurm can be started on this host."""
    return os.geteuid() == 0 and all(map(shutil.which, ("munged", "slurmctld", "slurmd")))


NEEDS = {
    "graphblas": (lambda: peer("graphblas"), "the package python-graphblas (pip install 'spdnn[peers]')"),
    "mkl": (lambda: peer("mkl"), "the packages sparse-dot-mkl and mkl (pip install 'spdnn[peers]')"),
    "jax": (lambda: peer("jax"), "the package jax (pip install 'spdnn[peers]')"),
    "mnist": (mnist_path, "the MNIST training images; name a folder that holds mnist/ in SPDNN_MIRROR"),
    "slurm": (slurm_installed, "root, and the Debian packages slurm-wlm and munge"),
    "chromium": (lambda: shutil.which("chromium"), "the browser chromium (Debian package chromium)"),
}


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        found, what = NEEDS[marker.args[0]]
        if not found():
            if os.environ.get("CI"):
                pytest.fail(f"CI is set and this is missing: {what}", pytrace=False)
            pytest.skip(f"left out, for it needs {what}")


@pytest.fixture
def mnist_file() -> Path:
    return mnist_path()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def random_network():
    """A function that makes a network of random layers; every part of a layer can be chosen."""

    def make(widths, density=0.3, seed=0, bias=-0.1, clip=None, last="relu", single=None):
        rng = np.random.default_rng(seed)
        matrices, biases = [], []
        for rows, columns in zip(widths[:-1], widths[1:], strict=True):
            matrix = sp.random_array((rows, columns), density=density, rng=rng, dtype=np.float32)
            if matrix.nnz:
                matrix.data[:] = single if single is not None else rng.normal(size=matrix.nnz).astype(np.float32)
            matrices.append(matrix.tocsc())
            biases.append(rng.normal(-0.1, 0.1, columns).astype(np.float32) if bias == "vector" else bias)
        return from_matrices(matrices, biases, clip, last)

    return make
