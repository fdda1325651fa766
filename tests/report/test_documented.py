"""The documentation's numbers are those of the records in results/measured/; and how they are made of records."""

import importlib
import json
import re
import sys

import pages
import pytest
from records import made_record
from test_calls import calls
from test_scaling import strong

PARTS = dict.fromkeys(("startup", "inputs", "network", "prepare", "verification", "other"), 0.0) | {
    "inference": 0.25,
    "other": 9.75,
}


@pytest.fixture
def measured(root, monkeypatch):
    return load(root, monkeypatch, "measured")


@pytest.fixture
def passages(root, monkeypatch):
    return load(root, monkeypatch, "passages")


def load(root, monkeypatch, name):
    """A module of the documentation, made anew: tests have it read other records."""
    monkeypatch.syspath_prepend(root / "docs")
    monkeypatch.delitem(sys.modules, "measured", raising=False)
    monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module(name)


def test_every_number_of_the_text_is_that_of_its_source(passages):
    assert passages.every_fault(passages.pages()) == []
    assert sum(map(len, passages.UNCHECKED.values())) <= 40


def test_a_wrong_digit_anywhere_in_the_text_is_found(passages):
    known, options = passages.passages(), passages.options()
    for page, text in passages.pages().items():
        told = passages.LEFT_OUT.sub("", text)
        for match in (*passages.NUMBER.finditer(told), *passages.NAME.finditer(told)):
            digit = max(k for k in range(*match.span()) if told[k].isdigit())
            wrong = f"{told[:digit]}{(int(told[digit]) + 1) % 10}{told[digit + 1 :]}"
            assert [*passages.faults(page, wrong, known.get(page, {}), options)], (page, match[0])


def test_the_pages_have_what_the_records_say(measured, root, tmp_path):
    for page in measured.PAGES:
        assert measured.rendered(page) == (root / page).read_text(encoding="utf-8"), "python docs/measured.py"
    if measured.runs():
        for path, figure in measured.PICTURES.items():
            measured.draw(figure, tmp_path / "one.svg")
            assert (tmp_path / "one.svg").read_text() == (root / path).read_text(), "python docs/measured.py"


def test_a_table_and_a_picture_of_records(measured, root, tmp_path):
    made = [
        made_record(seconds=(0.5, 0.4, 0.6), neurons=1024, layers=120),
        made_record(seconds=(0.02,), neurons=1024, layers=120, reductions=("dead", "inputs", "neurons")),
        made_record(seconds=(0.01,), neurons=1024, layers=120, reductions=("dead", "inputs", "neurons"), inputs=1000),
        made_record(seconds=(0.25,), neurons=65536, layers=1920, reductions=("dead", "inputs", "neurons")),
    ]
    made[-1]["time_to_solution"] = {"of": "command", **PARTS, "cached": []}
    made[-1] = json.loads(json.dumps(made[-1]).replace("1812", "1994"))  # as many categories as that width has
    made[-1]["result"]["edges_computed"] = 10**9
    folder = tmp_path / "results/measured/a-machine"
    folder.mkdir(parents=True)
    (folder / "twelve.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in made))
    for page in measured.PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text((root / page).read_text())
    measured.ROOT = tmp_path
    readme, results, *_ = map(measured.rendered, measured.PAGES)
    assert "| 1024 x 120 | dead inputs alone | 500 ms | 0.47 | " in readme
    assert "| 1024 x 120 | all three | 20 ms † | 12 | " in readme  # not of the first 1000 inputs
    largest = r"\| 65536 x 1920 \| all three \| 250 ms † \| 966 \| [\d.]+ \| 24 \| 56 \| 351 \|"  # one sample
    assert re.search(largest, readme)
    assert "2 cores of an A CPU, 2025-01-02, commit abcdef123456. †: one sample." in readme
    assert "| TeraEdges/s of it, 2 CPU cores | with preparation | of the whole command † | best published," in readme
    assert "Ours on 2 CPU cores; the best published exact results on one GPU and on up to 768 GPUs." in results
    assert "](networks.svg)" in results
    assert len(re.findall(r"\n\| 1024 x 120 \| 20 ms † \|[^|]*\|[^|]*\| 12 \|", results)) == 1
    best, names = measured.published()
    lossy = [f"{best[(neurons, 1920), 'lossy'].edges_per_second / 1e12:.0f}" for neurons in (1024, 4096, 16384, 65536)]
    assert lossy == ["64", "192", "411", "351"]
    assert {row.kind for row in best.values()} == {"GPU"}
    assert {row.lossy for (_, kind), row in best.items() if kind != "lossy"} == {False}
    assert f" | {' | '.join(names.values())} | peak GiB |" in results


def test_tables_of_other_records(measured, tmp_path):
    folder = tmp_path / "results/measured/a-machine"
    folder.mkdir(parents=True)
    slow = made_record(seconds=(0.4, 0.4, 0.4)) | {"threads": 1}
    fast = made_record(seconds=(0.2, 0.2, 0.2))
    streamed = made_record(seconds=(0.5,))
    streamed["time_to_solution"] = {"of": "command", **PARTS, "inference": 0.5, "other": 9.5}
    streamed["time_to_solution"]["cached"] = []
    kinds = {
        "peers": pages.peers(), "ladder": pages.ladder(), "ranks": strong(), "operations": pages.operations(),
        "calls": calls(), "threads": [slow, fast], "unstructured": [made_record(reductions=()), made_record()],
        "streamed": [streamed],
    }  # fmt: skip
    for kind, made in kinds.items():
        (folder / f"{kind}.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in made))
    measured.ROOT = tmp_path
    assert measured.solution() is None
    rows = {name: measured.TABLES[name]().splitlines()[2:] for name in [*kinds, "plans", "models"]}
    size = "1,024 × 120, official, 60,000 inputs"
    assert rows["peers"][0] == f"| {size} | dead inputs | 150 ms | 2 (2 to 2) | 3 (3 to 3) |"
    assert rows["ladder"][:2] == ["| cpu | none | 10 s | |", "| cpu | dead | 2 s | 5 |"]
    assert rows["ranks"][0] == "| 1024 x 120 | dead inputs | 800 ms | 500 ms | 415 ms | 275 ms | 325 ms |"
    assert rows["operations"][1].startswith("| `spmm` | the fastest dense | 4.00 (4.00) | ")
    assert rows["calls"][0] == "| 1 | 1.00 ms | 2 | 3 |"
    assert rows["threads"][:2] == ["| 1 | 400 ms | 1.00 |", "| 2 | 200 ms | 2.00 |"]
    assert rows["unstructured"][0] == "| time with all reductions, relative to none | 1.00 (1.00 to 1.00) |"
    assert rows["streamed"][0] == "| 1024 x 120 | 500 ms † | 0.47 | 3 | 10 s |"
    assert rows["plans"][0] == "| dead inputs | 2 | 2 | -5 % | -15 % | +4 % |"
    assert rows["models"][0] == "| transformer small 256 tokens | dense | 1.1 ms | 3.3 ms | 3.00 | 446.5 |"
