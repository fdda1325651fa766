"""The evidence of run records on the exact reductions: rows and edges of each layer, checked against the record.

A record has `layer_rows`, the rows that each layer had to compute, and `layer_edges`, the edges of each layer for one
row, identical neurons computed once. In records of version 2 the engine may have noted them: no schema checked notes,
so those that contradict the record are ignored.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from spdnn.core import challenge
from spdnn.runs.records.result import ProblemRecord
from spdnn.runs.records.run_record import RunRecord


class LayerCounts(NamedTuple):
    """Of each layer: the rows that it had to compute, and its edges for one row."""

    rows: Sequence[int]
    edges: Sequence[int]


def layer_counts(record: RunRecord) -> LayerCounts | None:
    """The counts of a run whose rows are dense, or None; what several ranks noted in version 2 is of rank 0 alone."""
    result = record.result
    if result.counted:
        return None if result.sparse_rows else LayerCounts(result.layer_rows, result.layer_edges)
    problem, rows, edges = record.problem, record.engine.notes.layer_rows or (), record.engine.notes.layer_edges or ()
    if record.ranks != 1 or not len(rows) == len(edges) == problem.layers:
        return None
    edges_left = record.reductions.number("neurons", "edges_left")
    whole = problem.edges if edges_left is None else edges_left
    most = alive(record) or [problem.input_count] * len(rows)
    fewer = all(row <= bound for row, bound in zip(rows, most, strict=True))
    is_exact = record.reductions.on <= {"dead", "inputs", "neurons"}  # else another reduction may leave fewer edges
    sound = sum(edges) == whole if is_exact else sum(edges) <= whole
    sound &= whole <= problem.edges and fewer and edges_of(rows, edges) <= record.result.edges_computed
    return LayerCounts(rows, edges) if sound else None


def edges_of(rows: Iterable[int], edges: Iterable[int]) -> int:
    """Rows x edges, over all layers."""
    return sum(row * edge for row, edge in zip(rows, edges, strict=True))


def alive(record: RunRecord) -> list[int] | None:
    """The inputs that go into each layer where those that died leave; None where the run did not let them.

    Before the layer from which rows of zeros may leave (no later bias revives them), all inputs go on.
    """
    first, layers = record.reductions.number("dead", "rows_may_leave_before_layer"), record.problem.layers
    if "dead" not in record.reductions.on or first is None or not 1 <= first <= layers + 1:
        return None
    count, survivors = record.problem.input_count, record.result.survivors
    return [count, *(count if layer < first else remaining for layer, remaining in enumerate(survivors[:-1], 2))]


def is_radixnet(problem: ProblemRecord) -> bool:
    """Whether the network is of the challenge's formula: by its source, or shown equal to an official one."""
    return problem.official is not None or problem.network.get("source") == "radixnet"


def layer_edges(records: Iterable[RunRecord]) -> list[int] | None:
    """The edges of each layer of one network before reductions, from any of its records; None where none has them.

    Layers of a RadiX-Net have 32 edges for each neuron. Where an engine's layers add up to the whole network, no
    neuron was merged.
    """
    for record in records:
        problem = record.problem
        each = challenge.NONZEROS_PER_NEURON * problem.neurons
        if is_radixnet(problem) and each * problem.layers == problem.edges:
            return [each] * problem.layers
        counts = layer_counts(record)
        if counts and sum(counts.edges) == problem.edges:
            return list(counts.edges)
    return None


class Merged(NamedTuple):
    """Neurons and edges of a network, and how many are left where identical neurons are computed once."""

    neurons: int
    neurons_left: int
    edges: int
    edges_left: int


def merged(record: RunRecord) -> Merged | None:
    """What the search for identical neurons found; None where the run has not, or what contradicts the record."""
    values = [record.reductions.number("neurons", name) for name in Merged._fields]
    if "neurons" not in record.reductions.on or not all(values):
        return None
    found = Merged(*values)
    fewer = found.neurons_left <= found.neurons and found.edges_left <= found.edges
    return found if fewer and found.edges == record.problem.edges else None
