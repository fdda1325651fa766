"""The cost model's device and work from a run record of one rank, and its errors against records of several ranks."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.engines.costs.costs import DeviceCosts, MessageCosts, Work
from spdnn.engines.costs.official import official_shares
from spdnn.engines.costs.prediction import Prediction, predict
from spdnn.runs.records.run_record import RunRecord

TILES = (16, 32)  # rows that the engine `cpu` puts in a tile when few are left; fewer rows cost as many
WEIGHT_BYTES = 8  # in memory, of an edge: an index and a value
LOG_TOLERANCE = 0.01  # relative: a log of passes that lacks more of the edges was cut, and is not used


def from_record(record: RunRecord) -> tuple[DeviceCosts, Work]:
    """What a run record of one rank tells of the device and the work; predicting it again gives its median time.

    Raises:
        InputError: a record of several ranks, of a run that did nothing, or with a log of passes that cannot be read.
    """
    if record.ranks != 1:
        raise InputError(f"{record.case}: {record.ranks} ranks; the model is calibrated by a record of one")
    problem, result, number = record.problem, record.result, record.reductions.number
    inputs, layers = problem.input_count, problem.layers
    if not inputs or not layers:
        raise InputError(f"{record.case}: {inputs} inputs through {layers} layers say nothing about a device")
    # The log of passes has seconds of each layer; without one, the time of the run is shared out by edges.
    alive = np.array([inputs, *result.survivors[:-1]], float)
    edges, rows, spent, comparisons = _read_log(record, alive)
    total = statistics.median(record.inference_seconds)
    if spent is None:
        spent = total * edges * rows / max(1.0, (edges * rows).sum())
    elif spent.sum() > total:
        spent = spent * total / spent.sum()
    # What the passes do not explain (closing gaps, searches) belongs to the inputs, so that the sum is the run's time.
    tile = record.engine.notes.tile
    tiles = (*(size for size in TILES if size < tile), tile) if tile else (1,)
    device = DeviceCosts(
        (0.0,), (total - spent.sum()) / inputs, 0.0, 0.0, tiles,
        record.memory_limit_bytes or record.environment.memory_bytes,
        cores=record.environment.cores, threads=record.threads,
    )  # fmt: skip
    # Rate of a layer: its seconds over the edges of whole tiles, as the model multiplies them again.
    computed = device.lanes(rows) * edges
    rates = np.divide(spent, computed, out=np.zeros(layers), where=computed > 0)
    left = (number("neurons", "neurons_left") or 1) / (number("neurons", "neurons") or 1)
    work = Work(
        inputs, edges, rows, alive, np.full(layers, 4.0 * problem.neurons * left),
        np.full(layers, WEIGHT_BYTES * (number("neurons", "edges_left") or problem.edges) / layers),
        problem.neurons / 8, bool(number("inputs", "rows_merged")), comparisons,
        "inputs" in record.reductions.requested,
    )  # fmt: skip
    return replace(device, seconds_per_edge=tuple(rates.tolist())), work


def _read_log(record: RunRecord, alive: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, int]:
    """(edges of a row, rows, seconds, passes), by layer: from the log of passes; without one, from the survivors.

    Tiles that a pass left out are taken off the edges of each of its rows. Without a log, seconds are None.
    """
    layers, computed = alive.size, record.result.edges_computed
    log: Sequence = record.engine.notes.pass_log or ()
    if not all(len(entry) == 5 and 0 <= entry[0] < entry[0] + entry[1] <= layers for entry in log):
        wrong = "the passes that its engine noted are not of first layer, layers, rows, edges and seconds"
        raise InputError(f"{record.case}: {wrong}; the model cannot be calibrated by it")
    # A pass of several layers gives each an equal part of its edges and seconds.
    lanes, edges, seconds = np.zeros((3, layers))
    for first, count, rows, gone, spent in log:
        span = slice(int(first), int(first + count))
        lanes[span] += rows
        edges[span] += gone / count
        seconds[span] += spent / count
    # A log that was cut lacks edges; then rows follow from the survivors, and edges from the total.
    if computed and abs(edges.sum() - computed) <= LOG_TOLERANCE * computed:
        return np.divide(edges, lanes, out=np.zeros(layers), where=lanes > 0), lanes, seconds, len(log)
    dead = "dead" in record.reductions.requested
    rows, share = alive if dead else np.full(layers, alive[0]), record.problem.edges / layers
    return np.full(layers, computed / max(1.0, rows.sum()) if computed else share), rows, None, layers


@dataclass(frozen=True)
class CheckedPrediction:
    """A measured record of several ranks next to its prediction from one rank.

    Attributes:
        measured_seconds: median of the record; the measured parts are means over its ranks of their medians.
        informed: predicted with each rank's measured survivors; None: rows moved between ranks, or were merged.
    """

    case: str
    predicted: Prediction
    informed: Prediction | None
    measured_seconds: float
    measured_computing_seconds: float
    measured_waiting_seconds: float
    measured_communication_seconds: float

    @property
    def error(self) -> float:
        """(predicted - measured) / measured seconds."""
        return self.predicted.seconds / self.measured_seconds - 1

    @property
    def informed_error(self) -> float | None:
        return None if self.informed is None else self.informed.seconds / self.measured_seconds - 1


def check(records: Sequence[RunRecord]) -> list[CheckedPrediction]:
    """Each record of several ranks next to its prediction from the record of one rank that did the same work.

    Of several such records, the one with most threads, for it fills the node.

    Raises:
        InputError: no record of several ranks, or one without a record of one rank to calibrate by.
    """
    single = sorted((record for record in records if record.ranks == 1), key=lambda record: record.threads)
    same = lambda record: (record.problem.network_identity, record.engine.name, sorted(record.reductions.requested))  # noqa: E731
    checked = []
    for record in (record for record in records if record.ranks > 1):
        source = next((single_rank for single_rank in reversed(single) if same(single_rank) == same(record)), None)
        if source is None:
            raise InputError(f"{record.case}: no record of one rank with the same network, engine and reductions")
        several, ranks = record.distribution, record.ranks
        device, work = from_record(source)
        work = work.of(record.problem.input_count)
        options = {"per_node": math.ceil(ranks / several.nodes), "threads": record.threads}
        messages = MessageCosts(several.message_latency_seconds, several.message_bytes_per_second)
        what = work, device, messages, ranks, several.partition
        shares = known_shares(record, work, ranks, several.partition, options["per_node"])
        predicted = predict(*what, **options, shares=shares)
        # Informed: with the rows that each rank really had, the error that is left is that of the rates.
        informed = None
        if not (several.exchanges or several.rows_merged_across_ranks or work.merged or ranks % options["per_node"]):
            alive = np.array([[rank.inputs, *rank.survivors[:-1]] for rank in several.per_rank], float)
            informed = predict(*what, **options, shares=alive / np.maximum(1.0, alive.sum(axis=0)))
        # Measured parts: medians over the repeats of each rank, then means over the ranks, as the prediction has them.
        inference, waiting, communication = (
            statistics.mean(statistics.median(getattr(rank, f"{name}_seconds")) for rank in several.per_rank)
            for name in ("inference", "waiting", "communication")
        )
        seconds, computing = statistics.median(record.inference_seconds), inference - waiting - communication
        checked.append(CheckedPrediction(record.case, predicted, informed, seconds, computing, waiting, communication))
    if not checked:
        raise InputError("no record of several ranks to check the model against")
    return checked


def known_shares(record: RunRecord, work: Work, ranks: int, partition: str, per_node: int = 1) -> np.ndarray | None:
    """Each rank's part of the rows, as `predict` takes them, where the inputs have their official order.

    None: not all official inputs in their order, rows that merged, or a node with fewer ranks than others.
    """
    problem = record.problem
    official = problem.official is not None and work.inputs == challenge.INPUTS and not work.merged
    same_inputs = problem.inputs_sha256 == challenge.INPUT_SHA256.get(problem.neurons)
    if not (official and same_inputs) or ranks == 1 or ranks % min(ranks, per_node):
        return None
    return official_shares(work, problem.neurons, ranks, partition, distinct=per_node == 1)
