"""What a run record says of costs: of a device and its work, for the cost model; of tasks, for a simulation.

What a record does not have, such as the rate of copies, is taken from its machine, or given. Errors of the cost model
are against records of several ranks.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.engines.costs.costs import FREE, DeviceCosts, MessageCosts, Work
from spdnn.engines.costs.official import official_shares
from spdnn.engines.costs.prediction import predict
from spdnn.engines.memory import EDGE_BYTES
from spdnn.engines.taskgraph.graph import Kind
from spdnn.engines.taskgraph.simulation import TaskCosts, simulate
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.schedules import decomposition_of, notes_of, timeline_of

TILES = (16, 32)  # rows that the engine `cpu` puts in a tile when few are left; fewer rows cost as many
MOST_TASKS = 50_000  # that are simulated, batches x stages, or slots: some seconds
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
    edges, rows, seconds, comparisons = _read_log(record, alive)
    total = statistics.median(record.inference_seconds)
    if seconds is None:
        seconds = total * edges * rows / max(1.0, (edges * rows).sum())
    elif seconds.sum() > total:
        seconds = seconds * total / seconds.sum()
    # What the passes do not explain (closing gaps, searches) belongs to the inputs, so that the sum is the run's time.
    tile = record.engine.notes.tile
    tiles = (*(size for size in TILES if size < tile), tile) if tile else (1,)
    device = DeviceCosts(
        (0.0,), (total - seconds.sum()) / inputs, 0.0, 0.0, tiles,
        record.memory_limit_bytes or record.environment.memory_bytes,
        cores=record.environment.cores, threads=record.threads,
    )  # fmt: skip
    # Rate of a layer: its seconds over the edges of whole tiles, as the model multiplies them again.
    computed = device.lanes(rows) * edges
    rates = np.divide(seconds, computed, out=np.zeros(layers), where=computed > 0)
    share = (number("neurons", "neurons_left") or 1) / (number("neurons", "neurons") or 1)
    work = Work(
        inputs, edges, rows, alive, np.full(layers, 4.0 * problem.neurons * share),
        np.full(layers, EDGE_BYTES * (number("neurons", "edges_left") or problem.edges) / layers),
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


def expected(base: RunRecord, record: RunRecord) -> tuple[float, str]:
    """(seconds, what takes most of them) of a record, as the model predicts them from one of one rank.

    Of a run of the task graph, the simulator does; of any other, the model of threads and ranks.

    Raises:
        InputError: a record of other work, notes that the model cannot read, or more tasks than MOST_TASKS.
    """
    a, b = (
        (one.problem.network_identity, one.problem.layers, one.engine.name, one.reductions.on) for one in (base, record)
    )
    if a != b:
        raise InputError(f"{record.case}: another network, engine or list of reductions than {base.case}")
    if record.ranks == 1 and (cut := decomposition_of(record)):
        tasks = max(cut.batches * len(cut.stages), cut.slots)
        if tasks > MOST_TASKS:
            raise InputError(f"{record.case}: {tasks:,} tasks are too many to simulate; at most {MOST_TASKS:,}")
        costs, cores = costs_of(base, cut.devices)
        simulation = simulate(cut, costs, cores)
        return simulation.seconds, simulation.bound
    device, work = from_record(base)
    work, options = work.of(record.problem.input_count), {"threads": record.threads}
    if record.ranks > 1:
        several, per_node = record.distribution, math.ceil(record.ranks / record.distribution.nodes)
        options |= {
            "messages": MessageCosts(several.message_latency_seconds, several.message_bytes_per_second),
            "ranks": record.ranks, "partition": several.partition, "per_node": per_node,
            "shares": known_shares(record, work, record.ranks, several.partition, per_node),
        }  # fmt: skip
    prediction = predict(work, device, **options)
    return prediction.seconds, prediction.bound


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


def costs_of(
    record: RunRecord,
    devices: int = 1,
    messages: MessageCosts | None = None,
    copy_bytes_per_second: float | None = None,
) -> tuple[TaskCosts, int | None]:
    """(costs of tasks, cores that the devices share) as a record of one rank and one device tells them.

    A record of a GPU tells of one device, and others like it share nothing. One of a processor tells of all its
    threads, which the devices of a decomposition share out: each has a part of them, and at least one.

    Args:
        devices: of the decompositions to simulate.
        messages: between devices; None: parts of a machine's memory copy rows as they copy weights, GPUs for nothing.
        copy_bytes_per_second: of weights; None: half of what the machine copied (a copy reads and writes).

    Raises:
        InputError: a record of several ranks or devices, of a run that did nothing, or with notes that cannot be read.
    """
    devices_of_record = notes_of(record).devices
    if devices_of_record not in (None, 1):
        raise InputError(f"{record.case}: {devices_of_record} devices; the model is calibrated by a record of one")
    # Rates of layers from the record, and of single tasks where it has their timeline.
    device, work = from_record(record)
    device, tasks = _stage_rates(device, work, record)
    if copy_bytes_per_second is None and record.machine:
        copy_bytes_per_second = record.machine.copy_bytes_per_second / 2
    device = replace(device, copy_bytes_per_second=copy_bytes_per_second)
    on_gpu = bool(record.environment.gpu)
    if messages is None:
        messages = FREE if on_gpu or not copy_bytes_per_second else MessageCosts(0.0, copy_bytes_per_second)
    order = lambda batches: known_shares(record, work, batches, "static", batches)  # noqa: E731
    threads = None if on_gpu else max(1, record.threads // devices)
    # Waiting: threads that computed all the time would have used as many processor seconds as there are of them in each
    # second. Amdahl's law takes what is missing as spent while one thread computed and the others waited.
    waiting, used = 0.0, notes_of(record).processor_seconds
    if not on_gpu and used is not None and used > 0 and 1 < record.threads <= record.environment.cores:
        whole = min(record.inference_seconds) * record.threads
        waiting = max(0.0, whole / used - 1) / (record.threads - 1)
    costs = TaskCosts(work, device, messages, threads=threads, waiting=waiting, row_shares=order, **tasks)
    return costs, None if on_gpu else device.cores


def _stage_rates(device: DeviceCosts, work: Work, record: RunRecord) -> tuple[DeviceCosts, dict]:
    """(the device with rates of its own for each stage, what else TaskCosts takes), where the record has the time of
    every task: what passes between two of them belongs to each task of layers, and what gaps cost to close to the rows
    that moved. All in all it is the time of the run still.
    """
    notes, timeline = notes_of(record), timeline_of(record)
    if timeline is None or len(timeline) != notes.timeline_tasks or notes.batches != 1:
        return device, {}
    # A task of several layers gives each of them time by the edges that its rows go through there.
    spent, computed = np.zeros(work.layers), device.lanes(work.rows) * work.edges
    total = float((computed * device.rates(work.layers)).sum()) + work.inputs * device.seconds_per_input
    tasks, closing, explained, starts = 0, 0.0, 0.0, set()
    for span in timeline:
        seconds = span.end - span.begin
        explained += seconds
        if span.kind == Kind.LAYER:
            part = computed[span.first : span.last]
            spent[span.first : span.last] += seconds * part / part.sum() if part.sum() else 0.0
            tasks += 1
            starts.add(span.first)
        elif span.kind == Kind.COMPACT:
            closing += seconds
    # The clock of the tasks is of one repeat, the time of the run the median of several.
    factor = min(1.0, total / explained) if explained else 1.0
    rates = np.divide(spent * factor, computed, out=np.zeros(work.layers), where=computed > 0)
    # What no task explains passed between tasks: it belongs to each task of layers, as a launch does.
    each = max(0.0, total - explained * factor) / max(1, tasks)
    # Closing gaps: seconds for each byte of the rows that moved; where none moved, it stays with the inputs.
    tried = TaskCosts(work, device, compact_bytes_per_second=1.0)
    moved = float(tried.compacts(work.rows)[sorted(starts)].sum())
    compact = moved / (closing * factor) if closing and moved else None
    rest = (explained - closing) * factor - float(spent.sum()) * factor + (0.0 if moved else closing * factor)
    device = replace(device, seconds_per_edge=tuple(rates.tolist()), seconds_per_input=max(0.0, rest) / work.inputs)
    return device, {"seconds_per_task": each, "compact_bytes_per_second": compact}
