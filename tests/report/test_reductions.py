"""The section on the exact reductions: every figure follows from the records, and what they do not tell is not told."""

import copy
import itertools
import re
import statistics

import pytest
from matplotlib.axes import Axes
from test_report import HOSTILE, Page, agreed, collected, data, made_record, typed
from test_report import drawn as figures
from test_report import shown as whole
from test_schedules import scheduled

from spdnn.core.statistics import interval
from spdnn.report.reductions import facts as reduction_facts
from spdnn.report.reductions import values as reductions
from spdnn.runs.records.files import check_content
from spdnn.runs.records.run_record import RunRecord

LAYERS, INPUTS, EACH = 120, 60_000, 32 * 1024
ALL = ("dead", "inputs", "neurons")
LADDER = "snakemake --cores 2 --configfile config/ladder.yaml"
UNSTRUCTURED = "snakemake --cores 2 --configfile config/unstructured.yaml"


def alive():
    """The inputs into each layer, as `made_record` has them survive."""
    return [INPUTS, *(max(1812, int(INPUTS * 0.7**layer)) for layer in range(1, LAYERS))]


def kept():
    """Rows that represent them: equal ones are found from layer 13 on."""
    return [*alive()[:12], *[50, 20, 9], *[7] * (LAYERS - 15)]


def merged():
    """Edges of a row where identical neurons are computed once; no two layers alike."""
    return [2048, *(1200 + layer for layer in range(1, LAYERS))]


