"""The cost model: what must hold of any prediction, exact calibration."""

import copy
import json
import math
import statistics
from dataclasses import replace

import numpy as np
import pytest

from spdnn.cli import main
from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.engines.costs import costs, prediction
from spdnn.engines.costs.official import official_shares, official_work
from spdnn.runs import calibration
from spdnn.runs.records.files import write_record
from tests.report.records import made_record, made_verdict, typed
from tests.runs.records.test_rank_checks import DISTRIBUTED, rank

MESSAGES = costs.MessageCosts(2e-6, 1e10)
RANKS = (1, 2, 3, 8, 60, 1000)


def work(inputs=60_000, layers=20, **changes):
    rows = inputs * np.maximum(0.03, 0.7 ** np.arange(layers))
    each = [np.full(layers, value) for value in (32768.0, 4096.0, 2e5)]
    return replace(costs.Work(inputs, each[0], rows, rows, each[1], each[2], 128.0, comparisons=9), **changes)


def device(**changes):
    return costs.DeviceCosts((1e-11, 2e-11), **{"tiles": (16, 64), "seconds_per_layer": 1e-6, **changes})


def record(layers=8, inputs=4000, seconds=0.5, log=True, **changes):
    """A sound record of one rank, as the engine `cpu` writes it; `log`: with its passes."""
    made = made_record("made", (seconds,), ("dead",), official=False, neurons=64, layers=layers, inputs=inputs)
    edges, survivors = made["problem"]["edges"] // layers, [int(inputs * 0.6**k) for k in range(1, layers + 1)]
    rows = [inputs, *survivors[:-1]]
    passes = [
        [0, 2, 4032, 2 * 4032 * edges, seconds / 2],
        [2, layers - 2, 1472, 1472 * edges * (layers - 2), seconds / 4],
    ]
    computed = sum(one[3] for one in passes) if log else sum(rows) * edges
    made["engine"]["notes"] = {"tile": 64} | ({"pass_log": passes} if log else {})
    made |= {f"{name}_seconds": [seconds] for name in ("read", "prepare", "inference")}
    made["result"] |= {"survivors": survivors, "edges_computed": computed, "categories": survivors[-1]}
    made["verdict"] = made_verdict(inputs, survivors[-1], True, "oracle", made["problem"])
    return made | {"machine": None} | changes


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "run.json"
    write_record(path, record())
    return str(path)


def test_lanes_are_whole_tiles_and_never_less_than_one():
    rows = np.array([0, 0.2, 1, 16, 17, 64, 65, 128])
    assert device().lanes(rows).tolist() == [0, 16, 16, 16, 64, 64, 128, 128]


def test_a_layer_costs_its_rows_or_its_weights():
    some, rows = work(layers=3), np.array([0.0, 64, 1e6])
    streamed = device(copy_bytes_per_second=1e9)
    assert streamed.layers(some, rows).tolist() == pytest.approx(
        [0, 1e-6 + 2e5 / 1e9, 1e-6 + 1e6 * 32768 * 2e-11], rel=1e-12
    )


def test_messages_cost_latency_and_bytes():
    assert MESSAGES.message(1e10) == pytest.approx(1 + 2e-6)
    assert MESSAGES.collective(1, 1e10) == 0
    assert MESSAGES.collective(1000, 0) == pytest.approx(10 * 2e-6)


def test_ranks_share_the_cores_of_a_node():
    shared = device(cores=2, threads=2)
    assert shared.together(np.array([1.0, 1.0, 1.0, 1.0]), 1).tolist() == pytest.approx([4, 4, 4, 4])
    # One thread cannot use what the other rank left: half the speed of the calibration, alone or not.
    assert shared.together(np.array([3.0, 1.0]), 1).tolist() == pytest.approx([6, 2])
    # Two threads can: all the work ends when the cores have done it.
    assert shared.together(np.array([3.0, 1.0]), 2).tolist() == pytest.approx([4, 2])


