"""Verdicts: what passes, what fails, and what is said of it."""

from dataclasses import replace

import numpy as np
import pytest
from refusals import refuses

from spdnn.api import infer
from spdnn.core import challenge
from spdnn.core.features import Inputs
from spdnn.core.result import Result, projection_weights
from spdnn.engines.oracle import Tolerances
from spdnn.formats.radixnet import RadixNet
from spdnn.runs.records.files import check_content
from spdnn.runs.records.verdict import Difference, Verdict
from spdnn.runs.verify import verdict as verify


def result(categories, values=32.0, count=100, outputs=4):
    """A result whose survivors have `values` (a number, or a row of `outputs`) in their last rows."""
    alive = np.asarray(categories, np.int64) - 1
    rows = np.broadcast_to(np.asarray(values, np.float32), (alive.size, outputs))
    wide = rows.astype(np.float64)
    sums, projections = wide.sum(axis=1), wide @ projection_weights(outputs)
    least, largest = rows.min(axis=1), rows.max(axis=1)
    survivors = np.array([count, alive.size])
    return Result(
        count, outputs, alive, sums, projections, least, largest, np.zeros(alive.size, np.uint64), survivors, 0
    )


def truth(categories, count=100, **options):
    return verify.Truth("official", "test", count, np.asarray(categories, np.int64), **options)


def judged(found, expected):
    return check_content(Verdict, verify.judge(found, expected), "verdict")


def test_equal_sets_pass():
    verdict = judged(result([3, 7, 50]), truth([3, 7, 50], ymax=32.0))
    assert verdict.passed
    assert (verdict.categories, verdict.expected, verdict.values.checked) == (3, 3, 3)


@pytest.mark.parametrize(
    ("found", "missing", "unexpected"),
    [
        ([3, 7], [50], []),  # a correct prefix
        ([3, 7, 51], [50], [51]),  # the right number of them
        ([3, 7, 50, 51], [], [51]),
        ([], [3, 7, 50], []),
    ],
)
def test_other_sets_fail(found, missing, unexpected):
    verdict = judged(result(found), truth([3, 7, 50], ymax=32.0))
    assert not verdict.passed
    assert verdict.missing.first == missing
    assert verdict.unexpected.first == unexpected
    assert not verify.judge_categories(np.array(found, np.int64), truth([3, 7, 50])).passed


@pytest.mark.parametrize("part", ["row_min", "row_max", "row_sum"])
def test_official_survivors_are_at_the_clip_everywhere(part):
    wrong = result([3, 7, 50])
    getattr(wrong, part)[1] -= 1e-3
    verdict = judged(wrong, truth([3, 7, 50], ymax=32.0))
    assert verdict.reasons == [
        "the values of 1 inputs are wrong, the first is 7 (every value of every active input is 32)"
    ]


def test_nothing_is_borderline_against_official_truth():
    found = result([3, 7, 50], values=1e-6)
    assert not judged(found, truth([3, 7])).passed


def oracle_truth(found, rows=None, relative=1e-4):
    """The oracle's truth, with values that may be off by so much of the largest of their row."""
    value = np.full(found.inputs, 1e-12)
    value[found.alive] = relative * np.maximum(abs(found.row_min), abs(found.row_max))
    none, rows_of = np.empty(0, np.int64), np.empty((0, found.outputs), np.float32)
    doubtful = np.zeros(found.survivors.size, np.int64)
    off = Tolerances(doubtful, np.arange(found.inputs), value, found.outputs * value, none, rows_of, rows_of)
    return verify.Truth("oracle", "test", found.inputs, found.categories, rows, None, found, off)


def test_rows_that_one_side_lacks_are_zero_but_for_rounding():
    fewer = result([3, 7], values=5)
    for last, passes in ((1e-12, True), (1e-11, False)):
        more = result([3, 7, 50], values=[[5], [5], [last]])
        verdict = judged(more, oracle_truth(fewer))
        assert verdict.passed == passes
        assert (verdict.borderline.first, verdict.unexpected.first) == (([50], []) if passes else ([], [50]))
        assert verdict.values.failures == (not passes)
    # What the reference alone has is judged by the reference's own tolerance.
    small = oracle_truth(result([3, 7, 50], values=[[5], [5], [1e-11]]), relative=2.0)
    assert judged(fewer, small).borderline == Difference(1, [50])
    verdict = judged(fewer, oracle_truth(result([3, 7, 50], values=5)))
    assert (verdict.missing.first, verdict.values.first) == ([50], [50])


