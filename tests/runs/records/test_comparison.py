"""Two sets of records side by side: what is compared with what, and when a difference is told."""

import itertools
import math
import statistics

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from operation_cases import made_operation
from refusals import refuses

from spdnn.core.statistics import CONFIDENCE, RESAMPLES, ratio_of_medians
from spdnn.core.validation import convert
from spdnn.runs.records import comparison as sets
from spdnn.runs.records.comparison import (
    FASTER,
    NO_DIFFERENCE,
    SLOWER,
    TOO_FEW,
    can_tell,
    enough,
    key_of,
    nearest,
    p_value,
)
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord
from tests.report.records import made_record
from tests.runs.records.test_rank_checks import DISTRIBUTED
from tests.runs.records.test_run_record import changed

TIGHT = (0.1, 0.101, 0.102, 0.103, 0.104)
UNTIMED = settings(deadline=None, max_examples=25)
seconds = st.floats(1e-6, 1e3, allow_subnormal=False)
samples = st.lists(seconds, min_size=1, max_size=12)


def objects(records):
    return [convert(OperationRecord if "operation" in record else RunRecord, record, "r") for record in records]


def compare(a, b):
    return sets.compare(objects(a), objects(b))


def scaled(values, factor):
    return tuple(value * factor for value in values)


def run(times=TIGHT, **changes):
    """A run record with some of its parts changed, each named by its path, joined by two underscores."""
    return spoiled(made_record(seconds=times), **changes)


def spoiled(record, **changes):
    for path, value in changes.items():
        record = changed(record, path.replace("__", "."), value)
    return record


def one(a, b):
    (pair,) = compare([run(a)], [run(b)]).pairs
    return pair


# The interval of the ratio of medians.


def test_ratio_by_hand():
    assert ratio_of_medians([3.0, 3, 3], [1.5, 1.5]) == (2, 2, 2, RESAMPLES)
    assert ratio_of_medians([3.0], [2.0]) == (1.5, 1.5, 1.5, 0)
    # Resampled medians of 2 and 6 are 2, 4 and 6, with 1/4, 1/2 and 1/4; so the percentiles are the ends.
    assert ratio_of_medians([2.0, 6.0], [2.0]) == (2, 1, 3, RESAMPLES)
    assert ratio_of_medians([2.0], [2.0, 6.0]) == (0.5, 1 / 3, 1, RESAMPLES)


def test_against_scipys_bootstrap():
    random = np.random.default_rng(1)
    a, b = random.lognormal(0, 0.2, 40), random.lognormal(0.3, 0.3, 25)
    found = ratio_of_medians(a, b)
    oracle = scipy.stats.bootstrap(
        (a, b), lambda x, y, axis: np.median(x, axis=axis) / np.median(y, axis=axis), n_resamples=20_000,
        confidence_level=CONFIDENCE, method="percentile", vectorized=True, random_state=np.random.default_rng(2),
    ).confidence_interval  # fmt: skip
    assert found.median == np.median(a) / np.median(b)
    assert found.low == pytest.approx(oracle.low, rel=0.01)
    assert found.high == pytest.approx(oracle.high, rel=0.01)


@UNTIMED
@given(samples, samples, st.randoms(use_true_random=False))
def test_neither_order_of_samples_nor_of_sides_counts(a, b, random):
    found, swapped = ratio_of_medians(a, b), ratio_of_medians(b, a)
    assert found.median == pytest.approx(statistics.median(a) / statistics.median(b))
    assert found.low <= found.median <= found.high
    inverse = found if sorted(a) == sorted(b) else (1 / found.median, 1 / found.high, 1 / found.low)
    assert swapped[:3] == pytest.approx(inverse[:3])
    assert ratio_of_medians(random.sample(a, len(a)), random.sample(b, len(b))) == found


def test_the_two_sides_are_drawn_apart():
    assert ratio_of_medians(TIGHT, TIGHT).low < 1 < ratio_of_medians(TIGHT, TIGHT).high


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        ([], [1.0], "at least one sample"),
        ([1.0], [0.0], "positive number"),
        ([1.0], [math.nan], "positive number"),
        ([1e12], [5e-324], "no ratio that is a number"),
        ([5e-324], [1e12], "no ratio that is a number"),
    ],
)
def test_samples_without_a_ratio(a, b, sentence):
    refuses(sentence, ratio_of_medians, a, b)


