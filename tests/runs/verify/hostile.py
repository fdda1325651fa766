"""Engines that are wrong, each in its own way: what a verification and a record must refuse.

Each is a function that spoils the engine `cpu`, or another that it names, through a `patch` of monkeypatch's form. The
network ends in layers that change nothing, so that a layer may be left out without a wrong output.
"""

from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from spdnn.core.network import IDENTITY, Activation, Layer, MemoryNetwork, from_matrices
from spdnn.core.result import LayerWork
from spdnn.engines import execute
from spdnn.engines.cpu import schedule
from spdnn.engines.cpu.batch import BatchKernels
from spdnn.engines.cpu.rows import TiledRows
from spdnn.engines.taskgraph.cpu.run import CpuGraphRun

WIDTH, COUNT, FIRST, SAME = 48, 200, 3, 4  # layers that compute, and those after them that change nothing


def problem() -> tuple[MemoryNetwork, np.ndarray]:
    """A network with a bias for each neuron and a clip, and inputs of which some die."""
    rng = np.random.default_rng(5)
    matrices = [sp.random_array((WIDTH, WIDTH), density=0.3, rng=rng, dtype=np.float32) for _ in range(FIRST)]
    biases = [-0.2 - 0.2 * rng.random(WIDTH) for _ in matrices]
    same = [sp.eye_array(WIDTH, dtype=np.float32, format="csr")] * SAME
    network = from_matrices([*matrices, *same], [*biases, *[0.0] * SAME], last="relu", clip=3.0)
    x = (rng.random((COUNT, WIDTH)) < np.linspace(0, 0.9, COUNT)[:, None]).astype(np.float32)
    return network, x


def _last(patch, change) -> None:
    """Change what a batch leaves."""
    finish = TiledRows.finish
    patch.setattr(TiledRows, "finish", lambda self: change(finish(self)))


def _result(patch, change) -> None:
    """Change the result of a run."""
    result = BatchKernels.result

    def spoiled(*arguments):
        found = result(*arguments)
        change(found)
        return found

    patch.setattr(BatchKernels, "result", spoiled)


def _layers(patch, change) -> None:
    """Compute with other layers."""
    bind = BatchKernels.bind
    patch.setattr(BatchKernels, "bind", lambda self, k, layer=None: bind(self, k, change(k, self.network.layer(k))))


def _skip(rows, last: int, stop: int, through) -> None:
    """Take rows through the layers up to `stop`, and say that they went through all."""
    through(min(last, stop))
    if stop < last:
        rows.compact(False)
        rows.counters.survivors[stop:last] += rows.left
        rows.layer = last


def rows_lost(patch):
    def finish(self, right=TiledRows.finish):
        self.indices = self.indices[:0]
        return right(self)

    patch.setattr(TiledRows, "finish", finish)


def one_row_lost(patch):
    _last(patch, lambda last: last._replace(alive=last.alive[1:], row_of=last.row_of[1:]))


def a_row_invented(patch):
    def change(last):
        dead = np.setdiff1d(np.arange(last.alive[-1]), last.alive)[:1]
        alive, row_of = np.append(last.alive, dead), np.append(last.row_of, last.row_of[:1])
        order = np.argsort(alive)
        return last._replace(alive=alive[order], row_of=row_of[order])

    _last(patch, change)


def rows_swapped(patch):
    _last(patch, lambda last: last._replace(row_of=last.row_of[::-1].copy()))


def values_are_no_numbers(patch):
    def change(last):
        for array in (*last.statistics[:4], last.values):
            array[...] = np.nan
        return last

    _last(patch, change)


def values_in_half_precision(patch):
    def change(last):
        last.values[...] = last.values.astype(np.float16)
        return last

    _last(patch, change)


def values_in_other_places(patch):
    _last(patch, lambda last: last._replace(values=np.ascontiguousarray(last.values[:, ::-1])))


def unequal_rows_merged(patch):
    patch.setattr(schedule, "SEARCH", 0)
    patch.setattr(schedule, "SEARCH_ROW", 0)

    def merge(self):
        before = self.count
        self._close(np.flatnonzero(self.inputs.merge(np.where(np.arange(before) == 9, 8, np.arange(before)))))
        self.alive = self.count
        return before - self.count

    patch.setattr(TiledRows, "merge", merge)
    patch.setattr(TiledRows, "layers_to_search", lambda self, meeting=False: 0 if self.layer == 1 else 1)


def layers_skipped(patch, only=lambda rows: True):
    right = execute.advance

    def advance(rows, last, layers, *others):
        stop = FIRST if only(rows) else last
        _skip(rows, last, stop, lambda end: right(rows, end, layers, *others))

    patch.setattr(execute, "advance", advance)


def layers_skipped_in_one_batch(patch):
    batches = schedule.batches
    patch.setattr(schedule, "batches", lambda *given: (64, batches(*given)[1]))
    layers_skipped(patch, lambda rows: rows.inputs.numbers[0] >= 128)


