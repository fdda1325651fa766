"""The first screen: what ran and how it ended, how fast, against whom, and every network in one figure.

Runs are in two divisions, as in MLPerf's rules. Same work: the official inputs, and only dead inputs left out, which
the fastest exact published systems leave out as well. Work avoided, exactly: with more reductions.
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from spdnn.core.shown import listed, plural, printable, significant, size, time
from spdnn.core.table import Phrase, Styled, mark
from spdnn.report.calls import Called, called
from spdnn.report.cases import every_case, outcome
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Paragraph, Section, Tiles
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import INK, NO_COLOUR, canvas, colours, line, logarithmic, name_rows, set_ticks
from spdnn.report.common.run_rows import BUSY_MARK, RunRow, group_by
from spdnn.report.networks import NAMES, Size, hardware, machines, series, twelve
from spdnn.report.networks import label as published
from spdnn.runs.records.published import Ratio
from spdnn.runs.records.run_record import busy_part

NAME = "overview"
MOST_SENTENCES = 4  # of networks that were called
PRESET = "config/like-for-like.yaml"
WIDEST_LEGEND = 3  # entries in one line of it
# (name of a series, label, mark, index into "colorblind"); ours are filled, published ones hollow, with their hardware.
MARKS = (
    ("reduced", "ours, work avoided exactly", "*", 0),
    ("like", "ours, same work", "D", 1),
    ("plain", "ours, no reductions", "P", 4),
    ("one", "best published, exact, {}", "o", 2),
    ("any", "best published, exact, {}", "^", 3),
    ("lossy", "best published, lossy, {}", "v", 5),
)


class Header(NamedTuple):
    """What the page says first.

    Attributes:
        ran: machines, days and commits; title: the page's; verdict: how it ended, and what was compared.
        state: as of `cases.Outcome`.
        speed: sentences, the first is the most important.
        short: what ran and how it ended.
    """

    ran: Phrase
    title: str
    verdict: Phrase
    state: str
    speed: Sequence[str]
    short: str


def header(collection: Collection) -> Header:
    """What the page says first: what ran, how it ended, how fast, against whom."""
    ended, own, networks = outcome(collection), collection.own, called(collection)
    rows, title, what, speed = ran(collection), "", "", []
    if own:
        what = _what([run.name for run in own], {run.official_size for run in own if run.official_size})
        speed = (_comparison_texts(rows) or _fastest(rows)) if rows else _own(own, networks)
    elif networks:
        what = _what([network.name for network in networks])
        results = [f"{network.name}: {network.short}" for network in networks[:MOST_SENTENCES]]
        title, speed = (results[0], []) if len(networks) == 1 else ("", [f"{result}." for result in results])
    short = f"{what}: {ended.short}" if what else ended.ending
    whole = not what or bool(title) or ended.state != "passed"  # whether the title does not say how it ended
    where = Styled("Each case" if every_case(collection) or collection.missing else "Verification", href="#cases")
    verdict = f"{ended.ending} " * whole + ended.compared, " ", where
    title = title if title and ended.state == "passed" else short if what else "Sparse DNN inference: verified results"
    records, facts = [*collection.records, *collection.operations], []
    if records:
        days = sorted(record.created[:10] for record in records)
        facts = [
            "spdnn report",
            listed(sorted({words.machine(one.environment) for one in records}), 2, "; "),
            " to ".join(dict.fromkeys([days[0], days[-1]])),
            f"commit {listed(sorted({one.environment.commit or 'unknown' for one in records}), 2)}",
            *(collection.decided if what else ()),
        ]
    return Header(" · ".join(facts), title, ended.ending if collection.empty else verdict, ended.state, speed, short)


def section(collection: Collection) -> Section | None:
    """The first screen; None where nothing was timed but operations."""
    own, networks, rows = collection.own, called(collection), ran(collection)
    if not (own or networks):
        return None
    if own:
        unit, (of, numbers) = "run", _cards(own, rows, networks)
        busy, older = [bool(run.busy) for run in own], [run.older for run in own]
    else:
        unit, of, numbers = "batch size", networks[0].name, _latency(networks[0])
        busy, older = [bool(busy_part(calls[0].ours)) for network in networks for calls in network.batches], []
    notes = []
    if any(busy):
        why = Styled("other work", "term", "#term-busy-machine")
        notes += [BUSY_MARK, f" in {_of_all(busy, unit)}: ", why, " may have slowed them. "]
    if any(older):
        why = Styled("spdnn changed", "term", "#term-older-code")
        notes += [mark("older code"), f" in {_of_all(older, unit)}: ", why, " before the newest run."]
    blocks: list[Block] = [Paragraph(f"{of}{', the largest' if len(rows) > 1 else ''}:", "of-cards"), Tiles(numbers)]
    blocks += [Paragraph(notes, "note busy")] if notes else []
    return Section(NAME, "Overview", [*blocks, *([figure(rows)] if rows else [])])


def ran(collection: Collection) -> list[Size]:
    """Those of the twelve networks that were run."""
    return [row for row in twelve(collection) if row.runs]


def _of_all(which: Sequence[bool], unit: str) -> str:
    """How many of all units."""
    count = len(which)
    if sum(which) < count:
        return f"{sum(which)} of {plural(count, unit)}"
    return {1: f"the only {unit}", 2: f"both {unit}s"}.get(count, f"all {plural(count, unit)}")


def _what(every: Sequence[str], official: Iterable[tuple[int, int]] = ()) -> str:
    """The networks that ran, by their names; `official`: the sizes of those of the challenge."""
    names = list(dict.fromkeys(every))
    if len(names) <= 2:
        return " and ".join(names)
    return (
        "The twelve networks of the challenge" if len(set(official)) == len(names) == 12 else f"{len(names)} networks"
    )


def _comparison_texts(rows: Sequence[Size]) -> list[str]:
    """How our rates compare with published ones, by division; empty where no run is on the official inputs."""
    same, exact, lossy = (
        {row.key: ratio for row in rows if (ratio := row.ratio(*pair))}
        for pair in (("like", "one"), ("reduced", "one"), ("reduced", "lossy"))
    )
    ours, best, sentences = _cores(rows), f"the best published exact result on {hardware(rows, 'one')}", []
    if same:
        once = sum(row.ours["like"].repeats == 1 for row in rows if row.key in same)
        count = "" if len(same) == 1 else "each " if once == len(same) else f"{once} of {len(same)} "
        sentences.append(
            f"Same work: {ours} {'is' if ours.startswith('one ') else 'are'} {_against(same, best)}"
            f"{f'; {count}measured once' if once else ''}."
        )
    if exact:
        again = _included(same) == _included(exact) and same.keys() == exact.keys()
        against = _against(exact, "that", False) if again else _against(exact, best)
        beside = f", {_against(lossy, 'the best lossy result')}" if lossy else ""
        sentences.append(f"Work avoided, exactly: {against}{beside}.")
    return sentences


def _against(ratios: Mapping[str, Ratio], best: str, say: bool = True) -> str:
    """How many times as fast as the published `best`, or slower, in the geometric mean of networks and their range;
    and, unless a sentence before said it, what its times include."""
    times = [ratio.times for ratio in ratios.values()]
    slower = statistics.geometric_mean(times) < 1
    times = [1 / each for each in times] if slower else times
    mean, low, high = (significant(number, 2) for number in (statistics.geometric_mean(times), min(times), max(times)))
    span = "" if low == high else f" (geometric mean, {low} to {high})"
    return f"{mean}{span} times {'slower than' if slower else 'as fast as'} {best}{_included(ratios) if say else ''}"


def _included(ratios: Mapping[str, Ratio]) -> str:
    """What published times include where ours include something else, in brackets; empty where all include the same."""
    spans = Counter(ratio.theirs for ratio in ratios.values() if ratio.theirs).most_common()
    texts = [f"{span} in {count} of {len(ratios)}" if len(ratios) > 1 else span for span, count in spans]
    return f" (their time: {', '.join(texts)})" if texts else ""


def _cores(rows: Sequence[Size]) -> str:
    """The hardware of our runs in short: "2 CPU cores", or the GPU."""
    runs = [run for row in rows for run in row.runs]
    gpus = sorted({printable(run.record.environment.gpu) for run in runs if run.record.environment.gpu})
    if gpus:
        return f"one {listed(gpus, 2)}"
    counts = [min(run.record.threads * run.record.ranks, run.record.environment.cores) for run in runs]
    low, high = min(counts), max(counts)
    return "one CPU core" if high == 1 else f"{high if low == high else f'{low} to {high}'} CPU cores"


def _fastest(rows: Sequence[Size]) -> list[str]:
    """The highest rate of one of the twelve, compared with nothing."""
    run = max((run for row in rows for run in row.runs), key=lambda run: run.rate.median)
    return [
        f"Fastest: {significant(run.rate.median / 1e12, 3)} TeraEdges/s on {run.name} ({NAMES[series(run)]}"
        f"{_once(run)}). Inputs: {run.inputs}, not the challenge's, so no rate is compared with published ones "
        f"({PRESET} runs the official inputs)."
    ]


def _own(runs: Sequence[RunRow], networks: Sequence[Called]) -> list[str]:
    """Networks of one's own: a call beside other libraries, or inputs a second of the fastest run."""
    if networks:
        return [f"{result}." for result in networks[0].results]
    run = max(runs, key=lambda run: run.inputs_per_second)
    rate = significant(run.inputs_per_second, 3)
    return [f"{rate} inputs a second through {run.name}, {run.problem.input_count:,} in a batch{_once(run)}."]


