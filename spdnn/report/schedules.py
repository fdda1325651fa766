"""The section on schedules: runs of the task graph on one network, their timelines, and memory against time.

`spdnn plan` compares such runs with what its simulator predicts of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from spdnn.core.shown import listed, plural
from spdnn.core.shown import published as printed
from spdnn.core.table import BYTES, NUMBER, RATE, SECONDS, Column, Number, Table, code
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Paragraph, Part, Section
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import Figure
from spdnn.report.common.groups import Group
from spdnn.report.common.plotting import INK, NO_COLOUR, canvas, colours, despine, line, name_rows, patch
from spdnn.report.common.run_rows import RunRow, group_by, interval, latest, run_name
from spdnn.report.common.tasks import decomposition_of, timeline_of
from spdnn.runs.records.notes import TaskgraphNotes
from spdnn.runs.records.published import Baseline
from spdnn.runs.records.result import ProblemRecord

if TYPE_CHECKING:
    from spdnn.engines.taskgraph.timeline import Span

NAME, TITLE = "schedules", "Schedules"
ABSENT = (
    "Schedules of the task graph are not shown: none of these runs used the engine taskgraph. ",
    code("snakemake --configfile config/schedules.yaml"), " runs them.",
)  # fmt: skip
HOW = (
    "One inference, cut in different ways into batches of inputs, stages of layers, buffers of weights and devices. "
    "Resident: weights stay on every device. Stream: they pass through buffers while layers are computed. Graph: "
    "devices draw batches as they finish. Pipeline: each device has a range of the layers. On a processor, a device is "
    "a part of the threads with memory of its own."
)
SCHEDULE_GROUPS, MOST_CUT = 8, 3  # groups, and those of them with figures
MOST_PANELS = 8  # of a figure of timelines
FIELD = "Lin and Huang, HPEC 2020"  # whose table has schedules of the field side by side
FIELD_SYSTEMS = ("SNIG", "BF", "GPipe*")
# In their order; colours are indices into seaborn's "colorblind".
SCHEDULES = {"resident": 0, "stream": 1, "graph": 2, "pipeline": 3}
TASKS = {
    "layer": ("layers (batches light and dark alternately)", 0),
    "copy-weights": ("copies of weights", 1),
    "move": ("rows between devices", 2),
    "compact": ("rows that leave", 4),
    "park": ("batches that wait for others", 5),
    "join": ("batches that go on as one", 3),
    "collect": ("results", 8),
}
NARROW_BAR = 1 / 1500  # of the whole time: shorter bars and gaps cannot be seen, and are drawn with their neighbours
Panels = Sequence[tuple[str, Sequence["Span"]]]  # labels and timelines


def _memory(run: RunRow) -> int | None:
    """Bytes of the device that needs most."""
    return max(run.notes(TaskgraphNotes).memory_bytes or (), default=None)


def _label(run: RunRow) -> str:
    """The decomposition in a few words."""
    cut = decomposition_of(run)
    pipeline = f", pipeline of {len(cut.ranges)}" if len(cut.ranges) > 1 else ""
    buffers = f", {cut.buffers} buffers" if cut.buffers else ""
    return f"{run.cut}{pipeline}, {plural(cut.batches, 'batch', 'batches')}{buffers}"


MEASURED = Table(
    "Schedules",
    [
        Column("Case", run_name),
        Column(
            "Schedule", lambda run: decomposition_of(run).schedule,
            below=lambda run: f"{n} in a pipeline" if (n := len(decomposition_of(run).ranges)) > 1 else None,
        ),
        Column("Devices", lambda run: decomposition_of(run).devices, NUMBER, below=lambda run: run.threads_text),
        Column("Batches", lambda run: decomposition_of(run).batches, NUMBER),
        Column("Buffers", lambda run: decomposition_of(run).buffers or None, NUMBER),
        Column("Memory of a device", _memory, BYTES),
        Column("Promised", lambda run: run.device_memory, BYTES),
        Column("Inference", lambda run: run.inference_seconds, SECONDS, below=interval),
        Column("", lambda run: run.rate.median, RATE),
        Column("Time includes", lambda run: run.includes),
        Column("Why it was cut so", lambda run: run.notes(TaskgraphNotes).why or ""),
    ],
    "Measured medians, under each its interval; memory is of the device that needs most, by the decomposition",
    record=lambda run: run.number,
)  # fmt: skip
PUBLISHED = Table(
    "Published schedules",
    [
        Column("System", lambda row: row.system),
        Column("Hardware", lambda row: row.hardware),
        Column("Devices", lambda row: row.devices, NUMBER),
        Column("Time", lambda row: Number(row.seconds, SECONDS, printed(row.seconds)) if row.finished
               else f"given up after {printed(row.seconds)}", SECONDS),
        Column("", lambda row: row.edges_per_second
               and Number(row.edges_per_second, RATE, printed(row.edges_per_second / 1e12)), RATE),
        Column("Time includes", lambda row: row.span),
    ],
)  # fmt: skip


def section(collection: Collection) -> Section | None:
    """The section; None without a run of the task graph."""
    groups = enumerate(schedule_groups(collection.own)[:SCHEDULE_GROUPS], 1)
    parts = [_part(group, f"schedules-{number}", number <= MOST_CUT, collection.baselines) for number, group in groups]
    return Section(NAME, TITLE, [Paragraph(HOW), *parts]) if parts else None


def schedule_groups(runs: Sequence[RunRow]) -> list[Group]:
    """The runs of the task graph on one rank, by what their schedules may be compared on."""
    cut = [run for run in runs if run.record.ranks == 1 and decomposition_of(run)]
    groups = []
    # Schedules are compared on one problem, engine, list of reductions and machine. Threads may differ, for each device
    # has one at least.
    for members in group_by(
        cut,
        lambda run: (
            *run.problem_key, run.record.engine.name, tuple(sorted(run.record.reductions.requested)),
            run.record.environment.cpu, run.record.environment.gpu or "", run.record.environment.cores,
        ),
    ).values():  # fmt: skip
        shown = latest(members, _schedule)
        base = next((run for run in shown if _schedule(run)[:4] == (0, 1, 1, 1)), None)
        groups.append(Group("", "", members, shown, base))
    return groups


def _schedule(run: RunRow) -> tuple:
    """A sorting key: schedules in their order, then devices and the other settings."""
    cut = decomposition_of(run)
    numbers = cut.devices, len(cut.ranges), cut.batches, cut.buffers or 0, run.device_memory or 0
    return list(SCHEDULES).index(cut.schedule), *numbers, run.record.threads


def _part(group: Group, name: str, drawn: bool, baselines: Sequence[Baseline]) -> Part:
    """One network: what was measured, and what is published."""
    runs, first, size = group.shown, group.shown[0], words.network(group.shown[0].problem)
    cores = plural(first.record.environment.cores, "core")
    about = f"{first.inputs} inputs; engine {first.engine}, reductions: {first.reductions}; {cores}."
    blocks: list[Block] = [Paragraph(text, "soft") for text in (about, group.left_out) if text]
    if drawn and (measured := [run for run in runs if timeline_of(run)][:MOST_PANELS]):
        caption = (
            "Measured: tasks of each lane of each device over time, in one run of each setting; where a run has very "
            "many tasks, neighbours are drawn as one. Cases: "
            f"{listed([run.case for run in measured], between='; ')}."
        )
        title = f"Measured timelines of schedules, {size}: tasks of each lane over time"
        blocks.append(gantt([(_label(run), timeline_of(run)) for run in measured], name, title, caption))
    if drawn and len(known := [run for run in runs if _memory(run)]) > 1:
        blocks.append(memory(known, name, size))
    blocks.append(MEASURED.of(runs, title=f"Schedules on {size}"))
    if published := published_rows(baselines, first.problem):
        blocks.append(_published(published, size))
    return Part(size, blocks, f"{name}-head")


def _published(rows: Sequence[Baseline], size: str) -> Part:
    hardware, sources = ("; ".join(dict.fromkeys(getattr(row, key) for row in rows)) for key in ("hardware", "source"))
    text = (
        f"Measured by others on other machines ({hardware}), with 60,000 inputs: for orientation, not to be compared "
        "one to one with those above. SNIG draws batches and streams weights, BF divides the inputs among devices, "
        "GPipe* the layers."
    )
    table = PUBLISHED.of(rows, title=f"Published schedules on {size}", caption=f"Published by {sources}")
    return Part("Schedules of the field on the same network, published", [Paragraph(text), table])


def published_rows(baselines: Sequence[Baseline], problem: ProblemRecord) -> list[Baseline]:
    """The schedules of the field on an official network, as their authors measured them side by side."""
    size = problem.official and (problem.neurons, problem.layers)
    rows = [row for row in baselines if (row.neurons, row.layers) == size and row.source.startswith(FIELD)]
    found = [(FIELD_SYSTEMS.index(name), int(row.devices), row) for row in rows
             if (name := row.system.split(" (")[0]) in FIELD_SYSTEMS]  # fmt: skip
    return [row for *_, row in sorted(found, key=lambda entry: entry[:2])]


def gantt(panels: Panels, name: str, title: str, caption: str) -> Figure:
    """Tasks of each lane over time, a panel for each (label, timeline) on one scale.

    Batches are light and dark alternately; `name`, `title` and `caption` are the figure's.
    """
    return Figure(
        name,
        title,
        caption,
        partial(_plot_timelines, panels),
        ("schedule", "device", "lane", "kind", "batch", "first layer", "last layer", "begin", "end"),
        [(label, *span.as_list()) for label, timeline in panels for span in timeline],
    )


def _plot_timelines(panels: Panels, narrow: bool):
    spans = [span for _, timeline in panels for span in timeline]
    last = max((span.end for span in spans), default=0.0) or 1.0
    palette = {kind: colours()[hue] for kind, (_, hue) in TASKS.items()}
    lanes = [_lanes(timeline) for _, timeline in panels]
    heights = [0.7 + 0.24 * max(1, len(own)) for own in lanes]
    plot, axes = canvas(
        sum(heights) + 0.6, len(panels), 1, narrow=narrow, sharex=True, squeeze=False, height_ratios=heights
    )
    for panel, (label, timeline), own in zip(axes[:, 0], panels, lanes, strict=True):
        for place, lane in enumerate(own):
            of_lane = [span for span in timeline if (span.device, span.lane) == lane]
            for kind, batch, begin, end in joined(of_lane, last * NARROW_BAR):
                panel.barh(place, end - begin, left=begin, height=0.72, color=palette.get(kind, NO_COLOUR),
                           alpha=0.55 if batch and batch % 2 else 1.0, linewidth=0)  # fmt: skip
        several = len({device for device, _ in own}) > 1
        names = [f"device {device} " * several + words.LANES.get(lane, lane) for device, lane in own]
        name_rows(plot, panel, names or [""], fontsize=8)
        panel.set_title(label, loc="left", fontsize=10, color=INK)
    axes[-1, 0].set_xlabel("seconds from the beginning of the run")
    axes[-1, 0].set_xlim(0, last * 1.01)
    kinds = {span.kind for span in spans}
    if handles := [patch(TASKS[kind][0], color=colour) for kind, colour in palette.items() if kind in kinds]:
        plot.legend(handles=handles, loc="outside lower left", ncols=3)
    return plot


def _lanes(timeline: Sequence[Span]) -> list[tuple[int, str]]:
    """(device, lane) of what has a bar."""
    order = {lane: index for index, lane in enumerate(words.LANES)}
    lanes = {(span.device, span.lane) for span in timeline if span.end > span.begin}
    return sorted(lanes, key=lambda lane: (lane[0], order.get(lane[1], len(order)), lane[1]))


def joined(timeline: Sequence[Span], narrow: float) -> list[tuple[str, int | None, float, float]]:
    """(kind, batch, begin, end) of bars: neighbours of one kind and batch with no gap to be seen are one bar."""
    bars: list[tuple] = []
    for span in sorted(timeline, key=lambda span: (span.begin, span.end)):
        if span.end <= span.begin:
            continue
        kind, batch, begin, end = bars[-1] if bars else ("", None, 0.0, 0.0)
        near = bars and span.begin - end <= narrow
        if near and ((kind, batch) == (span.kind, span.batch) or span.end - span.begin <= narrow):
            bars[-1] = kind, batch, begin, max(span.end, end)
        else:
            bars.append((span.kind, span.batch, span.begin, span.end))
    return bars


def memory(runs: Sequence[RunRow], name: str, size: str) -> Figure:
    """Seconds over the memory of a device, one mark for each decomposition; colour is the schedule, mark the devices.

    Args:
        runs: those that have their memory, of the group of that name, on a network of that `size` in words.
    """
    return Figure(
        f"{name}-memory",
        f"Inference seconds over memory of a device, {size}",
        "Measured inference seconds over the memory of the device that needs most; vertical lines are the "
        "medians' intervals. Both axes begin at zero.",
        partial(_plot_memory, runs),
        ("decomposition", "schedule", "devices", "bytes of a device", "inference seconds", "low", "high"),
        [
            (_label(run), cut.schedule, cut.devices, _memory(run), run.inference_seconds, *run.ends)
            for run in runs if (cut := decomposition_of(run))
        ],
    )  # fmt: skip


def _plot_memory(runs: Sequence[RunRow], narrow: bool):
    plot, axes = canvas(3.6, narrow=narrow)
    palette = {name: colours()[hue] for name, hue in SCHEDULES.items()}
    counts = sorted({decomposition_of(run).devices for run in runs})
    marks = dict(zip(counts, "osD^v<>PX*" * len(counts), strict=False))
    for run in runs:
        gib, cut = _memory(run) / 2**30, decomposition_of(run)
        axes.plot([gib, gib], run.ends, color=INK, linewidth=1.0)
        axes.plot([gib], [run.inference_seconds], marks[cut.devices], color=palette[cut.schedule], markersize=7)
    axes.set(xlabel="GiB of the device that needs most", ylabel="inference seconds")
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    despine(plot)
    names = {decomposition_of(run).schedule for run in runs}
    entries = [(name, "o", colour) for name, colour in palette.items() if name in names]
    entries += [(plural(count, "device"), mark, NO_COLOUR) for count, mark in marks.items()]
    handles = [line(name, marker=mark, color=colour, linestyle="", markersize=7) for name, mark, colour in entries]
    plot.legend(handles=handles, loc="outside right upper")
    return plot