def test_a_lost_row_whose_values_cancel_is_wrong():
    """Its sum is zero, so it is no category on either side."""
    right = result([3, 7, 50], values=[[1, 1, 1, 1], [1, 1, 1, 1], [2, -2, 3, -3]])
    for found, expected in ((result([3, 7], values=1), right), (right, result([3, 7], values=1))):
        verdict = judged(found, oracle_truth(expected))
        assert not verdict.passed
        assert (verdict.missing.count, verdict.unexpected.count, verdict.values.first) == (0, 0, [50])


def test_few_rows_may_be_lacked():
    """Of 2,000 inputs 20, a hundredth; of fewer inputs 10."""
    for count, most in ((100, 10), (2000, 20)):
        for lacked in (most, most + 1):
            values = [[5]] * 30 + [[1e-12]] * lacked
            found = result(range(1, 31 + lacked), values, count)
            found.row_hash[:] = np.arange(30 + lacked)
            verdict = judged(found, oracle_truth(result(range(1, 31), 5, count)))
            assert verdict.borderline.count == lacked
            assert verdict.passed == (lacked == most)
    assert verdict.reasons == ["21 rows are lacked by one side, more than the 20 that rounding may explain"]
    found.row_hash[30:] = 30  # of identical inputs
    assert judged(found, oracle_truth(result(range(1, 31), 5, count))).passed


@pytest.mark.parametrize("part", ["row_min", "row_max", "row_sum", "row_projection"])
def test_what_is_no_number_is_wrong(part):
    right, found = result([3, 7, 50], values=5.0), result([3, 7, 50], values=5.0)
    getattr(found, part)[1] = np.nan
    verdict = judged(found, oracle_truth(right))
    assert (verdict.values.failures, verdict.values.first, verdict.values.largest_error) == (1, [7], 0.0)
    if part != "row_projection":
        assert judged(found, truth([3, 7, 50], ymax=5.0)).values.failures == 1


def test_active_inputs_are_compared_within_those_that_rounding_decides():
    found = result([3, 7, 50])
    for least, most, wrong in (([100, 3], [100, 3], []), ([90, 0], [100, 3], []), ([99, 4], [101, 5], [2])):
        verdict = judged(found, truth([3, 7, 50], ymax=32.0, active=np.array([least, most])))
        assert (verdict.survivors.inputs, verdict.survivors.first, verdict.passed) == (100, wrong, not wrong)
    verdict = judged(found, truth([3, 7, 50], ymax=32.0, active=np.array([[100], [100]])))
    assert verdict.reasons == ["the active inputs after 1 layers are wrong, the first is layer 1"]  # of other layers
    assert judged(found, truth([3, 7, 50], ymax=32.0)).survivors.inputs == 0
    # Of a sample, those of the run of the sample alone; without one nothing is compared.
    sample = replace(oracle_truth(found), rows=np.arange(60), seed=1, active=np.array([[60, 3], [60, 3]]))
    alone = {"sampled": np.arange(60), "sampled_survivors": np.array([60, 3])}
    another = replace(found, **alone | {"sampled": np.arange(1, 61)})
    for without in (found, another):
        assert judged(without, sample).survivors.rule.endswith("the engine did not run this sample alone")
    assert judged(replace(found, **alone), sample).survivors.inputs == 60
    assert not judged(replace(found, **alone | {"sampled_survivors": np.array([60, 4])}), sample).passed
    # The whole run has as many active inputs as the sample at least, and those of the other inputs at most.
    for survivors, passes in (
        ([60, 3], True),
        ([100, 43], True),
        ([59, 3], False),
        ([100, 2], False),
        ([100, 44], False),
    ):
        verdict = judged(replace(found, **alone, survivors=np.array(survivors)), sample)
        assert verdict.passed == passes


def test_values_against_the_oracle():
    right = result([3, 7, 50], values=5.0)
    near, far = result([3, 7, 50], values=5.0 * (1 + 5e-5)), result([3, 7, 50], values=5.0 * (1 + 5e-4))
    assert judged(near, oracle_truth(right)).passed
    verdict = judged(far, oracle_truth(right))
    assert verdict.values.failures == 3
    assert verdict.values.largest_error == pytest.approx(5e-4, rel=1e-2)