# The rank test.


def exact(a, b):
    """The two-sided p of the rank test over all ways to deal the samples out."""

    def u(x, y):
        return sum((i > j) + (i == j) / 2 for i in x for j in y)

    whole, places = [*a, *b], range(len(a) + len(b))
    dealt = [
        u([whole[i] for i in mine], [whole[i] for i in places if i not in mine])
        for mine in itertools.combinations(places, len(a))
    ]
    below, above = (sum(sign * (one - u(a, b)) <= 1e-9 for one in dealt) for sign in (1, -1))
    return min(1, 2 * min(below, above) / len(dealt))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 2, 3, 4], [5, 6, 7, 8]),
        ([1, 2, 3], [4, 5, 6]),
        ([1, 5, 3, 9], [2, 8, 7]),
        ([1, 1, 2, 2], [2, 3, 3, 3]),
        ([1, 1, 1, 1], [2, 2, 2, 2]),
        ([1, 2, 2, 3, 4], [2, 2, 5]),
        ([3], [1, 1, 1, 1, 5]),
        ([3], [1, 2, 4, 5, 6]),
        ([1], [1, 1, 2]),
        ([1, 1], [1, 1, 1]),
    ],
)
def test_p_is_exact_with_few_samples(a, b):
    assert p_value(a, b) == p_value(b, a) == pytest.approx(exact(a, b))


@pytest.mark.parametrize("ties", [False, True])
def test_p_of_many_samples_is_scipys(ties):
    random = np.random.default_rng(0)
    a, b = random.random(40), random.random(30) + 0.2
    a, b = (a.round(1), b.round(1)) if ties else (a, b)
    assert p_value(a, b) == pytest.approx(scipy.stats.mannwhitneyu(a, b, method="asymptotic").pvalue)


def test_the_least_samples_that_can_tell():
    assert enough() == [(4, 4), (3, 5), (2, 8), (1, 40)]
    for few, many in enough():
        apart = np.arange(1.0, few + 1), np.arange(100.0, 100 + many)
        assert can_tell(few, many)
        assert can_tell(many + 1000, few)
        assert scipy.stats.mannwhitneyu(*apart, method="exact").pvalue < 0.05
        assert not can_tell(few, many - 1)
        assert scipy.stats.mannwhitneyu(apart[0], apart[1][1:], method="exact").pvalue >= 0.05


# Verdicts.


@UNTIMED
@given(samples)
def test_a_set_beside_itself_is_no_different(values):
    pair = one(values, values)
    assert pair.ratio.median == 1
    assert pair.verdict == (NO_DIFFERENCE if len(values) > 3 else TOO_FEW)


@UNTIMED
@given(st.lists(st.floats(1, 1.2), min_size=4, max_size=20), st.lists(st.floats(1, 1.2), min_size=4, max_size=20))
def test_half_the_time_is_faster(a, b):
    assert one(a, scaled(b, 0.5)).verdict == FASTER
    assert one(scaled(a, 0.5), b).verdict == SLOWER


def test_both_the_test_and_the_interval_must_see_it():
    sides = sets.PairSide(1, 9, 1.0), sets.PairSide(1, 9, 1.0)
    sure, unsure = ratio_of_medians([2.0, 2.0], [1.0]), ratio_of_medians([0.5, 2.0], [1.0])
    assert [sets._verdict(*sides, sure, p) for p in (0.049, 0.05)] == [FASTER, NO_DIFFERENCE]
    assert sets._verdict(*sides, unsure, 0.001) == NO_DIFFERENCE


# What is compared with what.