def run(names=ALL, seconds=(0.1, 0.11, 0.12), rows=None, edges=None, looks=3, case=None, **problem):
    """A record whose engine tells rows and edges, and computed a little more than it had to."""
    record = made_record(case or f"case.{'+'.join(names) or 'none'}", seconds, names, **problem)
    whole, count, layers = record["problem"]["edges"], record["problem"]["input_count"], record["problem"]["layers"]
    edges = edges or (merged() if "neurons" in names else [whole // layers] * layers)
    rows = rows or (kept() if "inputs" in names else alive() if "dead" in names else [count] * layers)
    found = {"dead": {"rows_may_leave_before_layer": 1, "seconds": 0.0}}
    found["inputs"] = {"looks": looks, "rows_merged": 7, "seconds": 0.0}
    found["neurons"] = {"neurons": 1024 * 120, "neurons_left": 7040, "edges": whole, "edges_left": sum(edges)}
    record["reductions"]["found"] = {name: found[name] for name in names}
    record["engine"]["notes"] |= {"layer_rows": rows, "layer_edges": edges}
    record["result"]["edges_computed"] = through(rows, edges) + 64 * edges[0]
    check_content(RunRecord, agreed(record), "made")
    return record


def through(rows, edges):
    total = 0
    for layer in range(len(edges)):
        total += rows[layer] * edges[layer]
    return total


def plain(name="plain", neurons=1024, reduced=True, looks=2, **changed):
    """A record of an unstructured network, in which nothing is found."""
    names = ALL if reduced else ()
    record = made_record(name, (2.0, 2.1), names, official=False, source="digits", inputs=6000, layers=24)
    record["problem"]["network"] = {"source": "unstructured", "neurons": neurons, "layers": 24, "seed": 0}
    record["problem"]["network_identity"] = "b" * 64
    record["problem"]["edges"] = edges = 24 * 30_000 + 276
    layers = [30_000 + layer for layer in range(24)]
    record["engine"]["notes"] |= {"layer_rows": [6000] * 24, "layer_edges": layers}
    record["reductions"]["found"] = {
        "dead": {"rows_may_leave_before_layer": 25},
        "inputs": {"looks": looks},
        "neurons": {"neurons": 24_576, "neurons_left": 24_576, "edges": edges, "edges_left": edges},
    } if reduced else {}  # fmt: skip
    record["result"] |= {"survivors": [6000] * 24, "categories": 6000, "edges_computed": 6016 * edges, **changed}
    record["verdict"] |= {"categories": 6000, "expected": 6000}
    record["verdict"]["values"]["checked"] = 6000
    check_content(RunRecord, agreed(record), "made")
    return record


def section(records):
    return reductions.values(collected(records))


def drawn(records):
    """The tables of the section's figures by name, as dictionaries of each row."""
    return {name: data(one) for name, one in figures("reductions", records).items()}


def shown(records, **more):
    """The section alone, as a page."""
    source = whole(records, **more).source
    return Page(*re.findall('<section aria-labelledby="reductions">.*?</section>', source, re.DOTALL))


def text(page):
    return " ".join(page.text.split())


def test_one_record_tells_what_each_reduction_leaves():
    record = run()
    nominal = INPUTS * record["problem"]["edges"]
    left = [through(alive(), [EACH] * LAYERS), through(kept(), [EACH] * LAYERS), through(kept(), merged())]
    factors = [nominal / left[0], left[0] / left[1], left[1] / left[2]]
    assert min(factors) > 1.1
    page = shown([record])
    assert {nominal, *left, *factors, nominal / left[2], record["result"]["edges_computed"]} <= set(page.values)
    [row] = drawn([record])["reductions-edges"]
    assert [float(row[f"{name}, factor"]) for name in ALL] == factors
    assert float(row["all factors"]) == pytest.approx(factors[0] * factors[1] * factors[2], rel=1e-12)
    assert [int(value) for key, value in row.items() if key.startswith("edges left")] == left
    assert int(row["edges really computed"]) == record["result"]["edges_computed"]
    told = text(page)
    assert "would record" not in told
    assert "not searched for" not in told


def test_curves_are_the_inputs_alive_and_the_rows_of_each_layer():
    rows = drawn([run()])["reductions-rows"]
    assert [int(row["layer"]) for row in rows] == list(range(1, LAYERS + 1))
    assert [int(row["inputs alive"]) for row in rows] == alive()
    assert [int(row["rows computed"]) for row in rows] == kept()


def test_rows_are_from_the_run_that_found_most_and_edges_from_the_one_that_merged():
    """As where merging neurons leaves too little work to look for identical inputs."""
    unlooked = run(rows=alive(), looks=0)
    both = [unlooked, run(("dead", "inputs"))]
    left = through(kept(), [EACH] * LAYERS), through(kept(), merged())
    [one] = section(both)["networks"]
    assert [step["edges"] for step in one["steps"][1:]] == list(left)
    assert one["cases"] == ["case.dead+inputs", "case.dead+inputs+neurons"]
    assert one["computed"]["edges"] == unlooked["result"]["edges_computed"]
    page = shown(both)
    assert left[0] / left[1] in page.values
    assert "not searched for" not in text(page)


def test_where_no_run_looked_the_command_that_does_is_told():
    page = shown([run(rows=alive(), looks=0)])
    told = text(page)
    assert "not searched for" in told
    assert (
        "spdnn challenge --neurons 1024 --layers 120 --inputs mnist --reductions dead,inputs --record run.json" in told
    )
    assert "represent them." not in told
    part = shown([run(rows=alive(), looks=0, official=False, source="digits")])
    assert "--layers 120 --inputs digits --reductions dead,inputs" in text(part)


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"layer_rows": kept()},
        {"layer_rows": kept()[1:], "layer_edges": merged()},
        {"layer_rows": [INPUTS + 1, *kept()[1:]], "layer_edges": merged()},
        {"layer_rows": [alive()[0], alive()[1] + 1, *kept()[2:]], "layer_edges": merged()},
        {"layer_rows": kept(), "layer_edges": [merged()[0] + 1, *merged()[1:]]},
        {"layer_rows": alive(), "layer_edges": merged()},
        {"layer_rows": [True, *kept()[1:]], "layer_edges": merged()},
        {"layer_rows": [-1, *kept()[1:]], "layer_edges": merged()},
        {"layer_rows": HOSTILE, "layer_edges": {}},
    ],
)
def test_what_contradicts_the_record_is_not_told(notes):
    """Of them all, rows that would take more than was computed; counts alone of the dead are left."""
    record = run()
    record["engine"]["notes"] = notes
    page = shown([record])
    [one] = section([record])["networks"]
    assert [step["how"] for step in one["steps"]] == ["counted", None, "computed"]
    assert one["steps"][0]["edges"] == through(alive(), [EACH] * LAYERS)
    assert one["steps"][2]["factor"] is None
    assert through(kept(), merged()) not in page.values
    assert "This run of the engine cpu would record them: spdnn challenge --neurons 1024" in text(page)


def test_runs_with_fewer_reductions_tell_what_an_engine_does_not():
    """Engines that tell no rows: each step is what a run with that many reductions really computed."""
    records = [run(names) for names in ((), ("dead",), ("dead", "inputs"), ALL)]
    for record in records:
        record["engine"]["notes"] = {}
    computed = [record["result"]["edges_computed"] for record in records]
    [one] = section(records)["networks"]
    assert [step["edges"] for step in one["steps"]] == computed[1:]
    assert {step["how"] for step in one["steps"]} == {"computed"}
    assert one["product"] == INPUTS * records[0]["problem"]["edges"] / computed[3]
    page = shown(records)
    assert page.source.count('<span class="mark">as computed</span>') == 3
    assert {computed[1] / computed[2], computed[2] / computed[3]} <= set(page.values)


