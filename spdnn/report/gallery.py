"""Every figure of the page, drawn from its values: which there are, what each is called, and what it says below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from spdnn.report.breakdown import figures as breakdown_figures
from spdnn.report.breakdown import values as breakdown
from spdnn.report.common import series, words
from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN, About, Drawing
from spdnn.report.networks import figures
from spdnn.report.operations import figures as operation_figures
from spdnn.report.reductions import figures as reduction_figures
from spdnn.report.roofline import figures as roofline_figures
from spdnn.report.scaling import figures as scaling_figures
from spdnn.report.scaling import values as scaling
from spdnn.report.schedules import figures as timelines

MOST_CUT = 3  # groups of schedules, each with a figure of what was measured, one of what is predicted, one of memory
Say = Callable[..., About]


def drawings(page: dict, png: bool = False) -> dict[str, Drawing]:
    """The figures that have something to show, by name.

    Args:
        page: the values of `model.page` and of the other sections.
        png: whether each is wanted as PNG too.
    """

    def say(name: str, category: str, title: str, caption: str) -> About:
        return About(name, category, title, caption, png)

    parts = (
        _networks, _ladders, _peers, _scaling, _schedules, _operations, _breakdown, _roofline, _reductions,
    )  # fmt: skip
    return {one.about.name: one for part in parts for one in part(page, say)}


def _networks(page: dict, say: Say) -> Iterator[Drawing]:
    if points := series.points(page["networks"]):
        official = [run for network in page["networks"] if network["official"] for run in network["runs"]]
        caption = (
            "TeraEdges/s on a logarithmic scale by official network (neurons × layers). Colour: what the time "
            "includes. Shape: who ran it, the best published figure of each span on one and on several devices. "
            "Hollow: a lossy method, or not the challenge's 60,000 inputs. Lines: the intervals of our medians. "
            f"Our settings: {_listed(series.configurations(official))}."
        )
        about = say("throughput", "networks", "TeraEdges/s of this project beside published results", caption)
        yield figures.throughput(points, about)
    if curves := series.curves(page["own"], MOST_DRAWN):
        caption = (
            "Inputs with a nonzero row after each layer, both axes logarithmic. A run whose counts are the first "
            f"layers of a deeper one is not drawn again. Settings: {_listed(series.configurations(page['own']))}."
        )
        yield figures.survivors(
            curves, say("survivors", "times", "Inputs with a nonzero row after each layer", caption)
        )


def _ladders(page: dict, say: Say) -> Iterator[Drawing]:
    for one in page["ladders"]:
        size = _size(one["run"]["record"]["problem"])
        caption = (
            f"{size}, {one['run']['inputs']} inputs: median inference seconds on a logarithmic scale, lines are the "
            f"medians' intervals. On {words.machine(one['run']['record']['environment'])}. {_includes(one['runs'])}"
            f"Cases: {_listed([run['case'] for run in one['runs']])}."
        )
        about = say(one["id"], "times", f"Inference seconds by setting, {size}", caption)
        yield figures.ladder(one["rungs"], about)


def _includes(runs: Sequence[dict]) -> str:
    """What the time of each includes, where all include the same."""
    spans = {run["span"] for run in runs}
    return f"Time: {spans.pop()}. " if len(spans) == 1 else "What each time includes stands with its setting. "


def _peers(page: dict, say: Say) -> Iterator[Drawing]:
    rows = [
        (comparison["label"], row)
        for comparison in page["comparisons"][:MOST_DRAWN] for row in comparison["rows"] if not row["is_ours"]
    ]  # fmt: skip
    if rows:
        own = [comparison["ours"]["told"] for comparison in page["comparisons"][:MOST_DRAWN]]
        caption = (
            "How many times as long as ours each library took, on a logarithmic scale: median over pairs of samples "
            "taken in turn, with the interval of that median. Right of the line, ours is faster. Ours: "
            f"{_listed(sorted(set(own)))}."
        )
        yield figures.peers(rows, say("peers", "peers", "Times as long as ours, by library and problem", caption))


def _reductions(page: dict, say: Say) -> Iterator[Drawing]:
    section = page.get("reductions")
    if not section:
        return
    caption = (
        "Inputs × edges on a logarithmic scale: at the right what the challenge counts, at the left what is left. Each "
        "bar is what one reduction leaves out after those to its right, and its length is how many times fewer edges "
        "that leaves; the number at the right is of all together. Diamond: what the run with most reductions computed. "
    )
    shown = section["networks"][:MOST_BARS]
    cases = {step["case"] for one in shown for step in one["steps"] if step["case"]}
    caption += f"Cases: {_listed(sorted(cases))}."
    yield reduction_figures.edges(
        shown, say("reductions-edges", "reductions", "Edges left after each exact reduction, by network", caption)
    )
    if curves := section["curves"][:MOST_DRAWN]:
        cases = sorted({case for one in curves for case in one["cases"]})
        caption = (
            "Inputs alive when a layer begins, and the rows that the engine goes through for them, both axes "
            "logarithmic. Rows are drawn where the run looked for equal ones; they are fewer once some are found. Of "
            f"networks that begin with the same layers one is drawn. Cases: {_listed(cases)}."
        )
        title = "Inputs alive and the rows that stand for them, by layer"
        yield reduction_figures.rows(curves, say("reductions-rows", "reductions", title, caption))


def _scaling(page: dict, say: Say) -> Iterator[Drawing]:
    section = page["scaling"]
    for group in section["groups"][:MOST_DRAWN] if section else ():
        if group["kind"] == scaling.OTHER:
            continue
        kind, rows = group["kind"].capitalize(), group["rows"]
        weak = (
            " With even work for each input the seconds would stay as they are; how many inputs die depends on the "
            "inputs."
        )
        caption = (
            f"{kind} scaling over ranks. Speed-up is on a logarithmic scale, and so are seconds that differ by a "
            "factor of four; vertical lines are the medians' intervals; dotted: each rank bringing as much as the "
            f"first. Colour and mark: the partition.{weak if group['kind'] == scaling.WEAK else ''} Engine "
            f"{group['engine']}, {words.plural(group['threads'], 'thread')} for each rank, reductions: "
            f"{group['reductions']}."
        )
        title = f"{kind} scaling, {_size(group)}: time, speed-up, efficiency, imbalance by ranks"
        yield scaling_figures.scaling(rows, say(group["id"], "scaling", title, caption))
    for one in section["published"] if section else ():
        system, hardware = words.printable(one["system"]), words.printable(one["hardware"])
        caption = (
            f"Published, not measured here: TeraEdges/s of {system} (logarithmic), and its efficiency (rate ÷ devices "
            f"÷ the published rate of one device), over {one['devices'][0]} to {one['devices'][-1]} of {hardware}. "
            f"{words.printable(one['source'])}."
        )
        title = f"Published scaling of {system} on {hardware}: TeraEdges/s and efficiency by devices"
        yield scaling_figures.published(one["curves"], one["hardware"], say(one["id"], "scaling", title, caption))


def _schedules(page: dict, say: Say) -> Iterator[Drawing]:
    for group in page["schedules"]["groups"][:MOST_CUT] if page["schedules"] else ():
        yield from _timelines(group, say)
        known = [row for row in group["rows"] if row["memory"]]
        if len(known) > 1:
            title = f"Inference seconds over memory of a device, {_size(group)}"
            caption = (
                "Measured inference seconds over the memory of the device that needs most; vertical lines are the "
                "medians' intervals. Both axes begin at zero."
            )
            yield timelines.memory(known, say(f"{group['id']}-memory", "schedules", title, caption))


def _timelines(group: dict, say: Say) -> Iterator[Drawing]:
    if panels := [(row["label"], row["timeline"]) for row in group["measured"]]:
        cases = _listed([row["run"]["case"] for row in group["measured"]])
        caption = (
            "Measured: what each lane of each device did when, in one run of each setting; where a run has very many "
            f"tasks, neighbours are drawn as one. Cases: {cases}."
        )
        title = f"Measured timelines of schedules, {_size(group)}: what each lane did when"
        yield timelines.gantt(panels, say(group["id"], "schedules", title, caption))
    if panels := [(row["label"], row["simulated"]) for row in group["simulated"]]:
        caption = (
            f"Predicted, not measured: the same decompositions in the simulator, calibrated by {group['base']['case']}."
        )
        title = f"Predicted timelines of schedules, {_size(group)}: what each lane did when"
        yield timelines.gantt(panels, say(f"{group['id']}-predicted", "schedules", title, caption))


def _operations(page: dict, say: Say) -> Iterator[Drawing]:
    for place in page["operations"]["places"] if page["operations"] else ():
        for one in place["operations"]:
            where = f"{one['operation']}, {place['name']}"
            rows = [row for curve in one["curves"] for row in curve["rows"]]
            if any(row["dense"] for row in rows):
                caption = (
                    "How many times as fast as the fastest dense product, by sparsity, on a logarithmic scale. "
                    "Points: problems; lines: geometric means. Networks are set apart a little."
                )
                title = f"Times as fast as the dense product by sparsity, {where}"
                yield operation_figures.speedup(
                    one["curves"], say(f"{one['id']}-dense", "operations", title, _on(caption, place))
                )
            if any(row["peak"] for row in rows):
                caption = (
                    "Useful operations (two for each nonzero and column) a second, in percent of what the machine's "
                    "multiply-adds in registers were measured to reach."
                )
                title = f"Percent of measured peak by sparsity, {where}"
                yield operation_figures.peak(
                    one["curves"], say(f"{one['id']}-peak", "operations", title, _on(caption, place))
                )


def _breakdown(page: dict, say: Say) -> Iterator[Drawing]:
    section = page["breakdown"]
    if not section:
        return
    rows, told = (breakdown.drawn(section[key], MOST_BARS) for key in ("rows", "told"))
    bars, parts = [breakdown_figures.whole(row) for row in rows], [breakdown_figures.part(row) for row in told]
    how = (
        "The wholes differ very much, so each bar is all of its own case: its seconds are behind it."
        if breakdown_figures.shared(bars)
        else "Behind each bar are its seconds."
    )
    settings = _listed(series.configurations([row["run"] for row in rows]))
    caption = (
        "Median seconds of reading, preparing and inference, in this order; only inference enters the rate. "
        f"{how}{_fastest(rows, section['rows'])} Settings: {settings}."
    )
    title = "Seconds of read, prepare and inference by case"
    yield breakdown_figures.wholes(bars, say("times-whole", "times", title, caption))
    if parts:
        caption = (
            "What inference was made of, where the record tells: each bar is 100 % of the seconds that it tells of. "
            "Copies beside a kernel are hatched: they are hidden in its time and take none of their own."
            f"{_fastest(told, section['told'])}"
        )
        title = "Shares of kernel, copy and wait in inference by case"
        yield breakdown_figures.shares(parts, say("times-parts", "times", title, caption))


def _roofline(page: dict, say: Say) -> Iterator[Drawing]:
    section = page["roofline"]
    if not section:
        return
    for panel in section["panels"][:MOST_DRAWN]:
        title = f"Roofline of {panel['name']}: edges a second over edges per byte moved"
        yield roofline_figures.roofline(panel, say(panel["id"], "limits", title, _under_roofs(panel)))
    rows = section["rows"][:MOST_BARS]
    caption = (
        "The machine's limit ÷ the median of the inference seconds, the nearest first. Colour: the ceiling that binds."
        f"{_first(rows, section['rows'])}"
    )
    title = "Share of its machine's limit that each run reached"
    yield roofline_figures.distances(rows, say("limit-shares", "limits", title, caption))


def _under_roofs(panel: dict) -> str:
    """The caption of a roofline."""
    runs = len(panel["rows"])
    told = [
        f"Measured ceilings of {panel['name']}, both axes logarithmic.",
        f"The highest that was measured with any of {runs} runs, shaded down to the lowest." if runs > 1 else "",
        "An edge gathers 4 bytes, so a flat roof is a quarter of the bytes loaded a second. A dotted line leads to the "
        "run's own limit, by the ceilings measured with it: above the flat roofs where edges gathered less (a bit in "
        "the first layer), below where ranks had uneven parts.",
        "Short lines on the right: runs that moved no bytes past the caches, or do not tell."
        if not all(row["intensity"] for row in panel["rows"])
        else "",
        f"The {MOST_DRAWN} nearest to their limit have their names." if runs > MOST_DRAWN else "",
    ]
    return " ".join(filter(None, told))


def _first(shown: Sequence, of: Sequence) -> str:
    """That a figure has the first cases alone, where it has not all."""
    return "" if len(shown) == len(of) else f" The first {len(shown)} of {len(of):,} cases; the table has all."


def _fastest(shown: Sequence, of: Sequence) -> str:
    """That a figure has the cases that `breakdown.drawn` chose, where it has not all."""
    chosen = f" {len(shown)} of {len(of):,} cases, the fastest of each network before others; the table has all."
    return "" if len(shown) == len(of) else chosen


def _on(caption: str, place: dict) -> str:
    threads = f", {words.plural(place['threads'], 'thread')}" if place["threads"] else ""
    return f"{caption} On {place['name']}{threads}."


def _size(problem: dict) -> str:
    return f"{problem['neurons']:,} neurons × {words.plural(problem['layers'], 'layer')}"


def _listed(texts: list[str]) -> str:
    return words.listed(texts, between="; ")