SAME = {
    "case": "another",
    "created": "2026-03-04T05:06:07Z",
    "environment__cpu": "Another CPU",
    "environment__commit": None,
    "environment__versions": {"numpy": "2.9"},
    "memory_limit_bytes": 1 << 30,
    "engine__notes": {"instruction_set": "x86_64_v4"},
    "peak_memory_bytes": 1,
    "comparison": "0" * 16,
}
OTHER = {
    "problem__network_identity": "f" * 64,
    "problem__layers": 480,
    "problem__inputs_sha256": "f" * 64,
    "problem__input_count": 10,
    "engine__name": "spgemm",
    "reductions__requested": [],
    "threads": 4,
    "span": "layer loop, weights streamed",
}


OPERATION_OTHER = {
    "operation": "sddmm",
    "problem__rows": 7,
    "problem__batch_columns": 7,
    "problem__nonzeros": 7,
    "problem__topology_sha256": "f" * 64,
    "problem__layer": "another",
    "program__name": "mkl",
    "threads": 4,
}


@pytest.mark.parametrize(("path", "value"), SAME.items())
def test_what_may_differ(path, value):
    assert len(compare([run()], [run(**{path: value})]).pairs) == 1


@pytest.mark.parametrize(
    ("made", "path", "value"),
    [*((run, *other) for other in OTHER.items()), *((made_operation, *other) for other in OPERATION_OTHER.items())],
)
def test_what_must_be_the_same(made, path, value):
    found = compare([made()], [spoiled(made(), **{path: value})])
    assert not found.pairs
    assert len(found.only_a) == len(found.only_b) == 1
    ((name, mine, other),) = nearest(found.only_a, found.only_b).differs
    assert mine != other
    assert made is run or name == "positions" or name.replace(" ", "_") in path


def test_ranks_and_their_partition_must_be_the_same():
    shared = DISTRIBUTED["distribution"]
    static, cyclic = (run(ranks=2, distribution={**shared, "partition": name}) for name in ("static", "cyclic"))
    assert len(compare([static], [static]).pairs) == 1
    assert nearest(*compare([static], [cyclic])[1:3]).differs == [("partition", "static", "cyclic")]
    assert [name for name, *_ in nearest(*compare([run()], [static])[1:3]).differs] == ["ranks", "partition"]


def test_the_order_of_reductions_does_not_count():
    orders = [run(reductions__requested=list(names)) for names in itertools.permutations(["dead", "inputs", "neurons"])]
    assert len(set(map(key_of, objects(orders)))) == 1


def test_what_may_differ_of_operations():
    mine = made_operation(seconds=TIGHT)
    other = spoiled(made_operation(seconds=scaled(TIGHT, 2)), program__version="ours 9", environment__cpu="B")
    (pair,) = compare([mine], [other]).pairs
    assert pair.verdict == SLOWER
    assert pair.ratio.median == pytest.approx(0.5)
    assert compare([mine], [other]).differences["program ours"] == (["ours 1.2"], ["ours 9"])


def cut(ran="stream", path="net.safetensors", **settings):
    """A record of the task graph: the schedule that it ran, and the settings that were asked for."""
    return run(
        engine={"name": "taskgraph", "notes": {"schedule": ran, "devices": 1}},
        request={"network": path, "inputs": "x.npy", "engine": "taskgraph", "settings": settings},
        environment__command=f"spdnn infer --network '{path}' --name batches=8",
    )


@pytest.mark.parametrize(
    "settings",
    [
        {"schedule": "pipeline"},
        {"devices": 2},
        {"device_memory": 1 << 30},
        {"batches": 8},
        {"buffers": 3},
        {"join": False},
    ],
)
def test_settings_that_were_asked_for_must_be_the_same(settings):
    assert len(compare([cut(**settings)], [cut(**settings)]).pairs) == 1
    found = compare([cut()], [cut(**settings)])
    ((name, value),) = settings.items()
    assert nearest(found.only_a, found.only_b).differs == [("settings", "default", f"{name}={value}")]


def test_a_schedule_that_was_left_to_the_model_a_path_and_a_command_may_differ():
    for other in (cut("resident"), cut(path="a folder/schedules=graph --schedule pipeline")):
        assert len(compare([cut("stream")], [other]).pairs) == 1


