"""The first screen: what ran and how it ended, and how fast, in claims that are fair or say what they are."""

import pytest
from records import BASELINES, SHA, collected, drawn, made_record, section_of, solved, told, typed
from test_calls import calls

from spdnn.core import challenge
from spdnn.core.shown import significant
from spdnn.core.table import plain
from spdnn.report import overview
from spdnn.report.common.blocks import Tiles
from spdnn.report.networks import twelve
from spdnn.runs.records.published import DEVICES, read_baselines

PUBLISHED = read_baselines(BASELINES)
ALL = ("dead", "inputs", "neurons")


def header(*records, published=PUBLISHED, operations=()):
    return overview.header(collected(records, published, operations=operations))


def said(*records, published=PUBLISHED):
    return header(*records, published=published).speed


def times(*records):
    """Ours divided by the best published, by (series, devices), of 1024 neurons and 120 layers."""
    row = twelve(collected(records, PUBLISHED))[0]
    return {
        (name, devices): row.ratio(name, devices).times for name in row.ours if row.ours[name] for devices in row.best
    }


def test_what_ran_and_how_it_ended():
    first = header(made_record())
    assert first.title == "1,024 × 120: passed verification"
    assert plain(first.ran) == "spdnn report · A CPU, 2 cores · 2025-01-02 · commit abcdef123456"
    every = [made_record(f"{one.name}", neurons=one.neurons, layers=one.layers) for one in challenge.PROBLEMS]
    assert header(*every).title == "The twelve networks of the challenge: all 12 cases passed verification"
    assert header(*every[:3]).title == "3 networks: all 3 cases passed verification"
    there = made_record("there")
    there["environment"] |= {"cpu": "Another CPU"}
    there["created"] = "2026-01-02T03:04:05Z"
    ran = "spdnn report · A CPU, 2 cores; Another CPU, 2 cores · 2025-01-02 to 2026-01-02 · commit abcdef123456"
    assert plain(header(made_record(), there).ran) == ran
    nothing = header()
    assert (nothing.state, nothing.ran, nothing.title) == ("empty", "", "Sparse DNN inference: verified results")


def test_claims_on_the_same_work_and_on_work_avoided():
    like, faster = made_record(), made_record("all", (0.01,), ALL)
    ratios = times(like, faster)
    slower = significant(1 / ratios["like", "one"], 2)
    avoided, lossy = (significant(ratios["reduced", name], 2) for name in ("one", "lossy"))
    copies, unknown = (f" (their time: {span})" for span in ("layer loop with weight copies", "not stated"))
    assert said(like, faster) == [
        f"Same work: 2 CPU cores are {slower} times slower than the best published exact result on one GPU{copies}.",
        f"Work avoided, exactly: {avoided} times as fast as that, {lossy} times as "
        f"fast as the best lossy result{unknown}.",
    ]
    (alone,) = said(faster)
    assert alone.startswith(f"Work avoided, exactly: {avoided} times as fast as the best published exact result on one")
    slow = made_record("slow", (10.0,), ALL)
    behind, lossy = (significant(1 / times(like, slow)["reduced", name], 2) for name in ("one", "lossy"))
    assert said(like, slow)[1] == (
        f"Work avoided, exactly: {behind} times slower than that, {lossy} times "
        f"slower than the best lossy result{unknown}."
    )


def test_claims_on_several_networks_and_single_samples():
    once = [made_record(f"once-{layers}", (0.1,), layers=layers) for layers in (120, 480)]
    assert said(once[0])[0].endswith("; measured once.")
    assert said(*once)[0].endswith("; each measured once.")
    assert said(once[0], made_record("twice", layers=480))[0].endswith("; 1 of 2 measured once.")
    both = [made_record(f"{layers}", layers=layers) for layers in (120, 480)]
    ratios = [
        best / typed(record).edges_per_second.median
        for row, record in zip(twelve(collected(both, PUBLISHED))[:2], both, strict=True)
        for best in [row.best["one"].edges_per_second]
    ]
    mean, low, high = (significant(one, 2) for one in ((ratios[0] * ratios[1]) ** 0.5, min(ratios), max(ratios)))
    assert f"are {mean} (geometric mean, {low} to {high}) times slower than" in said(*both)[0]


def test_a_claim_says_what_the_published_time_includes_where_ours_includes_something_else():
    same, copies = "layer loop, resident", "layer loop with weight copies"
    one_gpu = [line for line in PUBLISHED if line.device_class == DEVICES[0] and not line.lossy]
    both = [made_record(f"{layers}", layers=layers) for layers in (120, 480)]

    def told_of(spans, records=both):
        return said(*records, published=[line for line in one_gpu if line.span in spans])[0]

    assert "their time" not in told_of({same})
    assert told_of({copies}, both[:1]).endswith(f" (their time: {copies}).")
    assert told_of({same, copies}).endswith(f" (their time: {copies} in 1 of 2).")