def test_small_values_are_judged_too():
    right = result([3, 7, 50], values=1e-7)
    assert judged(right, oracle_truth(right)).passed
    assert judged(result([]), oracle_truth(right)).missing.count == 3
    assert judged(result([3, 7, 50], values=1.1e-7), oracle_truth(right)).values.failures == 3


def test_sums_that_cancel_are_borderline():
    """Centred logits: the sum is zero but for rounding, and which side keeps the input is chance."""
    ours, exact = result([3, 7], values=[1, 2, -3, 1e-6]), result([3, 7], values=[1, 2, -3, 0])
    assert (exact.categories.size, ours.categories.size) == (0, 2)
    verdict = judged(ours, oracle_truth(exact))
    assert verdict.passed
    assert verdict.borderline.count == 2
    # Values decide, however near to zero a sum is.
    wrong = judged(result([3, 7], values=[1, 2, -3, 0.1]), oracle_truth(exact))
    assert (wrong.borderline.count, wrong.values.failures) == (2, 2)


def test_values_in_other_places_fail():
    ours, right = result([3, 7], values=[4, 3, 2, 1]), result([3, 7], values=[1, 2, 3, 4])
    assert judged(ours, oracle_truth(right)).values.failures == 2


def test_a_sample_holds_survivors():
    found = replace(result(range(1, 41)), inputs=60_000, survivors=np.array([60_000, 40]))
    for seed in range(5):
        rows = verify.sample(found, [1000, 1000], 1e6, seed)
        assert np.isin(rows, found.alive).sum() >= verify.LEAST_SAMPLE


def test_a_sample_compares_just_its_inputs():
    found = result([3, 7, 50])
    rows = np.array([2, 49, 60])
    expected = replace(oracle_truth(result([3, 50])), rows=rows, seed=1)
    verdict = judged(found, expected)
    assert verdict.passed
    assert verdict.truth.checked == 3
    assert not judged(result([3, 7]), expected).passed


def test_the_sample_is_seeded_and_affordable():
    found = result([3, 7, 50])
    assert verify.sample(found, [100, 100], 1e9, 0) is None
    larger = replace(found, inputs=1000, survivors=np.array([1000, 10]))
    few = verify.sample(larger, [100, 100], 1e5, 0)
    assert 250 <= few.size <= 253
    assert np.isin(found.alive, few).all()
    assert (np.diff(few) > 0).all()
    np.testing.assert_array_equal(few, verify.sample(larger, [100, 100], 1e5, 0))
    assert not np.array_equal(few, verify.sample(larger, [100, 100], 1e5, 1))


@pytest.mark.parametrize("neurons", challenge.WIDTHS)
def test_official_lists(neurons):
    categories = verify.official_categories(neurons)
    assert categories.size == challenge.TRUTH_COUNT[neurons]
    assert verify.official(neurons, 1000).categories.max() <= 1000
    assert verify.official(neurons, 120_000).categories.size == 2 * categories.size


def test_a_damaged_official_list(tmp_path, monkeypatch):
    (tmp_path / "1024.tsv").write_text("1\n2\n")
    monkeypatch.setattr(verify.config_tables, "table", lambda name: tmp_path / "1024.tsv")
    refuses("does not have the SHA-256 of the official ground truth", verify.official_categories, 1024)
    refuses("no official ground truth for 512 neurons", verify.official_categories, 512)


def test_an_engine_that_is_wrong_fails():
    inputs = Inputs.from_array(np.random.default_rng(1).random((200, 1024)) < np.linspace(0, 0.35, 200)[:, None])
    network = RadixNet(1024, 30)
    right = infer(network, inputs)
    assert judged(right, verify.oracle(network, inputs)).passed
    assert right.alive.size > 3
    assert not judged(infer(RadixNet(1024, 30, bias=-0.2), inputs), verify.oracle(network, inputs)).passed


def test_truths_of_another_size(tmp_path):
    refuses("a result of 100 inputs and a ground truth of 60000", verify.judge, result([3]), verify.official(1024))
    (tmp_path / "truth.txt").write_text("3\n101\n")
    refuses("category 101 is above the number of inputs, 100", verify.from_file, tmp_path / "truth.txt", 100)
