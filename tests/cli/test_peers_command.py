"""`spdnn bench kernels`: the table, the records, and how mistakes end."""

import json

import numpy as np
import pytest

from spdnn.cli import main
from spdnn.core.validation import builtins
from spdnn.engines.registry import PEERS
from spdnn.runs.records.files import read_record


def spdnn(*arguments):
    return main([str(argument) for argument in arguments])


def test_the_table_and_the_records(tmp_path, capsys, nothing_installed):
    np.save(tmp_path / "x.npy", (np.random.default_rng(0).random((80, 1024)) < 0.2).astype(np.float32))
    arguments = ["--layer-widths", "1024,4096", "--neurons", 1024, "--layers", 3, "--inputs", tmp_path / "x.npy"]
    arguments += ["--count", 70, "--seconds", 1, "--repeats", 2, "--threads", 2, "--records", tmp_path / "records"]
    assert spdnn("bench", "kernels", *arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    titles = [line for line in lines if "; 2 threads, " in line]
    assert [line.split(";")[0] for line in titles] == [
        "one layer, 1024 neurons, 70 inputs",
        "one layer, 4096 neurons, 70 inputs",
        "1024 neurons x 3 layers, 70 inputs",
    ]
    table = [line.split() for line in lines if line.startswith("  ")]
    one = ["library", "cpu", "scipy"]
    assert [row[0] for row in table] == [*one, *one, "library", "cpu", "cpu,", "scipy"]
    assert all(row[3:7] == ["1.00", "(1.00", "to", "1.00)"] for row in table if row[0] == "cpu")
    assert all(row[-1] == "pass" for row in table if row[0] == "scipy")
    assert [line.split(":")[0] for line in lines if "is not installed; " in line] == list(PEERS[1:])
    records = [builtins(read_record(path)) for path in sorted((tmp_path / "records").iterdir())]
    assert len(records) == 7
    assert len({record["comparison"] for record in records}) == 1
    words = json.dumps(records[0]["environment"]["command"])
    assert "spdnn bench kernels --layer-widths 1024,4096 --neurons 1024 --layers 3 --inputs" in words
    assert "--count 70 --threads 2 --repeats 2 --seconds 1 --libraries scipy" in words


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--libraries", "mkl"], "engine mkl cannot run here: the package sparse-dot-mkl is not installed"),
        (["--libraries", "mlk"], "library 'mlk' is not known: it must be one of scipy, graphblas, mkl, jax, torch"),
        (["--neurons", "1024"], "--neurons and --layers go together"),
        (["--layer-widths", "none"], "nothing to compare"),
        (["--layer-widths", "1000"], "1000 neurons: a RadiX-Net has"),
        (["--neurons", "1024", "--layers", "2", "--inputs", "nowhere.npy"], "nowhere.npy"),
    ],
)
def test_mistakes_are_one_sentence(arguments, sentence, capsys, nothing_installed):
    assert spdnn("bench", "kernels", *arguments) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("spdnn: ")
    assert sentence in captured.err
    assert captured.err.count("\n") == 1


def test_records_need_a_folder(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert spdnn("bench", "kernels", "--layer-widths", 1024, "--records", tmp_path / "file") == 1
    assert "a folder is needed for what is written" in capsys.readouterr().err


@pytest.mark.parametrize("widths", ["1024,", "a", "0", "1024;4096"])
def test_widths_that_are_none_are_an_argument_error(widths, capsys):
    with pytest.raises(SystemExit, match="2"):
        spdnn("bench", "kernels", "--layer-widths", widths)
    assert "must be an integer from 1" in capsys.readouterr().err