@pytest.mark.parametrize("partition", prediction.PARTITIONS)
@pytest.mark.parametrize("changes", [{}, {"copy_bytes_per_second": 1e9}, {"cores": 8, "threads": 4}])
def test_more_ranks_never_cost_less_total_work(partition, changes):
    found = [prediction.predict(work(), device(**changes), MESSAGES, ranks, partition) for ranks in RANKS]
    total = [one.ranks * one.seconds for one in found]
    assert all(after >= before * (1 - 1e-12) for before, after in zip(total, total[1:], strict=False))
    for one in found:
        assert one.efficiency <= 1 + 1e-12
        assert min(one.parts["imbalance"], one.parts["communication"]) >= 0


def test_rebalancing_helps_or_is_left_out():
    apart = prediction.predict(work(comparisons=0), device(), MESSAGES, 100, "static")
    evened = prediction.predict(work(comparisons=0), device(), MESSAGES, 100)
    assert evened.seconds < apart.seconds
    slow = [prediction.predict(work(comparisons=0), device(), costs.MessageCosts(10.0, 1e10), 100, partition).seconds
            for partition in ("rebalanced", "static")]  # fmt: skip
    assert slow[0] == slow[1]


def test_weak_scaling_costs_what_imbalance_and_messages_cost():
    one = prediction.predict(work(), device(), MESSAGES, 1)
    many = prediction.predict(work().of(60_000 * 64), device(), MESSAGES, 64)
    assert many.seconds == pytest.approx(one.seconds + many.parts["communication"], rel=1e-3)
    assert many.memory_bytes == pytest.approx(one.memory_bytes)
    static = prediction.predict(work().of(60_000 * 64), device(), MESSAGES, 64, "static")
    assert one.seconds < static.seconds < 1.1 * one.seconds + static.parts["communication"]


def test_a_rank_computes_a_tile_at_least():
    few = prediction.predict(work(), device(), costs.FREE, 60_000, "static")
    least = (16 * 32768 * device().rates(20)).sum() + 20e-6
    assert few.seconds == pytest.approx(least)
    assert few.bound == "tiles that are not full"


def test_memory_makes_batches_and_its_lack_is_told():
    whole = prediction.predict(work(), device(), ranks=4)
    assert whole.memory_bytes == pytest.approx(20 * 2e5 + 15_000 * (128 + 2 * 4096))
    assert (whole.batches, whole.fits) == (1, True)
    held = 20 * 2e5 + 15_000 * 128
    tight = prediction.predict(work(), device(memory_bytes=held + 15_000 * 4096), ranks=4)
    assert (tight.batches, tight.fits) == (2, True)
    assert tight.seconds == pytest.approx(whole.seconds + 20e-6)
    node = prediction.predict(work(), device(memory_bytes=4 * held + 60_000 * 4096), ranks=4, per_node=4)
    assert node.batches == 2
    none = prediction.predict(work(), device(memory_bytes=held), ranks=4)
    assert (none.fits, none.bound) == (False, "memory")


def test_merged_rows_stay_few_and_different_rows_stay_different():
    alive = np.full(3, 1000.0)
    some = work(inputs=1000, layers=3, merged=True, survivors=alive, rows=np.array([1000.0, 500.0, 2.0]))
    many = some.of(10**6)
    assert many.rows[0] == pytest.approx(1e6)
    assert 500 < many.rows[1] < 1e6
    assert many.rows[2] == pytest.approx(2, rel=1e-6)
    assert some.of(1000) is some


def test_measured_shares_take_the_place_of_chance():
    shares = np.array([[0.7], [0.3]]) * np.ones(20)
    found = prediction.predict(work(), device(), ranks=2, partition="static", shares=shares)
    assert found.seconds / (found.seconds - found.parts["imbalance"]) == pytest.approx(1.4, rel=0.01)
    even = prediction.predict(work(), device(), MESSAGES, 2, shares=shares)
    assert even.parts["imbalance"] < found.parts["imbalance"]
    deep, longer = work(layers=200), np.repeat(shares[:, :1], 200, axis=1)
    kept = prediction.predict(deep, device(), MESSAGES, 2, "static", shares=longer)
    assert prediction.predict(deep, device(), MESSAGES, 2, shares=longer).seconds < kept.seconds


