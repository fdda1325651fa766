"""What the figures show, taken from the page's plain values."""

from __future__ import annotations

from collections.abc import Sequence

from spdnn.report.common import collection, words
from spdnn.report.common.collection import typed
from spdnn.report.networks.figures import OURS, OURS_RANKS, OURS_REDUCED, Curve, Point, Rung
from spdnn.taskgraph.calibration import decomposition_of

LEAST_RUNGS, MOST_RUNGS = 3, 24
MOST_POINTS = 20  # of ours, of one network in the figure of all


def points(networks: Sequence[dict]) -> list[Point]:
    """Our runs and the best published figures, of the official networks only."""
    found = []
    for network in networks:
        if not network["official"]:
            continue
        label = f"{network['neurons']} × {network['layers']}"
        for group in network["spans"]:
            for figure in group["figures"]:
                row, who, exact = figure["row"], figure["group"].devices, not figure["group"].lossy
                rate, told = (
                    row.edges_per_second,
                    f"{row.system}, {row.hardware}, {row.devices or 'devices not stated'}",
                )
                found.append(Point(label, rate, rate, rate, group["span"], who, exact, told))
        for run in collection.fair_runs(network["runs"], MOST_POINTS):
            rate, who = run["rate"], OURS_REDUCED if run["reduced"] else OURS
            who = who if run["ranks"] == 1 else OURS_RANKS
            ends = rate["median"], rate["low"], rate["high"]
            found.append(Point(label, *ends, run["span"], who, run["comparable"], run["case"], run["number"]))
    return found


def curves(runs: Sequence[dict], most: int) -> list[Curve]:
    """The survivors by network and inputs, less the runs whose counts begin those of a deeper one.

    Of more than `most`, one of each width comes before the second of any, and official inputs before others.
    """
    found: dict[tuple, list[Curve]] = {}
    for run in sorted(runs, key=lambda run: -run["record"]["problem"]["layers"]):
        problem, counts = run["record"]["problem"], tuple(run["record"]["result"]["survivors"])
        drawn = found.setdefault((problem["neurons"], run["inputs"], run["comparable"]), [])
        if not any(curve.survivors[: len(counts)] == counts for curve in drawn):
            label = f"{problem['neurons']:,} neurons × {problem['layers']:,} layers, {run['inputs']} inputs"
            drawn.append(Curve(label, counts))
    known = [(key, curve) for key in sorted(found) for curve in found[key]]
    shown = collection.fair(known, most, lambda one: one[0][0], lambda one: (one[0][2], len(one[1].survivors)))
    return [curve for _, curve in shown]


def ladders(runs: Sequence[dict]) -> list[dict]:
    """Runs of one rank on one machine, network and inputs, of at least LEAST_RUNGS settings: {run, rungs, runs, id}.

    The slowest is first. Of a setting that was run again the latest is shown; of more than MOST_RUNGS settings, so many
    evenly from the slowest to the fastest.
    """
    groups: dict[tuple, list[dict]] = {}
    for run in runs:
        if run["ranks"] > 1:
            continue
        problem = run["record"]["problem"]
        same = (problem["network_identity"], problem["layers"], problem["inputs_sha256"], problem["input_count"])
        where = words.machine(run["record"]["environment"])
        groups.setdefault((*same, run["span"].startswith("one layer"), where), []).append(run)
    found = []
    for same in groups.values():
        members = _rungs(same)
        labels = [", ".join(filter(None, _setting(run))) for run in members]
        if len(set(labels)) < LEAST_RUNGS:
            continue
        if len({run["span"] for run in members}) > 1:
            labels = [f"{label}: {run['span']}" for label, run in zip(labels, members, strict=True)]
        several = len({threads(run) for run in members}) > 1
        rungs = []
        for label, run in zip(labels, members, strict=True):
            name = f"{label}, {threads(run)}" if several else label
            rungs.append(Rung(name, run["seconds"]["inference"], *ends(run)))
        found.append({"run": members[0], "rungs": rungs, "runs": members, "id": f"ladder-{len(found) + 1}"})
    return found


def _rungs(runs: Sequence[dict]) -> list[dict]:
    """The latest run of each setting, the slowest first; not more than MOST_RUNGS."""
    latest = {}
    for run in sorted(runs, key=lambda run: (run["record"]["created"], run["case"])):
        latest[*_setting(run), threads(run), run["span"]] = run
    found = sorted(latest.values(), key=lambda run: (-run["seconds"]["inference"], run["number"]))
    last, most = len(found) - 1, MOST_RUNGS - 1
    return found if last <= most else [found[place * last // most] for place in range(MOST_RUNGS)]


def _setting(run: dict) -> tuple[str, str, str]:
    """Engine, reductions and, of the task graph, how it was cut."""
    return run["engine"], run["reductions"].replace("none", "no reductions"), cut(run["record"])


def cut(record: dict) -> str:
    """The schedule of a run of the task graph and its devices, in words; empty for any other."""
    made = decomposition_of(typed(record))
    return f"{made.schedule}, {words.plural(made.devices, 'device')}" if made else ""


def ends(run: dict) -> tuple[float, float]:
    """The ends of the interval of the median inference seconds; they follow from those of the rate."""
    rate, middle = run["rate"], run["seconds"]["inference"]
    low, high = (middle * rate["median"] / rate[end] if rate[end] else middle for end in ("high", "low"))
    return low, high


def configurations(runs: Sequence[dict]) -> list[str]:
    """Each engine setting of the runs once, as the captions print it."""
    return sorted({f"{run['engine']}, {threads(run)}, reductions: {run['reductions']}" for run in runs})


def threads(run: dict) -> str:
    """Threads, ranks and partition in words."""
    text = f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}"
    return text if run["ranks"] == 1 else f"{run['ranks']} ranks ({run['partition']}) of {text}"