def _once(run: RunRow) -> str:
    return ", measured once" if run.repeats == 1 else ""


def _cards(
    runs: Sequence[RunRow], rows: Sequence[Size], networks: Sequence[Called]
) -> tuple[str, list[tuple[str, str, str, str]]]:
    """(a network: the largest of the twelve, or the one of most edges; its numbers: what, number, unit, of what)."""
    if rows:
        row = max(rows, key=lambda row: row.problem.edges)
        first = row.runs[0]  # of which memory and the whole time are
        numbers = [
            (NAMES[name], significant(run.rate.median / 1e12, 3), "TeraEdges/s", _seconds(run))
            for name in ("like", "reduced", "plain") if (run := row.ours[name])
        ]  # fmt: skip
        if first.solution:
            number, unit = time(first.solution.seconds).split()
            numbers.append(("time to solution", number, unit, f"verified; {_division(first)}"))
    else:
        members = max(group_by(runs, lambda run: run.problem_key).values(), key=lambda some: some[0].problem.edges)
        first, best = members[0], min(members, key=lambda run: run.inference_seconds)
        number, unit = time(best.inference_seconds / best.problem.input_count).split()
        numbers = _latency(networks[0]) if networks else [
            ("throughput", significant(best.inputs_per_second, 3), "inputs/s", _seconds(best)),
            ("time for an input", number, unit, f"in a batch of {best.problem.input_count:,}"),
        ]  # fmt: skip
        if labelled := [run for run in members if run.record.accuracy]:
            share = significant(100 * labelled[-1].record.accuracy.top1 / best.problem.input_count, 3)
            numbers.insert(0, ("accuracy", share, "%", f"top-1 of {best.problem.input_count:,} inputs"))
    held = first.record.engine.notes.device_peak_bytes
    number, unit = size(held or first.record.peak_memory_bytes).split()
    whose = "of the GPU" if held else _division(first) if rows else "of the process"
    numbers.append(("peak memory", number, unit, whose))
    return first.name, numbers[:4]


