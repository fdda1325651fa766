"""The table of the twelve networks: the best of each kind, never one kind in another's column."""

import csv
import re

import pytest
from test_report import BASELINES, collected, drawn, made_record, shown, typed

from spdnn.report.common import words
from spdnn.report.networks import section as networks
from spdnn.report.overview import section as overview
from spdnn.runs.records.published import DEVICES, Ratio, read_baselines


@pytest.fixture(scope="module")
def table():
    """The published figures as the file has them."""
    with BASELINES.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def page(*records):
    return networks.values(collected(records, read_baselines(BASELINES)))


def row(found, neurons=1024, layers=120):
    return next(one for one in found["twelve"] if (one["neurons"], one["layers"]) == (neurons, layers))


def test_every_network_has_a_row_run_or_not():
    found = page(made_record())["twelve"]
    assert len(found) == len({one["key"] for one in found}) == 12
    assert [bool(one["like"]) for one in found] == [True] + [False] * 11
    assert not any(one["plain"] or one["reduced"] for one in found)


def test_the_table_has_the_networks_that_were_run():
    shown_rows = page(made_record())["rows"]
    assert [row["key"] for row in shown_rows] == ["1024-120"]
    text = shown([made_record()], published=True).text
    assert "11 of the twelve networks have no run here; published figures are in a table of their own." in text


def test_runs_with_and_without_reductions_have_columns_of_their_own():
    slow = made_record("slow", (1.0,), reductions=())
    fast, faster = made_record("fast", (0.2,)), made_record("faster", (0.1,), reductions=("dead", "inputs"))
    found = row(page(slow, fast, faster))
    assert found["like"].rate.median == typed(fast).edges_per_second.median
    assert found["plain"].rate.median == typed(slow).edges_per_second.median
    assert found["reduced"].rate.median == typed(faster).edges_per_second.median
    assert "dead inputs, identical inputs" in found["reduced"].setting
    assert "no reductions" in found["plain"].setting


def test_official_inputs_come_before_a_higher_rate():
    official = made_record("official", (0.4,))
    other = made_record("other", (0.1,), official=False, source="digits")
    found = row(page(official, other))["like"]
    assert found.inference_seconds == 0.4
    assert found.comparable
    alone = row(page(other))["like"]
    assert not alone.comparable


def test_the_best_published_are_of_that_network_and_lossy_ones_apart(table):
    found = page(made_record())["twelve"]
    for one in found:
        rates = {
            group: max(
                float(line["edges_per_second"])
                for line in table
                if (line["neurons"], line["layers"]) == (str(one["neurons"]), str(one["layers"]))
                and line["edges_per_second"] and line["lossy"] == ("yes" if group == "lossy" else "no")
                and (group != "one" or re.match(r"1\b(?!\d)", line["devices"]))
            )
            for group in ("one", "any", "lossy")
        }  # fmt: skip
        assert {group: best.edges_per_second for group, best in one["best"].items()} == rates
        assert one["best"]["one"].device_class == DEVICES[0]
    lossy = [round(one["best"]["lossy"].edges_per_second / 1e12) for one in found if one["layers"] == 1920]
    assert lossy == [64, 192, 411, 351]


def test_hardware_is_in_the_headings_and_a_single_repeat_is_marked():
    once, twice = made_record("once", (1.0,)), made_record("twice", (1.0, 1.1), reductions=(), layers=480)
    page = shown([once, twice], published=True)
    table = page.source[page.source.index('id="twelve"') :].split("</table>")[0]
    heads = re.sub(r"<[^>]+>", "", table.split("</thead>")[0])
    kinds = ("exact, one GPU", "exact, up to 768 GPUs", "lossy, one GPU")
    assert [f"Best published, {kind}" in heads for kind in kinds] == [True] * 3
    assert "SNICIT (as run by GLARE authors), 1 × GeForce RTX 3090 24GB, 2023" in table
    assert "Ours: A CPU, 2 threads." in page.text
    assert table.count("measured once") == 1
    assert "; measured once." in page.text
    (figure,) = drawn("overview", collected([once, twice], read_baselines(BASELINES))).values()
    assert figure.svg.count(">1×<") == 1
    assert ">TeraEdges/s; ours: A CPU, 2 threads<" in figure.svg
    assert "lossy, one GPU" in figure.csv
    cpu = [row for row in read_baselines(BASELINES) if row.kind == "CPU"]
    rows = networks.values(collected([once], cpu))["twelve"]
    assert networks.hardware(rows, "one") == "one CPU"
    assert networks.hardware(rows, "lossy") == "any"


def test_ratios_are_of_rates(table):
    record = made_record()
    found = row(page(record))
    rate = typed(record).edges_per_second.median
    published = {group: (one.edges_per_second, one.span) for group, one in found["best"].items()}
    assert found["times"] == {
        ("like", group): Ratio(rate / theirs, span) for group, (theirs, span) in published.items()
    }
    assert not row(page(made_record("x", official=False, source="digits")))["times"]


def test_a_ratio_says_what_the_published_time_includes_where_ours_includes_something_else():
    """In the table and on the first screen, of one network and of several; and nothing where both include the same."""
    same, copies = "layer loop, resident", "layer loop with weight copies"
    one_gpu = [line for line in read_baselines(BASELINES) if line.device_class == DEVICES[0] and not line.lossy]
    both = [made_record(f"{layers}", layers=layers) for layers in (120, 480)]

    def said(spans, records=both):
        return overview.values(collected(records, [line for line in one_gpu if line.span in spans]))["speed"][0]

    assert "their time" not in said({same})
    assert said({copies}, both[:1]).endswith(f" (their time: {copies}).")
    assert said({same, copies}).endswith(f" (their time: {copies} in 1 of 2).")
    text = shown(both, published=True).source
    cells = text[text.index('id="twelve"') :].split("</table>")[0]
    assert cells.count(f"their time: {copies}") == 3  # on one GPU, and on many of both networks


