"""What is the engine `cpu`'s own: tiles, batches of tiles, its memory. Its results: test_engines.py."""

import numpy as np
import pytest
import scipy.sparse as sp
from engine_cases import assert_equal, opened, rows

from spdnn.api import infer
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.core.result import projection_weights
from spdnn.engines import oracle as reference
from spdnn.engines.cpu import schedule as plan
from spdnn.engines.cpu import session as sessions
from spdnn.engines.reductions.inputs import DuplicateSearch
from spdnn.formats.radixnet import RadixNet


def merging(count=300, neurons=64, layers=60):
    """A network whose rows become equal late (all clipped), and inputs of which some are equal from the start."""
    rng = np.random.default_rng(5)
    matrices = [np.float32(0.5) * (rng.random((neurons, neurons)) < 0.3) for _ in range(layers)]
    values = (rng.random((count, neurons)) < np.linspace(0.02, 0.5, count)[:, None]).astype(np.float32)
    values[1::3] = values[::3]
    return from_matrices(matrices, -2.5, 8.0, last="relu"), Inputs.from_array(values)


def test_identical_rows_share_one_and_are_all_restored(set_all):
    set_all(plan, SEARCH=0, SEARCH_ROW=0)  # so that a search pays in a small run too
    network, inputs = merging()
    plain = infer(network, inputs, reductions="none", values=True)
    session = opened("cpu", network, inputs, ("dead", "inputs"), threads=2, values=True)
    got = session.run()
    found = session.findings["inputs"]
    assert found["rows_merged"] > 100
    assert 0 < found["looks"] < 20
    assert_equal(got, plain)
    assert got.edges_computed < plain.edges_computed / 2
    assert session.run().digest == got.digest  # and again, from the same buffers


def test_rows_of_equal_hash_and_other_values_stay_apart(set_all):
    set_all(plan, SEARCH=0, SEARCH_ROW=0, HASH=0, COMPARE=0)
    network, inputs = merging()
    plain = infer(network, inputs, reductions="none")
    session = opened("cpu", network, inputs, ("inputs",), threads=2)

    class AllAlike:
        def __init__(self, level):
            self.level = level

        def __getattr__(self, name):
            return getattr(self.level, name)

        def row_hashes(self, features, neurons, step, tile, hashes, threads):
            hashes[:] = 7

    session.work.kernels = AllAlike(session.work.kernels)
    assert session.run().digest == plain.digest
    assert session.findings["inputs"]["looks"] > 0


def test_a_search_that_cannot_pay_is_not_made():
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=(64, 64)).astype(np.float32) / 8 for _ in range(4)]
    inputs = Inputs.from_array(rng.random((2000, 64)).astype(np.float32))
    session = opened("cpu", from_matrices(matrices, 0.1, last="relu"), inputs, ("inputs",))
    session.run()
    assert session.findings["inputs"] == {"looks": 0, "rows_merged": 0, "seconds": 0.0}


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


def twins():
    """Two lists of four weights that differ, and of which layer_rows.cpp makes one hash."""
    whole, factor = (1 << 64) - 1, 0x9E3779B97F4A7C15
    inverse = pow(factor + 0xD1342543DE82EF94, -1, 1 << 64)
    folded = lambda word: word ^ word >> 31  # noqa: E731
    rng = np.random.default_rng(0)
    while True:
        one, other = rng.normal(size=(2, 4)).astype(np.float32)
        (first, second), (instead, _) = (map(int, weights.view(np.uint64)) for weights in (one, other))
        # What the second word has to add to the sum, and the word that is folded into it.
        part = folded(second) + (folded(first) - folded(instead)) * factor * inverse & whole
        other.view(np.uint64)[1] = part ^ part >> 31 ^ part >> 62
        if (abs(other) > 1e-9).all() and (abs(other) < 1e9).all():
            return one, other


def test_neurons_of_equal_hash_and_other_weights_stay_apart():
    network = from_matrices([np.transpose(twins()), np.eye(2)], last="none")
    inputs = Inputs.from_array(np.random.default_rng(0).random((9, 4)).astype(np.float32))
    merged, plain = (infer(network, inputs, reductions=names) for names in ("neurons", "none"))
    assert merged.digest == plain.digest


