"""The command: the forms that others use, and how mistakes end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

from spdnn import challenge
from spdnn.cli import main
from spdnn.engines import ENGINES
from spdnn.features import Inputs
from spdnn.kernels.cuda import cupy_device, driver
from spdnn.records import read_record


def spdnn(*arguments):
    return main([str(argument) for argument in arguments])


@pytest.fixture
def files(tmp_path):
    """A small network and inputs of one's own, as SciPy files."""
    rng = np.random.default_rng(5)
    folder = tmp_path / "layers"
    folder.mkdir()
    for k in (1, 2, 3):
        matrix = sp.random_array((40, 40), density=0.2, rng=rng, dtype=np.float32)
        sp.save_npz(folder / f"{k}.npz", matrix.tocsc())
    np.save(tmp_path / "x.npy", (rng.random((300, 40)) < 0.2).astype(np.float32))
    assert spdnn("network", "import", folder, "-o", tmp_path / "net.h5", "--bias", -0.2, "--clip", 32) == 0
    return tmp_path


def test_own_network_end_to_end(files, capsys):
    record, out, values = files / "run.json", files / "out.txt", files / "values.npy"
    arguments = ["--network", files / "net.h5", "--inputs", files / "x.npy", "--categories", out, "--record", record]
    assert spdnn("infer", *arguments, "--values", values, "--repeats", 3, "--threads", 1) == 0
    assert "verdict     pass (float64 oracle, 300 of 300 inputs compared" in capsys.readouterr().out
    numbers = np.loadtxt(out, dtype=int)
    np.testing.assert_array_equal(np.flatnonzero(np.load(values).sum(axis=1)) + 1, numbers)
    written = read_record(record)
    assert written["result"]["categories"] == numbers.size > 0
    assert len(written["samples"]["inference_seconds"]) == 3
    assert written["problem"]["official"] is None
    assert written["reductions"]["requested"] == ["dead", "inputs", "neurons"]
    assert written["reductions"]["found"]["dead"]["rows_may_leave_before_layer"] == 1
    assert written["reductions"]["found"]["neurons"]["neurons_left"] == 120
    assert spdnn("verify", "--categories", out, "--truth", out) == 0
    assert spdnn("infer", *arguments, "--truth", out) == 0


def test_the_largest_per_input(files):
    values = files / "top.npz"
    assert (
        spdnn("infer", "--network", files / "net.h5", "--inputs", files / "x.npy", "--values", values, "--top", 3) == 0
    )
    with np.load(values) as top:
        assert top["neurons"].shape == top["values"].shape == (300, 3)
        assert (np.diff(top["values"]) <= 0).all()


def test_a_wrong_truth_is_a_failure_without_record(files, capsys):
    (files / "truth.txt").write_text("1\n2\n")
    record = files / "run.json"
    arguments = [
        "--network",
        files / "net.h5",
        "--inputs",
        files / "x.npy",
        "--record",
        record,
        "--truth",
        files / "truth.txt",
    ]
    assert spdnn("infer", *arguments) == 1
    captured = capsys.readouterr()
    assert "verdict     FAIL" in captured.out
    assert "rate" not in captured.out
    assert "spdnn: verdict fail: " in captured.err
    assert not record.exists()


def test_make_export_and_info(tmp_path, capsys):
    assert (
        spdnn("network", "make", "radixnet", "--neurons", 64, "--layers", 3, "--bias", -0.3, "-o", tmp_path / "net.h5")
        == 0
    )
    assert spdnn("network", "export", tmp_path / "net.h5", tmp_path / "text") == 0
    assert sorted(path.name for path in (tmp_path / "text").iterdir()) == [f"n64-l{k}.tsv" for k in (1, 2, 3)]
    assert spdnn("network", "import", tmp_path / "text", "-o", tmp_path / "back.h5", "--bias", -0.3) == 0
    capsys.readouterr()
    assert spdnn("network", "info", tmp_path / "back.h5") == 0
    shown = capsys.readouterr().out
    assert "6,144" in shown
    assert "relu clipped at 32" in shown


def test_challenge_with_digits(tmp_path, capsys):
    record = tmp_path / "run.json"
    arguments = ["--neurons", 1024, "--layers", 120, "--inputs", "digits", "--count", 2000, "--record", record]
    assert spdnn("challenge", *arguments, "--repeats", 2) == 0
    shown = capsys.readouterr().out
    assert "verdict     pass (float64 oracle, 2000 of 2000 inputs compared" in shown
    written = read_record(record)
    assert written["problem"]["official"] is None
    assert 0 < written["result"]["categories"] < 2000
    assert written["environment"]["command"].startswith(
        "spdnn challenge --neurons 1024 --layers 120 --inputs digits --count 2000"
    )


