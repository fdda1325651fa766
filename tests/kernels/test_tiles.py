"""Tiles of features: through layers in one pass, compacted, hashed, compared, at every level and tile."""

import itertools

import numpy as np
import pytest
from ladders import LEVELS, each_level

from spdnn.core.features import Inputs
from spdnn.core.network import IDENTITY, Activation, Layer, index_dtype
from spdnn.core.numbers import ceil_div
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch
from spdnn.kernels import tiles as layouts

TILES = (1, *layouts.TILES)
every_level = pytest.mark.parametrize("level", each_level, indirect=True)
all_levels = pytest.mark.parametrize("level", LEVELS, indirect=True)  # by default, too
every_tile = pytest.mark.parametrize("tile", TILES)


@pytest.fixture
def level(request):
    return dispatch.level(request.param)


def stored(rows, neurons=None):
    return layouts.bind_inputs(Inputs(rows, neurons))


def masks_of(layers, count, tile):
    return np.zeros((layers, ceil_div(count, tile)), np.uint64)


def through(level, layer, inputs, numbers, outputs, tile, streamed=False):
    """The stored rows of these numbers through one layer, in tiles; and the activity masks."""
    out, masks = layouts.buffer(numbers.size, outputs, tile), masks_of(1, numbers.size, tile)
    assert level.layers_stored([layer], inputs, numbers, out, tile, 1, masks, 2, streamed=streamed) == -1
    return out, masks


def tiled(level, rows, tile):
    """The rows (count, neurons) in tiles, through a layer that changes nothing."""
    count, neurons = rows.shape
    identity = layouts.bind(Layer.from_matrix(np.eye(neurons), 0.0, IDENTITY))
    return through(level, identity, stored(rows), np.arange(count), neurons, tile)


def untiled(level, features, count, neurons, tile):
    out = np.empty((count, neurons), np.float32)
    level.take(features, tile, np.arange(count), out, 2)
    return out


@every_level
@every_tile
def test_tiles_go_and_come_back(level, tile):
    rows = np.random.default_rng(0).normal(size=(100, 7)).astype(np.float32)
    features, active = tiled(level, rows, tile)
    assert layouts.active_indices(active[0], tile, 100).size == 100
    np.testing.assert_array_equal(untiled(level, features, 100, 7, tile), rows)
    np.testing.assert_array_equal(layouts.tile_rows(rows, tile), features)


@every_level
@every_tile
def test_compacting_to_any_tile(level, tile):
    rows = np.random.default_rng(0).normal(size=(200, 7)).astype(np.float32)
    features, _ = tiled(level, rows, tile)
    some = (np.array([0, 3, 50, 99, 163]), np.arange(200)[::3], np.flatnonzero(rows[:, 0] > 0), np.empty(0, np.int64))
    for to, kept in itertools.product(TILES, some):
        compacted = layouts.buffer(200, 7, to)
        compacted.fill(np.nan)
        level.compact(features, tile, compacted, to, 7, kept, 2)
        np.testing.assert_array_equal(untiled(level, compacted, kept.size, 7, to), rows[kept])
        padding = -kept.size % to
        if padding:
            last = compacted[: ceil_div(kept.size, to) * 7 * to].reshape(-1, 7, to)[-1]
            assert (last[:, to - padding :] == 0).all()


@every_level
@every_tile
def test_hashes_and_comparisons_know_every_bit(level, tile):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(130, 9)).astype(np.float32)
    first = rng.integers(0, 130, 130)
    first = np.minimum(first, np.arange(130))
    first[first[first] != first] = np.flatnonzero(first[first] != first)
    rows = rows[first].copy()
    features, _ = tiled(level, rows, tile)
    hashes, differs = np.empty(130, np.uint64), np.empty(130, np.uint8)
    level.row_hashes(features, 9, 1, tile, hashes, 2)
    np.testing.assert_array_equal(hashes, hashes[first])
    assert np.unique(hashes).size == np.unique(first).size
    level.rows_differ(features, 9, first, tile, differs, 2)
    assert not differs.any()
    rows[77, 8] = np.nextafter(rows[77, 8], np.float32(9))  # the last neuron, by one bit
    first[77] = 0 if first[77] == 77 else first[77]
    features, _ = tiled(level, rows, tile)
    level.rows_differ(features, 9, first, tile, differs, 2)
    assert differs[77]
    assert (np.flatnonzero(differs) == 77).all() or (first[differs != 0] == 77).any()
    sampled = np.empty(130, np.uint64)
    level.row_hashes(features, 9, 4, tile, sampled, 2)
    alone = np.empty(130, np.uint64)
    level.row_hashes(tiled(level, np.ascontiguousarray(rows[:, ::4]), tile)[0], 3, 1, tile, alone, 2)
    np.testing.assert_array_equal(sampled, alone)


