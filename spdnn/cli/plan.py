"""`spdnn plan`: predict a run on devices that there are not; nothing is run.

Two ways to use devices: a rank for each, or with --cut a task graph that one rank cuts for its own. What layers cost
comes from a measured record or, of a cut, from rates entered by hand.
"""

import argparse
import json
import math
import statistics
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from spdnn.cli import arguments
from spdnn.cli.terminal import say, show
from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.request import reading
from spdnn.core.shown import listed, plural
from spdnn.core.table import BYTES, NUMBER, PERCENT, Column, Table
from spdnn.engines.taskgraph.settings import TaskgraphSettings
from spdnn.runs.records.cases import record_files

if TYPE_CHECKING:
    from spdnn.engines.taskgraph.simulation import TaskCosts

PLANNED_RANKS, PLANNED_INPUTS, PLANNED_DEVICES = 10**6, 10**12, 4096  # that a plan takes at most
DEVICES = (1, 10, 100, 1000, 10000)
USUAL_TILE = 32  # inputs computed together, where no record has a number
LATENCY, BANDWIDTH = 2e-6, 1e10  # of messages: seconds, bytes a second
OF_RANKS = ("partition", "per_node", "memory")  # options that a cut does not take
RATES = ("edges_per_second", "copy_bandwidth")
SETTINGS = [field.name for field in fields(TaskgraphSettings) if field.name != "devices"]
OF_CUTS = ("neurons", "layers", "network", *RATES, *SETTINGS, "svg")  # options that only a cut takes


class Planned(NamedTuple):
    """What is predicted of one way to run; None: it is not known.

    Attributes:
        what: ranks and partition, or a schedule and its settings.
        seconds: of inference; bound: what takes most of them, or why it cannot run.
        measured: seconds of a run that was made so.
        efficiency: seconds of one device / devices / seconds.
        memory_bytes: of a device, with all its inputs at once; batches: that its memory makes of them.
    """

    what: str
    inputs: int
    seconds: float | None
    bound: str | None
    measured: float | None = None
    efficiency: float | None = None
    memory_bytes: float | None = None
    batches: int | None = None

    @property
    def error(self) -> float | None:
        """(predicted - measured) / measured seconds."""
        return self.seconds / self.measured - 1 if self.seconds and self.measured else None


PLAN = Table(
    "Predicted",
    [
        Column("run on", lambda row: row.what),
        Column("inputs", lambda row: row.inputs, NUMBER),
        Column("predicted s", lambda row: row.seconds, NUMBER),
        Column("measured s", lambda row: row.measured, NUMBER),
        Column("error", lambda row: row.error, PERCENT),
        Column("efficiency", lambda row: row.efficiency, PERCENT),
        Column("memory each", lambda row: row.memory_bytes and int(row.memory_bytes), BYTES),
        Column("batches", lambda row: row.batches, NUMBER),
        Column("bound by", lambda row: row.bound),
    ],
)


def add(plan) -> None:
    plan.description = (
        "Predict the time of a run on more ranks and inputs, from a measured record of one rank. Other records are\n"
        "shown with their predictions. With --cut, show how the task graph would divide an inference among\n"
        "devices, with memory and time."
    )
    plan.add_argument(
        "records", nargs="*", metavar="RECORD", help="run record of one rank, which calibrates the prediction, and "
        "others to compare with theirs: of several ranks, more threads, schedules of the task graph"
    )  # fmt: skip
    plan.add_argument("--devices", type=_counts(PLANNED_RANKS), metavar="LIST", help="numbers of devices, joined by "
                      "commas (default: 1,10,100,1000,10000); with --cut one, for each rank (default: 1)")  # fmt: skip
    plan.add_argument("--inputs", "--count", type=_counts(PLANNED_INPUTS), metavar="LIST", help="numbers of inputs, "
                      "joined by commas; with --cut one number (default: as in the record, or 60000)")  # fmt: skip
    plan.add_argument(
        "--latency", type=arguments.above_zero, metavar="S", help="seconds that a message takes (default: 2e-6)"
    )
    plan.add_argument("--bandwidth", type=arguments.above_zero, metavar="B", help="bytes per second of a "
                      "message (default: 1e10)")  # fmt: skip
    plan.add_argument("--json", metavar="FILE", help="also write the result as JSON; with --cut, the timeline too")
    ranks = plan.add_argument_group("ranks")
    ranks.add_argument("--partition", metavar="P", help="static, cyclic or rebalanced (default: rebalanced)")
    ranks.add_argument(
        "--per-node", type=arguments.positive, metavar="N", help="number of devices on a node (default: 1)"
    )
    arguments.option(ranks, "memory", help="memory of a node in bytes (default: as in the record)")
    group = plan.add_argument_group("a cut", "batches, stages of layers, buffers of weights, devices; with --cut")
    group.add_argument("--cut", action="store_true", help="show how one rank divides the inference among its devices")
    what = group.add_mutually_exclusive_group()
    arguments.option(what, "neurons", help="neurons per layer of an official network, with --layers")
    what.add_argument(
        "--network", metavar="net.safetensors", help="model file of any network; all inputs are assumed to stay active"
    )
    arguments.option(group, "layers", help="number of layers: 120, 480 or 1920")
    for name, metavar, help in (
        ("edges-per-second", "R", "edges per second that a device computes"),
        ("copy-bandwidth", "B", "bytes of weights per second copied to a device"),
    ):
        group.add_argument(f"--{name}", type=arguments.above_zero, metavar=metavar, help=help)
    group.add_argument("--svg", metavar="FILE", help="also draw the timeline as SVG")
    arguments.add_settings(plan, without=("devices",))
    arguments.add_reading(plan)
    plan.set_defaults(run=_plan, reads=("records", "network"), writes=("json", "svg"))


