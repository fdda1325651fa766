"""No choice of tiles, threads or compiled code is carried from test to test."""

import pytest
import torch


@pytest.fixture(autouse=True)
def alone(tmp_path, monkeypatch):
    monkeypatch.setenv("SPDNN_TUNED", str(tmp_path / "tuned.json"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