def _latency(network: Called) -> list[tuple[str, str, str, str]]:
    """The cards of a network's calls."""
    (few, *_), (many, *_) = network.batches[0], network.batches[-1]
    number, unit = time(few.seconds).split()
    of_few, of_many = (f"a call with {plural(call.batch, 'input')}" for call in (few, many))
    return [("latency", number, unit, of_few), ("throughput", significant(many.rate, 3), "inputs/s", of_many)]


def _division(run: RunRow) -> str:
    return NAMES[series(run)].partition(",")[0]


def _seconds(run: RunRow) -> str:
    computed = ""
    if run.official_size and series(run) == "reduced":
        computed = f"; really computed: {significant(run.computed_rate / 1e12, 2)} TeraEdges/s"
    return f"{time(run.inference_seconds)}{_once(run)}{computed}"


class Point(NamedTuple):
    """A rate in the figure: of a series of ours or of a published kind, and whether on the challenge's inputs (`same`).

    `ends`: of its interval; None: measured once, or published.
    """

    row: Size
    series: str
    rate: float
    text: str
    same: bool = True
    number: int | None = None
    ends: tuple[float, float] | None = None


def figure(rows: Sequence[Size]) -> Figure:
    """One row for each of the twelve networks that was run."""
    points = [point for row in rows for point in _points(row)]
    labels = {name: label.format(hardware(rows, name) if name not in NAMES else "") for name, label, _, _ in MARKS}
    once = any(point.series in NAMES and point.ends is None for point in points)
    return Figure(
        "overview",
        "Every network: TeraEdges/s of ours and of the best published",
        "Networks by neurons × layers. TeraEdges/s: inputs × nonzeros ÷ inference seconds, skipped work included. "
        f"Ours on {machines(rows)}: medians, 95 % intervals{'; 1×: measured once' if once else ''}. "
        + (
            "Same work: only dead inputs left out, as the fastest exact published systems do. "
            "What published times include is in the table of these networks."
            if all(point.same for point in points)
            else "Pale: other inputs than the challenge's, so no published rates."
        ),
        partial(_plot, rows, labels, points),
        ("network", "who", "TeraEdges/s", "low", "high", "label", "comparable"),
        [
            (row.key, labels[name], *(rate / 1e12 for rate in (rate, *(ends or (rate, rate)))), text, same)
            for row, name, rate, text, same, _, ends in points
        ],
        {point.number: point.text for point in points if point.number is not None},
        narrow=True,
    )


