"""What is the engine `spgemm`'s own: accumulators, equal rows, the work it counts, memory. Results: test_engines.py."""

import numpy as np
import pytest
import scipy.sparse as sp
from engine_cases import assert_equal, assert_same, opened, rows
from ladders import LEVELS

from spdnn.api import infer
from spdnn.core.errors import SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.network import Layer, from_matrices
from spdnn.engines.spgemm import session as spgemm
from spdnn.engines.spgemm.rows import Buffer
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels.tiles import bind_inputs

CHOICES = range(spgemm.BEST, len(spgemm.ACCUMULATORS))


def spread(count, neurons):
    """Rows from empty to half full."""
    return rows(count, neurons, density=np.linspace(0, 0.5, count)[:, None])


def scattered(width, edges, seed=0):
    """A layer of `width` x `width` with random weights."""
    rng = np.random.default_rng(seed)
    places = rng.integers(0, width, (2, edges))
    return sp.coo_array((rng.normal(size=edges).astype(np.float32), tuple(places)), shape=(width, width))


@pytest.mark.parametrize(
    ("widths", "options"),
    [
        ([200, 2100, 90], {"density": 0.2}),  # an output past 1024, widths that are no whole vectors
        ([64, 128, 64], {"single": 0.125, "clip": 0.5}),
        ([50, 45, 40], {"bias": "vector", "last": "none"}),
        ([50, 45, 40], {"bias": 0.2}),
    ],
)
def test_accumulators_levels_and_threads_give_the_same_bits(random_network, monkeypatch, widths, options):
    network, inputs = random_network(widths, **options), spread(70, widths[0])
    digests, taken = set(), {}
    for level in LEVELS:
        monkeypatch.setenv("SPDNN_ISA", level)
        for choice in CHOICES:
            session = opened("spgemm", network, inputs, threads=1 + choice % 3)
            session.accumulator = choice
            result = session.run()
            assert result.notes["instruction_set"] == level
            digests.add(result.digest)
            taken[choice] = result.notes["rows_by_accumulator"]
    assert len(digests) == 1
    assert result.alive.size
    for choice in CHOICES[1:]:  # touched gives way to sweep where zeros do not stay
        keeps = all(network.header(k).keeps_zero for k in range(network.depth))
        name = "sweep" if choice == 0 and not keeps else spgemm.ACCUMULATORS[choice]
        assert taken[choice][name] >= 70


def test_each_accumulator_is_chosen_somewhere():
    network = from_matrices([scattered(4000, 8000)], -0.01, last="relu")
    density = np.array([0, 0.005, 0.1] + [0] * 13 + [0.8] * 32)[:, None]
    got, _ = assert_same("spgemm", network, rows(48, 4000, density=density), threads=1)
    assert all(got.notes["rows_by_accumulator"].values()), got.notes


def test_work_is_the_multiply_adds_really_done(random_network):
    network, inputs = random_network([60, 70, 80], density=0.2), rows(50, 60, density=0.1)
    y, expected = inputs.dense(np.arange(50)), 0
    for layer in network.layers():
        matrix = layer.matrix()
        expected += int((y != 0).astype(np.int64).sum(axis=0) @ np.diff(matrix.tocsr().indptr))
        y = np.clip(y @ matrix.toarray() + layer.bias, layer.activation.low, layer.activation.high)
    assert infer(network, inputs, "spgemm", reductions="none").edges_computed == expected
    assert 0 < expected < 50 * network.edges / 2


@pytest.mark.parametrize("choice", CHOICES)
def test_a_sum_past_float32_is_told_wherever_its_row_is(choice):
    network = from_matrices([np.full((5, 37), 1e38)], 0.0, last="relu")
    for place in range(20):
        values = np.full((20, 5), 0.5, np.float32)
        values[place] = 1
        session = opened("spgemm", network, Inputs.from_array(values), threads=1)
        session.accumulator = choice
        with pytest.raises(SpdnnError, match="a value of layer 1 passed the range of float32"):
            session.run()


def test_equal_rows_share_one_and_change_nothing():
    network, density = RadixNet(1024, 30), np.linspace(0, 0.35, 60)[:, None]
    inputs = rows(60, 1024, kind="bits", density=density).first(500)
    plain = infer(network, inputs, "spgemm", reductions="dead", values=True)
    session = opened("spgemm", network, inputs, ("dead", "inputs"), threads=2, values=True)
    for _ in range(2):  # what was found is of the last run alone
        merged = session.run()
    assert_equal(merged, plain)
    assert plain.alive.size > 0
    assert merged.edges_computed < plain.edges_computed / 2
    found = session.findings["inputs"]
    assert found["looks"] >= 1
    assert found["seconds"] > 0
    alone = opened("spgemm", network, inputs, ("inputs",))
    assert alone.run().digest == plain.digest
    assert 440 <= alone.findings["inputs"]["rows_merged"] <= 499


