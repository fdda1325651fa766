"""How time and memory grow with the edges of the twelve networks."""

from collections.abc import Iterator, Sequence

import numpy as np

from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import canvas, colours, despine, line, logarithmic, set_ticks
from spdnn.report.common.words import significant
from spdnn.report.networks.values import NAMES, SERIES

LEAST = 3  # networks of different sizes, for a slope
MARKS = {"reduced": ("*", 0), "like": ("D", 1), "plain": ("P", 4), "solution": ("s", 2)}  # mark, colour
SOLUTION = "time to solution, work avoided"


def figures(values: dict) -> Iterator[Figure]:
    """Seconds and peak memory against edges, both logarithmic; nothing for fewer than LEAST networks."""
    series = {name: [row[name] for row in values["twelve"] if row[name]] for name in SERIES}
    series = {name: runs for name, runs in series.items() if len({run.problem.edges for run in runs}) >= LEAST}
    if not series:
        return
    solved = [run for run in series.get("reduced", ()) if run.solution]
    curves = [(name, NAMES[name], runs, lambda run: run.inference_seconds) for name, runs in series.items()]
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
    first = next(iter(series.values()))
    marked = {f"{RECORD}{run.number}": f"{run.case}: {run.inference_seconds:.4g} s" for run in first}
    yield Figure(
        "growth",
        "Time and memory against the edges of a network",
        "Both axes logarithmic. Large marks: medians; dots: every repeat. The slope is that of a fit, seconds = "
        "c × edges^slope, over networks of all widths. Memory: the peak of the process, inputs included.",
        _plot(curves, slopes),
        ("case", "what", "edges", "seconds", "peak memory, bytes"),
        rows,
        marked,
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
        handles.append(line(f"{label}, slope {significant(slopes[name], 2)}", linestyle="", marker=mark, color=colour))
    for axes, what in ((times, "seconds"), (memory, "peak memory, GiB")):
        logarithmic(axes, "xy")
        axes.set_xlabel("edges of the network, 10⁹")
        axes.set_ylabel(what)
    set_ticks(memory.yaxis, [run.record.peak_memory_bytes / 2**30 for _, _, runs, _ in curves for run in runs])
    despine(plot)
    plot.legend(handles=handles, loc="outside upper left", ncols=1 if narrow else 2, frameon=False)
    return plot
