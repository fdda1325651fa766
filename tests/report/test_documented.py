"""The documentation's numbers are those of the records in results/measured/; and how they are made of records."""

import importlib
import json
import re
import sys

import pages
import pytest
import recomputed
import recomputed_tables
from records import made_record
from test_calls import call, calls
from test_scaling import strong

from spdnn.core.errors import InputError
from spdnn.core.validation import convert
from spdnn.runs.records.files import as_text, seal_record
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord

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


def sealed(made):
    """The text of a file of these records, each with its seal."""
    kinds = {"spdnn-record": RunRecord, "spdnn-operation": OperationRecord}
    records = [convert(kinds[record["schema"]], record, "r") for record in made]
    return "".join(as_text(seal_record(record, "r"), "r") for record in records)


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
    (folder / "twelve.jsonl").write_text(sealed(made))
    for page in measured.PAGES:
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text((root / page).read_text())
    measured.ROOT = tmp_path
    readme, results, *_ = map(measured.rendered, measured.PAGES)
    assert "| 1024 x 120 | dead inputs alone | 500 ms (n = 3, 400 to 600 ms) | 0.47 | " in readme
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


@pytest.mark.parametrize(
    ("commit", "seal", "said"),
    [("abc-dirty", True, "is of abc-dirty"), (None, True, "no commit"), ("abc", False, "no seal")],
)
@pytest.mark.parametrize("kind", ["threads", "operations"])
def test_no_table_is_made_of_what_cannot_be_traced(measured, tmp_path, kind, commit, seal, said):
    made = made_record() if kind == "threads" else pages.operations()[0]
    made["environment"] = made["environment"] | {"commit": commit}
    folder = tmp_path / "results/measured/a-machine"
    folder.mkdir(parents=True)
    (folder / f"{kind}.jsonl").write_text(sealed([made]) if seal else f"{json.dumps(made)}\n")
    measured.ROOT = tmp_path
    with pytest.raises(InputError, match=said):
        measured.TABLES[kind]()


def test_few_samples_and_busy_machines_are_marked(measured, tmp_path):
    folder = tmp_path / "results/measured/a-machine"
    folder.mkdir(parents=True)
    made = [made_record(seconds=(0.4, 0.3)) | {"threads": 1}, made_record(seconds=(0.2,) * 5)]
    made[1]["load"] = {"others": 0.3, "throttled": 0.0}
    (folder / "threads.jsonl").write_text(sealed(made))
    measured.ROOT = tmp_path
    _, _, few, busy, *_, below = measured.threads().strip().splitlines()
    assert few == "| 1 | 350 ms (n = 2, 300 to 400 ms) | 1.00 |"
    assert busy == "| 2 | 200 ms ¶ | 1.75 |"
    assert "; 1 of 2 records were made while other work took more than 10 % of the machine." in below
    assert below.endswith("¶: other work took more than 10 % of the machine.")


