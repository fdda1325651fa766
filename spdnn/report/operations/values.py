"""The section on sparse operations for deep learning: ours compared with other libraries and the dense product.

Programs are compared within one comparison on one problem, by pairs of samples; problems by geometric means.
"""

import statistics
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from spdnn.core.statistics import ratios
from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.run_rows import group_by
from spdnn.runs.records.operation_record import OperationProblem, OperationRecord

PRODUCTS = ("spmm", "sddmm")
NAMES = {"spmm": "Sparse × dense (SpMM)", "sddmm": "Sampled dense × dense (SDDMM)", "softmax": "Sparse softmax",
         "attention": "Sparse attention", "depthwise": "Depthwise convolution"}  # fmt: skip
SETS = {"a": "layers of pruned networks", "b": "square", "c": "skewed rows", "own": "own matrices"}
IN_ORDER = "ours-in-order"
Other = tuple[OperationRecord, float]  # another program, and how many times as long as ours it took


class ComparedProblem(NamedTuple):
    """One problem of a comparison: ours and the fastest other program of each kind; None where there is none.

    Attributes:
        percent: of the problem's sparsity, rounded to a whole one; of a matrix of DLMC, that of its pruned model.
        sparse, dense: that program.
        peak: percent of the machine's multiply-adds that useful operations reached.
        memory: bytes of the dense matrix / of ours.
    """

    problem: OperationProblem
    operation: str
    percent: float
    ours: OperationRecord
    in_order: OperationRecord | None
    sparse: Other | None
    dense: Other | None
    peak: float | None
    memory: float | None

    @property
    def other(self) -> Other | None:
        """The fastest of all other programs."""
        return min(
            (fastest for fastest in (self.sparse, self.dense) if fastest), key=lambda fastest: fastest[1], default=None
        )

    @property
    def case(self) -> str:
        """Network and layer, in words."""
        return words.printable(f"{self.problem.network} {self.problem.layer}")

    @property
    def median_seconds(self) -> float:
        """Of ours."""
        return statistics.median(self.ours.seconds)

    @property
    def gain_of_swizzle(self) -> float:
        """How many times as long ours took with rows in their own order."""
        return times(self.ours, self.in_order)


def values(collection: Collection) -> dict | None:
    """What the section prints; None without operation records.

    Of several records of one program on one problem and machine, the latest counts.
    """
    # Operation records follow the run records in the page, which numbers both in one sequence.
    numbers = {id(record): number for number, record in enumerate(collection.operations, len(collection.records))}
    records = [
        operation for operation in collection.operations if operation.operation != "network"
    ]  # the section `calls` has those
    if not records:
        return None
    # Times of another device or another number of threads are never in one table.
    machines = group_by(
        records, lambda record: (record.device.kind, words.printable(record.device.name), record.threads)
    )
    return {
        "records": len(records),
        "programs": _programs(records),
        "entries": sum(record.verification.checked for record in records),
        "worst": max(record.verification.worst for record in records),
        "machines": [_machine(key, machines[key], number) for number, key in enumerate(sorted(machines), 1)],
        "published": list(collection.operation_baselines),
        "number_of": lambda record: numbers[id(record)],  # of the record in the page
        "environments": _environments(records),
    }


def compare_problems(records: Iterable[OperationRecord]) -> list[ComparedProblem]:
    """The problems on which ours was timed, alone or alternately with others; the latest comparison of each."""
    # Samples are comparable within one comparison only, so the latest whole comparison is taken, not the latest record
    # of each program.
    latest = []
    for group in group_by(records, _key).values():
        comparisons = group_by(group, lambda record: record.comparison).values()
        if problems := list(filter(None, map(_compare, comparisons))):
            latest.append(max(problems, key=lambda problem: (problem.ours.created, problem.ours.comparison)))
    return sorted(latest, key=_order)


def _key(record: OperationRecord) -> tuple:
    """The same for records that may be compared: the problem and where it ran."""
    names = ("set", "network", "layer", "topology_sha256", "batch_columns")
    problem = (getattr(record.problem, name) for name in names)
    return record.operation, *problem, record.threads, record.device.name


