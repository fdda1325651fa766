"""Records of other runs: a group of their own where they are named, and in no other number of the page."""

import json
from dataclasses import replace

from operation_cases import made_operation
from records import Page, collected, made_record, made_verdict, section_of, table_of, texts, told

from spdnn.cli import main
from spdnn.core.table import Rows
from spdnn.report import page
from spdnn.report.cases import outcome
from spdnn.runs.records.cases import write_cases


def test_others_are_in_their_section_alone():
    """The other machine is faster; one of its cases failed."""
    there = made_record("there", (0.01,))
    there["environment"]["cpu"] = "Another CPU"
    other = collected([there], verdicts=[("wrong", made_verdict(passed=False))], operations=[made_operation("ours")])
    contents = replace(collected([made_record("here", (0.5,))]), others={"x/there": other})
    section = section_of("others", contents)
    assert told(section).splitlines()[1] == (
        "1 run and 1 record of sparse operations (not listed); A CPU, 2 cores; Another CPU, 2 cores. "
        "Failed verification: wrong. spdnn report x/there makes their own page."
    )
    table = table_of(section, "Runs of x/there: 1")
    assert [table.table.record(row) for row in table.rows] == [None]  # the page does not hold its record
    assert texts(table)[0]["Median, TeraEdges/s"] == "23.59 (measured once)"
    assert outcome(contents).short == "passed verification"
    before, after = (
        {one.name: (told(one), [rows.table.csv(rows.rows) for rows in one.every(Rows)]) for one in page.sections(made)}
        for made in (replace(contents, others={}), contents)
    )
    assert after.pop("others")
    assert after == before


def test_the_page_of_a_workflow_has_its_cases_and_names_the_others(tmp_path, capsys):
    here, before = made_record("here", (0.5,), official=False, source="digits"), made_record("an-earlier-case", (0.01,))
    results = tmp_path / "results"
    for name in ("records", "measured/there"):
        (results / name).mkdir(parents=True)
    for record in (here, before):
        (results / f"records/{record['case']}.json").write_text(json.dumps(record))
    (results / "measured/there/1.jsonl").write_text(json.dumps(made_record("there")) + "\n")
    write_cases(results / "cases.json", ["here"], [], [])

    def text(*more):
        assert main(["report", str(results), "-o", str(tmp_path / "page.html"), *more]) == 0
        return Page((tmp_path / "page.html").read_text("utf-8")).text

    assert "an-earlier-case" not in (alone := text())
    assert "Other records" not in alone
    named = text("--other-records", str(results / "measured/there"), str(results / "records/an-earlier-case.json"))
    assert "Runs of " + str(results / "measured/there") in named
    assert "an-earlier-case.json" in named
    assert main(["report", str(results), "--other-records", str(tmp_path / "nowhere")]) == 1
    assert "nowhere: there is no such file or folder" in capsys.readouterr().err
