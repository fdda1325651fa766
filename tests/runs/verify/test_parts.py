"""Parts of a network that are run alone: a verdict sees in them what the clip hides in the whole run."""

import numpy as np
import pytest
from hostile import _layers
from msgspec.structs import replace

from spdnn.core.errors import SpdnnError, Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import Activation, Layer, MemoryNetwork, from_matrices
from spdnn.core.request import RunRequest
from spdnn.core.result import PartOutputs
from spdnn.engines.base import Options
from spdnn.engines.cpu.batch import BatchKernels
from spdnn.engines.cpu.engine import CpuEngine
from spdnn.engines.registry import engine
from spdnn.formats.radixnet import RadixNet
from spdnn.runs import parts
from spdnn.runs.records.files import read_result, write_result
from spdnn.runs.run import Sources, judge, run

DEPTH = 40


def bits(count=300, width=1024):
    rng = np.random.default_rng(1)
    return Inputs.from_array(rng.random((count, width)) < np.linspace(0, 0.4, count)[:, None])


def verdict(network=None, inputs=None, **request):
    """(verdict, result) of a run of 40 layers of the challenge, whose outputs are all at the clip, or of a network."""
    values = {"network": "net", "inputs": "x"} | request
    outcome = run(RunRequest(**values), Sources(network or RadixNet(1024, DEPTH), inputs or bits()))
    return judge(outcome)[0], outcome.result


@pytest.mark.parametrize("name", ["cpu", "spgemm", "taskgraph", "csr", "scipy"])
def test_the_last_layers_are_compared_output_by_output(name):
    found, result = verdict(engine=name, reductions="all" if name in ("cpu", "spgemm", "taskgraph") else "none")
    assert found.passed, found.reasons
    assert 0 < found.categories < result.inputs
    compared = found.parts
    first, last = compared.layers[0]
    assert last == DEPTH
    assert 1 <= last - first + 1 <= parts.DEEPEST_PART
    assert compared.inputs == parts.PART_ROWS * len(compared.layers)
    assert compared.outputs == 1024 * compared.inputs
    assert compared.inside > 0.9
    assert f"{compared.inside:.0%}" in compared.rule


def change_all(layer, **changed):
    kept = {name: getattr(layer, name) for name in Layer.__dataclass_fields__}
    return Layer(**kept | changed)


def one_off(layer):
    values = np.full(layer.edges, layer.values)
    values[77] *= np.float32(1.1)
    return values


