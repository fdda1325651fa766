"""The schedules of the task graph on the processor, timed alternately in one process, and predicted.

    python benchmarks/schedules.py [--neurons N] [--layers L] [--count n] [--reductions dead,all] [--threads T]
                                   [--devices 1,2,4] [--rounds R] [--seconds S] [--json FILE]

Every setting is verified before it is timed, and every timed output must equal the verified one to the bit. Settings
take turns, each when the machine is quiet, until each has so many runs beside which nothing else took more than BUSY of
the cores, or the time is over; `measured` is the fastest of those. A setting that had none is told, and not compared.
The fastest resident run on one device alone calibrates the simulator, with the processor time that it used and what the
machine copied in the same minute; `predicted` is what it makes of the setting's own decomposition. With more devices
than threads, each has a thread, and all share the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from dataclasses import dataclass, field

from msgspec.structs import replace

from spdnn.core.features import Inputs
from spdnn.core.files import write_text
from spdnn.core.resources import usable_cores
from spdnn.core.result import Result
from spdnn.engines.base import Options, Prepared
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.settings import SCHEDULES, TaskgraphSettings
from spdnn.engines.taskgraph.simulation import simulate
from spdnn.formats.radixnet import RadixNet
from spdnn.runs import measure
from spdnn.runs.calibration import costs_of
from spdnn.runs.load import load_named_inputs
from spdnn.runs.records.files import record_of
from spdnn.runs.records.run_record import Measurement, RunRecord
from spdnn.runs.records.verdict import Verdict
from spdnn.runs.verify.judging import judge

BAR = 0.15  # of an error
BUSY = 0.03  # of the cores, that others may take beside a quiet run
TICK = 1 / os.sysconf("SC_CLK_TCK")
BASE = ("resident", 1)


@dataclass
class Setting:
    """One schedule on so many devices, and what was measured of it; `fastest` is the measurement of that run."""

    schedule: str
    devices: int
    options: Options
    decomposition: Decomposition | None = None
    digest: str = ""
    seconds: list[float] = field(default_factory=list)
    others: list[float] = field(default_factory=list)
    fastest: Measurement | None = None

    @property
    def quiet(self) -> int:
        """Runs beside which nothing else took much of the cores."""
        return sum(share <= BUSY for share in self.others)

    @property
    def best(self) -> int:
        """The fastest of them, else the fastest of all: its place."""
        return min(
            range(len(self.seconds)), key=lambda k: (bool(self.quiet) and self.others[k] > BUSY, self.seconds[k])
        )


def busy_seconds() -> float:
    """Processor seconds that all but this process have used since the machine started."""
    with open("/proc/stat", encoding="ascii") as stream:
        user, nice, system, _, _, *interrupts = map(int, stream.readline().split()[1:9])
    return (user + nice + system + sum(interrupts[:2])) * TICK - time.process_time()


def wait_for_quiet(most: float = 30.0) -> None:
    """Until others hardly use the cores, or so many seconds have passed."""
    end = time.monotonic() + most
    while time.monotonic() < end:
        before = busy_seconds()
        time.sleep(0.2)
        if busy_seconds() - before <= 2 * TICK:
            return


def settings_of(devices: list[int], threads: int, batches: int | None) -> list[Setting]:
    """Every schedule that a number of devices has; the base comes first."""
    found = []
    for count in devices:
        for schedule in SCHEDULES:
            if schedule == "pipeline" and count == 1:
                continue
            own = None if (schedule, count) == BASE else batches
            request = TaskgraphSettings(schedule, count, batches=own)
            found.append(Setting(schedule, count, Options(max(threads, count), settings=request)))
    return found


def run(setting: Setting, prepared: Prepared, inputs: Inputs, runner, patient: bool = True) -> Result:
    """One run of a session made for it, when the machine is quiet (`patient`); all give the same output, to the bit.

    Raises:
        SystemExit: another output.
    """
    session = runner.open(prepared, inputs, setting.options)
    if patient:
        wait_for_quiet()
    before = busy_seconds()
    result, seconds = measure.time_call(session.run)
    others = max(0.0, busy_seconds() - before - TICK) / (seconds * usable_cores())
    session.tell(result)
    setting.decomposition = session.decomposition
    if setting.digest not in ("", result.digest):
        sys.exit(f"{setting.schedule} on {setting.devices}: another output than before")
    setting.digest = result.digest
    setting.seconds.append(seconds)
    setting.others.append(others)
    if setting.best == len(setting.seconds) - 1:
        spent = measure.Samples([0.0], [0.0], [seconds])
        setting.fastest = measure.measurement_of(
            runner.name, prepared, inputs, setting.options, session.findings, session.span, result, spent
        )
    return result


def verified(setting: Setting, prepared: Prepared, inputs: Inputs, runner) -> Verdict:
    """The verdict on a first run, which is not timed.

    Raises:
        SystemExit: the output is wrong.
    """
    result = run(setting, prepared, inputs, runner, patient=False)
    setting.seconds.clear()
    setting.others.clear()
    verdict = judge(prepared.source, inputs, result)
    if not verdict.passed:
        sys.exit(f"{setting.schedule} on {setting.devices}: {'; '.join(verdict.reasons)}")
    return verdict


def compared(found: list[Setting], record: RunRecord) -> list[dict]:
    """A row for each setting, measured and predicted."""
    rows = []
    for case in found:
        predicted = simulate(case.decomposition, *costs_of(record, case.devices))
        measured = case.seconds[case.best]
        rows.append({
            "schedule": case.schedule, "devices": case.devices, "batches": case.decomposition.batches,
            "measured": measured, "predicted": predicted.seconds, "error": predicted.seconds / measured - 1,
            "bound": predicted.bound, "samples": case.seconds, "others": case.others[case.best], "quiet": case.quiet,
            "timeline": case.fastest.engine.noted["timeline"],
            "simulated": [span.as_list() for span in predicted.timeline],
        })  # fmt: skip
    return rows


def printed(rows: list[dict], reductions: str, record: RunRecord) -> None:
    """The table."""
    print(f"\nreductions {reductions}; calibrated by {BASE[0]} on one device, {record.threads} threads")
    head = ("schedule", "devices", "batches", "measured", "others", "predicted", "error")
    print(" ".join(f"{cell:>10}" for cell in head))
    for row in rows:
        times = f"{row['measured']:>8.3f} s {row['others']:>10.1%} {row['predicted']:>8.3f} s {row['error']:>+10.1%}"
        above = "  not quiet" if not row["quiet"] else "" if abs(row["error"]) <= BAR else "  above the bar"
        print(f"{row['schedule']:>10} {row['devices']:>10} {row['batches']:>10} {times}{above}")
    errors = [abs(row["error"]) for row in rows[1:] if row["quiet"]] or [float("nan")]
    middle, worst = statistics.median(errors), max(errors)
    print(f"error of {len(errors)} settings: median {middle:.1%}, worst {worst:.1%}; the bar is {BAR:.0%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--neurons", type=int, default=4096)
    parser.add_argument("--layers", type=int, default=120)
    parser.add_argument("--count", type=int, help="inputs (default: all)")
    parser.add_argument("--reductions", default="dead,all", help="which to compare, each by itself")
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--devices", default="1,2,4")
    parser.add_argument("--batches", type=int, help="of every setting but the base (default: as each schedule has)")
    parser.add_argument("--rounds", type=int, default=5, help="quiet runs of each setting")
    parser.add_argument("--seconds", type=float, default=300, help="for them, at most, for each of the reductions")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    runner, network = engine("taskgraph"), RadixNet(args.neurons, args.layers)
    inputs, by_network = load_named_inputs("mnist", args.neurons, args.count), {}
    for name in args.reductions.split(","):
        prepared = runner.prepare(network, parse_reductions(name, runner.offers), None)
        found = settings_of([int(part) for part in args.devices.split(",")], args.threads, args.batches)
        judged = [verified(case, prepared, inputs, runner) for case in found]
        end = time.monotonic() + args.seconds
        while any(not case.seconds for case in found) or time.monotonic() < end:
            case = min(found, key=lambda case: (case.quiet, len(case.seconds)))
            if case.quiet >= args.rounds:
                break
            run(case, prepared, inputs, runner)
        if not found[0].quiet:
            sys.exit(
                "the machine was never quiet during a resident run on one device: there is nothing to calibrate by"
            )
        base = found[0].fastest
        base = replace(base, machine=measure.ceilings(runner, found[0].options))
        record = record_of("schedules", base, judged[0], "benchmarks/schedules.py")
        by_network[name] = compared(found, record)
        printed(by_network[name], name, record)
    if args.json:
        write_text(args.json, json.dumps(by_network) + "\n")


if __name__ == "__main__":
    main()
