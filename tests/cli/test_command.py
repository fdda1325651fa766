"""The command: the forms that others use, and how mistakes end."""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from children import ended, finished, started, until
from ladders import rung
from refusals import misused, refused, small_disk, spdnn

from spdnn import infer
from spdnn.cli import parser, summary
from spdnn.core import challenge
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.core.validation import builtins
from spdnn.engines.registry import ENGINES
from spdnn.formats import store
from spdnn.formats.inputs import read_inputs, write_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.readers import open_inputs, open_network
from spdnn.kernels.cuda import cupy_device, driver
from spdnn.runs.records.files import read_record
from spdnn.runs.verify.official import official_problem

MAKE = ["network", "make", "radixnet", "--neurons", 64, "--layers", 3, "--bias", -0.3, "-o"]


def given(files):
    return ["--network", files / "net.safetensors", "--inputs", files / "x.npy"]


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
    stated = ["--last", "relu", "--rows", "inputs", "--bias", -0.2, "--clip", 32]  # of matrices, which are square here
    assert spdnn("network", "import", folder, "-o", tmp_path / "net.safetensors", *stated) == 0
    return tmp_path


def test_own_network_end_to_end(files, capsys):
    record, out, values = files / "run.json", files / "out.txt", files / "values.npy"
    arguments = [*given(files), "--categories", out, "--record", record]
    assert spdnn("infer", *arguments, "--values", values, "--repeats", 3, "--threads", 1) == 0
    assert "verified    pass: 300 of 300 inputs compared with a float64 reference; " in capsys.readouterr().out
    numbers = np.loadtxt(out, dtype=int)
    np.testing.assert_array_equal(np.flatnonzero(np.load(values).sum(axis=1)) + 1, numbers)
    written = builtins(read_record(record))
    assert written["result"]["categories"] == numbers.size > 0
    assert len(written["inference_seconds"]) == 3
    assert written["problem"]["official"] is None
    assert written["reductions"]["requested"] == ["dead", "inputs", "neurons"]
    assert written["reductions"]["found"]["dead"]["rows_may_leave_before_layer"] == 1
    assert written["reductions"]["found"]["neurons"]["neurons_left"] == 120
    assert spdnn("verify", "--categories", out, "--truth", out) == 0
    assert spdnn("infer", *given(files), "--truth", out) == 0


def test_a_part_of_the_inputs_is_compared(files, capsys):
    assert spdnn("infer", *given(files), "--verify", "1e-7") == 0
    assert re.search("verified    pass: 6[0-4] of 300 inputs compared with a float64 ref", capsys.readouterr().out)


def test_the_largest_per_input(files):
    values = files / "top.npz"
    assert spdnn("infer", *given(files), "--values", values, "--top", 3) == 0
    with np.load(values) as top:
        assert top["neurons"].shape == top["values"].shape == (300, 3)
        assert (np.diff(top["values"]) <= 0).all()


def test_a_wrong_truth_is_a_failure_without_record(files, capsys):
    (files / "truth.txt").write_text("1\n2\n")
    record = files / "run.json"
    arguments = [*given(files), "--record", record]
    assert spdnn("infer", *arguments, "--truth", files / "truth.txt") == 1
    captured = capsys.readouterr()
    assert "verified    FAIL" in captured.out
    assert "rate" not in captured.out
    assert "spdnn: verification failed: " in captured.err
    assert not record.exists()


def test_make_export_and_info(tmp_path, capsys):
    make = [*MAKE, tmp_path / "net.safetensors"]
    assert spdnn(*make) == 0
    assert spdnn("network", "export", tmp_path / "net.safetensors", tmp_path / "text") == 0
    assert sorted(path.name for path in (tmp_path / "text").iterdir()) == [f"n64-l{k}.tsv" for k in (1, 2, 3)]
    assert spdnn("network", "import", tmp_path / "text", "-o", tmp_path / "back.safetensors", "--bias", -0.3) == 0
    capsys.readouterr()
    assert spdnn("network", "info", tmp_path / "back.safetensors") == 0
    shown = capsys.readouterr().out
    assert "6,144" in shown
    assert shown.endswith("\nlayer 3          64 -> 64, 50 % nonzero, bias -0.3, relu clipped at 32\n")
    assert spdnn(*MAKE, tmp_path / "deep.safetensors", "--layers", 9) == 0
    capsys.readouterr()
    assert spdnn("network", "info", tmp_path / "deep.safetensors") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[-3:]] == [["layer", "6"], ["..."], ["layer", "9"]]


