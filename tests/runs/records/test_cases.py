"""The list of cases that a workflow was to run: written, read, refused."""

import json

import pytest
from refusals import refuses

from spdnn.runs.records.cases import read_cases, write_cases


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "results/cases.json"  # whose folder is made
    write_cases(path, ["b", "a"], [tmp_path / "x.yaml"], ["snakemake", "--config", "layers=[1, 2]"], ops=True)
    assert read_cases(path).cases == ["b", "a"]
    told = json.loads(path.read_text())
    assert told["configfiles"] == [str(tmp_path / "x.yaml")]
    assert (told["peers"], told["ops"]) == (False, True)
    assert told["command"] == "snakemake --config 'layers=[1, 2]'"
    write_cases(path, [], [], ["snakemake"])
    assert read_cases(path).cases == []


def test_two_cases_of_one_name_are_refused(tmp_path):
    refuses("cases", write_cases, tmp_path / "cases.json", ["a", "a"], [], [])
    refuses("there is no such list of cases", read_cases, tmp_path / "cases.json")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"schema": "spdnn-record"}, "cases.json: schema: "),
        ({"version": 2}, "cases.json: version: "),
        ({"cases": "a"}, "cases.json: cases: "),
        ({"cases": ["a", "a"]}, "cases.json: cases: "),
        ({"cases": [1]}, r"cases.json: cases\[0\]: 1 is not"),
        ({"more": 1}, 'cases.json: there is no field "more"'),
    ],
)
def test_a_list_that_is_not_sound_is_one_sentence(tmp_path, changed, sentence):
    path = tmp_path / "cases.json"
    write_cases(path, ["a"], [], ["snakemake"])
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    refuses(sentence, read_cases, path)
