"""Figures of ours beside the headline results of the four systems that spdnn implements, for a table of measured.py.

config/headlines.csv has these results, the kind of records of ours, and whether the quantity is the same. A result
without records was not measured. Predictions are beside none.
"""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from spdnn.core.statistics import ratio_of_medians
from spdnn.report.common.collection import Collection
from spdnn.report.operations import ComparedProblem, Other, compare_problems, models_of
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.published import read_baselines
from spdnn.runs.records.run_record import RunRecord

Size = tuple[int, int]  # neurons and layers
Runs = Mapping[tuple[Size, str], RunRecord]  # by size and reductions
Devices = Mapping[str, Mapping[Size, Mapping[str, RunRecord]]]  # by GPU, size and reductions


class Ours(NamedTuple):
    """A figure, and the records that it is of."""

    figure: str
    records: Sequence[RunRecord | OperationRecord]


def beside_headlines(runs: Runs, devices: Devices, kept: Callable[[str], Collection]) -> dict[tuple[str, str], Ours]:
    """Ours by the first words of a result and kind of records, of those that are there.

    Args:
        runs: the twelve; devices: runs on GPUs; kept: gives the records of a kind.
    """
    fair = [record for (_, reductions), record in runs.items() if reductions == "dead"]
    threaded = [r for r in kept("spgemm").records if r.engine.name == "spgemm" and r.threads > 1]
    found = {
        ("120 to 500", "spgemm"): _over_serial(threaded),
        ("120 to 500", "like-for-like"): _over_serial(fair),
        ("120 to 500", "reference"): _over_reference(kept("reference").records),
        ("1.16e12", "like-for-like"): Ours(
            _ends([record.edges_per_second.median for record in fair], "{:.2g}") + " edges/s", fair
        ),
        ("2.37", "networks"): _over_an_h100(devices),
    }
    for kind in ("products", "operations"):
        problems = [each for each in compare_problems(kept(kind).operations) if each.operation in ("spmm", "sddmm")]
        found["27 %", kind] = _peak(problems)
        found["faster than cuSPARSE", kind] = _over_sparse([each for each in problems if each.sparse])
    for row in models_of([one for one in kept("operations").operations if one.operation == "model"]):
        found[_result_of(row), "operations"] = Ours(
            f"{row.memory:.1f}" if row.record.program.name == "stored" else f"{row.times:.2f}", [row.ours, row.record]
        )
    return {key: ours for key, ours in found.items() if ours.records}


def _over_serial(records: Sequence[RunRecord]) -> Ours:
    """Published times of the serial reference on one thread over ours, of each network."""
    serial = {
        (row.neurons, row.layers): row.seconds
        for row in read_baselines()
        if row.system.startswith("MATLAB reference") and row.devices == "1 thread" and row.seconds
    }
    times = [serial[r.problem.neurons, r.problem.layers] / statistics.median(r.seconds) for r in records]
    return Ours(f"{_ends(times, '{:.0f}')} (`{records[0].engine.name}`)" if records else "", records)


def _over_reference(records: Sequence[RunRecord]) -> Ours:
    """The time of the challenge's reference program over ours, of the same inputs."""
    if not records:
        return Ours("", [])
    ours, theirs = sorted(records, key=lambda record: record.engine.name != "cpu")
    times = ratio_of_medians(theirs.seconds, ours.seconds).median
    return Ours(f"{times:.0f} (`cpu`, one thread; {ours.problem.input_count:,} inputs)", [theirs, ours])


def _over_an_h100(devices: Devices) -> Ours:
    """The time of an H100 over that of an H200, of each network with dead inputs alone."""
    slow, fast = (
        next((networks for name, networks in devices.items() if model in name), {}) for model in ("H100", "H200")
    )
    pairs = [(slow[size]["dead"], runs_of["dead"]) for size, runs_of in fast.items() if "dead" in runs_of]
    times = [ratio_of_medians(one.seconds, other.seconds).median for one, other in pairs]
    return Ours(_ends(times, "{:.2f}"), [record for pair in pairs for record in pair])


def _peak(problems: Sequence[ComparedProblem]) -> Ours:
    """The part of the measured peak of multiply-adds that products reached."""
    every = _by(problems, lambda each: each.peak)
    shown = (
        f"{name}: {100 * max(each):.0f} % at best, {100 * statistics.geometric_mean(each):.1f} % in the mean"
        for name, each in every.items()
    )
    return Ours("; ".join(shown), [each.ours for each in problems])


def _over_sparse(problems: Sequence[ComparedProblem]) -> Ours:
    """How many times as long the fastest sparse library took, and in how many problems it was faster."""
    shown = (
        f"{name}: {statistics.geometric_mean(each):.2f}, slower in {sum(one < 1 for one in each)} of {len(each)}"
        for name, each in _by(problems, lambda each: each.sparse.times).items()
    )
    return Ours("; ".join(shown), [each.ours for each in problems])


def _by(problems: Iterable[ComparedProblem], number: Callable[[ComparedProblem], float]) -> dict[str, list[float]]:
    """Numbers of problems, by operation and percent of zeros."""
    found = defaultdict(list)
    for each in problems:
        found[f"`{each.operation}` at {each.percent} %"].append(number(each))
    return dict(sorted(found.items()))


def _result_of(row: Other) -> str:
    """The first words of the result that a comparison of models is beside."""
    if row.record.program.name == "stored":
        return "12.8"
    return "sparse MobileNetV1" if row.ours.problem.network == "mobilenet" else "sparse Transformer"


def _ends(numbers: Iterable[float], form: str) -> str:
    """The smallest and the largest of some numbers."""
    ordered = sorted(numbers)
    return " to ".join(dict.fromkeys(form.format(end) for end in (*ordered[:1], *ordered[-1:])))