def _counts(most: int):
    def counts(text: str) -> list[int]:
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            numbers = [0.0]
        if not all(1 <= number <= most and number == int(number) for number in numbers):
            raise argparse.ArgumentTypeError(
                f"{text[:40]!r} must be whole numbers from 1 to {most:,}, joined by commas, such as 1,10,1e3"
            )
        return sorted({int(number) for number in numbers})

    return counts


def _plan(args) -> None:
    from spdnn.core.files import together, write_text
    from spdnn.runs.records.files import read_all

    for name in OF_RANKS if args.cut else OF_CUTS:
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}".replace("--join", "--no-join")
            raise InputError(f"{option} is {'not for' if args.cut else 'for'} a cut; see `spdnn plan --help`")
    records = [record for name in args.records for record in read_all(record_files(name).records)[0]]
    with together(), np.errstate(over="ignore"):  # times that no number holds are refused below
        rows, content = (_cut if args.cut else _on_ranks)(args, records)
        if not all(math.isfinite(row.seconds or 0.0) for row in rows):
            raise InputError("a time is too long for a number: give other rates or another latency")
        show(PLAN, rows)
        if args.json:
            plans = [{**row._asdict(), "error": row.error} for row in rows]
            content = {"schema": "spdnn-plan", "version": 1, "predicted": True, "plans": plans, **content}
            write_text(args.json, json.dumps(content) + "\n")


def _on_ranks(args, records: list) -> tuple[list[Planned], dict]:
    """(measured runs beside their predictions, then what is predicted; what else JSON holds)."""
    from spdnn.engines.costs import costs, prediction
    from spdnn.runs import calibration

    # The run of one thread or device, or of fewest, calibrates; the others are compared with their predictions.
    record = min((record for record in records if record.ranks == 1), key=_size, default=None)
    if record is None:
        raise InputError("the cost of a run is not known: give a record of one rank, or --cut and a problem")
    rows = []
    for other in (other for other in records if other is not record):
        (seconds, bound), inputs = calibration.expected(record, other), other.problem.input_count
        rows.append(Planned(f"{other.case} (measured)", inputs, seconds, bound, statistics.median(other.seconds)))
    device, work = calibration.from_record(record)
    if args.memory:
        device = replace(device, memory_bytes=args.memory)
    messages = costs.MessageCosts(args.latency or LATENCY, args.bandwidth or BANDWIDTH)
    partition, per_node = args.partition or "rebalanced", args.per_node or 1
    seconds = statistics.median(record.seconds)
    say([f"calibrated by {record.case}: {seconds:.4g} s on one rank, measured; all below is predicted"], wrapped=True)
    for inputs in args.inputs or [work.inputs]:
        some = work.of(inputs)
        order = lambda ranks, some=some: calibration.known_shares(record, some, ranks, partition, per_node)  # noqa: E731
        plans = [
            prediction.predict(some, device, messages, ranks, partition, shares=order(ranks), per_node=per_node)
            for ranks in args.devices or DEVICES
        ]
        limit = prediction.enough(some, device, messages, partition, order=order, per_node=per_node)
        rows += [_row(plan, plural(plan.ranks, "rank")) for plan in plans]
        rows.append(_row(limit, f"{plural(limit.ranks, 'rank')}: more do not help"))
    calibrated = {"case": record.case, "seconds": seconds}
    return rows, {"calibrated_by": calibrated, "messages": asdict(messages), "partition": partition}