def geometric(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the values that there are; None without any."""
    numbers = [value for value in values if value is not None]
    return float(np.exp(np.mean(np.log(numbers)))) if numbers else None


def crossing(points: Sequence[tuple[float, float | None]]) -> float | None:
    """The sparsity in percent from which on sparse is faster than dense.

    Args:
        points: (percent, times as fast as dense). Between two that lie on either side of 1, the logarithm is taken as
            a straight line.

    Returns:
        None where sparse is slower at the highest sparsity, or there is no ratio; the lowest sparsity where it is
        faster throughout.
    """
    curve = sorted((percent, ratio) for percent, ratio in points if ratio is not None)
    if not curve or curve[-1][1] < 1:
        return None
    for (low, before), (high, after) in reversed(list(zip(curve, curve[1:], strict=False))):
        if before < 1 <= after:
            return low + (high - low) * np.log(1 / before) / np.log(after / before)
    return curve[0][0]


def means(members: Sequence[ComparedProblem]) -> dict:
    """The figures of some problems together."""
    return {
        "count": len(members),
        "sparse": geometric(member.sparse and member.sparse[1] for member in members),
        "dense": geometric(member.dense and member.dense[1] for member in members),
        "sparse_best": geometric(member.sparse and best(member.ours, member.sparse[0]) for member in members),
        "dense_best": geometric(member.dense and best(member.ours, member.dense[0]) for member in members),
        "other": geometric(member.other and member.other[1] for member in members),
        "peak": geometric(member.peak for member in members),
        "memory": geometric(member.memory for member in members),
        "rate": geometric(member.ours.operations_per_second.median or None for member in members),
        "faster": sum(member.other is not None and member.other[1] > 1 for member in members),
    }


def _compare(members: Sequence[OperationRecord]) -> ComparedProblem | None:
    by_name = {record.program.name: record for record in members}
    # Every ratio is relative to ours, so a comparison without it has none.
    ours = next(
        (member for member in members if member.program.kind == "ours" and member.program.name != IN_ORDER), None
    )
    if ours is None:
        return None
    sparse, dense = (_fastest(ours, members, kind) for kind in ("sparse", "dense"))
    machine, rate, matrix_bytes = ours.machine, ours.operations_per_second.median, ours.matrix_bytes
    return ComparedProblem(
        problem=ours.problem,
        operation=ours.operation,
        percent=round(100 * (ours.problem.dlmc or ours.problem).sparsity),
        ours=ours,
        in_order=by_name.get(IN_ORDER),
        sparse=sparse,
        dense=dense,
        peak=100 * rate / (2 * machine.fma_per_second) if machine and rate else None,
        memory=dense[0].matrix_bytes / matrix_bytes if dense and matrix_bytes else None,
    )


def _fastest(ours: OperationRecord, members: Sequence[OperationRecord], kind: str) -> Other | None:
    others = [(member, times(ours, member)) for member in members if member.program.kind == kind]
    return min(others, key=lambda other: other[1], default=None)


def times(ours: OperationRecord, theirs: OperationRecord) -> float:
    """How many times as long theirs took: the median over pairs of samples."""
    own, other = ours.seconds, theirs.seconds
    # Samples were taken alternately: pairs see the same state of the machine.
    if len(own) == len(other):
        return ratios(own, other).median
    return statistics.median(other) / statistics.median(own)


def best(ours: OperationRecord, theirs: OperationRecord) -> float:
    """As `times`, of the fastest samples, which other processes interrupt least."""
    return min(theirs.seconds) / min(ours.seconds)


def _order(compared: ComparedProblem) -> tuple:
    problem = compared.problem
    return compared.operation, problem.set, problem.network, compared.percent, -problem.repeats, problem.layer


def _machine(key: tuple, records: Sequence[OperationRecord], number: int) -> dict:
    """All that is printed of one device (and number of threads)."""
    kind, name, threads = key
    problems = compare_problems(record for record in records if record.operation != "model")
    operations = list(dict.fromkeys(problem.operation for problem in problems))
    return {
        "id": f"operations-{number}",
        "name": name,
        "threads": threads if kind == "cpu" else None,
        "instruction_sets": sorted(
            {problem.ours.machine.instruction_set for problem in problems if problem.ours.machine}
        ),
        "fma": max((problem.ours.machine.fma_per_second for problem in problems if problem.ours.machine), default=None),
        "operations": [
            _operation(op, [problem for problem in problems if problem.operation == op], number) for op in operations
        ],
        "imbalance": [problem for problem in problems if problem.ours.imbalance and problem.in_order],
        "models": models_of([record for record in records if record.operation == "model"]),
    }


def _operation(operation: str, problems: Sequence[ComparedProblem], number: int) -> dict:
    sets = group_by(problems, lambda problem: attrgetter("set", "network", "phase")(problem.problem))
    rows, curves = [], []
    for (kind, network, phase), members in sets.items():
        network = words.printable(network) + (", training" if phase == "training" else "")
        samples = {(problem.problem.dlmc, problem.problem.seed) for problem in members if problem.problem.dlmc}
        # Ratios are averaged over the problems of one sparsity; the crossing with dense is read off the levels.
        levels = group_by(members, lambda member: member.percent)
        of_set = [{"percent": percent, **means(levels[percent])} for percent in sorted(levels)]
        points = [(row["percent"], row["dense"]) for row in of_set]
        rows.append(
            {
                "set": kind,
                "about": SETS.get(kind, kind),
                "network": network,
                "samples": sorted({(one.drawn, one.drawn_from, seed) for one, seed in samples}),
                "rows": of_set,
                "crossing": crossing(points),
                "compared": any(row["dense"] for row in of_set),
                "highest": max(levels),
            }
        )
        curves.append({"label": network, "rows": of_set, "members": members})
    return {
        "id": f"operations-{number}-{operation}",
        "operation": operation,
        "name": NAMES[operation],
        "sets": rows,
        "curves": curves,
        "problems": problems,
        # From 80 % sparsity on, which pruning reaches without losing much, by set.
        "high": {
            kind: means(members)
            for kind, members in group_by(
                problems, lambda problem: problem.problem.set if problem.percent >= 80 else None
            ).items()
        },
    }


def models_of(records: Sequence[OperationRecord]) -> list[dict]:
    """Each model with sparse arithmetic, compared with other arithmetics; the latest comparison of each."""
    rows, same = [], attrgetter("comparison", "problem.network", "problem.layer", "problem.topology_sha256")
    for compared in compare_problems(records):
        members = [record for record in records if same(record) == same(compared.ours)]
        for other in (member for member in members if member.program.kind != "ours"):
            own, its = compared.ours.held_bytes, other.held_bytes
            ratio = {"times": times(compared.ours, other), "memory": its / own if own else None}
            rows.append({"one": compared, "other": other, "other_seconds": statistics.median(other.seconds), **ratio})
    return rows


def _programs(records: Sequence[OperationRecord]) -> list[dict]:
    """Each program once: name, what it is, version, threads."""
    rows: dict[tuple, dict] = {}
    for record in records:
        program, notes = record.program, record.program.notes
        rows[program.name, program.version] = {
            "name": words.printable(program.name),
            "kind": program.kind,
            "version": words.printable(program.version),
            "threads": f"{program.threads_used} of {record.threads}",
            "set": words.printable(notes.get("threads_set", "–"), 120),
            "layout": words.printable(notes.get("layout", "–"), 160),
        }
    return [rows[key] for key in sorted(rows)]


def _environments(records: Sequence[OperationRecord]) -> list[dict]:
    """Machine, commit and command of each comparison."""
    rows: dict[str, dict] = {}
    for record in records:
        environment, device = record.environment, record.device
        rows[record.comparison] = {
            "machine": words.device(environment) if device.kind == "cpu" else words.printable(device.name),
            "created": record.created,
            "commit": words.printable(environment.commit or "unknown"),
            "command": words.printable(environment.command, 2000),
        }
    return [rows[key] for key in sorted(rows)]