def test_runs_that_cannot_be_compared_are_not():
    (digits,) = said(made_record(official=False, source="digits"))
    assert digits.startswith("Fastest: 2.14 TeraEdges/s on 1,024 × 120 (same work). Inputs: digits, 60,000, not the ")
    assert "no rate is compared with published ones" in digits
    own = made_record("mine-12", (0.5,), official=False, neurons=64, layers=12, inputs=1000)
    assert said(own) == ["2,000 inputs a second through mine-12, 1,000 in a batch, measured once."]


def test_the_page_of_calls_alone_begins_with_their_times():
    first = header(operations=calls())
    assert first.title == (
        "my net: 64 inputs in 1.00 ms, 2.0 times as fast as dense BLAS; 1 input in 1.00 ms, 2.0 times as fast as dense "
        "BLAS"
    )
    assert plain(first.verdict).startswith("All 6 timed programs passed verification. Compared: all output values")


def tiles(contents):
    (block,) = section_of("overview", contents).every(Tiles)
    return list(map(tuple, block.numbers))


def test_tiles_are_of_the_largest_network():
    like, reduced = made_record("like", layers=480), solved(made_record("all", (0.01,), ALL, layers=480), 2.5)
    reduced["result"]["edges_computed"] = 10**10
    assert tiles([made_record(), like, reduced]) == [  # 60,000 x 32 x 1,024 x 480 edges, in 10^12 a second
        ("same work", "8.58", "TeraEdges/s", "110 ms"),
        ("work avoided, exactly", "94.4", "TeraEdges/s", "10.0 ms, measured once; really computed: 1.0 TeraEdges/s"),
        ("time to solution", "2.50", "s", "verified; work avoided"),
        ("peak memory", "3.0", "GiB", "work avoided"),
    ]
    assert tiles(collected(operations=calls())) == [
        ("latency", "1.00", "ms", "a call with 1 input"), ("throughput", "64,000", "inputs/s", "a call with 64 inputs"),
    ]  # fmt: skip
    own = made_record("mine-12", (0.5,), official=False, neurons=64, layers=12, inputs=1000)
    own["accuracy"] = {"labels_sha256": SHA, "top1": 914, "confusion": None}
    assert tiles([own]) == [
        ("accuracy", "91.4", "%", "top-1 of 1,000 inputs"),
        ("throughput", "2,000", "inputs/s", "500 ms, measured once"),
        ("time for an input", "500", "µs", "in a batch of 1,000"),
        ("peak memory", "3.0", "GiB", "of the process"),
    ]


BUSY = {"others": 0.5, "throttled": None}


@pytest.mark.parametrize(
    ("records", "note"),
    [
        ([made_record("quiet"), made_record("busy", (0.1,)) | {"load": BUSY}], "busy machine in 1 of 2 runs"),
        ([made_record() | {"load": BUSY}], "busy machine in the only run"),
        ([made_record()], ""),
    ],
)
def test_busy_machines_are_noted(records, note):
    assert note in told(section_of("overview", records))
    assert bool(note) == ("busy" in told(section_of("overview", records)))


def test_busy_calls_and_older_code_are_noted():
    busy = collected(operations=[one | {"load": BUSY} for one in calls()])
    assert "busy machine in both batch sizes" in told(section_of("overview", busy))
    old, new = made_record("old", (0.01,)), made_record("new") | {"created": "2026-01-02T03:04:05Z"}
    old["environment"]["code"] = "a" * 64
    assert "older code in 1 of 2 runs" in told(section_of("overview", [old, new]))


def test_the_figure_has_every_rate_and_says_what_is_measured_once():
    once, twice = made_record("once", (1.0,)), made_record("twice", (1.0, 1.1), (), layers=480)
    contents = collected([once, twice], PUBLISHED)
    figure = drawn("overview", contents)["overview"]
    assert figure.svg.count(">1×<") == 1
    assert ">TeraEdges/s; ours: A CPU, 2 threads<" in figure.svg
    assert figure.caption.count("1×: measured once") == 1
    points = overview.figure(overview.ran(contents)).rows
    ours = {(size, label): rates for size, label, *rates, _, _ in points if label.startswith("ours")}
    rate = typed(twice).edges_per_second
    assert ours == {
        ("1024-120", "ours, same work"): [0.2359296] * 3,
        ("1024-480", "ours, no reductions"): [rate.median / 1e12, rate.low / 1e12, rate.high / 1e12],
    }
    best = [
        row.best[name].edges_per_second / 1e12 for row in overview.ran(contents) for name in ("one", "any", "lossy")
    ]
    assert [point[2] for point in points if "published" in point[1]] == best


def test_a_logarithmic_axis_of_few_decades_has_plain_numbers():
    figure = drawn("overview", collected([made_record("all", (0.01,), ALL)], PUBLISHED))["overview"]
    assert figure.svg.count(">20<") == 1
    assert "mathdefault" not in figure.svg
