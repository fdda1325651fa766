"""The section on schedules: runs of the task graph on one network, their timelines, and memory against time.

`spdnn plan` compares such runs with what its simulator predicts of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from spdnn.core.shown import listed, plural
from spdnn.core.shown import published as printed
from spdnn.core.table import BYTES, NUMBER, RATE, SECONDS, Column, Number, Table, code
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.timeline import Span
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Paragraph, Part, Section
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import Figure
from spdnn.report.common.groups import Group
from spdnn.report.common.plotting import INK, NO_COLOUR, canvas, colours, despine, line, patch
from spdnn.report.common.run_rows import RunRow, interval, run_name
from spdnn.runs.records.notes import TaskgraphNotes
from spdnn.runs.records.published import Baseline
from spdnn.runs.records.result import ProblemRecord

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
MOST_GROUPS, MOST_CUT = 8, 3  # groups, and those of them with figures
MOST_PANELS = 8  # of a figure of timelines
FIELD = "Lin and Huang, HPEC 2020"  # whose table has schedules of the field side by side
FIELD_SYSTEMS = ("SNIG", "BF", "GPipe*")
# Indices into seaborn's "colorblind", of tasks and of schedules.
COLOURS = {"layer": 0, "copy-weights": 1, "move": 2, "compact": 4, "park": 5, "join": 3, "collect": 8}
SCHEDULES = {"resident": 0, "stream": 1, "graph": 2, "pipeline": 3}
WORDS = {
    "layer": "layers (batches light and dark alternately)",
    "copy-weights": "copies of weights",
    "move": "rows between devices",
    "compact": "rows that leave",
    "park": "batches that wait for others",
    "join": "batches that go on as one",
    "collect": "results",
}
NARROW = 1 / 1500  # of the whole time: shorter bars and gaps cannot be seen, and are drawn with their neighbours
Panels = Sequence[tuple[str, Sequence[Span]]]  # labels and timelines


@dataclass(frozen=True)
class CutRun:
    """A run of the task graph."""

    run: RunRow

    @property
    def cut(self) -> Decomposition:
        return self.run.decomposition

    @property
    def memory(self) -> int | None:
        """Bytes of the device that needs most."""
        return max(self.run.notes(TaskgraphNotes).memory_bytes or (), default=None)

    @property
    def label(self) -> str:
        """The decomposition in a few words."""
        stages, buffers = len(self.cut.ranges), self.cut.buffers
        parts = [self.run.cut, *([f"pipeline of {stages}"] if stages > 1 else [])]
        parts.append(plural(self.cut.batches, "batch", "batches"))
        return ", ".join([*parts, f"{buffers} buffers"] if buffers else parts)


MEASURED = Table(
    "Schedules",
    [
        Column("Case", lambda row: run_name(row.run)),
        Column("Schedule", lambda row: row.cut.schedule,
               below=lambda row: f"{stages} in a pipeline" if (stages := len(row.cut.ranges)) > 1 else None),
        Column("Devices", lambda row: row.cut.devices, NUMBER, below=lambda row: row.run.threads_text),
        Column("Batches", lambda row: row.cut.batches, NUMBER),
        Column("Buffers", lambda row: row.cut.buffers or None, NUMBER),
        Column("Memory of a device", lambda row: row.memory, BYTES),
        Column("Promised", lambda row: row.run.device_memory, BYTES),
        Column("Inference", lambda row: row.run.inference_seconds, SECONDS, below=lambda row: interval(row.run)),
        Column("", lambda row: row.run.rate.median, RATE),
        Column("Time includes", lambda row: row.run.includes),
        Column("Why it was cut so", lambda row: row.run.notes(TaskgraphNotes).why or ""),
    ],
    "Measured medians, under each its interval; memory is of the device that needs most, by the decomposition",
    record=lambda row: row.run.number,
)  # fmt: skip
PUBLISHED = Table(
    "Published schedules",
    [
        Column("System", lambda row: row.system),
        Column("Hardware", lambda row: row.hardware),
        Column("Devices", lambda row: row.devices, NUMBER),
        Column(
            "Time",
            lambda row: Number(row.seconds, SECONDS, printed(row.seconds)) if row.finished
            else f"given up after {printed(row.seconds)}",
            SECONDS,
        ),
        Column("", lambda row: row.edges_per_second
               and Number(row.edges_per_second, RATE, printed(row.edges_per_second / 1e12)), RATE),
        Column("Time includes", lambda row: row.span),
    ],
)  # fmt: skip


def section(collection: Collection) -> Section | None:
    """The section; None without a run of the task graph."""
    shown = list(enumerate(collection.schedules[:MOST_GROUPS], 1))
    parts = [_part(group, f"schedules-{number}", number <= MOST_CUT, collection.baselines) for number, group in shown]
    return Section(NAME, TITLE, [Paragraph(HOW), *parts]) if parts else None


def _part(group: Group, name: str, drawn: bool, baselines: Sequence[Baseline]) -> Part:
    """One network: what was measured, and what is published."""
    rows, first, size = list(map(CutRun, group.shown)), group.shown[0], words.network(group.shown[0].problem)
    about = f"{first.inputs} inputs; engine {first.engine}, reductions: {first.reductions}; "
    blocks: list[Block] = [Paragraph(f"{about}{plural(first.record.environment.cores, 'core')}.", "soft")]
    blocks += [Paragraph(group.left_out, "soft")] if group.left_out else []
    if drawn and (measured := [row for row in rows if row.run.timeline][:MOST_PANELS]):
        caption = (
            "Measured: tasks of each lane of each device over time, in one run of each setting; where a run has very "
            "many tasks, neighbours are drawn as one. Cases: "
            f"{listed([row.run.case for row in measured], between='; ')}."
        )
        title = f"Measured timelines of schedules, {size}: tasks of each lane over time"
        blocks.append(gantt([(row.label, row.run.timeline) for row in measured], name, title, caption))
    if drawn and len(known := [row for row in rows if row.memory]) > 1:
        blocks.append(memory(known, name, size))
    blocks.append(MEASURED.of(rows, title=f"Schedules on {size}"))
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
    pairs = [(row.system.split(" (")[0], row) for row in rows]
    pairs = [(name, row) for name, row in pairs if name in FIELD_SYSTEMS]
    return [row for _, row in sorted(pairs, key=lambda pair: (FIELD_SYSTEMS.index(pair[0]), int(pair[1].devices)))]


def gantt(panels: Panels, name: str, title: str, caption: str) -> Figure:
    """Tasks of each lane over time, a panel for each timeline on one scale. Batches are light and dark alternately.

    Args:
        panels: (label, timeline) each.
        name, title, caption: as `Figure`'s.
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
    lanes = [_lanes(timeline) for _, timeline in panels]
    spans = [span for _, timeline in panels for span in timeline]
    last = max((span.end for span in spans), default=0.0) or 1.0
    palette = {kind: colours()[hue] for kind, hue in COLOURS.items()}
    heights = [0.7 + 0.24 * max(1, len(own)) for own in lanes]
    plot, axes = canvas(
        sum(heights) + 0.6, len(panels), 1, narrow=narrow, sharex=True, squeeze=False, height_ratios=heights
    )
    for panel, (label, timeline), own in zip(axes[:, 0], panels, lanes, strict=True):
        for index, lane in enumerate(own):
            of_lane = [span for span in timeline if (span.device, span.lane) == lane]
            for kind, batch, begin, end in joined(of_lane, last * NARROW):
                dark = 1.0 if batch is None or batch % 2 == 0 else 0.55
                panel.barh(index, end - begin, left=begin, height=0.72, color=palette.get(kind, NO_COLOUR),
                           alpha=dark, linewidth=0)  # fmt: skip
        several = len({device for device, _ in own}) > 1
        names = [f"device {device} " * several + words.LANES.get(lane, lane) for device, lane in own]
        panel.set_yticks(range(len(own)), names, fontsize=8)
        panel.set_ylim(max(1, len(own)) - 0.4, -0.6)
        panel.set_title(label, loc="left", fontsize=10, color=INK)
        panel.grid(visible=False, axis="y")
    axes[-1, 0].set_xlabel("seconds from the beginning of the run")
    axes[-1, 0].set_xlim(0, last * 1.01)
    despine(plot, left=True)
    kinds = {span.kind for span in spans}
    if handles := [patch(WORDS[kind], color=colour) for kind, colour in palette.items() if kind in kinds]:
        plot.legend(handles=handles, loc="outside lower left", ncols=3)
    return plot


