"""The section on scaling: its numbers are the records', and runs of several ranks stay where they belong."""

import copy
import statistics

import pytest
from records import BASELINES, cells, collected, figures_of, made_record, table_of, texts, told, typed
from test_schedules import scheduled

from spdnn.report.common import words
from spdnn.report.common.blocks import Fold, Part
from spdnn.report.common.drawing import save, style
from spdnn.report.common.groups import STRONG, WEAK
from spdnn.report.peers import comparisons
from spdnn.report.scaling import published_systems, scaled_runs, section, shade_start
from spdnn.report.times import ladders
from spdnn.runs.calibration import expected
from spdnn.runs.records.published import read_baselines
from tests.runs.records.test_run_record import changed

CORES = 8


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


def rows(records, kind=STRONG, over="ranks"):
    groups = collected(records).scaling
    return scaled_runs(next(group for group in groups if (group.kind, group.over) == (kind, over)))


def of(records):
    """The section on these records."""
    return section(collected(records, read_baselines(BASELINES)))


def test_numbers_are_the_records():
    records = strong()
    scaled, base = rows(records), statistics.median(records[0]["inference_seconds"])
    known = {record["case"]: record for record in records}
    assert [(row.workers, row.run.partition) for row in scaled] == [
        (1, None), (2, "rebalanced"), (2, "static"), (4, "rebalanced"), (8, "rebalanced"),
    ]  # fmt: skip
    lines = cells(table_of(of(records), "Strong scaling"))
    for row, line in zip(scaled[1:], lines[1:], strict=True):
        record = known[row.run.case]
        seconds, ranks = statistics.median(record["inference_seconds"]), record["distribution"]["per_rank"]
        edges = [rank["edges_computed"] for rank in ranks]
        late = [rank["edges_from_exchange"] for rank in ranks]
        # Of rank 0, which waits for nobody, and of the others.
        computing = [seconds * (0.875 if rank is ranks[0] else 0.625) for rank in ranks]
        waiting = (len(ranks) - 1) / len(ranks) / 4
        assert (row.speedup, row.efficiency) == pytest.approx((base / seconds, base / seconds / len(ranks)))
        assert row.of_ranks[:1] + row.of_ranks[2:5] == pytest.approx(
            (max(edges) / statistics.mean(edges), max(computing) / statistics.mean(computing), waiting, 0.125)
        )
        static = record["distribution"]["partition"] == "static"
        assert row.of_ranks.edges_from_exchange == (
            None if static else pytest.approx(max(late) / statistics.mean(late))
        )
        assert (line["ranks"], line["partition"]) == (str(len(ranks)), record["distribution"]["partition"])
        assert float(line["inference_seconds"]) == seconds
        assert (line["waiting"], line["rows_exchanged"]) == (str(row.of_ranks.waiting), "0" if static else "77")
    assert (scaled[0].speedup, scaled[0].of_ranks.waiting) == (1.0, None)
    figure = figures_of(of(records))["scaling-strong-1"]
    assert [row[1:4] for row in figure.rows] == [
        (row.workers, row.run.partition, row.run.inference_seconds) for row in scaled
    ]
    with style():
        assert all(save(one, "scaling").svg for one in figures_of(of([*records, *weak(1, 2)])).values())


def test_each_rank_of_a_run_is_listed():
    record = on(2, (0.5, 0.4, 0.6), "rebalanced")
    (fold,) = of([on(1, (0.8,)), record]).every(Fold)
    terms, ranks = fold.blocks
    about = dict(terms.pairs)
    assert about["Rows exchanged"] == "The gain predicted was more than the cost.; before layer 13: 77 rows, 1.0 MiB"
    assert about["Messages"].startswith("15.0 µs for a small allgather, 3.00 GB/s between two ranks")
    assert about["Memory"].startswith("Weights: one copy a node; 7.0 MiB of weights and inputs in shared windows")
    for place, line in enumerate(cells(ranks)):
        rank = record["distribution"]["per_rank"][place]
        waiting = 0.25 * 0.5 if place else 0
        assert [float(cell) for cell in list(line.values())[2:] if cell] == pytest.approx([
            rank["inputs"], 0.5, 0.5 - waiting - 0.125 * 0.5, waiting, 0.125 * 0.5, rank["edges_computed"],
            rank["edges_from_exchange"], *((0, 77) if place else (77, 0)), rank["survivors"][-1], 5 << 20,
            *([] if place else [3 << 20]),
        ])  # fmt: skip


