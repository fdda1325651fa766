"""Verdicts: is an output right? The set of categories against a truth, and the values where the truth has them.

Official truth (the twelve problems with the MNIST inputs): the set must be equal, and every survivor at 32
everywhere; nothing is allowed. Otherwise the oracle, on all inputs or on a seeded sample; or a file that lists
categories. Inputs that were drawn before the run (official.py) are compared with the oracle value by value; of the
other survivors, sum, projection, least and largest value. How far float32 may be off is found for each value
(verify/oracle.py), and what may differ for a sum is what its values may differ together. An input that only one of the
two keeps is *borderline* when its last row is within that of zero in both, or at most BORDERLINE (of the largest value,
where all are below 1), or when its values cancel to a sum of nearly zero: float32 and float64 then differ by rounding
alone. It is listed and counted, and passes.
"""

from dataclasses import dataclass

import numpy as np
from msgspec.structs import replace

from spdnn.core import challenge, config_tables
from spdnn.core.categories import read_categories
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.result import Result
from spdnn.core.safe_open import existing
from spdnn.engines import oracle as reference
from spdnn.engines.oracle import Tolerances
from spdnn.runs.records.verdict import SCHEMA, VERSION, Difference, TruthRecord, Values, Verdict
from spdnn.runs.verify.official import draw

BORDERLINE = 1e-5
CANCELLED = 1e-4  # of the largest value: the mean of a row whose values cancel
FIRST = 10  # differences that a verdict lists
LEAST_SAMPLE = 32
TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class Truth:
    """What an output is compared with.

    Attributes:
        kind: official, oracle or file; source: in words.
        inputs: inputs of the run.
        rows: int64, ascending 0-based inputs that were compared; None: all.
        seed: of the sample, when rows is one.
        categories: int64, ascending 1-based, of the inputs compared.
        result, tolerances: the oracle's on the inputs compared, or None.
        ymax: the value that every survivor must have everywhere, or None.
    """

    kind: str
    source: str
    inputs: int
    categories: np.ndarray
    rows: np.ndarray | None = None
    seed: int | None = None
    result: Result | None = None
    tolerances: Tolerances | None = None
    ymax: float | None = None


def official_categories(neurons: int) -> np.ndarray:
    """The official list of a width (int64, ascending, 1-based); InputError where there is none, or it is damaged."""
    if neurons not in challenge.WIDTHS:
        raise InputError(
            f"no official ground truth for {neurons} neurons; it exists for {', '.join(map(str, challenge.WIDTHS))}"
        )
    path = config_tables.table(f"truth/{neurons}.tsv")
    categories = read_categories(path)
    if challenge.categories_sha256(categories) != challenge.TRUTH_SHA256[neurons]:
        raise InputError(
            f"{path}: the list does not have the SHA-256 of the official ground truth for {neurons} neurons"
        )
    return categories


def official(neurons: int, count: int = challenge.INPUTS) -> Truth:
    """The official truth for the first `count` MNIST inputs; past 60,000 the inputs, and so the truth, repeat."""
    once = official_categories(neurons)
    categories = np.concatenate([once + first for first in range(0, count, challenge.INPUTS)])
    source = f"official list for {neurons} neurons"
    return Truth("official", source, count, categories[categories <= count], ymax=challenge.YMAX)


def from_file(path, count: int | None) -> Truth:
    """A truth that a file lists, one 1-based number a line, without values.

    Args:
        count: the number of inputs; None: as many as the last number.

    Raises:
        InputError: as core.categories.read_categories; or a number above `count`.
    """
    categories = read_categories(existing(path, "file of categories"))
    if count is None:
        count = int(categories[-1]) if categories.size else 0
    if categories.size and categories[-1] > count:
        raise InputError(f"{path}: category {categories[-1]} is above the number of inputs, {count}")
    return Truth("file", f"file {path}", count, categories)


def oracle(network: Network, inputs: Inputs, rows: np.ndarray | None = None, seed: int = 0) -> Truth:
    """The oracle's truth on the inputs `rows` (None: all), with the values of those that `draw` gives for the seed."""
    drawn = np.sort(draw(inputs.count, network.outputs, seed))
    result, tolerances = reference.judge(network, inputs, rows, drawn, stage="verify")
    sampled = None if rows is None else seed
    return Truth("oracle", "float64 reference", inputs.count, result.categories, rows, sampled, result, tolerances)


