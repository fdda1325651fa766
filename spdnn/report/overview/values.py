"""The first screen: one claim that holds, four numbers, and every network in one figure.

The claim compares with exact published systems only like for like: the official inputs, and no work left out but that
of dead inputs, which the fastest of these leave out as well. Where no run is that, it says what its rate is of.
"""

import statistics
from collections.abc import Sequence

from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.run_rows import Run
from spdnn.report.networks.values import PUBLISHED, SERIES, hardware, machines, twelve

PRESET = "config/like-for-like.yaml"


def values(collection: Collection) -> dict | None:
    """What the first screen prints; None where no run was timed.

    Returns:
        claim, lead: a sentence and what it is of; numbers: (label, number, unit, what it is of) of up to three; rows:
        of the twelve networks that were run, as `twelve` has them; machines, hardware: what ours and the best
        published ran on; busy: how many runs were on a busy machine.
    """
    if not collection.own:
        return None
    rows = [row for row in twelve(collection) if any(row[name] for name in SERIES)]
    claim, lead = _compared(rows) or _fastest(rows) or _own(collection.own)
    return {
        "claim": claim,
        "lead": lead,
        "numbers": _numbers(collection.own, rows),
        "rows": rows,
        "machines": machines(rows),
        "hardware": {name: hardware(rows, name) for name in PUBLISHED},
        "busy": sum(bool(run.busy) for run in collection.own),
        "runs": len(collection.own),
    }


def _compared(rows: Sequence[dict]) -> tuple[str, str] | None:
    """Like for like, on the official inputs."""
    rows = [row for row in rows if ("like", "one") in row["times"]]
    if not rows:
        return None
    times = [row["times"]["like", "one"] for row in rows]
    figures = statistics.geometric_mean(times), min(times), max(times)
    mean, low, high = (words.significant(value, 2) for value in figures)
    claim = f"Like for like, {mean} times the best published exact rate on {hardware(rows, 'one')}"
    span = (
        f"geometric mean of {words.plural(len(times), 'network')}, {low} to {high}" if len(times) > 1 else "one network"
    )
    ours = machines([{**dict.fromkeys(SERIES), "like": row["like"]} for row in rows])
    lead = f"{span}; official inputs, and only dead inputs left out. Ours: {ours}."
    if once := sum(row["like"].repeats == 1 for row in rows):
        lead += f" Of one repeat alone: {once} of {words.plural(len(rows), 'rate')}."
    return claim, lead[0].upper() + lead[1:]


def _fastest(rows: Sequence[dict]) -> tuple[str, str] | None:
    """The highest rate of one of the twelve, on the official inputs if any was; compared with nothing."""
    runs = [(row[name], name) for row in rows for name in SERIES if row[name]]
    if not runs:
        return None
    run, name = max(runs, key=lambda one: (one[0].comparable, one[0].rate.median))
    how = {"reduced": "with exact reductions", "like": "with dead inputs left out", "plain": "without reductions"}[name]
    claim = f"{words.significant(run.rate.median / 1e12, 3)} TeraEdges/s {how}, on {run.name}"
    if not run.comparable:
        told = f"Inputs: {run.inputs}, not the challenge's, so no ratio to published rates is given."
    else:
        told = "Official inputs. Exact published systems leave less work out, so no ratio to them is given "
        told += f"({PRESET} makes runs like for like)."
    return claim, f"{told} {run.hardware}, {run.threads_text}{_once(run)}."


def _own(runs: Sequence[Run]) -> tuple[str, str]:
    """Networks of one's own: inputs a second of the fastest."""
    run = max(runs, key=lambda run: run.inputs_per_second)
    rate = words.significant(run.inputs_per_second, 3)
    return f"{rate} inputs a second through {run.name}", f"{run.network_text}; {run.reductions} left out."


def _once(run: Run) -> str:
    return ", one repeat" if run.repeats == 1 else ""


def _numbers(runs: Sequence[Run], rows: Sequence[dict]) -> list[tuple[str, str, str, str]]:
    """(label, number, unit, what it is of) of up to three."""
    numbers = []
    for name, label in (("reduced", "with reductions"), ("like", "like for like"), ("plain", "no reductions")):
        if ours := [row[name] for row in rows if row[name]]:
            best = max(ours, key=lambda run: (run.comparable, run.rate.median))
            rate = words.significant(best.rate.median / 1e12, 3)
            numbers.append((label, rate, "TeraEdges/s", best.name + _once(best)))
    best = min(runs, key=lambda run: run.inference_seconds)
    numbers.append(("inference", words.significant(best.inference_seconds, 3), "s", best.short + _once(best)))
    if solved := [run for run in runs if run.solution]:
        slowest = max(solved, key=lambda run: run.solution.seconds)
        seconds = words.significant(slowest.solution.seconds, 3)
        numbers.insert(2, ("to a verified result, at most", seconds, "s", slowest.name))
    return numbers[:3]
