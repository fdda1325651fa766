"""No choice of tiles and no number of threads is carried from test to test."""

import os
from importlib.metadata import version

import compile_cache
import pytest

# What torch compiles is kept where the other tests' compiled code is; it reads this when it is imported.
os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(compile_cache.folder("inductor", version("torch")))
os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # no processes that outlive a test
os.environ["TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS"] = "0"  # which it would keep in the folder for temporary files


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    import torch

    monkeypatch.setenv("SPDNN_TUNED", str(tmp_path / "tuned.json"))
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
