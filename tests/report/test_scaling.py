"""The page's section on scaling: its numbers are the records', and runs of several ranks stay where they belong."""

import copy
import itertools
import re
import statistics

import pytest
from test_report import BASELINES, HOSTILE, collected, made_record, made_verdict, measured, shown, typed
from test_schedules import scheduled

from spdnn.core.validation import convert
from spdnn.report.common import predictions, words
from spdnn.report.peers import section as peers
from spdnn.report.scaling import figures as scaling_figures
from spdnn.report.scaling import values as scaling
from spdnn.report.times.ladders import ladders
from spdnn.runs.records.distribution import OneRank
from spdnn.runs.records.published import read_baselines
from tests.runs.records.test_run_record import changed

CORES = 8
HOW = "snakemake --configfile config/strong.yaml"


def computing(rank):
    return convert(OneRank, rank, "rank").computing_seconds


def parts(whole, ranks, uneven=1.0):
    """Whole numbers that add up to `whole`, the first `uneven` times an even share."""
    first = round(whole / ranks * uneven)
    rest = [(whole - first) // (ranks - 1)] * (ranks - 1)
    return [whole - sum(rest), *rest]


def spread(record, ranks, partition="static", uneven=1.25, exchanged=True, hosts=1):
    """The record as if so many ranks had run it, rank 0 with `uneven` times its share of the edges."""
    record = copy.deepcopy(record)
    seconds, result = record["inference_seconds"], record["result"]
    exchanged = exchanged and partition == "rebalanced"
    edges = parts(result["edges_computed"], ranks, uneven)
    inputs = parts(record["problem"]["input_count"], ranks)
    survivors = list(zip(*(parts(count, ranks) for count in result["survivors"]), strict=True))
    per_rank = [
        {
            "host": f"node-{place % hosts}",
            "inputs": inputs[place],
            "inference_seconds": seconds,
            "waiting_seconds": [value * (0.0 if place == 0 else 0.25) for value in seconds],
            "communication_seconds": [value * 0.125 for value in seconds],
            "edges_computed": edges[place],
            "edges_from_exchange": edges[place] // 2 if exchanged else None,
            "survivors": list(survivors[place]),
            "rows_sent": 77 if exchanged and place == 0 else 0,
            "rows_received": 77 if exchanged and place == 1 else 0,
            "peak_memory_bytes": 5 << 20,
            "proportional_memory_bytes": None if place else 3 << 20,
        }
        for place in range(ranks)
    ]
    record["ranks"] = ranks
    record["distribution"] = {
        "partition": partition,
        "weights": "one copy a node",
        "shared_bytes": 7 << 20,
        "message_latency_seconds": 1.5e-5,
        "message_bytes_per_second": 3e9,
        "exchanges": [{"before_layer": 13, "rows": 77, "bytes": 1 << 20}] * exchanged,
        "told": "The gain predicted was more than the cost." if exchanged else "No meeting was needed.",
        "rows_merged_across_ranks": 0,
        "per_rank": per_rank,
    }
    return record


def on(ranks, seconds, partition="static", case=None, cores=CORES, **problem):
    """A record of so many ranks, or of one, on a machine of CORES cores; two threads a rank."""
    known = {key: problem.pop(key) for key in ("uneven", "exchanged", "hosts") if key in problem}
    name = case or (f"case.t2.r{ranks}-{partition}" if ranks > 1 else "case.t2")
    record = made_record(name, seconds, **problem)
    record["environment"]["cores"] = cores
    return record if ranks == 1 else spread(record, ranks, partition, **known)


def strong():
    return [
        on(1, (0.8, 0.8, 0.9)),
        on(2, (0.5, 0.4, 0.6)),
        on(2, (0.41, 0.42), "rebalanced"),
        on(4, (0.25, 0.3), "rebalanced"),
        on(8, (0.3, 0.35), "rebalanced"),
    ]


def weak(*ranks):
    """Runs with 6,000 inputs for each rank."""
    found = [on(count, (0.1 * (1 + 0.125 * count),), inputs=6000 * count, case=f"weak.r{count}") for count in ranks]
    for place, record in enumerate(found):
        record["problem"]["inputs_sha256"] = f"{place + 1:064x}"
    return found


def on_threads(*counts, **problem):
    """Runs on so many threads of one rank: a second over their number, and a quarter of one."""
    return [{**on(1, (1 / count + 0.25,), case=f"case.t{count}", **problem), "threads": count} for count in counts]


def section(page):
    """The text of the section on scaling."""
    return page.text.split("Runs on several ")[1].split("Medians, in seconds; only inference")[0]


def group(records, kind=predictions.STRONG):
    return next(one for one in scaling.values(collected(records))["groups"] if one["kind"] == kind)


def test_the_section_is_left_out_with_one_line_where_no_run_had_several_ranks():
    page = shown([made_record()])
    assert 'id="scaling"' not in page.source
    assert page.text.count(HOW) == 1
    assert page.text.count("config/weak.yaml") == 1
    assert "Several ranks" not in page.text
    assert HOW not in shown(strong()).text
    assert HOW not in shown().text


def test_numbers_are_the_records():
    records = strong()
    page = shown(records)
    base = statistics.median(records[0]["inference_seconds"])
    for record in records[1:]:
        seconds, told = statistics.median(record["inference_seconds"]), record["distribution"]
        speedup = base / seconds
        assert {seconds, speedup, speedup / record["ranks"]} <= set(page.values)
        assert {value for value in typed(record).distribution.imbalance if value is not None} <= set(page.values)
        waiting = sum(sum(rank["waiting_seconds"]) for rank in told["per_rank"])
        whole = sum(sum(rank["inference_seconds"]) for rank in told["per_rank"])
        assert waiting / whole in page.values
        for rank in told["per_rank"]:
            assert {rank["edges_computed"], rank["inputs"], computing(rank), rank["survivors"][-1]} <= set(page.values)
    assert 0.125 in page.values  # communication
    text = section(page)
    assert "Before layer 13: 77 rows, 1.0 MiB." in text
    assert "The gain predicted was more than the cost." in text
    assert "15.0 µs for a small allgather, 3.00 GB/s between two ranks" in text
    assert "Weights: one copy a node; 7.0 MiB of weights and inputs in shared windows" in text


def test_strong_scaling_has_one_base():
    rows = group(strong())["rows"]
    assert [(row["workers"], row["partition"]) for row in rows] == [
        (1, None), (2, "rebalanced"), (2, "static"), (4, "rebalanced"), (8, "rebalanced"),
    ]  # fmt: skip
    assert [round(row["speedup"], 9) for row in rows] == [1.0, round(0.8 / 0.415, 9), 1.6, round(0.8 / 0.275, 9),
                                                          round(0.8 / 0.325, 9)]  # fmt: skip
    assert rows[2]["efficiency"] == 0.8
    assert rows[0]["waiting"] is None


def test_weak_scaling_compares_rates():
    found = group(weak(1, 2, 4), predictions.WEAK)
    assert found["inputs_each"] == 6000
    assert [row["speedup"] for row in found["rows"]] == pytest.approx([1, 2 * 1.125 / 1.25, 4 * 1.125 / 1.5])
    assert [row["efficiency"] for row in found["rows"]] == pytest.approx([1, 0.9, 0.75])
    page = shown(weak(1, 2, 4))
    assert "6,000 inputs for each rank" in section(page)
    assert "Strong scaling" not in section(page)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("threads", 3),
        ("span", "layer loop, weights streamed"),
        ("reductions.requested", []),
        ("engine.name", "csr"),
        ("problem.inputs_sha256", "ab" * 32),
        ("problem.network_identity", "ab" * 32),
        ("environment.cpu", "Another CPU"),
        ("environment.cores", 16),
    ],
)
def test_a_base_has_the_same_settings(key, value):
    base, two, four = on(1, (0.8,), official=False), on(2, (0.5,), official=False), on(4, (0.3,), official=False)
    base = changed(base, key, value)
    found = group([base, two, four])
    assert [row["workers"] for row in found["rows"]] == [2, 4]
    assert [row["speedup"] for row in found["rows"]] == [None, None]
    assert "There is no run of one rank with these settings" in section(shown([base, two, four]))


