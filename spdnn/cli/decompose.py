"""`spdnn decompose`: how an inference would be cut for some devices, and the time predicted; nothing is run."""

from __future__ import annotations

import json
import statistics
from dataclasses import asdict
from pathlib import Path

from spdnn.cli import arguments
from spdnn.cli.decompose_costs import RATES, problem_of
from spdnn.common.errors import InputError


def add(command) -> None:
    command.description = (
        "Print the decomposition that would be chosen (batches, stages of layers, buffers of weights,\n"
        "devices), its memory and its predicted time, without running anything. What layers cost comes from a\n"
        "measured record, or from rates given by hand; --published shows such predictions beside SNIG's table."
    )
    _add_problem(command.add_argument_group("problem"))
    arguments.add_cut(command)
    _add_rates(command.add_argument_group("rates of a device"))
    command.add_argument("--json", metavar="FILE", help="write everything, the timeline included")
    command.add_argument("--svg", metavar="FILE", help="draw the timeline")
    command.set_defaults(run=_decompose)


def _add_problem(group) -> None:
    what = group.add_mutually_exclusive_group()
    what.add_argument("--neurons", type=arguments.positive, metavar="N", help="of an official network, with --layers")
    what.add_argument("--network", metavar="net.safetensors", help="any network; no row is taken to die in it")
    what.add_argument("--published", action="store_true", help="the simulator beside SNIG's published table")
    group.add_argument(
        "--record",
        metavar="run.json",
        help="a run record of one rank and device: what tasks cost and, where no other is named, the problem",
    )
    group.add_argument("--layers", type=arguments.positive, metavar="L", help="120, 480 or 1920")
    group.add_argument("--count", type=arguments.positive, metavar="n", help="inputs (default: 60000, or the record's)")


def _add_rates(group) -> None:
    for name, metavar, what in (
        ("edges-per-second", "R", "that a device computes"),
        ("copy-bandwidth", "B", "bytes of weights a second, to a device"),
        ("launch-seconds", "S", "of each layer, whatever it computes (default: 0)"),
        ("latency", "S", "of rows that move between devices (default: 2e-6)"),
        ("bandwidth", "B", "bytes a second of such rows (default: 1e10)"),
    ):
        group.add_argument(f"--{name}", type=arguments.above_zero, metavar=metavar, help=what)


def _decompose(chosen) -> None:
    from spdnn.common.files import check_target, write_text

    targets = [check_target(path) for path in (chosen.json, chosen.svg) if path]
    for path in filter(None, (chosen.record, chosen.network)):
        if Path(path).resolve() in targets:
            raise InputError(f"{path}: --json or --svg would replace it; name another file")
    if len(set(targets)) < len(targets):
        raise InputError(f"{chosen.svg}: --json and --svg are one file; name two")
    if chosen.published:
        _refuse_others(chosen)
        content = _show_published()
    else:
        content = _show(chosen, *problem_of(chosen))
    if chosen.json:
        write_text(chosen.json, json.dumps({"schema": "spdnn-decomposition", "version": 1} | content) + "\n")


def _refuse_others(chosen) -> None:
    others = (*RATES, *arguments.CUT, "layers", "count", "record", "svg")
    taken = [name for name in others if getattr(chosen, name)]
    if taken:
        raise InputError(f"--{taken[0].replace('_', '-')} says nothing of a published table; leave it out")


def _show(chosen, name: str, wanted, costs, sizes, cores: int | None, told: str) -> dict:
    from spdnn.taskgraph.choice import choose

    leaving = bool((costs.work.survivors[-1:] < costs.work.inputs).all())
    given = {**wanted.asked, "leaving": leaving, "join": wanted.join and cores is not None}
    memory = wanted.device_memory
    found = choose(sizes, wanted.devices, memory, costs, cores, schedule=wanted.schedule, **given)
    decomposition, predicted = found.decomposition, found.predicted
    if decomposition.streamed and costs.device.copy_bytes_per_second is None:
        raise InputError("weights would be streamed, and nothing tells how fast: give --copy-bandwidth")
    print(f"{name}, {sizes.inputs:,} inputs: predicted, {told}")
    print(f"{_described(decomposition)}\n{found.why}\n")
    _print_memory(decomposition, sizes, wanted.device_memory)
    _print_time(predicted)
    _print_considered(found.considered)
    if chosen.svg:
        _draw(chosen.svg, name, decomposition, predicted)
    return {
        "predicted": True,
        "problem": name,
        "calibrated_by": told,
        "memory_bytes": [decomposition.memory(sizes, device) for device in range(decomposition.devices)],
        "promise_bytes": wanted.device_memory,
        "decomposition": asdict(decomposition),
        "seconds": predicted.seconds,
        "bound": predicted.bound,
        "parts": predicted.parts,
        "busy": [[*lane, share] for lane, share in predicted.busy.items()],
        "why": found.why,
        "considered": [_plain(one) for one in found.considered],
        "timeline": [span.listed() for span in predicted.timeline],
    }


def _plain(one) -> dict:
    """As JSON holds it, which has no infinity."""
    settings = {key: None if value == float("inf") else value for key, value in one.settings.items()}
    return asdict(one) | {"settings": settings}