def test_a_file_of_weights_comes_with_what_is_done_with_them(files, tmp_path, capsys):
    out, inputs, layers = tmp_path / "out.npy", tmp_path / "x.npy", tmp_path / "layers"
    several = ["--bias", "-0.2,-0.1,0.5", "--clip", 32, "--last", "none", "--rows", "outputs"]
    record = tmp_path / "run.json"
    assert spdnn("infer", "--network", layers, *several, "--inputs", inputs, "--values", out, "--record", record) == 0
    matrices = [sp.load_npz(layers / f"{k}.npz").T for k in (1, 2, 3)]
    network = from_matrices(matrices, bias=[-0.2, -0.1, 0.5], clip=32, last="none")
    np.testing.assert_array_equal(np.load(out), infer(network, np.load(inputs), values=True).all_values())
    command = read_record(record).environment.command
    assert "--last none --bias=-0.2,-0.1,0.5 --clip 32.0 --rows outputs" in command
    spdnn("record", "check", record, "--rerun", "--network", layers, *several, "--inputs", inputs)
    assert "digest of the output the same, to the bit" in capsys.readouterr().out
    assert spdnn("infer", "--network", layers, "--inputs", inputs) == 1
    said = capsys.readouterr().err
    assert "it does not say what follows its last layer; the others have ReLU: state --last relu or" in said


def test_values_in_blocks_and_on_a_full_disk(files, tmp_path, monkeypatch, capsys):
    """300 last rows of 40 outputs, 7 rows at a time."""
    values = tmp_path / "values.npy"
    monkeypatch.setattr(summary, "ROWS_BYTES", 7 * 160)
    assert spdnn("infer", *given(files), "--values", values) == 0
    expected = infer(open_network(files / "net.safetensors"), open_inputs(files / "x.npy"), values=True)
    np.testing.assert_array_equal(np.load(values), expected.all_values())
    before, there = values.read_bytes(), sorted(os.listdir(tmp_path))
    with small_disk(20_000):
        assert spdnn("infer", *given(files), "--values", values, "--categories", tmp_path / "out.txt") == 1
    assert "values.npy: File too large, so nothing was written" in capsys.readouterr().err
    assert (values.read_bytes(), sorted(os.listdir(tmp_path))) == (before, there)


def test_challenge_with_digits(tmp_path, capsys):
    record = tmp_path / "run.json"
    arguments = ["--neurons", 1024, "--layers", 120, "--inputs", "digits", "--count", 500, "--record", record]
    assert spdnn("challenge", *arguments, "--repeats", 2) == 0
    shown = capsys.readouterr().out
    assert "verified    pass: 500 of 500 inputs compared with a float64 reference; " in shown
    written = builtins(read_record(record))
    assert written["problem"]["official"] is None
    told, seconds = written["time_to_solution"], written["inference_seconds"]
    assert (told["of"], told["cached"], told["inference"]) == ("command", [], seconds[0])
    assert min(told[name] for name in ("startup", "inputs", "prepare", "verification")) > 0
    time = read_record(record).time_to_solution
    assert f"solution    {time.seconds:.2f} s from the start to a verified" in shown
    assert time.seconds < time.wall == time.seconds + time.excluded
    assert 0 < written["result"]["categories"] < 500
    words = "spdnn challenge --neurons 1024 --layers 120 --inputs digits --count 500"
    assert written["environment"]["command"].startswith(words)


