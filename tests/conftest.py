"""Shared fixtures; and the rule on what may be left out.

A test marked `needs("x")` is left out where x is absent, with a reason that `make test` lists; with CI set it fails.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path

import engine_cases
import pytest

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


def browser_driven() -> bool:
    """Whether there is a Chromium, and what drives it and reads what it prints."""
    packages = ("axe_playwright_python", "playwright", "pypdf")
    return bool(shutil.which("chromium")) and all(map(find_spec, packages))


NEEDS = {
    "graphblas": (lambda: peer("graphblas"), "the package python-graphblas (pip install 'spdnn[peers]')"),
    "mkl": (lambda: peer("mkl"), "the packages sparse-dot-mkl and mkl (pip install 'spdnn[peers]')"),
    "jax": (lambda: peer("jax"), "the package jax (pip install 'spdnn[peers]')"),
    "mnist": (mnist_path, "the MNIST training images; name a folder that holds mnist/ in SPDNN_MIRROR"),
    "slurm": (slurm_installed, "root, and the Debian packages slurm-wlm and munge"),
    "chromium": (browser_driven, "the browser chromium (Debian package chromium) and the packages of envs/test.txt"),
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
    return engine_cases.random_network
