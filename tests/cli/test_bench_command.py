"""`spdnn bench`: tables, records and the pages that they make, of each kind of problem; and how mistakes end."""

import json
import re

import dlmc_copy
import numpy as np
import pytest
import refusals
import scipy.sparse as sp
from ladders import covering
from onnx_models import Maker
from scipy.io import mmwrite

import spdnn
from spdnn.core.errors import install
from spdnn.core.validation import builtins
from spdnn.engines.registry import PEERS
from spdnn.formats.store import write_network
from spdnn.ops import SparseMatrix, problems
from spdnn.report.calls import called
from spdnn.report.common.collection import collect
from spdnn.runs.records.files import read_all, read_record

MODEL = "my net.safetensors"


def bench(*arguments):
    return refusals.spdnn("bench", *arguments)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    write_network(tmp_path / "my net.safetensors", spdnn.from_matrices([rng.normal(size=(20, 6))], last="none"))
    np.save(tmp_path / "x.npy", rng.random((10, 20), dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_table_the_records_and_the_page(folder, capsys, nothing_installed):
    arguments = ["--inputs", "x.npy", "--batches", "1,4", "--seconds", 0.01, "--threads", 2, "-o", "records"]
    said = refusals.refused(capsys, "bench", "model", MODEL, *arguments, "--against", "torch,scipy")
    assert said == f"--against: torch: the package torch is not installed; {install('torch')} brings it"
    assert bench("model", MODEL, *arguments, "--against", "scipy,blas") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "my net.safetensors (20 -> 6, 1 layer, 120 edges), 2 threads, 10 inputs of x.npy; "
        "all outputs verified against float64"
    )
    rows = [re.match(r"(ours|scipy|blas)(?: busy machine)? +(\d)  +[0-9.]+ [mµ]?s ", line) for line in lines]
    found = sorted((row[2], row[1]) for row in rows if row)
    assert found == [(batch, name) for batch in "14" for name in ("blas", "ours", "scipy")]
    assert "records/calls.jsonl: 6 records" in lines
    records = read_all(["records/calls.jsonl"])[1]
    assert {record.problem.network for record in records} == {"my-net"}
    command = records[0].environment.command
    assert "bench model 'my net.safetensors' --batches 1,4 --threads 2 --against scipy,blas --inputs x.npy" in command
    (network,) = called(collect([], operations=records))
    assert [calls[0].batch for calls in network.batches] == [1, 4]
    assert {call.name for call in network.batches[0]} == {"ours", "scipy", "blas"}


def test_a_model_that_is_no_chain(folder, capsys):
    made = Maker(3, 12, 12)
    made.add("Conv", made.draw(40, 3, 3, 3, density=0.1), pads=[1] * 4)
    made.add("GlobalAveragePool")
    made.save(folder / "net.onnx")
    arguments = ["net.onnx", "--seconds", "0.01", "--threads", "1", "--against", "onnxruntime,scipy", "-o", "records"]
    assert bench("model", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"net.onnx \(2 nodes, 1,080 weights, \d+\.\d % nonzero\), 1 thread, drawn inputs; "
        "all outputs verified against ONNX Runtime without optimisations",
        lines[0],
    )
    assert lines[-1] == "scipy: it is compared on chains of pruned layers alone, and this model is none"
    records = read_all(["records/calls.jsonl"])[1]
    assert [(record.program.name, record.problem.batch_columns) for record in records] == [
        (name, batch) for batch in (1, 8) for name in ("ours", "onnxruntime")
    ]
    command = records[0].environment.command
    assert "bench model net.onnx --batches 1,8 --threads 1 --against onnxruntime,scipy" in command
    rule = "every value within 0.0001 of the largest of its output, or 4 times what ONNX Runtime's optimisations change"
    assert all(record.verification.rule.startswith(rule) for record in records)
    said = refusals.refused(capsys, "bench", "model", "net.onnx", "--zeros", 0.5)
    assert said == "--zeros is for chains of pruned layers; give another model its inputs with --inputs"


def test_libraries_that_are_absent_are_named_at_the_end(folder, capsys, nothing_installed):
    assert bench("model", MODEL, "--batches", 1, "--seconds", 0.01) == 0
    assert f"torch: the package torch is not installed; {install('torch')} brings it\n" in capsys.readouterr().out


def test_the_same_seed_draws_the_same_inputs(folder, capsys):
    arguments = ["--batches", 2, "--seconds", 0.01, "--against", "scipy", "-o"]
    assert [bench("model", MODEL, *arguments, name, "--zeros", 0.8) for name in ("one", "two")] == [0, 0]
    assert "drawn inputs, 80 % of them 0" in capsys.readouterr().out
    one, two = (read_all([f"{name}/calls.jsonl"])[1][0] for name in ("one", "two"))
    assert one.verification.digest == two.verification.digest


def test_kernels_have_a_table_and_records(tmp_path, capsys, nothing_installed):
    np.save(tmp_path / "x.npy", (np.random.default_rng(0).random((80, 1024)) < 0.2).astype(np.float32))
    arguments = ["--layer-widths", "1024,4096", "--neurons", 1024, "--layers", 3, "--inputs", tmp_path / "x.npy"]
    arguments += ["--count", 70, "--seconds", 1, "--repeats", 2, "--threads", 2, "--records", tmp_path / "records"]
    assert bench("kernels", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [line for line in lines if "; 2 threads, " in line]
    layers = [f"one layer, {neurons} neurons, 70 inputs" for neurons in (1024, 4096)]
    assert [line.split(";")[0] for line in titles] == [*layers, "1024 neurons x 3 layers, 70 inputs"]
    rows = [line for line in lines if line.startswith(("cpu ", "scipy "))]
    assert [row.split()[0] for row in rows] == ["cpu", "scipy", "cpu", "scipy", "cpu", "cpu", "scipy"]
    assert sum("1.00 (1.00 to 1.00)" in row for row in rows if row.startswith("cpu ")) == 3
    assert [line.split(":")[0] for line in lines if "is not installed; " in line] == list(PEERS[1:])
    records = [builtins(read_record(path)) for path in sorted((tmp_path / "records").iterdir())]
    assert len(records) == 7
    assert len({record["comparison"] for record in records}) == 1
    words = json.dumps(records[0]["environment"]["command"])
    assert "spdnn bench kernels --layer-widths 1024,4096 --neurons 1024 --layers 3 --inputs" in words
    assert "--count 70 --threads 2 --repeats 2 --seconds 1 --libraries scipy" in words


@pytest.fixture
def small(monkeypatch):
    """The problem sets hold two small shapes."""
    shapes = [
        problems.Shape("a", "net", name, rows, 30, 7, 14, 1, lengths, "made up")
        for name, rows, lengths in (("one", 20, "random"), ("two", 40, "zipf-1"))
    ]
    monkeypatch.setattr(problems, "read_shapes", lambda: shapes)


def test_problem_sets_have_a_table_and_records(tmp_path, capsys, small):
    arguments = ["--sparsity", "80,90", "--operations", "spmm", "--libraries", "scipy,blas", "--threads", 2]
    arguments += ["--seconds", 0.01, "-o", tmp_path / "records"]
    assert bench("sets", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 problems, 2 threads")
    named = [line.split()[1] for line in lines if line.startswith("net ")]
    assert sorted(named) == ["one", "one", "two", "two"]
    means = [re.match(r"a, net +(\d+) %  +2 ", line) for line in lines]
    assert [row[1] for row in means if row] == ["80", "90"]
    records = builtins(read_all([tmp_path / "records/operations.jsonl"])[1])
    assert len(records) == 2 * 3 + 2 * 4  # skewed rows are run without the swizzle too
    assert len({record["comparison"] for record in records}) == 1
    command = records[0]["environment"]["command"]
    assert command.startswith("spdnn bench sets --set a --sparsity 80,90 --operations spmm --seed 0 --threads 2")


def test_a_sample_of_dlmc_has_records_that_name_it(tmp_path, capsys, monkeypatch):
    dlmc_copy.use(monkeypatch)
    arguments = ["--dlmc", dlmc_copy.archive(tmp_path), "--sample", 4, "--operations", "spmm", "--libraries", "blas"]
    arguments += ["--threads", 2, "--seconds", 0.01, "--network", "transformer", "-o", tmp_path / "records"]
    assert bench("sets", *arguments) == 0
    assert capsys.readouterr().out.startswith("4 problems, 2 threads")
    records = builtins(read_all([tmp_path / "records/operations.jsonl"])[1])
    assert {(one["problem"]["dlmc"]["drawn"], one["problem"]["dlmc"]["drawn_from"]) for one in records} == {(4, 24)}
    assert "dlmc.tar.gz --sample 4 --operations spmm --seed 0" in records[0]["environment"]["command"]


SAVE = {
    "npz": sp.save_npz,
    "mtx": mmwrite,
    "npy": lambda path, matrix: np.save(path, matrix.toarray()),
    "smtx": lambda path, matrix: SparseMatrix.from_scipy(matrix).to_smtx(path),
}


@pytest.mark.parametrize(("suffix", "operation"), covering([*SAVE], ["spmm", "sddmm"]))
def test_a_matrix_of_ones_own(tmp_path, capsys, suffix, operation):
    matrix = sp.random_array((30, 40), density=0.2, rng=np.random.default_rng(0), format="coo", dtype=np.float32)
    path = tmp_path / f"my matrix.{suffix}"
    SAVE[suffix](path, matrix)
    arguments = [path, "--columns", 5, "--threads", 2, "--seconds", 0.01, "--libraries", "blas"]
    assert bench(operation, *arguments, "--record", tmp_path / "r.jsonl") == 0
    text = capsys.readouterr().out
    assert re.search(rf"^own my matrix.{suffix} +30 × 40 +5 +80.0 % ", text, re.MULTILINE)
    assert re.search("^blas  +[0-9]", text, re.MULTILINE)
    records = builtins(read_all([tmp_path / "r.jsonl"])[1])
    assert [record["program"]["name"] for record in records] == ["ours", "ours-in-order", "blas"]
    named = {tuple(record["problem"][name] for name in ("origin", "set", "layer")) for record in records}
    assert named == {("file", "own", f"my matrix.{suffix}")}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["model", MODEL, "--against", "scipi"], "library 'scipi' is not known (did you mean 'scipy'?): it must"),
        (["model", MODEL, "--inputs", "x.npy", "--zeros", "0.5"], "--zeros is for random inputs"),
        (["model", MODEL, "--inputs", "nowhere.npy"], "nowhere.npy"),
        (["model", MODEL, "--inputs", "wide.npy"], "wide.npy is (3, 21); the network takes (inputs, 20)"),
        (["model", MODEL, "-o", "x.npy"], "x.npy: a folder is needed for what is written"),
        (["sets", "--set", "d"], "set 'd' is not known: it must be one of a, b, c"),
        (["sets", "--sparsity", "many"], "--sparsity 'many': percents joined by commas"),
        (["sets", "--sparsity", "100"], "sparsity 100.0: it must be in percent"),
        (["sets", "--operations", ""], "operation '' is not known"),
        (["sets", "--models", "bert"], "model 'bert' is not known: it must be one of transformer-small"),
        (["sets", "-o", __file__], "a folder is needed for what is written"),
        (["sets", "--dlmc", "nowhere.tar.gz"], "nowhere.tar.gz: there is no such DLMC archive"),
        (["spmm", "nowhere.npz"], "nowhere.npz: there is no such matrix"),
        (["spmm", __file__], "test_bench_command.py"),
        (["spmm", "nowhere.npz", "--record", "nowhere/r.jsonl"], "nowhere does not exist"),
        (["kernels", "--libraries", "mkl"], "engine mkl cannot run here: the package sparse-dot-mkl is not installed"),
        (["kernels", "--libraries", "mlk"], "library 'mlk' is not known: it must be one of scipy, graphblas, mkl, jax"),
        (["kernels", "--neurons", "1024"], "--neurons and --layers go together"),
        (["kernels", "--layer-widths", "none"], "nothing to compare"),
        (["kernels", "--layer-widths", "1000"], "1000 neurons: a RadiX-Net has"),
        (["kernels", "--neurons", "1024", "--layers", "2", "--inputs", "nowhere.npy"], "nowhere.npy"),
        (["kernels", "--layer-widths", "1024", "--records", "x.npy"], "a folder is needed for what is written"),
        (["spmm", "nan.npy"], "nan.npy"),
        (["spmm", "flat.npy"], "flat.npy"),
        (["spmm", "a.smtx"], "a.smtx"),
        (["spmm", "a.mtx"], "a.mtx"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence, folder, capsys, nothing_installed):
    np.save("wide.npy", np.ones((3, 21)))
    np.save("nan.npy", np.full((3, 3), np.nan, np.float32))
    np.save("flat.npy", np.ones(3, np.float32))
    (folder / "a.smtx").write_text("3, 3, 1\n0 1 1 1\n7\n")
    (folder / "a.mtx").write_text("nothing")
    assert sentence in refusals.refused(capsys, "bench", *arguments, silent=arguments[0] != "sets")


@pytest.mark.parametrize(
    "arguments",
    [
        *(["model", MODEL, *words] for words in (["--batches", "0"], ["--batches", "1,"], ["--zeros", "2"])),
        ["model", MODEL, "--seconds", "0"],
        *(["kernels", "--layer-widths", widths] for widths in ("1024,", "a", "0", "1024;4096")),
    ],
)
def test_numbers_out_of_range_are_an_argument_error(arguments, capsys):
    sentence = "must be an integer from 1" if arguments[0] == "kernels" else "must be"
    assert sentence in refusals.misused(capsys, "bench", *arguments)
