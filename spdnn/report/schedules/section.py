"""The section on schedules: runs of the task graph on one network, their timelines, and memory against time.

Predictions of the simulator for the same decompositions are kept apart, with the run that calibrated it.
"""

from collections.abc import Iterator, Sequence

from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import Figure
from spdnn.report.common.plotting import INK, NO_COLOUR, canvas, colours, despine, line, patch
from spdnn.report.common.predictions import Predicted, PredictedGroup
from spdnn.report.common.run_rows import RunRow
from spdnn.runs.records.notes import TaskgraphNotes
from spdnn.runs.records.published import Baseline
from spdnn.runs.records.result import ProblemRecord

MOST_PANELS = 8  # of a figure of timelines
FIELD = "Lin and Huang, HPEC 2020"  # whose table has schedules of the field side by side
FIELD_SYSTEMS = ("SNIG", "BF", "GPipe*")
Entry = Sequence  # device, lane, kind, batch or None, first layer, last layer (exclusive), begin, end
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
COLUMNS = ("schedule", "device", "lane", "kind", "batch", "first layer", "last layer", "begin", "end")
MOST_CUT = 3  # groups with figures


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of the task graph."""
    shown = [_group(group, number, collection.baselines) for number, group in enumerate(collection.schedules, 1)]
    return {"groups": shown} if shown else None


def _group(group: PredictedGroup, number: int, baselines: Sequence[Baseline]) -> dict:
    """One network's table and figures; of several runs of one setting, the latest is shown."""
    predicted = {schedule.run: schedule for schedule in group.predicted}
    rows = [_row(run, predicted.get(run)) for run in group.shown]
    first = group.shown[0]
    return {
        "id": f"schedules-{number}",
        "first": first,
        "left_out": len(group.runs) - len(group.shown),
        "base": group.base,
        "rows": rows,
        "measured": [row for row in rows if row["timeline"]][:MOST_PANELS],
        "simulated": [row for row in rows if row["simulated"]][:MOST_PANELS],
        "published": _published_rows(baselines, first.problem) if first.problem.official else [],
    }


def _row(run: RunRow, predicted: Predicted | None) -> dict:
    """One run as tables and figures show it; a figure that it does not have is None."""
    decomposition, notes, (low, high) = run.decomposition, run.notes(TaskgraphNotes), run.ends
    return {
        "run": run,
        "label": label(decomposition),
        "schedule": decomposition.schedule,
        "devices": decomposition.devices,
        "pipeline": len(decomposition.ranges),
        "batches": decomposition.batches,
        "buffers": decomposition.buffers,
        "promise": run.device_memory,
        "memory": max(notes.memory_bytes or (), default=None),
        "seconds": run.inference_seconds,
        "low": low,
        "high": high,
        "why": notes.why or "",
        "timeline": run.timeline and [span.as_list() for span in run.timeline],
        "predicted": predicted and predicted.seconds,
        "bound": predicted and predicted.bound,
        "simulated": predicted and [span.as_list() for span in predicted.timeline],
    }


def label(decomposition) -> str:
    """A decomposition in a few words."""
    stages, buffers = len(decomposition.ranges), decomposition.buffers
    parts = [decomposition.schedule, words.plural(decomposition.devices, "device")]
    parts += [f"pipeline of {stages}"] if stages > 1 else []
    parts += [words.plural(decomposition.batches, "batch", "batches")]
    return ", ".join([*parts, f"{buffers} buffers"] if buffers else parts)


def _published_rows(baselines: Sequence[Baseline], problem: ProblemRecord) -> list[Baseline]:
    """The schedules of the field on this network, as their authors measured them side by side."""
    size = problem.neurons, problem.layers
    rows = [row for row in baselines if (row.neurons, row.layers) == size and row.source.startswith(FIELD)]
    pairs = [(row.system.split(" (")[0], row) for row in rows]
    pairs = [(name, row) for name, row in pairs if name in FIELD_SYSTEMS]
    return [row for _, row in sorted(pairs, key=lambda pair: (FIELD_SYSTEMS.index(pair[0]), int(pair[1].devices)))]


def figures(values: dict) -> Iterator[Figure]:
    """Of each of the first groups: timelines measured and predicted, and seconds over memory."""
    for group in values["groups"][:MOST_CUT]:
        size = words.network(group["first"].problem)
        if panels := [(row["label"], row["timeline"]) for row in group["measured"]]:
            cases = words.listed([row["run"].case for row in group["measured"]], between="; ")
            yield gantt(
                panels,
                group["id"],
                f"Measured timelines of schedules, {size}: tasks of each lane over time",
                "Measured: tasks of each lane of each device over time, in one run of each setting; where a run has "
                f"very many tasks, neighbours are drawn as one. Cases: {cases}.",
            )
        if panels := [(row["label"], row["simulated"]) for row in group["simulated"]]:
            yield gantt(
                panels,
                f"{group['id']}-predicted",
                f"Predicted timelines of schedules, {size}: tasks of each lane over time",
                "Predicted, not measured: the same decompositions in the simulator, calibrated by "
                f"{group['base'].case}.",
            )
        rows = [row for row in group["rows"] if row["memory"]]
        if len(rows) > 1:
            yield memory(rows, group["id"], size)


