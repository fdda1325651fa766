"""The figures on the exact reductions: pure functions of plain values."""

from __future__ import annotations

import math
from collections.abc import Sequence

from spdnn.reductions.registry import REDUCTIONS
from spdnn.report.common import words
from spdnn.report.common.drawing import INK, About, Drawing, drawn, libraries, plain, style
from spdnn.report.reductions.values import STEPS, titled

HUES = {name: hue for hue, name in enumerate(STEPS)}  # of the palette that the colour-blind tell apart
LABELLED = 0.055  # of the axis: a bar shorter than that has no room for its number
MOST = 12  # times the most edges: room for what all factors make together
POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
COLUMNS = 2  # of panels


def edges(networks: Sequence[dict], about: About) -> Drawing:
    """Each network's edges from all that are counted (right) down to what is left (left), on a logarithmic scale.

    A bar is what one reduction leaves out; its length is the factor, so that lengths add up as factors multiply.

    Args:
        networks: of `reductions.section`.
        about: what the figure is.
    """
    seaborn, figure_class = libraries()
    palette = seaborn.color_palette("colorblind", 10).as_hex()
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 1.7 + 0.62 * len(networks)), layout="constrained")
        axes = figure.add_subplot()
        low, high = _ends(networks)
        for place, one in enumerate(networks):
            right = one["edges"]
            for step in one["steps"]:
                left = step["edges"]
                if not left:
                    break
                axes.barh(place, right - left, left=left, height=0.44, color=palette[HUES[step["name"]]])
                if left < right and math.log(right / left) > LABELLED * math.log(high / low):
                    axes.annotate(
                        f"÷ {words.significant(right / left, 3)}", (math.sqrt(left * right), place), ha="center",
                        va="center", fontsize=8.5, color="white" if step["name"] != "inputs" else INK,
                    )  # fmt: skip
                right = left
            axes.plot([one["edges"]] * 2, [place - 0.3, place + 0.3], color=INK, linewidth=1.6)
            if one["computed"]["edges"]:
                axes.plot([one["computed"]["edges"]], [place + 0.34], marker="D", markersize=5, color=INK)
            if one["product"]:
                axes.annotate(
                    f"÷ {words.significant(one['product'], 3)}", (one["edges"], place), xytext=(7, 0),
                    textcoords="offset points", va="center", fontsize=9, color=INK,
                )  # fmt: skip
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(_power)
        axes.set_xlim(low, high)
        axes.set_yticks(range(len(networks)), [_label(one) for one in networks])
        axes.set_ylim(len(networks) - 0.5, -0.5)
        axes.set_xlabel("inputs × edges")
        axes.grid(visible=False, axis="y")
        seaborn.despine(fig=figure, ax=axes, left=True)
        _legend(figure, palette)
        columns = ["network and inputs", "edges counted"]
        for name in STEPS:
            columns += [f"edges left without {REDUCTIONS[name].left_out}", f"{name}, factor"]
        return drawn(figure, about, [*columns, "all factors", "edges really computed"], map(_row, networks))


def _row(one: dict) -> tuple:
    steps = [value for step in one["steps"] for value in (step["edges"], step["factor"])]
    return titled(one), one["edges"], *steps, one["product"], one["computed"]["edges"]


def _ends(networks: Sequence[dict]) -> tuple[float, float]:
    """The ends of the axis: all that is drawn, and a little more on both sides."""
    told = [step["edges"] for one in networks for step in one["steps"]]
    told += [edge for one in networks for edge in (one["edges"], one["computed"]["edges"])]
    known = [edge for edge in told if edge]
    return min(known) / 2, max(known) * MOST


def _power(number: float, _place: int) -> str:
    """A power of ten as a tick shows it."""
    return f"10{str(round(math.log10(number))).translate(POWERS)}"


def _label(one: dict) -> str:
    return f"{one['neurons']:,} × {one['layers']:,}\n{one['inputs']}"


def _legend(figure, palette: Sequence[str]) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles = [Patch(color=palette[HUES[name]], label=f"left out: {REDUCTIONS[name].left_out}") for name in STEPS]
    handles.append(Line2D([], [], color=INK, linestyle="", marker="|", markersize=12, label="as the challenge counts"))
    handles.append(Line2D([], [], color=INK, linestyle="", marker="D", markersize=5, label="really computed"))
    figure.legend(handles=handles, loc="outside lower left", frameon=False, ncols=2)


def rows(curves: Sequence[dict], about: About) -> Drawing:
    """Inputs alive and rows kept, by layer, a panel for each network; all axes are logarithmic and the same.

    Args:
        curves: of `reductions.section`: networks of which it is known how many inputs are alive.
        about: what the figure is.
    """
    seaborn, figure_class = libraries()
    palette = seaborn.color_palette("colorblind", 10).as_hex()
    columns = min(COLUMNS, len(curves))
    lines = -(-len(curves) // columns)
    with style(seaborn):
        figure = figure_class(figsize=(8.4, 0.8 + 2.5 * lines), layout="constrained")
        panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).flat
        for place, (one, axes) in enumerate(zip(curves, panels, strict=False)):
            _curve(axes, one["alive"], {"color": palette[HUES["dead"]], "linewidth": 2})
            if one["rows"] and one["looked"]:
                _curve(axes, one["rows"], {"color": palette[3], "linewidth": 2, "linestyle": (0, (4, 1.5))})
            axes.set_title(titled(one), fontsize=9, loc="left")
            axes.set_xscale("log")
            axes.set_yscale("log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_formatter(plain)
                axis.set_minor_formatter("")
            axes.xaxis.set_tick_params(labelbottom=True)
            if place >= len(curves) - columns:
                axes.set_xlabel("layer")
        for axes in list(panels):
            axes.set_axis_off()
        seaborn.despine(fig=figure)
        _curve_legend(figure, palette, any(one["rows"] and one["looked"] for one in curves))
        told = [
            (titled(one), layer, alive, one["rows"][layer - 1] if one["rows"] else None)
            for one in curves for layer, alive in enumerate(one["alive"], 1)
        ]  # fmt: skip
        return drawn(figure, about, ("network and inputs", "layer", "inputs alive", "rows gone through"), told)


def _curve(axes, counts: Sequence[int], look: dict) -> None:
    """Counts by layer as far as they are not 0."""
    known = [(layer, count) for layer, count in enumerate(counts, 1) if count > 0]
    axes.plot(
        [layer for layer, _ in known], [count for _, count in known], marker="o" if len(known) < 2 else None, **look
    )


def _curve_legend(figure, palette: Sequence[str], kept: bool) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], color=palette[HUES["dead"]], linewidth=2, label="inputs alive")]
    if kept:
        dashes = (0, (4, 1.5))
        handles.append(
            Line2D([], [], color=palette[3], linewidth=2, linestyle=dashes, label="rows that stand for them")
        )
    figure.legend(handles=handles, loc="outside lower left", frameon=False, ncols=2)