def test_threads_are_compared_as_ranks_are():
    """One problem on 1 and 2 threads, and on 1 and 2 ranks of one thread."""
    two = {**on(2, (0.75,), case="case.r2"), "threads": 1}
    records = [*on_threads(1, 2), two]
    over_ranks, over_threads = scaling.values(collected(records))["groups"]
    assert [(row["run"].case, row["workers"]) for row in over_ranks["rows"]] == [("case.t1", 1), ("case.r2", 2)]
    assert [(row["run"].case, row["workers"]) for row in over_threads["rows"]] == [("case.t1", 1), ("case.t2", 2)]
    assert [row["speedup"] for row in over_threads["rows"]] == [1, 1.25 / 0.75]
    assert over_threads["rows"][1]["efficiency"] == 1.25 / 0.75 / 2
    page = shown(records, figures=True)
    text = section(page)
    assert text.startswith("ranks or threads, compared with the same settings on one")
    assert "60,000 inputs on any number of threads; engine cpu, one rank, reductions" in text
    figure = page.source[page.source.index("time, speed-up, efficiency by threads") :]
    figure = figure[: figure.index("</svg>")]
    for drawn in ("one thread, the base", "ideal", "efficiency, %", "threads"):
        assert f">{drawn}<" in figure
    assert "% of inference: waiting" not in figure
    assert "Speed-up, efficiency" in shown(on_threads(1, 2)).text


