"""Records of other runs: a group of their own where they are named, and in no other number of the page."""

import json

from operation_cases import made_operation
from test_report import Page, made_record, made_verdict, rendered, stored, stored_verdict

from spdnn.cli import main
from spdnn.runs.records.cases import RecordFolder, write_cases


def test_the_page_of_a_workflow_has_its_cases_and_names_the_others(tmp_path, capsys):
    """The other machine is faster, on the official inputs, and its record lies in results/ too."""
    here, before = made_record("here", (0.5,), official=False, source="digits"), made_record("an-earlier-case", (0.01,))
    there = made_record("there", (0.02,))
    there["environment"]["cpu"] = "Another CPU"
    results = tmp_path / "results"
    for name in ("records", "measured/there", "ops"):
        (results / name).mkdir(parents=True)
    for record in (here, before):
        (results / f"records/{record['case']}.json").write_text(json.dumps(record))
    (results / "measured/there/1.jsonl").write_text(f"{json.dumps(there)}\n{json.dumps(made_operation('ours'))}\n")
    (results / "ops/operations.jsonl").write_text(f"{json.dumps(made_operation('mkl'))}\n")
    write_cases(results / "cases.json", ["here"], [], [])

    def page(*more):
        assert main(["report", str(results), "-o", str(tmp_path / "page.html"), *more]) == 0
        return Page((tmp_path / "page.html").read_text("utf-8"))

    alone = page()
    assert "1,024 × 120: passed verification" in alone.text
    for absent in ("Another CPU", "an-earlier-case", "Other records", "records of sparse operations"):
        assert absent not in alone.text
    named = page("--other-records", str(results / "measured/there"), str(results / "records/an-earlier-case.json"))
    first, group = named.text.split("These records were added to the page", 1)
    assert "1,024 × 120: passed verification" in first
    assert "Another CPU" not in first
    assert "Runs of " + str(results / "measured/there") in group
    assert "1 run and 1 record of sparse operations (not listed); " in group
    assert "Another CPU, 2 cores" in group
    assert f"spdnn report {results / 'measured/there'}" in group
    assert "an-earlier-case.json" in group
    assert main(["report", str(results), "--other-records", str(tmp_path / "nowhere")]) == 1
    assert "nowhere: there is no such file or folder" in capsys.readouterr().err


def test_a_failed_verdict_of_the_others_is_named_there_alone(tmp_path):
    other = RecordFolder([], [stored_verdict(tmp_path, "wrong", made_verdict(passed=False))])
    page = rendered(tmp_path / "page.html", [RecordFolder(stored(tmp_path, made_record()))], others={"x": other})
    assert "1,024 × 120: passed verification" in page.text
    assert "Failed verification: wrong." in page.text
