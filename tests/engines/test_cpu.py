"""The engine `cpu` against the oracle, on awkward shapes, at every instruction-set level."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn import kernels, reduce, reference
from spdnn.engines import infer, plan
from spdnn.engines.base import Options
from spdnn.engines.cpu import CpuEngine
from spdnn.errors import InputError, SpdnnError
from spdnn.features import Inputs, projection_weights
from spdnn.network import from_matrices
from spdnn.sources.radixnet import RadixNet

LEVELS = [level.name for level in kernels.levels()]


def rows(count, neurons, seed=0, kind="dense", density=0.3):
    rng = np.random.default_rng(seed)
    ones = rng.random((count, neurons)) < density
    if kind == "bits":
        return Inputs.from_array(ones)
    values = np.where(ones, rng.normal(1, 1, (count, neurons)), 0).astype(np.float32)
    return Inputs.from_array(sp.csr_array(values) if kind == "csr" else values)


def assert_same(network, inputs, **options):
    got = infer(network, inputs, values=True, **options)
    expected = reference.infer(network, inputs, values=True)
    whole = expected.all_values()
    np.testing.assert_allclose(got.all_values(), whole, rtol=1e-4, atol=1e-5 * max(1.0, abs(whole).max()))
    mine = got.all_values()[got.alive]
    np.testing.assert_array_equal(got.row_min, mine.min(axis=1))
    np.testing.assert_array_equal(got.row_max, mine.max(axis=1))
    projections = mine @ projection_weights(network.outputs).astype(np.float64)
    np.testing.assert_allclose(got.row_projection, projections, rtol=1e-9, atol=1e-9 * max(1.0, abs(whole).sum()))
    np.testing.assert_allclose(got.row_sum, mine.sum(axis=1, dtype=np.float64), rtol=1e-9, atol=1e-9)
    return got, expected


SHAPES = {
    "one input": (1, [50, 40, 30], {}),
    "96 inputs, 7 layers": (96, [96] * 8, {"density": 0.2}),
    "7 x 96 layers": (40, [7, 96, 7, 96], {"density": 0.5}),
    "rectangular": (33, [17, 200, 5, 64], {}),
    "one neuron wide": (5, [3, 1, 4], {"density": 1.0, "bias": 0.0}),
    "vector bias": (70, [40, 40, 40], {"bias": "vector"}),
    "clip": (70, [40, 40, 40], {"clip": 0.5}),
    "logits": (70, [40, 40, 10], {"last": "none"}),
    "positive bias": (70, [40, 40, 40], {"bias": 0.2}),
    "one value": (64, [60, 60, 60], {"single": 0.125}),
    "odd width of bits": (40, [1001, 13, 7], {}),
    "nearly empty": (40, [50, 50, 50], {"density": 0.005, "bias": 0.1}),
}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["bits", "dense", "csr"])
@pytest.mark.parametrize("shape", SHAPES)
def test_awkward_shapes(random_network, monkeypatch, shape, kind, level):
    monkeypatch.setenv("SPDNN_ISA", level)
    count, widths, options = SHAPES[shape]
    got, expected = assert_same(random_network(widths, **options), rows(count, widths[0], kind=kind), threads=2)
    assert got.notes["instruction_set"] == level
    assert abs(got.survivors - expected.survivors).max() <= 1  # a value that ties with zero may fall either way


@pytest.mark.parametrize("reductions", ["none", "all"])
@pytest.mark.parametrize("degree", [0, 1, 31, 32, 33, 70])
@pytest.mark.parametrize("single", [True, False])
def test_any_number_of_nonzeros(degree, single, reductions):
    rng = np.random.default_rng(degree)
    matrix = np.zeros((80, 40), np.float32)
    for column in range(40):
        matrix[rng.permutation(80)[:degree], column] = 0.25 if single else rng.normal(size=degree)
    assert_same(from_matrices([matrix], -0.01), rows(50, 80), reductions=reductions)


@pytest.mark.parametrize("width", [65_535, 65_536, 65_537])
def test_widths_around_sixteen_bits(width):
    rng = np.random.default_rng(1)
    first = sp.csc_array(
        (np.ones(64, np.float32), (rng.integers(0, 3, 64), np.linspace(0, width - 1, 64).astype(int))), shape=(3, width)
    )
    indices = np.array([0, 1, 65_534, width - 2, width - 1])
    last = sp.csc_array((np.arange(1, 6, dtype=np.float32), (indices, [0, 1, 0, 1, 0])), shape=(width, 2))
    network = from_matrices([first, last], 0.0)
    assert network.layer(1).indices.dtype == (np.uint16 if width <= 65_536 else np.uint32)
    got, _ = assert_same(network, Inputs.from_array(rng.random((9, 3)).astype(np.float32)))
    assert got.alive.size == 9


def test_empty_rows_and_columns():
    matrix = np.zeros((6, 6), np.float32)
    matrix[2, 3] = 1
    got, _ = assert_same(from_matrices([matrix, np.eye(6)]), rows(40, 6, density=0.5))
    assert 0 < got.alive.size < 40


def test_dead_rows_leave_only_while_no_later_bias_is_positive(random_network):
    widths = [30, 30, 30, 30]
    network = from_matrices([network_layer.matrix() for network_layer in random_network(widths).layers()],
                            [-500.0, 0.5, -0.1])  # fmt: skip
    got, expected = assert_same(network, rows(100, 30))
    assert expected.survivors[0] == 0 < expected.survivors[1]  # all die, and the positive bias revives them
    np.testing.assert_array_equal(got.survivors, expected.survivors)
    session = CpuEngine().open(CpuEngine().prepare(network, ("dead",)), rows(10, 30), Options())
    session.run()
    assert session.found["dead"]["rows_may_leave_before_layer"] == 3


def test_a_bias_without_activation_keeps_dead_rows(random_network):
    network = from_matrices([np.eye(4), np.eye(4)], [-9.0, -1.0], last="none")
    got, _ = assert_same(network, rows(20, 4))
    assert got.alive.size == 20
    assert (got.all_values() == -1).all()


@pytest.mark.parametrize("reductions", ["none", "dead", "inputs", "dead,inputs", "all"])
def test_threads_batches_and_streaming_change_nothing(reductions):
    network = RadixNet(1024, 40)
    inputs = rows(700, 1024, kind="bits", density=np.linspace(0, 0.35, 700)[:, None])
    # Merging neurons changes the order of sums; the other reductions change no bit.
    alike = "none" if reductions != "all" else "neurons"
    one = infer(network, inputs, threads=1, reductions=alike)
    assert 0 < one.alive.size < 700
    for threads in (1, 2, 5):
        got = infer(network, inputs, threads=threads, reductions=reductions)
        assert got.digest == one.digest
        np.testing.assert_array_equal(got.survivors, one.survivors)
        np.testing.assert_array_equal(got.row_projection, one.row_projection)
    prepared = CpuEngine().prepare(network, reduce.parse(reductions))
    for resident_layers in (True, False):
        session = CpuEngine().open(prepared, inputs, Options(2))
        session.batch = 128
        session.layers = session.layers if resident_layers else None
        batched = session.run()
        assert batched.digest == one.digest
        assert batched.notes["batches"] == 6
        np.testing.assert_array_equal(batched.survivors, one.survivors)


def merging(count=300, neurons=64, layers=60):
    """A network whose rows become equal late (all clipped), and inputs of which some are equal from the start."""
    rng = np.random.default_rng(5)
    matrices = []
    for _ in range(layers):
        matrix = (rng.random((neurons, neurons)) < 0.3) * 0.5
        matrices.append(matrix.astype(np.float32))
    values = (rng.random((count, neurons)) < np.linspace(0.02, 0.5, count)[:, None]).astype(np.float32)
    values[1::3] = values[::3]
    return from_matrices(matrices, -2.5, 8.0), Inputs.from_array(values)


def test_identical_rows_share_one_and_are_all_restored(monkeypatch):
    monkeypatch.setattr(plan, "LOOK", 0)  # so that looking pays in a small run too
    monkeypatch.setattr(plan, "LOOK_ROW", 0)
    network, inputs = merging()
    plain = infer(network, inputs, reductions="none", values=True)
    session = CpuEngine().open(CpuEngine().prepare(network, ("dead", "inputs")), inputs, Options(2, values=True))
    got = session.run()
    found = session.found["inputs"]
    assert found["rows_merged"] > 100
    assert 0 < found["looks"] < 20
    assert got.digest == plain.digest
    np.testing.assert_array_equal(got.all_values(), plain.all_values())
    np.testing.assert_array_equal(got.survivors, plain.survivors)
    np.testing.assert_array_equal(got.categories, plain.categories)
    assert got.edges_computed < plain.edges_computed / 2
    assert session.run().digest == got.digest  # and again, from the same buffers


def test_rows_of_equal_hash_and_other_values_stay_apart(monkeypatch):
    for name, value in (("LOOK", 0), ("LOOK_ROW", 0), ("HASH", 0), ("COMPARE", 0)):
        monkeypatch.setattr(plan, name, value)
    network, inputs = merging()
    plain = infer(network, inputs, reductions="none")
    session = CpuEngine().open(CpuEngine().prepare(network, ("inputs",)), inputs, Options(2))

    class AllAlike:
        def __init__(self, level):
            self.level = level

        def __getattr__(self, name):
            return getattr(self.level, name)

        def row_hashes(self, features, neurons, step, tile, hashes, threads):
            hashes[:] = 7

    session.kernels = AllAlike(session.kernels)
    assert session.run().digest == plain.digest
    assert session.found["inputs"]["looks"] > 0


def test_looking_costs_nothing_where_it_cannot_pay():
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=(64, 64)).astype(np.float32) / 8 for _ in range(4)]
    inputs = Inputs.from_array(rng.random((2000, 64)).astype(np.float32))
    session = CpuEngine().open(CpuEngine().prepare(from_matrices(matrices, 0.1), ("inputs",)), inputs, Options(1))
    session.run()
    assert session.found["inputs"] == {"looks": 0, "rows_merged": 0, "seconds": 0.0}
    costs = plan.Costs.of(RadixNet(1024, 1920))
    looks, due = plan.Looks(costs, 16), []
    for k in range(1, 1920):
        if looks.wait(k, 50_000, 0.0) == 0:
            due.append(k)
            looks.told(k, 50_000, 0)
    assert due[0] == 1
    assert len(due) <= 12  # each look without success doubles the distance to the next
    looks.told(1000, 50_000, 20_000)
    assert looks.wait(1001, 30_000, 0.0) == 0  # one that paid is followed up at once
    assert looks.wait(1001, 30_000, 0.2) is None  # but not while many rows die
    assert looks.wait(1001, 1, 0.0) is None


def test_merged_neurons_are_restored_and_rounding_is_all_that_changes():
    network, inputs = RadixNet(1024, 30), rows(200, 1024, kind="bits", density=np.linspace(0.1, 0.3, 200)[:, None])
    merged, plain = (infer(network, inputs, reductions=names, values=True) for names in ("neurons", "none"))
    exact = reference.infer(network, inputs, values=True)
    assert merged.outputs == 1024
    assert merged.edges_computed < plain.edges_computed / 15
    np.testing.assert_array_equal(merged.categories, plain.categories)
    np.testing.assert_allclose(merged.all_values(), exact.all_values(), rtol=2e-6, atol=2e-5)
    mine = merged.all_values()[merged.alive].astype(np.float64)
    np.testing.assert_allclose(merged.row_sum, mine.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(merged.row_projection, mine @ projection_weights(1024).astype(np.float64), rtol=1e-9)


def test_reductions_save_work_and_say_so():
    network, inputs = RadixNet(1024, 40), rows(700, 1024, kind="bits", density=0.12)
    full, dead = infer(network, inputs, reductions="none"), infer(network, inputs, reductions="dead")
    assert full.edges_computed == -(-700 // full.notes["tile"]) * full.notes["tile"] * network.edges
    assert dead.edges_computed < full.edges_computed / 2


def test_more_inputs_than_stored_repeat():
    network, inputs = RadixNet(1024, 20), rows(50, 1024, kind="bits", density=0.15)
    once, twice = infer(network, inputs), infer(network, inputs.counted(120))
    expected = [n for n in (*once.alive, *(once.alive + 50), *(once.alive + 100)) if n < 120]
    np.testing.assert_array_equal(twice.alive, expected)


def test_wrong_width_and_small_memory_are_one_sentence():
    network = RadixNet(1024, 2)
    with pytest.raises(InputError, match="inputs of 64 neurons for a network that takes 1024"):
        infer(network, rows(3, 64))
    with pytest.raises(InputError, match="memory of 1,000 bytes is too small for one tile of 16 inputs.*at least"):
        infer(network, rows(3, 1024), memory=1000)
    with pytest.raises(InputError, match="reduction 'dad' is not offered"):
        infer(network, rows(3, 1024), reductions="dad")
    with pytest.raises(InputError, match="engine 'gpu' is not known: it must be one of cpu"):
        infer(network, rows(3, 1024), "gpu")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("first", "last"),
    [
        (np.full((2, 2), 3e38), np.ones((2, 1))),
        (np.array([[3e38, 1], [3e38, 1]]), np.array([[0], [1.0]])),  # the layer after does not even look at it
        (np.array([[3e38, -3e38], [3e38, -3e38]]), np.ones((2, 1))),  # a clip or a ReLU would hide it
    ],
)
@pytest.mark.parametrize("clip", [None, 32])
def test_a_value_past_float32_is_an_error_wherever_it_is(first, last, clip, level, monkeypatch):
    monkeypatch.setenv("SPDNN_ISA", level)
    network = from_matrices([first, last], clip=clip)
    with pytest.raises(SpdnnError, match="a value of layer 1 passed the range of float32"):
        infer(network, Inputs.from_array(np.ones((1, 2), np.float32)))
    assert infer(network, Inputs.from_array(np.full((1, 2), 1e-3, np.float32))).alive.size == 1


@pytest.mark.parametrize("options", [{"threads": 0}, {"threads": 1.5}, {"threads": 10**12}, {"memory": 0}])
def test_options_out_of_range_are_one_sentence(options):
    with pytest.raises(InputError, match=r"(threads|memory) .*: an? (integer|number)"):
        infer(RadixNet(32, 1, -0.1), rows(1, 32), **options)


def test_a_level_that_is_not_here(monkeypatch):
    monkeypatch.setenv("SPDNN_ISA", "z80")
    with pytest.raises(InputError, match="'z80' cannot run here"):
        infer(RadixNet(32, 1, -0.1), rows(1, 32))


def test_memory_is_kept_to(random_network):
    network, inputs = RadixNet(1024, 30), rows(4000, 1024, kind="bits")
    held = plan.resident_bytes()
    batch, resident = plan.batches(network, inputs, 1024, 1024, Options(1, held + 14_000_000), 32)
    assert 32 <= batch < 4000
    assert batch % 32 == 0
    assert 2 * 4 * 1024 * batch + (network.nbytes if resident else 0) <= 14_000_000


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_network_equals_the_oracle(data):
    widths = data.draw(st.lists(st.integers(1, 40), min_size=2, max_size=5), label="widths")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    matrices = [
        np.where(rng.random((a, b)) < 0.4, rng.integers(-3, 4, (a, b)) / 4, 0)
        for a, b in zip(widths[:-1], widths[1:], strict=True)
    ]
    biases = [rng.integers(-2, 3, b) / 8 for b in widths[1:]]
    clip = data.draw(st.sampled_from([None, 1.0, 32.0]))
    network = from_matrices(matrices, biases, clip, data.draw(st.sampled_from(["relu", "none"])))
    values = rng.integers(-2, 3, (data.draw(st.integers(1, 70)), widths[0])).astype(np.float32)
    got = infer(network, Inputs.from_array(values), values=True, threads=data.draw(st.integers(1, 3)))
    expected = reference.infer(network, Inputs.from_array(values), values=True)
    # Every number above is a small multiple of a power of two, so float32 and float64 agree exactly.
    np.testing.assert_array_equal(got.all_values(), expected.all_values())
    np.testing.assert_array_equal(got.categories, expected.categories)
    np.testing.assert_array_equal(got.survivors, expected.survivors)
