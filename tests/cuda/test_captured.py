"""What a run asks CUDA for, through CuPy: one graph for each batch, and no kernel. The stand-in's kernels compute."""

import numpy as np
import pytest
from cuda_cases import exact_network
from engine_cases import assert_equal, rows
from recorded_cupy import computing

from spdnn.api import infer
from spdnn.engines.base import Options
from spdnn.engines.cuda.session import CudaSession
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.engines.taskgraph.cuda.session import CudaGraphSession
from spdnn.formats.radixnet import RadixNet


@pytest.fixture
def run(on_shim, cuda):
    """A function that opens a session on the stand-in, runs it twice and gives (what the second run asked for, notes);
    digests are the shim's."""
    network = exact_network(np.random.default_rng(0), [40] * 20, 0.2, (-3, 2), 8.0)
    inputs = rows(50, 40, kind="bits")
    on_shim()
    told = infer(network, inputs, "cuda-csr", reductions="none")

    def opened(name, kind="staged"):
        device = computing(cuda)
        chosen = engine(name, usable=False)
        prepared = chosen.prepare(network, parse_reductions("dead,inputs", chosen.offers))
        given = (device, CudaSession) if name == "cuda" else ([device], CudaGraphSession)
        session = given[1](given[0], prepared, inputs, Options(1), kind)
        for _ in range(2):
            cuda.asked.clear()
            found = session.run()
            assert_equal(found, told)
        return {name: count for name, count in cuda.asked.items() if count}, found.notes

    return opened


@pytest.mark.parametrize("name", ["cuda", "taskgraph-cuda"])
def test_a_run_is_one_launch_of_a_graph(run, name):
    asked, notes = run(name)
    assert asked == {"graph": 1}
    assert name == "cuda" or (notes["schedule"], notes["captured"]) == ("graph", True)


@pytest.mark.parametrize("name", ["cuda", "taskgraph-cuda"])
def test_launches_that_are_waited_for_are_one_by_one(run, monkeypatch, name):
    monkeypatch.setenv("SPDNN_CUDA_SYNCHRONIZE", "1")
    asked, notes = run(name)
    assert set(asked) == {"kernel"}
    assert not notes.get("captured")


@pytest.mark.parametrize("reductions", ["dead", "dead,inputs"])
@pytest.mark.parametrize(("kind", "launches"), [("staged", 86), ("persistent", 70)])
def test_passes_of_several_layers_save_launches(device, cuda, kind, launches, reductions):
    """One launch after a pass finds the rows that are left; a search for identical inputs takes five."""
    network, cuda.free = RadixNet(64, 60, -0.3), 1 << 30
    prepared = engine("cuda", usable=False).prepare(network, parse_reductions(reductions))
    CudaSession(device, prepared, rows(100, 64, kind="bits"), Options(1), kind)
    (graph,) = cuda.graphs
    assert len(graph.ops) == launches + 5 * 9 * (reductions != "dead")
