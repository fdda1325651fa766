"""Times of decompositions on paper: cases that can be computed by hand, and what must hold of any."""

import numpy as np
import pytest
from graphs import decompositions
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from spdnn.engines.costs.costs import FREE, DeviceCosts, MessageCosts, Work
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.graph import Kind
from spdnn.engines.taskgraph.simulation import TaskCosts, simulate
from tests.engines.taskgraph.graph_check import wrong


def work(inputs=20, layers=3, rows=None, weight=10.0, row=4.0, **changes):
    rows = np.full(layers, float(inputs)) if rows is None else np.array(rows, float)
    edges, features, weights = (np.full(layers, value) for value in (1.0, row, weight))
    return Work(inputs, edges, rows, rows, features, weights, 1.0, **changes)


def whole(stages=3, batches=2, batch=10, schedule="stream", **settings):
    """A decomposition of one layer a stage, batches of ten inputs."""
    settings = {"ranges": ((0, stages),), **settings}
    return Decomposition(schedule, batches * batch, batch, tuple((k, k + 1) for k in range(stages)), **settings)


def costs(copy=None, messages=FREE, what=None, **settings):
    """A row through a layer takes a second, so ten rows ten; copies take weight / `copy` seconds."""
    device = settings.pop("device", {})
    return TaskCosts(what or work(), DeviceCosts((1.0,), copy_bytes_per_second=copy, **device), messages, **settings)


def spans(found, kind):
    return [(one.device, one.batch, one.first, one.begin, one.end) for one in found.timeline if one.kind == kind]


def test_copies_go_on_while_layers_are_computed():
    """Two batches through four layers, two buffers: a layer takes 10 s, its copy 4 s; only the first one is waited
    for, and each later one begins when its buffer is free."""
    found = simulate(whole(stages=4, buffers=2), costs(copy=2.5, what=work(layers=4)))
    assert found.seconds == 4 + 8 * 10
    assert [(begin, end) for *_, begin, end in spans(found, Kind.LAYER)] == [
        (4 + 10 * k, 14 + 10 * k) for k in range(8)
    ]
    assert [begin for *_, begin, _ in spans(found, Kind.COPY)] == [0, 4, 14, 24, 34, 44, 54, 64]
    assert found.parts == {"layer": 80, "copy-weights": 4}
    assert found.bound == "layer"
    assert found.busy == {(0, "compute"): 80 / 84, (0, "copy-weights"): 32 / 84}


def test_a_stage_that_shares_its_buffer_with_the_last_one_waits_for_it():
    """Of three stages, the first and the last have one buffer: the second batch waits for its first weights, and finds
    those of the middle stage."""
    found = simulate(whole(stages=3, buffers=2), costs(copy=2.5))
    assert found.seconds == 4 + 30 + 4 + 30
    assert [first for _, _, first, _, _ in spans(found, Kind.COPY)] == [0, 1, 2, 0, 2]


def test_copies_bind_where_they_take_longer():
    """A copy takes 25 s: the run is eight copies, one after the other, and the last layer."""
    found = simulate(whole(stages=4, buffers=2), costs(copy=0.4, what=work(layers=4)))
    assert found.seconds == 8 * 25 + 10
    assert found.bound == "copy-weights"


def test_weights_that_stay_are_there():
    found = simulate(whole(schedule="resident"), costs(copy=0.4))
    assert found.seconds == 60
    assert spans(found, Kind.COPY) == []


def test_a_pipeline_fills_and_drains():
    """Three batches through two devices of one layer and two: 10 s, then 20 s each; moves take a second."""
    d = whole(batches=3, schedule="pipeline", ranges=((0, 1), (1, 3)), slots=2)
    found = simulate(d, costs(messages=MessageCosts(1.0, float("inf")), what=work(30)))
    assert found.seconds == 10 + 1 + 3 * 20
    assert [(begin, end) for *_, begin, end in spans(found, Kind.MOVE)] == [(10, 11), (20, 21), (31, 32)]
    assert found.parts == {"layer": 70, "move": 1}