def _lanes(timeline: Sequence[Span]) -> list[tuple[int, str]]:
    """(device, lane) of what has a bar."""
    order = {lane: index for index, lane in enumerate(words.LANES)}
    lanes = {(span.device, span.lane) for span in timeline if span.end > span.begin}
    return sorted(lanes, key=lambda row: (row[0], order.get(row[1], len(order)), row[1]))


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


def memory(rows: Sequence[CutRun], name: str, size: str) -> Figure:
    """Seconds over the memory of a device, one mark for each decomposition; colour is the schedule, mark the devices.

    Args:
        rows: those that have their memory, of the group of that name.
        size: of its network, in words.
    """
    return Figure(
        f"{name}-memory",
        f"Inference seconds over memory of a device, {size}",
        "Measured inference seconds over the memory of the device that needs most; vertical lines are the "
        "medians' intervals. Both axes begin at zero.",
        partial(_plot_memory, rows),
        ("decomposition", "schedule", "devices", "bytes of a device", "inference seconds", "low", "high"),
        [
            (row.label, row.cut.schedule, row.cut.devices, row.memory, row.run.inference_seconds, *row.run.ends)
            for row in rows
        ],
    )


def _plot_memory(rows: Sequence[CutRun], narrow: bool):
    plot, axes = canvas(3.6, narrow=narrow)
    palette = {name: colours()[hue] for name, hue in SCHEDULES.items()}
    counts = sorted({row.cut.devices for row in rows})
    marks = dict(zip(counts, "osD^v<>PX*" * len(counts), strict=False))
    for row in rows:
        gib, cut = row.memory / 2**30, row.cut
        axes.plot([gib, gib], row.run.ends, color=INK, linewidth=1.0, zorder=2)
        axes.scatter([gib], [row.run.inference_seconds], color=palette[cut.schedule], marker=marks[cut.devices],
                     s=46, edgecolors=INK, linewidths=0.6, zorder=3)  # fmt: skip
    axes.set_xlabel("GiB of the device that needs most")
    axes.set_ylabel("inference seconds")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    despine(plot)
    names = {row.cut.schedule for row in rows}
    entries = [(name, "o", colour) for name, colour in palette.items() if name in names]
    entries += [(plural(count, "device"), mark, NO_COLOUR) for count, mark in marks.items()]
    handles = [line(name, marker=mark, color=colour, linestyle="", markersize=7) for name, mark, colour in entries]
    plot.legend(handles=handles, loc="outside right upper")
    return plot
