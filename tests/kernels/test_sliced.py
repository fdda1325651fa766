"""The sliced layouts of the CUDA kernels: every edge once, at the place where the kernels look for it."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn.kernels.layouts import sliced as layouts
from spdnn.kernels.layouts.sliced import CHUNK, NO_OUTPUT, SLICE, sliced, staged
from spdnn.problem.network import from_matrices
from spdnn.sources.radixnet import RadixNet


@st.composite
def layers(draw):
    """A layer of any degrees, some of them zero, with a value for each edge or one for all."""
    inputs, outputs = draw(st.integers(1, 70)), draw(st.integers(1, 70))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    matrix = sp.random_array((inputs, outputs), density=draw(st.sampled_from([0.0, 0.03, 0.3, 1.0])), rng=rng)
    matrix.data[:] = 0.5 if draw(st.booleans()) else rng.integers(1, 1000, matrix.nnz)
    return from_matrices([matrix.tocsc()]).layer(0)


def expected(layer):
    """Of each output its (input, value) pairs in ascending order."""
    matrix = layer.matrix(np.float64).T.tocsr()
    matrix.sort_indices()
    rows = (slice(*ends) for ends in zip(matrix.indptr[:-1], matrix.indptr[1:], strict=True))
    return [list(zip(matrix.indices[row].tolist(), matrix.data[row].tolist(), strict=True)) for row in rows]


def held(layout, one_slice, lane, padding):
    """(index, value) of one output of a slice, in the order in which kernels add; what padding there is comes last."""
    chunks = slice(layout.starts[one_slice], layout.starts[one_slice + 1])
    indices = layout.indices[chunks, lane].ravel()
    values = layout.values[chunks, lane].ravel() if layout.values.ndim == 3 else np.resize(layout.values, indices.size)
    real = int(np.sum(indices != padding))
    assert (indices[:real] != padding).all()
    if layout.values.ndim == 3:
        assert not values[real:].any()
    return list(zip(indices[:real].tolist(), values[:real].tolist(), strict=True))


def check_sliced(layer, layout, zero):
    assert layout.order.size % SLICE == 0
    assert sorted(layout.order[layout.order != NO_OUTPUT]) == list(range(layer.outputs))
    assert layout.indices.shape[1:] == (SLICE, CHUNK)
    assert layout.starts[-1] == len(layout.indices)
    edges = expected(layer)
    for place, output in enumerate(layout.order):
        found = held(layout, place // SLICE, place % SLICE, zero)
        assert found == ([] if output == NO_OUTPUT else edges[output])
    degrees = [len(edges[output]) for output in layout.order if output != NO_OUTPUT]
    assert degrees == sorted(degrees, reverse=True)
    assert layout.padding == pytest.approx(1 - layer.edges / max(1, layout.indices.size))


@settings(max_examples=40, deadline=None)
@given(layers(), st.booleans())
def test_every_edge_is_in_its_slice(layer, farther):
    zero = layer.inputs + 3 if farther else None
    check_sliced(layer, sliced(layer, zero), layer.inputs if zero is None else zero)


def check_staged(layer, layout, outputs, room):
    assert sorted(layout.slices.order[layout.slices.order != NO_OUTPUT]) == list(range(layer.outputs))
    assert layout.slices.order.size == layout.parts * outputs
    assert (np.diff(layout.stages) >= 1).all()
    sizes = np.diff(layout.map_starts)
    assert sizes.max() <= room
    assert (layout.map_starts[0], layout.map_starts[-1]) == (0, layout.map.size)
    assert layout.slices.starts.size - 1 == layout.stages[-1] * outputs // SLICE
    edges = expected(layer)
    for part in range(layout.parts):
        stages = range(layout.stages[part], layout.stages[part + 1])
        footprint = layout.map[layout.map_starts[stages[0]] : layout.map_starts[stages[-1] + 1]]
        order = layout.slices.order[part * outputs : (part + 1) * outputs]
        mine = [edges[output] if output != NO_OUTPUT else [] for output in order]
        assert footprint.tolist() == sorted({index for output in mine for index, _ in output})
        for place, pairs in enumerate(mine):
            found = []
            for stage in stages:
                own = layout.map[layout.map_starts[stage] : layout.map_starts[stage + 1]]
                slice_of = (stage * outputs + place) // SLICE
                pieces = held(layout.slices, slice_of, place % SLICE, room)
                found += [(int(own[index]), value) for index, value in pieces]
            assert found == pairs


@settings(max_examples=40, deadline=None)
@given(layers(), st.sampled_from([4, 8, 32, 256]), st.sampled_from([1, 2, 7, 33, 65_535]))
def test_every_edge_is_in_a_stage_of_its_part(layer, outputs, room):
    check_staged(layer, staged(layer, outputs, room), outputs, room)


@settings(max_examples=40, deadline=None)
@given(layers(), st.sampled_from([4, 32]), st.sampled_from([3, 100]))
def test_both_ways_of_finding_footprints_agree(layer, outputs, room):
    by_marks = staged(layer, outputs, room)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layouts, "MARKS", 0)
        by_sorting = staged(layer, outputs, room)
    for mine, theirs in zip(parts_of(by_marks), parts_of(by_sorting), strict=True):
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs)


def parts_of(layout):
    slices = layout.slices
    return (layout.stages, layout.map_starts, layout.map, slices.order, slices.starts, slices.indices, slices.values)


@pytest.mark.parametrize(("inputs", "dtype"), [(65_535, np.uint16), (65_536, np.uint32), (70_000, np.uint32)])
def test_indices_are_as_narrow_as_the_zero_allows(inputs, dtype):
    matrix = sp.csc_array((np.ones(2), ([0, inputs - 1], [0, 1])), shape=(inputs, 2))
    layer = from_matrices([matrix]).layer(0)
    layout = sliced(layer)
    assert layout.indices.dtype == dtype
    assert layout.indices.max() == inputs  # what padding reads
    check_sliced(layer, layout, inputs)
    narrow = staged(layer, 4, 65_535)
    assert (narrow.slices.indices.dtype, narrow.map.dtype) == (np.uint16, np.uint32)
    check_staged(layer, narrow, 4, 65_535)


@pytest.mark.parametrize("neurons", [1024, 4096])
def test_official_layers_have_footprints_that_fit_and_little_padding(neurons):
    """What At-scale SpDNN pads 2.2 times at large widths: here next to nothing, and 256 outputs share their inputs."""
    network = RadixNet(neurons, RadixNet(neurons, 1).block + 2)
    for k in range(network.depth):
        layout = staged(network.layer(k), 256, 65_535)
        assert layout.slices.padding <= 0.02
        assert np.diff(layout.map_starts).max() < 600
        assert (layout.stages == np.arange(layout.parts + 1)).all()


def test_an_unsorted_part_pads_and_a_sorted_one_does_not():
    """Outputs of 1 and of 64 edges side by side: a slice is as wide as its widest."""
    matrix = np.zeros((64, 64))
    matrix[:, ::2], matrix[0, 1::2] = 1, 1
    layer = from_matrices([matrix]).layer(0)
    assert sliced(layer).padding == 1 - (32 * 64 + 32) / (32 * 64 + 32 * 8)
    one_by_one = sliced(replace(layer, indices=layer.indices[:64], offsets=layer.offsets[:2]))
    assert one_by_one.order.tolist() == [0, NO_OUTPUT, NO_OUTPUT, NO_OUTPUT]
    assert one_by_one.padding == 0.75
