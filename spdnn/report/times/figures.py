"""The figures on where the time goes: bars of seconds and of shares, survivors by layer, ladders by setting.

In the bars a case is a bar, and its lengths are parts of its time.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from spdnn.report.common import plotting, words
from spdnn.report.common.drawing import MOST_BARS, RECORD, Figure
from spdnn.report.common.plotting import INK, NO_COLOUR
from spdnn.report.common.words import significant
from spdnn.report.times.ladders import Curve
from spdnn.report.times.values import fastest

READ, PREPARE, INFERENCE = "read", "prepare", "inference"
INPUTS, VERIFICATION, REST = "inputs", "verification", "start, network, other"
KERNEL, COPY, WAIT, UNASSIGNED = "kernel", "copy", "wait", "unassigned"
# Indices into seaborn's "colorblind"; the timelines of schedules have the same colour for the same part.
COLOURS = {INPUTS: 2, VERIFICATION: 4, READ: 2, PREPARE: 8, INFERENCE: 0, KERNEL: 0, COPY: 1}
GREYS = {REST: "#c3c8cf", WAIT: "#c3c8cf", UNASSIGNED: "#f1f3f5"}
ORDER = (INPUTS, READ, PREPARE, INFERENCE, VERIFICATION, REST, KERNEL, COPY, WAIT, UNASSIGNED)
ON_DARK = (INFERENCE, KERNEL)
BLACK, WHITE = "#010101", "#fefefe"  # of letters on colours, light page or dark
HATCH = "////"
WIDE = 30  # where the longest whole is so many times the shortest, each bar is all of its own case
LEAST_NAMED = 0.09  # of the axis: shorter parts have no number on them


class TimeBar(NamedTuple):
    """One case.

    Attributes:
        label: the case, in short.
        record: the number of its record on the page.
        parts: seconds by name, in the order in which they are stacked.
        hatched: (name of the part, seconds of it that are hatched, from its end backwards); None: nothing is.
        note: text after the bar, besides its numbers.
        case: its long name, in the data and at a pointer.
    """

    label: str
    record: int
    parts: Mapping[str, float]
    hatched: tuple[str, float] | None = None
    note: str = ""
    case: str = ""


def figures(values: dict) -> Iterator[Figure]:
    """Seconds by case, shares of inference by case, survivors, and a figure for each ladder."""
    yield wholes(values["rows"])
    if values["split"]:
        yield shares(values["split"])
    if values["curves"]:
        yield survivors(values["curves"])
    yield from map(ladder, values["ladders"])


def wholes(rows: Sequence[dict]) -> Figure:
    """Seconds to a verified result by part, where records have them, else of read, prepare and inference.

    Where the wholes differ by WIDE, bars are shares of each case's own whole.
    """
    solved = [row for row in rows if row["run"].solution]
    rows = solved or rows
    shown = fastest(rows, MOST_BARS)
    bars = [_whole(row, bool(solved)) for row in shown]
    totals = [sum(bar.parts.values()) for bar in bars]
    relative = max(totals) > WIDE * min(totals)
    scales = [100 / total if relative and total else 1.0 for total in totals]
    ends = [f"{significant(total, 3)} s" for total in totals]
    whole = "time to solution" if solved else "read + prepare + inference"
    label = f"% of the case's own {whole}" if relative else "seconds"
    hatched = "copies to a GPU"

    def plot(narrow: bool = False):
        return _stack_bars(bars, scales, ends, label, hatched, narrow)

    how = " The totals differ very much, so each bar is 100 % of its own case." if relative else ""
    return Figure(
        "times-whole",
        f"Seconds of {whole} by case",
        f"{whole[0].upper()}{whole[1:]} by part; only inference enters the rate.{how}{_omission_text(shown, rows)}",
        plot(),
        ("case", "part", "seconds"),
        [(bar.case, name, value) for bar in bars for name, value in _legend_parts(bar, hatched)],
        _tips(bars, hatched),
        plot(True),
    )


def shares(rows: Sequence[dict]) -> Figure:
    """Percent of inference in each part; each bar is 100."""
    shown = fastest(rows, MOST_BARS)
    bars, hatched = [_part(row) for row in shown], "copies hidden behind a kernel"
    scales = [100 / sum(bar.parts.values()) for bar in bars]
    ends = []
    for bar, scale in zip(bars, scales, strict=True):
        hidden = f"{significant(bar.hatched[1] * scale, 3)} % copies, hidden" if bar.hatched else ""
        ends.append("; ".join(filter(None, (hidden, bar.note))))
    return Figure(
        "times-parts",
        "Shares of kernel, copy and wait in inference by case",
        "The parts of inference, where the record has them: each bar is 100 % of the seconds that were split. "
        "Copies that overlap a kernel are hatched: they are hidden in its time and take none of their own."
        f"{_omission_text(shown, rows)}",
        _stack_bars(bars, scales, ends, "% of inference", hatched),
        ("case", "part", "seconds", "% of the whole"),
        [
            (bar.case, name, value, value * scale) for bar, scale in zip(bars, scales, strict=True)
            for name, value in _legend_parts(bar, hatched)
        ],
        _tips(bars, hatched),
    )  # fmt: skip


def _whole(row: dict, solved: bool) -> TimeBar:
    """The bar of one row: the parts of its time to solution, or its seconds before and in inference."""
    run, copied = row["run"], row["uploaded"]
    if solved:
        parts = run.solution_parts
        seconds = {name: parts.pop(name) for name in (INPUTS, PREPARE, INFERENCE, VERIFICATION)}
        return TimeBar(run.short, run.number, seconds | {REST: sum(parts.values())}, case=run.case)
    seconds = {READ: run.read_seconds, PREPARE: run.prepare_seconds, INFERENCE: run.inference_seconds}
    return TimeBar(run.short, run.number, seconds, (READ, copied) if copied else None, case=run.case)


def _part(row: dict) -> TimeBar:
    """The bar of a row whose record splits inference."""
    run, parts = row["run"], row["parts"]
    seconds = {KERNEL: parts.kernel, COPY: parts.copy, WAIT: parts.wait, UNASSIGNED: parts.unassigned}
    stacked = {name: value for name, value in seconds.items() if value is not None}
    hidden, note = (KERNEL, parts.hidden) if parts.hidden else None, "kernel at most" if parts.joined else ""
    return TimeBar(run.short, run.number, stacked, hidden, note, run.case)


def _omission_text(shown: Sequence, of: Sequence) -> str:
    """A sentence on the cases that `fastest` chose, where these are not all."""
    sentence = f" {len(shown)} of {len(of):,} cases, the fastest of each network before others; the table has all."
    return "" if len(shown) == len(of) else sentence


def _stack_bars(
    bars: Sequence[TimeBar], scales: Sequence[float], ends: Sequence[str], label: str, hatched: str, narrow=False
):
    """One bar a case, as long as its parts times its scale, with a text after its end."""
    hues = plotting.colours()
    palette = {name: hues[index] for name, index in COLOURS.items()} | GREYS
    longest = max(scale * sum(bar.parts.values()) for bar, scale in zip(bars, scales, strict=True)) or 1.0
    plot, axes = plotting.canvas(1.0 + 0.3 * len(bars) + (0.7 if narrow else 0), narrow=narrow)
    for row, (bar, scale, end) in enumerate(zip(bars, scales, ends, strict=True)):
        plotting.write_after(axes, end, _bar(axes, row, bar, scale, palette, longest), row)
    axes.set_xlim(0, longest * (1.0 + (0.032 if narrow else 0.016) * max(map(len, ends))))
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= longest * 1.001])
    axes.set_xlabel(label, loc="left")
    plotting.name_rows(plot, axes, [plotting.fold(bar.label) for bar in bars], fontsize=9)
    _legend(plot, bars, palette, hatched, 2 if narrow else 9)
    return plot


def _bar(axes, row: int, bar: TimeBar, scale: float, palette: Mapping[str, str], longest: float) -> float:
    """Draw the bar of one case in its row; returns where it ends."""
    at, ranges, faces = 0.0, [], []
    for name, value in bar.parts.items():
        length = value * scale
        if value:
            ranges.append((at, length))
            faces.append(palette[name])
        if length > LEAST_NAMED * longest:
            share = 100 * value / sum(bar.parts.values())
            colour = WHITE if name in ON_DARK else INK if name in GREYS else BLACK
            axes.annotate(f"{share:.0f} %", (at + length / 2, row), va="center", ha="center", fontsize=8,
                          color=colour, zorder=4)  # fmt: skip
        at += length
        if bar.hatched and bar.hatched[0] == name:
            part = bar.hatched[1] * scale
            axes.broken_barh([(at - part, part)], (row - 0.31, 0.62), facecolors="none", edgecolors=INK,
                             linewidth=0, hatch=HATCH, zorder=3)  # fmt: skip
    axes.broken_barh(ranges, (row - 0.31, 0.62), facecolors=faces, edgecolors=NO_COLOUR, linewidth=0.4,
                     gid=f"{RECORD}{bar.record}", zorder=2)  # fmt: skip
    return at


def _legend_parts(bar: TimeBar, hatched: str) -> list[tuple[str, float]]:
    return [*bar.parts.items(), *([(hatched, bar.hatched[1])] if bar.hatched else [])]


def _tips(bars: Sequence[TimeBar], hatched: str) -> dict[int, str]:
    parts = [", ".join(f"{name} {significant(value)} s" for name, value in _legend_parts(bar, hatched)) for bar in bars]
    return {bar.record: f"{bar.case}: {text}" for bar, text in zip(bars, parts, strict=True)}


def _legend(plot, bars: Sequence[TimeBar], palette: Mapping[str, str], hatched: str, most: int) -> None:
    names = [name for name in ORDER if any(bar.parts.get(name) for bar in bars)]
    handles = [plotting.patch(name, facecolor=palette[name], edgecolor=NO_COLOUR, linewidth=0.4) for name in names]
    if any(bar.hatched for bar in bars):
        handles.append(plotting.patch(hatched, facecolor="none", edgecolor=INK, linewidth=0, hatch=HATCH))
    plot.legend(handles=handles, loc="outside lower left", ncols=min(most, len(handles)), frameon=False)


def survivors(curves: Sequence[Curve]) -> Figure:
    """Inputs with a nonzero row after each layer, both axes logarithmic; a curve that falls to 0 ends there."""
    plot, axes = plotting.canvas(3.0 + 0.2 * len(curves))
    palette = plotting.colours(len(curves), "colorblind" if len(curves) <= 10 else "husl")
    dashes = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)))
    lines = []
    for index, curve in enumerate(curves):
        dash = dashes[index % len(dashes)]
        lines += plotting.plot_counts(axes, curve.survivors, color=palette[index], linestyle=dash, linewidth=1.8)
    plotting.logarithmic(axes, "xy")
    axes.set_xlabel("layer")
    plotting.set_ticks(axes.yaxis, [count for curve in curves for count in curve.survivors])
    axes.set_ylabel("inputs with a nonzero row")
    plotting.despine(plot)
    labels = [plotting.fold(curve.label, 80) for curve in curves]  # two long ones would leave the axes no room
    plot.legend(lines, labels, loc="outside lower left", frameon=False)
    return Figure(
        "survivors",
        "Inputs with a nonzero row after each layer",
        "Both axes are logarithmic. A run whose counts are the first layers of a deeper one is not drawn again.",
        plot,
        ("network and inputs", "layer", "survivors"),
        [(curve.label, layer, count) for curve in curves for layer, count in enumerate(curve.survivors, 1)],
    )


def ladder(network: dict) -> Figure:
    """Seconds of each rung on a log scale, the slowest first; after each bar, how many times faster than the first."""
    rungs = network["rungs"]
    plot, axes = plotting.canvas(1.2 + 0.42 * len(rungs))
    floor = min(rung.low for rung in rungs) / 3
    for row, rung in enumerate(rungs):
        axes.barh(row, rung.seconds - floor, left=floor, color=plotting.colours()[0], height=0.62)
        axes.plot([rung.low, rung.high], [row, row], color=INK, linewidth=1.2)
        gain = f", {rungs[0].seconds / rung.seconds:,.3g} times as fast" if row else ""
        plotting.write_after(axes, f"{rung.seconds:.3g} s{gain}", rung.high, row, gap=6, size=9)
    plotting.logarithmic(axes, "x")
    axes.set_xlim(floor, rungs[0].high * 12)
    axes.set_xlabel("inference seconds")
    plotting.name_rows(plot, axes, [plotting.fold(rung.label, 56) for rung in rungs], fontsize=8)
    first = network["runs"][0]
    size = words.network(first.problem)
    time = f"Time: {network['span']}" if network["span"] else "Each setting names what its time includes"
    return Figure(
        network["id"],
        f"Inference seconds by setting, {size}",
        f"{first.inputs} inputs: median inference seconds, logarithmic, and their intervals. On {network['machine']}. "
        f"{time}.",
        plot,
        ("setting", "inference seconds", "low", "high"),
        rungs,
    )