@every_level
@every_tile
def test_rows_that_differ_in_one_neuron_differ(level, tile):
    differs = np.empty(130, np.uint8)
    for neuron in range(5):
        rows = np.ones((130, 5), np.float32)
        rows[[40, 129], neuron] = 2
        level.rows_differ(tiled(level, rows, tile)[0], 5, np.zeros(130, np.int64), tile, differs, 2)
        assert np.flatnonzero(differs).tolist() == [40, 129]


@all_levels
@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("degrees", ["equal", "ragged"])
def test_sums_do_not_depend_on_tile_threads_or_pass(level, valued, degrees):
    rng = np.random.default_rng(3)
    widths, layers = [70, 90, 33, 65], []
    for inputs, outputs in zip(widths[:-1], widths[1:], strict=True):
        matrix = np.zeros((inputs, outputs), np.float32)
        for column in range(outputs):
            degree = 13 if degrees == "equal" else rng.integers(0, 20)
            matrix[rng.permutation(inputs)[:degree], column] = rng.normal(size=degree) if valued else 0.3
        layers.append(layouts.bind(Layer.from_matrix(matrix, rng.normal(size=outputs) / 10)))
    rows = rng.normal(size=(150, 70)).astype(np.float32)
    found = []
    for tile, threads, cut in itertools.product(TILES, (1, 3), (3, 1, 2)):  # one pass, or two
        source, target = layouts.buffer(150, 90, tile), layouts.buffer(150, 90, tile)
        masks = masks_of(3, 150, tile)
        done = level.layers_stored(layers[:cut], stored(rows), np.arange(150), source, tile, 3, masks[:cut], threads)
        if cut < 3:
            assert done == -1
            done = level.layers(layers[cut:], source, target, 150, tile, 3, masks[cut:], threads)
            source = target
        assert done == -1
        found.append(untiled(level, source, 150, 65, tile))
        alive = layouts.active_indices(masks[-1], tile, 150)
        np.testing.assert_array_equal(alive, np.flatnonzero(found[-1].any(axis=1)))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def shared_layer(inputs, outputs, lists, valued, seed=0):
    """Outputs that each read one of `lists` (index arrays), drawn at random, in any order."""
    rng = np.random.default_rng(seed)
    reads = [np.sort(lists[number]) for number in rng.integers(0, len(lists), outputs)]
    offsets = np.concatenate([[0], np.cumsum([len(read) for read in reads])]).astype(np.int64)
    indices = np.concatenate(reads).astype(index_dtype(inputs))
    values = rng.normal(size=indices.size).astype(np.float32) if valued else np.float32(0.3)
    bias = rng.normal(size=outputs).astype(np.float32)
    return Layer(inputs, outputs, offsets, indices, values, bias, Activation("relu", 32.0)).check("layer")


def lists_of(kind, inputs):
    rng = np.random.default_rng(1)
    draw = lambda count: rng.permutation(inputs)[:count]  # noqa: E731
    if kind == "large sets":  # 64 outputs and more
        return [draw(32) for _ in range(5)]
    if kind == "sets of any size, some empty, some of one edge":
        return [draw(count) for count in (0, 1, 2, 3, 31, 32, 33, 66) for _ in range(12)] + [draw(0)] * 20
    shared = draw(16)  # lists that share a part, and outputs that share nothing
    return [np.unique(np.concatenate([shared, draw(count)])) for count in (0, 1, 16) for _ in range(4)] + [
        draw(9) for _ in range(150)
    ]


KINDS = ["large sets", "sets of any size, some empty, some of one edge", "sets beside outputs that share nothing"]