def test_enough_devices():
    found = prediction.enough(work(), device(), MESSAGES)
    least = min(prediction.predict(work(), device(), MESSAGES, 1 << power).seconds for power in range(16))
    assert least <= found.seconds <= 1.05 * least
    assert prediction.predict(work(), device(), MESSAGES, found.ranks // 2).seconds > 1.05 * least
    none = prediction.enough(work(inputs=4), device(memory_bytes=1), MESSAGES)
    assert not none.fits


@pytest.mark.parametrize("log", [True, False])
def test_one_rank_reproduces_its_record(log):
    made = record(log=log)
    found, some = calibration.from_record(typed(made))
    again = prediction.predict(some, found, MESSAGES)
    assert again.seconds == pytest.approx(statistics.median(made["inference_seconds"]), rel=1e-12)
    assert (again.parts["imbalance"], again.parts["communication"], again.efficiency) == (0, 0, 1)
    assert float((some.rows * some.edges).sum()) == pytest.approx(made["result"]["edges_computed"])


def test_passes_calibrate_layer_by_layer():
    made = record()
    found, some = calibration.from_record(typed(made))
    seconds = found.layers(some, some.rows)
    assert seconds[:2].sum() == pytest.approx(0.25)
    assert seconds[2:].sum() == pytest.approx(0.125)
    assert found.seconds_per_input == pytest.approx(0.125 / 4000)
    cut = copy.deepcopy(made)
    cut["engine"]["notes"]["pass_log"].pop()
    without, rows = calibration.from_record(typed(cut))  # a log that was cut tells less than the survivors
    assert rows.rows.tolist() == [4000, *cut["result"]["survivors"][:-1]]
    assert prediction.predict(rows, without).seconds == pytest.approx(0.5)


def distributed(ranks, seconds, **changes):
    """A record of that many ranks on one node of two cores, sound as far as the model reads it."""
    made = record()
    kept = made["result"]["survivors"]
    entry = rank(0) | {
        "inputs": 4000 // ranks,
        "survivors": [count // ranks for count in kept],
        **{f"{name}_seconds": [value] for name, value in
           (("inference", seconds), ("waiting", 0.1 * seconds), ("communication", 0.1 * seconds))},
    }  # fmt: skip
    made["distribution"] = DISTRIBUTED["distribution"] | {
        "partition": "static", "message_latency_seconds": 2e-6, "message_bytes_per_second": 1e10,
        "exchanges": [], "rows_merged_across_ranks": 0, "per_rank": [entry] * ranks, **changes,
    }  # fmt: skip
    return made | {"ranks": ranks, "case": f"r{ranks}", "inference_seconds": [seconds]}


def test_records_of_several_ranks_are_predicted_from_one():
    single = record()
    single["environment"]["cores"], single["threads"] = 2, 1
    found = [
        calibration.expected(typed(single), typed(distributed(ranks, 0.3) | {"threads": 1}))[0] for ranks in (2, 4)
    ]
    assert found[0] == pytest.approx(0.25, rel=0.05)
    assert found[1] == pytest.approx(0.25, rel=0.07)  # four ranks on two cores are not faster than two


def test_a_record_of_one_rank_and_the_same_work_calibrates():
    other = distributed(2, 0.3)
    other["problem"]["network_identity"] = "cd" * 32
    with pytest.raises(InputError, match="r2: another network, engine or list of reductions than"):
        calibration.expected(typed(record()), typed(other))
    with pytest.raises(InputError, match="calibrated by a record of one"):
        calibration.from_record(typed(distributed(2, 0.3)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"partition": "even"}, "must be one of static, cyclic, rebalanced"),
        ({"ranks": 0}, "must be 1 or more"),
        ({"ranks": 2, "shares": np.ones((3, 20))}, "shares of shape"),
        ({"ranks": 2, "shares": np.ones((2, 3))}, "shares of shape"),
        ({"ranks": 3, "per_node": 2, "shares": np.ones((3, 20))}, "shares of shape"),
    ],
)
def test_what_cannot_be_predicted_is_refused(changes, sentence):
    with pytest.raises(InputError, match=sentence):
        prediction.predict(work(), device(), **changes)


