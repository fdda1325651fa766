"""`spdnn bench sets`, `spmm` and `sddmm`: tables, records, a matrix of one's own, and how mistakes end."""

import numpy as np
import pytest
import scipy.sparse as sp
from ladders import covering

from spdnn.cli import main
from spdnn.core.validation import builtins
from spdnn.ops import problems
from spdnn.runs.records.files import read_all


def spdnn(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def small(monkeypatch):
    """The problem sets hold two small shapes."""
    shapes = [
        problems.Shape("a", "net", name, rows, 30, 7, 14, 1, lengths, "", "made up")
        for name, rows, lengths in (("one", 20, "random"), ("two", 40, "zipf-1"))
    ]
    monkeypatch.setattr(problems, "read_shapes", lambda: shapes)


def test_the_table_and_the_records(tmp_path, capsys, small):
    arguments = ["--sparsity", "80,90", "--operations", "spmm", "--libraries", "scipy,blas", "--threads", 2]
    arguments += ["--seconds", 0.01, "-o", tmp_path / "records"]
    assert spdnn("bench", "sets", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 problems, 2 threads")
    named = [line.split()[0] for line in lines if line.startswith("  spmm.a.net")]
    assert named == [f"spmm.a.net.{name}.n7.s{s}" for name in ("one", "two") for s in (80, 90)]
    assert [line.split()[:4] for line in lines if line.startswith("  spmm ")] == [
        ["spmm", "a", "80%", "2"], ["spmm", "a", "90%", "2"],
    ]  # fmt: skip
    records = builtins(read_all([tmp_path / "records/operations.jsonl"])[1])
    assert len(records) == 2 * 3 + 2 * 4  # skewed rows are run without the swizzle too
    assert len({record["comparison"] for record in records}) == 1
    command = records[0]["environment"]["command"]
    assert command.startswith("spdnn bench sets --set a --sparsity 80,90 --operations spmm --seed 0 --threads 2")
    assert spdnn("report", tmp_path / "records", "-o", tmp_path / "page.html") == 0
    assert "Sparse operations for deep learning" in (tmp_path / "page.html").read_text()


@pytest.fixture
def matrix():
    return sp.random_array((30, 40), density=0.2, rng=np.random.default_rng(0), format="coo", dtype=np.float32)


@pytest.mark.parametrize(("suffix", "operation"), covering(["npz", "mtx", "npy", "smtx"], ["spmm", "sddmm"]))
def test_a_matrix_of_ones_own(tmp_path, capsys, matrix, suffix, operation):
    path = tmp_path / f"my matrix.{suffix}"
    if suffix == "npz":
        sp.save_npz(path, matrix)
    elif suffix == "mtx":
        from scipy.io import mmwrite

        mmwrite(path, matrix)
    elif suffix == "npy":
        np.save(path, matrix.toarray())
    else:
        from spdnn.ops import SparseMatrix

        SparseMatrix.from_scipy(matrix).to_smtx(path)
    arguments = [path, "--columns", 5, "--threads", 2, "--seconds", 0.01, "--libraries", "blas"]
    assert spdnn("bench", operation, *arguments, "--record", tmp_path / "r.jsonl") == 0
    text = capsys.readouterr().out
    assert text.startswith("30 x 40, 240 nonzeros (80 % sparse), 5 columns; 2 threads")
    records = builtins(read_all([tmp_path / "r.jsonl"])[1])
    assert [record["program"]["name"] for record in records] == ["ours", "ours-in-order", "blas"]
    for record in records:
        assert record["problem"]["origin"] == "file"
        assert record["problem"]["set"] == "own"
        assert record["problem"]["layer"] == f"my matrix.{suffix}"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["sets", "--set", "d"], "set 'd' is not known: it must be one of a, b, c"),
        (["sets", "--network", "bert"], "network 'bert' is not known"),
        (["sets", "--sparsity", "many"], "--sparsity 'many': percents joined by commas"),
        (["sets", "--sparsity", "100"], "sparsity 100.0: it must be in percent"),
        (["sets", "--operations", "gemm"], "operation 'gemm' is not known: it must be one of spmm, sddmm"),
        (["sets", "--operations", ""], "operation '' is not known"),
        (["sets", "--models", "bert"], "model 'bert' is not known: it must be one of transformer-small"),
        (["sets", "--libraries", "mlk"], "library 'mlk' is not known"),
        (["sets", "-o", __file__], "a folder is needed for what is written"),
        (["sets", "--dlmc", "nowhere.tar.gz"], "nowhere.tar.gz: there is no such DLMC archive"),
        (["spmm", "nowhere.npz"], "nowhere.npz: there is no such matrix"),
        (["spmm", __file__], "test_ops_command.py"),
        (["spmm", "nowhere.npz", "--record", "nowhere/r.jsonl"], "nowhere does not exist"),
    ],
)
def test_a_mistake_is_one_sentence(capsys, arguments, sentence):
    assert spdnn("bench", *arguments) == 1
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert "Traceback" not in error


def test_matrices_that_are_none(tmp_path, capsys):
    np.save(tmp_path / "nan.npy", np.full((3, 3), np.nan, np.float32))
    np.save(tmp_path / "flat.npy", np.ones(3, np.float32))
    (tmp_path / "a.smtx").write_text("3, 3, 1\n0 1 1 1\n7\n")
    (tmp_path / "a.mtx").write_text("nothing")
    for name in ("nan.npy", "flat.npy", "a.smtx", "a.mtx"):
        assert spdnn("bench", "spmm", tmp_path / name) == 1
        error = capsys.readouterr().err
        assert name in error
        assert error.count("\n") == 1


@pytest.mark.parametrize("command", [["bench", "sets"], ["bench", "spmm"]])
def test_help_says_what_is_measured(capsys, command):
    with pytest.raises(SystemExit) as ended:
        spdnn(*command, "--help")
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert ".smtx" in text if "spmm" in command else "A sample is one float32 call" in text