def test_rows_differ_by_columns_values_and_length():
    dense = np.zeros((6, 9), np.float32)
    dense[0, [1, 3]], dense[1, [1, 4]], dense[2, [1, 3]], dense[3, [1, 3]], dense[4, 1] = 2, 2, 2, (2, 3), 2
    level, memory = spgemm.level(), Buffer(6, 9)
    level.load(bind_inputs(Inputs(dense)), np.arange(6), memory.rows(slice(0, 6)), 1)
    hashes, every = np.empty(6, np.uint64), memory.rows(slice(0, 6))
    level.hashes(every, hashes, 2)
    assert hashes[0] == hashes[2]
    assert np.unique(hashes).size == 5
    equal, first = np.empty(5, bool), np.zeros(5, np.int64)
    level.same(every, first, np.arange(1, 6), equal, 2)
    np.testing.assert_array_equal(equal, [False, True, False, False, False])


@pytest.mark.parametrize("outputs", [40, 65_536, 65_537])
@pytest.mark.parametrize("single", [True, False])
def test_weights_by_input_are_the_transposed_matrix(outputs, single):
    rng = np.random.default_rng(0)
    matrix = sp.random_array((30, outputs), density=300 / (30 * outputs), rng=rng, dtype=np.float32)
    matrix.data[:] = 0.5 if single else rng.normal(size=matrix.nnz)
    layer = Layer.from_matrix(matrix, 0.0)
    starts, by_input, values = spgemm.by_input(layer)
    expected = layer.matrix().tocsr()
    expected.sort_indices()
    np.testing.assert_array_equal(starts, expected.indptr)
    np.testing.assert_array_equal(by_input, expected.indices)
    np.testing.assert_array_equal(np.broadcast_to(values, expected.nnz), expected.data)
    assert by_input.dtype == (np.uint32 if outputs > 65_536 else np.uint16)


def test_zeros_that_are_stored_are_no_features():
    stored = sp.csr_array((np.array([0, 2, 0, 0], np.float32), [1, 3, 0, 2], [0, 2, 4]), shape=(2, 5))
    network = from_matrices([np.eye(5)], 0.0, last="relu")
    got = infer(network, Inputs(stored), "spgemm")
    np.testing.assert_array_equal(got.alive, [0])
    assert got.edges_computed == 1


def test_all_inputs_empty_and_revived(random_network):
    network = random_network([20, 30, 10], bias=0.3)
    inputs = Inputs.from_array(np.zeros((9, 20), np.float32))
    for reductions in ("none", "all"):
        got, expected = assert_same("spgemm", network, inputs, reductions=reductions)
        np.testing.assert_array_equal(got.survivors, expected.survivors)


def test_what_does_not_fit_is_refused():
    level, network = spgemm.level(), RadixNet(32, 1, -0.1)
    layer, scratch = spgemm.bind(network, 0), spgemm.workspace(network, level.panel, 1)
    wide = spgemm.bind(RadixNet(64, 1, -0.1), 0)
    full, small = Buffer(4, 64), Buffer(1, 32)
    every = full.rows(slice(0, 4))
    with pytest.raises(ValueError, match="new rows do not fit"):
        level.layer(layer, every, small.rows(slice(0, 1)), scratch, spgemm.BEST)
    with pytest.raises(ValueError, match="workspace is too narrow"):
        level.layer(wide, every, Buffer(4, 64).rows(slice(0, 4)), scratch, spgemm.BEST)
    with pytest.raises(ValueError, match="no such accumulator"):
        level.layer(layer, every, Buffer(4, 64).rows(slice(0, 4)), scratch, 9)
    full.length[2] = 10**6
    with pytest.raises(ValueError, match="outside of its buffer"):
        level.hashes(full.rows(slice(0, 4)), np.empty(4, np.uint64), 1)
    with pytest.raises(ValueError, match="row number is out of range"):
        level.load(bind_inputs(Inputs(np.zeros((2, 64), np.float32))), np.array([2]), full.rows(slice(0, 1)), 1)


def test_bytes_are_counted_as_nonzeros_are_moved():
    network, inputs = RadixNet(1024, 4), rows(640, 1024, density=0.1)
    session = opened("spgemm", network, inputs)
    session.cache = 2**40  # all of it fits a cache
    assert session.run().bytes_moved == 0
    session.cache = 0
    result = session.run()
    # All but those of the last layer are read once and written once.
    nonzeros = [int(np.count_nonzero(inputs.dense(np.arange(640))))]
    nonzeros += [result_nonzeros(network, inputs, k) for k in range(1, 5)]
    features = 8 * (nonzeros[0] + 2 * sum(nonzeros[1:4]) + nonzeros[4])
    assert result.bytes_moved == features + sum(network.header(k).nbytes for k in range(4))
    session.cache = sum(session.weight_bytes)  # weights fit, and no layer's nonzeros
    assert session.run().bytes_moved == sum(
        8 * (before + after)
        for before, after in zip(nonzeros, nonzeros[1:], strict=False)
        if 8 * (before + after) > session.cache
    )


def result_nonzeros(network, inputs, depth):
    """Of all rows after so many layers."""
    values = infer(network.first(depth), inputs, "cpu", reductions="none", values=True).all_values()
    return int(np.count_nonzero(values))