OFFICIAL = [(1024, 120), *(pytest.param(*p, marks=pytest.mark.full("official")) for p in [(1024, 1920), (4096, 120)])]


@pytest.mark.needs("mnist")
@pytest.mark.parametrize(("neurons", "layers"), OFFICIAL)
def test_challenge_with_the_official_inputs(tmp_path, mnist_file, neurons, layers):
    record = tmp_path / "run.json"
    assert spdnn("challenge", "--neurons", neurons, "--layers", layers, "--mnist", mnist_file, "--record", record) == 0
    written = builtins(read_record(record))
    assert written["problem"]["official"] == f"{neurons}-{layers}"
    assert written["verdict"]["truth"]["kind"] == "official"
    assert written["verdict"]["values"]["rule"] == "every value of every active input is 32"
    assert written["result"]["categories"] == challenge.TRUTH_COUNT[neurons]
    assert written["result"]["categories_sha256"] == challenge.TRUTH_SHA256[neurons]


@pytest.mark.needs("mnist")
def test_official_files_through_every_format(tmp_path, mnist_file, capsys):
    """Stores of every layer and of inputs, then `infer`: recognised as official by digest, and passing."""
    net, inputs, out = tmp_path / "net.safetensors", tmp_path / "inputs.safetensors", tmp_path / "out.txt"
    assert spdnn("network", "make", "radixnet", "--neurons", 1024, "--layers", 120, "-o", net) == 0
    assert spdnn("inputs", "make", "mnist", "--neurons", 1024, "-o", inputs, "--mnist", mnist_file) == 0
    assert challenge.INPUT_SHA256[1024] in capsys.readouterr().out
    record = tmp_path / "run.json"
    assert spdnn("infer", "--network", net, "--inputs", inputs, "--categories", out, "--record", record) == 0
    assert read_record(record).problem.official == "1024-120"
    assert spdnn("verify", "--categories", out, "--truth", "official:1024") == 0
    assert spdnn("infer", "--network", net, "--inputs", inputs, "--truth", out, "--record", record) == 0
    assert read_record(record).problem.official is None  # a file judged it, not the official truth
    lines = out.read_text().splitlines()
    out.write_text("\n".join(lines[:-1]) + "\n")  # a correct prefix is not correct
    assert spdnn("verify", "--categories", out, "--truth", "official:1024") == 1
    assert f"the first is {lines[-1]}" in capsys.readouterr().err

    # Inputs are official by their bits, not by their word.
    found, official_network = read_inputs(inputs), RadixNet(1024, 120)
    assert official_problem(official_network, found)
    assert official_problem(official_network, found.first(500))
    assert official_problem(official_network, found.first(120_000))
    assert not official_problem(official_network, found.first(500).first(1000))
    forged = Inputs(np.where(np.arange(60_000)[:, None] < 100, found.data, 0), 1024, None, found.description)
    write_inputs(inputs, forged)
    assert not official_problem(official_network, read_inputs(inputs))


def test_what_cannot_be_written_is_refused_before_the_run(files, capsys):
    arguments = ["infer", *given(files), "--categories", files / "out.txt"]
    for more, sentence in (
        (["--record", files / "nowhere/run.json"], "does not exist; make that folder"),
        (["--record", files / "out.txt"], "two outputs cannot be one file"),
        (["--values", files / "top.npz", "--top", 41], "the 41 largest asked for (--top); the last layer has 40"),
        (["--truth", files / "nowhere.txt"], "there is no such file of categories"),
        (["--engine", "reference", "--record", files / "run.json"], "the float64 reference and cannot verify itself"),
    ):
        assert sentence in refused(capsys, *arguments, *more)
        assert not (files / "out.txt").exists()


