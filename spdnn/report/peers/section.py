"""The section on peers: other libraries on the same problem, timed alternately with ours in one process.

Each library has its ratio to ours by pairs of samples, so that other load on the machine slows both samples of a pair.
"""

from collections.abc import Iterator, Sequence

from spdnn.core.statistics import ratios
from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import MOST_DRAWN, RECORD, Figure
from spdnn.report.common.plotting import INK, canvas, colours, logarithmic, name_rows
from spdnn.report.common.run_rows import RunRow, group_by
from spdnn.runs.records.notes import LibraryNotes

OURS = "cpu"  # the engine of a comparison that the others are set against


def values(collection: Collection) -> dict | None:
    """What the section prints: {label, ours, rows} of each comparison; None without one."""
    runs = [run for run in collection.runs if run.record.comparison and run.record.ranks == 1]
    groups = group_by(runs, lambda run: (run.record.comparison, *run.problem_key))
    comparisons = [comparison for members in groups.values() if (comparison := _comparison(members))]
    return {"comparisons": comparisons} if comparisons else None


def _comparison(members: Sequence[RunRow]) -> dict | None:
    """One problem, each engine with its ratio to ours, the fastest first; None without ours or another."""
    own = [run for run in members if run.record.engine.name == OURS]
    ours = max(own, key=lambda run: len(run.record.reductions.requested), default=None)
    if ours is None or len(members) < 2:
        return None
    rows = [_row(run, ours) for run in members if run.repeats == ours.repeats]
    rows.sort(key=lambda row: row["ratio"].median)
    label = f"{ours.problem.neurons:,} × {ours.problem.layers:,}, {ours.inputs} inputs"
    return {"label": label, "ours": ours, "rows": rows}


def _row(run: RunRow, ours: RunRow) -> dict:
    """One engine, with its ratio to ours."""
    notes = run.notes(LibraryNotes)
    return {
        "run": run,
        "is_ours": run is ours,
        "ratio": ratios(ours.record.seconds, run.record.seconds),
        "library": words.printable(notes.library or "this project"),
        "one_thread": notes.threads_used == 1,
    }


def figures(values: dict) -> Iterator[Figure]:
    """Times as long as ours, by library: a point for each with its interval, in a colour of its problem."""
    shown = values["comparisons"][:MOST_DRAWN]
    rows = [(comparison["label"], row) for comparison in shown for row in comparison["rows"] if not row["is_ours"]]
    if not rows:
        return
    settings = sorted({comparison["ours"].setting for comparison in shown})
    plot, axes = canvas(1.4 + 0.32 * len(rows))
    palette = dict(zip(dict.fromkeys(label for label, _ in rows), colours(12), strict=False))
    for index, (label, row) in enumerate(rows):
        ratio = row["ratio"]
        axes.plot([ratio.low, ratio.high], [index, index], color=INK, linewidth=1.2, zorder=2)
        axes.scatter([ratio.median], [index], color=palette[label], s=44, zorder=3, gid=f"{RECORD}{row['run'].number}")
    axes.axvline(1, color=INK, linewidth=1)
    logarithmic(axes, "x")
    axes.set_xlabel("times as long as ours")
    name_rows(plot, axes, [f"{row['run'].engine}, {label}" for label, row in rows])
    yield Figure(
        "peers",
        "Times as long as ours, by library and problem",
        "How many times as long as ours each library took, on a logarithmic scale: median over pairs of samples "
        "taken alternately, with the interval of that median. Right of the line, ours is faster. Ours: "
        f"{words.listed(settings, between='; ')}.",
        plot,
        ("problem", "engine", "times as long as ours", "low", "high"),
        [(label, row["run"].engine, *row["ratio"][:3]) for label, row in rows],
        {row["run"].number: f"{row['run'].case}: {row['ratio'].median:.3g}" for _, row in rows},
    )