def sample(result: Result, edges: list[int], budget: float, seed: int) -> np.ndarray | None:
    """The inputs that the oracle can afford: None for all, else a seeded sample (int64, ascending, 0-based).

    Half of the budget goes to inputs drawn from all, the first that `draw` gave; half to inputs drawn from the
    survivors, so that both ways to be wrong are searched for, however few survive.

    Args:
        result: of the run; its survivors tell how much work an input is to the oracle, which skips rows of zeros.
        edges: of each layer.
        budget: edges that the oracle may go through; at least LEAST_SAMPLE inputs of each kind are taken.
    """
    # Work of the reference: rows alive before each layer times its edges.
    before = np.concatenate([[result.inputs], result.survivors[:-1]])
    whole = float(before @ np.asarray(edges, dtype=np.float64))
    if whole <= budget:
        return None
    # Half of the budget for each kind; an input that survives costs all layers, others as much as the mean.
    random = np.random.default_rng(seed)
    any_size = max(LEAST_SAMPLE, int(result.inputs * budget / 2 / whole))
    alive_size = max(LEAST_SAMPLE, int(budget / 2 / sum(edges)))
    # Of all inputs, those that were drawn before the run; where these are too few, others.
    drawn = draw(result.inputs, result.outputs, seed)[:any_size]
    if drawn.size < min(any_size, result.inputs):
        others = np.random.default_rng([seed, 2]).choice(result.inputs, any_size, replace=False)
        drawn = np.union1d(drawn, others)
    return np.union1d(drawn, random.choice(result.alive, min(result.alive.size, alive_size), replace=False))


def judge(result: Result, truth: Truth) -> Verdict:
    """The verdict on a result; InputError where the truth is for another number of inputs."""
    if result.inputs != truth.inputs:
        raise InputError(f"a result of {result.inputs} inputs and a ground truth of {truth.inputs}")
    # The categories of the run, of the inputs compared: active inputs whose sum is not zero.
    judged = np.isin(result.alive, truth.rows) if truth.rows is not None else np.ones(result.alive.size, bool)
    ours = result.alive[judged][result.row_sum[judged] != 0] + 1
    missing, unexpected = differences(ours, truth.categories)
    borderline = np.empty(0, np.int64)
    if truth.result is not None:
        # "Small" is measured by 1, or by the largest magnitude of any last row where all are below 1.
        sizes = [abs(part).max(initial=0) for side in (result, truth.result) for part in (side.row_min, side.row_max)]
        unit, odd = min(1.0, float(max(sizes))), np.union1d(missing, unexpected)
        sides = [(side, unit, truth.tolerances) for side in (result, truth.result)]
        # An input that only one side keeps passes where both rows are within rounding of zero.
        near = np.array([n for n in odd if all(_near(n, *side) for side in sides)], dtype=np.int64)
        missing, unexpected, borderline = np.setdiff1d(missing, near), np.setdiff1d(unexpected, near), near
    values = _values(result, truth, ours)
    return verdict(truth, ours.size, missing, unexpected, borderline, values)


def judge_categories(categories: np.ndarray, truth: Truth) -> Verdict:
    """The verdict on a list of categories alone (int64, ascending, 1-based); values are not checked."""
    none, values = np.empty(0, np.int64), _not_checked("only the categories are known")
    return verdict(truth, categories.size, *differences(categories, truth.categories), none, values)