@pytest.mark.needs("mnist")
@pytest.mark.parametrize(("neurons", "layers"), [(1024, 120), (1024, 480), (1024, 1920), (4096, 120)])
def test_challenge_with_the_official_inputs(tmp_path, mnist_file, neurons, layers):
    record = tmp_path / "run.json"
    assert spdnn("challenge", "--neurons", neurons, "--layers", layers, "--mnist", mnist_file, "--record", record) == 0
    written = read_record(record)
    assert written["problem"]["official"] == f"{neurons}-{layers}"
    assert written["verdict"]["truth"]["kind"] == "official"
    assert written["verdict"]["values"]["rule"] == "every value of every survivor is 32"
    assert written["result"]["categories"] == challenge.TRUTH_COUNT[neurons]
    assert written["result"]["categories_sha256"] == challenge.TRUTH_SHA256[neurons]


@pytest.mark.needs("mnist")
def test_official_files_through_every_format(tmp_path, mnist_file, capsys):
    """Stores of every layer and of inputs, then `infer`: recognised as official by digest, and passing."""
    net, inputs, out = tmp_path / "net.h5", tmp_path / "inputs.h5", tmp_path / "out.txt"
    assert spdnn("network", "make", "radixnet", "--neurons", 1024, "--layers", 120, "-o", net) == 0
    assert spdnn("inputs", "make", "mnist", "--neurons", 1024, "-o", inputs, "--mnist", mnist_file) == 0
    assert challenge.INPUT_SHA256[1024] in capsys.readouterr().out
    record = tmp_path / "run.json"
    assert spdnn("infer", "--network", net, "--inputs", inputs, "--categories", out, "--record", record) == 0
    assert read_record(record)["problem"]["official"] == "1024-120"
    assert spdnn("verify", "--categories", out, "--truth", "official:1024") == 0
    assert spdnn("infer", "--network", net, "--inputs", inputs, "--truth", out, "--record", record) == 0
    assert read_record(record)["problem"]["official"] is None  # a file judged it, not the official truth
    lines = out.read_text().splitlines()
    out.write_text("\n".join(lines[:-1]) + "\n")  # a correct prefix is not correct
    assert spdnn("verify", "--categories", out, "--truth", "official:1024") == 1
    assert f"the first is {lines[-1]}" in capsys.readouterr().err


def test_what_cannot_be_written_is_refused_before_the_run(files, capsys):
    arguments = ["infer", "--network", files / "net.h5", "--inputs", files / "x.npy", "--categories", files / "out.txt"]
    for more, sentence in (
        (["--record", files / "nowhere/run.json"], "does not exist; make that folder"),
        (["--record", files / "out.txt"], "two outputs cannot be one file"),
        (["--values", files / "top.npz", "--top", 41], "the 41 largest asked for (--top); the last layer has 40"),
        (["--truth", files / "nowhere.txt"], "there is no such truth file"),
        (["--engine", "reference", "--record", files / "run.json"], "the reference engine is the oracle itself"),
    ):
        assert spdnn(*arguments, *more) == 1
        assert sentence in capsys.readouterr().err
        assert not (files / "out.txt").exists()


@pytest.mark.needs("mnist")
def test_inputs_are_official_by_their_bits_not_by_their_word(tmp_path, mnist_file):
    from spdnn.formats.inputs import read_inputs, write_inputs
    from spdnn.measure import official
    from spdnn.sources.radixnet import RadixNet

    path, network = tmp_path / "inputs.h5", RadixNet(1024, 120)
    assert spdnn("inputs", "make", "mnist", "--neurons", 1024, "-o", path, "--mnist", mnist_file) == 0
    inputs = read_inputs(path)
    assert official(network, inputs)
    assert official(network, inputs.counted(500))
    assert official(network, inputs.counted(120_000))
    forged = Inputs(np.where(np.arange(60_000)[:, None] < 100, inputs.data, 0), 1024, None, inputs.description)
    write_inputs(path, forged)
    assert not official(network, read_inputs(path))
    assert not official(network, inputs.counted(500).counted(1000))


