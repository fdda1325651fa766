"""The sliced layouts of the CUDA kernels: every edge once, at the place where the kernels look for it; and the compiled
code that makes them, to the bit as NumPy does (tests/engines/numpy_layouts.py)."""

import numpy as np
import numpy_layouts
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn.core.network import from_matrices
from spdnn.engines.reductions.neurons import merge_neurons
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch
from spdnn.kernels.cuda.sliced import (
    CHUNK,
    MOST_ROOM,
    NO_OUTPUT,
    PIECES,
    SHARED,
    SLICE,
    compiled_arguments,
    slice_layer,
    stage_layer,
)


@st.composite
def layers(draw):
    """A layer of any degrees, some of them zero, with a value for each edge or one for all; outputs that read the same
    inputs, that share half of them with the one before, or nothing."""
    inputs, outputs = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    density = draw(st.sampled_from([0.0, 0.03, 0.3, 1.0]))
    matrix = sp.random_array((inputs, outputs), density=density, rng=rng).toarray() != 0
    kind = draw(st.sampled_from(["alike", "half", "any"]))
    if kind == "alike":
        matrix = matrix[:, rng.integers(0, -(-outputs // draw(st.integers(1, 9))), outputs)]
    elif kind == "half":
        matrix = (matrix | np.roll(matrix, 1, axis=1))[:, rng.permutation(outputs)]
    matrix = sp.csc_array(matrix.astype(np.float64))
    matrix.data[:] = 0.5 if draw(st.booleans()) else rng.integers(1, 1000, matrix.nnz)
    return from_matrices([matrix.tocsc()], last="relu").layer(0)


def expected(layer):
    """Of each output its (input, value) pairs in ascending order."""
    matrix = layer.matrix(np.float64).T.tocsr()
    matrix.sort_indices()
    rows = (slice(*ends) for ends in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True))
    return [list(zip(matrix.indices[row].tolist(), matrix.data[row].tolist(), strict=True)) for row in rows]


def held(layout, one_slice, lane, member, padding):
    """(index, value) of one output of a group of a slice, in the order in which kernels add; padding comes last. Where
    a group's outputs differ, a value is zero where there is no edge."""
    chunks = slice(layout.starts[one_slice], layout.starts[one_slice + 1])
    indices = layout.indices[chunks, lane].ravel()
    real = int(np.sum(indices != padding))
    assert (indices[:real] != padding).all()
    assert (np.diff(indices[:real].astype(int)) > 0).all()
    if layout.values.ndim == 1:
        return list(zip(indices[:real].tolist(), np.resize(layout.values, real).tolist(), strict=True))
    # A load has the values of all outputs of one gather, of half a gather or of two, of four groups side by side.
    values = layout.values[chunks, :, lane].reshape(-1, layout.shared)[:, member]
    assert not values[real:].any()
    return [pair for pair in zip(indices[:real].tolist(), values[:real].tolist(), strict=True) if pair[1]]


def check_sliced(layer, layout, zero):
    assert len(layout.order) % SLICE == 0
    assert sorted(layout.order[layout.order != NO_OUTPUT]) == list(range(layer.outputs))
    assert layout.indices.shape[1:] == (SLICE, CHUNK)
    assert layout.starts[-1] == len(layout.indices)
    edges = expected(layer)
    degrees = []
    for (group, member), output in np.ndenumerate(layout.order):
        found = held(layout, group // SLICE, group % SLICE, member, zero)
        if output != NO_OUTPUT:
            assert found == edges[output]
    for group in layout.order:
        degrees.append(len({index for output in group if output != NO_OUTPUT for index, _ in edges[output]}))
    assert degrees == sorted(degrees, reverse=True)
    assert layout.padding == pytest.approx(1 - layer.edges / max(1, layout.indices.size * layout.shared))


@settings(max_examples=60, deadline=None)
@given(layers(), st.booleans(), st.sampled_from(SHARED))
def test_every_edge_is_in_its_slice(layer, farther, most_shared):
    zero = layer.inputs + 3 if farther else None
    layout = slice_layer(layer, zero, most_shared)
    assert layout.shared <= most_shared
    check_sliced(layer, layout, layer.inputs if zero is None else zero)


def check_staged(layer, layout, outputs, room):
    slices = layout.slices
    assert sorted(slices.order[slices.order != NO_OUTPUT]) == list(range(layer.outputs))
    assert slices.order.size == layout.parts * outputs
    assert (np.diff(layout.stages) >= 1).all()
    sizes = np.diff(layout.map_starts)
    assert sizes.max(initial=1) <= layout.room <= room
    assert (layout.map_starts[0], layout.map_starts[-1]) == (0, layout.map.size)
    in_part = outputs // slices.shared
    assert slices.starts.size - 1 == layout.stages[-1] * in_part // SLICE
    edges = expected(layer)
    for part in range(layout.parts):
        stages = range(layout.stages[part], layout.stages[part + 1])
        footprint = layout.map[layout.map_starts[stages[0]] : layout.map_starts[stages[-1] + 1]]
        assert len(stages) == max(1, -(-footprint.size // room))
        order = slices.order[part * in_part : (part + 1) * in_part]
        assert footprint.tolist() == sorted({i for output in order.flat if output >= 0 for i, _ in edges[output]})
        for (place, member), output in np.ndenumerate(order):
            found = []
            for stage in stages:
                own = layout.map[layout.map_starts[stage] : layout.map_starts[stage + 1]]
                pieces = held(slices, (stage * in_part + place) // SLICE, place % SLICE, member, PIECES * layout.room)
                found += [(int(own[index // PIECES]), value) for index, value in pieces]
            if output != NO_OUTPUT:
                assert found == edges[output]


@settings(max_examples=60, deadline=None)
@given(layers(), st.sampled_from([16, 32, 256]), st.sampled_from([1, 2, 7, 33, MOST_ROOM]), st.sampled_from(SHARED))
def test_every_edge_is_in_a_stage_of_its_part(layer, outputs, room, most_shared):
    layout = stage_layer(layer, outputs, room, most_shared=most_shared)
    assert layout.slices.shared <= most_shared
    check_staged(layer, layout, outputs, room)


def assert_as_numpy(name, *given):
    """The compiled function gives what that of NumPy gives: numbers, and arrays with their types, shapes and bits."""
    found, expected = (
        flat(getattr(dispatch.compiled_module(), name)(*given)),
        flat(getattr(numpy_layouts, name)(*given)),
    )
    for ours, theirs in zip(found, expected, strict=True):
        assert getattr(ours, "dtype", None) == getattr(theirs, "dtype", None)
        np.testing.assert_array_equal(ours, theirs)


def flat(results):
    return [part for result in results for part in (flat(result) if isinstance(result, tuple) else [result])]


@st.composite
def any_weights(draw):
    """What compiled code reads of a layer: of `layers`, ragged ones, those past 16 bits; and hashes that collide."""
    layer = draw(layers())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if draw(st.booleans()):
        matrix = layer.matrix().toarray()
        matrix[rng.random(matrix.shape) < rng.random(layer.outputs) ** 3] = 0
        layer = from_matrices([sp.csc_array(matrix)], last="relu").layer(0)
    if draw(st.booleans()):
        width = draw(st.sampled_from([65_535, 65_536, 70_000]))
        matrix = layer.matrix().tocoo()
        places = np.sort(rng.choice(width, layer.inputs, replace=False))
        matrix = sp.csc_array((matrix.data, (places[matrix.coords[0]], matrix.coords[1])), (width, layer.outputs))
        layer = from_matrices([matrix], last="relu").layer(0)
    *arrays, numbers = compiled_arguments(layer)
    return *arrays, draw(st.sampled_from([numbers, numbers % 2, np.zeros_like(numbers)]))


@settings(max_examples=150, deadline=None)
@given(any_weights(), st.sampled_from([0, 3, 70_000]), st.sampled_from(SHARED))
def test_slices_are_those_of_numpy(weights, farther, most_shared):
    assert_as_numpy("sliced_layout", *weights, weights[-1].size + farther, most_shared)


ROOMS = [1, 2, 7, 33, MOST_ROOM]


@settings(max_examples=150, deadline=None)
@given(any_weights(), st.sampled_from([16, 32, 160]), st.sampled_from(ROOMS), st.sampled_from(SHARED))
def test_stages_are_those_of_numpy(weights, outputs, room, most_shared):
    assert_as_numpy("staged_layout", *weights, outputs, room, 4, most_shared)


@pytest.mark.parametrize("neurons", [1024, 4096])
def test_official_layouts_are_those_of_numpy(neurons):
    for k in (0, RadixNet(neurons, 1).block + 2):
        weights = compiled_arguments(RadixNet(neurons, k + 1).layer(k))
        assert_as_numpy("sliced_layout", *weights, neurons, 4)
        assert_as_numpy("staged_layout", *weights, 256, 300, 4, 4)


def test_an_output_without_inputs_is_not_the_one_whose_list_begins_there():
    """Sorted by degrees and dealt out to two warps, output 1 comes after an output without inputs: so does its list."""
    rng = np.random.default_rng(0)
    degrees = np.concatenate([[0, 20], np.full(4, 30), rng.integers(1, 10, 22), np.zeros(4, int)])
    matrix = np.zeros((40, 32))
    for output, degree in enumerate(degrees):
        matrix[rng.choice(40, degree, replace=False), output] = 0.5
    layer = from_matrices([matrix], last="relu").layer(0)
    layout = stage_layer(layer, 32, MOST_ROOM, most_shared=1)
    order = layout.slices.order.ravel().tolist()
    assert degrees[order[order.index(1) - 1]] == 0
    check_staged(layer, layout, 32, MOST_ROOM)


@pytest.mark.parametrize("outputs", [4092, 4096])
def test_sets_are_walked_unless_too_many_read_one_input(outputs):
    """All read input 0; of the rest output j shares two with output j + outputs / 2 alone, which thus comes next. By
    their highest inputs they are in order already."""
    own, half = np.arange(outputs), outputs // 2
    indices = np.stack([0 * own, 1 + own % half, 1 + half + own % half, 1 + outputs + own])
    matrix = sp.csc_array((np.ones(indices.size), (indices.T.ravel(), np.repeat(own, 4))))
    order = slice_layer(from_matrices([matrix], last="relu").layer(0)).order.ravel()
    walked = outputs**2 + outputs + 2 * half * 2**2 <= numpy_layouts.MOST_PAIRS
    assert walked == (outputs == 4092)
    assert order.tolist() == (own.reshape(2, half).T.ravel() if walked else own).tolist()


def test_dense_layers_are_not_walked():
    rng = np.random.default_rng(0)
    layer = from_matrices([(rng.random((300, 300)) < 0.9) * rng.random((300, 300))], last="relu").layer(0)
    assert (np.bincount(layer.indices) ** 2).sum() > numpy_layouts.MOST_PAIRS
    assert_as_numpy("staged_layout", *compiled_arguments(layer), 160, 100, 4, 4)


@pytest.mark.parametrize(("changed", "said"), [
    ({"offsets": np.array([0, 2, 1, 4])}, "offsets must ascend"),
    ({"offsets": np.array([0, 2, 3])}, "offsets must ascend"),
    ({"indices": np.array([1, 0, 2, 2], np.uint16)}, "inputs of an output must ascend"),
    ({"indices": np.array([0, 1, 2, 9], np.uint16)}, "and be inputs of the layer"),
    ({"indices": np.array([0, 1, 2, 2], np.int32)}, "uint16 or uint32"),
    ({"values": np.ones(3, np.float32)}, "one an edge"),
    ({"most_shared": 0}, "a group must have outputs"),
    ({"outputs": 8}, "a part must have slices"),
    ({"room": MOST_ROOM + 1}, "16 bits"),
])  # fmt: skip
def test_what_is_no_layer_is_refused(changed, said):
    given = {"offsets": np.array([0, 2, 3, 4]), "indices": np.array([0, 1, 2, 2], np.uint16)}
    given |= {"values": np.ones(4, np.float32), "valued": True, "numbers": np.arange(3, dtype=np.uint64)}
    given |= {"outputs": 16, "room": 9, "held": 4, "most_shared": 4}
    assert_as_numpy("staged_layout", *given.values())
    with pytest.raises(ValueError, match=said):
        dispatch.compiled_module().staged_layout(*(given | changed).values())


@pytest.mark.parametrize(("inputs", "dtype"), [(65_535, np.uint16), (65_536, np.uint32), (70_000, np.uint32)])
def test_indices_are_as_narrow_as_the_zero_allows(inputs, dtype):
    matrix = sp.csc_array((np.ones(2), ([0, inputs - 1], [0, 1])), shape=(inputs, 2))
    layer = from_matrices([matrix], last="relu").layer(0)
    layout = slice_layer(layer)
    assert layout.indices.dtype == dtype
    assert layout.indices.max() == inputs  # what padding reads
    check_sliced(layer, layout, inputs)
    narrow = stage_layer(layer, 16, MOST_ROOM)
    assert (narrow.slices.indices.dtype, narrow.map.dtype) == (np.uint16, np.uint32)
    check_staged(layer, narrow, 16, MOST_ROOM)


def test_stages_are_full_or_of_equal_size_whichever_pads_less():
    """40 inputs in a room of 32. Inputs 0 to 23 are three chunks of the first 32, and of 20 and 20 four; inputs 20 to
    35 are three chunks of the first 32 and the rest, and two of the second 20."""
    found = []
    for first, last in ((0, 24), (20, 36)):
        matrix = np.zeros((40, 64))
        matrix[first:last, :48], matrix[:, 48:] = 0.5, 0.5
        found.append(np.diff(stage_layer(from_matrices([matrix], last="relu").layer(0), 64, 32).map_starts).tolist())
    assert found == [[32, 8], [20, 20]]


@pytest.mark.parametrize("neurons", [1024, 4096])
def test_official_layers_share_all_and_have_small_footprints(neurons):
    """A gather for each four edges, nothing padded (At-scale SpDNN pads 2.2 times at large widths); 256 outputs are 16
    classes that share halves of their inputs, 17 halves of 16 in all, or 16 where they form a ring."""
    network = RadixNet(neurons, RadixNet(neurons, 1).block + 2)
    for k in range(network.depth):
        layer = network.layer(k)
        layout = stage_layer(layer, 256, 272)
        assert layout.slices.indices.size * 4 == layer.edges
        assert layout.room == layout.map.size // layout.parts <= 272
        assert (layout.stages == np.arange(layout.parts + 1)).all()
        # Lanes side by side read the same: the four groups of a class are one slice.
        of_slice = slice_layer(layer, most_shared=4).indices.reshape(-1, SLICE, CHUNK)
        assert (of_slice == of_slice[:, :1]).all()


def test_merged_official_layers_share_a_half():
    merged, _ = merge_neurons(RadixNet(4096, 11), 1 << 30)
    layer = merged.layer(10)
    layout = stage_layer(layer, 160, MOST_ROOM)
    assert layout.slices.shared == 2
    assert layout.slices.indices.size < 0.8 * layer.edges


@pytest.mark.parametrize("single", [True, False])
def test_what_shares_little_is_not_grouped(single):
    """Not one gather more than before there were groups, and the order that puts lowest inputs side by side."""
    rng = np.random.default_rng(0)
    matrix = np.zeros((2000, 512))
    for column in range(512):
        matrix[rng.permutation(2000)[:32], column] = 0.5 if single else rng.random(32)
    layer = from_matrices([matrix], last="relu").layer(0)
    for layout in (slice_layer(layer, most_shared=4), stage_layer(layer, 256, MOST_ROOM).slices):
        assert layout.shared == 1
        assert layout.padding == 0
    first, second = np.split((matrix != 0).argmax(axis=0)[layout.order.ravel()], 2)
    assert first.max() <= second.min()


def test_an_unsorted_part_pads_and_a_sorted_one_does_not():
    """Outputs of 1 and of 64 edges side by side: a slice is as wide as its widest."""
    matrix = np.zeros((64, 64))
    matrix[:, ::2], matrix[0, 1::2] = 1, 1
    layer = from_matrices([matrix], last="relu").layer(0)
    assert slice_layer(layer).padding == 1 - (32 * 64 + 32) / (32 * 64 + 32 * 8)
    one_by_one = slice_layer(from_matrices([matrix[:, :1]], last="relu").layer(0))
    assert one_by_one.order.ravel().tolist() == [0, NO_OUTPUT, NO_OUTPUT, NO_OUTPUT]
    assert one_by_one.padding == 0.75
