"""The section on the exact reductions: the edges that each leaves out on each network, from run records alone.

Edges are counted as the challenge does (inputs x edges); then without dead inputs, then with identical inputs sharing
a row, then with identical neurons computed once. Rows are from the run with the fewest rows, edges of a layer from a
run that computed identical neurons once. Where no engine noted its rows, steps are edges really computed.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, repeat, takewhile
from operator import attrgetter
from typing import NamedTuple

from spdnn.core import challenge
from spdnn.core.numbers import ceil_div
from spdnn.core.shown import plural, significant
from spdnn.core.table import BILLIONS, NOTHING, RATE, RATIO, SECONDS, Column, Number, Phrase, Styled, Table, code, mark
from spdnn.engines.reductions.registry import REDUCTIONS
from spdnn.report.common import layer_counts, plotting, words
from spdnn.report.common.blocks import Block, Bullets, Fold, Paragraph, Part, Section, term
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import MOST_BARS, MOST_DRAWN, Figure
from spdnn.report.common.layer_counts import edges_of, is_radixnet
from spdnn.report.common.plotting import INK
from spdnn.report.common.run_rows import RunRow, by_formula, group_by, interval

NAME, TITLE = "reductions", "What the reductions leave out"
COUNTED = ("dead", "inputs", "neurons")  # reductions whose rows and edges engines note, as they are counted
COMPUTED, UNSEARCHED = "as computed", "not searched for"  # how edges of a step are known, where not by counting
LEAST_FACTOR = 1.005  # times fewer edges, of networks in figures
MOST_NETWORKS = 60  # in a table
MOST_LINES = 20  # networks with sentences
LABELLED = 0.055  # of the axis: a bar shorter than that has no room for its number
UNNAMED = replace(BILLIONS, name="")  # of columns whose caption has the unit
DIVIDED = replace(RATIO, write=lambda factor: f"÷ {RATIO.write(factor)}")
AXIS_ROOM = 12  # times the most edges: room for the product of all factors
POWERS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
PANEL_COLUMNS = 2  # of panels
DASHES = (0, (4, 1.5))  # of the rows computed


def _times(before: float | None, after: float | None) -> float | None:
    """How many times fewer `after` is; None where either is 0 or no record has it."""
    return before / after if before and after else None


def _divided(factor: float | None) -> Phrase:
    return None if factor is None else Number(factor, DIVIDED)


class Step(NamedTuple):
    """The edges left after a reduction, and how many times fewer that is than before it; None: no record has them.

    Attributes:
        how: COMPUTED, UNSEARCHED, or empty where the edges were counted.
    """

    name: str
    edges: int | None
    factor: float | None
    how: str

    @property
    def gain(self) -> Phrase:
        """The factor, where the reduction was searched for."""
        return None if self.how == UNSEARCHED else _divided(self.factor)


class Network:
    """One network and its inputs, by all its runs: the edges that each reduction left. What no run has is None.

    Attributes:
        most: the run that most reductions were on; computed: edges that it really computed.
        edges, left: of each layer, before reductions and where identical neurons are computed once.
        alive, rows: inputs alive when each layer begins, and the rows computed in it.
        dead_of: the run that `alive` is from.
        searched: whether the run of `rows` searched for identical inputs; a search must be cheap compared with the work
            ahead.
        merged: what the search for identical neurons found.
        cases: that the edges are from.
        product, computed_factor: how many times fewer edges all reductions leave, and were computed.
    """

    def __init__(self, runs: Sequence[RunRow]) -> None:
        self.runs, self.problem, self.title = runs, runs[0].problem, _title(runs[0])
        self.radixnet = is_radixnet(self.problem)
        self.most = min((run for run in runs if run.reduced), key=_computes)
        self.computed = self.most.record.result.edges_needed
        self.edges = layer_counts.layer_edges(run.record for run in runs)
        counts = {run: found for run in runs if (found := layer_counts.layer_counts(run.record))}
        living = {run: found for run in runs if (found := layer_counts.alive(run.record))}
        merging = {run: found for run in runs if (found := layer_counts.merged(run.record))}
        # Rows: with dead and identical inputs left out, of the run that had fewest.
        complete = {
            run: edges_of(counts[run].rows, self.edges or [1] * len(counts[run].rows))
            for run in living if run in counts and "inputs" in run.record.reductions.on
        }  # fmt: skip
        rows_of = min(complete, key=lambda run: (complete[run], run.age), default=None)
        self.rows = counts[rows_of].rows if rows_of else None
        self.searched = bool(rows_of) and rows_of.record.reductions.number("inputs", "looks") != 0
        # Inputs alive: as rows, else of the latest run, of one rank where there is one.
        self.dead_of = rows_of or max(living, key=lambda run: (run.record.ranks == 1, *run.age), default=None)
        self.alive = living[self.dead_of] if self.dead_of else None
        # Neurons: of the latest run that counted them, one with their edges by layer where there is one.
        merged_of = max(merging, key=lambda run: (run in counts, *run.age), default=None)
        self.merged = merging[merged_of] if merged_of else None
        self.left = counts[merged_of].edges if merged_of in counts else None
        self.cases = sorted({run.case for run in (rows_of, merged_of, self.dead_of) if run})
        self.steps = self._steps()
        self.product = _times(self.problem.work, self.steps[-1].edges)
        self.computed_factor = _times(self.problem.work, self.computed)

    def _steps(self) -> list[Step]:
        """Of each reduction. Without counts, runs with that many reductions say what they really computed."""
        steps, before = [], self.problem.work
        pairs = (self.alive, self.edges), (self.rows, self.edges), (self.rows, self.left)
        counts = {name: edges_of(*pair) for name, pair in zip(COUNTED, pairs, strict=True) if all(pair)}
        for name, on in zip(REDUCTIONS, _prefixes()[1:], strict=True):
            edges = counts.get(name)
            how = UNSEARCHED if edges is not None and name == "inputs" and not self.searched else ""
            # Counts are exact; edges computed include padding of tiles, and stand in where nothing was counted.
            same = [run for run in self.runs if run.record.reductions.on == on]
            if same and (edges is None or (name == "dead" and "inputs" not in counts)):
                edges, how = min(same, key=_computes).record.result.edges_needed, COMPUTED
            # Each factor is relative to the step before, so that their product is the whole reduction.
            steps.append(Step(name, edges, _times(before, edges), how))
            before = edges
        return steps

    @property
    def lacks(self) -> list[Phrase]:
        """Sentences on the numbers that no record has, with the command that measures each."""
        lacks, merged, would = [], self.merged, "This run of the engine cpu would record them: "
        if not self.rows or not self.edges:
            lacks.append((
                "no run here recorded the rows of each layer, so the gain of identical inputs cannot be counted "
                f"separately. {would}", _command(self.runs[0], "dead,inputs"),
            ))  # fmt: skip
        elif not self.searched and merged and merged.edges_left < merged.edges:
            lacks.append((
                "the run that recorded its rows never searched for identical inputs, since with identical neurons "
                "merged too little work was left to pay for a search. This run shows their gain: ",
                _command(self.runs[0], "dead,inputs"),
            ))  # fmt: skip
        elif not self.searched:
            lacks.append((
                "identical inputs were not searched for, since a search was never cheap enough compared with the work "
                "ahead.",
            ))  # fmt: skip
        if not merged or (self.rows and not self.left):
            lacks.append((
                "no run here recorded the edges of each layer that are left where identical neurons are computed "
                f"once. {would}", _command(self.runs[0], "all"),
            ))  # fmt: skip
        return [(f"{self.title}: ", *sentence) for sentence in lacks]

    @property
    def found(self) -> Phrase:
        """Sentences on what the searches gave."""
        text: list[Phrase] = [f"{self.title} ({words.described(self.problem.network)})."]
        if self.dead_of:
            left = significant(self.dead_of.record.result.survivors[-1])
            text.append(f" {left} of {self.problem.input_count:,} inputs are alive after the last layer")
            first = self.dead_of.record.reductions.number("dead", "rows_may_leave_before_layer")
            late = ", and as later biases revive rows of zeros, none may leave before it"
            text.append(f"{late * (first > self.problem.layers)}.")
        if self.rows and self.searched:
            text.append(f" The last layer computed {plural(self.rows[-1], 'row')}.")
        if self.merged:
            text.append(f" {self.merged.neurons_left:,} of {self.merged.neurons:,} neurons are different.")
        for place, step in enumerate(self.steps):
            gain = step.gain or (UNSEARCHED if step.how == UNSEARCHED else "not recorded")
            text += [", " if place else " Fewer edges: ", f"{REDUCTIONS[step.name].label} ", gain]
        return [*text, "."]


class Time(NamedTuple):
    """A run, beside the one that had fewer reductions; None where it is the first."""

    run: RunRow
    before: RunRow | None


def _left(place: int) -> Column:
    """The edges left after a reduction, and under them the factor, and how they are known."""

    def below(network: Network) -> Phrase:
        step = network.steps[place]
        return [step.gain, " " if step.gain and step.how else "", mark(step.how)] if step.how else step.gain

    def value(network: Network) -> Phrase:
        edges = network.steps[place].edges
        return NOTHING if edges is None else edges

    return Column(list(REDUCTIONS.values())[place].label.capitalize(), value, UNNAMED, below)


TIMES = Table(
    "Inference seconds with more and more reductions",
    [
        Column("Network and inputs", lambda time: _title(time.run)),
        Column(
            "Engine",
            lambda time: ", ".join(filter(None, (time.run.engine, time.run.cut, time.run.threads_text))),
            below=lambda time: "; ".join(filter(None, (time.run.includes, time.run.machine))),
        ),
        Column("Reductions on", lambda time: time.run.reductions),
        Column("Inference", lambda time: time.run.inference_seconds, SECONDS, below=lambda time: interval(time.run)),
        Column(
            "Times as fast", lambda time: time.before and time.before.inference_seconds / time.run.inference_seconds,
            RATIO,
        ),
        Column("Edges really computed", lambda time: time.run.record.result.edges_needed, BILLIONS),
        Column(
            "Times fewer",
            lambda time: time.before and _times(*(run.record.result.edges_needed for run in reversed(time))), RATIO,
        ),
        Column("Rate", lambda time: time.run.rate.median, RATE),
        Column("Really computed", lambda time: time.run.computed_rate, RATE),
        Column("Case", lambda time: time.run.case),
    ],
    "The same engine, threads and machine with more and more reductions: median inference seconds, under each its "
    "interval; ratios are to the run with fewer reductions",
    record=lambda time: time.run.number,
)  # fmt: skip


def edges_table() -> Table:
    """What is left after each reduction of the registry."""
    columns = [
        Column(
            "Network and inputs", lambda network: network.title,
            below=lambda network: None if network.radixnet else words.described(network.problem.network),
        ),
        Column("Counted by the challenge", lambda network: network.problem.work, UNNAMED),
        *map(_left, range(len(REDUCTIONS))),
        Column("Together", lambda network: network.product, DIVIDED),
        Column(
            "Really computed", lambda network: network.computed, UNNAMED,
            below=lambda network: _divided(network.computed_factor),
        ),
        Column(
            "From the cases", lambda network: ", ".join(network.cases) or NOTHING,
            below=lambda network: None if network.most.case in network.cases else f"computed by {network.most.case}",
        ),
    ]  # fmt: skip
    caption = (
        "Inputs × edges in 10⁹ that are left after each reduction, one after the other, and under it how many times "
        "fewer that is. Counted layer by layer: rows from the run with the fewest rows, edges from a run that computed "
        "identical neurons once; “as computed”: edges that a run with that many reductions really computed"
    )
    return Table("Edges that are left after each reduction", columns, caption)


def section(collection: Collection) -> Section | None:
    """The section; None without a run that had reductions on."""
    every = networks(collection)
    if not every:
        return None
    reduced = [network for network in every if network.product is None or network.product >= LEAST_FACTOR]
    blocks: list[Block] = [
        Paragraph((_example(every), " Each ", term("reduction", "reductions"), " can be switched off.")),
        *([_edges(reduced[:MOST_BARS])] if reduced else []),
        edges_table().of(every, most=MOST_NETWORKS),
    ]
    if lacks := [Paragraph(sentence, "soft") for network in every[:MOST_LINES] for sentence in network.lacks]:
        blocks.append(Fold("What these records lack, and the runs that would have it", lacks))
    if deepest := [network for network in _deepest(every) if network in reduced][:MOST_DRAWN]:
        blocks.append(_rows(deepest))
    if rows := times(collection):
        blocks.append(TIMES.of(rows))
    if others := [network.found for network in every if not network.radixnet]:
        about = "Pruned networks rarely have the structure of the challenge's RadiX-Nets. The searches gave:"
        blocks.append(Part("Other networks", [Paragraph(about), Bullets(others[:MOST_LINES])]))
    return Section(NAME, TITLE, blocks)


def _runs(collection: Collection) -> list[RunRow]:
    """Runs of whole networks; first of RadiX-Nets with the official inputs, which published systems have as well."""
    runs = [run for run in collection.own if not run.record.span.startswith("one layer")]
    return sorted(runs, key=lambda run: (not is_radixnet(run.problem), not run.comparable))


def networks(collection: Collection) -> list[Network]:
    """Each network and its inputs that a run with reductions had."""
    groups = group_by(_runs(collection), lambda run: run.problem_key).values()
    return [Network(runs) for runs in groups if any(run.reduced for run in runs)]


def times(collection: Collection) -> list[Time]:
    """Of one engine on one network, the latest run with no, one, two, ... reductions, where there are two or more."""
    # Ratios of times are taken on one rank, where no communication enters.
    single = [run for run in _runs(collection) if run.record.ranks == 1]
    rows = []
    for runs in group_by(single, _setting).values():
        latest = {run.record.reductions.on: run for run in sorted(runs, key=lambda run: run.age)}
        shown = [latest[names] for names in _prefixes() if names in latest]
        rows += map(Time, shown, [None, *shown[:-1]]) if len(shown) > 1 else []
    return rows


def _setting(run: RunRow) -> tuple:
    """All but the reductions: what a ratio of times may not come from."""
    record = run.record
    return *run.problem_key, run.engine, run.cut, record.threads, record.span, words.machine(record.environment)


def _hue(name: str) -> int:
    """Of a reduction, in the palette that the colour-blind tell apart."""
    return list(REDUCTIONS).index(name)


def _prefixes() -> list[frozenset[str]]:
    """No reductions, the first one, the first two, ... all, in the order in which they are counted."""
    return [frozenset(list(REDUCTIONS)[:size]) for size in range(len(REDUCTIONS) + 1)]


def _computes(run: RunRow) -> tuple:
    """A sorting key: the reductions that are on, most first, then the edges that the run really computed."""
    return -len(run.record.reductions.on), run.record.result.edges_needed, run.age


def _title(run: RunRow) -> str:
    return f"{words.network(run.problem)}, {run.inputs} inputs"


def _command(run: RunRow, reductions: str) -> Phrase:
    """What runs the same network and inputs with other reductions: a command, where not only its files have them."""
    problem, network = run.problem, run.problem.network
    inputs, count = problem.inputs.get("source"), problem.input_count
    if inputs in ("mnist", "digits"):
        if problem.official or (network.get("layers") == problem.layers and by_formula(problem)):
            what = f"--neurons {problem.neurons} --layers {problem.layers} --inputs {inputs}"
            part = "" if count == challenge.INPUTS else f" --count {count}"
            return code(f"spdnn challenge {what}{part} --reductions {reductions} --record run.json")
        if network.get("source") == "unstructured" and network.get("seed") == 0:
            what = f"neurons={problem.neurons} layers={problem.layers} inputs={inputs} count={count}"
            return code(f"snakemake --cores 2 --config source=unstructured {what} reductions={reductions}")
    where = Styled("the records", href="#records")
    return f"the command of {run.case}, in ", where, f", with reductions {reductions}"


def _example(every: Sequence[Network]) -> Phrase:
    """A sentence on a network: one with official inputs, then all steps, then both curves is the best example."""
    best = min(
        (network for network in every if network.radixnet),
        key=lambda one: (
            not one.runs[0].comparable, any(step.edges is None or step.how == COMPUTED for step in one.steps),
            not (one.rows and one.searched), one.problem.neurons,
        ),
        default=None,
    )  # fmt: skip
    if not (best and best.product):
        return "Work that has no part in any value is searched for and left out; no result changes."
    return (
        f"On {_size(best)}, {best.runs[0].inputs} inputs, one edge in ", Number(best.product, RATIO),
        " is left after all reductions",
        best.computed_factor and (" (one in ", Number(best.computed_factor, RATIO), " was computed)"),
        "; leaving out the others changes no result.",
    )  # fmt: skip


def _size(network: Network) -> str:
    return f"{network.problem.neurons:,} × {network.problem.layers:,}"


def _deepest(every: Sequence[Network]) -> list[Network]:
    """Of each width and its inputs, the network whose run searched for identical inputs, the deepest of several."""
    deepest: dict[tuple, Network] = {}
    for network in sorted(every, key=lambda one: (one.searched, one.rows is not None, one.problem.layers)):
        problem = network.problem
        other = None if network.radixnet else problem.network_identity
        if network.alive:
            deepest[problem.neurons, problem.inputs_sha256, problem.input_count, other] = network
    return [network for network in every if network in deepest.values()]


def _edges(shown: Sequence[Network]) -> Figure:
    """What each reduction leaves out, by network."""
    pairs = [(f"edges left without {kind.left_out}", f"{name}, factor") for name, kind in REDUCTIONS.items()]
    return Figure(
        "reductions-edges",
        "Edges left after each exact reduction, by network",
        "Inputs × edges, logarithmic: at the right what the challenge counts, at the left what is left. Each bar is "
        "what one reduction leaves out; the number at the right is of all together. Diamond: really computed.",
        partial(_plot_edges, shown),
        ["network and inputs", "edges counted", *chain(*pairs), "all factors", "edges really computed"],
        [
            (
                one.title,
                one.problem.work,
                *chain(*((step.edges, step.factor) for step in one.steps)),
                one.product,
                one.computed,
            )
            for one in shown
        ],
        narrow=True,
    )


def _plot_edges(shown: Sequence[Network], narrow: bool):
    """Each network's edges from all that are counted (right) down to what is left (left), on a logarithmic scale.

    A bar is what one reduction leaves out; its length is the factor, so that lengths add up as factors multiply.
    """
    palette = plotting.colours()
    plot, axes = plotting.canvas(1.2 + 0.32 * len(shown) + (0.8 if narrow else 0), narrow=narrow)
    # The ends of the axis: all that is drawn, and a little more on both sides.
    counts = [edges for one in shown for edges in (one.problem.work, one.computed, *(step.edges for step in one.steps))]
    low, high = min(filter(None, counts)) / 2, max(filter(None, counts)) * AXIS_ROOM
    for row, network in enumerate(shown):
        right = work = network.problem.work
        for step in takewhile(attrgetter("edges"), network.steps):
            left, factor = step.edges, right / step.edges
            axes.barh(row, right - left, left=left, height=0.44, color=palette[_hue(step.name)])
            if math.log(factor) > LABELLED * math.log(high / low):
                axes.annotate(
                    f"÷ {significant(factor, 3)}", (math.sqrt(left * right), row), ha="center", va="center",
                    fontsize=8.5, color="#fefefe" if step.name != "inputs" else "#010101",
                )  # fmt: skip
            right = left
        axes.plot([work] * 2, [row - 0.3, row + 0.3], color=INK, linewidth=1.6)
        if network.computed:
            axes.plot([network.computed], [row + 0.34], marker="D", markersize=5, color=INK)
        if network.product:
            plotting.write_after(axes, f"÷ {significant(network.product, 3)}", work, row, gap=7)
    plotting.logarithmic(axes, "x")
    axes.xaxis.set_major_formatter(lambda number, _: f"10{str(round(math.log10(number))).translate(POWERS)}")
    axes.set_xlim(low, high)
    axes.set_xlabel("inputs × edges")
    others = ["" if one.runs[0].comparable else f", {plotting.fold(one.runs[0].inputs, 20)}" for one in shown]
    plotting.name_rows(plot, axes, list(map(str.__add__, map(_size, shown), others)))
    handles = [
        *(plotting.patch(f"left out: {REDUCTIONS[name].left_out}", color=palette[_hue(name)]) for name in REDUCTIONS),
        plotting.line("as the challenge counts", color=INK, linestyle="", marker="|", markersize=12),
        plotting.line("really computed", color=INK, linestyle="", marker="D", markersize=5),
    ]
    plot.legend(handles=handles, loc="outside lower left", ncols=1 if narrow else 3)
    return plot


def _rows(shown: Sequence[Network]) -> Figure:
    """Inputs alive and rows computed, by layer."""
    return Figure(
        "reductions-rows",
        "Inputs alive and the rows computed for them, by layer",
        "Inputs alive when a layer begins, and the rows computed for them: identical rows are computed once. "
        "Both axes logarithmic; the deepest network of each width.",
        partial(_plot_rows, shown),
        ("network and inputs", "layer", "inputs alive", "rows computed"),
        [
            (one.title, layer, *counts)
            for one in shown
            for layer, counts in plotting.changes(list(zip(one.alive, one.rows or repeat(None), strict=False)))
        ],
    )


def _plot_rows(shown: Sequence[Network], narrow: bool):
    """A panel for each network; all axes are logarithmic and the same."""
    palette = plotting.colours()
    columns = min(PANEL_COLUMNS, len(shown))
    lines = ceil_div(len(shown), columns)
    plot, panels = plotting.canvas(
        0.8 + 1.9 * lines, lines, columns, narrow=narrow, sharex=True, sharey=True, squeeze=False
    )
    looks = {
        "inputs alive": {"color": palette[_hue("dead")], "linewidth": 2},
        "rows computed for them": {"color": palette[3], "linewidth": 2, "linestyle": DASHES},
    }
    panels, names = panels.flat, set()
    for index, (network, axes) in enumerate(zip(shown, panels, strict=False)):
        for (name, look), counts in zip(looks.items(), (network.alive, network.searched and network.rows), strict=True):
            if counts:
                plotting.plot_counts(axes, counts, **look)
                names.add(name)
        axes.set_title(network.title, fontsize=9, loc="left")
        plotting.logarithmic(axes, "xy")
        axes.xaxis.set_tick_params(labelbottom=True)
        if index >= len(shown) - columns:
            axes.set_xlabel("layer")
    for axes in list(panels):
        axes.set_axis_off()
    plotting.despine(plot)
    handles = [plotting.line(name, **look) for name, look in looks.items() if name in names]
    plot.legend(handles=handles, loc="outside lower left", ncols=2)
    return plot
