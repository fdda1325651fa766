"""The figures on the exact reductions: edges that are left, by network, and rows that are computed, by layer."""

import math
from collections.abc import Iterator, Sequence

from spdnn.engines.reductions.registry import REDUCTIONS
from spdnn.report.common import plotting, words
from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN, Figure
from spdnn.report.common.plotting import INK
from spdnn.report.reductions.values import title_of

LABELLED = 0.055  # of the axis: a bar shorter than that has no room for its number
LEAST = 1.005  # times fewer edges
MOST = 12  # times the most edges: room for the product of all factors
POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
COLUMNS = 2  # of panels
DASHES = (0, (4, 1.5))  # of the rows computed


def figures(values: dict) -> Iterator[Figure]:
    """Edges that are left, by network; inputs alive and rows computed, by layer; of networks that lost any."""
    if reduced := [value for value in values["networks"] if value["product"] is None or value["product"] >= LEAST]:
        yield edges(reduced[:MOST_BARS])
    if curves := [value for value in values["curves"] if value in reduced]:
        yield rows(curves[:MOST_DRAWN])


def edges(networks: Sequence[dict]) -> Figure:
    """What each reduction leaves out, by network; the figure of `_edges`, with its data."""
    columns = ["network and inputs", "edges counted"]
    for name in REDUCTIONS:
        columns += [f"edges left without {REDUCTIONS[name].left_out}", f"{name}, factor"]
    return Figure(
        "reductions-edges",
        "Edges left after each exact reduction, by network",
        "Inputs × edges, logarithmic: at the right what the challenge counts, at the left what is left. Each bar is "
        "what one reduction leaves out; the number at the right is of all together. Diamond: really computed.",
        _edges(networks),
        [*columns, "all factors", "edges really computed"],
        map(_row, networks),
        narrow=_edges(networks, True),
    )


def _edges(networks: Sequence[dict], narrow: bool = False):
    """Each network's edges from all that are counted (right) down to what is left (left), on a logarithmic scale.

    A bar is what one reduction leaves out; its length is the factor, so that lengths add up as factors multiply.
    """
    palette = plotting.colours()
    plot, axes = plotting.canvas(1.2 + 0.32 * len(networks) + (0.8 if narrow else 0), narrow=narrow)
    low, high = _ends(networks)
    for row, entry in enumerate(networks):
        right = entry["edges"]
        for step in entry["steps"]:
            left = step["edges"]
            if not left:
                break
            axes.barh(row, right - left, left=left, height=0.44, color=palette[_hue(step["name"])])
            if left < right and math.log(right / left) > LABELLED * math.log(high / low):
                axes.annotate(
                    f"÷ {words.significant(right / left, 3)}", (math.sqrt(left * right), row), ha="center",
                    va="center", fontsize=8.5, color="#fefefe" if step["name"] != "inputs" else "#010101",
                )  # fmt: skip
            right = left
        axes.plot([entry["edges"]] * 2, [row - 0.3, row + 0.3], color=INK, linewidth=1.6)
        if entry["computed"]["edges"]:
            axes.plot([entry["computed"]["edges"]], [row + 0.34], marker="D", markersize=5, color=INK)
        if entry["product"]:
            plotting.write_after(
                axes, f"÷ {words.significant(entry['product'], 3)}", entry["edges"], row, gap=7, size=9
            )
    plotting.logarithmic(axes, "x")
    axes.xaxis.set_major_formatter(lambda number, _: f"10{str(round(math.log10(number))).translate(POWERS)}")
    axes.set_xlim(low, high)
    axes.set_xlabel("inputs × edges")
    plotting.name_rows(plot, axes, [_label(network) for network in networks])
    _legend(plot, palette, 1 if narrow else 3)
    return plot


def _row(network: dict) -> tuple:
    steps = [value for step in network["steps"] for value in (step["edges"], step["factor"])]
    return title_of(network), network["edges"], *steps, network["product"], network["computed"]["edges"]


def _ends(networks: Sequence[dict]) -> tuple[float, float]:
    """The ends of the axis: all that is drawn, and a little more on both sides."""
    counts = [step["edges"] for network in networks for step in network["steps"]]
    counts += [count for network in networks for count in (network["edges"], network["computed"]["edges"])]
    counts = [count for count in counts if count]
    return min(counts) / 2, max(counts) * MOST


def _hue(name: str) -> int:
    """Of a reduction, in the palette that the colour-blind tell apart."""
    return list(REDUCTIONS).index(name)


def _label(network: dict) -> str:
    size = f"{network['problem'].neurons:,} × {network['problem'].layers:,}"
    return size if network["comparable"] else f"{size}, {plotting.fold(network['inputs'], 20)}"


def _legend(plot, palette: Sequence[str], columns: int) -> None:
    handles = [
        plotting.patch(f"left out: {REDUCTIONS[name].left_out}", color=palette[_hue(name)]) for name in REDUCTIONS
    ]
    handles.append(plotting.line("as the challenge counts", color=INK, linestyle="", marker="|", markersize=12))
    handles.append(plotting.line("really computed", color=INK, linestyle="", marker="D", markersize=5))
    plot.legend(handles=handles, loc="outside lower left", frameon=False, ncols=columns)


def rows(curves: Sequence[dict]) -> Figure:
    """Inputs alive and rows computed, by layer, a panel for each network; all axes are logarithmic and the same."""
    palette = plotting.colours()
    columns = min(COLUMNS, len(curves))
    lines = -(-len(curves) // columns)
    plot, panels = plotting.canvas(0.8 + 1.9 * lines, lines, columns, sharex=True, sharey=True, squeeze=False)
    panels = panels.flat
    for index, (entry, axes) in enumerate(zip(curves, panels, strict=False)):
        plotting.plot_counts(axes, entry["alive"], color=palette[_hue("dead")], linewidth=2)
        if entry["rows"] and entry["searched"]:
            plotting.plot_counts(axes, entry["rows"], color=palette[3], linewidth=2, linestyle=DASHES)
        axes.set_title(title_of(entry), fontsize=9, loc="left")
        plotting.logarithmic(axes, "xy")
        axes.xaxis.set_tick_params(labelbottom=True)
        if index >= len(curves) - columns:
            axes.set_xlabel("layer")
    for axes in list(panels):
        axes.set_axis_off()
    plotting.despine(plot)
    handles = [plotting.line("inputs alive", color=palette[_hue("dead")], linewidth=2)]
    if any(curve["rows"] and curve["searched"] for curve in curves):
        handles.append(plotting.line("rows computed for them", color=palette[3], linewidth=2, linestyle=DASHES))
    plot.legend(handles=handles, loc="outside lower left", frameon=False, ncols=2)
    return Figure(
        "reductions-rows",
        "Inputs alive and the rows computed for them, by layer",
        "Inputs alive when a layer begins, and the rows computed for them: identical rows are computed once. "
        "Both axes logarithmic; the deepest network of each width.",
        plot,
        ("network and inputs", "layer", "inputs alive", "rows computed"),
        [
            (title_of(curve), layer, alive, curve["rows"][layer - 1] if curve["rows"] else None)
            for curve in curves for layer, alive in enumerate(curve["alive"], 1)
        ],
    )  # fmt: skip
