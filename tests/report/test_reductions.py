"""The section on the exact reductions: every number follows from records, and contradictions in notes are ignored."""

import copy
import csv
import itertools
import statistics

import pytest
from records import agreed, collected, made_record, typed
from test_schedules import scheduled

from spdnn.core.table import plain as text
from spdnn.report import reductions
from spdnn.report.common.blocks import Bullets, Fold
from spdnn.report.common.drawing import Figure, save, style
from spdnn.report.common.layer_counts import layer_counts
from spdnn.report.reductions import COMPUTED, TIMES, UNSEARCHED, edges_table
from spdnn.runs.records.files import check_content
from spdnn.runs.records.run_record import RunRecord

LAYERS, INPUTS, EACH = 120, 60_000, 32 * 1024
ALL = ("dead", "inputs", "neurons")


def alive():
    """The inputs into each layer, as `made_record` has them survive."""
    return [INPUTS, *(max(1812, int(INPUTS * 0.7**layer)) for layer in range(1, LAYERS))]


def kept():
    """Rows that represent them: equal ones are found from layer 13 on."""
    return [*alive()[:12], *[50, 20, 9], *[7] * (LAYERS - 15)]


def merged():
    """Edges of a row where identical neurons are computed once; no two layers alike."""
    return [2048, *(1200 + layer for layer in range(1, LAYERS))]


