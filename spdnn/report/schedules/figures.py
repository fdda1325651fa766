"""Timelines of schedules: a row for each lane of each device, a bar for each task."""

from __future__ import annotations

from collections.abc import Sequence

from spdnn.report.common.drawing import INK, NO_COLOUR, About, Drawing, drawn, libraries, style
from spdnn.taskgraph.decomposition import SCHEDULES

Entry = Sequence  # device, lane, kind, batch or None, first layer, last layer (exclusive), begin, end
# Places in seaborn's "colorblind".
COLOURS = {"layer": 0, "copy-weights": 1, "move": 2, "compact": 4, "park": 5, "join": 3, "collect": 8}
WORDS = {
    "layer": "layers (batches light and dark in turn)",
    "copy-weights": "copies of weights",
    "move": "rows between devices",
    "compact": "rows that leave",
    "park": "batches that wait for others",
    "join": "batches that go on as one",
    "collect": "results",
}
NARROW = 1 / 1500  # of the whole time: shorter bars and gaps cannot be seen, and are drawn with their neighbours
COLUMNS = ("schedule", "device", "lane", "kind", "batch", "first layer", "last layer", "begin", "end")
LANES = ("compute", "copy-weights", "move")


def gantt(panels: Sequence[tuple[str, Sequence[Entry]]], about: About) -> Drawing:
    """One panel below the other, on one scale of time: what each lane did when. Batches are told by light and dark.

    Args:
        panels: (label, timeline) each.
        about: what the figure is.
    """
    seaborn, figure_class = libraries()
    rows = [_rows(timeline) for _, timeline in panels]
    last = max((entry[7] for _, timeline in panels for entry in timeline), default=0.0) or 1.0
    palette = seaborn.color_palette("colorblind", 10).as_hex()
    heights = [0.7 + 0.24 * max(1, len(one)) for one in rows]
    with style(seaborn):
        figure = figure_class(figsize=(8.4, sum(heights) + 0.6), layout="constrained")
        axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for place, (label, timeline), own in zip(axes, panels, rows, strict=True):
            _panel(place, label, timeline, own, last, palette)
        axes[-1].set_xlabel("seconds from the beginning of the run")
        axes[-1].set_xlim(0, last * 1.01)
        seaborn.despine(fig=figure, left=True)
        kinds = [kind for kind in COLOURS if any(entry[2] == kind for _, timeline in panels for entry in timeline)]
        _legend(figure, kinds, palette)
        return drawn(figure, about, COLUMNS, [(label, *entry) for label, timeline in panels for entry in timeline])


def _rows(timeline: Sequence[Entry]) -> list[tuple[int, str]]:
    """(device, lane) of what has a bar."""
    order = {lane: place for place, lane in enumerate(LANES)}
    found = {(entry[0], entry[1]) for entry in timeline if entry[7] > entry[6]}
    return sorted(found, key=lambda row: (row[0], order.get(row[1], len(order)), row[1]))


def _panel(axes, label: str, timeline: Sequence[Entry], rows: list[tuple[int, str]], last: float, palette) -> None:
    for place, (device, lane) in enumerate(rows):
        own = [entry for entry in timeline if (entry[0], entry[1]) == (device, lane)]
        for kind, batch, begin, end in _bars(own, last * NARROW):
            colour = palette[COLOURS[kind]] if kind in COLOURS else NO_COLOUR
            dark = 1.0 if batch is None or batch % 2 == 0 else 0.55
            axes.barh(place, end - begin, left=begin, height=0.72, color=colour, alpha=dark, linewidth=0)
    axes.set_yticks(range(len(rows)), [_lane(device, lane, rows) for device, lane in rows], fontsize=8)
    axes.set_ylim(max(1, len(rows)) - 0.4, -0.6)
    axes.set_title(label, loc="left", fontsize=10, color=INK)
    axes.grid(visible=False, axis="y")


def _lane(device: int, lane: str, rows: Sequence[tuple[int, str]]) -> str:
    words = {"compute": "computes", "copy-weights": "copies weights", "move": "rows arrive"}
    return f"device {device} {words.get(lane, lane)}" if len({d for d, _ in rows}) > 1 else words.get(lane, lane)


def _bars(timeline: Sequence[Entry], narrow: float) -> list[tuple[str, int | None, float, float]]:
    """(kind, batch, begin, end): neighbours of one kind and batch with no gap to be seen are one bar."""
    found: list[list] = []
    for _, _, kind, batch, _, _, begin, end in sorted(timeline, key=lambda entry: (entry[6], entry[7])):
        if end <= begin:
            continue
        near = found and begin - found[-1][3] <= narrow
        if near and (found[-1][:2] == [kind, batch] or end - begin <= narrow):
            found[-1][3] = max(end, found[-1][3])
        else:
            found.append([kind, batch, begin, end])
    return [tuple(one) for one in found]


def _legend(figure, kinds: Sequence[str], palette) -> None:
    from matplotlib.patches import Patch

    handles = [Patch(color=palette[COLOURS[kind]], label=WORDS[kind]) for kind in kinds]
    if handles:
        figure.legend(handles=handles, loc="outside lower left", ncols=3, frameon=False)


def memory(rows: Sequence[dict], about: About) -> Drawing:
    """Seconds over the memory of a device, one mark for each decomposition; colour is the schedule, mark the devices.

    Args:
        rows: of `schedules.section`, those whose memory is known.
    """
    seaborn, figure_class = libraries()
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        colours = dict(zip(SCHEDULES, seaborn.color_palette("colorblind", 10).as_hex(), strict=False))
        counts = sorted({row["devices"] for row in rows})
        marks = dict(zip(counts, "osD^v<>PX*" * len(counts), strict=False))
        for row in rows:
            place = row["memory"] / 2**30
            axes.plot([place, place], [row["low"], row["high"]], color=INK, linewidth=1.0, zorder=2)
            axes.scatter([place], [row["seconds"]], color=colours[row["schedule"]], marker=marks[row["devices"]],
                         s=46, edgecolors=INK, linewidths=0.6, zorder=3)  # fmt: skip
        axes.set_xlabel("GiB of the device that needs most")
        axes.set_ylabel("inference seconds")
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1.08 * axes.get_ylim()[1])
        seaborn.despine(fig=figure)
        _marks_legend(
            figure, [name for name in SCHEDULES if any(row["schedule"] == name for row in rows)], colours, marks
        )
        keys = ("label", "schedule", "devices", "memory", "seconds", "low", "high")
        columns = ("decomposition", "schedule", "devices", "bytes of a device", "inference seconds", "low", "high")
        return drawn(figure, about, columns, [[row[key] for key in keys] for row in rows])


def _marks_legend(figure, names: Sequence[str], colours: dict, marks: dict) -> None:
    from matplotlib.lines import Line2D

    look = {"linestyle": "", "markersize": 7}
    handles = [Line2D([], [], marker="o", color=colours[name], label=name, **look) for name in names]
    plural = {count: f"{count} device{'s' if count > 1 else ''}" for count in marks}
    handles += [
        Line2D([], [], marker=mark, color=NO_COLOUR, label=plural[count], **look) for count, mark in marks.items()
    ]
    figure.legend(handles=handles, loc="outside right upper", frameon=False)