CHALLENGE = ["challenge", "--neurons", "1024", "--layers", "3"]
MISTAKES = [
    (["challenge", "--neurons", "1000", "--layers", "3"], "1000 neurons have no official bias; they must be 1024,"),
    ([*CHALLENGE, "--inputs", "nowhere.safetensors"], "nowhere.safetensors: there is no such file of inputs"),
    ([*CHALLENGE, "--engine", "warp"], "engine 'warp' is not known"),
    ([*CHALLENGE, "--inputs", "digits", "--reductions", "all,dead"], "reduction 'all'"),
    ([*CHALLENGE, "--devices", "2"], "engine cpu has no setting devices; the engines taskgraph and"),
    ([*CHALLENGE, "--device", "1"], "--device 1: engine cpu runs on none; those that do: cuda, "),
    ([*CHALLENGE, "--no-join"], "engine cpu has no setting join; the engines taskgraph and"),
    (["infer", "--network", "nowhere.npz", "--inputs", "x.npy"], "nowhere.npz: there is no such model file"),
    (["network", "make", "radixnet", "--neurons", "48", "--layers", "1", "-o", "x.safetensors"], "48 neurons"),
    (["network", "import", "net.onnx", "-o", "o.npz"], "-o o.npz: the name of a model file must end with .safetensors"),
    ([*MAKE, "net.json"], "-o net.json: the name of a model file must end with .safetensors"),
    (["verify", "--categories", "nowhere.txt", "--truth", "official:1024"], "there is no such list of categories"),
    (["report", "nowhere.json", "-o", "x.html"], "nowhere.json: there is no such file or folder"),
    (["report", "https://example.org/r.json"], "https://example.org/r.json: this is a URL, and files are named by"),
    (["network", "info", "https://example.org/a.onnx"], "https://example.org/a.onnx: this is a URL"),
    (
        ["network", "info", "file:///x/a.onnx"],
        "file:///x/a.onnx: this is a URL, and files are named by their paths; leave",
    ),
    ([*CHALLENGE, "--record", "https://example.org/r.json"], "https://example.org/r.json: this is a URL"),
]


@pytest.mark.parametrize(("arguments", "sentence"), MISTAKES)
def test_a_mistake_is_one_sentence(arguments, sentence, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sentence in refused(capsys, *arguments)
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
    what = {"challenge": ["--neurons", 1024, "--layers", 120, "--inputs", "digits"], "infer": given(files)}
    said = refused(capsys, command, *what[command], "--engine", name, "--record", record)
    assert said.startswith(f"engine {name} cannot run here: {cupy_device.missing()}")
    assert not record.exists()


def test_engines_are_listed_with_what_is_missing(without_gpu, capsys):
    assert spdnn("info", "--seconds", "0.02") == 0
    said = capsys.readouterr().out
    assert re.search(r"^cpu +yes +dead, inputs, neurons  fused sparse product", said, re.MULTILINE)
    for name in ON_GPUS:
        assert re.search(rf"^{name} +no: {re.escape(cupy_device.missing())}  ", said, re.MULTILINE)
    assert len(ON_GPUS) == 6


@pytest.mark.parametrize("arguments", [
    ["infer"], ["challenge", "--neurons", "0"], ["infer", "--memory", "lots"], ["dance"], ["compare", "one"],
    ["compare", "one", "two", "three"], ["compare", "one", "two", "--sort", "size"],
])  # fmt: skip
def test_wrong_arguments_are_one_sentence_and_status_2(arguments, capsys):
    assert re.fullmatch(r"spdnn.*: .* \(see `spdnn.* --help`\)\n", misused(capsys, *arguments))


@pytest.mark.parametrize(("arguments", "meant"), [
    (["chalenge", "--neurons", "1024"], "challenge"), (["infer", "--lables", "y.npy"], "--labels"),
    (["network", "mke"], "make"),
    (["infer", "--network", "a", "--inputs", "b", "--label=y.npy"], "--labels"),
    (["challenge", "--neurons", "1024", "--layers", "1", "--partition", "statik"], "static"),
])  # fmt: skip
def test_a_typing_error_gets_the_nearest_word(arguments, meant, capsys):
    assert f" (did you mean {meant!r}?)" in misused(capsys, *arguments)


@pytest.mark.parametrize("arguments", [[], ["help"], ["help", "infer"], ["--help"]])
def test_help_is_shown_in_every_usual_way(arguments, capsys):
    with pytest.raises(SystemExit, match="^0$"):
        spdnn(*arguments)
    assert capsys.readouterr().out.startswith(f"usage: spdnn {'infer' if 'infer' in arguments else '[-h]'}")


@pytest.mark.parametrize(
    ("command", "said"),
    [("bench sets", "A sample is one float32 call"), ("bench spmm", ".smtx"), ("compare", "exit status: ")],
)
def test_help_ends_with_more_on_a_command(command, said, capsys):
    with pytest.raises(SystemExit, match="^0$"):
        spdnn(*command.split(), "--help")
    assert said in capsys.readouterr().out


def test_more_threads_than_cores_warn(files, capsys):
    assert spdnn("infer", *given(files), "--threads", 64) == 0
    assert "warning: 64 threads on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "size"), [("8000000000", 8 * 10**9), ("8GB", 8 * 10**9), ("7.5GiB", 15 * 2**29), ("8e9", 8 * 10**9)]
)
def test_sizes(text, size):
    words = ["infer", "--network", "x", "--inputs", "y", "--memory", text]
    assert parser(["infer"]).parse_args(words).memory == size