def _size(record) -> tuple[int, int]:
    return getattr(record.engine.notes, "devices", None) or 1, record.threads


def _row(plan, what: str) -> Planned:
    """A prediction for ranks."""
    bound = plan.bound if plan.fits else "memory: no room"
    return Planned(what, plan.inputs, plan.seconds, bound, None, plan.efficiency, plan.memory_bytes, plan.batches)


@dataclass(frozen=True)
class Problem:
    """What is cut, and what it costs.

    Attributes:
        costs: of its tasks.
        cores: that its devices share; None: not known.
        origin: where costs and rows come from, in words.
    """

    name: str
    costs: "TaskCosts"
    cores: int | None
    origin: str


def _cut(args, records: list) -> tuple[list[Planned], dict]:
    """(the cuts that were considered, the chosen one first; what else JSON holds).

    Raises:
        InputError: arguments that do not say what to compute, or what it costs.
    """
    from spdnn.engines.taskgraph.choice import choose

    for name in ("devices", "inputs"):
        numbers = getattr(args, name) or [None]
        if len(numbers) > 1:
            raise InputError(f"--{name}: a cut takes one number, not {len(numbers)}")
        setattr(args, name, numbers[0])
    request = TaskgraphSettings(**arguments.settings(args))
    problem = _read_problem(args, records, request.devices)
    costs = problem.costs
    sizes = costs.work.sizes(costs.device)
    leaving = bool((costs.work.survivors[-1:] < costs.work.inputs).all())
    settings = replace(request, join=request.join and problem.cores is not None)
    best = choose(sizes, settings, request.device_memory, costs, problem.cores, leaving=leaving)
    cut, predicted = best.decomposition, best.predicted
    if cut.streamed and costs.device.copy_bytes_per_second is None:
        raise InputError("weights would be streamed at an unknown rate: give --copy-bandwidth")
    memory = [cut.memory(sizes, device) for device in range(cut.devices)]
    say([f"{problem.name}, {sizes.inputs:,} inputs: predicted, {problem.origin}", best.why, ""], wrapped=True)
    rows = [Planned(_describe(cut), sizes.inputs, predicted.seconds, predicted.bound, None, None, max(memory))]
    # Candidates that cannot run for one reason are one row, and so are those that could not be faster.
    others: dict[str, list] = {}
    for candidate in best.considered:
        why = candidate.why_not if candidate.least is None else "at least this, even if nothing waited"
        others.setdefault(why or str(candidate), []).append(candidate)
    for why, some in others.items():
        seconds = min((one.seconds or one.least for one in some if one.seconds or one.least), default=None)
        rows.append(Planned(listed(list(map(str, some)), 2), sizes.inputs, seconds, None if some[0].seconds else why))
    if args.svg:
        _draw(args.svg, problem.name, cut, predicted)
    return rows, {
        "problem": problem.name,
        "calibrated_by": problem.origin,
        "memory_bytes": memory,
        "promise_bytes": request.device_memory,
        "decomposition": asdict(cut),
        "seconds": predicted.seconds,
        "parts": predicted.parts,
        "busy": [[*lane, share] for lane, share in predicted.busy.items()],
        "why": best.why,
        "timeline": [span.as_list() for span in predicted.timeline],
    }


def _read_problem(args, records: list, devices: int) -> Problem:
    """The problem that the arguments name, with its costs on so many devices."""
    from spdnn.engines.costs.costs import MessageCosts

    if devices > PLANNED_DEVICES:
        raise InputError(f"{devices} devices: at most {PLANNED_DEVICES:,}")
    if len(records) > 1:
        raise InputError(f"{len(records)} records: a cut is calibrated by one")
    if (args.layers is None) != (args.neurons is None):
        raise InputError("--neurons and --layers go together, and say which official network it is")
    own_rates = args.latency or args.bandwidth or not records  # else those of the record
    messages = MessageCosts(args.latency or LATENCY, args.bandwidth or BANDWIDTH) if own_rates else None
    return _from_record(args, records[0], devices, messages) if records else _by_hand(args, messages)


