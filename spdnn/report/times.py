"""The section on where the time goes: read, prepare, inference, and the parts of inference, and ladders of settings.

A record splits inference in one of three ways: by the clocks of several ranks, the timeline of a task graph, or the
events of a GPU. Seconds that none of them attributes are unassigned, never guessed.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple

from spdnn.core.shown import plural, significant
from spdnn.core.table import BYTES, NUMBER, PERCENT, SECONDS, SHORT, Column, Number, Phrase, Table, Unit, mark
from spdnn.report.common import plotting, words
from spdnn.report.common.blocks import Block, Fold, Paragraph, Part, Section, Terms, term
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN, Figure
from spdnn.report.common.plotting import INK, NO_COLOUR
from spdnn.report.common.run_rows import RunRow, fair, group_by, latest, run_name
from spdnn.report.common.tasks import decomposition_of, timeline_of
from spdnn.report.common.words import LANES, ONE_LAYER, STREAMED
from spdnn.runs.records.distribution import PER_REPEAT
from spdnn.runs.records.notes import Notes, TaskgraphNotes
from spdnn.runs.records.published import read_preparations
from spdnn.runs.records.samples import CLOCK, FOLLOWING_TOLERANCE, PARTS

NAME, TITLE = "times", "Where the time goes"

RANKS, TIMELINE, EVENTS, JOINED = "Clocks of the ranks", "Timeline", "Events of the GPU", "Kernel at most"
MEANINGS = {
    RANKS: "All seconds of all ranks in all repeats. Wait: for other ranks. Copy: messages, packing and unpacking rows "
    "included. Kernel: everything else that a rank did; where it also read weights, that is unassigned.",
    TIMELINE: "Each device has a lane that computes and lanes that copy, and the last repeat of each was recorded. The "
    "whole is the seconds of that repeat, for each device once. Kernel: the computing lane was busy, compaction and "
    "results included. Seconds after the last task are unassigned, and so is a captured graph that copies weights too.",
    EVENTS: "Two events on the GPU, before its first launch of a batch and after its last: kernel is the time between "
    "them, gaps between launches included. The rest of the last repeat is the host's, and unassigned.",
    JOINED: "The record's timeline has fewer entries than there were tasks: neighbours are one entry, so gaps between "
    "them count as busy.",
}
JOINED_MARK = mark("kernel at most")
COMPUTE = "compute"  # the lane of a device that computes; the others copy
WITH_COPIES = "with host-to-device copies"  # of a GPU engine's spans: copies made while opening included
READ, PREPARE, INFERENCE = "read", "prepare", "inference"
INPUTS, VERIFICATION, REST = "inputs", "verification", "start, network, other"
INFERENCE_PARTS = ("kernel", "copy", "wait", "unassigned")
BLACK, WHITE = "#010101", "#fefefe"  # of letters on colours, light page or dark
# In the order of legends, the colour of each part, a grey or an index into seaborn's "colorblind", and of letters on
# it. The timelines of schedules have the same colour for the same part.
LOOKS: dict[str, tuple[int | str, str]] = {
    INPUTS: (2, BLACK), READ: (2, BLACK), PREPARE: (8, BLACK), INFERENCE: (0, WHITE), VERIFICATION: (4, BLACK),
    REST: ("#c3c8cf", INK), "kernel": (0, WHITE), "copy": (1, BLACK), "wait": ("#c3c8cf", INK),
    "unassigned": ("#f1f3f5", INK),
}  # fmt: skip
MILLIONS = Unit(write=lambda number: significant(number / 1e6))
FAR_APART = 30  # where the longest whole is so many times the shortest, each bar is all of its own case
LEAST_NAMED = 0.09  # of the axis: shorter parts have no number on them
LEAST_RUNGS, MOST_RUNGS = 3, 24  # settings of a ladder


class Parts(NamedTuple):
    """Seconds of the parts of a run's inference. None: the record does not have that part, which is in `unassigned`.

    Attributes:
        whole: what is split: of all ranks and repeats, or of all devices in the last repeat.
        kernel: something was computed; copy: only copies ran; wait: neither. These and unassigned add up to the whole.
        hidden: of copies that overlapped computing on the same device; part of `kernel`.
        joined: whether several tasks are one entry of the timeline: gaps between them count as busy.
        source: where the record has the parts, in a few words.
    """

    source: str
    whole: float
    kernel: float | None
    copy: float | None = None
    wait: float | None = None
    unassigned: float = 0.0
    hidden: float | None = None
    joined: bool = False


def _share(name: str) -> Column:
    """The share of inference that a part is, and its seconds."""
    part = attrgetter(name.split()[-1].lower())

    def share(run: RunRow) -> float | None:
        seconds = part(parts(run))
        return None if seconds is None else seconds / parts(run).whole

    def below(run: RunRow) -> Phrase:
        return None if part(parts(run)) is None else (Number(part(parts(run)), SECONDS), " ", SHORT)

    return Column(name, share, PERCENT, below)


SOLUTION = Table(
    "Time to solution by case",
    [
        Column("Case", run_name),
        Column("Wall, start to end", lambda run: run.solution.wall, SECONDS),
        Column("To solution", lambda run: run.solution.seconds, SECONDS),
        *(Column(name.capitalize(), lambda run, name=name: run.solution.parts[name], SECONDS) for name in PARTS),
        Column("Layers from", lambda run: _origin(run)),
        Column("Read rate, million edges/s", lambda run: run.record.read_rate, MILLIONS, csv="read_edges_per_second"),
        Column("Of", lambda run: f"a {run.solution.of}"),
        Column("From a cache", lambda run: ", ".join(run.solution.cached) or "nothing"),
    ],
    "Wall time, time to solution and its parts. The read rate is edges of the network / seconds of reading its layers "
    "from files",
    "times-solution",
    record=lambda run: run.number,
)  # fmt: skip
PREPARATIONS = Table(
    "Published preparation",
    [
        Column("System", lambda row: f"{row.system}, {row.year}"),
        Column("Stage", lambda row: row.stage),
        Column("Time", lambda row: row.seconds, SECONDS),
        Column("For", lambda row: row.covers),
        Column("On", lambda row: row.hardware),
        Column("Source", lambda row: row.source),
    ],
    "Before inference, as published",
)
TIMES = Table(
    "Times by case",
    [
        Column("Case", run_name),
        Column("Read", lambda run: run.read_seconds, SECONDS),
        Column("Of it, copies to a GPU", lambda run: _upload_seconds(run), SECONDS),
        Column("Prepare", lambda run: run.prepare_seconds, SECONDS),
        Column("Inference", lambda run: run.inference_seconds, SECONDS),
        Column("Parts of inference from", lambda run: parts(run) and parts(run).source),
        Column("Repeats", lambda run: run.repeats, NUMBER),
        Column(
            "Peak memory; of a GPU",
            lambda run: run.record.peak_memory_bytes,
            BYTES,
            below=lambda run: (held := run.record.engine.notes.device_peak_bytes) and Number(held, BYTES),
        ),
        Column("Reductions on", lambda run: run.reductions),
        Column("Time includes", lambda run: run.includes),
    ],
    "Medians; only inference enters the rate",
    record=lambda run: run.number,
)
SPLIT = Table(
    "Parts of inference by case",
    [
        Column("Case", run_name),
        *map(_share, ("Kernel", "Copy", "Wait", "Unassigned", "Copies hidden")),
        Column("All of it", lambda run: parts(run).whole, SECONDS),
        Column("Source", lambda run: parts(run).source, None, lambda run: JOINED_MARK if parts(run).joined else None),
    ],
    "Shares of inference; under each, its seconds; –: not recorded, and counted as unassigned",
    record=lambda run: run.number,
)


def section(collection: Collection) -> Section | None:
    """The section; None without a run."""
    if not collection.runs:
        return None
    # Runs of a comparison with peers come last.
    runs = sorted(collection.runs, key=lambda run: bool(run.record.comparison))
    solved, split = [run for run in runs if run.solution], [run for run in runs if parts(run)]
    official = any(run.official_size for run in runs)
    blocks: list[Block] = [Paragraph(_sentence(solved, official)), wholes(runs)]
    if solved:
        blocks += [SOLUTION.of(solved), *([PREPARATIONS.of(read_preparations())] if official else [])]
    blocks.append(TIMES.of(runs))
    if split:
        blocks.append(Part("Parts of inference", _split(runs, split), "times-inference"))
    if steps := [ladder(group, f"ladder-{k}") for k, group in enumerate(ladders(collection.own)[:MOST_DRAWN], 1)]:
        sentence = Paragraph("One network with every setting that was run, the slowest first.")
        blocks.append(Part("One step at a time", [sentence, *steps], "ladders"))
    return Section(NAME, TITLE, blocks)


def _sentence(solved: Sequence[RunRow], official: bool) -> Phrase:
    """What the section says first."""
    if not solved:
        return "Only inference enters the rate; reading and preparing come before it, once for any number of repeats."
    shares = [100 * run.solution.inference / run.solution.seconds for run in solved]
    texts = dict.fromkeys(significant(share, 2) for share in (min(shares), max(shares)))
    rest = "; published rates leave the rest out" if official else ""
    return f"Inference is {' to '.join(texts)} % of the ", term("time to solution"), f"{rest}."


def _split(runs: Sequence[RunRow], split: Sequence[RunRow]) -> list[Block]:
    """The parts of inference, where records have them."""
    blocks: list[Block] = [Paragraph(
        "Copy: only copies ran. Kernel: something was computed; copies beside it are hidden. Wait: neither. Seconds "
        "that no record attributes are unassigned."
    )]  # fmt: skip
    if others := [run for run in runs if not parts(run)]:
        streamed = any(run.record.span == STREAMED for run in others)
        told = "; where weights were streamed, reading them is included" if streamed else ""
        sentence = f"The records of {plural(len(others), 'other run')} do not split inference into parts{told}."
        blocks.append(Paragraph(sentence, "note"))
    # Only the meanings of the sources that are on the page are explained.
    sources = {JOINED if parts(run).joined else "" for run in split} | {
        parts(run).source.split(",")[0] for run in split
    }
    meanings = [(name, meaning) for name, meaning in MEANINGS.items() if name in sources]
    return [*blocks, shares(split), SPLIT.of(split), Fold("Where the parts are from", [Terms(meanings)])]


def fastest(runs: Sequence[RunRow], most: int) -> list[RunRow]:
    """Those of the runs that a figure has room for: of each network the fastest before the second of any."""

    def network(run: RunRow) -> tuple:
        return run.problem.neurons, run.problem.layers, bool(run.record.comparison)

    return fair(runs, most, network, attrgetter("rate.median"))


@once
def parts(run: RunRow) -> Parts | None:
    """The parts of a run's inference seconds; None where its record has none."""
    if run.record.ranks > 1:
        return _of_ranks(run)
    if run.record.comparison:
        return None  # engines timed in turn: their notes are of a run before that
    return _of_timeline(run) if "schedule" in run.record.engine.noted else _of_events(run)