def test_a_run_of_very_many_ranks_lists_those_that_computed_longest():
    (fold,) = of([on(1, (0.8,)), on(200, (0.1,), uneven=2.0)]).every(Fold)
    assert "136 others are left out" in fold.blocks[1].caption
    assert [number for number, _ in fold.blocks[1].rows] == list(range(64))  # rank 0 waited least


def test_weak_scaling_compares_rates():
    scaled = rows(weak(1, 2, 4), WEAK)
    assert [row.speedup for row in scaled] == pytest.approx([1, 2 * 1.125 / 1.25, 4 * 1.125 / 1.5])
    assert [row.efficiency for row in scaled] == pytest.approx([1, 0.9, 0.75])
    assert "6,000 inputs for each rank; engine cpu" in told(of(weak(1, 2, 4)))
    lines = cells(table_of(of(weak(1, 2, 4)), "Weak scaling"))
    assert [line["inputs"] for line in lines] == ["6000", "12000", "24000"]


@pytest.mark.parametrize(
    ("key", "value"),
    [("threads", 3), ("span", "layer loop, weights streamed"), ("reductions.requested", []), ("engine.name", "csr"),
     ("problem.inputs_sha256", "ab" * 32), ("problem.network_identity", "ab" * 32),
     ("environment.cpu", "Another CPU"), ("environment.cores", 16)],
)  # fmt: skip
def test_a_base_has_the_same_settings(key, value):
    base, two, four = on(1, (0.8,), official=False), on(2, (0.5,), official=False), on(4, (0.3,), official=False)
    records = [changed(base, key, value), two, four]
    assert [(row.workers, row.speedup, row.efficiency) for row in rows(records)] == [(2, None, None), (4, None, None)]
    assert "There is no run of one rank with these settings" in told(of(records))


def test_threads_are_compared_as_ranks_are():
    """One problem on 1 and 2 threads, and on 1 and 2 ranks of one thread."""
    records = [*on_threads(1, 2), {**on(2, (0.75,), case="case.r2"), "threads": 1}]
    over_ranks, over_threads = rows(records), rows(records, over="threads")
    assert [(row.run.case, row.workers) for row in over_ranks] == [("case.t1", 1), ("case.r2", 2)]
    assert [(row.run.case, row.workers) for row in over_threads] == [("case.t1", 1), ("case.t2", 2)]
    assert [row.speedup for row in over_threads] == [1, 1.25 / 0.75]
    assert over_threads[1].efficiency == 1.25 / 0.75 / 2
    figure = figures_of(of(records))["scaling-strong-2"]
    assert figure.title.endswith("time, speed-up, efficiency by threads")
    with style():
        svg = save(figure, "scaling").svg
    assert [f">{text}<" in svg for text in ("one thread, the base", "% of inference: waiting")] == [True, False]
    heads = list(texts(table_of(of(records), "Strong scaling over threads"))[0])
    assert heads[1] == "Threads"
    assert "Waiting" not in heads


def test_threads_and_ranks_are_predicted_from_the_run_of_one():
    one, two = map(typed, on_threads(1, 2, cores=8))
    assert expected(one, two)[0] == pytest.approx(1.25 / 2)
    base, *others = map(typed, strong())
    found = [expected(base, record)[0] for record in others]
    assert all(predicted < statistics.median(base.seconds) for predicted in found)


def on_gpus(record, engine="cuda"):
    """The record as if GPUs had made it."""
    record["environment"]["gpu"] = "A GPU"
    record["engine"]["name"] = engine
    return record


