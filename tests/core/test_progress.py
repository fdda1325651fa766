"""Progress of long runs: what tqdm shows of it and when; bars on a terminal, lines in a log, silence elsewhere."""

import contextlib
import errno
import fcntl
import gc
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

import numpy as np
import pytest
from children import SECONDS, finished, started
from engine_cases import opened, rows

from spdnn.cli import main
from spdnn.core import progress
from spdnn.engines.taskgraph.settings import TaskgraphSettings
from spdnn.formats.inputs import write_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.store import write_network

LINE = re.compile(r"([^:]+): +\d+%\|.*\| (\d+)/(\d+) \[[\d:]+<[\d:?]+, ([\d,]+) inputs left, \S+ TeraEdges/s\]")


class Clock:
    """Seconds that pass when they are told to; `looks` counts who asks."""

    def __init__(self):
        self.now, self.looks = 1000.0, 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now


@pytest.fixture
def clock(monkeypatch):
    own = Clock()
    monkeypatch.setattr(progress, "time", own)
    monkeypatch.setattr("tqdm.std.time", own)
    return own


@pytest.fixture(autouse=True)
def process(monkeypatch):
    """A process that is one rank, and whose environment says nothing."""
    monkeypatch.setattr(progress, "_process", type(progress._process)(**vars(progress._process)))
    monkeypatch.delenv("TQDM_MININTERVAL", raising=False)


@pytest.fixture
def told(capsys):
    """A function: the lines on standard error since it was last called."""
    return lambda: capsys.readouterr().err.splitlines()


def numbers(lines):
    """(name, layers done, layers, inputs left) of each line of an inference."""
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(matches), lines
    return [(match[1], *(int(text.replace(",", "")) for text in match.groups()[1:])) for match in matches]


def test_an_inference_that_is_repeated_on_ranks(clock, told):
    progress.on_rank(0, 4)
    passed = progress.edges_passed([2_406_250] * 1920)
    for number in progress.repeats(2):
        clock.now += 20
        with progress.Inference(passed, 60_000) as stage:
            tell = stage.batch(60_000)
            clock.now += 10
            tell(480, np.int64(1953))
            tell(1920, 1812)
        line = "  25%|██▌       | 480/1920 [00:10<00:30, 1,953 inputs left, 6.93 TeraEdges/s]"
        last = " 100%|██████████| 1920/1920 [00:10<00:00, 1,812 inputs left, 27.7 TeraEdges/s]"
        name = f"inference {number + 1} of 2 on rank 0 of 4:"
        assert told() == [name + line, name + last]
    assert progress.inference_name() == "inference on rank 0 of 4"
    progress.on_rank(1, 4)
    with progress.Stage("read network", 3) as stage:
        clock.now += 31
        stage.advance()
    assert told() == []


def test_batches_at_different_layers_and_joined_ones(clock):
    with progress.Inference(progress.edges_passed([10, 20, 30]), 10, 3) as stage:
        first, second, third = (stage.batch(inputs) for inputs in (4, 4, 2))
        first(2, 3)
        second(1, 2)
        assert (stage.done, stage.total, stage.left, stage.edges) == (3, 9, 7, 4 * 30 + 4 * 10)
        second(2, 1)
        third(3, 0)
        stage.batch(8, 2, 4, 2)(3, 3)
        assert (stage.done, stage.left, stage.edges) == (9, 3, 10 * 60)
        clock.now += 2
        assert stage.postfix() == "3 inputs left, 3e-10 TeraEdges/s"


def test_lines_are_half_a_minute_apart_and_end_with_one(clock, told):
    for _ in progress.bar(range(239), "read inputs", 239):
        clock.now += 0.125
    assert told() == []  # a stage of less than half a minute says nothing
    clock.now, seen = 1000.0, []
    for _ in progress.bar(range(800), "read network", 800):
        clock.now += 0.125
        seen += [(clock.now - 1000, line) for line in told()]
    assert [when for when, _ in seen] == pytest.approx([30.125, 60.125, 90.125])
    assert seen[0][1] == "read network:  30%|███       | 240/800 [00:30<01:10,  8.00layer/s]"
    assert told() == ["read network: 100%|██████████| 800/800 [01:40<00:00,  8.00layer/s]"]