def differences(ours: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(missing, unexpected) of two ascending lists."""
    return np.setdiff1d(expected, ours), np.setdiff1d(ours, expected)


def verdict(truth: Truth, categories: int, missing, unexpected, borderline, values: Values) -> Verdict:
    """Put a verdict together; it passes when nothing is missing, unexpected or of a wrong value."""
    reasons = []
    if missing.size:
        reasons.append(f"{missing.size} categories of the ground truth are missing, the first is {missing[0]}")
    if unexpected.size:
        reasons.append(f"{unexpected.size} categories are not in the ground truth, the first is {unexpected[0]}")
    if values.failures:
        reasons.append(
            f"the values of {values.failures} inputs are wrong, the first is {values.first[0]} ({values.rule})"
        )
    checked = truth.inputs if truth.rows is None else int(truth.rows.size)
    return Verdict(
        schema=SCHEMA,
        version=VERSION,
        passed=not reasons,
        truth=TruthRecord(truth.kind, truth.source, truth.inputs, checked, truth.seed),
        categories=int(categories),
        expected=int(truth.categories.size),
        missing=_listed(missing),
        unexpected=_listed(unexpected),
        borderline=_listed(borderline),
        values=values,
        reasons=reasons,
        judged=None,
    )


def _listed(numbers: np.ndarray) -> Difference:
    return Difference(int(numbers.size), [int(n) for n in numbers[:FIRST]])


def _near(number: int, result: Result, unit: float, tolerances: Tolerances) -> bool:
    """Whether the last row of the 1-based input `number` is within rounding of a row whose sum is zero."""
    index = np.searchsorted(result.alive, number - 1)
    if index == result.alive.size or result.alive[index] != number - 1:
        return True
    # Small in every value, or values of both signs that cancel to nearly nothing.
    place = np.searchsorted(tolerances.numbers, number - 1)
    largest = float(max(abs(result.row_min[index]), abs(result.row_max[index])))
    off = max(tolerances.whole[place], CANCELLED * largest * result.outputs)
    cancelled = result.row_min[index] < 0 and abs(result.row_sum[index]) <= off
    return largest <= max(BORDERLINE * unit, tolerances.value[place]) or bool(cancelled)


def _not_checked(why: str) -> Values:
    return Values(f"values not checked: {why}", 0, 0, 0, [], None)


def _values(result: Result, truth: Truth, ours: np.ndarray) -> Values:
    """How far the values of the survivors agree."""
    # Official networks: every value of every survivor is YMAX, exactly.
    if truth.ymax is not None:
        wrong = (result.row_min != truth.ymax) | (result.row_max != truth.ymax)
        wrong |= result.row_sum != truth.ymax * result.outputs
        error = np.maximum(abs(result.row_min - truth.ymax), abs(result.row_max - truth.ymax))
        return _compare_values(f"every value of every active input is {truth.ymax:g}", result.alive + 1, wrong, error)
    if truth.result is None:
        return _not_checked("the ground truth is a list of categories")
    # Otherwise inputs that both sides keep: extremes, sum and projection, relative to the size of the row.
    common = np.intersect1d(result.alive, truth.result.alive)
    a, b = np.searchsorted(result.alive, common), np.searchsorted(truth.result.alive, common)
    expected, off, wrong = truth.result, truth.tolerances, np.zeros(common.size, bool)
    place = np.searchsorted(off.numbers, common)
    size = np.maximum(abs(expected.row_min[b]), abs(expected.row_max[b])).astype(np.float64)
    worst = np.zeros(common.size)
    for name, tolerance, scale in (
        ("row_min", off.value, size),
        ("row_max", off.value, size),
        ("row_sum", off.whole, size * expected.outputs),
        ("row_projection", off.whole, size * expected.outputs),
    ):
        error = abs(getattr(result, name)[a].astype(np.float64) - getattr(expected, name)[b])
        wrong |= error > tolerance[place]
        worst = np.maximum(worst, error / np.maximum(scale, TINY))
    # Of the inputs that were drawn before the run, every value.
    compared, far, errors = _value_by_value(result, off)
    places = np.searchsorted(common, compared)
    wrong[places] |= far
    worst[places] = np.maximum(worst[places], errors / np.maximum(size[places], TINY))
    rule = (
        f"within float32 rounding: every value of {compared.size:,} of them, and the sum, a random projection, the "
        "smallest and the largest value of each active one"
    )
    return replace(_compare_values(rule, common + 1, wrong, worst), every=int(compared.size))


def _value_by_value(result: Result, off: Tolerances) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (int64, 0-based) alive in both whose values the run kept and the oracle has, whether one of them is too
    far off, and how far at most.

    Raises:
        InputError: the run kept rows of other inputs than those that were drawn.
    """
    if result.values is None:
        return np.empty(0, np.int64), np.empty(0, bool), np.empty(0)
    numbers = result.alive if result.valued is None else result.valued
    # Rows that are alive on one side only are judged as categories.
    compared = np.intersect1d(off.kept[off.values.any(axis=1)], result.alive)
    if not np.isin(compared, numbers).all():
        raise InputError("the result lacks rows of inputs that were drawn to be compared: another seed?")
    far, errors = np.zeros(compared.size, bool), np.zeros(compared.size)
    places = zip(np.searchsorted(numbers, compared), np.searchsorted(off.kept, compared), strict=True)
    for i, (place, its) in enumerate(places):
        error = abs(result.values[place].astype(np.float64) - off.values[its])
        far[i], errors[i] = bool((error > off.each[its]).any()), float(error.max())
    return compared, far, errors


def _compare_values(rule: str, numbers: np.ndarray, wrong: np.ndarray, error: np.ndarray) -> Values:
    first, largest = [int(n) for n in numbers[wrong][:FIRST]], float(error.max()) if error.size else None
    return Values(rule, int(numbers.size), 0, int(np.count_nonzero(wrong)), first, largest)