CHANGES = {
    "weights": lambda layer: change_all(layer, values=layer.values * np.float32(1.001)),
    "bias": lambda layer: change_all(layer, bias=layer.bias + np.float32(0.001)),
    "one weight": lambda layer: change_all(layer, values=one_off(layer)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_errors_that_the_clip_hides_are_seen(what, monkeypatch):
    """Each is of one layer: the last but one, so that whole runs give the same outputs."""
    bind = BatchKernels.bind

    def wrong(self, k, layer=None):
        return bind(self, k, CHANGES[what](self.network.layer(k)) if k == self.network.depth - 2 else layer)

    monkeypatch.setattr(BatchKernels, "bind", wrong)
    found, _ = verdict(reductions="dead")
    assert (found.missing.count, found.unexpected.count, found.values.failures, found.survivors.failures) == (0,) * 4
    assert not found.passed
    assert found.parts.failures
    first, last = found.parts.layers[0]
    (sentence,) = found.reasons
    assert sentence == (
        f"{found.parts.failures} outputs of parts of the network are wrong, the first of layers {first} to {last} run"
        " alone"
    )


def test_one_wrong_output_is_seen():
    _, result = verdict()
    result.parts.values[5] += np.float32(0.01)
    from spdnn.runs.verify.parts import compare

    found = compare(RadixNet(1024, DEPTH), result, 0)
    assert (found.failures, found.first) == (1, [1])
    result.parts.values[5] = np.nan
    assert compare(RadixNet(1024, DEPTH), result, 0).failures == 1


def test_where_values_tell_nothing_is_run_alone():
    rng = np.random.default_rng(2)
    network = from_matrices([rng.normal(size=(30, 30)) for _ in range(3)], 0.1, 32.0, last="relu")
    found, result = verdict(network, Inputs.from_array(rng.random((50, 30))))
    assert found.passed
    assert result.parts is None
    assert (found.parts.layers, found.parts.inside) == ([], None)


def test_fewer_layers_are_run_where_more_reach_the_bounds():
    layers = [np.eye(64, dtype=np.float32) * 3] * 8  # from 0..1 to 0..3, of which a clip at 4 cuts off the next
    network = from_matrices(layers, 0.0, 4.0, last="relu")
    found, _ = verdict(network, Inputs.from_array(np.ones((40, 64))))
    assert found.passed, found.reasons
    assert found.parts.layers[0] == (8, 8)
    assert replace(found.parts, layers=[(8, 8)]).described == "layer 8 run alone"
    assert replace(found.parts, layers=[(8, 8), (1, 3)]).described == "layers 8, 1 to 3 run alone"
    assert found.parts.inside > parts.INSIDE


@pytest.mark.parametrize("width", [1024, 4096, 16384, 65536])
def test_wide_networks_have_smaller_parts(width):
    network, seen = RadixNet(width, 120), set()
    for number in range(30):
        part = parts.draw(network, 3, number)
        assert part == parts.draw(network, 3, number)
        assert 0 <= part.start < part.stop <= 120
        assert parts.LEAST_ROWS <= part.count <= parts.PART_ROWS
        assert part.count * sum(network.header(k).edges for k in range(part.start, part.stop)) <= parts.PART_EDGES
        seen.add(part.stop - part.start)
    assert parts.draw(network, 4, 0).stop == 120
    assert len(seen) == (1 if width == 65536 else min(parts.DEEPEST_PART, 2**25 // (16 * 32 * width)))


def test_time_allows_more_of_them():
    prepared, runner = (engine("cpu").prepare(RadixNet(1024, DEPTH), ("dead",)), engine("cpu"))
    _, result = verdict()
    few = parts.run(runner, prepared, Options(1), result, 0, 0.0)
    many = parts.run(runner, prepared, Options(1), result, 0, 1e9)
    assert (len(few.shapes), len(many.shapes)) == (1, parts.MOST_CHECKED)
    stops = many.shapes[:, 1]
    assert stops[0] == DEPTH
    assert len(set(stops.tolist())) > 3


def test_equal_rows_and_zeros_are_among_the_inputs():
    network = RadixNet(1024, DEPTH)
    x = parts.inputs_of(network, parts.draw(network, 0, 0), 0, 0).dense(np.arange(64))
    assert x.min() >= 0
    assert x.max() < 1
    assert (~x.any(axis=1)).sum() == 2
    assert len(np.unique(x, axis=0)) == 64 - 16 - 1


def test_a_file_keeps_them(tmp_path):
    _, result = verdict()
    write_result(tmp_path / "result", result)
    again = read_result(tmp_path / "result")
    assert again.sha256 == result.sha256
    for one, other in zip(again.parts, result.parts, strict=True):
        np.testing.assert_array_equal(one, other)


def test_parts_that_nobody_drew_are_refused():
    from spdnn.runs.verify.parts import compare

    _, result = verdict()
    with pytest.raises(SpdnnError, match="seed 3 draws layers 39 to 40 and 64 inputs"):
        compare(RadixNet(1024, DEPTH), result, 3)
    assert compare(RadixNet(1024, DEPTH), result, 1).failures > 60_000  # the same layers, on other inputs
    shapes = result.parts.shapes.copy()
    for changed in ([[0, 0, 64, 1024]], [[0, DEPTH + 1, 64, 1024]], [[3, 5, 64, 1]], [], [[3, 5, -64, -1024]]):
        result.parts = PartOutputs(np.array(changed, np.int64).reshape(-1, 4), result.parts.values)
        with pytest.raises(ValueError, match="part"):
            result.check()
    result.parts = PartOutputs(shapes, result.parts.values[1:])
    with pytest.raises(ValueError, match="part_values"):
        result.check()


def test_an_engine_that_cannot_run_a_part_says_so(monkeypatch, capsys):
    opened = CpuEngine.open

    def open_(self, prepared, inputs, options):
        if prepared.network.depth < DEPTH:
            raise Unsuitable("it runs 40 layers alone")
        return opened(self, prepared, inputs, options)

    monkeypatch.setattr(CpuEngine, "open", open_)
    found, _ = verdict()
    assert found.passed
    assert found.parts.layers == []
    assert "it runs 40 layers alone; no part of the network is compared alone" in capsys.readouterr().err


def test_an_overflow_of_a_part_is_an_error(monkeypatch):
    _layers(monkeypatch, lambda k, layer: layer if k else change_all(layer, values=np.float32(3e38)))
    with pytest.raises(SpdnnError, match="passed the range of float32"):
        verdict(reductions="dead")


def test_a_network_of_one_layer_is_its_own_part():
    network = MemoryNetwork([Layer.from_matrix(np.eye(20, dtype=np.float32) * 5, 0.0, Activation("relu", 2.0))])
    found, _ = verdict(network, Inputs.from_array(np.ones((30, 20))))
    assert found.passed, found.reasons
    assert found.parts.layers[0] == (1, 1)