ALL_CLOSED = ">&- 2>&- <&-"
STREAMS = [  # (redirections, environment, status, what is said on standard error)
    *((closed, {}, 0, "") for closed in (">&-", "2>&-", "<&-", ALL_CLOSED, "2>/dev/full", ">/dev/null 2>&-")),
    (">/dev/full", {}, 1, "standard output cannot be written to (No space left on device); all else is done"),
    ("1</dev/null", {}, 1, "standard output cannot be written to (Bad file descriptor); all else is done"),
    (">/dev/full", {"PYTHONUNBUFFERED": "1"}, 1, "standard output cannot be written to (No space left on device)"),
    *(("", {"PYTHONIOENCODING": encoding}, 0, "") for encoding in ("ascii", "latin-1", "utf-8:strict")),
    ("", {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, 0, ""),
]


@pytest.mark.parametrize(
    ("streams", "environment", "status", "said"),
    [rung(*one, default=one[0] in (ALL_CLOSED, ">/dev/full") and not one[1]) for one in STREAMS],
)
def test_what_standard_streams_cannot_take_costs_no_record(files, streams, environment, status, said):
    """Streams that are closed, full or of an encoding without the letters of names; the record is written."""
    net, names = "net \u2013 \u00b5\u00d7.safetensors", "a\n\u00b5\n" + "\n".join(map(str, range(38)))
    (files / "net.safetensors").rename(files / net)
    (files / "names.txt").write_text(names, encoding="utf-8")
    os.rename(files / "x.npy", os.fsencode(files / "x") + b"\xff.npy")
    (files / "y.txt").write_text("1\n" * 300)
    words = f"infer --network '{net}' --inputs x*.npy --labels y.txt --classes names.txt --threads 1 --record run.json"
    command = f"'{sys.executable}' -m spdnn {words} {streams}"
    done, out, told = finished(["bash", "-c", command], cwd=files, env=os.environ | environment, errors="replace")
    assert (done, "" if not said else said in told) == (status, "" if not said else True)
    assert bool(said or not told), told
    assert "Traceback" not in out + told
    assert read_record(files / "run.json").verdict.passed
    if streams == ALL_CLOSED or (streams == ">/dev/full" and not environment):  # another command, which takes longer
        report = f"'{sys.executable}' -m spdnn report run.json -o '\u00b5.html' --csv all.csv {streams}"
        done, out, told = finished(["bash", "-c", report], cwd=files, env=os.environ | environment, errors="replace")
        assert (done, "Traceback" in told) == (status, False)
        assert (files / "all.csv").exists()


@pytest.mark.parametrize("streams", [">/dev/full", "| true", ">&-", "2>/dev/full >&2"])
def test_help_ends_quietly_where_nobody_reads_it(streams):
    done, _, told = finished(["bash", "-c", f"set -o pipefail; '{sys.executable}' -m spdnn --help {streams}"])
    assert (done, told) == (0, "")


def test_a_user_without_a_home_has_records(files):
    """As in a container whose user id has no name; and with a home that may not be read."""
    (files / "home").mkdir(mode=0)
    small = ["challenge", "--neurons", "1024", "--layers", "1", "--inputs", "digits", "--count", "4"]
    for home, words in (("", small), (f"HOME={files}/home", ["infer", *map(str, given(files))])):
        command = ["unshare", "--user", "--map-user=12345", "--map-group=12345", "env", "-i", *([home] if home else [])]
        command += [sys.executable, "-m", "spdnn"]
        if subprocess.run([*command[:6], "true"], capture_output=True, check=False).returncode:
            pytest.skip("no user namespaces here")
        record = files / "run.json"
        record.unlink(missing_ok=True)
        status, _, told = finished([*command, *words, "--threads", "1", "--record", str(record)])
        assert status == 0, told
        assert read_record(record).verdict.passed
    status, _, told = finished([*command, "record", "check", str(record)])
    assert (status, told) == (0, "")
    status, _, told = finished([*command, "challenge", "--neurons", "1024", "--layers", "1"])
    assert status == 1
    assert "Traceback" not in told


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stopped_run_leaves_nothing(tmp_path, number, status):
    """Of a network of 2 GB, for which room is kept."""
    make = ["network", "make", "radixnet", "--neurons", 65536, "--layers", 480, "-o", tmp_path / "net.safetensors"]

    def before():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)  # as no nohup

    least = {"preexec_fn": before}
    with started([sys.executable, "-m", "spdnn", *make], stderr=subprocess.PIPE, text=True, **least) as process:
        until(lambda: os.listdir(tmp_path), "something was written", process)
        process.send_signal(number)
        word = "interrupted" if number == signal.SIGINT else "terminated"
        assert ended(process)[::2] == (status, f"spdnn: {word}; nothing was written under a final name\n")
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_that_a_library_makes_an_error_of_ends_the_command_all_the_same(tmp_path, monkeypatch, number, status):
    def write(*given, **more):
        try:
            signal.raise_signal(number)
        except BaseException:
            raise TypeError("data type class") from None

    monkeypatch.setattr(store, "write_network", write)
    make = [*MAKE, tmp_path / "net.safetensors"]
    try:
        found = spdnn(*make)
    except SystemExit as ended:
        found = ended.code
    assert found == status


