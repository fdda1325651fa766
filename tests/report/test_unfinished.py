"""The page of a run that failed: what is of this run, what is missing, and that it never passes for a whole one."""

import os

import pytest

from spdnn.report import page
from spdnn.report.common.drawing import write_figures
from spdnn.report.rendering import RecordFolder
from spdnn.report.unfinished import render_unfinished, report_unfinished
from spdnn.runs.records.files import write_record
from tests.report.records import BASELINES, made_record, made_verdict, stored_verdict
from tests.report.test_figure_files import made

CASES = ["good", "wrong", "late", "absent"]


@pytest.fixture
def results(tmp_path, monkeypatch):
    """Two cases with a record, one that failed verification, one that left nothing; figures of an earlier page."""
    monkeypatch.setattr(page, "drawings", lambda shown, processes: {})  # of this page none are drawn: they take long
    folder = tmp_path / "results"
    (folder / "records").mkdir(parents=True)
    (folder / "runs").mkdir()
    for case in ("good", "late"):
        write_record(folder / f"records/{case}.json", made_record(case))
        stored_verdict(folder / "runs", case, made_verdict())
    stored_verdict(folder / "runs", "wrong", made_verdict(passed=False))
    write_figures([made()], folder / "figures")
    (folder / "summary.txt").touch()
    return folder


@pytest.mark.parametrize(
    ("stale", "passed", "missing"), [((), 2, "1 case"), (("records/late.json", "runs/late/verdict.json"), 1, "2 cases")]
)
def test_what_was_made_is_on_the_page_and_what_is_missing_is_named(results, stale, passed, missing):
    """What an earlier run left is not of this one."""
    left = {str(results / name) for name in ("records/wrong.json", *stale)}
    told = render_unfinished(results, CASES, left, [], {}, BASELINES)
    said = f"{passed} of 4 cases passed verification, 1 failed (wrong), {missing[0]} missing"
    assert told.endswith(f"is of a run that failed: {said}")
    page = (results / "report.html").read_text()
    assert all(case in page for case in CASES)
    assert f"{missing} missing" in page


def test_records_of_no_case_are_shown_where_they_are_made(results):
    peers, ops = results / "peers", results / "ops/operations.jsonl"
    peers.mkdir()
    write_record(peers / "one.json", made_record("a-peer"))
    render_unfinished(results, CASES, set(), [peers, ops], {}, BASELINES)
    assert "a-peer" in (results / "report.html").read_text()
    render_unfinished(results, CASES, {str(peers)}, [peers, ops], {}, BASELINES)
    assert "a-peer" not in (results / "report.html").read_text()


def test_records_of_other_runs_are_a_group_of_their_own(results):
    named = {"peers": RecordFolder([results / "records/late.json"])}
    render_unfinished(results, ["good", "absent"], set(), [], named, BASELINES)
    page = (results / "report.html").read_text()
    assert "1 case run, and it passed verification; 1 case missing" in page
    assert "Runs of peers" in page


def test_it_never_passes_for_a_whole_page(results):
    render_unfinished(results, CASES, set(), [], {}, BASELINES)
    assert not (results / "figures").exists()
    assert not (results / "summary.txt").exists()
    assert os.stat(results / "report.html").st_mtime < os.stat(BASELINES).st_mtime


@pytest.mark.parametrize(
    ("spoilt", "sentence"),
    [("runs/wrong/verdict.json", "verdict.json"), ("figures/mine.txt", "mine.txt is no figure of a report")],
)
def test_what_stands_in_the_way_is_one_line(results, monkeypatch, capsys, spoilt, sentence):
    monkeypatch.chdir(results.parent)
    (results / spoilt).write_text("{")
    report_unfinished(CASES, set(), [], {}, str(BASELINES))
    told = capsys.readouterr().err
    assert told.startswith("spdnn: there is no page of this run, which failed: ")
    assert sentence in told
    assert told.count("\n") == 1
    assert not (results / "report.html").exists()