def test_ranks_with_a_gpu_each_scale_strongly_and_weakly():
    """Made for this test: 1 to 16 ranks, four on a node, each with a GPU."""
    counts = (1, 2, 4, 8, 16)
    records = [on(count, (0.8 / count + 0.1,), hosts=max(1, count // 4)) for count in counts] + weak(1, 2, 4)
    records = [on_gpus(record) for record in records]
    assert [row.speedup for row in rows(records)] == pytest.approx([0.9 / (0.8 / count + 0.1) for count in counts])
    assert [row.nodes for row in rows(records)] == [None, None, None, "on 2 nodes", "on 4 nodes"]
    assert len(rows(records, WEAK)) == 3


def test_several_gpus_of_one_rank_are_compared():
    runs = [scheduled("resident", count, (0.6 / count + 0.1,), f"gpus-{count}") for count in (1, 2, 4)]
    records = [on_gpus(record, "taskgraph-cuda") for record in runs]
    assert [row.workers for row in rows(records, over="GPUs")] == [1, 2, 4]


def test_one_run_of_several_ranks_is_listed_without_a_figure():
    alone = of([on(4, (0.3,))])
    assert next(alone.every(Part)).heading.startswith("Not compared")
    assert all(name.startswith("published") for name in figures_of(alone))
    assert [line["inference_seconds"] for line in cells(table_of(alone, "Other scaling"))] == ["0.3"]
    assert section(collected([made_record()])) is None


def test_of_two_runs_of_one_setting_the_later_is_compared():
    later = on(2, (0.25,), case="again")
    later["created"] = "2026-01-02T03:04:05Z"
    for records in ([*strong(), later], [later, *strong()]):
        assert [row.run.inference_seconds for row in rows(records) if row.run.partition == "static"] == [0.25]
        assert "1 earlier run of a setting" in told(of(records))


@pytest.mark.parametrize(("cores", "hosts", "marked"), [(16, 1, 0), (8, 1, 1), (4, 1, 2), (8, 2, 0), (1, 1, 5)])
def test_more_threads_than_cores_are_told(cores, hosts, marked):
    """Runs of 1, 2, 2, 4 and 8 ranks of two threads; those on two nodes have half of them on each."""
    records = [on(1, (0.8,), cores=cores)]
    settings = ((2, "static"), (2, "rebalanced"), (4, "static"), (8, "static"))
    records += [on(ranks, (0.5,), partition, cores=cores, hosts=hosts) for ranks, partition in settings]
    scaled = rows(records)
    lines = texts(table_of(of(records), "Strong scaling"))
    assert sum("oversubscribed" in line["Ranks"] for line in lines) == marked
    starts = {0: None, 1: 32**0.5, 2: 8**0.5, 5: 0.0}
    assert shade_start(scaled) == (pytest.approx(starts[marked]) if marked else None)
    assert ("no speed-up can be expected there" in told(of(records))) == (marked > 0)
    # Ranks on more nodes may fit again.
    assert shade_start([row for row in scaled if row.workers < 4] + rows([on(1, (1,)), on(4, (1,), hosts=4)])) is None


def test_published_curves_stand_apart():
    systems = published_systems(read_baselines(BASELINES))
    assert [(one.system, one.devices[0], one.devices[-1], len(one.curves)) for one in systems] == [
        ("at-scale SpDNN (Hidayetoglu)", 1, 768, 12), ("BF (SNIG authors' baseline)", 1, 4, 10), ("SNIG", 1, 4, 12),
    ]  # fmt: skip
    deepest = systems[0].curves[-1]
    assert (deepest.neurons, deepest.layers, deepest.rate(768)) == (65536, 1920, 1.7137e14)
    assert deepest.efficiency(768) == 1.7137e14 / 768 / 3.93e12
    part = next(part for part in of(strong()).every(Part) if part.name == "published-scaling-1-head")
    figure, numbers = part.blocks[1:]
    assert figure.rows[-1] == (65536, 1920, 768, 1.7137e14, deepest.efficiency(768))
    assert texts(numbers)[-1]["768"] == "171.4 (5.68 %)"
    assert "over 1 to 768 of NVIDIA V100 16GB" in figure.caption


def test_several_ranks_are_in_no_ladder_and_no_comparison():
    reductions = ((), ("dead",), ("dead", "inputs"))
    settings = [
        on(1, (1.0 + place,), case=f"one-{place}", reductions=chosen) for place, chosen in enumerate(reductions)
    ]
    several = [on(2, (0.5,), case=f"two-{place}", reductions=chosen) for place, chosen in enumerate(reductions)]
    [ladder] = ladders(collected([*settings, *several]).own)
    assert [run.case for run in ladder.runs] == ["one-2", "one-1", "one-0"]
    assert ladders(collected(several).own) == []
    compared = [{**record, "comparison": "0123456789abcdef"} for record in (on(1, (0.5,)), on(2, (0.4,)))]
    assert not comparisons(collected(compared))


def test_runs_of_several_ranks_tell_what_they_include():
    (run,) = collected([on(2, (0.5, 0.4, 0.6), "rebalanced")]).runs
    assert run.includes == f"layer loop, resident; {words.IN_SHORT}"
    assert run.threads_text == "2 ranks (rebalanced) of 2 threads"