@pytest.mark.parametrize("partition", ["static", "cyclic"])
def test_official_inputs_are_in_no_random_order(partition):
    some = official_work(1024, 120)
    shares = official_shares(some, 1024, 8, partition)
    assert shares.shape == (8, 120)
    assert shares.sum(axis=0) == pytest.approx(np.ones(120))
    last = shares[:, -1] * 8
    assert last.max() > 1.35  # 8 parts of 1812 by chance: the largest is 1.09 times the mean, expected
    assert (shares[:, -1] * 1812).sum() == pytest.approx(1812)
    assert len(official_shares(some, 1024, 768, partition, distinct=True)) < 60


def test_known_order_needs_all_official_inputs():
    made = record()
    made["problem"] |= {"official": "1024-120", "neurons": 1024, "inputs_sha256": challenge.INPUT_SHA256[1024]}
    some = work(inputs=challenge.INPUTS)
    assert calibration.known_shares(typed(made), some, 8, "static", 8).shape == (8, 20)
    assert calibration.known_shares(typed(made), some.of(1000), 8, "static") is None
    assert calibration.known_shares(typed(made), replace(some, merged=True), 8, "static") is None
    made["problem"]["inputs_sha256"] = "ab" * 32
    assert calibration.known_shares(typed(made), some, 8, "static") is None


@pytest.mark.parametrize("per_node", [3, 4])
def test_a_node_may_have_room_for_more_ranks_than_there_are(per_node):
    some, shares = work(), np.full((2, 20), 0.5)
    few = prediction.predict(some, device(), MESSAGES, 2, shares=shares, per_node=per_node)
    assert few == prediction.predict(some, device(), MESSAGES, 2, shares=shares, per_node=2)


def test_plan_prints_and_writes_predictions(saved, tmp_path, capsys):
    out = tmp_path / "plan.json"
    command = ["plan", saved, "--devices", "1,100", "--inputs", "4000,1e9", "--memory", "64GB"]
    command += ["--json", str(out)]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "all below is predicted" in printed
    assert printed.count("more do not help") == 2
    content = json.loads(out.read_text())
    assert content["predicted"] is True
    plans = [one for one in content["plans"] if "more" not in one["what"]]
    assert [(one["what"], one["inputs"]) for one in plans] == [
        ("1 rank", 4000), ("100 ranks", 4000), ("1 rank", 10**9), ("100 ranks", 10**9),
    ]  # fmt: skip
    assert content["plans"][0]["seconds"] == pytest.approx(0.5)
    assert all(math.isfinite(one["seconds"]) and one["bound"] for one in content["plans"])


@pytest.mark.filterwarnings("error")  # of times that no number holds
@pytest.mark.parametrize(
    ("arguments", "status", "sentence"),
    [
        (["absent.json"], 1, "absent.json"),
        (["RUN", "--partition", "even"], 1, "must be one of static, cyclic, rebalanced"),
        (["RUN", "--neurons", "1024"], 1, "--neurons is for a cut"),
        ([], 1, "give a record of one rank"),
        (["RUN", "--devices", "0"], 2, "whole numbers from 1"),
        (["RUN", "--inputs", "1.5"], 2, "whole numbers from 1"),
        (["RUN", "--inputs", "nan"], 2, "whole numbers from 1"),
        (["RUN", "--latency", "-1"], 2, "must be a positive number"),
        (["RUN", "--bandwidth", "1e-300", "--inputs", "1e12"], 1, "a time is too long for a number"),
        (["--devices", "10"], 1, "the cost of a run is not known"),
    ],
)
def test_errors_are_one_sentence(arguments, status, sentence, saved, capsys):
    try:
        found = main(["plan", *(saved if argument == "RUN" else argument for argument in arguments)])
    except SystemExit as ended:
        found = ended.code
    printed = capsys.readouterr().err
    assert (found, "Traceback" in printed) == (status, False)
    assert sentence in printed
