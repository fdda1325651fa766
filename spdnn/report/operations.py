"""The section on sparse operations for deep learning: ours compared with other libraries and the dense product.

Programs are compared within one comparison on one problem, by pairs of samples; problems by geometric means.
"""

import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from spdnn.core.shown import plural, printable
from spdnn.core.shown import published as printed
from spdnn.core.statistics import ratios
from spdnn.core.table import BILLIONS, BYTES, NUMBER, PERCENT, RATIO, SECONDS, Column, Number, Phrase, Table, code
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Bullets, Fold, Paragraph, Part, Section, Terms
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import Figure
from spdnn.report.common.plotting import INK, MARKS, canvas, colours, despine, logarithmic, plain
from spdnn.report.common.run_rows import group_by
from spdnn.runs.records.operation_record import OperationRecord

NAME, TITLE = "operations", "Sparse operations"
ABSENT = (
    "Sparse products and attention beside other libraries are not shown: there are no records of them. ",
    code("spdnn bench sets -o FOLDER"), " and ", code("snakemake --configfile config/ops.yaml"), " make them.",
)  # fmt: skip
NAMES = {"spmm": "Sparse × dense (SpMM)", "sddmm": "Sampled dense × dense (SDDMM)", "softmax": "Sparse softmax",
         "attention": "Sparse attention", "depthwise": "Depthwise convolution"}  # fmt: skip
SETS = {"a": "layers of pruned networks", "b": "square", "c": "skewed rows", "own": "own matrices"}
IN_ORDER = "ours-in-order"
SAME = attrgetter("operation", "problem.set", "problem.network", "problem.layer", "problem.topology_sha256",
                  "problem.batch_columns", "threads", "device.name")  # of records that may be compared  # fmt: skip
HIGH = 80  # percent of sparsity, which pruning reaches without losing much
JITTER = 0.7  # percent of sparsity between the marks of two networks


class Other:
    """The record of another program, beside that of ours in the same comparison.

    Attributes:
        times: how many times as long as ours it took: the median over pairs of samples.
        best: as `times`, of the fastest samples, which other processes interrupt least.
        memory: bytes that it held / those that ours held.
    """

    def __init__(self, record: OperationRecord, ours: OperationRecord) -> None:
        self.record, self.ours, own, other = record, ours, ours.seconds, record.seconds
        # Samples were taken alternately: pairs see the same state of the machine.
        self.times = ratios(own, other).median if len(own) == len(other) else _median(record) / _median(ours)
        self.best = min(other) / min(own)
        self.memory = record.held_bytes / ours.held_bytes if ours.held_bytes else None


class ComparedProblem:
    """One problem of a comparison: ours, and the other programs.

    Attributes:
        sparse, dense, other: the fastest of the sparse programs, of the dense ones and of both; None: there is none.
        percent: of the problem's sparsity, rounded to a whole one; of a matrix of DLMC, that of its pruned model.
        memory: bytes of the dense matrix / of ours.
    """

    def __init__(self, ours: OperationRecord, others: Iterable[OperationRecord]) -> None:
        self.ours, self.problem, self.operation = ours, ours.problem, ours.operation
        self.others = [Other(record, ours) for record in others]
        fastest = sorted(self.others, key=lambda one: one.times)
        self.sparse, self.dense, self.other = (
            next((one for one in fastest if one.record.program.kind in kinds), None)
            for kinds in (("sparse",), ("dense",), ("sparse", "dense"))
        )
        self.percent = round(100 * (self.problem.dlmc or self.problem).sparsity)
        self.network = printable(self.problem.network) + ", training" * (self.problem.phase == "training")
        held = ours.matrix_bytes
        self.memory = self.dense.record.matrix_bytes / held if self.dense and held else None

    @property
    def rate(self) -> float | None:
        """Useful operations a second."""
        return self.ours.operations_per_second.median or None

    @property
    def peak(self) -> float | None:
        """The part of the machine's multiply-adds that useful operations reached."""
        return self.rate / (2 * self.ours.machine.fma_per_second) if self.ours.machine and self.rate else None

    def get(self, name: str) -> float | None:
        """A number such as `peak` or `sparse.times`; None where it has none."""
        value: Any = self
        for part in name.split("."):
            value = value and getattr(value, part)
        return value


