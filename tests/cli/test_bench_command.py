"""`spdnn bench model`: its table, its records, the page that they make, and mistakes."""

import re

import numpy as np
import pytest
from onnx_models import Maker

import spdnn
from spdnn.cli import main
from spdnn.core.errors import install
from spdnn.formats.store import write_network
from spdnn.report.common.collection import collect
from spdnn.report.sections import SECTIONS
from spdnn.runs.records.files import read_all


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    write_network(tmp_path / "my net.safetensors", spdnn.from_matrices([rng.normal(size=(20, 6))], last="none"))
    np.save(tmp_path / "x.npy", rng.random((10, 20), dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def bench(*arguments):
    return main(["bench", "model", "my net.safetensors", *map(str, arguments)])


def test_the_table_the_records_and_the_page(folder, capsys, nothing_installed):
    arguments = ["--inputs", "x.npy", "--batches", "1,4", "--seconds", 0.01, "--threads", 2, "-o", "records"]
    assert bench(*arguments, "--against", "torch,scipy") == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert (
        captured.err == f"spdnn: --against: torch: the package torch is not installed; {install('torch')} brings it\n"
    )
    assert bench(*arguments, "--against", "scipy,blas") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == (
        "my net.safetensors (20 -> 6, 1 layer, 120 edges), 2 threads, 10 inputs of x.npy; "
        "all outputs verified against float64"
    )
    assert lines[1].endswith("   times as long as ours: median (95 % interval), fastest turns")
    rows = [line.split() for line in lines if line.startswith("  ") and "BUSY" not in line][1:]
    names = ["ours", "scipy", "blas"]
    assert [row[row[0].isdigit()] for row in rows] == [*names, *names]
    assert [row[0] for row in rows if row[0].isdigit()] == ["1", "4"]
    assert "records/calls.jsonl: 6 records" in lines
    records = read_all(["records/calls.jsonl"])[1]
    assert {record.problem.network for record in records} == {"my-net"}
    command = records[0].environment.command
    assert "bench model 'my net.safetensors' --batches 1,4 --threads 2 --against scipy,blas --inputs x.npy" in command
    (section,) = [one for one in SECTIONS if one.name == "calls"]
    (network,) = section.values(collect([], operations=records))["networks"]
    assert [entry["batch"] for entry in network["batches"]] == [1, 4]
    assert {row["name"] for row in network["batches"][0]["rows"]} == {"ours", "scipy", "blas"}


def test_a_model_that_is_no_chain(folder, capsys):
    made = Maker(3, 12, 12)
    made.add("Conv", made.draw(40, 3, 3, 3, density=0.1), pads=[1] * 4)
    made.add("GlobalAveragePool")
    made.save(folder / "net.onnx")
    arguments = ["net.onnx", "--seconds", "0.01", "--threads", "1", "--against", "onnxruntime,scipy", "-o", "records"]
    assert main(["bench", "model", *arguments]) == 0
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
    assert (
        "bench model net.onnx --batches 1,8 --threads 1 --against onnxruntime,scipy" in records[0].environment.command
    )
    assert main(["report", "records", "-o", "report.html"]) == 0
    page = (folder / "report.html").read_text()
    assert "every value within 0.0001 of the largest of its output, by ONNX Runtime without optimisations" in page
    capsys.readouterr()
    assert main(["bench", "model", "net.onnx", "--zeros", "0.5"]) == 1
    assert capsys.readouterr() == (
        "", "spdnn: --zeros is for chains of pruned layers; give another model its inputs with --inputs\n",
    )  # fmt: skip


def test_libraries_that_are_absent_are_named_at_the_end(folder, capsys, nothing_installed):
    assert bench("--batches", 1, "--seconds", 0.01) == 0
    assert f"torch: the package torch is not installed; {install('torch')} brings it\n" in capsys.readouterr().out


def test_the_same_seed_draws_the_same_inputs(folder, capsys):
    arguments = ["--batches", 2, "--seconds", 0.01, "--against", "scipy", "-o"]
    assert bench(*arguments, "one", "--zeros", 0.8) == bench(*arguments, "two", "--zeros", 0.8) == 0
    assert "drawn inputs, 80 % of them 0" in capsys.readouterr().out
    one, two = (read_all([f"{name}/calls.jsonl"])[1][0] for name in ("one", "two"))
    assert one.verification.digest == two.verification.digest


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ["--against", "scipi"],
            "library 'scipi' is not known (did you mean 'scipy'?): it must be one of scipy, blas, torch",
        ),
        (["--against", "scipy,scipy"], "library 'scipy' is named twice"),
        (["--inputs", "x.npy", "--zeros", "0.5"], "--zeros is for random inputs"),
        (["--inputs", "nowhere.npy"], "nowhere.npy"),
        (["--inputs", "wide.npy"], "wide.npy is (3, 21); the network takes (inputs, 20)"),
        (["-o", "x.npy"], "x.npy: a folder is needed for what is written"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence, folder, capsys):
    np.save("wide.npy", np.ones((3, 21)))
    assert bench(*arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("spdnn: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--batches", "0"], ["--batches", "1,"], ["--zeros", "2"], ["--seconds", "0"]])
def test_numbers_out_of_range_are_an_argument_error(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        bench(*arguments)
    assert "must be" in capsys.readouterr().err
