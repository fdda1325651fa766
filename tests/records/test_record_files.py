"""Which files an argument RECORDS stands for."""

import pytest

from spdnn.common.errors import InputError
from spdnn.records.record_files import record_files


def made(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")


def found(folder, name="."):
    files = record_files(folder / name)
    return [[str(path.relative_to(folder)) for path in paths] for paths in files]


def test_a_file_stands_for_itself(tmp_path):
    made(tmp_path, "a.json", "b.jsonl")
    assert found(tmp_path, "b.jsonl") == [["b.jsonl"], []]


def test_a_folder_stands_for_its_records(tmp_path):
    made(tmp_path, "b.json", "a.jsonl", "notes.txt", "below/c.json", "._b.json", ".a.jsonl")
    assert found(tmp_path) == [["a.jsonl", "b.json"], []]


def test_results_stand_for_records_and_verdicts(tmp_path):
    made(tmp_path, "records/b.json", "records/a.json", "ops/operations.jsonl", "measured/gpu/1.jsonl", "other.json")
    made(tmp_path, "runs/a/verdict.json", "runs/b/verdict.json", "runs/b/samples.json", "records/._a.json")
    records = ["records/a.json", "records/b.json", "measured/gpu/1.jsonl", "ops/operations.jsonl"]
    assert found(tmp_path) == [records, ["runs/a/verdict.json", "runs/b/verdict.json"]]


def test_results_without_a_record_are_known_by_their_cases(tmp_path):
    made(tmp_path, "cases.json", "runs/a/verdict.json")
    assert found(tmp_path) == [[], ["runs/a/verdict.json"]]


def test_verdicts_alone_are_something(tmp_path):
    made(tmp_path, "runs/a/verdict.json")
    (tmp_path / "records").mkdir()
    assert found(tmp_path) == [[], ["runs/a/verdict.json"]]


@pytest.mark.parametrize("name", ["", "nowhere", "nowhere.json", "other.txt"])
def test_nothing_is_one_sentence(tmp_path, name):
    with pytest.raises(InputError, match=r"no record there$"):
        record_files(tmp_path / name)