def test_threads_are_predicted_up_to_the_cores():
    rows = scaling.values(collected(on_threads(1, 2, cores=8)))["predicted"]
    assert [(row["workers"], row["measured"]) for row in rows] == [
        ("2 threads", 0.75), ("4 threads", None), ("8 threads", None),
    ]  # fmt: skip
    assert [row["predicted"].seconds for row in rows] == pytest.approx([1.25 / 2, 1.25 / 4, 1.25 / 8])
    page = shown(on_threads(1, 2, cores=8))
    assert {0.75, *(row["predicted"].seconds for row in rows)} <= set(page.values)
    assert "what it expects from the run of one thread. No figure" in section(page)


def on_gpus(record, engine="cuda"):
    """The record as if GPUs had made it."""
    record["environment"]["gpu"] = "A GPU"
    record["engine"]["name"] = engine
    return record


def test_ranks_with_a_gpu_each_scale_strongly_and_weakly():
    """Made for this test: 1 to 16 ranks, four on a node, each with a GPU."""
    records = [on(count, (0.8 / count + 0.1,), hosts=max(1, count // 4)) for count in (1, 2, 4, 8, 16)]
    records += weak(1, 2, 4)
    values = scaling.values(collected([on_gpus(record) for record in records]))
    assert [(value["kind"], value["over"], len(value["rows"])) for value in values["groups"]] == [
        ("strong", "ranks", 5), ("weak", "ranks", 3),
    ]  # fmt: skip
    assert [row["speedup"] for row in values["groups"][0]["rows"]] == pytest.approx(
        [0.9 / (0.8 / count + 0.1) for count in (1, 2, 4, 8, 16)]
    )
    told = [row["measured"] for row in values["predicted"] if row["measured"]]
    assert told == pytest.approx([*(0.8 / count + 0.1 for count in (2, 4, 8, 16)), 0.125, 0.15])
    assert [row["predicted"].workers for row in values["predicted"]][:5] == [2, 4, 8, 16, 32]


def test_several_gpus_of_one_rank_are_compared_and_predicted_by_the_simulator():
    runs = [scheduled("resident", count, (0.6 / count + 0.1,), f"gpus-{count}") for count in (1, 2, 4)]
    values = scaling.values(collected([on_gpus(record, "taskgraph-cuda") for record in runs]))
    (group,) = values["groups"]
    assert (group["kind"], group["over"]) == ("strong", "GPUs")
    assert [row["workers"] for row in group["rows"]] == [1, 2, 4]
    assert [(row["workers"], row["measured"]) for row in values["predicted"]] == [
        ("2 GPUs", pytest.approx(0.4)), ("4 GPUs", pytest.approx(0.25)),
    ]  # fmt: skip
    assert values["predicted"][0]["predicted"].seconds < 0.7


def test_one_run_of_several_ranks_is_listed_without_a_figure():
    page = shown([on(4, (0.3,))])
    text = section(page)
    assert "Not compared" in text
    assert "nothing to compare with" in text
    assert "Strong scaling figure" not in page.source
    assert 0.3 in page.values


def test_of_two_runs_of_one_setting_the_later_is_compared():
    later = on(2, (0.25,), case="again")
    later["created"] = "2026-01-02T03:04:05Z"
    for records in ([*strong(), later], [later, *strong()]):
        found = group(records)
        assert [row["seconds"] for row in found["rows"] if row["partition"] == "static"] == [0.25]
        assert "1 earlier run of a setting" in section(shown(records))


@pytest.mark.parametrize(("cores", "hosts", "marked"), [(16, 1, 0), (8, 1, 1), (4, 1, 2), (8, 2, 0), (1, 1, 5)])
def test_more_threads_than_cores_are_told(cores, hosts, marked):
    """Runs of 1, 2, 2, 4 and 8 ranks of two threads; those on two nodes have half of them on each."""
    records = [on(1, (0.8,), cores=cores)]
    settings = ((2, "static"), (2, "rebalanced"), (4, "static"), (8, "static"))
    records += [on(ranks, (0.5,), partition, cores=cores, hosts=hosts) for ranks, partition in settings]
    rows = group(records)["rows"]
    assert sum(row["oversubscribed"] for row in rows) == marked
    assert (scaling_figures.shade_start(rows) is None) == (marked == 0)
    text = section(shown(records))
    assert text.count("oversubscribed") - text.count("marked oversubscribed") == marked
    assert ("no speed-up can be expected there" in text) == (marked > 0)


def test_the_shade_begins_between_what_fits_and_what_does_not():
    def rows(*over):
        return [{"workers": 2**place, "oversubscribed": told} for place, told in enumerate(over)]

    assert scaling_figures.shade_start(rows(False, False, True, True)) == pytest.approx(8**0.5)
    assert scaling_figures.shade_start(rows(True, True)) == 0.0
    assert scaling_figures.shade_start(rows(False, True, False)) is None


def test_figures_tell_partitions_apart_and_are_described():
    page = shown([*strong(), *weak(1, 2)], figures=True, published=True)
    labels = [attrs["aria-label"] for attrs in page.all("svg")]
    assert sum(label.startswith("Strong scaling, 1,024 neurons × 120 layers: time, speed-up") for label in labels) == 1
    assert sum(label.startswith("Weak scaling") for label in labels) == 1
    assert sum(label.startswith("Published scaling of at-scale SpDNN") for label in labels) == 1
    figure = page.source[page.source.index('aria-label="Strong scaling,') :]
    figure = figure[: figure.index("</svg>")]
    for text in ("static", "rebalanced", "ideal", "speed-up", "efficiency, %", "ranks"):
        assert f">{text}<" in figure
    assert ">cyclic<" not in figure


def test_published_curves_stand_apart():
    systems = scaling.published_systems(read_baselines(BASELINES))
    assert [
        (system["system"], system["devices"][0], system["devices"][-1], len(system["curves"])) for system in systems
    ] == [("at-scale SpDNN (Hidayetoglu)", 1, 768, 12), ("BF (SNIG authors' baseline)", 1, 4, 10), ("SNIG", 1, 4, 12)]
    deepest = systems[0]["curves"][-1]
    assert (deepest["neurons"], deepest["layers"]) == (65536, 1920)
    last = deepest["points"][-1]
    assert last == {"devices": 768, "rate": 1.7137e14, "efficiency": 1.7137e14 / 768 / 3.93e12}
    page = shown([*strong(), *weak(1, 2)], figures=True, published=True)
    assert 1.7137e14 in page.values
    assert "Published figures of another program on other machines (NVIDIA V100 16GB)" in page.text
    assert "over 1 to 768 of NVIDIA V100 16GB" in page.text


def test_several_ranks_are_in_no_ladder_and_no_comparison():
    reductions = ((), ("dead",), ("dead", "inputs"))
    settings = [
        on(1, (1.0 + place,), case=f"one-{place}", reductions=chosen) for place, chosen in enumerate(reductions)
    ]
    several = [on(2, (0.5,), case=f"two-{place}", reductions=chosen) for place, chosen in enumerate(reductions)]
    [ladder] = ladders(collected([*settings, *several]).own)
    assert [run.case for run in ladder["runs"]] == ["one-2", "one-1", "one-0"]
    assert ladders(collected(several).own) == []
    compared = [{**record, "comparison": "0123456789abcdef"} for record in (on(1, (0.5,)), on(2, (0.4,)))]
    assert peers(collected(compared)) is None


def test_runs_of_several_ranks_tell_what_they_include():
    page = shown([on(2, (0.5, 0.4, 0.6), "rebalanced")])
    assert page.text.count(f"layer loop, resident; {words.IN_SHORT}") == 2  # the tables of rates and of times
    assert page.text.count(words.SEVERAL) == 3  # above the section, among the meanings, in the provenance
    assert "cpu, 2 ranks (rebalanced) of 2 threads" in page.text
    assert "2 ranks (rebalanced) of 2 threads, on 1 node; weights: one copy a node; 7.0 MiB shared" in page.text
    assert words.SEVERAL not in shown([made_record()]).text


def test_the_limit_of_several_ranks_is_the_busiest_ranks():
    record = measured(on(2, (0.5,), uneven=1.25))
    busiest = max(rank["edges_computed"] for rank in record["distribution"]["per_rank"])
    page = shown([record])
    assert {4 * busiest / 1e12, 4 * busiest / 1e12 / 0.5} <= set(page.values)
    assert "the loads are those that the busiest rank had at least" in page.text


def test_hostile_text_is_text():
    records = strong()
    for record in records:
        record["engine"]["name"] = HOSTILE[:60]
        record["case"] = HOSTILE + record["case"]
        if record["distribution"]:
            record["distribution"]["told"] = HOSTILE
            for rank in record["distribution"]["per_rank"]:
                rank["host"] = HOSTILE
    page = shown(records, figures=True)
    assert page.runs_nothing_else()
    assert "<script>alert(" in section(page)


def test_a_failed_verdict_takes_a_run_out_of_the_section():
    page = shown(strong()[:3], [("case.t2", made_verdict(passed=False))])
    assert "Not compared" in section(page)
    assert 0.8 not in page.values


def test_predictions_stand_apart_from_what_was_measured():
    rows = scaling.values(collected(strong()))["predicted"]
    again = [row for row in rows if row["measured"] is not None]
    assert [(row["predicted"].workers, row["measured"]) for row in again] == [
        (2, 0.415),
        (2, 0.5),
        (4, 0.275),
        (8, (0.3 + 0.35) / 2),
    ]
    beyond = [row for row in rows if row["measured"] is None]
    assert [row["predicted"].workers for row in beyond] == [16 << place for place in range(len(beyond))]
    assert beyond[0]["predicted"].nodes == 4  # of 8 cores, with two threads a rank
    assert all(
        one["predicted"].seconds > 1.05 * other["predicted"].seconds for one, other in itertools.pairwise(beyond)
    )
    shown_page = shown(strong(), published=True)
    before, predicted = section(shown_page).split("Predicted", 1)
    assert "Published scaling" in before
    assert "those of a cost model, not of runs" in predicted
    assert {row["predicted"].seconds for row in rows} | {row["efficiency"] for row in rows} <= set(shown_page.values)
    drawn = shown_page.source[: shown_page.source.index('id="predicted"')]
    assert not [row for row in rows if f'value="{row["predicted"].seconds}"' in drawn]


def test_nothing_is_predicted_without_a_base():
    assert scaling.values(collected(strong()[1:]))["predicted"] == []
    assert "Predicted" not in section(shown(strong()[1:]))


def test_a_run_of_very_many_ranks_lists_those_that_computed_longest():
    page = shown([on(1, (0.8,)), on(200, (0.1,), uneven=2.0)])
    assert "the ranks that computed longest, 136 others are left out" in page.text
    assert len(re.findall(r"\d+node-0", page.text)) == scaling.MOST_RANKS
    assert "0node-0" in page.text  # it waited least


@pytest.mark.parametrize("log", [[[12, 512, 0.25]], "x", 7, [["a"] * 5], {"a": 1}, [[0, 0, 1, 1, 1.0]]])
def test_notes_that_the_model_cannot_read_predict_nothing_and_stop_nothing(log):
    records = strong()
    for record in records:
        record["engine"]["notes"]["pass_log"] = log
    page = shown(records)
    assert 0.8 in page.values
    for record in records:
        record["reductions"]["found"] = {"neurons": "x", "inputs": [1], "dead": {"rows": "y"}}
    assert 0.8 in shown(records).values
