"""The table of the twelve networks: the best of each kind, never one kind in another's column; and every run."""

import csv
import re

import pytest
from records import BASELINES, cells, collected, drawn, made_record, section_of, solved, table_of, texts, told, typed

from spdnn.formats.radixnet import RadixNet
from spdnn.report import networks
from spdnn.runs.records.published import DEVICES, Ratio, read_baselines

PUBLISHED = read_baselines(BASELINES)
ALL = ("dead", "inputs", "neurons")


@pytest.fixture(scope="module")
def lines():
    """The published figures as the file has them."""
    with BASELINES.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def sizes(*records):
    return networks.twelve(collected(records, PUBLISHED))


def size(*records):
    """The row of 1024 neurons and 120 layers."""
    return next(one for one in sizes(*records) if one.key == "1024-120")


def section(*records):
    return section_of("networks", collected(records, PUBLISHED))


def test_every_network_has_a_row_and_the_table_those_that_were_run():
    rows = sizes(made_record())
    assert len(rows) == len({row.key for row in rows}) == 12
    assert [list(map(bool, row.ours.values())) for row in rows] == [[False, True, False]] + [[False] * 3] * 11
    shown = section(made_record())
    assert [row["neurons_layers"] for row in cells(table_of(shown, "Ours and"))] == ["1,024 × 120"]
    absent = "11 of the twelve networks have no run here; published figures are in a table of their own."
    assert absent in told(shown)


def test_runs_have_columns_by_their_reductions_and_numbers_of_their_records():
    records = {"plain": made_record("slow", (1.0,), ()), "like": made_record("fast", (0.2, 0.3)),
               "reduced": made_record("faster", (0.1,), ("dead", "inputs"))}  # fmt: skip
    assert {name: run.case for name, run in size(*records.values()).ours.items()} == {
        name: record["case"] for name, record in records.items()
    }
    table = table_of(section(*records.values()), "Ours and")
    (row,), (text,) = cells(table), texts(table)
    for name, record in records.items():
        assert float(row[f"ours_{name}_edges_per_second"]) == typed(record).edges_per_second.median
    assert text["Ours, same work"] == "0.9437 (0.2500)"  # 60,000 x 32 x 1,024 x 120 in 0.25 s, in 10^12
    assert text["Ours, work avoided, exactly"] == "2.359 (0.1000 measured once)"


def test_a_sound_run_comes_before_a_faster_one():
    """The official inputs first, then a quiet machine."""
    official, other = made_record("official", (0.4,)), made_record("other", (0.1,), official=False, source="digits")
    assert size(official, other).ours["like"].case == "official"
    alone = size(other)
    assert not alone.ours["like"].comparable
    assert alone.ratio("like", "one") is None
    assert "other inputs" in texts(table_of(section(other), "Ours and"))[0]["Ours, same work"]
    quiet, busy = made_record("quiet", (0.4,)), made_record("busy", (0.1,))
    busy["load"] = {"others": 0.2, "throttled": 0.0}
    quiet["load"] = busy["load"] | {"others": None}
    assert size(quiet, busy).ours["like"].case == "quiet"


def test_the_best_published_are_of_that_network_and_lossy_ones_apart(lines):
    for row in sizes(made_record()):
        rates = {
            group: max(
                float(line["edges_per_second"])
                for line in lines
                if (line["neurons"], line["layers"]) == (str(row.problem.neurons), str(row.problem.layers))
                and line["edges_per_second"] and line["lossy"] == ("yes" if group == "lossy" else "no")
                and (group != "one" or re.match(r"1\b(?!\d)", line["devices"]))
            )
            for group in ("one", "any", "lossy")
        }  # fmt: skip
        assert {group: best.edges_per_second for group, best in row.best.items()} == rates
        assert row.best["one"].device_class == DEVICES[0]


def test_heads_say_on_what_hardware():
    (row,) = texts(table_of(section(made_record()), "Ours and"))
    kinds = ("exact, one GPU", "exact, up to 768 GPUs", "lossy, one GPU")
    assert [head for head in row if head.startswith("Best")] == [f"Best published, {kind}" for kind in kinds]
    assert "Ours: A CPU, 2 threads." in told(section(made_record()))
    processors = [line for line in PUBLISHED if line.kind == "CPU"]
    rows = networks.twelve(collected([made_record()], processors))
    assert [networks.hardware(rows, name) for name in ("one", "lossy")] == ["one CPU", "any"]


def test_ratios_are_of_rates_and_say_what_the_published_time_includes():
    record = made_record()
    row, rate = size(record), typed(record).edges_per_second.median
    for devices, best in row.best.items():
        assert row.ratio("like", devices) == Ratio(rate / best.edges_per_second, best.span)
        assert row.ratio("reduced", devices) is None
    (cell,) = cells(table_of(section(record), "Ours and"))
    assert float(cell["ratio_like_one"]) == rate / row.best["one"].edges_per_second
    both = table_of(section(record, made_record("480", layers=480)), "Ours and")
    spans = [text for line in both.table.texts(both.rows)[1] for text in line if "their time" in text]
    assert len(spans) == 3  # on one GPU, and on many of both networks
    assert all(text.endswith("(their time: layer loop with weight copies)") for text in spans)


