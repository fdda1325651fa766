"""Records of several ranks: what the ranks tell adds up to the whole run, and every claim can fail."""

import copy
import re

import pytest

from spdnn.core.validation import builtins
from spdnn.runs.records.distribution import imbalance
from spdnn.runs.records.files import read_record, write_record
from tests.runs.records.test_run_record import RECORD, SECONDS, changed, measured, sized, sound, unsound


def rank(place, **values):
    """What one rank tells; both ranks hold 5 inputs, and rank 0 computes 12,480 of the 20,480 edges."""
    return {
        "host": "node-a",
        "inputs": 5,
        "inference_seconds": SECONDS if place == 0 else [0.375, 0.5, 0.625],
        "waiting_seconds": [0.0, 0.0, 0.0] if place == 0 else [0.125, 0.125, 0.125],
        "communication_seconds": [0.0, 0.25, 0.0],
        "edges_computed": 12480 if place == 0 else 8000,
        "edges_from_exchange": 3000 if place == 0 else 2000,
        "survivors": [4, 1] if place == 0 else [1, 1],
        "rows_sent": 2 if place == 0 else 0,
        "rows_received": 0 if place == 0 else 2,
        "peak_memory_bytes": 1 << 20,
        "proportional_memory_bytes": None,
        **values,
    }


# Computing seconds: 0.4 and 0.25 (of 0.4, 0.25, 0.7 and of 0.25, 0.125, 0.5).
DISTRIBUTED = {
    **copy.deepcopy(RECORD),
    "ranks": 2,
    "distribution": {
        "partition": "rebalanced",
        "weights": "one copy a node",
        "shared_bytes": 1 << 20,
        "message_latency_seconds": 1e-5,
        "message_bytes_per_second": 1e9,
        "exchanges": [{"before_layer": 2, "rows": 2, "bytes": 512}],
        "told": "2 rows changed ranks before layer 2.",
        "rows_merged_across_ranks": 0,
        "per_rank": [rank(0), rank(1)],
    },
}


def told(key, value, record=DISTRIBUTED):
    """The record with the value at `key` of its distribution replaced; per_rank.0 is rank 0."""
    return changed(record, f"distribution.{key}", value)


def without_exchange(partition):
    record = told("partition", partition)
    record["distribution"] |= {"exchanges": []}
    for one in record["distribution"]["per_rank"]:
        one |= {"edges_from_exchange": None, "rows_sent": 0, "rows_received": 0}
    return record


def test_written_and_read(tmp_path):
    write_record(tmp_path / "record.json", DISTRIBUTED)
    assert builtins(read_record(tmp_path / "record.json")) == DISTRIBUTED


@pytest.mark.parametrize("partition", ["static", "cyclic", "rebalanced"])
def test_runs_without_an_exchange(partition):
    record = without_exchange(partition)
    assert sound(record).distribution.imbalance.edges_from_exchange is None
    unsound("edges_from_exchange: 1 with 0 exchanges", told("per_rank.0.edges_from_exchange", 1, record))


def test_rows_are_merged_across_ranks_where_the_reduction_was_on():
    record = told("rows_merged_across_ranks", 3)
    record["reductions"]["requested"] = ["inputs"]
    sound(record)