def test_an_empty_file_of_records_makes_no_page(tmp_path, capsys):
    (tmp_path / "empty.jsonl").touch()
    words = ("report", tmp_path / "empty.jsonl", "-o", tmp_path / "page.html")
    assert refused(capsys, *words).endswith("empty.jsonl: no records there")
    assert not (tmp_path / "page.html").exists()


def test_commands_run_without_docstrings_and_assertions(files):
    record = files / "run.json"
    for command in (["infer", *given(files), "--record", record], ["report", record, "-o", files / "report.html"]):
        ran = subprocess.run(
            [sys.executable, "-OO", "-m", "spdnn", *map(str, command)], capture_output=True, text=True, check=False
        )
        assert (ran.returncode, ran.stderr) == (0, "")
    assert read_record(record).verdict.passed


def test_a_shell_completes_commands_and_options(tmp_path, capsys):
    assert spdnn("completion", "bash") == 0
    (tmp_path / "completion.bash").write_text(capsys.readouterr().out)
    asked = """source completion.bash
    for words in "spdnn chal" "spdnn challenge --neur" "spdnn network im"; do
        COMP_WORDS=($words); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMPREPLY=()
        _shtab_spdnn spdnn; echo "${COMPREPLY[@]}"
    done"""
    run = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert [line.strip() for line in run.stdout.splitlines()] == ["challenge", "--neurons", "import"], run.stderr
