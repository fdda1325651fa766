"""Which decomposition is taken: the fastest that fits, the simplest of equals, and why."""

import numpy as np
import pytest
from graphs import decompositions
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn.core.errors import InputError, MemoryTooSmall
from spdnn.engines.costs.costs import DeviceCosts, MessageCosts, Work
from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.choice import EQUAL, choose
from spdnn.engines.taskgraph.settings import TaskgraphSettings
from spdnn.engines.taskgraph.simulation import TaskCosts, least_seconds, simulate

LAYERS, INPUTS = 40, 1024
SIZES = RunSizes(INPUTS, 16, (1000,) * LAYERS, 8)
SLOW_MESSAGES = MessageCosts(1.0, 1.0)


def costs(copy=None, rows=None, **settings):
    rows = np.full(LAYERS, float(INPUTS)) if rows is None else rows
    each = [np.full(LAYERS, value) for value in (1.0, 4.0, 1000.0)]
    work = Work(INPUTS, each[0], rows, rows, each[1], each[2], 0.0)
    return TaskCosts(work, DeviceCosts((1e-3,), tiles=(16,), copy_bytes_per_second=copy), **settings)


def chosen(devices, memory, costs, **asked):
    return choose(SIZES, TaskgraphSettings(devices=devices, join=False, **asked), memory, costs)


def test_where_all_fits_nothing_is_streamed():
    found = chosen(1, None, costs(copy=1e3))
    assert (found.decomposition.schedule, found.decomposition.batches) == ("resident", 1)
    assert found.predicted.seconds == pytest.approx(LAYERS * INPUTS * 1e-3)
    assert found.why == "resident, 1 batch: no other could be 2% faster, even if nothing waited"


def test_what_does_not_fit_is_streamed_and_the_memory_kept():
    memory = 1000 * LAYERS // 2
    found = chosen(1, memory, costs(copy=1e6))
    assert found.decomposition.schedule == "stream"
    assert found.decomposition.most_memory(SIZES) <= memory
    assert "resident would not fit the memory of a device" in found.why
    refused = [one for one in found.considered if one.why_not == "does not fit"]
    assert {one.schedule for one in refused} >= {"resident"}


def test_the_simplest_of_equals_is_taken():
    """Two devices with even batches: drawing them brings nothing."""
    found = chosen(2, None, costs(messages=SLOW_MESSAGES))
    assert found.decomposition.schedule == "resident"
    least = min(one.seconds for one in found.considered if one.seconds is not None)
    assert found.predicted.seconds <= EQUAL * least


def test_uneven_batches_are_drawn():
    """After the first layer only the second half of the inputs is left: of batches dealt out, one device has these."""
    later = lambda batches: np.arange(batches)[:, None] >= batches / 2  # noqa: E731
    shares = lambda batches: later(batches) / later(batches).sum() * np.ones(LAYERS)  # noqa: E731
    rows = np.full(LAYERS, INPUTS / 2)
    rows[0] = INPUTS
    found = chosen(2, None, costs(rows=rows, row_shares=shares, messages=SLOW_MESSAGES))
    assert found.decomposition.drawn
    assert "slower" in found.why


def test_copies_that_bind_make_a_pipeline():
    """Each of two devices holds half of the layers, so nothing is copied; copies would take a hundred times as long."""
    memory = 1000 * LAYERS // 2 + 4 * 16 * 8 * 4
    found = chosen(2, memory, costs(copy=10.0))
    assert found.decomposition.schedule == "pipeline"
    assert not found.decomposition.streamed
    assert found.decomposition.most_memory(SIZES) <= memory


def test_what_is_given_is_kept():
    found = chosen(4, None, costs(copy=1e6), schedule="pipeline", pipeline=2, batches=6, buffers=3)
    made = found.decomposition
    assert (made.schedule, len(made.ranges), made.groups, made.buffers) == ("pipeline", 2, 2, 3)
    assert made.batches == 6
    assert found.why.endswith("nothing else was left to choose")
    assert chosen(1, None, costs(copy=1e6), buffers=3).decomposition.buffers == 3


def test_nothing_fits_is_one_sentence_of_what_needs_least():
    with pytest.raises(MemoryTooSmall, match="too small for the schedule stream") as found:
        chosen(1, 500, costs(copy=1e6))
    assert found.value.least > 500
    with pytest.raises(InputError, match="cannot be shared out"):
        chosen(4, None, costs(), schedule="pipeline", pipeline=3)


@settings(deadline=None, max_examples=30)
@given(decompositions(), st.sampled_from([None, 1, 2]), st.integers(1, 3))
def test_no_run_is_faster_than_its_least(drawn, cores, threads):
    decomposition, sizes, _ = drawn
    rows = np.full(sizes.layers, float(sizes.inputs))
    weights = np.array(sizes.weights, float)
    work = Work(sizes.inputs, np.ones(sizes.layers), rows, rows, np.ones(sizes.layers), weights, 0.0)
    device = DeviceCosts((1.0,), copy_bytes_per_second=0.5, threads=2, cores=2)
    told = TaskCosts(work, device, threads=threads)
    assert least_seconds(decomposition, told, cores) <= simulate(decomposition, told, cores).seconds * (1 + 1e-9)