@pytest.mark.parametrize(
    ("key", "value", "wrong"),
    [
        ("per_rank", [rank(0)], "distribution.per_rank: [{"),
        ("per_rank", [rank(0), rank(1), rank(2)], "distribution.per_rank: 3 entries for 2 ranks"),
        ("per_rank.1.inputs", 4, "distribution.per_rank: inputs add up to 9, and the whole run has 10"),
        ("per_rank.0.edges_computed", 12481, "distribution.per_rank: edges_computed add up to 20481, and the whole"),
        ("per_rank.0.survivors", [3, 1], "distribution.per_rank: `survivors` do not add up to those of the whole run"),
        ("per_rank.1.survivors", [1], "distribution.per_rank[1].survivors: 1 numbers for 2 layers"),
        ("per_rank.1.inference_seconds", [0.4], "distribution.per_rank[1].inference_seconds: 1 numbers for 3 repeats"),
        ("per_rank.0.waiting_seconds", [0.0] * 4, "distribution.per_rank[0].waiting_seconds: 4 numbers for 3 repeats"),
        ("per_rank.0.communication_seconds", [0.0], "distribution.per_rank[0].communication_seconds: 1 numbers for 3"),
        ("per_rank.0.waiting_seconds", [0.0, 0.3, 0.0], "distribution.per_rank[0]: 0.3 s of waiting and 0.25 s of com"),
        ("per_rank.0.inference_seconds", [0.4, 0.5, 0.8], "inference_seconds[2]: 0.7, but the slowest rank t"),
        ("per_rank.0.inference_seconds", [0.3, 0.5, 0.7], "inference_seconds[0]: 0.4, but the slowest rank t"),
        ("partition", "static", "distribution.exchanges: 1 with the partition static"),
        ("partition", "random", 'distribution.partition: "random" is not one of'),
        ("exchanges.0.before_layer", 3, "distribution.exchanges: before layer 3 of 2"),
        ("exchanges.0.rows", 3, "distribution.exchanges: 3 rows, but the ranks sent 2"),
        ("exchanges.0.rows", 0, "distribution.exchanges[0].rows: 0 is not a whole number from 1"),
        ("per_rank.0.rows_sent", 3, "distribution.per_rank: 3 rows were sent and 2 received"),
        ("rows_merged_across_ranks", 3, "distribution.rows_merged_across_ranks: 3 without the reduction inputs"),
        ("per_rank.1.edges_from_exchange", None, "distribution.per_rank[1].edges_from_exchange: None with 1 exchanges"),
        ("per_rank.1.edges_from_exchange", 8001, "distribution.per_rank[1].edges_from_exchange: 8001 of 8000 edges"),
        ("weights", "somewhere", 'distribution.weights: "somewhere" is not one of'),
        ("message_latency_seconds", ..., 'distribution: the field "message_latency_seconds" is missing'),
        ("per_rank.0.surprise", 1, 'distribution.per_rank[0]: there is no field "surprise"'),
        ("imbalance", {"edges": 1.0}, 'distribution: there is no field "imbalance"'),
        ("told", "", "distribution.told: "),
    ],
)
def test_each_claim_can_fail(key, value, wrong):
    assert len(unsound(re.escape(f"r: {wrong}"), told(key, value))) < 330


def test_a_distribution_exactly_where_there_are_several_ranks():
    unsound("r: distribution: present, with ranks: 1", changed(DISTRIBUTED, "ranks", 1))
    unsound("r: distribution: absent, with ranks: 2", changed(RECORD, "ranks", 2))


def test_what_follows_from_the_ranks():
    ranked = sound(DISTRIBUTED).distribution
    assert [one.computing_seconds for one in ranked.per_rank] == [0.4, 0.25]
    assert ranked.imbalance == pytest.approx((12480 / 10240, 1.2, 0.4 / 0.325))
    assert (ranked.nodes, sound(told("per_rank.1.host", "node-b")).distribution.nodes) == (1, 2)
    assert imbalance([3, 1]) == 1.5
    assert imbalance([0, 0]) == 1.0
    assert sound(DISTRIBUTED).busiest == 12480
    assert sound(RECORD).busiest == 20480


def test_padding_is_allowed_on_every_rank():
    """3000 inputs in 1000 batches on each of two ranks, each batch with 63 lanes beyond its inputs."""
    most = (3000 + 63 * 2000) * 2048
    record = sized(DISTRIBUTED, 3000, 2048)
    record["result"]["edges_computed"] = most
    record["verdict"]["truth"] |= {"inputs": 3000, "checked": 3000}
    for one in record["distribution"]["per_rank"]:
        one |= {"inputs": 1500, "edges_computed": most // 2}
    sound(record)
    unsound("more than 3000 inputs in whole tiles have", changed(record, "result.edges_computed", most + 1))


# 12480 edges of the busiest rank load 49,920 bytes in at least 0.4 s; the mean of both would be 40,960 bytes.
@pytest.mark.parametrize(("bytes_loaded", "of_one"), [(None, 49_920), (81_920 - 5000, 44_920), (30_000, 15_000)])
def test_the_limit_is_the_busiest_ranks(bytes_loaded, of_one):
    record = changed(DISTRIBUTED, "result.bytes_loaded", bytes_loaded)
    assert sound(measured(record, load=1e6)).limit.seconds == of_one / 1e6
    sound(measured(record, load=of_one / 0.4 / 2.99))
    record = measured(record, load=of_one / 0.4 / 3.01)
    unsound(r"^r: result\.edges_computed: 20480 edges in 0\.4 s, 3\.01 times what ", record)


def test_ranks_move_their_bytes_side_by_side():
    record = measured(changed(DISTRIBUTED, "result.bytes_moved", 10), copy=1, load=1e12)
    assert sound(record).limit == (5.0, "memory")
