"""What the engines on the CPU kernels tell of each layer: the rows that had to go through it, and its edges."""

import numpy as np
import pytest
from engine_cases import opened
from test_cpu import merging

from spdnn.api import infer
from spdnn.engines.cpu import schedule as plan


@pytest.fixture(scope="module")
def before():
    """Of each layer, from runs of the layers before it without reductions: (inputs alive, distinct rows of them)."""
    network, inputs = merging()
    found = []
    for depth in range(1, network.depth):
        values = infer(network.first(depth), inputs, reductions="none", values=True).all_values()
        living = values[values.any(axis=1)]
        found.append((len(living), len(np.unique(living, axis=0))))
    return found


@pytest.fixture
def searches(set_all):
    """A search pays in a small run too."""
    set_all(plan, SEARCH=0, SEARCH_ROW=0)


def told(name, reductions, batches=0):
    network, inputs = merging()
    session = opened(name, network, inputs, reductions, threads=2)
    session.least_batches = batches
    result = session.run()
    rows, edges = result.counts.rows.tolist(), result.counts.edges.tolist()
    assert edges == [network.header(k).edges for k in range(network.depth)]  # there are no identical neurons
    assert sum(row * edge for row, edge in zip(rows, edges, strict=True)) <= result.edges_computed
    return rows, [inputs.count, *result.survivors.tolist()[:-1]], session


def test_without_reductions_all_inputs_go_through_every_layer():
    rows, alive, _ = told("cpu", ())
    assert rows == [alive[0]] * 60
    assert alive[-1] < alive[0]


@pytest.mark.parametrize("name", ["cpu", "tiled", "taskgraph"])
def test_without_the_dead_those_alive_go_through(name, before):
    rows, alive, _ = told(name, ("dead",))
    assert rows == alive == [300, *(living for living, _ in before)]


@pytest.mark.parametrize(("name", "batches"), [("cpu", 0), ("cpu", 3), ("tiled", 0), ("taskgraph", 0)])
def test_rows_are_between_the_distinct_ones_and_the_inputs_alive(name, batches, before, searches):
    rows, alive, session = told(name, ("dead", "inputs"), batches)
    assert session.findings["inputs"]["rows_merged"] > 50
    assert alive == [300, *(living for living, _ in before)]
    assert all(row <= living for row, living in zip(rows, alive, strict=True))
    assert all(row >= distinct for row, (_, distinct) in zip(rows[1:], before, strict=True))
    assert rows[-1] < alive[-1] / 10
    search = next(k for k, (row, living) in enumerate(zip(rows, alive, strict=True)) if row < living)
    if not batches:  # a search finds all that are equal, and the one row of zeros that it leaves is not alive
        assert rows[search] == before[search - 1][1]


def test_rows_of_zeros_that_wait_to_leave_are_not_counted(before, set_all, searches):
    set_all(plan, BOUNDARY=10**6)  # gaps are never worth closing
    rows, alive, _ = told("tiled", ("dead", "inputs"))
    search = next(k for k, (row, living) in enumerate(zip(rows, alive, strict=True)) if row < living)
    assert rows[search] == before[search - 1][1]