def test_every_published_figure_is_there_once(table):
    found = shown([made_record()], published=True)
    source = found.source[found.source.index('id="published"') :].split("</table>")[0]
    rows = re.findall(r'<data value="([^"]+)" data-unit="rate"', source)
    known = [line for line in table if line["neurons"] and line["edges_per_second"]]
    assert sorted(map(float, rows)) == sorted(float(line["edges_per_second"]) for line in known)
    assert source.count(">lossy<") == sum(line["lossy"] == "yes" for line in known)


def test_who_made_a_system_is_left_out_and_who_ran_it_is_not():
    rows = {row.system: networks.label(row) for row in read_baselines(BASELINES)}
    assert rows["at-scale SpDNN (Hidayetoglu)"].startswith("at-scale SpDNN, ")
    assert rows["SNICIT (as run by GLARE authors)"].startswith("SNICIT (as run by GLARE authors), ")


def test_a_logarithmic_axis_of_few_decades_has_plain_numbers():
    fast = made_record("all", (0.01,), reductions=("dead", "inputs", "neurons"))
    (figure,) = drawn("overview", collected([fast], read_baselines(BASELINES))).values()
    assert figure.svg.count(">20<") == 1
    assert "mathdefault" not in figure.svg


def test_the_claim_is_fair_or_says_what_it_is():
    like, faster = made_record(), made_record("all", (0.01,), reductions=("dead", "inputs", "neurons"))
    found = row(page(like, faster))["times"]
    slower = words.significant(1 / found["like", "one"].times, 2)
    avoided, lossy = (words.significant(found["reduced", name].times, 2) for name in ("one", "lossy"))
    copies, unknown = (f" (their time: {span})" for span in ("layer loop with weight copies", "not stated"))

    def said(*records):
        return overview.values(collected(records, read_baselines(BASELINES)))["speed"]

    assert said(like, faster) == [
        f"Same work: 2 CPU cores are {slower} times slower than the best published exact result on one GPU{copies}.",
        f"Work avoided, exactly: {avoided} times as fast as that, {lossy} times as "
        f"fast as the best lossy result{unknown}.",
    ]
    slow = made_record("slow", (10.0,), reductions=("dead", "inputs", "neurons"))
    found = row(page(like, slow))["times"]
    behind, lossy = (words.significant(1 / found["reduced", name].times, 2) for name in ("one", "lossy"))
    assert said(like, slow)[1] == (
        f"Work avoided, exactly: {behind} times slower than that, {lossy} times "
        f"slower than the best lossy result{unknown}."
    )
    once = [made_record(f"once-{layers}", (0.1,), layers=layers) for layers in (120, 480)]
    assert said(*once)[0].endswith("; each measured once.")
    assert said(once[0], made_record("twice", layers=480))[0].endswith("; 1 of 2 measured once.")
    (alone,) = said(faster)
    assert alone.startswith(
        f"Work avoided, exactly: {avoided} times as fast as the best published exact result on one GPU"
    )

    (digits,) = said(made_record(official=False, source="digits"))
    assert digits.startswith("Fastest: 2.14 TeraEdges/s on 1,024 × 120 (same work). Inputs: digits, 60,000, not the ")
    assert "no rate is compared with published ones" in digits
    own = made_record("mine-12", (0.5,), official=False, neurons=64, layers=12, inputs=1000)
    assert said(own) == ["2,000 inputs a second through mine-12, 1,000 in a batch, measured once."]
    several = [made_record(f"{layers}", layers=layers) for layers in (120, 480)]
    assert " (geometric mean, " in said(*several)[0]


def test_a_quiet_run_comes_before_a_faster_one_on_a_busy_machine():
    quiet, busy = made_record("quiet", (0.4,)), made_record("busy", (0.1,))
    busy["load"] = {"others": 0.2, "throttled": 0.0}
    quiet["load"] = busy["load"] | {"others": None}
    assert row(page(quiet, busy))["like"].case == "quiet"
    text = shown([quiet, busy]).text
    assert "busy machine in 1 of 2 runs" in text
    assert "busy machine in the only run" in shown([busy]).text
    assert "busy machine in" not in shown([quiet]).text


def test_records_of_older_code_are_marked():
    old, new, there = made_record("old", (0.01,)), made_record("new"), made_record("there", (0.2,))
    for record, code in ((old, "a" * 64), (new, "b" * 64), (there, "c" * 64)):
        record["environment"]["code"] = code
    new["created"], there["environment"]["cpu"] = "2026-01-02T03:04:05Z", "Another CPU"
    runs = collected([old, new, there]).runs
    assert {run.case: run.older for run in runs} == {"old": True, "new": False, "there": False}
    page = shown([old, new, there])
    assert "older code in 1 of 3 runs" in page.text
    assert typed(old).edges_per_second.median in page.values
    assert "older code in" not in shown([new, there]).text


def test_short_names_tell_what_differs():
    records = [made_record("a"), made_record("b", reductions=()), made_record("c", layers=480)]
    runs = collected(records).runs
    assert [run.short for run in runs] == [
        "1,024 × 120, same work",
        "1,024 × 120, no reductions",
        "1,024 × 480, same work",
    ]
    assert collected([made_record("mine-7.x", official=False, neurons=7)]).runs[0].short == "mine-7"
