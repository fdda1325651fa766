"""Cutting an inference: the memory promised is kept, and what cannot be cut is told."""

import pytest
from graphs import cut, decompositions, sizes
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import refuses

from spdnn.core.errors import MemoryTooSmall
from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.decomposition import MOST_DIVISIONS, Decomposition, ranges_of, stages_of
from spdnn.engines.taskgraph.settings import SCHEDULES

SIZES = RunSizes(inputs=1000, tile=16, weights=(100,) * 40, row_bytes=10, held_bytes=50)


@settings(max_examples=50, deadline=None)
@given(decompositions())
def test_the_promise_on_memory_is_kept(drawn):
    decomposition, sizes, memory = drawn
    assert memory is None or decomposition.most_memory(sizes) <= memory
    assert decomposition.layers == sizes.layers
    assert sum(last - first for first, last in map(decomposition.members, range(decomposition.batches))) == sizes.inputs


def test_memory_counts_weights_features_and_what_is_held():
    stages = ((0, 2), (2, 4), (4, 40))
    whole = Decomposition("resident", 1000, 320, stages, ((0, 3),))
    assert whole.memory(SIZES, 0) == 50 + 4000 + 320 * 10
    rolling = Decomposition("stream", 1000, 320, stages, ((0, 3),), buffers=2)
    assert rolling.buffer_bytes(SIZES, 0) == [3600, 200]  # stages 0 and 2 share a buffer
    pipeline = Decomposition("pipeline", 1000, 320, stages, ((0, 2), (2, 3)), slots=2)
    assert [pipeline.memory(SIZES, d) for d in (0, 1)] == [50 + 400 + 6400, 50 + 3600 + 6400]
    assert pipeline.most_memory(SIZES) == 10050


def test_batches_are_as_large_as_the_memory_allows():
    assert cut("resident", SIZES).batches == 1
    least = 50 + 4000 + 160
    assert cut("resident", SIZES, memory=least + 320).batch == 48
    with pytest.raises(MemoryTooSmall, match=r"device memory of 4,209 bytes is too small .* needs 4,210") as found:
        cut("resident", SIZES, memory=least - 1)
    assert found.value.least == least
    assert cut("resident", SIZES, memory=least).batch == 16
    assert cut("stream", SIZES, memory=least - 1).batch > 16


def test_every_group_has_as_many_batches():
    room = 50 + 4000 + 400 * 10  # for 400 of the 1,000 inputs
    assert cut("resident", SIZES, 1, memory=room).batches == 3
    assert cut("resident", SIZES, 2, memory=room).batches == 4


@settings(max_examples=50, deadline=None)
@given(sizes(), st.sampled_from(SCHEDULES), st.integers(1, 3), st.booleans(), st.integers(0, 400))
@example(RunSizes(1, 16, (3, 1, 1, 3), 1, 0, None, 0), "stream", 1, False, 8)  # stages of 21 bytes are larger than of 8
def test_the_least_that_is_told_is_enough(sizes, schedule, pipeline, leaving, memory):
    devices = min(pipeline, sizes.layers)
    options = {"devices": devices, "pipeline": devices, "leaving": leaving}
    least = memory
    try:
        made = cut(schedule, sizes, memory=memory, **options)
    except MemoryTooSmall as error:
        least = error.least
        made = cut(schedule, sizes, memory=least, **options)
    assert memory <= least >= made.most_memory(sizes)


def test_graph_streams_only_where_weights_do_not_fit():
    assert not cut("graph", SIZES, memory=5000).streamed
    assert cut("graph", SIZES, memory=3000).buffers == 2
    assert cut("graph", SIZES, 2).batches == 8  # enough to draw


def test_a_number_of_batches_that_does_not_fit_is_told():
    with pytest.raises(MemoryTooSmall, match="with 2 batches: it needs 9,170"):
        cut("resident", SIZES, memory=8000, batches=2)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.integers(1, 8))
def test_ranges_are_as_even_as_they_can_be(costs, devices):
    if devices > len(costs):
        refuses("each must have one", ranges_of, costs, devices)
        return
    found = ranges_of(costs, devices)
    assert len(found) == devices
    assert [k for first, last in found for k in range(first, last)] == list(range(len(costs)))
    worst = max(sum(costs[first:last]) for first, last in found)
    assert worst <= best(tuple(costs), devices)


def best(costs, devices):
    """The least most expensive range, by trying all of them (dynamic programming)."""
    table = [[0.0 if k == 0 else float("inf") for k in range(len(costs) + 1)]]
    for _ in range(devices):
        row = [
            min((max(table[-1][j], sum(costs[j:k])) for j in range(k)), default=float("inf"))
            for k in range(len(costs) + 1)
        ]
        table.append(row)
    return table[devices][len(costs)]


def test_stages_are_short_where_rows_leave_and_hold_so_many_bytes():
    assert [last - first for first, last in stages_of([1] * 40, leaving=True)] == [1] * 8 + [2] * 4 + [4] * 4 + [8]
    assert stages_of([1] * 40, leaving=False) == ((0, 40),)
    assert stages_of([3, 3, 9, 1], leaving=False, most_bytes=6) == ((0, 2), (2, 3), (3, 4))


BAD = {
    "devices": (("resident", SIZES, MOST_DIVISIONS + 1), {}, "1,048,577 devices"),
    "pipeline": (("pipeline", SIZES, 4), {"pipeline": 3}, "4 devices cannot be shared out to pipelines of 3"),
    "one buffer": (("stream", SIZES), {"buffers": 1}, "1 buffer of weights: at least 2"),
    "buffers that stay": (("resident", SIZES), {"buffers": 3}, "3 buffers of weights with the schedule resident"),
    "long pipeline": (("pipeline", SIZES, 50), {}, "50 devices in a pipeline of 40 stages"),
}


@pytest.mark.parametrize(("arguments", "options", "sentence"), BAD.values(), ids=BAD)
def test_what_cannot_be_cut_is_one_sentence(arguments, options, sentence):
    refuses(sentence, cut, *arguments, **options)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"stages": ((0, 2), (3, 4))}, "stages .* without gaps over all layers"),
        ({"ranges": ((0, 1),)}, "ranges .* over all stages"),
        ({"batch": 0}, "in batches of 0"),
        ({"buffers": 1}, "1 buffers 2 or more"),
        ({"schedule": "x"}, "schedule 'x'"),
    ],
)
def test_a_decomposition_is_sound(change, sentence):
    sound = {"schedule": "stream", "inputs": 9, "batch": 4, "stages": ((0, 2), (2, 4)), "ranges": ((0, 2),)}
    assert Decomposition(**sound).batches == 3
    refuses(sentence, Decomposition, **{**sound, **change})