class Means(NamedTuple):
    """Some problems together."""

    problems: Sequence[ComparedProblem]

    @property
    def percent(self) -> int:
        """The sparsity of the first."""
        return self.problems[0].percent

    def get(self, name: str) -> float | None:
        """The geometric mean of the numbers that the problems have; None where none has."""
        numbers = [number for problem in self.problems if (number := problem.get(name))]
        return float(np.exp(np.mean(np.log(numbers)))) if numbers else None


Network = Sequence[Means]  # the problems of a network of a set, in one phase; by sparsity, ascending


def _best(kind: str) -> Callable:
    """A function of some means: the ratio of the fastest samples to those of other programs."""
    return lambda level: (ratio := level.get(f"{kind}.best")) and Number(ratio, RATIO)


MEANS = Table(
    "by set and sparsity",
    [
        Column("Set and network", lambda level: f"{level.problems[0].problem.set}, {level.problems[0].network}"),
        Column("Sparsity", lambda level: Number(level.percent, text=f"{level.percent} %"), NUMBER),
        Column("Problems", lambda level: len(level.problems), NUMBER),
        Column("Over the fastest sparse library", lambda level: level.get("sparse.times"), RATIO, _best("sparse")),
        Column("Over dense", lambda level: level.get("dense.times"), RATIO, _best("dense")),
        Column(
            "Ours fastest of all",
            lambda level: f"{sum(bool(one.other and one.other.times > 1) for one in level.problems)} of "
            f"{len(level.problems)}", NUMBER,
        ),
        Column("Useful operations/s", lambda level: level.get("rate"), BILLIONS),
        Column("Of measured peak", lambda level: level.get("peak"), PERCENT),
        Column("Dense memory ÷ ours", lambda level: level.get("memory"), RATIO),
    ],
    "Geometric means over the problems of a set at a sparsity; under each ratio, that of the fastest samples, which "
    "other processes interrupt least",
)  # fmt: skip
PROBLEMS = Table(
    "Every problem",
    [
        Column("Layer", lambda one: _case(one.ours)),
        Column("Matrix", lambda one: f"{one.problem.rows:,} × {one.problem.columns:,}"),
        Column("Columns", lambda one: one.problem.batch_columns, NUMBER),
        Column("Sparsity", lambda one: one.problem.sparsity, PERCENT),
        Column("Median", lambda one: _median(one.ours), SECONDS),
        Column("Samples", lambda one: len(one.ours.seconds), NUMBER),
        Column("Useful operations/s", lambda one: one.rate, BILLIONS),
        Column("Of peak", lambda one: one.peak, PERCENT),
        Column("Fastest sparse takes × ours", lambda one: one.get("sparse.times"), RATIO,
               lambda one: one.get("sparse.record.program.name")),
        Column("Dense takes × ours", lambda one: one.get("dense.times"), RATIO,
               lambda one: one.get("dense.record.program.name")),
        Column("Setting", lambda one: _note(one.ours, "setting")),
    ],
    "Each problem: ours compared with the fastest sparse library and the fastest dense one",
)  # fmt: skip
BALANCE = Table(
    "Balance on skewed rows",
    [
        Column("Problem", lambda other: f"{other.ours.operation}, {_case(other.ours)}"),
        Column("Sparsity", lambda other: other.ours.problem.sparsity, PERCENT),
        Column("Busy seconds, with", lambda other: other.ours.imbalance, RATIO),
        Column("Busy seconds, without", lambda other: other.record.imbalance, RATIO),
        Column("Nonzeros, with", lambda other: other.ours.nonzero_imbalance, RATIO),
        Column("Nonzeros, without", lambda other: other.record.nonzero_imbalance, RATIO),
        Column("Without takes × with", lambda other: other.times, RATIO),
    ],
    "Maximum over mean of the threads; 1 is even. With the swizzle, rows are assigned to threads by descending length; "
    "without, in their own order",
)
MODELS = Table(
    "Models",
    [
        Column("Model", lambda other: _case(other.ours)),
        Column("Sparsity", lambda other: other.ours.problem.sparsity, PERCENT),
        Column("Compared with", lambda other: other.record.program.name),
        Column("Sparse", lambda other: _median(other.ours), SECONDS),
        Column("The other", lambda other: _median(other.record), SECONDS),
        Column("Times as fast", lambda other: other.times, RATIO),
        Column("Memory, sparse", lambda other: other.ours.held_bytes, BYTES),
        Column("Memory, the other", lambda other: other.record.held_bytes, BYTES),
        Column("Memory ratio", lambda other: other.memory, RATIO),
    ],
    "One model with sparse arithmetic compared with another arithmetic; memory is of weights, attention and operands, "
    "by their sizes",
)
PUBLISHED = Table(
    "Published figures of sparse operations",
    [
        Column("Operation", lambda row: ", ".join(filter(None, (row.operation, row.network)))),
        Column("Quantity", lambda row: row.quantity),
        Column(
            "Figure",
            lambda row: Number(row.value, text=printed(row.value) + " %" * (row.quantity == "percent of peak")), NUMBER,
        ),
        Column("Printed", lambda row: row.printed),
        Column("Hardware", lambda row: row.hardware),
        Column("Against", lambda row: row.against),
        Column("Source", lambda row: row.source),
    ],
    "Published figures, as printed",
)  # fmt: skip
CALLS = Table(
    "Programs",
    [
        Column("Program", lambda record: record.program.name),
        Column("Median", lambda record: _median(record), SECONDS),
        Column("Useful operations/s", lambda record: record.operations_per_second.median, BILLIONS),
        Column("Version", lambda record: record.program.version),
    ],
)
PROGRAMS = Table(
    "Programs and their settings",
    [
        Column("Program", lambda record: record.program.name),
        Column("Kind", lambda record: record.program.kind),
        Column("Version", lambda record: record.program.version),
        Column("Threads used", lambda record: f"{record.program.threads_used} of {record.threads}"),
        Column("How they were set", lambda record: _note(record, "threads_set")),
        Column("Layout", lambda record: _note(record, "layout")),
    ],
)