def _of_ranks(run: RunRow) -> Parts:
    """Sums over all ranks and repeats. When a rank neither waits nor sends, it computes, or reads weights."""
    ranks = run.record.distribution.per_rank
    whole, waiting, sending = (sum(sum(getattr(rank, name)) for rank in ranks) for name in PER_REPEAT)
    rest = max(0.0, whole - waiting - sending)
    kernel, unassigned = (None, rest) if run.record.span == STREAMED else (rest, 0.0)
    return Parts(f"{RANKS}, {plural(run.repeats, 'repeat')}", whole, kernel, sending, waiting, unassigned)


def _of_timeline(run: RunRow) -> Parts | None:
    """By device, from the lanes of the last repeat."""
    notes, last, spans = run.notes(TaskgraphNotes), run.record.seconds[-1], timeline_of(run)
    if spans is None or (cut := decomposition_of(run)) is None:
        return None
    devices, end = cut.devices, max(span.end for span in spans)
    # A record may come from anywhere: a timeline that contradicts its decomposition is not interpreted.
    if not all(0 <= span.device < devices and span.lane in LANES for span in spans):
        return None
    if end > last * (1 + FOLLOWING_TOLERANCE) + CLOCK:
        return None  # of another repeat
    kernel, copying, busy = 0.0, 0.0, 0.0
    for lanes in group_by(spans, lambda span: span.device).values():
        kernel += _covered_seconds(lane for lane in lanes if lane.lane == COMPUTE)
        copying += _covered_seconds(lane for lane in lanes if lane.lane != COMPUTE)
        busy += _covered_seconds(lanes)
    # Devices run side by side, so the whole is the seconds of the repeat times the number of devices. Copies that
    # overlap computing are hidden: only the time in which no kernel ran counts as copy.
    whole, copy = max(end, last) * devices, max(0.0, busy - kernel)
    wait, unassigned = max(0.0, end * devices - busy), whole - end * devices
    # A captured graph is one span, so copies in it cannot be told from kernels.
    captured = notes.captured and run.record.span == STREAMED
    return Parts(
        f"{TIMELINE}, {plural(devices, 'device')}, last repeat", whole, None if captured else kernel, copy, wait,
        unassigned + kernel if captured else unassigned,
        None if captured else max(0.0, copying - copy),
        (notes.timeline_tasks or 0) > len(spans),
    )  # fmt: skip


