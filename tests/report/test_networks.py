"""The table of the twelve networks: the best of each kind, never one kind in another's column."""

import csv
import re

import pytest
from test_report import BASELINES, collected, made_record, shown

from spdnn.records.published import DEVICES, read_baselines
from spdnn.report.common import words
from spdnn.report.networks import values as networks


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
    assert [bool(one["reduced"]) for one in found] == [True] + [False] * 11
    assert not any(one["plain"] for one in found)


def test_runs_with_and_without_reductions_have_columns_of_their_own():
    slow = made_record("slow", (1.0,), reductions=())
    fast, faster = made_record("fast", (0.2,)), made_record("faster", (0.1,), reductions=("dead", "inputs"))
    found = row(page(slow, fast, faster))
    assert found["plain"]["rate"].median == slow["edges_per_second"]["median"]
    assert found["reduced"]["rate"].median == faster["edges_per_second"]["median"]
    assert "dead inputs, identical inputs" in found["reduced"]["setting"]
    assert "no reductions" in found["plain"]["setting"]


def test_official_inputs_come_before_a_higher_rate():
    official = made_record("official", (0.4,))
    other = made_record("other", (0.1,), official=False, source="digits")
    found = row(page(official, other))["reduced"]
    assert found["seconds"]["inference"] == 0.4
    assert found["comparable"]
    alone = row(page(other))["reduced"]
    assert not alone["comparable"]


def test_the_best_published_are_exact_and_of_that_network(table):
    found = page(made_record())["twelve"]
    for one in found:
        rates = {
            group: max(
                float(line["edges_per_second"])
                for line in table
                if (line["neurons"], line["layers"]) == (str(one["neurons"]), str(one["layers"]))
                and line["edges_per_second"] and line["lossy"] == "no"
                and (group == "any" or re.match(r"1\b(?!\d)", line["devices"]))
            )
            for group in ("one", "any")
        }  # fmt: skip
        assert {group: best.edges_per_second for group, best in one["best"].items()} == rates
        assert one["best"]["one"].device_class == DEVICES[0]


def test_ratios_are_of_rates(table):
    record = made_record()
    found = row(page(record))
    published = {group: best.edges_per_second for group, best in found["best"].items()}
    rate = record["edges_per_second"]["median"]
    assert found["times"] == {("reduced", group): rate / theirs for group, theirs in published.items()}


def test_every_published_figure_is_there_once(table):
    found = shown([made_record()], published=True)
    source = found.source[found.source.index('id="published"') :].split("</table>")[0]
    rows = re.findall(r'<tr data-network="([^"]+)"[^>]* data-rate="([^"]+)"', source)
    known = [line for line in table if line["neurons"] and line["edges_per_second"]]
    assert sorted((key, float(rate)) for key, rate in rows) == sorted(
        (f"{line['neurons']}-{line['layers']}", float(line["edges_per_second"])) for line in known
    )
    assert source.count("published, lossy") == sum(line["lossy"] == "yes" for line in known)


def test_who_made_a_system_is_left_out_and_who_ran_it_is_not():
    rows = {row.system: networks.label(row) for row in read_baselines(BASELINES)}
    assert rows["at-scale SpDNN (Hidayetoglu)"].startswith("at-scale SpDNN, ")
    assert rows["SNICIT (as run by GLARE authors)"].startswith("SNICIT (as run by GLARE authors), ")


def test_the_first_sentence_tells_who_is_fastest_and_by_which_means():
    records = [made_record(), made_record("none", (1.1,), reductions=()), made_record("deep", (0.3,), layers=480)]
    text = shown(records, published=True).text
    found = row(page(*records), 1024, 480)
    times = found["times"]["reduced", "one"]
    assert "Fastest here with exact reductions on: 3.146 TeraEdges/s on 1,024 × 480, " in text
    told, any_times = networks.label(found["best"]["any"]), found["times"]["reduced", "any"]
    beside = f"{words.significant(times, 3)} times the best published on one device and "
    assert f"{beside}{words.significant(any_times, 3)} times that on any ({told}); with no reductions: " in text
    assert "with no reductions: 0.2145 TeraEdges/s on 1,024 × 120, " in text
    assert "not on the official inputs" not in text
    digits = shown([made_record(official=False, source="digits")]).text
    assert "on 1,024 × 120 (not on the official inputs), " in digits


def test_without_an_official_network_nobody_is_called_fastest():
    record = made_record("64-12", official=False, neurons=64, layers=12, inputs=1000)
    assert "Fastest here" not in shown([record]).text