@all_levels
@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_that_share_a_list_of_inputs_give_the_same_bits(level, kind, valued):
    inputs, outputs = 70, 333
    layer = shared_layer(inputs, outputs, lists_of(kind, inputs), valued)
    alone, together = layouts.bind(layer), layouts.bind(layer, share=True)
    assert alone.gathers == layer.edges
    assert together.gathers < layer.edges * (0.2 if kind == "large sets" else 0.7)
    rows = np.random.default_rng(2).normal(size=(150, inputs)).astype(np.float32)
    for tile, threads in itertools.product(TILES, (1, 3)):
        found = []
        for bound, streamed in itertools.product((alone, together), (False, True)):
            target = layouts.buffer(150, outputs, tile)
            target.fill(np.nan)
            mask = masks_of(1, 150, tile)
            source = layouts.tile_rows(rows, tile)
            assert level.layers([bound], source, target, 150, tile, 1, mask, threads, streamed=streamed) == -1
            found.append((target.view(np.uint32), mask))
        for features, mask in found[1:]:
            np.testing.assert_array_equal(features, found[0][0])
            np.testing.assert_array_equal(mask, found[0][1])
    # Inputs that are stored as bits.
    rows = (np.random.default_rng(2).random((150, inputs)) < 0.4).astype(np.uint8)
    bits = stored(np.packbits(rows, axis=1), inputs)
    for tile in TILES:
        found = []
        for bound, streamed in ((alone, False), (together, True)):
            target, mask = through(level, bound, bits, np.arange(150), outputs, tile, streamed)
            found.append((untiled(level, target, 150, outputs, tile), mask))
        np.testing.assert_array_equal(found[0][0], found[1][0])
        np.testing.assert_array_equal(found[0][1], found[1][1])
    expected = np.clip(rows @ layer.matrix(np.float64) + layer.bias, 0, 32)
    np.testing.assert_allclose(found[1][0], expected, rtol=1e-4, atol=1e-4)


def test_wide_layers_share_lists_and_others_keep_their_arrays():
    rng = np.random.default_rng(0)
    wide = shared_layer(70_000, 80, [rng.permutation(70_000)[:40] for _ in range(4)], valued=True)
    bound = layouts.bind(wide, share=True)
    assert bound.gathers < wide.edges // 4
    level, rows = dispatch.level(), rng.normal(size=(3, 70_000)).astype(np.float32)
    target, mask = layouts.buffer(3, 80, 16), np.zeros((1, 1), np.uint64)
    assert level.layers([bound], layouts.tile_rows(rows, 16), target, 3, 16, 1, mask, 1) == -1
    expected = np.clip(rows @ wide.matrix(np.float64) + wide.bias, 0, 32)
    np.testing.assert_allclose(untiled(level, target, 3, 80, 16), expected, rtol=1e-4, atol=1e-4)
    random = Layer.from_matrix((rng.random((70, 90)) < 0.3).astype(np.float32))
    same, shared = layouts.bind(random), layouts.bind(random, share=True)
    assert shared.gathers == random.edges
    assert shared.nbytes == same.nbytes
    network = RadixNet(1024, 24)
    for k in range(24):  # 16 outputs of each read the same, and 32 in the last layer of a block
        assert layouts.bind(network.layer(k), share=True).gathers == network.header(k).edges // 8
    assert layouts.bind(network.layer(0), share=True).nbytes < network.layer(0).nbytes / 3


@every_level
@every_tile
def test_bits_are_the_rows_that_they_stand_for(level, tile):
    for neurons in (1, 8, 63, 64, 65, 511, 513, 1000):
        rng = np.random.default_rng(neurons)
        bits = rng.random((150, neurons)) < 0.4
        numbers = rng.integers(0, 150, 90)
        matrix = rng.normal(size=(neurons, 20)).astype(np.float32) * (rng.random((neurons, 20)) < 0.5)
        layer, outputs = layouts.bind(Layer.from_matrix(matrix, 0.1)), []
        for data in (stored(np.packbits(bits, axis=1), neurons), stored(bits.astype(np.float32))):
            out, _ = through(level, layer, data, numbers, 20, tile)
            outputs.append(untiled(level, out, 90, 20, tile))
        np.testing.assert_array_equal(*outputs, err_msg=f"{neurons} neurons")


@every_level
@every_tile
def test_the_first_layer_past_float32_is_told(level, tile):
    layers = [layouts.bind(Layer.from_matrix(np.eye(4) * factor)) for factor in (1, 1e30, 1e30, 1)]
    source, target = layouts.buffer(70, 4, tile), layouts.buffer(70, 4, tile)
    source[:] = 1
    for threads in (1, 2):
        masks = masks_of(4, 70, tile)
        assert level.layers(layers, source, target, 70, tile, 4, masks, threads) == 2


@every_level
@every_tile
def test_lanes_without_an_input_may_overflow(level, tile):
    # A row of zeros becomes 1e30 and then passes float32; the rows that are inputs do neither.
    layers = [layouts.bind(Layer.from_matrix([[value]], bias)) for value, bias in ((-1.0, 1e30), (1e20, 0.0))]
    rows = np.full((tile + 3, 1), 1e35, np.float32)
    out, masks = layouts.buffer(len(rows), 1, tile), masks_of(2, len(rows), tile)
    for threads in (1, 2):
        assert level.layers_stored(layers, stored(rows), np.arange(len(rows)), out, tile, 2, masks, threads) == -1
        source = layouts.tile_rows(rows, tile)
        assert level.layers(layers, source, out, len(rows), tile, 2, masks, threads) == -1
        source[0] = 0  # and this one is an input
        assert level.layers(layers, source, out, len(rows), tile, 2, masks, threads) == 1