def _median(record: OperationRecord) -> float:
    return statistics.median(record.seconds)


def _case(record: OperationRecord) -> str:
    return f"{record.problem.network} {record.problem.layer}"


def _note(record: OperationRecord, name: str) -> str | None:
    """What a program noted, which may be of any type."""
    return str(record.program.notes[name]) if name in record.program.notes else None


def section(collection: Collection) -> Section | None:
    """The section; None without records of operations. Of several comparisons on one problem, the latest counts."""
    # Those of whole networks are of the section `calls`.
    records = [record for record in collection.operations if record.operation != "network"]
    if not records:
        return None
    blocks: list[Block] = [Paragraph(
        "Our products and those of other libraries on the same matrices, on equally many threads; above 1, ours is "
        f"faster. {plural(len(records), 'record')}, each of a verified output."
    )]  # fmt: skip
    # Times of another device or another number of threads are never in one table.
    machines = group_by(records, lambda record: (record.device.kind, printable(record.device.name), record.threads))
    for place, ((kind, name, threads), members) in enumerate(sorted(machines.items()), 1):
        on = f"{name}, {plural(threads, 'thread')}" if kind == "cpu" else name
        shown = list(_machine(f"operations-{place}", name, on, members, collection.operation_numbers))
        blocks.append(Part(on, shown, f"operations-{place}"))
    if collection.operation_baselines:
        about = (
            "Figures of the operations' authors, on other machines and other libraries: for orientation, not to be "
            "compared one to one with those above."
        )
        blocks.append(Part("Published", [Paragraph(about), PUBLISHED.of(collection.operation_baselines)]))
    return Section(NAME, TITLE, [*blocks, _how(records)], "Sparse operations for deep learning")


def _machine(
    anchor: str, name: str, on: str, records: Sequence[OperationRecord], numbers: Mapping[int, int]
) -> Iterator[Block]:
    """The blocks of one device (and number of threads)."""
    problems = compare_problems(record for record in records if record.operation != "model")
    if machines := [problem.ours.machine for problem in problems if problem.ours.machine]:
        levels = ", ".join(sorted({machine.instruction_set for machine in machines}))
        most = Number(max(machine.fma_per_second for machine in machines), BILLIONS)
        yield Paragraph(("Peak: up to ", most, f" × 10⁹ float32 multiply-adds a second ({levels})."), "soft")
    for operation, members in group_by(problems, lambda problem: problem.operation).items():
        identity, title = f"{anchor}-{operation}", f"{PROBLEMS.title} of {operation}, {name}: {len(members):,}"
        every = replace(PROBLEMS, record=lambda one: numbers[id(one.ours)]).of(members, title=title)
        yield Part(NAMES[operation], [*_operation(identity, operation, name, on, members), every], identity)
    in_order = [other for problem in problems for other in problem.others if other.record.program.name == IN_ORDER]
    if skewed := [other for other in in_order if other.ours.imbalance]:
        yield BALANCE.of(skewed, title=f"{BALANCE.title}, {name}")
    if models := models_of(records):
        table = replace(MODELS, record=lambda other: numbers[id(other.ours)])
        yield table.of(models, title=f"{MODELS.title}, {name}")