MISTAKES = [
    (["challenge", "--neurons", "1000", "--layers", "3"], "1000 neurons: a RadiX-Net has 16"),
    (["challenge", "--neurons", "32", "--layers", "3", "--inputs", "digits"], "32 neurons have no official bias"),
    (
        ["challenge", "--neurons", "1024", "--layers", "3", "--inputs", "nowhere.h5"],
        "nowhere.h5: there is no such inputs",
    ),
    (["challenge", "--neurons", "1024", "--layers", "3", "--engine", "warp"], "engine 'warp' is not known"),
    (
        ["challenge", "--neurons", "1024", "--layers", "3", "--inputs", "digits", "--reductions", "all,dead"],
        "reduction 'all'",
    ),
    (["challenge", "--neurons", "1024", "--layers", "3", "--devices", "2"], "engine cpu takes no --devices"),
    (["challenge", "--neurons", "1024", "--layers", "3", "--no-join"], "engine cpu takes no --no-join"),
    (["infer", "--network", "nowhere.h5", "--inputs", "x.h5"], "nowhere.h5: there is no such network"),
    (["network", "make", "radixnet", "--neurons", "48", "--layers", "1", "-o", "x.h5"], "48 neurons"),
    (["network", "info", "nowhere.h5"], "there is no such network"),
    (["verify", "--categories", "nowhere.txt", "--truth", "official:1024"], "there is no such list of categories"),
    (["report", "nowhere.json", "-o", "x.html"], "nowhere.json: no record there"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert spdnn(*arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("spdnn: ")
    assert sentence in said
    assert said.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.fixture
def without_gpu(monkeypatch):
    """No NVIDIA driver, also on a machine that has one."""
    monkeypatch.setattr(driver, "DRIVER", "libcuda-that-is-not-here.so")


ON_GPUS = [name for name in ENGINES if name.startswith("cu")]


@pytest.mark.parametrize("name", ON_GPUS)
@pytest.mark.parametrize("command", ["challenge", "infer"])
def test_without_a_gpu_its_engines_end_in_one_sentence(files, without_gpu, capsys, command, name):
    record = files / "run.json"
    what = {
        "challenge": ["--neurons", 1024, "--layers", 120, "--inputs", "digits"],
        "infer": ["--network", files / "net.h5", "--inputs", files / "x.npy"],
    }
    capsys.readouterr()
    assert spdnn(command, *what[command], "--engine", name, "--record", record) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"spdnn: engine {name} cannot run here: {cupy_device.missing()}")
    assert said.count("\n") == 1
    assert not record.exists()


def test_engines_are_listed_with_what_is_missing(without_gpu, capsys):
    assert spdnn("engines") == 0
    said = capsys.readouterr().out
    for name in ON_GPUS:
        told = said[re.search(rf"^{name} +cannot run", said, re.MULTILINE).start() :].splitlines()
        assert told[2].strip() == cupy_device.missing()
    assert len(ON_GPUS) == 6


@pytest.mark.parametrize(
    "arguments", [["infer"], ["challenge", "--neurons", "0"], ["infer", "--memory", "lots"], ["dance"]]
)
def test_wrong_arguments_end_with_2(arguments):
    with pytest.raises(SystemExit) as ended:
        spdnn(*arguments)
    assert ended.value.code == 2


def test_more_threads_than_cores_warn(files, capsys):
    assert spdnn("infer", "--network", files / "net.h5", "--inputs", files / "x.npy", "--threads", 64) == 0
    assert "warning: 64 threads on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("8000000000", 8 * 10**9), ("8GB", 8 * 10**9), ("7.5GiB", 15 * 2**29), ("8e9", 8 * 10**9)]
)
def test_sizes(text, size):
    from spdnn.cli.arguments import size as parsed

    assert parsed(text) == size


def test_python_m_spdnn_is_quiet_when_piped(tmp_path):
    command = [sys.executable, "-m", "spdnn", "challenge", "--neurons", "1024", "--layers", "20", "--inputs", "digits",
               "--count", "64", "--record", str(tmp_path / "run.json")]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert json.loads((tmp_path / "run.json").read_text())["problem"]["input_count"] == 64


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stopped_run_leaves_nothing(tmp_path, number, status):
    make = ["network", "make", "radixnet", "--neurons", "65536", "--layers", "1920", "-o", str(tmp_path / "net.h5")]
    command = [sys.executable, "-m", "spdnn", *make]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 30
    while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(30) == status
    word = "interrupted" if number == signal.SIGINT else "terminated"
    assert process.stderr.read() == f"spdnn: {word}; nothing was written under a final name\n"
    assert not list(tmp_path.iterdir())


def test_an_empty_file_of_records_makes_no_page(tmp_path, capsys):
    (tmp_path / "empty.jsonl").touch()
    assert spdnn("report", str(tmp_path / "empty.jsonl"), "-o", str(tmp_path / "page.html")) == 1
    assert "empty.jsonl: no record there" in capsys.readouterr().err
    assert not (tmp_path / "page.html").exists()
