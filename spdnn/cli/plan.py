"""`spdnn plan`: predict runs on more devices than there are, and show how far off such predictions were.

Two ways to use devices: a rank for each (here), or a task graph that one rank cuts for its own (plan_cut.py).
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict

from spdnn.cli import arguments, plan_cut
from spdnn.cli.plan_cut import BANDWIDTH, LATENCY
from spdnn.core.errors import InputError

MOST_DEVICES, MOST_INPUTS = 10**6, 10**12
DEVICES = (1, 10, 100, 1000, 10000)
RANKS = ("check", "partition", "per_node", "memory")  # options that a cut does not take


def add(plan) -> None:
    plan.description = (
        "Predict the time of a run on more ranks and inputs, from a measured record of one rank. With --cut, show how\n"
        "the task graph divides an inference among devices, with memory and time. --check compares predictions with\n"
        "measured records of several ranks."
    )
    what = plan.add_mutually_exclusive_group()
    what.add_argument("--record", metavar="run.json", help="run record of one rank, which calibrates the prediction")
    plan.add_argument("--devices", type=_counts(MOST_DEVICES), metavar="LIST", help="numbers of devices, joined by "
                      "commas (default: 1,10,100,1000,10000); with --cut one, for each rank (default: 1)")  # fmt: skip
    plan.add_argument("--inputs", "--count", type=_counts(MOST_INPUTS), metavar="LIST", help="numbers of inputs, "
                      "joined by commas; with --cut one number (default: as in the record, or 60000)")  # fmt: skip
    plan.add_argument(
        "--latency", type=arguments.above_zero, metavar="S", help="seconds that a message takes (default: 2e-6)"
    )
    plan.add_argument("--bandwidth", type=arguments.above_zero, metavar="B", help="bytes per second of a "
                      "message (default: 1e10)")  # fmt: skip
    plan.add_argument("--json", metavar="FILE", help="also write the result as JSON; with --cut, the timeline too")
    ranks = plan.add_argument_group("ranks")
    what.add_argument("--check", nargs="+", metavar="run.json", help="measured records of one rank and of several")
    ranks.add_argument("--partition", metavar="P", help="static, cyclic or rebalanced (default: rebalanced)")
    ranks.add_argument(
        "--per-node", type=arguments.positive, metavar="N", help="number of devices on a node (default: 1)"
    )
    arguments.option(ranks, "memory", help="memory of a node in bytes (default: as in the record)")
    plan_cut.add(plan)
    plan.set_defaults(run=_plan, reads=("record", "check", "network"), writes=("json", "svg"))


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

    for name in RANKS if args.cut else plan_cut.OPTIONS:
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}".replace("--join", "--no-join")
            raise InputError(f"{option} is {'not for' if args.cut else 'for'} a cut; see `spdnn plan --help`")
    with together():
        content = (plan_cut.show if args.cut else _show_check if args.check else _show_plan)(args)
        if args.json:
            schema, indent = ("spdnn-decomposition", None) if args.cut else ("spdnn-plan", 1)
            write_text(args.json, json.dumps({"schema": schema, "version": 1} | content, indent=indent) + "\n")


def _show_plan(args) -> dict:
    from dataclasses import replace

    from spdnn.engines.costs import costs, prediction
    from spdnn.runs import calibration
    from spdnn.runs.records.files import read_record

    if not args.record:
        raise InputError("the cost of a run is not known: give --record or --check, or --cut and a problem")
    record = read_record(args.record)
    device, work = calibration.from_record(record)
    if args.memory:
        device = replace(device, memory_bytes=args.memory)
    messages = costs.MessageCosts(args.latency or LATENCY, args.bandwidth or BANDWIDTH)
    partition, per_node = args.partition or "rebalanced", args.per_node or 1
    seconds = statistics.median(record.seconds)
    print(f"calibrated by {record.case}: {seconds:.4g} s on one rank, measured; all below is predicted")
    plans, limits = [], []
    for inputs in args.inputs or [work.inputs]:
        some = work.of(inputs)
        order = lambda ranks, some=some: calibration.known_shares(record, some, ranks, partition, per_node)  # noqa: E731
        rows = [
            prediction.predict(some, device, messages, ranks, partition, shares=order(ranks), per_node=per_node)
            for ranks in args.devices or DEVICES
        ]
        limit = prediction.enough(some, device, messages, partition, order=order, per_node=per_node)
        plans, limits = plans + rows, [*limits, limit]
        print(f"\n{inputs:,} inputs, {partition}, predicted\n{_line(_HEAD)}  bound by")
        for row in rows:
            print(_plan_row(row))
        if limit.fits:
            print(f"more than {limit.ranks:,} devices do not help: {limit.seconds:.4g} s there, {limit.bound}")
        else:
            print(f"no number of devices up to {limit.ranks:,} has the memory")
    return {
        "predicted": True,
        "calibrated_by": {"case": record.case, "seconds": seconds},
        "messages": asdict(messages),
        "plans": [_figures(plan) for plan in plans],
        "enough": [_figures(limit) for limit in limits],
    }


_HEAD = ("devices", "seconds", "efficiency", "inputs each", "memory each", "batches")


def _line(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, (9, 10, 10, 13, 12, 10), strict=True))


def _plan_row(prediction) -> str:
    cells = (
        f"{prediction.ranks:,}",
        f"{prediction.seconds:.4g}",
        f"{prediction.efficiency:.1%}",
        f"{-(-prediction.inputs // prediction.ranks):,}",
        f"{prediction.memory_bytes / 1e9:,.3f} GB",
        f"{prediction.batches:,}" if prediction.fits else "no room",
    )
    return f"{_line(cells)}  {prediction.bound}"


def _figures(prediction) -> dict:
    return asdict(prediction) | {"bound": prediction.bound}


def _show_check(args) -> dict:
    from spdnn.runs import calibration
    from spdnn.runs.records.files import read_record

    checks = calibration.check([read_record(path) for path in args.check])
    print(" predicted   measured   error informed  case (informed: with the measured active inputs of each rank)")
    for check in checks:
        informed = "" if check.informed is None else f"{check.informed_error:+.1%}"
        times = f"{check.predicted.seconds:>8.4f} s {check.measured_seconds:>8.4f} s"
        print(f"{times} {check.error:>+7.1%} {informed:>8}  {check.case}")
    errors = [abs(check.error) for check in checks]
    print(f"error: median {statistics.median(errors):.1%}, worst {max(errors):.1%}")
    return {
        "checked": [asdict(check) | {"error": check.error, "informed_error": check.informed_error} for check in checks]
    }