def _operation(
    identity: str, operation: str, name: str, on: str, problems: Sequence[ComparedProblem]
) -> Iterator[Block]:
    """Figures, means and sentences on one operation on one device."""
    groups = group_by(problems, lambda one: (one.problem.set, one.problem.network, one.problem.phase)).values()
    by_percent = [sorted(group_by(group, lambda one: one.percent).items()) for group in groups]
    networks = [[Means(level) for _, level in levels] for levels in by_percent]
    yield from _figures(identity, f"{operation}, {name}", on, networks)
    sets = {one.problem.set: SETS.get(one.problem.set, one.problem.set) for one in problems}
    # What was drawn from the collection, once for each sample.
    samples = dict.fromkeys(
        f"{one.network}: a sample of {dlmc.drawn:,} of {dlmc.drawn_from:,} matrices of DLMC, seed {one.problem.seed}"
        for one in problems if (dlmc := one.problem.dlmc)
    )  # fmt: skip
    yield MEANS.of(
        [level for network in networks for level in network],
        title=f"{NAMES[operation]} {MEANS.title}, {name}",
        caption="; ".join([f"{MEANS.caption}. Set {', '.join(map(': '.join, sets.items()))}", *samples]),
    )
    high = group_by(problems, lambda one: one.problem.set if one.percent >= HIGH and one.other else None)
    crossings = [sentence for network in networks if (sentence := _crossing(network))]
    if sentences := [*(_high(kind, Means(of_set)) for kind, of_set in high.items()), *crossings]:
        yield Bullets(sentences)


def _high(kind: str, mean: Means) -> Phrase:
    """How many times as fast as others ours is on the problems of a set that are sparse."""
    names = {"sparse": "the fastest sparse library, ", "dense": "dense, ", "other": "the fastest of all."}
    ratios = ((mean.get(f"{program}.times"), name) for program, name in names.items())
    texts = [(Number(ratio, RATIO), f" times as fast as {name}") for ratio, name in ratios if ratio]
    return f"Set {kind} from {HIGH} % sparsity on: ", texts


def _crossing(levels: Network) -> Phrase:
    """A sentence on where sparse overtakes dense; None without a dense product."""
    name = levels[0].problems[0].network
    points = [(level.percent, ratio) for level in levels if (ratio := level.get("dense.times"))]
    if not points:
        return None
    percent = crossing(points)
    if percent is None:
        return f"{name}: dense is faster at every sparsity up to {levels[-1].percent} %."
    lowest = percent == levels[0].percent
    how = " or below: in the geometric mean it is faster at every one that was run" if lowest else " (interpolated)"
    return f"{name}: sparse overtakes dense at ", Number(percent, RATIO), f" % sparsity{how}."


def _how(records: Sequence[OperationRecord]) -> Fold:
    """How it was measured: programs, machines and commands."""
    about = (
        "One call is timed, alternately with those of the others; layouts and handles are made before, and operands "
        "are in the caches. Dense is the product with all zeros in it. Ratios are medians over pairs of samples; "
        "several problems are summed up by their geometric mean. The peak is measured between the samples. ",
        Number(sum(record.verification.checked for record in records)),
        " entries were compared with a float64 reference: the largest error was ",
        Number(max(record.verification.worst for record in records), RATIO),
        " of its tolerance, and every timed output equals the verified one bit for bit.",
    )
    programs = {(record.program.name, record.program.version): record for record in records}
    commands = []
    for _, record in sorted({record.comparison: record for record in records}.items()):
        place = record.environment
        machine = f"{words.device(place)}, commit ", code(place.commit or "unknown"), " ", code(place.command)
        commands.append((record.created, machine))
    blocks = [Paragraph(about), PROGRAMS.of([record for _, record in sorted(programs.items())]), Terms(commands)]
    return Fold("How this was measured: programs, machines and commands", blocks)