def test_bytes_and_totals_that_are_not_known(clock, told):
    with progress.Stage("fetch digits", 80_100_000, progress.BYTES, before=300_000) as stage:
        clock.now += 30
        stage.advance(12_000_000)
    with progress.Stage("read inputs", unit="batch") as stage:
        clock.now += 30
        stage.advance(1234)
    assert told()[::2] == ["fetch digits:  15%|█▌        | 12.3M/80.1M [00:30<02:49, 400kB/s]",
                           "read inputs: 1234batch [00:30, 41.13batch/s]"]  # fmt: skip


def test_where_nothing_is_due_a_layer_looks_at_the_clock(clock, told, monkeypatch):
    with progress.Inference(progress.edges_passed([7] * 1000), 50) as stage:
        tell, clock.looks = stage.batch(50), 0
        monkeypatch.setattr(stage, "postfix", lambda: pytest.fail("nothing is due"))
        for k in range(1, 1001):
            tell(k, 50)
        assert clock.looks == 1000
    assert told() == []


def test_without_tqdm_there_is_nothing(clock, told, monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(progress, "_tqdm", progress._tqdm.__wrapped__)
    for _ in progress.bar(range(3), "read network", 3):
        clock.now += 31
    assert told() == []


@pytest.mark.parametrize("terminal", [False, True])
def test_a_log_or_terminal_that_cannot_be_written_to_ends_no_run(monkeypatch, terminal):
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    asked = []

    class Full(io.StringIO):
        def isatty(self):
            return terminal

        def write(self, text):
            asked.append(text)
            raise OSError(errno.ENOSPC, "No space left on device")

    with contextlib.redirect_stderr(Full()):
        assert list(progress.bar(range(3), "read network", 3)) == [0, 1, 2]
    assert len(asked) >= 3


# ---- what engines tell, and keep ----


def deadly():
    """40 layers of 1024 and inputs of which many die."""
    return RadixNet(1024, 40), rows(300, 1024, kind="bits", density=np.linspace(0, 0.35, 300)[:, None])


ALL = ("dead", "inputs")
BATCHES = {"stream": 6, "resident": 5, "pipeline": 3}


@pytest.mark.parametrize(
    ("name", "reductions", "batches"),
    [("cpu", (), 1), *((name, ALL, count) for name in ("cpu", "spgemm") for count in (1, 5)), ("resident", ALL, 1)]
    + [(name, ("dead",), 1) for name in ("tiled", "csr", "scipy", "reference")]
    + [(name, ALL, count) for name, count in BATCHES.items()],
)
def test_an_engine_tells_the_survivors_of_its_layers(told, monkeypatch, name, reductions, batches):
    settings = TaskgraphSettings(name, 1 + (name == "pipeline"), batches=batches) if name in BATCHES else None
    session = opened("taskgraph" if settings else name, *deadly(), reductions, threads=2, settings=settings)
    if batches > 1 and not settings:
        session.batch = 300 // batches
    quiet = session.run()
    assert told() == []
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    stages = lambda: sum(isinstance(thing, progress.Stage) for thing in gc.get_objects())  # noqa: E731
    gc.collect()
    before = stages()  # of other tests, whose exceptions live on
    gc.disable()
    try:
        loud = session.run()
        assert stages() == before  # else what a stage reaches takes memory until Python next looks for cycles
    finally:
        gc.enable()
    assert loud.digest == quiet.digest
    np.testing.assert_array_equal(loud.survivors, quiet.survivors)
    _, layers, totals, left = zip(*numbers(told()), strict=True)
    assert layers == tuple(sorted(layers))
    assert layers[-1] == totals[-1] == 40 * batches
    assert left == tuple(sorted(left, reverse=True))
    assert left[-1] == loud.survivors[-1]
    assert batches > 1 or all(left == loud.survivors[[layer - 1 for layer in layers]])
    assert name in ("cpu", *BATCHES) or len(layers) >= 40  # else of each pass or task
    assert name != "cpu" or len(layers) >= (3 if reductions else 1)


def test_other_stages_tell_too(told, monkeypatch, tmp_path):
    network, inputs = deadly()
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    monkeypatch.setattr("spdnn.formats.container.DIGESTED_BYTES", 1 << 14)
    write_network(tmp_path / "net.safetensors", network)
    write_inputs(tmp_path / "in.safetensors", inputs)
    files = f"--network {tmp_path}/net.safetensors --inputs {tmp_path}/in.safetensors"
    assert main(["infer", *files.split(), "--truth", "oracle"]) == 0
    names = {line.partition(":")[0] for line in told()}
    assert names == {"write network", "write inputs", "read inputs", "prepare, biases", "prepare, identical neurons",
                     "weights", "inference", "measure the machine", "verify"}  # fmt: skip


# ---- the command, on a terminal and in a log ----


@pytest.fixture
def command(tmp_path):
    network, inputs = deadly()
    write_inputs(tmp_path / "in.safetensors", inputs)
    write_network(tmp_path / "net.safetensors", network, formula_ok=True)
    files = f"--network {tmp_path}/net.safetensors --inputs {tmp_path}/in.safetensors"
    return ["infer", *files.split(), "--engine", "csr", "--threads", "1", "--repeats", "2"]


def test_a_terminal_gets_a_bar_that_is_gone_at_the_end(command):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": theirs}
    environment = {**os.environ, "TQDM_MININTERVAL": "0"}
    with started([sys.executable, "-m", "spdnn", *command], **settings, env=environment) as process:
        os.close(theirs)
        sent = b""
        with contextlib.suppress(OSError):  # the last who had it open has closed it
            while part := os.read(ours, 1 << 16):
                sent += part
        assert process.stdout.read().startswith(b"active ")
        assert process.wait(SECONDS) == 0
    os.close(ours)
    *drawn, last, _ = sent.decode().split("\r")
    assert all(len(line) <= 80 for line in drawn)
    assert [line for line in drawn if re.match(r"inference 2 of 2:  30%\|.+\| 12/40 \[.*, \d+ inputs left, ", line)]
    assert not last.strip()


def test_a_log_gets_lines_where_tqdm_is_not_switched_off(command, tmp_path):
    program = (
        "import sys\nfrom spdnn.cli import main\nfrom spdnn.runs.workflow.jobs import log_errors\n"
        "with log_errors(sys.argv[1]):\n    sys.exit(main(sys.argv[2:]))\n"
    )
    for name, value in (("TQDM_MININTERVAL", "0"), ("TQDM_DISABLE", "1"), ("TQDM_MININTERVAL", "x")):
        environment = {**os.environ, name: value}
        status, out, _ = finished([sys.executable, "-c", program, tmp_path / "log", *command], env=environment)
        log = (tmp_path / "log").read_text()
        assert status == (value == "x")
        if value == "0":
            assert not re.search(r"[^\n -~█▏▎▍▌▋▊▉]", log)
            lines = [line for line in log.splitlines() if line.startswith("inference 2 of 2: ")]
            assert [layer for _, layer, _, _ in numbers(lines)] == [*range(1, 41)]
            assert int(out.split()[1]) == numbers(lines)[-1][3]
        elif value == "1":
            assert log == ""
        else:
            assert log.startswith("spdnn: an environment variable TQDM_* is not what tqdm takes: could not convert ")
            assert log.count("\n") == 1
