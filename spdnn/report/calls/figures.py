"""The figures on calls: inputs a second by inputs of a call, a line for each program."""

from collections.abc import Iterator

from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import canvas, colours, despine, logarithmic, set_ticks

MOST = 4  # networks that are drawn; all are in tables
MARKS = ("o", "s", "^", "D", "v", "P")


def figures(values: dict) -> Iterator[Figure]:
    """Of each network that was called with several batches, on logarithmic scales."""
    several = [value for value in values["networks"] if len(value["batches"]) > 1]
    yield from map(_throughput, several[:MOST])


def _throughput(calls: dict) -> Figure:
    plot, axes = canvas(4.0)
    lines, rows, marked = [], [], {}
    for name, colour, mark in zip(calls["programs"], colours(10), MARKS * 2, strict=False):
        points = [(entry["batch"], row) for entry in calls["batches"] for row in entry["rows"] if row["name"] == name]
        lines += axes.plot([batch for batch, _ in points], [row["rate"] for _, row in points], color=colour)
        for batch, row in points:
            axes.scatter([batch], [row["rate"]], s=36, marker=mark, color=colour, gid=f"{RECORD}{row['number']}")
            marked[f"{RECORD}{row['number']}"] = f"{name}, {batch} inputs: {row['rate']:.4g} inputs/s"
            rows.append((name, batch, row["seconds"], row["rate"], *row["ratio"][:3]))
    logarithmic(axes, "xy")
    set_ticks(axes.xaxis, [entry["batch"] for entry in calls["batches"]])
    axes.set_xlabel("inputs of a call")
    axes.set_ylabel("inputs a second")
    despine(plot)
    plot.legend(lines, calls["programs"], loc="outside lower left", frameon=False, ncols=3)
    return Figure(
        calls["id"],
        f"Inputs a second by inputs of a call, {calls['name']}",
        f"Inputs of a call ÷ its median seconds, logarithmic scales. {calls['machine']}, {calls['threads']} threads.",
        plot,
        ("program", "inputs of a call", "seconds of a call", "inputs a second", "times as long as ours", "low", "high"),
        rows,
        marked,
    )
