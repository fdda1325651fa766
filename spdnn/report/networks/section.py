"""The section on the twelve networks: a row for each, and every run and published figure that rows are chosen from.

Our runs and the published figures are compared by the challenge's rate; a ratio names the span of theirs where ours has
another.
"""

import re
from collections.abc import Iterator, Sequence

import numpy as np

from spdnn.core import challenge
from spdnn.report.common import words
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import canvas, colours, despine, line, logarithmic, set_ticks
from spdnn.report.common.run_rows import RunRow
from spdnn.runs.records.published import DEVICES, KINDS, Baseline, Ratio

_AUTHORS = re.compile(r" \((?!as )[^)]*\)")  # who made a system; not who ran it
SERIES = ("reduced", "like", "plain")  # ours: work avoided, the same work as published systems, nothing left out
NAMES = {"reduced": "work avoided, exactly", "like": "same work", "plain": "no reductions"}
PUBLISHED = {"one": "one device", "any": "any", "lossy": "any"}  # exact on one device and on any, lossy; the devices
LEAST = 3  # networks of different sizes, for a slope
MARKS = {"reduced": ("*", 0), "like": ("D", 1), "plain": ("P", 4), "solution": ("s", 2)}  # mark, colour
SOLUTION = "time to solution, work avoided"


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of one of the twelve."""
    official = [run for run in collection.own if run.official_size]
    if not official:
        return None
    rows = twelve(collection)
    ran = [row for row in rows if any(row[name] for name in SERIES)]
    rated = [row for row in collection.baselines if row.neurons and row.edges_per_second]
    return {
        "own": official,
        "names": NAMES,
        "series": [name for name in SERIES if any(row[name] for row in rows)],
        "twelve": rows,
        "rows": ran,
        "absent": len(rows) - len(ran),
        "machines": machines(rows),
        "hardware": {name: hardware(rows, name) for name in PUBLISHED},
        "published": sorted(rated, key=lambda row: (row.neurons, row.layers, *_order(row))),
    }


@once
def twelve(collection: Collection) -> list[dict]:
    """A row for each official network, run or not.

    Each has the best of ours of each of SERIES, runs on the official inputs before others and quiet machines before
    busy ones, and of each of PUBLISHED the fastest (`best`), each with its `label`; None where there is none. Each
    Ratio to a published figure is in `times`, by (one of SERIES, one of PUBLISHED), of runs on the official inputs.
    """
    rows = []
    for problem in challenge.PROBLEMS:
        size = problem.neurons, problem.layers
        own = [run for run in collection.own if run.official_size == size]
        published = [row for row in collection.baselines if (row.neurons, row.layers) == size and row.edges_per_second]
        exact, lossy = ([row for row in published if row.lossy == kind] for kind in (False, True))
        ours = {name: _ours(own, name) for name in SERIES}
        best = {"one": _fastest(exact, DEVICES[:1]), "any": _fastest(exact, DEVICES)}
        best["lossy"] = _fastest(lossy, DEVICES)
        rows.append(
            {
                "key": key(*size),
                "neurons": problem.neurons,
                "layers": problem.layers,
                "edges": problem.edges,
                **ours,
                "best": best,
                "label": {devices: figure and label(figure) for devices, figure in best.items()},
                "times": {
                    (name, devices): Ratio.of(run.record, figure)
                    for name, run in ours.items() for devices, figure in best.items()
                    if run and run.comparable and figure
                },
            }
        )  # fmt: skip
    return rows


def hardware(rows: Sequence[dict], name: str) -> str:
    """What the best published figures of the rows ran on, of one of PUBLISHED: "one GPU", "up to 768 GPUs"."""
    best = [row["best"][name] for row in rows if row["best"][name]]
    if not best:
        return PUBLISHED[name]
    kinds = " or ".join(kind for kind in KINDS if any(figure.kind == kind for figure in best))
    most = max((int(figure.devices) for figure in best if figure.devices.isdecimal()), default=1)
    return f"one {kinds}" if most == 1 else f"up to {most:,} {kinds}s"


def machines(rows: Sequence[dict]) -> str:
    """What our runs in the rows ran on."""
    runs = [row[name] for row in rows for name in SERIES if row[name]]
    return words.listed(sorted({f"{run.hardware}, {run.threads_text}" for run in runs}), 2, "; ")


def key(neurons: int, layers: int) -> str:
    """A network's name in the page's attributes."""
    return f"{neurons}-{layers}"


def series(run: RunRow) -> str:
    """Which of SERIES a run belongs to."""
    return "like" if run.like_for_like else "reduced" if run.reduced else "plain"


def _ours(runs: Sequence[RunRow], name: str) -> RunRow | None:
    """The fastest of our runs of a series, the official inputs and quiet machines first; None without one."""

    def rank(run: RunRow) -> tuple:
        return run.comparable, not run.busy, run.rate.median, -run.number

    return max((run for run in runs if series(run) == name), key=rank, default=None)


def _fastest(rows: Sequence[Baseline], devices: Sequence[str]) -> Baseline | None:
    return min((row for row in rows if row.device_class in devices), key=_order, default=None)


def _order(row: Baseline) -> tuple:
    return -row.edges_per_second, row.system, row.devices, row.hardware


def label(row: Baseline) -> str:
    """A published figure's system and what it ran on, in a few words."""
    devices = f"{row.devices} × " if row.devices.isdecimal() else f"{row.devices}, " if row.devices else ""
    system = _AUTHORS.sub("", row.system)
    return words.printable(f"{system}, {devices}{row.hardware.split(' (')[0]}, {row.year}")


