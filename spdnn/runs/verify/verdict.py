"""Verdicts: is an output right? The set of categories against a truth, and the values where the truth has them.

Official truth (the twelve problems with the MNIST inputs): the set must be equal, and every survivor at 32
everywhere; nothing is allowed. Otherwise the oracle, on all inputs or on a seeded sample; or a file that lists
categories. Inputs that were drawn before the run (official.py) are compared with the oracle value by value; of the
other survivors, sum, projection, least and largest value. How far float32 may be off is found for each value
(engines/oracle.py), and what may differ for a sum is what its values may differ together.

A row that only one of the two has passes where each of its values is within that of zero, and few of these are allowed
(LACKING, LACKING_SHARE). A row of both is judged by its values; where its sum is zero on one side alone, so that the
input is a category there alone, rounding did that. Both kinds are listed as *borderline*.

The numbers of active inputs after each layer are compared too: with the oracle's on the same inputs, within the rows
that rounding may bring to life or leave dead; of official problems with a table (config/truth/survivors.csv).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from spdnn.core import challenge, closeness, config_tables
from spdnn.core.categories import read_categories
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.result import Result
from spdnn.core.safe_open import existing
from spdnn.engines import oracle as reference
from spdnn.engines.oracle import Tolerances
from spdnn.runs.records.verdict import (
    SCHEMA,
    VERDICT_VERSION,
    Difference,
    Parts,
    Survivors,
    TruthRecord,
    Values,
    Verdict,
)
from spdnn.runs.verify.official import draw

# Rows that one side lacks: as many may pass, or that part of the inputs compared, or those for which rounding decides.
LACKING, LACKING_SHARE = 10, 0.01
LISTED = 10  # differences that a verdict lists
LEAST_SAMPLE = 32
SURVIVORS = ("neurons", "layer", "survivors", "least", "most")  # columns of truth/survivors.csv
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
        active: the least and the largest right number of active inputs after each layer, int64 (2, layers); None: not
            known, for `unknown` says why.
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
    active: np.ndarray | None = None
    unknown: str = "the ground truth is a list of categories"


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


def official(neurons: int, count: int = challenge.INPUTS, layers: int | None = None) -> Truth:
    """The official truth for the first `count` MNIST inputs; past 60,000 the inputs, and so the truth, repeat.

    Args:
        layers: of the run, whose active inputs are then known where the inputs are all, or repeat whole.
    """
    once = official_categories(neurons)
    categories = np.concatenate([once + first for first in range(0, count, challenge.INPUTS)])
    source, active = f"official list for {neurons} neurons", None
    if layers and count % challenge.INPUTS == 0:
        table = official_survivors(neurons)
        rest = np.repeat(table[:, -1:], max(0, layers - table.shape[1]), axis=1)
        active = np.hstack([table, rest])[:, :layers] * (count // challenge.INPUTS)
    unknown = "the table is of all official inputs"
    return Truth(
        "official", source, count, categories[categories <= count], ymax=challenge.YMAX, active=active, unknown=unknown
    )


@cache
def official_survivors(neurons: int) -> np.ndarray:
    """int64 (2, 120): the least and the largest right number of active inputs, of the 60,000, after each of the first
    layers of a width; after later ones it is the last. `benchmarks/survivors.py` makes the table with the oracle.
    """
    table = config_tables.rows(config_tables.table("truth/survivors.csv"), SURVIVORS)
    rows = [(int(cells["least"]), int(cells["most"])) for cells, _ in table if cells["neurons"] == str(neurons)]
    return np.array(rows, np.int64).T


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
    doubtful, count = tolerances.doubtful, inputs.count if rows is None else rows.size
    active = np.clip([result.survivors - doubtful, result.survivors + doubtful], 0, count)
    return Truth(
        "oracle", "float64 reference", inputs.count, result.categories, rows, sampled, result, tolerances, active=active
    )


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
    alive = result.alive
    judged = np.isin(alive, truth.rows) if truth.rows is not None else np.ones(alive.size, bool)
    ours = alive[judged][result.row_sum[judged] != 0] + 1
    missing, unexpected = differences(ours, truth.categories)
    borderline, lacking = np.empty(0, np.int64), Lacking(*np.empty((2, 0), np.int64), 0)
    if truth.result is not None:
        # A category that differs passes where one side lacks the row and it is zero but for rounding, or where both
        # have it: then its values are judged.
        lacking = _lacking(alive[judged], result, truth)
        fine = 1 + np.union1d(lacking.near, np.intersect1d(alive[judged], truth.result.alive))
        borderline = np.intersect1d(np.union1d(missing, unexpected), fine)
        missing, unexpected = np.setdiff1d(missing, fine), np.setdiff1d(unexpected, fine)
    values, survivors = _values(result, truth, lacking), _survivors(result, truth)
    checked = truth.inputs if truth.rows is None else int(truth.rows.size)
    most, reasons = max(LACKING, int(LACKING_SHARE * checked)), []
    if truth.tolerances is not None:  # in some networks sums are zero in exact arithmetic, and rounding decides
        most = max(most, int(truth.tolerances.doubtful[-1]))
    if lacking.rows > most:
        reasons.append(f"{lacking.rows} rows are lacked by one side, more than the {most} that rounding may explain")
    return verdict(truth, ours.size, missing, unexpected, borderline, values, survivors, reasons)


class Lacking(NamedTuple):
    """Inputs (int64, 0-based) whose row one side lacks: those that are zero but for rounding, and the others; and how
    many different rows the first are, for identical inputs have one."""

    near: np.ndarray
    far: np.ndarray
    rows: int


def _lacking(alive: np.ndarray, result: Result, truth: Truth) -> Lacking:
    """The inputs compared that are alive on one side only; `alive`: of the run."""
    near, rows = [], 0
    for numbers, side in ((alive, result), (truth.result.alive, truth.result)):
        alone = np.setdiff1d(numbers, truth.result.alive if side is result else alive)
        place, allowed = np.searchsorted(side.alive, alone), np.searchsorted(truth.tolerances.numbers, alone)
        off = truth.tolerances.value[allowed]
        wrong = closeness.wrong(side.row_min[place], 0.0, off) | closeness.wrong(side.row_max[place], 0.0, off)
        near += [alone[~wrong], alone[wrong]]
        rows += np.unique(side.row_hash[place[~wrong]]).size
    return Lacking(*(np.sort(np.concatenate(pair)) for pair in (near[::2], near[1::2])), rows)


def _survivors(result: Result, truth: Truth) -> Survivors:
    """How the numbers of active inputs compare with the truth's."""
    if truth.active is None:
        return Survivors(f"active inputs not compared: {truth.unknown}", 0, 0, [])
    found = result.survivors if truth.rows is None else result.sampled_survivors
    if truth.rows is not None and (found is None or not np.array_equal(result.sampled, truth.rows)):
        return Survivors("active inputs not compared: the engine did not run this sample alone", 0, 0, [])
    least, most = truth.active
    wrong = np.ones(least.size, bool)
    if found.shape == least.shape == result.survivors.shape:
        wrong = ~((least <= found) & (found <= most))
        # The sample is a part of the run, whose other inputs are active or not; a library may round it otherwise.
        rest = result.inputs - (result.inputs if truth.rows is None else truth.rows.size)
        slack = most - least
        wrong |= ~((found - slack <= result.survivors) & (result.survivors <= found + rest + slack))
    count = truth.inputs if truth.rows is None else truth.rows.size
    within = "the range of the official problem" if truth.result is None else "those for whose row rounding decides"
    rule = f"active inputs after each layer, within {within}"
    return Survivors(rule, int(count), int(wrong.sum()), [int(k) + 1 for k in np.flatnonzero(wrong)[:LISTED]])


