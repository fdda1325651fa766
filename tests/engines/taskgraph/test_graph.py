"""What must hold of every task graph, and that its absence is seen."""

import threading
from dataclasses import replace

import pytest
from graphs import decompositions, executed
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn.core.errors import SpdnnError
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.execution import Execution, lanes_of, run_serially, run_threads
from spdnn.engines.taskgraph.graph import Graph, Kind
from tests.engines.taskgraph.graph_check import wrong


def whole(stages=3, batches=3, **settings):
    """A decomposition of one layer a stage."""
    settings = {"ranges": ((0, stages),), **settings}
    return Decomposition("stream", 16 * batches, 16, tuple((k, k + 1) for k in range(stages)), **settings)


@settings(max_examples=40, deadline=None)
@given(decompositions(), st.integers(0, 99))
def test_whatever_order_it_runs_in(drawn, seed):
    """Batches that are drawn, or joined, make a sound graph too, and all of it runs, in any order."""
    decomposition, _, _ = drawn
    graph, ran = executed(decomposition, seed)
    assert wrong(decomposition, graph.tasks) == []
    preloaded = sum(task.batch is None for task in graph.tasks)
    assert sorted(task.number for task in ran) == list(range(preloaded, len(graph.tasks)))
    at = {task.number: i for i, task in enumerate(ran)}
    assert all(at.get(number, -1) < at[task.number] for task in ran for number in task.after)


@settings(max_examples=40, deadline=None)
@given(decompositions(), st.randoms(use_true_random=False))
def test_a_missing_edge_is_seen(drawn, choice):
    """Every edge that no path stands for is needed."""
    decomposition, _, _ = drawn
    tasks = executed(decomposition, 1)[0].tasks
    edges = [(task, number) for task in tasks for number in task.after]
    for task, number in choice.sample(edges, min(6, len(edges))):
        less = [*tasks]
        less[task.number] = replace(task, after=tuple(n for n in task.after if n != number))
        if not reaches(less, number, task.number):
            assert wrong(decomposition, less), (task, number)


def reaches(tasks, earlier, later):
    seen, todo = set(), [later]
    while todo:
        number = todo.pop()
        if number == earlier:
            return True
        if number not in seen and number > earlier:
            seen.add(number)
            todo += tasks[number].after
    return False


DAMAGE = {
    "a layer twice": (lambda tasks: append(tasks, Kind.LAYER), "not through each once"),
    "collected twice": (lambda tasks: append(tasks, Kind.COLLECT), "not collected once"),
    "another buffer": (lambda tasks: change(tasks, Kind.LAYER, buffer=1), "in buffer 1"),
    "another slot": (lambda tasks: change(tasks, Kind.COMPACT, slot=1), "is not where"),
    "a cycle": (lambda tasks: change(tasks, Kind.LAYER, after=(10**6,)), "not before it"),
    "a batch less": (lambda tasks: [task for task in tasks if task.batch != 2], "there are 3"),
}


def append(tasks, kind):
    last = next(task for task in reversed(tasks) if task.kind == kind)
    return [*tasks, replace(last, number=len(tasks), after=(len(tasks) - 1,))]


def change(tasks, kind, **attributes):
    one = next(task for task in tasks if task.kind == kind)
    return [replace(task, **attributes) if task is one else task for task in tasks]