def _covered_seconds(spans: Iterable) -> float:
    """Seconds that at least one of the spans covers."""
    total, until = 0.0, 0.0
    for interval in sorted(spans, key=lambda span: span.begin):
        total += max(0.0, interval.end - max(interval.begin, until))
        until = max(until, interval.end)
    return total


def _of_events(run: RunRow) -> Parts | None:
    """A GPU's own seconds in the last repeat, from its first launch to its last; the rest is the host's."""
    last, kernel = run.record.seconds[-1], (run.notes(Notes).spans or {}).get(run.record.span)
    if kernel is None or kernel > last * (1 + FOLLOWING_TOLERANCE) + CLOCK:
        return None
    # Events bracket the launches of a batch; what the host did around them has no clock of its own.
    return Parts(f"{EVENTS}, last repeat", max(last, kernel), kernel, unassigned=max(0.0, last - kernel))


def _origin(run: RunRow) -> str:
    """What the layers were read from, or that a formula made them."""
    source = run.problem.network.get("source")
    return "formula" if run.record.by_formula else source if isinstance(source, str) else "unknown"


def _upload_seconds(run: RunRow) -> float | None:
    """Seconds of read in which inputs and weights went to a GPU."""
    spans = run.notes(Notes).spans or {}
    if run.record.ranks > 1 or not {WITH_COPIES, run.record.span} <= spans.keys():
        return None
    copied = spans[WITH_COPIES] - spans[run.record.span]
    return copied if 0 <= copied <= sum(run.record.read_seconds) else None