def test_several_records_of_a_set_are_taken_together_and_each_once():
    first, second = run((1.0, 2.0)), run((3.0, 4.0, 5.0))
    (pair,) = compare([first, second], [run((1.0, 1.0))]).pairs
    assert pair.a == (2, 5, 3.0)
    assert pair.b == (1, 2, 1.0)
    assert pair.ratio.median == 3
    assert compare([second, first, second], [run((1.0, 1.0))]) == compare([first, second], [run((1.0, 1.0))])


def test_what_one_set_alone_has_is_kept():
    shared, mine = run(), [run(threads=7, case="mine"), run(scaled(TIGHT, 2), threads=7, case="mine")]
    found = compare([shared, *mine], [made_operation(), shared])
    assert [(one.name, one.records) for one in found.only_a] == [("mine", 2)]
    assert [one.records for one in found.only_b] == [1]
    assert dict(found.only_b[0].key)["kind"] == "operations"
    assert len(found.pairs) == 1


def test_one_name_for_several_settings_tells_them_apart():
    found = compare([run(case="run"), run(case="run", threads=4)], [run(case="run"), run(case="run", threads=8)])
    assert [one.name for one in (*found.pairs, *found.only_a, *found.only_b)] == [
        "run, threads 2", "run, threads 4", "run, threads 8",
    ]  # fmt: skip
    other = run(case="run", problem__network_identity="ab" * 32)
    (alone,) = compare([run(case="run")], [run(case="run"), other]).only_b
    assert alone.name == f"run, network {'ab' * 6}"


def test_the_nearest_pair_has_the_fewest_differences():
    mine = [run(case="far", threads=8, span="layer loop, weights streamed"), run(case="near", threads=4)]
    found = compare([*mine, made_operation()], [run(case="there")])
    best = nearest(found.only_a, found.only_b)
    assert (best.a.name, best.b.name, best.differs) == ("near", "there", [("threads", 4, 2)])
    assert nearest(*compare([run()], [made_operation()])[1:3]) is None


def test_the_mean_and_the_counts():
    mine = [run(case="a"), run(threads=3), run(threads=4), run((1.0,), threads=5)]
    other = [run(scaled(TIGHT, 0.25)), run(scaled(TIGHT, 2), threads=3), run(threads=4), run((1.0,), threads=5)]
    found = compare(mine, other)
    assert found.geometric_mean == pytest.approx((4 * 0.5 * 1 * 1) ** (1 / 4))
    assert found.counts == {FASTER: 1, SLOWER: 1, NO_DIFFERENCE: 1, TOO_FEW: 1}
    assert compare([run()], []).geometric_mean is None


def test_differences_are_those_of_the_pairs():
    mine, other = (
        run(),
        run(environment__cpu="Another", environment__versions={"scipy": "1", "python": "3.12.1"}, memory_limit_bytes=5),
    )
    alone = run(threads=9, environment__cpu="Unpaired")
    differs = compare([mine, alone], [other]).differences
    assert differs == {
        "machine": (["A CPU, 2 cores"], ["Another, 2 cores"]),
        "numpy": (["2.1.0"], []),
        "scipy": ([], ["1"]),
        "memory limit": (["none"], ["5"]),
    }
    gpu = compare([mine], [run(environment__gpu="A GPU")]).differences["machine"]
    assert gpu == (["A CPU, 2 cores"], ["A CPU, 2 cores, A GPU"])


def test_machines_are_told_pair_by_pair():
    """Both sets are of the same two machines, so that only the pairs tell that the ratios are of machines too."""
    fast, slow = {"environment__cpu": "Fast"}, {"environment__cpu": "Slow"}
    found = compare([run(**fast), run(threads=3, **slow)], [run(**slow), run(threads=3, **fast)])
    assert "machine" not in found.differences
    assert sorted(found.moved) == sorted(pair.name for pair in found.pairs)
    assert found.mixed == []
    alike = compare([run(**fast), run(threads=3, **slow)], [run(**fast), run(scaled(TIGHT, 0.25), **slow)])
    assert alike.mixed == [pair.name for pair in alike.pairs]
    assert compare([run()], [run()]).moved == []
