"""When the CUDA engines do what: pure functions of the network and of the device's limits."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from shim import ShimDevice

from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.engines.base import Prepared
from spdnn.engines.cuda import schedule
from spdnn.engines.cuda.buffers import KernelPlan
from spdnn.engines.cuda.schedule import KINDS, passes, persistent_shared, stage_room, variants
from spdnn.engines.reductions.dead import LONGEST_PASS
from spdnn.formats.radixnet import RadixNet

H200 = ShimDevice(shared_per_block=227 << 10, multiprocessors=132).properties


@given(st.data())
def test_passes_are_all_layers_once_in_order(data):
    depth = data.draw(st.integers(1, 300))
    one = st.tuples(st.sampled_from(KINDS), st.booleans())
    runs = data.draw(st.lists(st.tuples(one, st.integers(1, 200)), min_size=1))
    layers = ([layer for layer, count in runs for _ in range(count)] * depth)[:depth]
    leaving, searching = data.draw(st.sampled_from([(False, False), (True, False), (True, True)]))
    ahead = [32.0 * (depth - k) for k in range(depth)] + [0.0]
    breaks = data.draw(st.sets(st.integers(0, depth), max_size=8))
    kinds, valued = [kind for kind, _ in layers], [valued for _, valued in layers]
    found = passes(kinds, valued, leaving, searching, ahead, breaks)
    assert [k for one in found for k in range(one.first, one.last)] == list(range(depth))
    for one in found:
        assert len(set(layers[one.first : one.last])) == 1
        assert one.kind == layers[one.first][0]
        assert not breaks & set(range(one.first + 1, one.last))
        assert one.last - one.first <= LONGEST_PASS
    searches = [one.last for one in found if one.search]
    assert searching or not searches
    for last in searches:
        assert schedule.FIRST_SEARCH <= last < depth
        assert ahead[last] >= schedule.AHEAD
    # Each look at least a quarter of the way farther: their number grows as the logarithm of the depth.
    assert all(later >= last + max(2, last // 4) for last, later in zip(searches[:-1], searches[1:], strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_passes_grow_where_rows_may_leave(kind):
    given = [kind] * 200, [False] * 200
    ahead = [1e9] * 201
    lengths = [one.last - one.first for one in passes(*given, True, False, ahead)]
    assert lengths[:13] == [1] * 8 + [2] * 4 + [4]
    assert lengths == sorted(lengths[:-1]) + lengths[-1:]
    assert [one.last for one in passes(*given, False, False, ahead)] == [64, 128, 192, 200]


@given(
    st.integers(1, 70_000), st.integers(1, 70_000), st.sampled_from([1 << 10, 48 << 10, 99 << 10, 227 << 10]),
    st.integers(1, 200),
)  # fmt: skip
def test_variants_share_out_all_numbers_of_rows(width, places, shared_per_block, multiprocessors):
    properties = ShimDevice(shared_per_block=shared_per_block, multiprocessors=multiprocessors).properties
    found = variants(properties, width, places)
    fits = persistent_shared(1, width) <= shared_per_block
    assert bool(found) == fits
    least = 1
    for one in found:
        assert one.least == least
        assert one.most >= one.least
        assert one.shared == persistent_shared(one.inputs, width) <= shared_per_block
        assert one.blocks % multiprocessors == 0
        per_multiprocessor = one.blocks // multiprocessors
        beside = per_multiprocessor * (one.shared + schedule.RESERVED_SHARED) <= properties.shared
        assert per_multiprocessor == 1 or (beside and per_multiprocessor * one.threads <= 1024)
        assert one.threads in (256, 512, 1024)
        assert one.threads == 256 or one.threads <= places * max(1, one.inputs // 4)  # none is idle in the widest layer
        least = one.most + 1
    if found:
        assert found[-1].most == schedule.ALL_ROWS
        assert [one.inputs for one in found] == sorted({one.inputs for one in found})


@pytest.mark.parametrize(("width", "inputs"), [(64, 32), (1024, 16), (4096, 4), (16_384, 1), (65_536, None)])
def test_variants_of_the_widths_of_the_challenge(width, inputs):
    """Merged layers of 65,536 neurons are 4,096 wide: so all merged networks fit, and three of the four as they are."""
    found = variants(H200, width, width)
    assert (found[-1].inputs if found else None) == inputs


@given(
    st.integers(1, 70_000),
    st.sampled_from([(48 << 10, 64 << 10), (64 << 10, 64 << 10), (99 << 10, 100 << 10), (227 << 10, 228 << 10)]),
)
def test_two_stages_leave_room_for_other_blocks(footprint, shared):
    properties = replace(H200, shared_per_block=shared[0], shared=shared[1])
    room = min(footprint, stage_room(properties))
    assert 1 <= room <= schedule.MOST_ROOM
    taken = lambda room: 2 * (room + 1) * 32 * 4 + 32  # noqa: E731
    free = min(shared[0], shared[1] - schedule.RESERVED_SHARED)
    assert taken(room) == schedule.stage_shared_bytes(room) <= free
    assert room == footprint or (room < footprint and taken(room + 1) > free)
    blocks = schedule.stage_blocks(properties, room)
    assert 1 <= blocks <= 2
    assert (blocks == 2) == (2 * (taken(room) + schedule.RESERVED_SHARED) <= shared[1])


def test_bytes_of_a_tile():
    """Of 32 inputs two rows of the widest layer, what is kept beside them, and a bit for each layer and each input
    neuron."""
    network = RadixNet(64, 9, -0.1)
    plan = KernelPlan(ShimDevice(), Prepared.reduce(network, ()), Inputs.from_array(np.ones((1, 64), np.float32)), None)
    assert plan.tile_bytes == 32 * (2 * 4 * 64 + 192) + 4 * (9 + 64)
    assert ceil_div(plan.tile_bytes, 32) == 2 * 4 * 64 + 192 + 10  # of one input