def test_rows_of_zeros_stay_while_a_later_bias_may_revive_them():
    record = run()
    record["reductions"]["found"]["dead"]["rows_may_leave_before_layer"] = 5
    record["engine"]["notes"]["layer_rows"] = rows = [INPUTS] * 4 + kept()[4:]
    record["result"]["edges_computed"] = through(rows, merged())
    [one] = section([record])["networks"]
    assert one["alive"] == [INPUTS] * 4 + alive()[4:]
    assert one["steps"][0]["edges"] == through([INPUTS] * 4 + alive()[4:], [EACH] * LAYERS)
    assert one["steps"][2]["edges"] == through(rows, merged())
    record["reductions"]["found"]["dead"] = {}
    assert section([record])["networks"][0]["steps"][0]["edges"] is None


def test_one_rank_of_several_does_not_tell_for_all():
    record = run()
    assert reduction_facts.layer_counts(typed(record)).rows == kept()
    assert reduction_facts.layer_counts(typed({**record, "ranks": 2})) is None


def test_seconds_with_more_and_more_reductions():
    samples = {
        (): (8.0, 9.0, 7.0),
        ("dead",): (2.0, 2.5, 1.5),
        ("dead", "inputs"): (1.0, 1.1, 1.2),
        ALL: (0.1, 0.3, 0.2),
    }
    records = [run(names, seconds) for names, seconds in samples.items()]
    other = run((), (64.0,), case="other threads")
    other["threads"] = 7
    page = shown([*records, other])
    medians = [statistics.median(seconds) for seconds in samples.values()]
    computed = [record["result"]["edges_computed"] for record in records]
    [group] = section([*records, other])["times"]
    assert [row["run"].inference_seconds for row in group["rows"]] == medians
    assert [row["faster"] for row in group["rows"]] == [None, *(a / b for a, b in itertools.pairwise(medians))]
    assert [row["fewer"] for row in group["rows"]] == [None, *(a / b for a, b in itertools.pairwise(computed))]
    assert {medians[0] / medians[1], medians[2] / medians[3], computed[0] / computed[1]} <= set(page.values)
    rate = INPUTS * records[0]["problem"]["edges"] / 1e12
    for row, record in zip(group["rows"], records, strict=True):
        ends = typed(record).edges_per_second
        assert row["low"] == pytest.approx(rate / ends.high * 1e12)
        assert row["high"] == pytest.approx(rate / ends.low * 1e12)
    told = text(page)
    assert "1.500 to 2.500" in told


def test_an_unstructured_network_has_its_row_and_no_factor():
    record = plain()
    page = shown([run(), record, plain("plain.none", reduced=False)])
    first, one = section([record, run()])["networks"]
    assert first["radixnet"]
    assert not one["radixnet"]
    assert [step["factor"] for step in one["steps"]] == [1.0, 1.0, 1.0]
    assert one["product"] == 1.0
    told = text(page)
    assert (
        "6,000 of 6,000 inputs are alive after the last layer, and as later biases revive rows of zeros, none" in told
    )
    assert "24,576 of 24,576 neurons are different." in told
    assert "dead inputs ÷ 1.00, identical inputs ÷ 1.00, identical neurons ÷ 1.00." in told


def test_what_was_not_looked_for_is_no_factor_of_one():
    page = shown([plain(looks=0)])
    told = text(page)
    assert "identical inputs not searched for" in told
    assert "a search was never cheap enough" in told
    assert "--reductions dead,inputs" not in told


def test_a_command_for_an_unstructured_network():
    record = plain()
    record["engine"]["notes"] = {}
    told = text(shown([record]))
    made = "source=unstructured neurons=1024 layers=24 inputs=digits count=6000 reductions=dead,inputs"
    assert f"snakemake --cores 2 --config {made}" in told
    assert not [step for step in section([record])["networks"][0]["steps"] if step["how"] == "counted"]