def test_tables_of_other_records(measured, tmp_path):
    folder = tmp_path / "results/measured/a-machine"
    folder.mkdir(parents=True)
    slow = made_record(seconds=(0.4,) * 5) | {"threads": 1}
    fast = made_record(seconds=(0.2,) * 5)
    streamed = made_record(seconds=(0.5,))
    streamed["time_to_solution"] = {"of": "command", **PARTS, "inference": 0.5, "other": 9.5}
    streamed["time_to_solution"]["cached"] = []
    kinds = {
        "peers": pages.peers(), "ladder": pages.ladder(), "ranks": strong(), "operations": pages.operations(),
        "calls": calls(), "threads": [slow, fast], "unstructured": [made_record(reductions=()), made_record()],
        "streamed": [streamed],
    }  # fmt: skip
    for kind, made in kinds.items():
        (folder / f"{kind}.jsonl").write_text(sealed(made))
    measured.ROOT = tmp_path
    assert measured.solution() is None
    rows = {name: measured.TABLES[name]().splitlines()[2:] for name in [*kinds, "plans", "models"]}
    size = "1,024 × 120, official, 60,000 inputs"
    assert rows["peers"][0] == f"| {size} | dead inputs | 150 ms | 2 (2 to 2) | 3 (3 to 3) |"
    assert rows["ladder"][:2] == ["| cpu | none | 10 s † | |", "| cpu | dead | 2 s † | 5 |"]
    one, two = "800 ms (n = 3, 800 to 900 ms) | 500 ms (n = 3, 400 to 600 ms)", "415 ms (n = 2, 410 to 420 ms)"
    assert rows["ranks"][0].startswith(f"| 1024 x 120 | dead inputs | {one} | {two} | 275 ms (n = 2, ")
    assert rows["operations"][1].startswith("| `spmm` | the fastest dense | 4.00 (4.00), 0 of 1 | ")
    assert rows["calls"][0] == "| 1 | 1.00 ms | 2 | 3 |"
    assert rows["threads"][:2] == ["| 1 | 400 ms | 1.00 |", "| 2 | 200 ms | 2.00 |"]
    assert rows["unstructured"][0] == "| time with all reductions, relative to none | 1.00 (1.00 to 1.00) |"
    assert rows["streamed"][0] == "| 1024 x 120 | 500 ms † | 0.47 | 3 | 10 s |"
    assert rows["plans"][0] == "| dead inputs | 2 | 2 | -5 % | -15 % | +4 % |"
    times = "1.1 ms (n = 3, 1 to 1.2 ms) | 3.3 ms (n = 3, 3 to 3.6 ms) | 3.00 (n = 3, 3.00 to 3.00)"
    assert rows["models"][0] == f"| transformer small 256 tokens | dense | {times} | 446.5 |"


def published_calls():
    """Records of two models at two sparsities; OpenVINO computes in bfloat16, and does not run one of them."""
    made = []
    for model, percent, scale in (("net-a", 80, 1), ("net-a", 90, 2), ("net-b", 90, 8)):
        for name, seconds in (("ours", 0.001), ("onnxruntime", 0.001 * scale), ("openvino", 0.0005 * scale)):
            if (name, model) != ("openvino", "net-b"):
                one = call(name, 1, (seconds, 1.1 * seconds, 1.2 * seconds), f"{model}-{percent}")
                one["comparison"] = f"{scale:016x}"
                if name == "openvino":
                    one["program"]["notes"]["precision"], one["verification"]["error"] = "bfloat16", 0.004
                made.append(one)
    return made


def test_published_models_have_a_row_each_and_their_means(measured, tmp_path, monkeypatch):
    assert measured.TABLES["real"] is measured.real
    folder = tmp_path / "results/measured/a-machine"
    folder.mkdir(parents=True)
    monkeypatch.setattr(measured, "ROOT", tmp_path)
    assert measured.real() is None
    measured.files_of.cache_clear()
    (folder / "real-models.jsonl").write_text(sealed(published_calls()))
    table = measured.real()
    assert table.splitlines()[:7] == [
        "| model | zeros | ours | onnxruntime | openvino |",
        "|---|---|---|---|---|",
        "| net-a | 80 % | 1.10 ms | 1.00 (1.00 to 1.00) | 0.50 (0.50 to 0.50); bfloat16, error 0.400 % |",
        "| net-a | 90 % | 1.10 ms | 2.00 (2.00 to 2.00) | 1.00 (1.00 to 1.00); bfloat16, error 0.400 % |",
        "| net-b | 90 % | 1.10 ms | 8.00 (8.00 to 8.00) | |",
        "| geometric mean | 80 % | | 1.00 (n = 1) | 0.50 (n = 1) |",
        "| geometric mean | 90 % | | 4.00 (n = 2) | 1.00 (n = 1) |",
    ]
    monkeypatch.setattr(recomputed_tables, "records", lambda kind: published_calls())
    recomputed.recomputed.cache_clear()
    cells, wrong = recomputed.compare({"page": f"<!-- measured: real -->\n{table}<!-- /measured -->\n"})
    recomputed.recomputed.cache_clear()
    assert (wrong, [str(cell) for cell in cells if not recomputed.agrees(cell)]) == ([], [])