def figures(values: dict) -> Iterator[Figure]:
    """Seconds and peak memory against edges, both logarithmic; nothing for fewer than LEAST networks."""
    runs_of = {name: [row[name] for row in values["twelve"] if row[name]] for name in SERIES}
    runs_of = {name: runs for name, runs in runs_of.items() if len({run.problem.edges for run in runs}) >= LEAST}
    if not runs_of:
        return
    solved = [run for run in runs_of.get("reduced", ()) if run.solution]
    curves = [(name, NAMES[name], runs, lambda run: run.inference_seconds) for name, runs in runs_of.items()]
    if len({run.problem.edges for run in solved}) >= LEAST:
        curves.append(("solution", SOLUTION, solved, lambda run: run.solution.seconds))
    # Least squares of log seconds over log edges.
    slopes = {}
    for name, _, runs, measure in curves:
        edges, seconds = [run.problem.edges for run in runs], [measure(run) for run in runs]
        slopes[name] = float(np.polyfit(np.log(edges), np.log(seconds), 1)[0])
    rows = [
        (run.case, label, run.problem.edges, measure(run), run.record.peak_memory_bytes)
        for _, label, runs, measure in curves for run in runs
    ]  # fmt: skip
    first = next(iter(runs_of.values()))
    tips = {run.number: f"{run.case}: {run.inference_seconds:.4g} s" for run in first}
    yield Figure(
        "growth",
        "Time and memory against the edges of a network",
        "Both axes logarithmic. Large marks: medians; dots: every repeat. The slope is that of a fit, seconds = "
        "c × edges^slope, over networks of all widths. Memory: the peak of the process, inputs included.",
        _plot(curves, slopes),
        ("case", "what", "edges", "seconds", "peak memory, bytes"),
        rows,
        tips,
        _plot(curves, slopes, True),
    )


def _plot(curves: Sequence[tuple], slopes: dict[str, float], narrow: bool = False):
    shape = (2, 1) if narrow else (1, 2)
    plot, (times, memory) = canvas(6.4 if narrow else 4.0, *shape, narrow=narrow)
    palette, handles = colours(), []
    for name, label, runs, measure in curves:
        mark, hue = MARKS[name]
        colour, edges = palette[hue], [run.problem.edges / 1e9 for run in runs]
        if name != "solution":
            for run in runs:
                times.plot([run.problem.edges / 1e9] * run.repeats, run.record.seconds, linestyle="", marker=".",
                           markersize=3, color=colour, alpha=0.5)  # fmt: skip
        for run in runs:
            identity = f"{RECORD}{run.number}" if name == curves[0][0] else None
            times.scatter(
                [run.problem.edges / 1e9], [measure(run)], marker=mark, s=46, color=colour, zorder=3, gid=identity
            )
        if name != "solution":
            memory.scatter(edges, [run.record.peak_memory_bytes / 2**30 for run in runs], marker=mark, s=46,
                           color=colour, zorder=3)  # fmt: skip
        slope = words.significant(slopes[name], 2)
        handles.append(line(f"{label}, slope {slope}", linestyle="", marker=mark, color=colour))
    for axes, what in ((times, "seconds"), (memory, "peak memory, GiB")):
        logarithmic(axes, "xy")
        axes.set_xlabel("edges of the network, 10⁹")
        axes.set_ylabel(what)
    set_ticks(memory.yaxis, [run.record.peak_memory_bytes / 2**30 for _, _, runs, _ in curves for run in runs])
    despine(plot)
    plot.legend(handles=handles, loc="outside upper left", ncols=1 if narrow else 2, frameon=False)
    return plot
