"""The plan of batches: what it promises of any sizes, and what it decides for networks of the challenge."""

import math
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn.core.errors import MemoryTooSmall
from spdnn.engines import memory
from spdnn.engines.base import Options
from spdnn.engines.cpu import schedule as cpu
from spdnn.engines.memory import RunSizes, batch_tiles, plan_batches
from spdnn.engines.spgemm import schedule as spgemm
from spdnn.formats.radixnet import RadixNet


@st.composite
def runs(draw):
    weights = tuple(draw(st.lists(st.integers(1, 50), min_size=1, max_size=5)))
    stay = draw(st.none() | st.just(0) | st.integers(1, 100))
    tile, row, held = draw(st.sampled_from([1, 16])), draw(st.integers(1, 9)), draw(st.integers(0, 50))
    return RunSizes(draw(st.integers(1, 200)), tile, weights, row, held, stay, stream_bytes=draw(st.integers(0, 40)))


@settings(max_examples=200, deadline=None)
@given(runs(), st.integers(-50, 2000), st.integers(1, 5), st.none() | st.integers(1, 4))
def test_a_batch_fits_and_the_least_is_enough(sizes, room, enough, most):
    least = room
    try:
        batch, resident = plan_batches(sizes, room, str, enough, most)
    except MemoryTooSmall as error:
        least = error.least
        batch, resident = plan_batches(sizes, least, str, enough, most)
    tiles, stay = -(-batch // sizes.tile), sum(sizes.weights) if sizes.stay_bytes is None else sizes.stay_bytes
    each = sizes.tile * sizes.row_bytes
    assert room <= least
    assert 1 <= batch <= sizes.inputs
    assert batch == sizes.inputs or not batch % sizes.tile
    assert tiles <= (most or tiles)
    weights = stay if resident else sizes.stream_bytes
    assert sizes.held_bytes + weights + tiles * each <= least
    # One tile less, and there are more batches: none is larger than so few batches need.
    assert tiles == 1 or math.ceil(sizes.tiles / (tiles - 1)) > math.ceil(sizes.tiles / tiles)
    assert not resident or not stay or sizes.held_bytes + stay + min(sizes.tiles, enough) * each <= least


@pytest.mark.parametrize(
    ("tiles", "fit", "groups", "size"), [(10, 10, 1, 10), (10, 9, 1, 5), (10, 4, 1, 4), (10, 4, 2, 3), (10, 0, 1, 0)]
)
def test_batches_are_few_and_even_and_each_group_has_as_many(tiles, fit, groups, size):
    assert batch_tiles(tiles, lambda batch: batch - fit, None, groups) == size
    assert batch_tiles(tiles, lambda batch: min(1, batch - fit), None, groups) == size  # tells one tile at a time


# Of 4096 neurons and 480 layers on two threads: inputs, bytes allowed; inputs of a batch and whether weights stay with
# cpu (in tiles of 32) and spgemm, or the least that is enough.
PLANS = {
    (1000, 153_000_000): (155_939_568, (48, False)),
    (1000, 157_000_000): ((64, False), (100, False)),
    (1000, 243_000_000): ((1000, False), (1000, False)),
    (1000, 476_333_333): ((1000, True), (1000, True)),
    (60000, 143_000_000): (165_379_568, 159_269_656),
    (60000, 183_000_000): ((544, False), (360, False)),
    (60000, 243_000_000): ((2400, False), (1250, False)),
    (60000, 476_333_333): ((5024, True), (2400, True)),
}


@pytest.mark.parametrize("case", PLANS)
def test_what_is_planned_for_a_process_of_143_megabytes(monkeypatch, case):
    monkeypatch.setattr(memory, "kernel_bytes", lambda path, name: {"VmRSS": 150_000_000}.get(name, 7_000_000))
    monkeypatch.setattr(memory, "tightest", lambda: ("", math.inf))
    (count, limit), network = case, RadixNet(4096, 480)
    inputs = types.SimpleNamespace(kind="bits", count=count, nbytes=512 * count)
    plans = (
        lambda: cpu.batches(network, inputs, 4096, 4096, Options(2, limit), 32),
        lambda: spgemm.batches(network, inputs, Options(2, limit), 16),
    )
    for plan, expected in zip(plans, PLANS[case], strict=True):
        if isinstance(expected, tuple):
            assert plan() == expected
            continue
        told = f"^memory of {limit:,} bytes is too small for one .* and 2 threads need at least {expected:,} "
        with pytest.raises(MemoryTooSmall, match=told) as error:
            plan()
        assert error.value.least == expected