def _points(row: Size) -> Iterator[Point]:
    for name, *_ in MARKS:
        if run := row.ours.get(name):
            rate = run.rate
            ends = (rate.low, rate.high) if run.repeats > 1 else None
            text = f"{run.case}: {rate.median / 1e12:.4g} TeraEdges/s"
            yield Point(row, name, rate.median, text, run.comparable, run.number, ends)
        elif (best := row.best.get(name)) and any(run.comparable for run in row.runs):
            yield Point(row, name, best.edges_per_second, published(best))


def _plot(rows: Sequence[Size], labels: Mapping[str, str], points: Sequence[Point], narrow: bool):
    names = {point.series for point in points}
    columns = 1 if narrow else min(len(names), WIDEST_LEGEND)
    lines = math.ceil(len(names) / columns) - 1
    plot, axes = canvas(1.2 + 0.24 * len(rows) + (0.2 if narrow else 0.3) * lines, narrow=narrow)
    palette, looks, handles = colours(), {}, []
    # Ours are filled, published ones hollow.
    for name, _, sign, hue in MARKS:
        looks[name] = sign, *((palette[hue], INK) if name in NAMES else ("#ffffff", palette[hue]))
        if name in names:
            label, (_, face, edge) = labels[name].replace("best ", "") if narrow else labels[name], looks[name]
            handles.append(line(label, linestyle="", marker=sign, markersize=8, markeredgecolor=edge,
                                markerfacecolor=face))  # fmt: skip
    for place, row in enumerate(rows):
        rates = [point.rate / 1e12 for point in points if point.row is row]
        axes.plot([min(rates), max(rates)], [place] * 2, color=NO_COLOUR, linewidth=1, zorder=1)
    for row, name, rate, _, same, number, ends in points:
        at, (sign, face, edge) = (rate / 1e12, rows.index(row)), looks[name]
        axes.scatter(
            *at, marker=sign, s={"*": 120, "P": 60}.get(sign, 46), facecolors=face, edgecolors=edge,
            linewidths=0.6 if name in NAMES else 1.6, alpha=None if same else 0.45, zorder=3,
            gid=None if number is None else f"{RECORD}{number}",
        )  # fmt: skip
        if ends:
            axes.plot([end / 1e12 for end in ends], [at[1]] * 2, color=INK, linewidth=2.2, zorder=2)
        elif name in NAMES:
            axes.annotate("1×", at, (0, 5), textcoords="offset points", ha="center", fontsize=7, color=INK)
    logarithmic(axes, "x")
    set_ticks(axes.xaxis, [point.rate / 1e12 for point in points])
    axes.set_xlabel(f"TeraEdges/s{chr(10) if narrow else '; '}ours: {printable(machines(rows), 60)}", loc="left")
    name_rows(plot, axes, [row.name for row in rows])
    plot.legend(handles=handles, loc="outside upper left", ncols=columns,
                columnspacing=0.8, handletextpad=0.1, fontsize=8 if narrow else 10)  # fmt: skip
    return plot