def layers_skipped_on_one_device(patch):
    right = CpuGraphRun._layer

    def layer(self, task):
        begin, end = self.cut.stages[task.stage]
        if task.device == 0 or begin < FIRST:
            right(self, task)
            return
        rows = self._rows_of(task)
        _skip(rows, end, begin, lambda stop: None)

    patch.setattr(CpuGraphRun, "_layer", layer)


def a_pass_that_computes_no_layer(patch):
    """The kernel leaves features and masks as they are."""

    def compute(self, layers, right=TiledRows.compute):
        if self.layer < FIRST:
            right(self, layers)
            return
        span = slice(self.layer, self.layer + len(layers))
        self.counters.survivors[span] += self.left
        self.counters.rows[span] += self.count

    patch.setattr(TiledRows, "plan_pass", lambda self: 1)
    patch.setattr(TiledRows, "compute", compute)


def all_inputs_stay_active(patch):
    _result(patch, lambda found: found.survivors.__setitem__(slice(0, -1), found.inputs))


def active_inputs_rise_again(patch):
    _result(patch, lambda found: found.survivors.__setitem__(FIRST, found.survivors[FIRST] + 9))


def half_of_the_edges(patch):
    def change(found):
        found.edges_computed //= 2

    _result(patch, change)


def edges_of_another_layer(patch):
    def change(found):
        moved = int(found.counts.edges_computed[0])
        found.counts.edges_computed[:2] += -moved, moved

    _result(patch, change)


def no_counts(patch):
    def change(found):
        found.counts = None

    _result(patch, change)


def fewer_rows_counted(patch):
    _result(patch, lambda found: found.counts.rows.__setitem__(FIRST, found.counts.rows[FIRST] - 9))


def edges_that_the_network_has_not(patch):
    def change(found):
        rows, edges, computed, _ = found.counts
        found.counts = LayerWork(rows, 2 * edges, 2 * computed)
        found.edges_computed *= 2

    _result(patch, change)


def half_of_the_edges_everywhere(patch):
    def change(found):
        rows, edges, computed, _ = found.counts
        found.counts = LayerWork(rows, edges // 2, computed // 2)
        found.edges_computed = int(found.counts.edges_computed.sum())

    _result(patch, change)


def one_row_counted_in_each_layer(patch):
    _result(patch, lambda found: found.counts.rows.__setitem__(slice(None), 1))


def more_edges_computed(patch):
    def change(found):
        more = 10**6 * found.counts.edges[1]
        found.counts.edges_computed[1] += more
        found.edges_computed += int(more)

    _result(patch, change)


def other_outputs(patch):
    def change(found):
        found.outputs = 7

    _result(patch, change)


def inputs_beyond_those_there_are(patch):
    _result(patch, lambda found: found.alive.__setitem__(-1, COUNT + 5))


def values_that_are_missing(patch):
    def change(found):
        found.values = None

    _result(patch, change)


def layers_that_are_missing(patch):
    def change(found):
        found.survivors = found.survivors[:-1]

    _result(patch, change)


def another_bias(patch):
    _layers(patch, lambda k, layer: replace(layer, bias=layer.bias + (k == 1) * np.float32(1e-3)))


def another_clip(patch):
    def change(k: int, layer: Layer) -> Layer:
        return replace(layer, activation=Activation("relu", 2.9)) if k == FIRST - 1 else layer

    _layers(patch, change)


def an_edge_left_out(patch):
    def change(k: int, layer: Layer) -> Layer:
        values = np.array(np.broadcast_to(layer.values, layer.indices.shape))
        values[values.size // 2] *= k != 1
        return replace(layer, values=values)

    _layers(patch, change)


def no_activation_at_the_end(patch):
    def change(k: int, layer: Layer) -> Layer:
        return replace(layer, activation=IDENTITY) if k == FIRST - 1 else layer

    _layers(patch, change)


def dead_rows_leave_too_early(patch):
    """Before a positive bias gives them values again: of `revived`."""
    patch.setattr("spdnn.engines.base.dead_from", lambda layers, depth: 0)
    patch.setattr(schedule, "BOUNDARY", 0.0)
    patch.setattr(TiledRows, "plan_pass", lambda self: 1)


HOSTILE = [
    rows_lost, one_row_lost, a_row_invented, rows_swapped, values_are_no_numbers, values_in_half_precision,
    values_in_other_places, unequal_rows_merged, layers_skipped, layers_skipped_in_one_batch,
    layers_skipped_on_one_device, a_pass_that_computes_no_layer, all_inputs_stay_active, active_inputs_rise_again,
    half_of_the_edges, edges_of_another_layer, no_counts, fewer_rows_counted, edges_that_the_network_has_not,
    half_of_the_edges_everywhere, one_row_counted_in_each_layer, more_edges_computed, other_outputs,
    inputs_beyond_those_there_are, values_that_are_missing, layers_that_are_missing,
    another_bias, another_clip, an_edge_left_out, no_activation_at_the_end, dead_rows_leave_too_early,
]  # fmt: skip
OPTIONS = {
    layers_skipped_on_one_device: ["--engine", "taskgraph", "--devices", "2", "--reductions", "dead"],
    unequal_rows_merged: ["--reductions", "inputs"],
}