@every_level
@every_tile
def test_one_row_past_float32_is_told_wherever_it_is(level, tile):
    layer, out = layouts.bind(Layer.from_matrix(np.eye(3) * 1e30)), layouts.buffer(35, 3, tile)
    for place, threads in itertools.product((0, 15, 16, 31, 33, 34), (1, 2)):
        rows, masks = np.ones((35, 3), np.float32), masks_of(1, 35, tile)
        rows[place] = 1e30
        assert level.layers([layer], layouts.tile_rows(rows, tile), out, 35, tile, 1, masks, threads) == 0
        assert level.layers_stored([layer], stored(rows), np.arange(35), out, tile, 1, masks, threads) == 0


@pytest.mark.parametrize("threads", [1, 3])  # tile by tile, and in step
def test_tiles_of_zeros_go_on_to_a_bias(threads):
    layers = [layouts.bind(Layer.from_matrix(np.eye(4), bias)) for bias in (-5.0, 2.0, 0.0)]
    out, masks = layouts.buffer(40, 4, 16), masks_of(3, 40, 16)
    source = layouts.tile_rows(np.ones((40, 4), np.float32), 16)
    assert dispatch.level().layers(layers, source, out, 40, 16, 1, masks, threads) == -1
    assert (untiled(dispatch.level(), out, 40, 4, 16) == 2).all()


@pytest.mark.parametrize("threads", [1, 3])  # tile by tile, and in step
def test_tiles_of_zeros_stop_early_and_leave_zeros(threads):
    level, network = dispatch.level(), RadixNet(1024, 4, -1000.0)
    layers = [layouts.bind(layer, share=k % 2 == 0) for k, layer in enumerate(network.layers())]
    source, target = layouts.buffer(128, 1024, 64), layouts.buffer(128, 1024, 64)
    source[:], target[:] = 1, np.nan
    masks = np.full((4, 2), 5, np.uint64)
    assert level.layers(layers, source, target, 128, 64, 0, masks, threads) == -1
    assert not masks.any()
    assert (target == 0).all()


@every_level
@every_tile
@pytest.mark.parametrize("neurons", [1, 7, 40])
def test_rows_are_taken_out_of_tiles_and_placed_behind_others(level, tile, neurons):
    rows = np.random.default_rng(0).normal(size=(200, neurons)).astype(np.float32)
    features, _ = tiled(level, rows, tile)
    indices = np.array([0, 3, 4, 50, 99, 163, 199])
    found = np.empty((indices.size, neurons), np.float32)
    level.take(features, tile, indices, found, 2)
    np.testing.assert_array_equal(found, rows[indices])
    for first in (0, 1, 15, 64, 100):
        out = layouts.buffer(300, neurons, tile)
        out[:] = np.nan
        level.insert(rows[:first], out, tile, 0, 2)
        level.insert(rows[first:], out, tile, first, 2)
        np.testing.assert_array_equal(untiled(level, out, 200, neurons, tile), rows)
    end = ceil_div(200, tile) * tile  # the lanes of a new tile past the last row are zero
    assert not untiled(level, out, end, neurons, tile)[200:].any()


def test_places_that_do_not_fit_are_refused():
    level, rows = dispatch.level(), np.zeros((20, 3), np.float32)
    with pytest.raises(ValueError, match="dst is too small"):
        level.insert(rows, layouts.buffer(64, 3, 64), 64, 45, 1)
    with pytest.raises(ValueError, match="a row number is out of range"):
        level.take(layouts.buffer(64, 3, 64), 64, np.array([64]), rows[:1], 1)
    with pytest.raises(ValueError, match="as many as indices"):
        level.take(layouts.buffer(64, 3, 64), 64, np.array([3]), rows, 1)


@all_levels
@pytest.mark.parametrize("degree", [255, 256, 300, 511])
def test_inputs_that_are_all_on_are_counted_past_a_byte(level, degree):
    layer = Layer.from_matrix(np.full((degree, 20), 0.25), -0.5)
    bits = stored(np.packbits(np.ones((70, degree), np.uint8), axis=1), degree)
    for tile in layouts.TILES:
        out, _ = through(level, layouts.bind(layer), bits, np.arange(70), 20, tile)
        assert (untiled(level, out, 70, 20, tile) == degree / 4 - 0.5).all()