def gantt(panels: Sequence[tuple[str, Sequence[Entry]]], name: str, title: str, caption: str) -> Figure:
    """Tasks of each lane over time, a panel for each timeline on one scale. Batches are light and dark alternately.

    Args:
        panels: (label, timeline) each.
        name, title, caption: as `Figure`'s.
    """
    rows = [_rows(timeline) for _, timeline in panels]
    last = max((entry[7] for _, timeline in panels for entry in timeline), default=0.0) or 1.0
    palette = colours()
    heights = [0.7 + 0.24 * max(1, len(row)) for row in rows]
    plot, axes = canvas(sum(heights) + 0.6, len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)
    axes = axes[:, 0]
    for panel, (label, timeline), own in zip(axes, panels, rows, strict=True):
        _panel(panel, label, timeline, own, last, palette)
    axes[-1].set_xlabel("seconds from the beginning of the run")
    axes[-1].set_xlim(0, last * 1.01)
    despine(plot, left=True)
    kinds = [kind for kind in COLOURS if any(entry[2] == kind for _, timeline in panels for entry in timeline)]
    if kinds:
        handles = [patch(WORDS[kind], color=palette[COLOURS[kind]]) for kind in kinds]
        plot.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False)
    data = [(label, *entry) for label, timeline in panels for entry in timeline]
    return Figure(name, title, caption, plot, COLUMNS, data)


def _rows(timeline: Sequence[Entry]) -> list[tuple[int, str]]:
    """(device, lane) of what has a bar."""
    order = {lane: index for index, lane in enumerate(words.LANES)}
    lanes = {(entry[0], entry[1]) for entry in timeline if entry[7] > entry[6]}
    return sorted(lanes, key=lambda row: (row[0], order.get(row[1], len(order)), row[1]))


def _panel(axes, label: str, timeline: Sequence[Entry], rows: list[tuple[int, str]], last: float, palette) -> None:
    for index, (device, lane) in enumerate(rows):
        own = [entry for entry in timeline if (entry[0], entry[1]) == (device, lane)]
        for kind, batch, begin, end in _bars(own, last * NARROW):
            colour = palette[COLOURS[kind]] if kind in COLOURS else NO_COLOUR
            dark = 1.0 if batch is None or batch % 2 == 0 else 0.55
            axes.barh(index, end - begin, left=begin, height=0.72, color=colour, alpha=dark, linewidth=0)
    several = len({device for device, _ in rows}) > 1
    lanes = [f"device {device} " * several + words.LANES.get(lane, lane) for device, lane in rows]
    axes.set_yticks(range(len(rows)), lanes, fontsize=8)
    axes.set_ylim(max(1, len(rows)) - 0.4, -0.6)
    axes.set_title(label, loc="left", fontsize=10, color=INK)
    axes.grid(visible=False, axis="y")


def _bars(timeline: Sequence[Entry], narrow: float) -> list[tuple[str, int | None, float, float]]:
    """(kind, batch, begin, end): neighbours of one kind and batch with no gap to be seen are one bar."""
    bars: list[list] = []
    for _, _, kind, batch, _, _, begin, end in sorted(timeline, key=lambda entry: (entry[6], entry[7])):
        if end <= begin:
            continue
        near = bars and begin - bars[-1][3] <= narrow
        if near and (bars[-1][:2] == [kind, batch] or end - begin <= narrow):
            bars[-1][3] = max(end, bars[-1][3])
        else:
            bars.append([kind, batch, begin, end])
    return [tuple(bar) for bar in bars]


def memory(rows: Sequence[dict], group: str, size: str) -> Figure:
    """Seconds over the memory of a device, one mark for each decomposition; colour is the schedule, mark the devices.

    Args:
        rows: those that have their memory, of the group of that id.
        size: of its network, in words.
    """
    plot, axes = canvas(3.6)
    palette = {name: colours()[hue] for name, hue in SCHEDULES.items()}
    counts = sorted({row["devices"] for row in rows})
    marks = dict(zip(counts, "osD^v<>PX*" * len(counts), strict=False))
    for row in rows:
        gib = row["memory"] / 2**30
        axes.plot([gib, gib], [row["low"], row["high"]], color=INK, linewidth=1.0, zorder=2)
        axes.scatter([gib], [row["seconds"]], color=palette[row["schedule"]], marker=marks[row["devices"]],
                     s=46, edgecolors=INK, linewidths=0.6, zorder=3)  # fmt: skip
    axes.set_xlabel("GiB of the device that needs most")
    axes.set_ylabel("inference seconds")
    axes.set_xlim(left=0)
    axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
    despine(plot)
    names = {row["schedule"] for row in rows}
    entries = [(name, "o", colour) for name, colour in palette.items() if name in names]
    entries += [(words.plural(count, "device"), mark, NO_COLOUR) for count, mark in marks.items()]
    handles = [line(name, marker=mark, color=colour, linestyle="", markersize=7) for name, mark, colour in entries]
    plot.legend(handles=handles, loc="outside right upper", frameon=False)
    keys = ("label", "schedule", "devices", "memory", "seconds", "low", "high")
    return Figure(
        f"{group}-memory",
        f"Inference seconds over memory of a device, {size}",
        "Measured inference seconds over the memory of the device that needs most; vertical lines are the "
        "medians' intervals. Both axes begin at zero.",
        plot,
        ("decomposition", "schedule", "devices", "bytes of a device", "inference seconds", "low", "high"),
        [[row[key] for key in keys] for row in rows],
    )
