"""The figures on sparse operations: pure functions of plain values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from spdnn.report.common.drawing import INK, About, Drawing, drawn, libraries, plain, style

MARKS = ("o", "s", "^", "D", "v", "P")
JITTER = 0.7  # percent of sparsity that networks stand apart


def speedup(curves: Sequence[dict], about: About) -> Drawing:
    """Times as fast as the dense product by sparsity, logarithmic: problems as points, geometric means as lines.

    Args:
        curves: of `operations._operation`: label, rows, members.
        about: what the figure is.
    """
    label = "times as fast as the dense product"
    return _by_sparsity(curves, about, label, lambda one: one.dense and one.dense[1], "dense", True)


def peak(curves: Sequence[dict], about: About) -> Drawing:
    """Percent of the machine's measured multiply-adds by sparsity: problems as points, geometric means as lines."""
    return _by_sparsity(curves, about, "% of measured peak (useful operations)", lambda one: one.peak, "peak", False)


def _by_sparsity(curves: Sequence[dict], about: About, label: str, value: Callable, mean: str, ratio: bool) -> Drawing:
    seaborn, figure_class = libraries()
    colours = seaborn.color_palette("colorblind", max(10, len(curves))).as_hex()
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 4.4), layout="constrained")
        axes = figure.add_subplot()
        lines = []
        for place, curve in enumerate(curves):
            shift, mark = JITTER * (place - (len(curves) - 1) / 2), MARKS[place % len(MARKS)]
            points = [(one.percent + shift, value(one)) for one in curve["members"] if value(one) is not None]
            axes.scatter(
                [x for x, _ in points], [y for _, y in points], s=16, marker=mark, color=colours[place], alpha=0.45,
                linewidths=0,
            )  # fmt: skip
            known = [(row["percent"] + shift, row[mean]) for row in curve["rows"] if row[mean] is not None]
            lines += axes.plot(
                [x for x, _ in known], [y for _, y in known], color=colours[place], marker=mark, linewidth=1.8
            )
        if ratio:
            axes.axhline(1, color=INK, linewidth=1)
            axes.set_yscale("log")
            axes.yaxis.set_minor_formatter("")
        else:
            axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(plain)
        axes.set_xlabel("sparsity, %")
        axes.set_ylabel(label)
        seaborn.despine(fig=figure, ax=axes)
        figure.legend(lines, [curve["label"] for curve in curves], loc="outside lower left", frameon=False, ncols=3)
        rows = [
            (curve["label"], one.problem["layer"], one.percent, value(one))
            for curve in curves for one in curve["members"] if value(one) is not None
        ]  # fmt: skip
        return drawn(figure, about, ("network", "problem", "sparsity, %", label), rows)