def test_a_place_is_waited_for():
    """The second device has one slot, so the second batch moves when the first is through, and the first device keeps
    it until then."""
    d = whole(batches=3, schedule="pipeline", ranges=((0, 1), (1, 3)))
    found = simulate(d, costs(messages=MessageCosts(1.0, float("inf")), what=work(30)))
    assert [begin for *_, begin, _ in spans(found, Kind.MOVE)] == [10, 31, 52]
    assert found.seconds == 52 + 1 + 20


def test_drawn_batches_go_to_whoever_is_through():
    """The first batch takes 30 s and each of seven others 10 s: the device without it draws five."""
    shares = np.zeros((8, 3))
    shares[0] = 1
    uneven = costs(what=work(80, rows=[80, 10, 10]), row_shares=lambda batches: shares)
    found = simulate(whole(batches=8, groups=2, drawn=True, schedule="graph"), uneven)
    assert list(found.groups.values()).count(1) == 5
    assert found.seconds == 50
    assert simulate(whole(batches=8, groups=2), uneven).seconds == 30 + 3 * 10


def test_devices_share_the_cores():
    """Rates hold for two threads on two cores. Two devices of one thread are each half as fast; of two threads, too,
    while both are busy. Copies take a core."""
    d, what = whole(groups=2, schedule="resident"), {"device": {"cores": 2, "threads": 2}}
    assert simulate(d, costs(**what)).seconds == 30
    for threads in (1, 2):
        assert simulate(d, costs(**what, threads=threads), cores=2).seconds == pytest.approx(60)
    four = whole(batches=4, batch=5, groups=4, schedule="resident")
    assert simulate(four, costs(**what, threads=1), cores=2).seconds == pytest.approx(60)
    one = whole(batches=1, groups=2, schedule="resident")
    assert simulate(one, costs(**what, threads=1, what=work(10)), cores=2).seconds == pytest.approx(60)
    assert simulate(one, costs(**what, threads=2, what=work(10)), cores=2).seconds == pytest.approx(30)


def test_threads_that_wait_for_each_other_are_worth_less():
    """Two threads took 10 s for what one does in 16 s, not in 20 s: a quarter of the time of one is added by the other.
    Two devices of one thread need no more than that, and one alone is faster than half."""
    what = {"device": {"cores": 2, "threads": 2}, "waiting": 0.25}
    assert simulate(whole(groups=1, batches=1), costs(**what, what=work(10)), cores=2).seconds == pytest.approx(30)
    both = simulate(whole(groups=2, schedule="resident"), costs(**what, threads=1), cores=2)
    assert both.seconds == pytest.approx(60 / 1.25)
    alone = simulate(whole(batches=1, groups=2), costs(**what, threads=1, what=work(10)), cores=2)
    assert alone.seconds == pytest.approx(60 / 1.25)


def test_copies_take_a_core():
    """Two threads compute on two cores, and a copy of 15 s wants a third: while it goes on, all run at two thirds."""
    d = whole(batches=1, stages=2, buffers=2)
    what = work(10, 2, weight=15.0)
    found = simulate(d, costs(copy=1.0, what=what, device={"cores": 2, "threads": 2}), cores=2)
    # 15 s alone for the first copy; then a layer of 10 s beside a copy of 15 s: the layer ends after 15 s at 2/3, with
    # 5 s of the copy left, which goes on alone; then the last layer.
    assert [(begin, end) for *_, begin, end in spans(found, Kind.LAYER)] == [(15, 30), (35, 45)]


def test_rows_are_those_expected_in_whole_tiles():
    what = work(20, 3, rows=[20, 8, 2])
    found = simulate(whole(), costs(what=what, device={"tiles": (1, 4)}))
    # Half of the rows each: 10, 4 and 1 of them, in tiles of 4, or of 1 where that is enough.
    assert [end - begin for *_, begin, end in spans(found, Kind.LAYER)] == [12, 4, 1, 12, 4, 1]
    shares = np.array([[0.5, 0.75, 1.0], [0.5, 0.25, 0.0]])
    uneven = simulate(whole(), costs(what=what, row_shares=lambda batches: shares))
    assert [end - begin for *_, begin, end in spans(uneven, Kind.LAYER)] == [10, 6, 2, 10, 2, 0]