@pytest.mark.parametrize(("damage", "sentence"), DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told(damage, sentence):
    decomposition = whole(buffers=2)
    tasks = Graph(decomposition).tasks
    assert wrong(decomposition, tasks) == []
    told = wrong(decomposition, damage(tasks))
    assert any(sentence in one for one in told), told


def test_two_batches_in_one_place_are_seen():
    """Were there two slots, nothing would keep two batches of one device apart; with one, something must."""
    tasks = Graph(whole(slots=2, ranges=((0, 1), (1, 3)))).tasks
    squeezed = [replace(task, slot=task.slot and 0, target=task.target and (task.target[0], 0)) for task in tasks]
    told = wrong(whole(slots=1, ranges=((0, 1), (1, 3))), squeezed)
    assert any("share slot 0" in one for one in told)


def test_weights_are_copied_for_every_batch_where_they_do_not_stay():
    kinds = lambda decomposition: [task.kind for task in Graph(decomposition).tasks].count(Kind.COPY)  # noqa: E731
    assert kinds(whole(stages=5)) == 5
    assert kinds(whole(stages=5, groups=2)) == 10
    assert kinds(whole(stages=5, buffers=2)) == 15
    assert kinds(whole(stages=5, buffers=5)) == 5  # nothing is filled twice


def test_copies_run_ahead_as_far_as_there_are_buffers():
    """The copy for stage k waits for the layers of stage k - 2 alone, also across batches."""
    tasks = Graph(whole(stages=4, batches=2, buffers=2)).tasks
    layers = {(task.batch, task.stage): task.number for task in tasks if task.kind == Kind.LAYER}
    copies = {(task.batch, task.stage): task.after for task in tasks if task.kind == Kind.COPY}
    assert copies[0, 0] == copies[0, 1] == ()
    assert copies[0, 3] == (layers[0, 1],)
    assert copies[1, 0] == (layers[0, 2],)


def test_batches_with_few_rows_left_go_on_as_one():
    """Batches of 16: 3 and 5 rows wait, 9 are more than half and go on alone, 8 fit; then all that wait."""
    decomposition = whole(stages=4, batches=4, joined=2)
    left, execution = {0: 3, 1: 5, 2: 9, 3: 8}, Execution(decomposition)
    run_serially(execution, lambda task: left.get(task.batch), lambda ready: ready[0])
    graph = execution.graph
    assert graph.joined == {4: [0, 1, 3]}
    ends = {task.batch: (task.kind, task.stage) for task in graph.tasks if task.batch is not None}
    assert ends == {0: (Kind.PARK, 1), 1: (Kind.PARK, 1), 2: (Kind.COLLECT, 3), 3: (Kind.PARK, 1), 4: (Kind.COLLECT, 3)}
    assert wrong(decomposition, graph.tasks) == []
    join = next(task for task in graph.tasks if task.kind == Kind.JOIN)
    parked = [task.number for task in graph.tasks if task.kind == Kind.PARK]
    assert set(parked) <= set(join.after)
    for number in (0, 2):  # the last is what frees the slot, and implied by no other
        less = replace(join, after=tuple(n for n in join.after if n != parked[number]))
        told = wrong(decomposition, [less if task is join else task for task in graph.tasks])
        assert bool(told) == (number == 2), told
    away = [task for task in graph.tasks if task.number < join.number]
    assert any("joined to nothing" in one for one in wrong(decomposition, away))


def test_lanes_whose_threads_cannot_start_end_the_run(monkeypatch):
    """One sentence, and no thread is left that could take a task."""
    decomposition, start, begun = whole(buffers=2), threading.Thread.start, []

    def scarce(thread):
        if begun:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    lanes = [*lanes_of(decomposition), (7, "compute")]
    with pytest.raises(SpdnnError, match="3 threads for the lanes of the task graph cannot be started: can't start"):
        run_threads(Execution(decomposition), lambda task: None, lanes, lambda: None)
    assert not begun[0].is_alive()


def test_batches_are_drawn_by_whoever_is_through():
    """One of two devices does nothing but its first batch: the other takes all the rest."""
    decomposition = whole(stages=2, batches=6, groups=2, drawn=True)
    execution = Execution(decomposition)
    run_serially(execution, lambda task: None, lambda ready: min(ready, key=lambda task: (task.device, task.number)))
    assert execution.graph.groups == {0: 0, 1: 1, 2: 0, 3: 0, 4: 0, 5: 0}
    assert wrong(decomposition, execution.graph.tasks) == []