def _from_record(args, record, devices: int, messages) -> Problem:
    from spdnn.runs.calibration import costs_of

    if args.edges_per_second:
        raise InputError("--edges-per-second and a record exclude each other: a record has its own rate")
    costs, cores = costs_of(record, devices, messages, args.copy_bandwidth)
    origin = f"calibrated by {record.case}, measured {statistics.median(record.seconds):.4g} s"
    if not (args.neurons or args.network):
        if args.inputs:
            costs = replace(costs, work=costs.work.of(args.inputs), row_shares=lambda batches: None)
        return Problem(record.case, costs, cores, f"{origin}; rows are those that its run had left")
    name, work, order, rows = _from_names(args)
    # The part of an edge, and of its bytes, that its reductions left; rows of another problem may not merge.
    part = costs.work.edges.sum() / max(1, record.problem.edges)
    nbytes = costs.work.weight_bytes.sum() / max(1.0, costs.work.edges.sum())
    work = replace(work, edges=part * work.edges, weight_bytes=part * nbytes * work.edges)
    return Problem(name, replace(costs, work=work, row_shares=order), cores, f"{origin}; {rows}")


def _by_hand(args, messages) -> Problem:
    from spdnn.engines.costs.costs import DeviceCosts
    from spdnn.engines.taskgraph.simulation import TaskCosts

    if not (args.neurons or args.network):
        raise InputError("no problem is named: give --neurons and --layers, --network or a record")
    if not args.edges_per_second:
        raise InputError(
            "the cost of a layer is not known: give a record, or --edges-per-second and, for weights that are "
            "streamed, --copy-bandwidth"
        )
    device = DeviceCosts(
        (1 / args.edges_per_second,), 0.0, 0.0, tiles=(USUAL_TILE,),
        copy_bytes_per_second=args.copy_bandwidth,
    )  # fmt: skip
    name, work, order, rows = _from_names(args)
    return Problem(name, TaskCosts(work, device, messages, row_shares=order), None, f"by the rates given; {rows}")


def _from_names(args) -> tuple:
    """(name, work, order of the batches' shares, where the rows come from) of the problem that the arguments name."""
    from spdnn.engines.costs.costs import Work
    from spdnn.engines.costs.official import official_shares, official_work
    from spdnn.engines.memory import EDGE_BYTES
    from spdnn.formats.readers import open_network

    count = args.inputs or challenge.INPUTS
    if args.neurons:
        problem = challenge.problem(args.neurons, args.layers)
        work = official_work(problem.neurons, problem.layers)
        weights = np.full(problem.layers, EDGE_BYTES * problem.edges / problem.layers)
        work = replace(work, weight_bytes=weights).of(count)
        official = count == challenge.INPUTS
        order = lambda batches: official_shares(work, problem.neurons, batches, "static") if official else None  # noqa: E731
        return problem.name, work, order, "rows are those that the official inputs have left"
    network = open_network(args.network, **reading(args))
    headers = [network.header(k) for k in range(network.depth)]
    sizes = [(header.edges, 4 * max(header.inputs, header.outputs), header.nbytes) for header in headers]
    edges, wide, weights = np.array(sizes, float).T.copy()
    rows = np.full(network.depth, float(count))
    work = Work(count, edges, rows, rows, wide, weights, network.inputs / 8)
    return Path(args.network).name, work, lambda batches: None, "no row is taken to die"


def _describe(d) -> str:
    """A decomposition in one line."""
    longest = max(last - first for first, last in d.stages)
    weights = "weights stay" if not d.streamed else f"weights pass through {d.buffers} buffers"
    devices = plural(d.devices, "device")
    if len(d.ranges) > 1:
        devices += f" ({plural(d.groups, 'pipeline')} of {len(d.ranges)})"
    batches = f"{plural(d.batches, 'batch', 'batches')} of up to {d.batch:,} inputs"
    order = ", drawn by devices as they finish" if d.drawn else ""
    stages = f"{plural(len(d.stages), 'stage')} of up to {plural(longest, 'layer')}"
    return f"{d.schedule}: {batches}{order}; {stages}; {weights}; {devices}"


def _draw(path: str, name: str, decomposition, predicted) -> None:
    from spdnn.core.files import write_text
    from spdnn.report.common.drawing import save, style
    from spdnn.report.schedules import gantt

    title = f"Predicted timeline of {name}, schedule {decomposition.schedule}"
    figure = gantt([("predicted", predicted.timeline)], "timeline", title, title)
    with style():
        drawing = save(figure, "schedules")
    write_text(path, drawing.svg + "\n")
