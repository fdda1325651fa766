"""What the page carries: tables and records in its links, those it was made from; machines, sources and a glossary."""

import csv
import gzip
import io
import json
from base64 import b64decode

import pytest
from operation_cases import made_operation
from records import BASELINES, cells, collected, made_record, measured, section_of, table_of, texts

from spdnn.core.table import Phrase, Styled, plain
from spdnn.core.validation import builtins
from spdnn.report import provenance
from spdnn.report.common import words
from spdnn.report.common.blocks import Fold, Paragraph, Section, Terms, link
from spdnn.runs.records.published import SPANS, read_baselines

PUBLISHED = read_baselines(BASELINES)


def held(href):
    """The text of a data: address."""
    head, body = href.split(",", 1)
    content = b64decode(body)
    return (gzip.decompress(content) if "gzip" in head else content).decode("utf-8")


def carried(section):
    """{name of the file without .gz: its text} of the links of the first paragraph."""
    text: Phrase = next(section.every(Paragraph)).text
    return {part.file.removesuffix(".gz"): held(part.href) for part in text if isinstance(part, Styled)}


def of(*records, operations=(), published=()):
    return section_of("provenance", collected(records, published, operations=operations))


def pairs(section, summary):
    """The terms within the fold of that summary."""
    (fold,) = (fold for fold in section.blocks if isinstance(fold, Fold) and plain(fold.summary).startswith(summary))
    return {plain(name): plain(text) for terms in Section("", "", [fold]).every(Terms) for name, text in terms.pairs}


def test_all_records_are_in_the_page():
    records = [made_record("b", (0.3, 0.4)), made_record("a")]
    operations = [made_operation("ours"), made_operation("mkl")]
    files = carried(of(*records, operations=operations))
    whole = json.loads(files["records.json"])
    contents = collected(records, operations=operations)
    assert whole == list(map(builtins, [*contents.records, *contents.operations]))
    rows = list(csv.DictReader(io.StringIO(files["records.csv"])))
    assert [int(row["number"]) for row in rows] == [0, 1, 2, 3]
    assert [row["case"] for row in rows] == [record["case"] for record in whole]
    for row, record in zip(rows, whole, strict=True):
        seconds = record.get("inference_seconds") or record["seconds"]
        assert float(row["fastest_seconds"]) == min(seconds)
        assert row["command"] == record["environment"]["command"]
    for row, record in zip(rows, contents.records, strict=False):
        assert float(row["edges_per_second"]) == record.edges_per_second.median
        assert row["inputs_sha256"] == record.problem.inputs_sha256


def test_a_cell_that_a_spreadsheet_would_run_is_text():
    record = made_record('=HYPERLINK("http://evil.example")')
    record["environment"]["command"] = "+cmd|' /C calc'!A0"
    (row,) = csv.DictReader(io.StringIO(carried(of(record))["records.csv"]))
    assert row["case"].startswith("'=")
    assert row["command"].startswith("'+")


def test_long_texts_are_compressed_and_the_same_every_time():
    short, long = (link("a.csv", "x" * count, "text/csv") for count in (10, 1_000_000))
    assert (short["name"], long["name"]) == ("a.csv", "a.csv.gz")
    assert held(short["href"]) == "x" * 10
    assert held(long["href"]) == "x" * 1_000_000
    assert long == link("a.csv", "x" * 1_000_000, "text/csv")


@pytest.mark.parametrize(
    ("limit", "note"), [(10**9, ""), (4000, "64 entries"), (1500, "8 entries"), (500, "the first")]
)
def test_what_is_too_much_is_thinned_and_said_to_be(monkeypatch, limit, note):
    monkeypatch.setattr(provenance, "MOST_CHARACTERS", limit)
    records = [{"case": f"{place}", "samples": [place * 1000 + k for k in range(300)]} for place in range(8)]
    whole, said = provenance.records_link(records)
    assert bool(note) == bool(said)
    assert len(whole["href"]) <= limit
    kept = json.loads(held(whole["href"]))
    assert len(kept) == 8
    assert (kept[0]["case"], kept[0]["samples"][0], kept[0]["samples"][-1]) == ("0", 0, 299)  # the ends stay
    assert [one["case"] for one in kept if one] == [str(place) for place in range(sum(map(bool, kept)))]


def test_machines_are_rows_with_their_cases():
    here, there = made_record("here"), made_record("there")
    there["environment"] = {**there["environment"], "gpu": "NVIDIA H<200>", "versions": {"numpy": "2.2.0"}}
    rows = texts(table_of(of(here, made_record("again", (0.3,)), there), "Machines"))
    assert [list(row.values()) for row in rows] == [
        ["A CPU", "2", "8.0 GiB", "none", "Linux x86_64", "numpy 2.1.0, python 3.12.1", "again, here"],
        ["A CPU", "2", "8.0 GiB", "NVIDIA H<200>", "Linux x86_64", "numpy 2.2.0", "there"],
    ]


def test_every_publication_is_listed_with_how_many_figures_it_has():
    rows = cells(table_of(of(made_record(), published=PUBLISHED), "Sources"))
    assert {row["publication"] for row in rows} == {baseline.source.split(";")[0] for baseline in PUBLISHED}
    assert sum(int(row["figures"]) for row in rows) == len(PUBLISHED)


def test_a_run_can_be_repeated_from_what_is_told():
    record = made_record("mine") | {"memory_limit_bytes": 1 << 30}
    facts = pairs(of(record), "How to reproduce")
    assert facts["Network"].endswith(record["problem"]["network_identity"])
    assert facts["Inputs"] == f"MNIST; count 60000: {record['problem']['inputs_sha256']}"
    assert facts["Engine"] == "cpu; instructions avx2, tile 32; 2 threads, memory limit 1.0 GiB"
    assert facts["Categories"] == f"1,812: {record['result']['categories_sha256']}"
    assert facts["Output digest, the same in every repeat"] == record["result"]["digest"]
    assert (facts["Commit"], facts["Command"]) == ("abcdef123456", "spdnn run")


def glossary(*records):
    return pairs(of(*records), "Glossary")


def test_only_the_reductions_that_were_on_are_explained():
    for records, names in (
        ([made_record()], ["Dead"]),
        ([made_record(reductions=())], ["Dead"]),
        ([made_record(), made_record("other", reductions=("neurons",))], ["Dead", "Identical neurons"]),
    ):
        meaning = glossary(*records)["Reductions"]
        assert [name for name in ("Dead", "Identical inputs", "Identical neurons") if f"{name}" in meaning] == names


def test_the_glossary_has_the_terms_of_the_page_and_every_span():
    busy = made_record() | {"load": {"others": 0.5, "throttled": None}}
    assert "Busy machine" in glossary(busy)
    plain_run = glossary(made_record())
    assert not {"Busy machine", "Older code", "Load ceiling", "Imbalance"} & plain_run.keys()
    assert {**SPANS, **words.RECORD_SPANS}.items() <= plain_run.items()
    own = glossary(made_record("mine", official=False, neurons=64, layers=12, inputs=1000))
    assert not set(words.OFFICIAL_TERMS) & own.keys()


def test_ceilings_are_explained_of_the_devices_that_were_measured():
    gpu, processor = measured(made_record("gpu"), instruction_set="sm_90"), measured(made_record("cpu"))
    for records, of_gpu in (([gpu, processor], True), ([processor], False)):
        terms = glossary(*records)
        assert (words.GPU["gpu_loads"] in terms["Load ceiling"]) == of_gpu
        assert (words.GPU["gpu_memory"] in terms["Memory ceiling"]) == of_gpu