def crossing(points: Sequence[tuple[float, float]]) -> float | None:
    """The sparsity in percent from which on sparse is faster than dense; the lowest where it is faster throughout.

    Args:
        points: (percent, times as fast as dense). Between two that lie on either side of 1, the logarithm is taken as
            a straight line.

    Returns:
        None where sparse is slower at the highest sparsity.
    """
    curve = sorted(points)
    if curve[-1][1] < 1:
        return None
    for (low, before), (high, after) in reversed(list(zip(curve, curve[1:], strict=False))):
        if before < 1 <= after:
            return low + (high - low) * np.log(1 / before) / np.log(after / before)
    return curve[0][0]


def compare_problems(records: Iterable[OperationRecord]) -> list[ComparedProblem]:
    """The problems on which ours was timed, alone or alternately with others; the latest comparison of each."""
    latest = []
    for group in group_by(records, SAME).values():
        # Samples are comparable within one comparison only, so the latest whole comparison is taken, not the latest
        # record of each program; and every ratio is to ours, so one without ours is left out.
        own = [record for record in group if record.program.kind == "ours" and record.program.name != IN_ORDER]
        if ours := max(own, key=attrgetter("created", "comparison"), default=None):
            others = (one for one in group if one.comparison == ours.comparison and one is not ours)
            latest.append(ComparedProblem(ours, others))
    order = attrgetter("operation", "problem.set", "problem.network", "percent")
    return sorted(latest, key=lambda one: (*order(one), -one.problem.repeats, one.problem.layer))


def models_of(records: Iterable[OperationRecord]) -> list[Other]:
    """Each model with sparse arithmetic, compared with other arithmetics; the latest comparison of each."""
    compared = compare_problems(record for record in records if record.operation == "model")
    return [other for one in compared for other in one.others if other.record.program.kind != "ours"]


def _figures(identity: str, what: str, on: str, networks: Sequence[Network]) -> Iterator[Figure]:
    """By sparsity: times as fast as dense, and percent of the peak, where they were measured."""
    kinds = (
        (
            "dense.times", 1, "Times as fast as the dense product", "times as fast as the dense product",
            "How many times as fast as the fastest dense product, by sparsity, on a logarithmic scale. "
            "Points: problems; lines: geometric means. Networks are shifted a little.",
        ),
        (
            "peak", 100, "Percent of measured peak", "% of measured peak (useful operations)",
            "Useful operations (two for each nonzero and column) a second, in percent of what the machine's "
            "multiply-adds in registers were measured to reach.",
        ),
    )  # fmt: skip
    for value, scale, title, label, caption in kinds:
        rows = [
            (one.network, one.problem.layer, one.percent, scale * number)
            for network in networks for level in network for one in level.problems if (number := one.get(value))
        ]  # fmt: skip
        if rows:
            yield Figure(
                f"{identity}-{value.split('.')[0]}",
                f"{title} by sparsity, {what}",
                f"{caption} On {on}.",
                partial(_plot, networks, value, scale, label),
                ("network", "problem", "sparsity, %", label),
                rows,
            )


def _plot(networks: Sequence[Network], value: str, scale: int, label: str, narrow: bool):
    """Problems as points and geometric means as a line, of each network."""
    palette = colours(max(10, len(networks)))
    plot, axes = canvas(4.4, narrow=narrow)
    for index, levels in enumerate(networks):
        shift, mark = JITTER * (index - (len(networks) - 1) / 2), MARKS[index % len(MARKS)]
        problems = [one for level in levels for one in level.problems]
        dots = {"linestyle": "", "markersize": 4, "markeredgewidth": 0, "alpha": 0.45}
        for entries, look in ((levels, {"label": problems[0].network}), (problems, dots)):
            points = [(entry.percent + shift, scale * number) for entry in entries if (number := entry.get(value))]
            axes.plot(*zip(*points, strict=True), color=palette[index], marker=mark, **look)
    if scale == 1:
        axes.axhline(1, color=INK, linewidth=1)
        logarithmic(axes, "y")
    else:
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(plain)
    axes.set(xlabel="sparsity, %", ylabel=label)
    despine(plot)
    plot.legend(loc="outside lower left", ncols=3)
    return plot
