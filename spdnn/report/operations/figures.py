"""The figures on sparse operations by sparsity: ours compared with the dense product and with the machine's peak."""

from collections.abc import Callable, Iterator, Sequence

from spdnn.report.common import words
from spdnn.report.common.drawing import Figure
from spdnn.report.common.plotting import INK, canvas, colours, despine, logarithmic, plain

MARKS = ("o", "s", "^", "D", "v", "P")
JITTER = 0.7  # percent of sparsity between the marks of two networks


def figures(values: dict) -> Iterator[Figure]:
    """Of each machine and operation: times as fast as dense, and percent of the peak, where they were measured."""
    for machine in values["machines"]:
        for operation in machine["operations"]:
            rows = [row for curve in operation["curves"] for row in curve["rows"]]
            if any(row["dense"] for row in rows):
                yield speedup(operation, machine)
            if any(row["peak"] for row in rows):
                yield peak(operation, machine)


def speedup(operation: dict, machine: dict) -> Figure:
    """Times as fast as the dense product by sparsity, logarithmic: problems as points, geometric means as lines."""
    return _by_sparsity(
        operation["curves"],
        f"{operation['id']}-dense",
        f"Times as fast as the dense product by sparsity, {operation['operation']}, {machine['name']}",
        "How many times as fast as the fastest dense product, by sparsity, on a logarithmic scale. "
        f"Points: problems; lines: geometric means. Networks are shifted a little. {_on(machine)}",
        "times as fast as the dense product", lambda row: row.dense and row.dense[1], "dense", ratio=True,
    )  # fmt: skip


def peak(operation: dict, machine: dict) -> Figure:
    """Percent of the machine's measured multiply-adds by sparsity: problems as points, geometric means as lines."""
    return _by_sparsity(
        operation["curves"],
        f"{operation['id']}-peak",
        f"Percent of measured peak by sparsity, {operation['operation']}, {machine['name']}",
        "Useful operations (two for each nonzero and column) a second, in percent of what the machine's "
        f"multiply-adds in registers were measured to reach. {_on(machine)}",
        "% of measured peak (useful operations)", lambda row: row.peak, "peak", ratio=False,
    )  # fmt: skip


def _on(machine: dict) -> str:
    threads = f", {words.plural(machine['threads'], 'thread')}" if machine["threads"] else ""
    return f"On {machine['name']}{threads}."


def _by_sparsity(
    curves: Sequence[dict], name: str, title: str, caption: str, label: str, value: Callable, mean: str, *, ratio: bool
) -> Figure:
    """A curve of each network; `value` is of a problem, `mean` the key of a row's geometric mean."""
    palette = colours(max(10, len(curves)))
    plot, axes = canvas(4.4)
    lines = []
    for index, curve in enumerate(curves):
        shift, mark = JITTER * (index - (len(curves) - 1) / 2), MARKS[index % len(MARKS)]
        points = [(row.percent + shift, value(row)) for row in curve["members"] if value(row) is not None]
        axes.scatter(
            [x for x, _ in points], [y for _, y in points], s=16, marker=mark, color=palette[index], alpha=0.45,
            linewidths=0,
        )  # fmt: skip
        means = [(row["percent"] + shift, row[mean]) for row in curve["rows"] if row[mean] is not None]
        lines += axes.plot(
            [x for x, _ in means], [y for _, y in means], color=palette[index], marker=mark, linewidth=1.8
        )
    if ratio:
        axes.axhline(1, color=INK, linewidth=1)
        logarithmic(axes, "y")
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(plain)
    axes.set_xlabel("sparsity, %")
    axes.set_ylabel(label)
    despine(plot)
    plot.legend(lines, [curve["label"] for curve in curves], loc="outside lower left", frameon=False, ncols=3)
    rows = [
        (curve["label"], row.problem.layer, row.percent, value(row))
        for curve in curves for row in curve["members"] if value(row) is not None
    ]  # fmt: skip
    return Figure(name, title, caption, plot, ("network", "problem", "sparsity, %", label), rows)
