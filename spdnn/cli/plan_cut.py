"""`spdnn plan --cut`: how an inference would be cut for some devices, and the time predicted; nothing is run.

What layers cost comes from a measured record, or from rates entered by hand.
"""

import statistics
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from spdnn.cli import arguments
from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.request import reading
from spdnn.engines.taskgraph.settings import TaskgraphSettings

if TYPE_CHECKING:
    from spdnn.engines.taskgraph.simulation import TaskCosts

TILE = 32  # inputs computed together, where no record has a number
MOST_DEVICES = 4096
RATES = ("edges_per_second", "copy_bandwidth")
LATENCY, BANDWIDTH = 2e-6, 1e10  # of messages: seconds, bytes a second
SETTINGS = [field.name for field in fields(TaskgraphSettings) if field.name != "devices"]
OPTIONS = ("neurons", "layers", "network", *RATES, *SETTINGS, "svg")


def add(plan) -> None:
    """Add --cut and what it takes besides."""
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


def show(args) -> dict:
    """Print the decomposition that would be chosen, its memory and its predicted time; what JSON holds of it.

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
    problem = _read_problem(args, request.devices)
    costs = problem.costs
    sizes = costs.work.sizes(costs.device)
    leaving = bool((costs.work.survivors[-1:] < costs.work.inputs).all())
    settings = replace(request, join=request.join and problem.cores is not None)
    best = choose(sizes, settings, request.device_memory, costs, problem.cores, leaving=leaving)
    decomposition, predicted = best.decomposition, best.predicted
    if decomposition.streamed and costs.device.copy_bytes_per_second is None:
        raise InputError("weights would be streamed at an unknown rate: give --copy-bandwidth")
    print(f"{problem.name}, {sizes.inputs:,} inputs: predicted, {problem.origin}")
    print(f"{_describe(decomposition)}\n{best.why}\n")
    _print_memory(decomposition, sizes, request.device_memory)
    parts = ", ".join(f"{part} {seconds:.4g} s" for part, seconds in predicted.parts.items())
    print(f"\npredicted: {predicted.seconds:.4g} s, bound by {predicted.bound} ({parts})")
    for (device, lane), share in predicted.busy.items():
        print(f"device {device}, lane {lane}: busy {share:.1%}")
    _print_considered(best.considered)
    if args.svg:
        _draw(args.svg, problem.name, decomposition, predicted)
    return {
        "predicted": True,
        "problem": problem.name,
        "calibrated_by": problem.origin,
        "memory_bytes": [decomposition.memory(sizes, device) for device in range(decomposition.devices)],
        "promise_bytes": request.device_memory,
        "decomposition": asdict(decomposition),
        "seconds": predicted.seconds,
        "bound": predicted.bound,
        "parts": predicted.parts,
        "busy": [[*lane, share] for lane, share in predicted.busy.items()],
        "why": best.why,
        "considered": [_plain(candidate) for candidate in best.considered],
        "timeline": [span.as_list() for span in predicted.timeline],
    }


def _read_problem(args, devices: int) -> Problem:
    """The problem that the arguments name, with its costs on so many devices."""
    from spdnn.engines.costs.costs import MessageCosts

    if devices > MOST_DEVICES:
        raise InputError(f"{devices} devices: at most {MOST_DEVICES:,}")
    if (args.layers is None) != (args.neurons is None):
        raise InputError("--neurons and --layers go together, and say which official network it is")
    own_rates = args.latency or args.bandwidth or not args.record  # else those of the record
    messages = MessageCosts(args.latency or LATENCY, args.bandwidth or BANDWIDTH) if own_rates else None
    return _from_record(args, devices, messages) if args.record else _by_hand(args, messages)


def _from_record(args, devices: int, messages) -> Problem:
    from spdnn.runs.calibration import costs_of
    from spdnn.runs.records.files import read_record

    if args.edges_per_second:
        raise InputError("--edges-per-second and --record exclude each other: a record has its own rate")
    record = read_record(args.record)
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
        raise InputError("no problem is named: give --neurons and --layers, --network or --record")
    if not args.edges_per_second:
        raise InputError(
            "the cost of a layer is not known: give --record run.json, or --edges-per-second and, for weights that are "
            "streamed, --copy-bandwidth"
        )
    device = DeviceCosts(
        (1 / args.edges_per_second,), 0.0, 0.0, tiles=(TILE,),
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


def _plain(candidate) -> dict:
    """As JSON holds it, which has no infinity."""
    settings = {key: None if value == float("inf") else value for key, value in candidate.settings.items()}
    return asdict(candidate) | {"settings": settings}


def _print_considered(considered) -> None:
    print("\nconsidered:")
    for candidate in considered:
        if candidate.seconds is not None:
            print(f"{candidate.seconds:>10.4g} s  {candidate}")
    refused = [candidate for candidate in considered if candidate.seconds is None]
    for why in dict.fromkeys(candidate.why_not for candidate in refused if candidate.least is None):
        same = [candidate for candidate in refused if candidate.why_not == why]
        names = ", ".join(dict.fromkeys(candidate.schedule for candidate in same))
        settings = f" ({len(same)} settings)" if len(same) > 1 else ""
        print(f"{'-':>12}  {names}{settings}: {why}")
    slower = [candidate for candidate in refused if candidate.least is not None]
    if slower:
        least = min(candidate.least for candidate in slower)
        print(f"{'-':>12}  {len(slower)} more, none faster than {least:.4g} s even if nothing waited")


def _describe(d) -> str:
    """A decomposition in one line."""
    longest = max(last - first for first, last in d.stages)
    weights = "weights stay" if not d.streamed else f"weights pass through {d.buffers} buffers"
    devices = f"{d.devices} device{'s' if d.devices > 1 else ''}"
    if len(d.ranges) > 1:
        devices += f" ({d.groups} pipeline{'s' if d.groups > 1 else ''} of {len(d.ranges)})"
    batches = f"{d.batches} batch{'es' if d.batches > 1 else ''} of up to {d.batch:,} inputs"
    order = ", drawn by devices as they finish" if d.drawn else ""
    stages = f"{len(d.stages)} stages of up to {longest} layer{'s' if longest > 1 else ''}"
    return f"schedule {d.schedule}: {batches}{order}; {stages}; {weights}; {devices}"


def _print_memory(d, sizes, promise: int | None) -> None:
    cells = ("device", "layers", "weights", "features", "memory", "promise")
    print(" ".join(f"{cell:>12}" for cell in cells))
    for device in range(d.devices):
        first, last = d.range_of(device)
        span = f"{d.stages[first][0] + 1}-{d.stages[last - 1][1]}"
        weights, memory = sum(d.buffer_bytes(sizes, device)), d.memory(sizes, device)
        values = (weights, memory - weights - sizes.held_bytes, memory)
        texts = [f"{value / 1e9:,.3f} GB" for value in values]
        print(
            " ".join(f"{cell:>12}" for cell in (device, span, *texts, f"{promise / 1e9:,.3f} GB" if promise else "-"))
        )


def _draw(path: str, name: str, decomposition, predicted) -> None:
    from spdnn.core.files import write_text
    from spdnn.report.common.drawing import save, style
    from spdnn.report.schedules.section import gantt

    title = f"Predicted timeline of {name}, schedule {decomposition.schedule}"
    panels = [("predicted", [span.as_list() for span in predicted.timeline])]
    with style():
        drawing = save(gantt(panels, "timeline", title, title), "schedules")
    write_text(path, drawing.svg + "\n")
