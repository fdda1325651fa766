"""`spdnn plan`: predict runs on more devices than there are, and show how far off such predictions were."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from spdnn.cli import arguments
from spdnn.common.errors import InputError

MOST_DEVICES, MOST_INPUTS = 10**6, 10**12


def add(plan) -> None:
    plan.description = (
        "Predict what a run would take on more devices and inputs, from a measured record of one rank;\n"
        "--check compares such predictions with measured records of several ranks, and --published with\n"
        "at-scale's figures for 1 to 768 V100."
    )
    what = plan.add_mutually_exclusive_group(required=True)
    what.add_argument("--record", metavar="run.json", help="a run record of one rank: calibrates the prediction")
    what.add_argument("--check", nargs="+", metavar="run.json", help="records of one rank and of several, measured")
    what.add_argument("--published", action="store_true", help="the model beside at-scale's published scaling")
    plan.add_argument(
        "--few", metavar="few.json", help="a record of one rank on few inputs: what a run costs whatever it computes"
    )
    plan.add_argument(
        "--devices", type=_counts(MOST_DEVICES), default=[1, 10, 100, 1000, 10000], metavar="LIST",
        help="default: 1,10,100,1000,10000",
    )  # fmt: skip
    plan.add_argument(
        "--inputs", type=_counts(MOST_INPUTS), metavar="LIST", help="such as 60000,1e9 (default: as in the record)"
    )
    plan.add_argument("--partition", default="rebalanced", metavar="P", help="static, cyclic or rebalanced (default)")
    plan.add_argument("--per-node", type=arguments.positive, default=1, metavar="n", help="devices on a node")
    plan.add_argument(
        "--latency", type=arguments.above_zero, default=2e-6, metavar="S", help="of a message (default: 2e-6)"
    )
    plan.add_argument(
        "--bandwidth",
        type=arguments.above_zero,
        default=1e10,
        metavar="B",
        help="bytes a second of a message (default: 1e10)",
    )
    plan.add_argument("--memory", type=arguments.size, metavar="BYTES", help="of a node (default: as the record tells)")
    plan.add_argument("--json", metavar="FILE", help="write all figures")
    plan.set_defaults(run=_plan)


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


def _plan(chosen) -> None:
    from spdnn.common.files import check_target, write_text

    if chosen.json:
        target = check_target(chosen.json)
        for path in filter(None, (chosen.record, chosen.few, *(chosen.check or ()))):
            if target == Path(path).resolve():
                raise InputError(f"{path}: --json would replace a record; name another file")
    show = _show_published if chosen.published else _show_check if chosen.check else _show_plan
    content = show(chosen)
    if chosen.json:
        write_text(chosen.json, json.dumps({"schema": "spdnn-plan", "version": 1} | content, indent=1) + "\n")


def _show_plan(chosen) -> dict:
    from dataclasses import replace

    from spdnn import costmodel
    from spdnn.records.files import read_record

    record = read_record(chosen.record)
    fixed = costmodel.run_seconds(record, read_record(chosen.few)) if chosen.few else 0.0
    device, work = costmodel.from_record(record, fixed)
    if chosen.memory:
        device = replace(device, memory_bytes=chosen.memory)
    messages, partition, per_node = (
        costmodel.Messages(chosen.latency, chosen.bandwidth),
        chosen.partition,
        chosen.per_node,
    )
    seconds = statistics.median(record.seconds)
    print(f"calibrated by {record.case}: {seconds:.4g} s on one rank, measured; all below is predicted")
    plans, limits = [], []
    for inputs in chosen.inputs or [work.inputs]:
        some = work.of(inputs)
        order = lambda ranks, some=some: costmodel.known_shares(record, some, ranks, partition, per_node)  # noqa: E731
        options = {"per_node": per_node}
        found = [
            costmodel.predict(some, device, messages, ranks, partition, shares=order(ranks), **options)
            for ranks in chosen.devices
        ]
        limit = costmodel.enough(some, device, messages, partition, order=order, **options)
        plans, limits = plans + found, [*limits, limit]
        print(f"\n{inputs:,} inputs, {partition}, predicted\n{_line(_HEAD)}  bound by")
        for one in found:
            print(_plan_row(one))
        if limit.fits:
            print(f"more than {limit.ranks:,} devices do not help: {limit.seconds:.4g} s there, {limit.bound}")
        else:
            print(f"no number of devices up to {limit.ranks:,} has the memory")
    return {
        "predicted": True,
        "calibrated_by": {"case": record.case, "seconds": seconds, "run_seconds": fixed},
        "messages": asdict(messages),
        "plans": [_figures(one) for one in plans],
        "enough": [_figures(one) for one in limits],
    }


_HEAD = ("devices", "seconds", "efficiency", "inputs each", "memory each", "batches")


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, (9, 10, 10, 13, 12, 10), strict=True))


def _plan_row(one) -> str:
    cells = (
        f"{one.ranks:,}",
        f"{one.seconds:.4g}",
        f"{one.efficiency:.1%}",
        f"{-(-one.inputs // one.ranks):,}",
        f"{one.memory_bytes / 1e9:,.3f} GB",
        f"{one.batches:,}" if one.fits else "no room",
    )
    return f"{_line(cells)}  {one.bound}"


def _figures(one) -> dict:
    return asdict(one) | {"bound": one.bound}


def _show_check(chosen) -> dict:
    from spdnn import costmodel
    from spdnn.records.files import read_record

    few = read_record(chosen.few) if chosen.few else None
    checked = costmodel.check([read_record(path) for path in chosen.check], few)
    print(" predicted   measured   error informed  case (informed: with each rank's measured survivors)")
    for one in checked:
        informed = "" if one.informed is None else f"{one.informed_error:+.1%}"
        times = f"{one.predicted.seconds:>8.4f} s {one.measured_seconds:>8.4f} s"
        print(f"{times} {one.error:>+7.1%} {informed:>8}  {one.case}")
    errors = [abs(one.error) for one in checked]
    print(f"error: median {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    return {"checked": [asdict(one) | {"error": one.error, "informed_error": one.informed_error} for one in checked]}


def _show_published(chosen) -> dict:
    from spdnn import costmodel

    content = {}
    for both in (False, True):
        found = costmodel.at_scale(both=both)
        errors = found.errors()
        worst = max((row for row in found.rows if not row.calibration), key=lambda row: abs(row.error))
        print(
            f"{'two fitted constants' if both else 'one fitted constant beside one GPU'}: "
            f"{found.seconds_per_layer * 1e6:.1f} us a layer, copies at {found.copy_bytes_per_second / 1e9:.1f} GB/s; "
            f"{len(errors)} figures predicted, error: median {statistics.median(errors):.1%}, "
            f"worst {errors[-1]:.1%} ({worst.neurons}-{worst.layers} on {worst.devices})"
        )
        if not both:
            for (neurons, layers), rows in groupby(found.rows, key=lambda row: (row.neurons, row.layers)):
                print(f"\n{neurons}-{layers}\n{'devices':>9} {'predicted':>11} {'published':>11} {'error':>7}")
                for row in rows:
                    used = "  calibration" if row.calibration else ""
                    times = f"{row.predicted_seconds:>9.4f} s {row.published_seconds:>9.4f} s"
                    print(f"{row.devices:>9} {times} {row.error:>+7.1%}{used}")
            print()
        content["two_constants" if both else "one_constant"] = asdict(found) | {
            "median_error": statistics.median(errors),
            "worst_error": errors[-1],
        }
    return {"predicted": True, "at_scale": content}
