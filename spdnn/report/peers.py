"""The section on other libraries on the same problem, timed alternately with ours in one process.

Each library has its ratio to ours by pairs of samples, so that other load on the machine slows both samples of a pair.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from spdnn.core.shown import listed, plural
from spdnn.core.statistics import ratios
from spdnn.core.table import RATE, RATIO, SECONDS, Column, Table, between, code
from spdnn.report.common import words
from spdnn.report.common.blocks import Paragraph, Section
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import MOST_DRAWN, RECORD, Figure
from spdnn.report.common.plotting import INK, canvas, colours, logarithmic, name_rows
from spdnn.report.common.run_rows import RunRow, group_by
from spdnn.runs.records.notes import LibraryNotes

NAME, TITLE = "peers", "Other libraries"
ABSENT = (
    "Other libraries on the challenge's problems are not shown: none was timed. ",
    code("snakemake --configfile config/peers.yaml"), " and ", code("spdnn bench kernels"), " time them.",
)  # fmt: skip
HOW = (
    "Other libraries on the same problem, in one process with ours, timed alternately sample by sample. Under each "
    "ratio is the interval of the median over pairs of samples: other load on the machine slows both samples of a pair."
)
OURS = "cpu"  # the engine of a comparison that the others are set against
SHOWN_COMPARISONS = 8  # with other libraries, the latest


class Peer:
    """A run of a comparison, beside ours; `ratio`: how many times as long as ours it took."""

    def __init__(self, run: RunRow, ours: RunRow) -> None:
        self.run, self.notes = run, run.notes(LibraryNotes)
        self.ratio = ratios(ours.record.seconds, run.record.seconds)


class Comparison(NamedTuple):
    """One problem: ours, and a row for each run, ours too, the fastest first."""

    ours: RunRow
    rows: Sequence[Peer]

    @property
    def label(self) -> str:
        problem = self.ours.problem
        return f"{problem.neurons:,} × {problem.layers:,}, {self.ours.inputs} inputs"


PEERS = Table(
    "Other libraries on",
    [
        Column("Engine", lambda peer: peer.run.engine),
        Column("Library", lambda peer: peer.notes.library or "this project"),
        Column("Threads", lambda peer: f"{peer.run.threads_text}{', one used' * (peer.notes.threads_used == 1)}"),
        Column("Reductions on", lambda peer: peer.run.reductions),
        Column("Median", lambda peer: peer.run.rate.median, RATE),
        Column("Median", lambda peer: peer.run.inference_seconds, SECONDS),
        Column(
            "Times as long as ours", lambda peer: peer.ratio.median, RATIO,
            below=lambda peer: between(*peer.ratio[1:3], RATIO) if peer.ratio.resamples else "one pair",
        ),
        Column("Time includes", lambda peer: peer.run.includes),
    ],
    record=lambda peer: peer.run.number,
    kind=lambda peer: "ours" if peer.run.engine == OURS else "",
)  # fmt: skip


@once
def comparisons(collection: Collection) -> list[Comparison]:
    """The runs of each comparison with other libraries, on one rank; ours is the one with most reductions."""
    runs = [run for run in collection.runs if run.record.comparison and run.record.ranks == 1]
    found = []
    for members in group_by(runs, lambda run: (run.record.comparison, *run.problem_key)).values():
        own = [run for run in members if run.record.engine.name == OURS]
        if own and len(members) > 1:
            ours = max(own, key=lambda run: len(run.record.reductions.requested))
            rows = [Peer(run, ours) for run in members if run.repeats == ours.repeats]
            found.append(Comparison(ours, sorted(rows, key=lambda row: row.ratio.median)))
    return found


def section(collection: Collection) -> Section | None:
    """The section; None without a comparison."""
    every = comparisons(collection)
    if not every:
        return None
    shown = every[:MOST_DRAWN]
    rows = [(one.label, row) for one in shown for row in one.rows if row.run is not one.ours]
    figure = Figure(
        "peers",
        "Times as long as ours, by library and problem",
        "How many times as long as ours each library took, on a logarithmic scale: median over pairs of samples "
        "taken alternately, with the interval of that median. Right of the line, ours is faster. Ours: "
        f"{listed(sorted({one.ours.setting for one in shown}), between='; ')}.",
        partial(_plot, rows),
        ("problem", "engine", "times as long as ours", "low", "high"),
        [(label, row.run.engine, *row.ratio[:3]) for label, row in rows],
        {row.run.number: f"{row.run.case}: {row.ratio.median:.3g}" for _, row in rows},
    )
    tables = [
        PEERS.of(one.rows, title=f"{PEERS.title} {words.network(one.ours.problem)}, {one.ours.inputs} inputs")
        for one in every[:SHOWN_COMPARISONS]
    ]
    more = len(every) - SHOWN_COMPARISONS
    left = [Paragraph(f"{plural(more, 'comparison')} more, in the records.", "soft")] if more > 0 else []
    blocks = [Paragraph(HOW), *([figure] if rows else []), *tables, *left]
    return Section(NAME, TITLE, blocks, "Other libraries in the same run")


def _plot(rows: Sequence[tuple[str, Peer]], narrow: bool):
    """A point for each library with its interval, in a colour of its problem."""
    plot, axes = canvas(1.4 + 0.32 * len(rows), narrow=narrow)
    palette = dict(zip(dict.fromkeys(label for label, _ in rows), colours(12), strict=False))
    for index, (label, row) in enumerate(rows):
        median, low, high = row.ratio[:3]
        axes.plot([low, high], [index, index], color=INK, linewidth=1.2, zorder=2)
        axes.scatter([median], [index], color=palette[label], s=44, zorder=3, gid=f"{RECORD}{row.run.number}")
    axes.axvline(1, color=INK, linewidth=1)
    logarithmic(axes, "x")
    axes.set_xlabel("times as long as ours")
    name_rows(plot, axes, [f"{row.run.engine}, {label}" for label, row in rows])
    return plot