def judge_categories(categories: np.ndarray, truth: Truth) -> Verdict:
    """The verdict on a list of categories alone (int64, ascending, 1-based); values are not checked."""
    none, values = np.empty(0, np.int64), _not_checked("only the categories are known")
    survivors = Survivors("active inputs not compared: only the categories are known", 0, 0, [])
    return verdict(truth, categories.size, *differences(categories, truth.categories), none, values, survivors)


def differences(ours: np.ndarray, expected: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(missing, unexpected) of two ascending lists."""
    return np.setdiff1d(expected, ours), np.setdiff1d(ours, expected)


def verdict(
    truth: Truth, categories: int, missing, unexpected, borderline, values: Values, survivors: Survivors,
    more: Sequence[str] = (),
) -> Verdict:  # fmt: skip
    """Put a verdict together; it passes when nothing is missing, unexpected or of a wrong value, and no sentence of
    `more` says what else is wrong."""
    reasons = []
    if missing.size:
        reasons.append(f"{missing.size} categories of the ground truth are missing, the first is {missing[0]}")
    if unexpected.size:
        reasons.append(f"{unexpected.size} categories are not in the ground truth, the first is {unexpected[0]}")
    if values.failures:
        reasons.append(
            f"the values of {values.failures} inputs are wrong, the first is {values.first[0]} ({values.rule})"
        )
    if survivors.failures:
        reasons.append(
            f"the active inputs after {survivors.failures} layers are wrong, the first is layer {survivors.first[0]}"
        )
    reasons += more
    checked = truth.inputs if truth.rows is None else int(truth.rows.size)
    return Verdict(
        schema=SCHEMA,
        version=VERDICT_VERSION,
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
        survivors=survivors,
        parts=Parts("parts of the network not compared: none were run", [], 0, 0, None, 0, []),
    )


def _listed(numbers: np.ndarray) -> Difference:
    return Difference(int(numbers.size), [int(n) for n in numbers[:LISTED]])


def _not_checked(why: str) -> Values:
    return Values(f"values not checked: {why}", 0, 0, 0, [], None)


def _values(result: Result, truth: Truth, lacking: Lacking) -> Values:
    """How far the values of the survivors agree; rows that one side lacks and that are not near zero are wrong."""
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
        one, other = getattr(result, name)[a].astype(np.float64), getattr(expected, name)[b]
        wrong |= closeness.wrong(one, other, tolerance[place])
        worst = np.maximum(worst, abs(one - other) / np.maximum(scale, TINY))
    # Of the inputs that were drawn before the run, every value.
    compared, far, errors = _value_by_value(result, off)
    places = np.searchsorted(common, compared)
    wrong[places] |= far
    worst[places] = np.maximum(worst[places], errors / np.maximum(size[places], TINY))
    rule = (
        f"within float32 rounding: every value of {compared.size:,} of them, and the sum, a random projection, the "
        "smallest and the largest value of each active one"
    )
    # Rows that one side lacks: all of their values are wrong where one is not within its tolerance of zero.
    numbers = np.concatenate([common, lacking.near, lacking.far])
    order, apart = np.argsort(numbers), np.repeat([0.0, np.inf], [lacking.near.size, lacking.far.size])
    wrong, worst = np.concatenate([wrong, apart > 0])[order], np.concatenate([worst, apart])[order]
    return replace(_compare_values(rule, numbers[order] + 1, wrong, worst), every=int(compared.size))


def _value_by_value(result: Result, off: Tolerances) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs (int64, 0-based) alive in both whose values the run kept and the oracle has, whether one of them is too
    far off, and how far at most.

    Raises:
        InputError: the run kept rows of other inputs than those that were drawn.
    """
    if result.values is None:
        return np.empty(0, np.int64), np.empty(0, bool), np.empty(0)
    numbers = result.alive if result.valued is None else result.valued
    # Rows that are alive on one side only are judged by their extremes.
    compared = np.intersect1d(off.kept[off.values.any(axis=1)], result.alive)
    if not np.isin(compared, numbers).all():
        raise InputError("the result lacks rows of inputs that were drawn to be compared: another seed?")
    far, errors = np.zeros(compared.size, bool), np.zeros(compared.size)
    places = zip(np.searchsorted(numbers, compared), np.searchsorted(off.kept, compared), strict=True)
    for i, (place, its) in enumerate(places):
        far[i] = closeness.wrong(result.values[place], off.values[its], off.each[its]).any()
        errors[i] = abs(result.values[place].astype(np.float64) - off.values[its]).max()
    return compared, far, errors


def _compare_values(rule: str, numbers: np.ndarray, wrong: np.ndarray, error: np.ndarray) -> Values:
    known = error[np.isfinite(error)]
    first, largest = [int(n) for n in numbers[wrong][:LISTED]], float(known.max()) if known.size else None
    return Values(rule, int(numbers.size), 0, int(np.count_nonzero(wrong)), first, largest)