def test_layers_of_other_edges_are_told_by_a_run_that_merged_nothing():
    """Where identical neurons were found, another run has to tell the edges of each layer as they are given."""
    record = plain()
    edges = record["engine"]["notes"]["layer_edges"]
    record["engine"]["notes"]["layer_edges"] = half = [edge // 2 for edge in edges]
    record["reductions"]["found"]["neurons"] |= {"neurons_left": 20_000, "edges_left": sum(half)}
    [alone] = section([record])["networks"]
    assert [step["edges"] for step in alone["steps"]] == [None, None, through([6000] * 24, half)]
    assert alone["notes"][0]["kind"] == "rows"
    [both] = section([record, plain("none", reduced=False)])["networks"]
    assert [step["edges"] for step in both["steps"]] == [
        through([6000] * 24, edges), through([6000] * 24, edges), through([6000] * 24, half),
    ]  # fmt: skip


def test_a_single_layer_and_a_page_without_reductions_have_no_section():
    assert section([run(())]) is None
    assert "What the reductions leave out" not in whole([run(())]).text
    layer = run(layers=120)
    layer["span"] = "one layer, features in the engine's layout"
    assert section([layer]) is None


def test_depths_of_one_width_share_a_panel():
    deep = made_record("deep", (0.2,), ALL, layers=480)
    deep["reductions"]["found"] = copy.deepcopy(run()["reductions"]["found"])
    records = [run(), deep]
    records[1]["problem"]["network_identity"] = "c" * 64
    assert len(section(records)["networks"]) == 2
    assert [one["problem"].layers for one in section(records)["curves"]] == [120]  # the other tells no rows
    assert {row["network and inputs"] for row in drawn(records)["reductions-rows"]} == {
        "1,024 neurons × 120 layers, official, 60,000 inputs"
    }


def test_hostile_text_is_text():
    record = plain(HOSTILE)
    record["problem"]["network"] = {"source": HOSTILE, "bias": HOSTILE, "ymax": [HOSTILE]}
    record["problem"]["inputs"] = {"source": HOSTILE}
    record["engine"]["name"] = HOSTILE[:60]
    record["reductions"]["found"] = {"dead": HOSTILE, "inputs": {"looks": HOSTILE}, "neurons": {"edges_left": HOSTILE}}
    named = run(case=HOSTILE[:190])
    named["verdict"]["values"]["rule"] = HOSTILE
    assert whole([record, named], figures=True).runs_nothing_else()
    assert "<script>alert(" in text(shown([record, named], figures=True))


def test_every_number_of_the_section_is_a_records():
    """Each marked number is one of a record, or follows from those by one of the rules that are written out here."""
    records = [run(names) for names in ((), ("dead",), ("dead", "inputs"), ALL)]
    page = shown(records)
    values = set(page.values)
    nominal, computed = INPUTS * EACH * LAYERS, [record["result"]["edges_computed"] for record in records]
    seconds = [statistics.median(record["inference_seconds"]) for record in records]
    left = [nominal, *(through(rows, [EACH] * LAYERS) for rows in (alive(), kept())), through(kept(), merged())]
    known = {*left, *computed, *seconds, nominal / left[3], nominal / computed[3]}
    known |= {a / b for numbers in (left, computed, seconds) for a, b in itertools.pairwise(numbers)}
    known |= {nominal / second for second in seconds} | {a / b for a, b in zip(computed, seconds, strict=True)}
    known |= {typed(record).edges_per_second.median for record in records}
    intervals = [interval(record["inference_seconds"]) for record in records]
    ends = {end for one in intervals for end in (one.low, one.high)}
    survivors, rows = records[3]["result"]["survivors"], kept()
    same = next(layer for layer in range(1, LAYERS + 1) if set(survivors[layer - 1 :]) == {survivors[-1]})
    known |= {1, INPUTS, survivors[0], survivors[-1], same, 16, rows[-1], 122_880, 7040, 122_880 / 7040}
    known |= {EACH * LAYERS, sum(merged()), EACH * LAYERS / sum(merged())}
    network = records[0]["problem"]["network"]
    known |= {network["bias"], network["ymax"]}
    rest = values - known
    assert all(any(value == pytest.approx(end, rel=1e-9) for end in ends) for value in rest)
    assert len(rest) <= len(ends)


def test_times_of_one_schedule_are_not_set_beside_another():
    """The task graph on one device and on two, streamed and not: each is compared with itself alone."""
    records = []
    for place, (schedule, devices) in enumerate((("resident", 1), ("graph", 2))):
        for on in (("dead",), ALL):
            record = scheduled(schedule, devices)
            record["reductions"] |= {"requested": list(on), "found": {}}
            records.append(record | {"case": f"{schedule}-{place}-{len(on)}"})
    times = reductions.values(collected(records))["times"]
    assert sorted((group["run"].cut, *(row["run"].case for row in group["rows"])) for group in times) == [
        ("graph, 2 devices", "graph-1-1", "graph-1-3"),
        ("resident, 1 device", "resident-0-1", "resident-0-3"),
    ]


def test_the_mark_of_all_edges_is_in_the_middle_of_its_row(monkeypatch):
    plot, heights = Axes.plot, []
    monkeypatch.setattr(Axes, "plot", lambda axes, x, y, **style: heights.append(y) or plot(axes, x, y, **style))
    figures("reductions", [run(names) for names in ((), ("dead",), ALL)] + [plain()])
    marks = [sum(ends) / 2 for ends in heights if len(ends) == 2]
    assert marks
    assert all(abs(place - round(place)) < 1e-9 for place in marks)