def test_merged_rows_grow_less_than_their_inputs():
    alive = np.full(3, 1000.0)
    what = Work(1000, np.ones(3), np.array([1000.0, 500.0, 2.0]), alive, np.ones(3), np.ones(3), 1.0, merged=True)
    d = whole(batches=2, batch=500)
    rows = TaskCosts(what, DeviceCosts((1.0,))).rows(d)
    assert rows[0].tolist() == rows[1].tolist() == what.of(500).rows.tolist()
    assert rows[0, 2] == pytest.approx(2, rel=1e-6)


def test_fixed_costs_are_paid_by_whom_they_belong_to():
    """A layer's for each layer, a task's for each task, an input's once, a run's once."""
    device = {"seconds_per_layer": 2.0, "seconds_per_input": 0.5, "seconds_per_run": 7.0}
    d = Decomposition("resident", 20, 10, ((0, 2), (2, 3)), ((0, 2),))
    found = simulate(d, costs(device=device, seconds_per_task=3.0))
    assert found.seconds == 7 + 60 + 2 * (3 * 2 + 2 * 3) + 20 * 0.5
    assert found.parts["fixed costs of the run"] == 7


@settings(deadline=None, max_examples=30)
@given(decompositions(), st.sampled_from([None, 1, 2, 8]), st.integers(0, 99))
def test_whatever_is_simulated(drawn, cores, seed):
    """Every task once; a lane never overlaps itself; nothing begins before what it waits for; and the time is neither
    below the longest chain of tasks nor below the busiest lane."""
    decomposition, sizes, _ = drawn
    random = np.random.default_rng(seed)
    rows = sizes.inputs * np.cumprod(random.uniform(0.5, 1, sizes.layers))
    what = Work(sizes.inputs, random.uniform(1, 9, sizes.layers), rows, rows, np.ones(sizes.layers),
                np.array(sizes.weights, float), 0.0)  # fmt: skip
    tiles, rate = (4, sizes.tile), random.uniform(0.01, 10)
    device = DeviceCosts((1.0,), tiles=tiles, copy_bytes_per_second=rate, threads=2, cores=2)
    told = TaskCosts(what, device, MessageCosts(0.1, 1.0), 0.5)
    found = simulate(decomposition, told, cores)
    tasks = found.tasks
    assert wrong(decomposition, tasks) == []
    assert len(found.timeline) == len([task for task in tasks if task.kind != Kind.COPY or task.batch is not None])
    lanes = {}
    for one in found.timeline:
        lanes.setdefault((one.device, one.lane), []).append(one)
    close = 1 + 1e-9
    for taken in lanes.values():
        assert all(one.end <= two.begin * close for one, two in zip(taken, taken[1:], strict=False))
    assert found.seconds * close >= max(sum(one.end - one.begin for one in taken) for taken in lanes.values())
    spent = {(one.device, one.kind, one.batch, one.first): one for one in found.timeline}
    alone = simulate(decomposition, told)  # nothing slowed: what each task takes by itself
    own = {(one.device, one.kind, one.batch, one.first): one.end - one.begin for one in alone.timeline}
    chain = {}
    for task in tasks:
        key = task.lane[0], task.kind.value, task.batch, decomposition.stages[task.stage][0]
        chain[task.number] = own.get(key, 0.0) + max((chain[number] for number in task.after), default=0.0)
        for before in (tasks[number] for number in task.after):
            earlier = spent.get(
                (before.lane[0], before.kind.value, before.batch, decomposition.stages[before.stage][0])
            )
            assert earlier is None or key not in spent or earlier.end <= spent[key].begin * close
    if found.groups == alone.groups and cores in (None, 8):
        assert found.seconds * close >= max(chain.values())
    assert sum(found.parts.values()) == pytest.approx(found.seconds)
    assert all(0 <= share <= close for share in found.busy.values())


def test_sizes_are_those_of_the_work():
    sizes = work(weight=10.5).sizes(DeviceCosts((1.0,), tiles=(4, 16)))
    assert (sizes.inputs, sizes.tile, sizes.weights, sizes.row_bytes, sizes.held_bytes) == (20, 16, (11,) * 3, 8, 20)


def test_costs_of_something_else_are_one_sentence():
    refuses("costs of 20 inputs through 4 layers", simulate, whole(), costs(what=work(layers=4)))