def wholes(runs: Sequence[RunRow]) -> Figure:
    """Seconds to a verified result by part, where records have them, else of read, prepare and inference.

    Where the wholes differ by FAR_APART, bars are shares of each case's own whole.
    """
    solved = [run for run in runs if run.solution]
    bars = [(run, _whole(run)) for run in fastest(solved or runs, MOST_BARS)]
    totals = [sum(seconds.values()) for _, seconds in bars]
    relative = max(totals) > FAR_APART * min(totals)
    whole = "time to solution" if solved else "read + prepare + inference"
    how = " The totals differ very much, so each bar is 100 % of its own case." if relative else ""
    caption = f"{whole[0].upper()}{whole[1:]} by part; only inference enters the rate.{how}"
    label = f"% of the case's own {whole}" if relative else "seconds"
    return _bars("times-whole", f"Seconds of {whole} by case", caption, bars, len(solved or runs), label)


def shares(runs: Sequence[RunRow]) -> Figure:
    """Percent of inference in each part; each bar is 100."""
    caption = "The parts of inference, where the record has them: each bar is 100 % of the seconds that were split."
    title = "Shares of kernel, copy and wait in inference by case"
    bars = [
        (run, {name: value for name in INFERENCE_PARTS if (value := getattr(parts(run), name)) is not None})
        for run in fastest(runs, MOST_BARS)
    ]
    return _bars("times-parts", title, caption, bars, len(runs), "% of inference")


def _whole(run: RunRow) -> dict[str, float]:
    """The parts of the time to solution, or the seconds before and in inference."""
    if not run.solution:
        return {READ: run.read_seconds, PREPARE: run.prepare_seconds, INFERENCE: run.inference_seconds}
    parts = run.solution.parts
    return {name: parts.pop(name) for name in (INPUTS, PREPARE, INFERENCE, VERIFICATION)} | {REST: sum(parts.values())}


Bars = Sequence[tuple[RunRow, Mapping[str, float]]]  # seconds by the name of each part, in the order of the stack


def _bars(name: str, title: str, caption: str, bars: Bars, count: int, label: str) -> Figure:
    """The figure of the bars, of so many cases; in percent where its label says so."""
    more = f" {len(bars)} of {count:,} cases, the fastest of each network before others; the table has all."
    return Figure(
        name,
        title,
        caption + more * (len(bars) < count),
        partial(_plot_bars, bars, label),
        ("case", "part", "seconds"),
        [(run.case, part, seconds) for run, parts in bars for part, seconds in parts.items()],
        {
            run.number: f"{run.case}: " + ", ".join(f"{part} {significant(value)} s" for part, value in parts.items())
            for run, parts in bars
        },
        narrow=True,
    )


