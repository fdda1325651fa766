"""Launches written to a folder, and replayed from it alone."""

import json

import numpy as np
import pytest
from cuda_cases import exact_network
from engine_cases import rows
from replay import replay

from spdnn.api import infer
from spdnn.core.errors import InputError
from spdnn.kernels.cuda.launches import ARRAYS, LAUNCHES, LIST, SOURCES


@pytest.mark.parametrize(
    ("name", "kernel"), [("cuda-staged", "staged_layer"), ("cuda-persistent", "persistent_layers")]
)
def test_a_replay_gives_the_same_bits(on_shim, monkeypatch, tmp_path, name, kernel):
    on_shim(multiprocessors=1, order=1)
    network = exact_network(np.random.default_rng(0), [40, 70, 30], inputs=None)
    plain = infer(network, rows(50, 40, kind="dense"), name, reductions="dead")
    monkeypatch.setenv(LAUNCHES, str(tmp_path / "launches"))
    assert infer(network, rows(50, 40, kind="dense"), name, reductions="dead").digest == plain.digest
    monkeypatch.delenv(LAUNCHES)
    found = list(replay(tmp_path / "launches", order=2))
    names = [one.kernel.name for one in found]
    assert kernel in names
    assert {"dense_tiles", "begin", "row_statistics"} < set(names)
    assert not [one for one in found if one.wrong]
    lines = [json.loads(line) for line in (tmp_path / "launches" / LIST).read_text().splitlines()]
    (layer,) = {line["source"] for line in lines if line["kernel"] == kernel}
    assert "#include" not in (tmp_path / "launches" / SOURCES / f"{layer}.cu").read_text()
    # What comes out otherwise is found: features of one launch, changed where they are kept.
    last = next(line for line in lines if line["kernel"] == kernel)
    target = next(one["after"] for one in last["arguments"] if one["name"] == "target")
    path = tmp_path / "launches" / ARRAYS / f"{target}.npy"
    features = np.load(path)
    features[0] += 1
    np.save(path, features)
    wrong = {(one.kernel.name, name) for one in replay(tmp_path / "launches") for name in one.wrong}
    assert (kernel, "target") in wrong


def test_a_folder_that_cannot_be(on_shim, monkeypatch, tmp_path):
    on_shim()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(LAUNCHES, str(tmp_path / "file"))
    with pytest.raises(InputError, match="SPDNN_CUDA_LAUNCHES=.*/file: no folder can be made there"):
        infer(exact_network(np.random.default_rng(0), [8, 8]), rows(5, 8), "cuda-staged")
