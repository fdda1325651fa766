"""Cases that cannot run here are refused before anything runs; on a cluster only its nodes need devices."""

from types import SimpleNamespace

import pytest

from spdnn.core.errors import SpdnnError
from spdnn.core.request import RunRequest
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.readers import open_network
from spdnn.formats.store import write_network
from spdnn.runs.workflow.stages import prepare
from spdnn.runs.workflow.targets import Targets


@pytest.fixture(autouse=True)
def without_gpu(monkeypatch):
    """No NVIDIA driver, also on a machine that has one."""
    monkeypatch.setattr("spdnn.kernels.cuda.driver.DRIVER", "libcuda-that-is-not-here.so")


def targets(**fields):
    return Targets([RunRequest.of({"neurons": 1024, "layers": 120, "threads": 2} | fields)])


@pytest.mark.parametrize(
    ("elsewhere", "fields", "sentence"),
    [
        (False, {"engine": "cuda"}, r"^engine cuda cannot run here: .*(cupy|driver) is not installed"),
        (True, {"engine": "jaxx"}, "engine 'jaxx' is not known"),
        (False, {"engine": "csr", "reductions": "neurons"}, "'neurons' is not offered"),
        (True, {"engine": "cusparse", "reductions": "neurons"}, "'neurons' is not offered"),
        (True, {"inputs": "mnist", "mnist": "nowhere"}, "^config: nowhere: there is no such file$"),
        (False, {"neurons": None, "layers": None, "network": "here.npz", "inputs": "x.npy"}, "here.npz: there is no"),
    ],
)
def test_what_cannot_run_is_refused(elsewhere, fields, sentence):
    with pytest.raises(SpdnnError, match=sentence):
        targets(**fields).check(elsewhere)


def test_a_cluster_prepares_where_there_is_no_device(tmp_path):
    """As its jobs do it: they are planned, and a network is prepared; only the run needs the engine's device."""
    targets(engine="cuda").check(elsewhere=True)
    write_network(tmp_path / "network.safetensors", RadixNet(1024, 3), formula_ok=True)
    prepare("cuda", "all", None, tmp_path / "network.safetensors", tmp_path / "prepared.safetensors")
    assert open_network(tmp_path / "prepared.safetensors").depth == 3


def test_an_official_archive_is_read_as_deep_as_its_deepest_case():
    cases = [{"neurons": 1024, "layers": layers, "source": "official"} for layers in (120, 480)]
    cases += [{"neurons": 4096, "layers": 1920, "source": "official"}]
    cases += [{"network": "layers", "inputs": "x.npy", "last": "none", "clip": "none"}]
    made = Targets(list(map(RunRequest.of, cases)))
    read = {name: made.reading(SimpleNamespace(network=name)) for name in ("official-1024", "official-4096")}
    assert read == {"official-1024": {"layers": 480}, "official-4096": {"layers": 1920}}
    (own,) = made.networks
    assert made.reading(SimpleNamespace(network=own)) == {"last": "none", "clip": None}
