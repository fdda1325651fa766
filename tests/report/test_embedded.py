"""What the page carries: the tables and records that its links hold are those it was made from."""

import base64
import csv
import gzip
import io
import json

import pytest
from pages import KINDS
from spdnn.report.provenance.records import link as made_link
from test_comparisons import compared
from test_operations import products
from test_report import HOSTILE, made_record, shown, typed

from spdnn.report.provenance import records as carried_records


def held(href):
    """The text of a data: address."""
    head, body = href.split(",", 1)
    content = base64.b64decode(body)
    return (gzip.decompress(content) if "gzip" in head else content).decode("utf-8")


def carried(page):
    """{name of the file without .gz: its text} of every link that holds one."""
    links = [attrs for attrs in page.all("a") if attrs.get("href", "").startswith("data:")]
    return {attrs["download"].removesuffix(".gz"): held(attrs["href"]) for attrs in links}


def test_all_records_are_in_the_page():
    records = [made_record("b", (0.3, 0.4)), made_record("a"), *products()]
    found = carried(shown(records))
    whole = json.loads(found["records.json"])
    assert sorted(map(json.dumps, whole)) == sorted(json.dumps(record, sort_keys=True) for record in records)
    rows = list(csv.DictReader(io.StringIO(found["records.csv"])))
    assert [int(row["number"]) for row in rows] == list(range(len(records)))
    assert [row["case"] for row in rows] == [record["case"] for record in whole]
    for row, record in zip(rows, whole, strict=True):
        seconds = record.get("inference_seconds") or record["seconds"]
        assert float(row["fastest_seconds"]) == min(seconds)
        assert row["command"] == record["environment"]["command"]
        if record["schema"] == "spdnn-record":
            assert float(row["edges_per_second"]) == typed(record).edges_per_second.median
            assert row["inputs_sha256"] == record["problem"]["inputs_sha256"]


def test_every_figure_has_its_data():
    record = made_record()
    page = shown([record], figures=True)
    found = carried(page)
    assert len(page.all("figure")) == len([name for name in found if not name.startswith("records.")])
    rows = list(csv.reader(io.StringIO(found["survivors.csv"])))
    assert [int(row[2]) for row in rows[1:]] == record["result"]["survivors"]
    ours = [row for row in csv.DictReader(io.StringIO(found["overview.csv"])) if record["case"] in row["label"]]
    assert [float(row["TeraEdges/s"]) for row in ours] == [typed(record).edges_per_second.median / 1e12]


def test_a_cell_that_a_spreadsheet_would_run_is_text():
    record = made_record('=HYPERLINK("http://evil.example")')
    record["environment"]["command"] = "+cmd|' /C calc'!A0"
    (row,) = csv.DictReader(io.StringIO(carried(shown([record]))["records.csv"]))
    assert row["case"].startswith("'=")
    assert row["command"].startswith("'+")


def test_hostile_text_stays_in_its_place():
    library = compared("mkl", (0.3, 0.4))
    library["engine"]["notes"]["library"] = HOSTILE
    ended = made_record(f"{HOSTILE}</script><!--")
    page = shown([*KINDS["hostile"]()[0], compared("cpu", (0.1, 0.2)), library, ended], figures=True)
    assert page.runs_nothing_else()
    assert "<script>alert(" in page.text
    assert ended in json.loads(carried(page)["records.json"])


def test_long_texts_are_compressed_and_the_same_every_time():
    short, long = (made_link("a.csv", "x" * count, "text/csv") for count in (10, 1_000_000))
    assert short["name"] == "a.csv"
    assert long["name"] == "a.csv.gz"
    assert held(short["href"]) == "x" * 10
    assert held(long["href"]) == "x" * 1_000_000
    assert long == made_link("a.csv", "x" * 1_000_000, "text/csv")


@pytest.mark.parametrize(
    ("limit", "told"), [(10**9, ""), (4000, "64 entries"), (1500, "8 entries"), (500, "the first")]
)
def test_what_is_too_much_is_thinned_and_said_to_be(monkeypatch, limit, told):
    monkeypatch.setattr(carried_records, "MOST_CHARACTERS", limit)
    records = [{"case": f"{place}", "samples": [place * 1000 + k for k in range(300)]} for place in range(8)]
    link, said = carried_records.records_link(records)
    assert told in said
    assert bool(told) == bool(said)
    assert len(link["href"]) <= limit
    found = json.loads(held(link["href"]))
    assert len(found) == 8
    assert found[0]["case"] == "0"
    assert (found[0]["samples"][0], found[0]["samples"][-1]) == (0, 299)  # the ends stay
    assert [one["case"] for one in found if one] == [str(place) for place in range(sum(map(bool, found)))]