def test_reductions_save_work_and_say_so():
    network, inputs = RadixNet(1024, 40), rows(700, 1024, kind="bits", density=0.12)
    full, dead = infer(network, inputs, reductions="none"), infer(network, inputs, reductions="dead")
    assert full.edges_computed == -(-700 // full.notes["tile"]) * full.notes["tile"] * network.edges
    assert dead.edges_computed < full.edges_computed / 2


def test_small_memory_is_one_sentence():
    with pytest.raises(InputError, match="memory of 1,000 bytes is too small for one tile of 16 inputs.*at least"):
        infer(RadixNet(1024, 2), rows(3, 1024), memory=1000)


def test_work_that_dead_tiles_were_spared_is_not_counted():
    # All rows die in layer 4, in the middle of a long pass: layers 1 to 4 are all the work there is.
    biases = [0.0] * 3 + [-1000.0] + [0.0] * 60
    network = from_matrices([np.full((32, 32), 1 / 32)] * 64, biases, last="relu")
    inputs = Inputs.from_array(np.random.default_rng(0).random((64 * 20, 32)).astype(np.float32))
    for threads in (1, 2, 64):  # tile by tile, and in step
        got = infer(network, inputs, reductions="dead", threads=threads)
        assert got.survivors[3] == 0 < got.survivors[2]
        assert got.edges_computed == 64 * 20 * 4 * 32 * 32
        assert got.bytes_loaded == 4 * got.edges_computed // 8  # a load serves 8 outputs


def test_bytes_are_counted_as_they_are_moved_and_gathered():
    network = RadixNet(1024, 12)
    bits = rows(640, 1024, kind="bits")
    dense = Inputs(bits.dense(np.arange(640)))
    edges = network.header(0).edges
    got, other = (infer(network, each, reductions="none") for each in (bits, dense))
    assert other.bytes_loaded == 4 * other.edges_computed // 8  # a load serves 8 outputs
    first, rest = 640 * edges // 8 // 8, 640 * edges * 11 * 4 // 8
    assert got.bytes_loaded == first + rest  # the first layer loads bits
    session = opened("cpu", network, bits)
    session.work.cache = 2**40  # all of it fits a cache
    alone = infer(network, dense, "csr", reductions="none")  # a rung in which every output has its own list
    assert alone.bytes_loaded == 4 * alone.edges_computed
    assert session.run().bytes_moved == 0
    weights = sum(layer.nbytes for layer in session.layers)  # outputs share lists of inputs
    assert network.header(0).nbytes < weights < network.nbytes / 2
    session.work.cache = weights - 1  # weights do not
    moved = session.run().bytes_moved
    session.work.cache = weights
    assert moved - session.run().bytes_moved == weights
    session.max_pass_layers, session.work.cache = 1, 0  # every layer's features go in and out
    assert session.run().bytes_moved == weights + 640 * 128 + 23 * 640 * 4096


def test_a_search_that_would_break_a_pass_must_be_worth_it():
    def due(depth, rows):
        cost = plan.Costs.of(RadixNet(4096, depth)).search(1, rows, 16)
        return DuplicateSearch().layers_to_search(1, rows, 0.0, *cost) == 0

    assert not due(24, 12_000)  # 200 MB of features through memory, for 23 layers
    assert due(24, 1_000)  # 16 MB, which a cache holds
    assert due(480, 12_000)


@pytest.mark.parametrize(("bias", "left"), [(-0.35, 898), (-0.5, 3), (-0.6, 0)])
def test_the_first_pass_in_blocks_gives_the_same(set_all, bias, left):
    # Blocks of 16 tiles; rows that are no whole tile wait for those of the next block.
    network, inputs = RadixNet(64, 30, bias), rows(5000, 64, kind="bits", density=0.3)
    expected = infer(network, inputs, reductions="dead", values=True)
    set_all(sessions, FIRST_PASS_BYTES=0)
    session = opened("cpu", network, inputs, ("dead",), threads=2, values=True)
    got = session.run()
    assert session.block == 16
    outlived = got.survivors[got.notes["pass_log"][0][1] - 1]
    assert abs(outlived - left) <= 0.2 * left + 10
    assert session.run().digest == expected.digest
    assert_equal(got, expected)


def test_the_first_pass_has_no_blocks_where_most_rows_outlive_it(set_all):
    set_all(sessions, FIRST_PASS_BYTES=0)
    inputs = rows(5000, 64, kind="bits", density=0.3)
    for network, reductions in ((RadixNet(64, 30, 0.0), ("dead",)), (RadixNet(64, 200, -0.35), ())):
        assert not opened("cpu", network, inputs, reductions, threads=2).block


@pytest.mark.parametrize("edges", [63, 64, 65])
def test_sets_around_the_room_for_their_rows(edges):
    """Rows of the next set are copied side by side where it has at most 64: neighbours of either half stay whole."""
    rng = np.random.default_rng(edges)
    blocks = [rng.standard_normal((edges, 24)).astype(np.float32) for _ in range(6)]
    network = from_matrices([sp.block_diag(blocks), np.eye(144, dtype=np.float32)], 0.0, last="none")
    x = rng.standard_normal((70, 6 * edges)).astype(np.float32)
    found, expected = (
        infer(network, x, "cpu", "none", values=True),
        reference.infer(network, Inputs.from_array(x), values=True),
    )
    np.testing.assert_allclose(found.all_values(), expected.all_values(), rtol=1e-5, atol=1e-4)