def run(names=ALL, seconds=(0.1, 0.11, 0.12), rows=None, looks=3, case=None, **problem):
    """A record whose engine tells rows and edges, and computed a little more than it had to."""
    record = made_record(case or f"case.{'+'.join(names) or 'none'}", seconds, names, **problem)
    whole, count, layers = record["problem"]["edges"], record["problem"]["input_count"], record["problem"]["layers"]
    edges = merged() if "neurons" in names else [whole // layers] * layers
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
    return sum(rows[layer] * edges[layer] for layer in range(len(edges)))


def plain(name="plain", reduced=True, looks=2):
    """A record of an unstructured network, in which nothing is found."""
    names = ALL if reduced else ()
    record = made_record(name, (2.0, 2.1), names, official=False, source="digits", inputs=6000, layers=24)
    record["problem"]["network"] = {"source": "unstructured", "neurons": 1024, "layers": 24, "seed": 0}
    record["problem"]["network_identity"] = "b" * 64
    record["problem"]["edges"] = edges = 24 * 30_000 + 276
    layers = [30_000 + layer for layer in range(24)]
    record["engine"]["notes"] |= {"layer_rows": [6000] * 24, "layer_edges": layers}
    record["reductions"]["found"] = {
        "dead": {"rows_may_leave_before_layer": 25},
        "inputs": {"looks": looks},
        "neurons": {"neurons": 24_576, "neurons_left": 24_576, "edges": edges, "edges_left": edges},
    } if reduced else {}  # fmt: skip
    record["result"] |= {"survivors": [6000] * 24, "categories": 6000, "edges_computed": 6016 * edges}
    record["verdict"] |= {"categories": 6000, "expected": 6000}
    record["verdict"]["values"]["checked"] = 6000
    check_content(RunRecord, agreed(record), "made")
    return record


def networks(*records):
    return reductions.networks(collected(records))


def section(*records):
    return reductions.section(collected(records))


def figures(*records):
    return {figure.name: figure for figure in section(*records).every(Figure)}


def sentences(*records):
    """What the section says about other networks, and what records lack."""
    items = [text(item) for block in section(*records).every(Bullets) for item in block.items]
    return items, [text(block.text) for fold in section(*records).every(Fold) for block in fold.blocks]


def test_one_record_has_what_each_reduction_leaves():
    record = run()
    nominal = INPUTS * record["problem"]["edges"]
    left = [through(alive(), [EACH] * LAYERS), through(kept(), [EACH] * LAYERS), through(kept(), merged())]
    factors = [nominal / left[0], left[0] / left[1], left[1] / left[2]]
    computed = record["result"]["edges_computed"]
    assert min(factors) > 1.1
    [one] = networks(record)
    assert [(step.edges, step.factor, step.how) for step in one.steps] == [
        (edges, factor, "") for edges, factor in zip(left, factors, strict=True)
    ]
    assert one.product == pytest.approx(factors[0] * factors[1] * factors[2], rel=1e-12)
    assert (one.computed, one.computed_factor) == (computed, nominal / computed)
    # As the table and the first sentence have them: 10^9 edges, and in brackets the factor.
    whole = f"{nominal / left[2]:.0f}"
    title = "1,024 neurons × 120 layers, official, 60,000 inputs"
    assert edges_table().texts([one])[1][1] == [
        title, f"{nominal / 1e9:.1f}", f"{left[0] / 1e9:.2f} (÷ {factors[0]:.1f})",
        f"{left[1] / 1e9:.3f} (÷ {factors[1]:.2f})", f"{left[2] / 1e9:.4f} (÷ {factors[2]:.1f})", f"÷ {whole}",
        f"{computed / 1e9:.4f} (÷ {nominal / computed:.0f})", "case.dead+inputs+neurons",
    ]  # fmt: skip
    heads, row = csv.reader(edges_table().csv([one]).splitlines())
    assert float(row[heads.index("together")]) == one.product
    assert text(section(record).blocks[0].text) == (
        f"On 1,024 × 120, official, 60,000 inputs, one edge in {whole} is left after all reductions (one in "
        f"{nominal / computed:.0f} was computed); leaving out the others changes no result. Each reduction can be "
        "switched off."
    )
    assert sentences(record) == ([], [])
    edges, rows = figures(record).values()
    assert edges.rows == [(title, nominal, *itertools.chain(*zip(left, factors, strict=True)), one.product, computed)]
    counts = list(zip(alive(), kept(), strict=True))  # in the layers where one changes
    changed = [k for k in range(LAYERS) if k in (0, LAYERS - 1) or counts[k] != counts[k - 1]]
    assert rows.rows == [(title, layer + 1, *counts[layer]) for layer in changed]
    with style():
        assert save(edges, "reductions").narrow
        assert "<svg" in save(rows, "reductions").svg


def test_rows_are_from_the_run_that_found_most_and_edges_from_the_one_that_merged():
    """As where merging neurons leaves too little work to search for identical inputs."""
    unsearched = run(rows=alive(), looks=0)
    both = [unsearched, run(("dead", "inputs"))]
    [one] = networks(*both)
    assert [(step.edges, step.how) for step in one.steps[1:]] == [
        (through(kept(), [EACH] * LAYERS), ""), (through(kept(), merged()), ""),
    ]  # fmt: skip
    assert one.cases == ["case.dead+inputs", "case.dead+inputs+neurons"]
    assert one.computed == unsearched["result"]["edges_computed"]


@pytest.mark.parametrize(("official", "source"), [(True, "mnist"), (False, "digits")])
def test_where_no_run_searched_the_command_that_does_is_named(official, source):
    record = run(rows=alive(), looks=0, official=official, source=source)
    [one] = networks(record)
    assert [step.how for step in one.steps] == ["", UNSEARCHED, ""]
    assert edges_table().texts([one])[1][1][3].endswith("(not searched for)")
    [lack] = sentences(record)[1]
    assert lack.endswith(
        f"spdnn challenge --neurons 1024 --layers 120 --inputs {source} --reductions dead,inputs --record run.json"
    )


@pytest.mark.parametrize(
    ("rows", "edges"),
    [
        (None, None), (kept(), None), (kept()[1:], merged()), ("rows", {}),
        ([INPUTS + 1, *kept()[1:]], merged()), ([alive()[0], alive()[1] + 1, *kept()[2:]], merged()),
        (kept(), [merged()[0] + 1, *merged()[1:]]),
        (alive(), merged()),  # these take more than was computed
        ([True, *kept()[1:]], merged()), ([-1, *kept()[1:]], merged()),
    ],
)  # fmt: skip
def test_what_contradicts_the_record_is_ignored(rows, edges):
    """Counts of the dead alone are left."""
    record = run()
    record["engine"]["notes"] = {"layer_rows": rows, "layer_edges": edges}
    [one] = networks(record)
    dead, inputs, neurons = one.steps
    assert (dead.edges, dead.how) == (through(alive(), [EACH] * LAYERS), "")
    assert inputs.edges is None
    assert (neurons.edges, neurons.factor, neurons.how) == (record["result"]["edges_computed"], None, COMPUTED)
    assert "This run of the engine cpu would record them: spdnn challenge --neurons 1024" in sentences(record)[1][0]


def test_runs_with_fewer_reductions_say_what_an_engine_does_not():
    """Engines that note no rows: each step is what a run with that many reductions really computed."""
    records = [run(names) for names in ((), ("dead",), ("dead", "inputs"), ALL)]
    for record in records:
        record["engine"]["notes"] = {}
    nominal, computed = INPUTS * EACH * LAYERS, [record["result"]["edges_computed"] for record in records]
    [one] = networks(*records)
    factors = [nominal / computed[1], computed[1] / computed[2], computed[2] / computed[3]]
    assert [tuple(step[1:]) for step in one.steps] == [
        (edges, factor, COMPUTED) for edges, factor in zip(computed[1:], factors, strict=True)
    ]
    assert one.product == nominal / computed[3]


def test_rows_of_zeros_stay_while_a_later_bias_may_revive_them():
    record = run()
    record["reductions"]["found"]["dead"]["rows_may_leave_before_layer"] = 5
    record["engine"]["notes"]["layer_rows"] = rows = [INPUTS] * 4 + kept()[4:]
    record["result"]["edges_computed"] = through(rows, merged())
    [one] = networks(record)
    assert one.alive == [INPUTS] * 4 + alive()[4:]
    assert one.steps[0].edges == through([INPUTS] * 4 + alive()[4:], [EACH] * LAYERS)
    assert one.steps[2].edges == through(rows, merged())
    for other in ({}, {"rows_may_leave_before_layer": "5"}, "text"):
        record["reductions"]["found"]["dead"] = other
        assert networks(record)[0].steps[0].edges is None


def test_one_rank_of_several_does_not_count_for_all():
    assert layer_counts(typed(run())).rows == kept()
    assert layer_counts(typed({**run(), "ranks": 2})) is None


def test_seconds_with_more_and_more_reductions():
    samples = {(): (8.0, 9.0, 7.0), ("dead",): (2.0, 2.5, 1.5), ("dead", "inputs"): (1.0, 1.1, 1.2),
               ALL: (0.1, 0.3, 0.2)}  # fmt: skip
    records = [run(names, seconds) for names, seconds in samples.items()]
    other = run((), (64.0,), case="other threads") | {"threads": 7}
    rows = reductions.times(collected([*records, other]))
    medians = [statistics.median(seconds) for seconds in samples.values()]
    computed = [record["result"]["edges_computed"] for record in records]
    assert [row.run.inference_seconds for row in rows] == medians
    values = {column.name: list(map(column.value, rows)) for column in TIMES.columns}
    assert values["Times as fast"] == [None, *(a / b for a, b in itertools.pairwise(medians))]
    assert values["Times fewer"] == [None, *(a / b for a, b in itertools.pairwise(computed))]
    # In 2 s of 60,000 x 3,932,160 edges, 0.118 TeraEdges/s.
    _, lines = TIMES.texts(rows)
    assert lines[2][1:5] == ["cpu, 2 threads (layer loop, resident)", "dead inputs", "2.000 (1.500 to 2.500)", "4.00"]
    fewer, rate = computed[0] / computed[1], computed[1] / 2e12
    assert lines[2][5:] == [f"{computed[1] / 1e9:.2f}", f"{fewer:.1f}", "0.1180", f"{rate:.6f}", "case.dead"]
    assert TIMES.record(rows[0]) == collected([*records, other]).records.index(rows[0].run.record)


def test_times_of_one_schedule_are_not_compared_with_another():
    """The task graph on one device and on two, streamed and not: each is compared with itself alone."""
    records = []
    for place, (schedule, devices) in enumerate((("resident", 1), ("graph", 2))):
        for on in (("dead",), ALL):
            record = scheduled(schedule, devices)
            record["reductions"] |= {"requested": list(on), "found": {}}
            records.append(record | {"case": f"{schedule}-{place}-{len(on)}"})
    rows = reductions.times(collected(records))
    assert {(row.run.cut, row.before and row.before.case, row.run.case) for row in rows} == {
        ("graph, 2 devices", None, "graph-1-1"), ("graph, 2 devices", "graph-1-1", "graph-1-3"),
        ("resident, 1 device", None, "resident-0-1"), ("resident, 1 device", "resident-0-1", "resident-0-3"),
    }  # fmt: skip


def test_an_unstructured_network_has_its_row_and_no_factor():
    first, one = networks(plain(), run())
    assert (first.radixnet, one.radixnet) == (True, False)
    assert [step.factor for step in one.steps] == [1.0, 1.0, 1.0]
    assert one.product == 1.0
    assert sentences(plain())[0] == [
        "1,024 neurons × 24 layers, digits, 6,000 inputs (unstructured (random); neurons 1024, layers 24, seed 0). "
        "6,000 of 6,000 inputs are alive after the last layer, and as later biases revive rows of zeros, none may "
        "leave before it. The last layer computed 6,000 rows. 24,576 of 24,576 neurons are different. Fewer edges: "
        "dead inputs ÷ 1.00, identical inputs ÷ 1.00, identical neurons ÷ 1.00."
    ]
    assert list(figures(plain())) == []
    # What was not searched for is no factor of 1.
    [found], [lack] = sentences(plain(looks=0))
    assert "identical inputs not searched for, identical neurons ÷ 1.00." in found
    assert "a search was never cheap enough" in lack


@pytest.mark.parametrize(
    ("inputs", "command"),
    [
        ("digits", "snakemake --cores 2 --config source=unstructured neurons=1024 layers=24 inputs=digits count=6000 "
                   "reductions=dead,inputs"),
        ("a file", "the command of plain, in the records, with reductions dead,inputs"),
    ],
)  # fmt: skip
def test_a_command_for_an_unstructured_network(inputs, command):
    record = plain()
    record["problem"]["inputs"] = {"source": inputs}
    record["engine"]["notes"] = {}
    assert sentences(record)[1][0].endswith(command)
    assert [step.how for step in networks(record)[0].steps] == ["", "", COMPUTED]


def test_layers_of_other_edges_are_from_a_run_that_merged_nothing():
    """Where identical neurons were found, another run has to note the edges of each layer as they are given."""
    record = plain()
    edges = record["engine"]["notes"]["layer_edges"]
    record["engine"]["notes"]["layer_edges"] = half = [edge // 2 for edge in edges]
    record["reductions"]["found"]["neurons"] |= {"neurons_left": 20_000, "edges_left": sum(half)}
    [alone] = networks(record)
    assert [step.edges for step in alone.steps] == [None, None, through([6000] * 24, half)]
    assert "no run here recorded the rows of each layer" in text(alone.lacks[0])
    [both] = networks(record, plain("none", reduced=False))
    assert [step.edges for step in both.steps] == [through([6000] * 24, each) for each in (edges, edges, half)]


def test_a_single_layer_and_runs_without_reductions_have_no_section():
    assert section(run(())) is None
    assert section(run() | {"span": "one layer, features in the engine's layout"}) is None


def test_depths_of_one_width_share_a_panel():
    deep = made_record("deep", (0.2,), ALL, layers=480)
    deep["reductions"]["found"] = copy.deepcopy(run()["reductions"]["found"])
    deep["problem"]["network_identity"] = "c" * 64
    assert len(networks(run(), deep)) == 2
    # The deeper one notes no rows.
    assert {row[0] for row in figures(run(), deep)["reductions-rows"].rows} == {
        "1,024 neurons × 120 layers, official, 60,000 inputs"
    }
