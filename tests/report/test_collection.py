"""Several folders as one: nothing that failed is shown, nothing is counted twice, nothing missing is passed over."""

import itertools

import pytest
from test_report import made_record, made_verdict, rendered, stored, stored_verdict, typed

from spdnn.report.common.collection import Part, collect, distinct
from spdnn.report.common.run_rows import fair
from spdnn.report.rendering import RecordFolder
from spdnn.runs.records.verdict import Verdict


def folders(tmp_path, *contents):
    """A Folder of (records, failed cases, expected) each."""
    found = []
    for place, (records, failed, expected) in enumerate(contents):
        folder = tmp_path / f"machine-{place}"
        folder.mkdir()
        verdicts = [stored_verdict(folder, case, made_verdict(passed=False)) for case in failed]
        found.append(RecordFolder(stored(folder, *records), verdicts, expected))
    return found


def test_a_failure_on_one_machine_leaves_the_case_of_another_alone(tmp_path):
    here, there = made_record("same"), made_record("same", (0.3,))
    there["environment"] = {**there["environment"], "cpu": "Another CPU"}
    page = rendered(tmp_path / "report.html", folders(tmp_path, ([here], ["same"], ()), ([there], [], ())))
    assert "2 cases run, and 1 failed verification: same." in page.text
    assert typed(here).edges_per_second.median not in page.values
    assert typed(there).edges_per_second.median in page.values
    assert "1 machine: Another CPU, 2 cores." in page.text


def test_a_record_that_one_folder_withholds_is_shown_by_no_other():
    record, failed = made_record("same"), typed(made_verdict(passed=False), Verdict)
    parts = [Part([typed(record)], [("same", failed)]), Part([typed(dict(reversed(record.items())))])]
    for order in itertools.permutations(parts):
        found = collect(order)
        assert found.records == []
        assert found.withheld == ["same"]
        assert found.judged == [("same", failed)]


def test_the_order_of_folders_does_not_matter(tmp_path):
    parts = folders(tmp_path, ([made_record("a")], ["b"], ["c"]), ([made_record("d", (0.3,))], [], ["e", "d"]))
    first, second = (rendered(tmp_path / "report.html", order).source for order in itertools.permutations(parts))
    assert first == second


def test_missing_cases_are_counted_and_named(tmp_path):
    failure = stored_verdict(tmp_path, "failed", made_verdict(passed=False))
    untimed = stored_verdict(tmp_path, "untimed", made_verdict())
    expected = ["timed", "failed", "untimed", "never-<b>ran</b>", "nor-this"]
    folder = RecordFolder(stored(tmp_path, made_record("timed")), [failure, untimed], expected)
    page = rendered(tmp_path / "report.html", [folder])
    assert "3 cases run, and 1 failed verification: failed; 2 cases missing that should have run." in page.text
    assert "neither passed nor failed: never-<b>ran</b>, nor-this." in page.text
    assert "2 passed, 1 failed, 2 missing." in page.text
    assert "1,024 × 120: 1 of 3 cases failed" in page.text


def test_nothing_missing_is_not_mentioned(tmp_path):
    folder = RecordFolder(stored(tmp_path, made_record("timed")), expected=["timed"])
    assert "should have run" not in rendered(tmp_path / "report.html", [folder]).text


def test_distinct_keeps_one_of_each():
    failed = "broken", typed(made_verdict(passed=False), Verdict)
    assert collect([Part([], [failed, failed])]).judged == [failed]
    assert distinct([{"a": 1, "b": 2}, {"a": 3}, {"b": 2, "a": 1}]) == [{"a": 1, "b": 2}, {"a": 3}]


@pytest.mark.parametrize("most", [1, 2, 3, 4, 5, 9])
def test_fair_keeps_the_latest_of_every_setting_first(most):
    entries = [("a", 1), ("a", 2), ("b", 1), ("a", 3), ("c", 5), ("b", 0)]
    order = [("a", 3), ("b", 1), ("c", 5), ("a", 2), ("b", 0), ("a", 1)]
    found = fair(entries, most, lambda entry: entry[0], lambda entry: entry[1])
    if most >= len(entries):
        assert found == entries
    else:
        settings = {entry[0] for entry in found}
        assert found == [entry for entry in entries if entry in found]  # in their order
        assert len(found) == most
        assert len(settings) == min(most, 3)
        assert set(found[:3] if most == 3 else []) <= set(order[:3])
