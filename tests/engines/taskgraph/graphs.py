"""Decompositions of all kinds, drawn by hypothesis."""

import random
from dataclasses import replace

from hypothesis import strategies as st

from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.decomposition import cut as cut_request
from spdnn.engines.taskgraph.execution import Execution, run_serially
from spdnn.engines.taskgraph.settings import RESIDENT, SCHEDULES, TaskgraphSettings


def cut(schedule, sizes, devices=1, *, pipeline=None, batches=None, buffers=None, **options):
    """The decomposition of a request with these numbers, whose batches do not join."""
    request = TaskgraphSettings(schedule, devices, pipeline, batches, buffers, join=False)
    return cut_request(request, sizes, **options)


@st.composite
def sizes(draw):
    weights = draw(st.lists(st.integers(1, 100), min_size=1, max_size=12))
    tile = draw(st.sampled_from([1, 16, 32]))
    rest = {"task_bytes": draw(st.sampled_from([0, 0, 2])), "stay_bytes": draw(st.none() | st.integers(0, 30))}
    row, held = draw(st.integers(1, 9)), draw(st.integers(0, 50))
    return RunSizes(draw(st.integers(1, 400)), tile, tuple(weights), row, held, **rest)


@st.composite
def decompositions(draw, most_devices=4):
    """(decomposition, sizes, memory): memory is None, or a promise that the decomposition was cut for."""
    what, schedule = draw(sizes()), draw(st.sampled_from(SCHEDULES))
    groups, pipeline = draw(st.integers(1, most_devices)), draw(st.integers(1, min(3, most_devices, what.layers)))
    # Stages of single layers, so that there are enough of them for any pipeline.
    options = {"pipeline": pipeline, "leaving": draw(st.booleans()), "batches": draw(st.none() | st.integers(1, 9))}
    options["stage_bytes"] = draw(st.sampled_from([0, 60, 1e9])) if pipeline == 1 else 0
    options["buffers"] = None if schedule == RESIDENT else draw(st.none() | st.integers(2, 4))
    memory = None
    if draw(st.booleans()):
        options["batches"] = None
        least = what.held_bytes + sum(what.weights) + 2 * what.tile * what.row_bytes
        least += (what.stay_bytes or 0) + 3 * what.task_bytes * what.layers * what.inputs
        memory = draw(st.integers(least, 3 * least))
    found = cut(schedule, what, groups * pipeline, memory=memory, **options)
    if memory is None and pipeline == 1 and len(found.stages) > 1 and draw(st.booleans()):
        found = replace(found, joined=draw(st.integers(1, len(found.stages) - 1)))
    return found, what, memory


def executed(decomposition, seed):
    """(the graph, the tasks in the order in which they ran), in some order, with some rows left of each batch."""
    choice, execution, ran = random.Random(seed), Execution(decomposition), []

    def work(task):
        ran.append(task)
        return choice.randrange(1 + decomposition.batch) // choice.choice([1, 4])

    run_serially(execution, work, choice.choice)
    return execution.graph, ran
