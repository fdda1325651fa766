"""Which files an argument RECORDS stands for."""

import pytest
from refusals import refuses

from spdnn.runs.records.cases import record_files, write_cases


def made(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def found(folder, name="."):
    files = record_files(folder / name)
    return [[str(path.relative_to(folder)) for path in paths] for paths in files[:2]]


def test_a_file_stands_for_itself(tmp_path):
    made(tmp_path, "a.json", "b.jsonl")
    assert found(tmp_path, "b.jsonl") == [["b.jsonl"], []]


def test_a_folder_stands_for_its_records(tmp_path):
    made(tmp_path, "b.json", "a.jsonl", "notes.txt", "below/c.json", "._b.json", ".a.jsonl")
    assert found(tmp_path) == [["a.jsonl", "b.json"], []]


EARLIER = ("records/before.json", "runs/before/verdict.json", "measured/gpu/1.jsonl", "other.json")


@pytest.mark.parametrize(
    ("kinds", "records"),
    [
        ({}, []),
        ({"peers": True}, ["peers/1.json"]),
        ({"peers": True, "ops": True}, ["peers/1.json", "ops/operations.jsonl"]),
    ],
)
def test_results_stand_for_the_last_configuration_alone(tmp_path, kinds, records):
    """Not for what an earlier one left, nor for records of other machines that lie there."""
    made(tmp_path, "records/b.json", "records/a.json", "peers/1.json", "ops/operations.jsonl", *EARLIER)
    made(tmp_path, "runs/a/verdict.json", "runs/b/verdict.json", "runs/b/samples.json")
    cases = ["b", "a", "absent"]
    write_cases(tmp_path / "cases.json", cases, [], [], **kinds)
    verdicts = ["runs/b/verdict.json", "runs/a/verdict.json"]
    assert found(tmp_path) == [["records/b.json", "records/a.json", *records], verdicts]
    assert record_files(tmp_path).expected == cases
    assert found(tmp_path, "records") == [["records/a.json", "records/b.json", "records/before.json"], []]


def test_verdicts_alone_are_something(tmp_path):
    made(tmp_path, "runs/a/verdict.json")
    write_cases(tmp_path / "cases.json", ["a"], [], [])
    assert found(tmp_path) == [[], ["runs/a/verdict.json"]]


def test_what_is_named_as_a_record_and_is_no_file_is_named(tmp_path):
    made(tmp_path, "a.json")
    (tmp_path / "b.json").mkdir()
    refuses(r"b\.json: it is named as a record is, and is no file$", record_files, tmp_path)


@pytest.mark.parametrize("name", ["", "nowhere", "nowhere.json", "other.txt"])
def test_nothing_is_one_sentence(tmp_path, name):
    refuses(r"(no records there|there is no such file or folder)$", record_files, tmp_path / name)
