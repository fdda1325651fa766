"""Files of commands: what is read is never written, whatever names it has."""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from command_line import commands
from safetensors.numpy import save_file

from spdnn.cli import main, parser
from spdnn.runs.records.files import write_record
from tests.engines.taskgraph.test_costmodel import record

WEIGHTS = np.arange(12.0, dtype=np.float32).reshape(4, 3)
INFER = ("infer", "--network", "w.npz", "--inputs", "x.npy", "--last", "none", "--threads", "1")


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with files that commands read, which is the current one."""
    monkeypatch.chdir(tmp_path)
    sp.save_npz("w.npz", sp.csr_array(WEIGHTS))
    np.save("x.npy", np.ones((2, 4), np.float32))
    np.save("labels.npy", np.array([2, 2]))
    np.save("ref.npy", np.full((2, 3), 7, np.float32))
    save_file({"fc.weight": WEIGHTS.T.copy()}, "m.safetensors")
    Path("names.txt").write_text("a\nb\nc\n")
    Path("truth.txt").write_text("1\n2\n")
    Path("list.txt").write_text("w.npz\n")
    for name in ("layers", "text", "records"):
        Path(name).mkdir()
    sp.save_npz("layers/w.npz", sp.csr_array(WEIGHTS))
    Path("text/n4-l1.tsv").write_text("1\t1\t0.5\n")
    Path("net.onnx").write_bytes(b"\x08 location w.npz sub/far.bin .near.bin")
    Path("sub").mkdir()
    for name in ("sub/far.bin", ".near.bin", "model-1.safetensors"):
        Path(name).write_bytes(b"weights")
    Path("model.safetensors.index.json").write_text('{"weight_map": {"a": "model-1.safetensors"}}')
    Path("request.json").write_text(REQUEST)
    content = record(inputs=4000, layers=8)
    content["machine"] = None
    write_record(Path("records/run.json"), content)
    return tmp_path


REQUEST = '{"network": "w.npz", "last": "none", "inputs": "x.npy", "threads": 1}'
KEPT = [
    (*INFER, "--values", "x.npy"),
    (*INFER, "--values", "./layers/../x.npy"),
    (*INFER, "--result", "w.npz"),
    (*INFER, "--record", "x.npy"),
    (*INFER, "--samples", "x.npy"),
    (*INFER, "--reference", "ref.npy", "--values", "ref.npy"),
    (*INFER, "--labels", "labels.npy", "--json", "labels.npy"),
    (*INFER, "--labels", "labels.npy", "--classes", "names.txt", "--categories", "names.txt"),
    (*INFER, "--truth", "truth.txt", "--categories", "truth.txt"),
    (*INFER, "--prepared", "m.safetensors", "--values", "m.safetensors"),
    ("infer", "--network", "list.txt", "--inputs", "x.npy", "--last", "none", "--values", "w.npz"),
    ("infer", "--network", "list.txt", "--inputs", "x.npy", "--last", "none", "--categories", "list.txt"),
    ("infer", "--network", "layers", "--inputs", "x.npy", "--last", "none", "--values", "layers/w.npz"),
    ("infer", "--network", "text", "--inputs", "x.npy", "--bias", "0", "--categories", "text/n4-l1.tsv"),
    ("infer", "--network", "net.onnx", "--inputs", "x.npy", "--values", "w.npz"),
    ("infer", "--network", "net.onnx", "--inputs", "x.npy", "--values", "sub/far.bin"),
    ("network", "import", "net.onnx", "-o", ".near.bin"),
    ("network", "import", "model.safetensors.index.json", "--last", "none", "-o", "model-1.safetensors"),
    ("run", REQUEST, "--values", "x.npy"),
    ("run", "request.json", "--categories", "w.npz"),
    ("run", "request.json", "--record", "request.json"),
    ("challenge", "--neurons", "1024", "--layers", "2", "--inputs", "x.npy", "--record", "x.npy"),
    ("challenge", "--neurons", "1024", "--layers", "2", "--mnist", "x.npy", "--record", "x.npy"),
    ("inputs", "make", "mnist", "--neurons", "1024", "--mnist", "x.npy", "-o", "x.npy"),
    ("network", "import", "m.safetensors", "--last", "none", "-o", "m.safetensors"),
    ("network", "import", "layers", "--last", "none", "-o", "layers/w.npz"),
    ("network", "export", "text", "text"),
    ("bench", "spmm", "w.npz", "--record", "w.npz"),
    ("plan", "records/run.json", "--json", "records/run.json"),
    ("report", "records", "-o", "records/run.json"),
    ("report", "records/run.json", "--csv", "records/run.json"),
    ("report", "records", "--figure", "overview", "-o", "records/run.json"),
]


@pytest.mark.parametrize("words", KEPT, ids=" ".join)
def test_a_file_that_is_read_is_not_written(here, capsys, words):
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    assert main(list(words)) == 1
    assert "this output would replace" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("link", [os.symlink, os.link])
@pytest.mark.parametrize("read", [True, False])
def test_links_are_the_file(here, capsys, link, read):
    link("x.npy", "link.npy")
    before = Path("x.npy").read_bytes()
    words = [name.replace("x.npy", "link.npy") if read else name for name in INFER]
    assert main([*words, "--values", "x.npy" if read else "link.npy"]) == 1
    assert "this output would replace" in capsys.readouterr().err
    assert Path("x.npy").read_bytes() == before


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_two_outputs_are_not_one_file(here, capsys, link):
    Path("out.npy").write_text("mine")
    if link:
        link("out.npy", "other")
    assert main([*INFER, "--values", "out.npy", "--categories", "other" if link else "./out.npy"]) == 1
    assert "two outputs cannot be one file" in capsys.readouterr().err
    assert Path("out.npy").read_text() == "mine"


def test_a_folder_of_records_is_not_one_of_its_files(here, capsys):
    Path("out").mkdir()
    os.link("w.npz", "out/calls.jsonl")
    assert main(["bench", "model", "w.npz", "--last", "none", "-o", "out"]) == 1
    assert "out/calls.jsonl: this output would replace w.npz" in capsys.readouterr().err


def test_outputs_beside_what_is_read_are_written_again(here):
    words = ("infer", "--network", "layers", "--inputs", "x.npy", "--last", "none")
    for _ in range(2):
        assert main([*words, "--values", "layers/out.npy", "--json", "layers/out.json"]) == 0
        assert main(["report", "records", "-o", "records/report.html", "--csv", "records/all.csv"]) == 0
    assert json.loads(Path("layers/out.json").read_text())["inputs"] == 2


NO_FILES = {
    "engine", "reductions", "stage", "kind", "against", "libraries", "layer_widths", "partition", "sparsity", "sets",
    "phase", "operations", "models", "figure", "print",
}  # fmt: skip


def test_every_command_says_which_files_it_reads_and_writes():
    """Each argument that takes words is among what is read or written, or known to be neither."""
    all_commands = [one for one in commands(parser()) if one.get_default("run")]
    assert {command.prog.removeprefix("spdnn ") for command in all_commands if not command.get_default("writes")} == {
        "verify", "network info", "record check", "completion",
    }  # fmt: skip
    for one in (command for command in all_commands if command.get_default("writes")):
        files = {name.partition("/")[0] for name in (*one.get_default("reads"), *one.get_default("writes"))}
        words = {action.dest for action in one._actions if action.type in (None, Path) and not action.choices
                 and action.nargs != 0 and not isinstance(action, argparse._HelpAction)}  # fmt: skip
        known = NO_FILES | ({"network"} if one.prog == "spdnn bench sets" else set())
        assert words - known - files == set(), one.prog
        assert files <= {action.dest for action in one._actions}, one.prog


def test_a_request_is_a_file_or_the_json_itself(tmp_path, monkeypatch):
    """The text itself, however long, names no file."""
    monkeypatch.chdir(tmp_path)
    text = '{"neurons":1024,"layers":2,"inputs":"digits","count":20,"threads":1%s}' % (" " * 5000)
    for _ in range(2):
        assert main(["run", text, "--categories", "a.txt"]) == 0
    Path("request.json").write_text(text)
    assert main(["run", "request.json", "--record", "run.json"]) == 0