def _print_considered(considered) -> None:
    print("\nconsidered:")
    for one in considered:
        if one.seconds is not None:
            print(f"{one.seconds:>10.4g} s  {one}")
    refused = [one for one in considered if one.seconds is None]
    for why in dict.fromkeys(one.why_not for one in refused if one.least is None):
        same = [one for one in refused if one.why_not == why]
        names = ", ".join(dict.fromkeys(one.schedule for one in same))
        settings = f" ({len(same)} settings)" if len(same) > 1 else ""
        print(f"{'-':>12}  {names}{settings}: {why}")
    slower = [one for one in refused if one.least is not None]
    if slower:
        least = min(one.least for one in slower)
        print(f"{'-':>12}  {len(slower)} more, none faster than {least:.4g} s even if nothing waited")


def _described(d) -> str:
    """A decomposition in one line."""
    longest = max(last - first for first, last in d.stages)
    weights = "weights stay" if not d.streamed else f"weights pass through {d.buffers} buffers"
    devices = f"{d.devices} device{'s' if d.devices > 1 else ''}"
    if len(d.ranges) > 1:
        devices += f" ({d.groups} pipeline{'s' if d.groups > 1 else ''} of {len(d.ranges)})"
    batches = f"{d.batches} batch{'es' if d.batches > 1 else ''} of up to {d.batch:,} inputs"
    dealt = ", drawn by devices as they finish" if d.drawn else ""
    stages = f"{len(d.stages)} stages of up to {longest} layer{'s' if longest > 1 else ''}"
    return f"schedule {d.schedule}: {batches}{dealt}; {stages}; {weights}; {devices}"


def _print_memory(d, sizes, promise: int | None) -> None:
    cells = ("device", "layers", "weights", "features", "memory", "promise")
    print(" ".join(f"{cell:>12}" for cell in cells))
    for device in range(d.devices):
        first, last = d.range_of(device)
        span = f"{d.stages[first][0] + 1}-{d.stages[last - 1][1]}"
        weights, memory = sum(d.buffer_bytes(sizes, device)), d.memory(sizes, device)
        values = (weights, memory - weights - sizes.held_bytes, memory)
        told = [f"{value / 1e9:,.3f} GB" for value in values]
        print(" ".join(f"{cell:>12}" for cell in (device, span, *told, f"{promise / 1e9:,.3f} GB" if promise else "-")))


def _print_time(predicted) -> None:
    parts = ", ".join(f"{name} {seconds:.4g} s" for name, seconds in predicted.parts.items())
    print(f"\npredicted: {predicted.seconds:.4g} s, bound by {predicted.bound} ({parts})")
    for (device, lane), share in predicted.busy.items():
        print(f"device {device}, lane {lane}: busy {share:.1%}")


def _draw(path: str, name: str, decomposition, predicted) -> None:
    from spdnn.common.files import write_text
    from spdnn.report.common.drawing import saved, style
    from spdnn.report.schedules.figures import gantt

    title = f"Predicted timeline of {name}, schedule {decomposition.schedule}"
    panels = [("predicted", [span.listed() for span in predicted.timeline])]
    with style():
        drawing = saved(gantt(panels, "timeline", title, title), "schedules")
    write_text(path, drawing.svg + "\n")


def _show_published() -> dict:
    from spdnn.taskgraph.published import CLOSE, HARDWARE, SYSTEMS, snig_table

    table = snig_table()
    errors, (right, pairs), (clear, apart) = table.errors(), table.order(), table.order(CLOSE)
    fitted = sum(row.calibration for row in table.rows)
    print(
        f"SNIG's published table on 1 to 4 {HARDWARE}, seconds: predicted / published; * the model was fitted to it\n"
    )
    short = dict(zip(SYSTEMS, ("SNIG", "BF", "GPipe*"), strict=True))
    print(f"{'network':>12} {'devices':>7}" + "".join(f"{name:>28}" for name in short.values()))
    known = {(row.neurons, row.layers, row.devices, row.system): row for row in table.rows}
    for network in dict.fromkeys(key[:3] for key in known):
        cells = "".join(f"{_cell(known.get((*network, system))):>28}" for system in SYSTEMS)
        print(f"{network[0]:>7}-{network[1]:<4} {network[2]:>7}{cells}")
    print(
        f"\norder of two systems on one network and number of devices: right in {right} of {pairs} pairs "
        f"({right / pairs:.0%}); of those that differ by more than {CLOSE - 1:.0%}, in {clear} of {apart} "
        f"({clear / apart:.0%})\nerror of the {len(errors)} figures that nothing was fitted to: median "
        f"{statistics.median(errors):.1%}, worst {errors[-1]:.1%}\nfitted: {fitted} "
        f"figures; what networks share: page faults at {table.fault_bytes_per_second / 1e9:.1f} GB/s, "
        f"{table.overhead_seconds * 1e3:.2f} ms a layer of BF, {table.graph_seconds * 1e3:.0f} ms a batch of SNIG"
    )
    return {
        "predicted": True,
        "snig": asdict(table),
        "order": {"right": right, "pairs": pairs, "right_where_apart": clear, "pairs_apart": apart},
        "median_error": statistics.median(errors),
        "worst_error": errors[-1],
    }


def _cell(row) -> str:
    if row is None:
        return "-"
    if not row.finished:
        return f"{row.predicted_seconds:.4g} / >{row.published_seconds:.4g}"
    return (
        f"{row.predicted_seconds:.4g} / {row.published_seconds:.4g} {row.error:+.0%}{'*' if row.calibration else ' '}"
    )