def test_every_published_figure_is_there_once(lines):
    table = table_of(section(made_record()), "Every published")
    known = [line for line in lines if line["neurons"] and line["edges_per_second"]]
    assert table.title.endswith(f": {len(known)}")
    rates = [rate for row in cells(table) for name, rate in row.items() if name.endswith("_per_second") and rate]
    assert sorted(map(float, rates)) == sorted(float(line["edges_per_second"]) for line in known)
    lossy = [row for row in cells(table) if row["system"].endswith(" lossy")]
    count = sum(bool(rate) for row in lossy for name, rate in row.items() if name.endswith("_per_second"))
    assert count == sum(line["lossy"] == "yes" for line in known)
    assert any("Hidayetoglu et al., HPEC 2020, Table I, p. 5" in row["System"] for row in texts(table))


def test_who_made_a_system_is_left_out_and_who_ran_it_is_not():
    labels = {row.system: networks.label(row) for row in PUBLISHED}
    assert labels["at-scale SpDNN (Hidayetoglu)"].startswith("at-scale SpDNN, ")
    assert labels["SNICIT (as run by GLARE authors)"].startswith("SNICIT (as run by GLARE authors), ")


def test_every_run_is_a_row_with_the_numbers_of_its_record():
    record = solved(made_record(), 0.5, "workflow", ["inputs"])
    table = table_of(section(record), "Every run")
    (row,), (text,), rate = cells(table), texts(table), typed(record).edges_per_second
    assert float(row["median_edges_per_second"]) == rate.median
    assert (float(row["inference_seconds"]), float(row["to_solution_seconds"])) == (0.11, 0.5)
    assert float(row["really_computed_edges_per_second"]) == record["result"]["edges_computed"] / 0.11
    assert text["Median, TeraEdges/s"] == f"2.145 ({rate.low / 1e12:.3f} to {rate.high / 1e12:.3f})"
    assert text["Really computed, TeraEdges/s"] == "0.2145 (10.0 % of the edges)"
    assert text["To solution, seconds"] == "0.5000 (0.4719 TeraEdges/s inputs read from the cache)"
    assert (text["Engine"], text["Inputs"]) == ("cpu, 2 threads", "official, 60,000")
    many = table_of(section(*(made_record(str(k), (k + 1.0,)) for k in range(160))), "Every run")
    assert (len(many.rows), many.title) == (150, "Every run on these networks: 160; 10 more are in the records")


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        ({"official": False, "source": "digits"}, "digits, 60,000 not the official inputs"),
        ({"inputs": 6000}, "official, other count, 6,000 another number of inputs"),
    ],
)
def test_inputs_that_are_not_the_challenges_are_said_to_be(problem, text):
    assert texts(table_of(section(made_record(**problem)), "Every run"))[0]["Inputs"] == text


def test_runs_of_other_machines_have_their_device_and_date():
    here, there = made_record("here"), made_record("there")
    there["environment"] = {**there["environment"], "gpu": "NVIDIA H<200>"}
    there["created"] = "2026-03-04T05:06:07Z"
    places = {
        row["Network"].split(" ", 3)[3]: row["Engine"] for row in texts(table_of(section(here, there), "Every run"))
    }
    assert places == {
        "A CPU, 2 cores": "cpu, 2 threads (A CPU, 2 cores, 2025-01-02)",
        "NVIDIA H<200> (A CPU, 2 cores)": "cpu, 2 threads (NVIDIA H<200> (A CPU, 2 cores), 2026-03-04)",
    }
    assert texts(table_of(section(here), "Every run"))[0]["Engine"] == "cpu, 2 threads"


def test_official_networks_are_known_by_the_formula_that_makes_them():
    record, made = made_record(official=False), RadixNet(1024, 120).description
    wrong = RadixNet(1024, 120, seed=1).description, made | {"bias": -0.25}
    for network, known in ((made, True), *((one, False) for one in wrong)):
        record["problem"]["network"] = network
        assert (section(record) is not None) == known


def test_records_of_older_code_are_known():
    old, new, there = made_record("old", (0.01,)), made_record("new"), made_record("there", (0.2,))
    for record, code in ((old, "a" * 64), (new, "b" * 64), (there, "c" * 64)):
        record["environment"]["code"] = code
    new["created"], there["environment"]["cpu"] = "2026-01-02T03:04:05Z", "Another CPU"
    assert {run.case: run.older for run in collected([old, new, there]).runs} == {
        "old": True, "new": False, "there": False,
    }  # fmt: skip


def test_short_names_say_what_differs():
    runs = collected([made_record("a"), made_record("b", reductions=()), made_record("c", layers=480)]).runs
    assert [run.short for run in runs] == [
        "1,024 × 120, same work", "1,024 × 120, no reductions", "1,024 × 480, same work",
    ]  # fmt: skip
    assert collected([made_record("mine-7.x", official=False, neurons=7)]).runs[0].short == "mine-7"


def test_the_slope_is_of_a_fit_over_the_networks():
    """Of seconds that grow with the square root of the edges."""
    records = [made_record(str(layers), (layers**0.5,), ALL, layers=layers) for layers in (120, 480, 1920)]
    figure = drawn("networks", records)["growth"]
    assert "work avoided, exactly, slope 0.50" in figure.svg
    assert "slope 0.50" in figure.narrow
    assert drawn("networks", records[:2]) == {}