def _plot_bars(bars: Bars, label: str, narrow: bool):
    """One bar a case, its parts one after the other, with its seconds after its end."""
    hues = plotting.colours()
    palette = {name: hues[hue] if isinstance(hue, int) else hue for name, (hue, _) in LOOKS.items()}
    totals = [sum(parts.values()) for _, parts in bars]
    scales = [100 / total if label.startswith("%") else 1.0 for total in totals]
    rows = []
    for (run, parts), total, scale in zip(bars, totals, scales, strict=True):
        lengths = [(value * scale, palette[name]) for name, value in parts.items()]
        rows.append(plotting.Bar(run.short, lengths, f"{significant(total, 3)} s", run.number))
    plot, axes = plotting.bars(rows, label, narrow, 5 if narrow else 1)
    longest = max(total * scale for total, scale in zip(totals, scales, strict=True))
    for place, ((_, parts), total, scale) in enumerate(zip(bars, totals, scales, strict=True)):
        for (name, value), end in zip(parts.items(), accumulate(parts.values()), strict=True):
            if value * scale > LEAST_NAMED * longest:
                axes.annotate(f"{100 * value / total:.0f} %", ((end - value / 2) * scale, place), va="center",
                              ha="center", fontsize=8, color=LOOKS[name][1], zorder=4)  # fmt: skip
    names = [name for name in LOOKS if any(parts.get(name) for _, parts in bars)]
    handles = [plotting.patch(name, facecolor=palette[name], edgecolor=NO_COLOUR, linewidth=0.4) for name in names]
    plot.legend(handles=handles, loc="outside lower left", ncols=2 if narrow else 9)
    return plot


class Ladder(NamedTuple):
    """Runs of one network that differ in their settings, the slowest first.

    Attributes:
        labels: the setting of each; span: what all their times include, or None.
    """

    runs: Sequence[RunRow]
    labels: Sequence[str]
    span: str | None


def ladders(runs: Sequence[RunRow]) -> list[Ladder]:
    """Runs of one rank on one machine, network and inputs, of at least LEAST_RUNGS settings.

    Of a setting that was run again the latest is shown; of more than MOST_RUNGS settings, so many evenly from the
    slowest to the fastest.
    """
    single, found = [run for run in runs if run.record.ranks == 1], []
    for group in group_by(
        single, lambda run: (*run.problem_key, run.record.span == ONE_LAYER, words.machine(run.record.environment))
    ).values():
        members = latest(group, lambda run: (*_setting(run), run.threads_text, run.record.span))
        if len(set(map(_setting, members))) < LEAST_RUNGS:
            continue
        slowest = sorted(members, key=lambda run: (-run.inference_seconds, run.number))
        if len(slowest) > MOST_RUNGS:
            slowest = [slowest[index * (len(slowest) - 1) // (MOST_RUNGS - 1)] for index in range(MOST_RUNGS)]
        spans, threads = {run.record.span for run in slowest}, {run.threads_text for run in slowest}
        labels = [
            ", ".join(filter(None, _setting(run)))
            + (f": {run.record.span}" if len(spans) > 1 else "")
            + (f", {run.threads_text}" if len(threads) > 1 else "")
            for run in slowest
        ]
        found.append(Ladder(slowest, labels, spans.pop() if len(spans) == 1 else None))
    return found


def _setting(run: RunRow) -> tuple[str, str, str]:
    return run.engine, run.reductions.replace("none", "no reductions"), run.cut


def ladder(steps: Ladder, name: str) -> Figure:
    """Seconds of each setting on a log scale, the slowest first."""
    first = steps.runs[0]
    size, machine = words.network(first.problem), words.machine(first.record.environment)
    span = f"Time: {steps.span}" if steps.span else "Each setting names what its time includes"
    return Figure(
        name,
        f"Inference seconds by setting, {size}",
        f"{first.inputs} inputs: median inference seconds, logarithmic, and their intervals. On {machine}. {span}.",
        partial(_plot_ladder, steps),
        ("setting", "inference seconds", "low", "high"),
        [(label, run.inference_seconds, *run.ends) for label, run in zip(steps.labels, steps.runs, strict=True)],
    )


def _plot_ladder(steps: Ladder, narrow: bool):
    """After each bar, how many times faster than the first it is."""
    plot, axes = plotting.canvas(1.2 + 0.42 * len(steps.runs), narrow=narrow)
    floor = min(run.ends[0] for run in steps.runs) / 3
    slowest = steps.runs[0].inference_seconds
    for row, run in enumerate(steps.runs):
        seconds, (low, high) = run.inference_seconds, run.ends
        axes.barh(row, seconds - floor, left=floor, color=plotting.colours()[0], height=0.62)
        axes.plot([low, high], [row, row], color=INK, linewidth=1.2)
        gain = f", {slowest / seconds:,.3g} times as fast" if row else ""
        plotting.write_after(axes, f"{seconds:.3g} s{gain}", high, row, gap=6)
    plotting.logarithmic(axes, "x")
    axes.set_xlim(floor, steps.runs[0].ends[1] * 12)
    axes.set_xlabel("inference seconds")
    plotting.name_rows(plot, axes, [plotting.fold(label, 56) for label in steps.labels], fontsize=8)
    return plot
