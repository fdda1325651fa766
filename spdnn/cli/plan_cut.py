"""`spdnn plan --cut`: how an inference would be cut for some devices, and the time predicted; nothing is run.

What layers cost comes from a measured record, or from rates entered by hand.
"""

from dataclasses import asdict, fields, replace

from spdnn.cli import arguments
from spdnn.cli.plan_costs import RATES, problem_of
from spdnn.core.errors import InputError
from spdnn.engines.taskgraph.settings import TaskgraphSettings

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


def show(args) -> dict:
    """Print the decomposition that would be chosen, its memory and its predicted time; what JSON holds of it."""
    for name in ("devices", "inputs"):
        numbers = getattr(args, name) or [None]
        if len(numbers) > 1:
            raise InputError(f"--{name}: a cut takes one number, not {len(numbers)}")
        setattr(args, name, numbers[0])
    return _show(args, *problem_of(args))


def _show(args, name: str, request, costs, sizes, cores: int | None, origin: str) -> dict:
    from spdnn.engines.taskgraph.choice import choose

    leaving = bool((costs.work.survivors[-1:] < costs.work.inputs).all())
    asked = replace(request, join=request.join and cores is not None)
    best = choose(sizes, asked, request.device_memory, costs, cores, leaving=leaving)
    decomposition, predicted = best.decomposition, best.predicted
    if decomposition.streamed and costs.device.copy_bytes_per_second is None:
        raise InputError("weights would be streamed at an unknown rate: give --copy-bandwidth")
    print(f"{name}, {sizes.inputs:,} inputs: predicted, {origin}")
    print(f"{_describe(decomposition)}\n{best.why}\n")
    _print_memory(decomposition, sizes, request.device_memory)
    parts = ", ".join(f"{part} {seconds:.4g} s" for part, seconds in predicted.parts.items())
    print(f"\npredicted: {predicted.seconds:.4g} s, bound by {predicted.bound} ({parts})")
    for (device, lane), share in predicted.busy.items():
        print(f"device {device}, lane {lane}: busy {share:.1%}")
    _print_considered(best.considered)
    if args.svg:
        _draw(args.svg, name, decomposition, predicted)
    return {
        "predicted": True,
        "problem": name,
        "calibrated_by": origin,
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
    drawn = ", drawn by devices as they finish" if d.drawn else ""
    stages = f"{len(d.stages)} stages of up to {longest} layer{'s' if longest > 1 else ''}"
    return f"schedule {d.schedule}: {batches}{drawn}; {stages}; {weights}; {devices}"


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
    from spdnn.report.schedules.figures import gantt

    title = f"Predicted timeline of {name}, schedule {decomposition.schedule}"
    panels = [("predicted", [span.as_list() for span in predicted.timeline])]
    with style():
        drawing = save(gantt(panels, "timeline", title, title), "schedules")
    write_text(path, drawing.svg + "\n")
