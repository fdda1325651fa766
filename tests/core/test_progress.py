"""Progress of long runs: what is told and when, an honest time to go, bars on a terminal, silence elsewhere."""

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
from spdnn.core import progress, progress_output
from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.features import Inputs
from spdnn.formats.inputs import write_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.store import write_network

WORDS = re.compile(
    r"(?:(?:batch (?P<batch>\d+) of (?P<batches>\d+), )?layer (?P<layer>[\d,]+) of (?P<depth>[\d,]+)"
    r"|(?P<done>[\d,]+) of (?P<total>[\d,]+) layers of \d+ batches), "
    r"(?P<left>[\d,]+) of (?P<inputs>[\d,]+) inputs left(?P<rest>.*)"
)


class Clock:
    """Seconds that pass when they are told to; `looks` counts who asks."""

    def __init__(self):
        self.now, self.looks = 1000.0, 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    for module in (progress, progress_output):
        monkeypatch.setattr(module, "monotonic", found)
    return found


@pytest.fixture(autouse=True)
def process(monkeypatch):
    """A process that has begun no run, is one rank, and whose environment says nothing."""
    monkeypatch.setattr(progress_output, "_run", progress_output._Run())
    monkeypatch.delenv(progress_output.VARIABLE, raising=False)


@pytest.fixture
def told(capsys):
    """A function: the lines on standard error since it was last called."""
    return lambda: capsys.readouterr().err.splitlines()


def told_of(lines):
    """What lines of an inference say, a dictionary of each: `left`, `rest`, and numbers of layers and batches."""
    found = [WORDS.fullmatch(line.partition(": ")[2]) for line in lines]
    assert all(found), lines
    number = lambda text: text if text is None or text.startswith(",") else int(text.replace(",", ""))  # noqa: E731
    return [{name: number(text or None) for name, text in one.groupdict().items()} for one in found]


def course(depth, edges):
    return progress.WorkProfile.of([edges] * depth, [edges] * depth)


def test_a_line_of_an_inference(clock, told):
    edges, rows_left = 2_406_250, 1953
    computed = rows_left * 1440 * edges * 30 / 12  # in the 30 s before the line, so that what is ahead takes 12
    with progress_output.repeat(1, 5), progress.Inference(course(1920, edges), 60_000) as stage:
        stage.begin(60_000, lambda k: (computed, rows_left))
        clock.now += 30
        stage.at(480, np.int64(1953))
        left = "inference 2 of 5: layer 480 of 1,920, 1,953 of 60,000 inputs left, 2.31 TeraEdges/s"
        assert told() == [f"{left}, 12 s to go"]
        clock.now += 20
        stage.at(1920, 1812)
        assert told() == []
    last = "inference 2 of 5: layer 1,920 of 1,920, 1,812 of 60,000 inputs left"
    assert told() == [f"{last}, 5.54 TeraEdges/s, done in 50 s"]


def test_lines_are_half_a_minute_apart_and_end_with_one(clock, told):
    for _ in progress.bar(range(299), "read inputs", 299):
        clock.now += 0.1
    assert told() == []  # a stage of less than half a minute says nothing
    clock.now = 1000.0
    seen = []
    for _ in progress.bar(range(1000), "read network", 1000):
        clock.now += 0.1
        seen += [(clock.now - 1000, line) for line in told()]
    assert [when for when, _ in seen] == pytest.approx([30.1, 60.1, 90.1], abs=0.2)
    assert seen[0][1] == "read network: layer 300 of 1,000, 10 layers/s, 1 min 10 s to go"
    assert told() == ["read network: layer 1,000 of 1,000, 10 layers/s, done in 1 min 40 s"]


def test_time_counts_over_the_stages_of_a_run_and_else_for_each(clock, told):
    def stages():
        for name in ("one", "two", "three"):
            with progress.Stage(name, 2, "file") as stage:
                clock.now += 20
                stage.advance()

    stages()
    assert told() == []
    progress_output.begin()
    stages()
    assert told() == ["two: file 1 of 2, 0.05 files/s, 20 s to go", "two: file 1 of 2, 0.05 files/s, done in 20 s"]
    clock.now += 10
    with progress.Stage("four", 2, "file"):
        assert told() == ["four: file 0 of 2"]  # 30 s after the last line


def test_an_error_is_the_last_word(clock, told):
    with pytest.raises(SpdnnError), progress.Stage("read inputs", 10, "block") as stage:
        clock.now += 31
        stage.advance()
        assert len(told()) == 1
        raise SpdnnError("damaged")
    assert told() == []


def test_bytes_and_totals_that_are_not_known(clock, told):
    with progress.Stage("fetch digits", 80_100_000, progress.BYTES, before=300_000) as stage:
        clock.now += 30
        stage.advance(12_000_000)
    with progress.Stage("read inputs", unit="batch") as stage:
        clock.now += 30
        stage.advance(1234)
    with progress.Stage("inference", 9, "issued batch", timed=False) as stage:
        clock.now += 30
        stage.advance(3)
    first, _, second, _, third, end = told()
    assert first == "fetch digits: 12.3 MB of 80.1 MB, 400 kB/s, 2 min 50 s to go"
    assert second == "read inputs: 1,234 batches, 41.1 batches/s"
    assert third == "inference: issued batch 3 of 9"
    assert end == "inference: issued batch 3 of 9, done in 30 s"


def test_durations():
    told = {0.04: "0.0 s", 9.94: "9.9 s", 9.96: "10 s", 59.6: "1 min 0 s", 3599.4: "59 min 59 s", 3600: "1 h 0 min",
            86_399: "23 h 59 min", 100_000: "1 d 3 h"}  # fmt: skip
    assert {seconds: progress_output.duration(seconds) for seconds in told} == told


def left(line):
    """Seconds to go, to half a second or a hundredth."""
    minutes, seconds = re.search(r"(?:(\d+) min )?([\d.]+) s to go$", line).groups()
    return 60 * int(minutes or 0) + float(seconds)


def test_time_to_go_is_of_the_rows_that_are_left(clock, told, monkeypatch):
    """Constant rate of edges really computed; 60,000 rows for the first 10 of 200 layers, 600 after them."""
    monkeypatch.setenv(progress_output.VARIABLE, "lines=0.5")
    edges, rate, computed = 1000, 6e6, 0
    rows_of = [60_000 if k < 10 else 600 for k in range(200)]
    seconds = [rows * edges / rate for rows in rows_of]
    with progress.Inference(course(200, edges), 60_000) as stage:
        stage.begin(60_000, lambda k: (computed, rows_of[k]))
        for k, spent in enumerate(seconds):
            clock.now += spent
            computed += rows_of[k] * edges
            stage.at(k + 1, rows_of[k])
            for line in told():
                done = k + 1
                if 10 <= done < 200:
                    truth, by_mean = sum(seconds[done:]), sum(seconds[:done]) / done * (200 - done)
                    assert left(line) == pytest.approx(truth, abs=0.5 if truth > 9.9 else 0.06)
                    assert by_mean > 5 * truth
                elif done < 10:  # as if no more rows would die
                    assert left(line) == pytest.approx(10.0 * (200 - done), abs=0.5)


def test_batches_to_come_cost_what_those_before_them_did(clock, told, monkeypatch):
    """Three batches of which nine tenths die at layer 4 of 40."""
    monkeypatch.setenv(progress_output.VARIABLE, "lines=0")
    computed, rate = 0, 1000.0
    rows_of = [1000 if k < 4 else 100 for k in range(41)]
    whole = sum(rows_of[:40])
    with progress.Inference(course(40, 1), 3000, 3) as stage:
        for batch in range(3):
            stage.begin(1000, lambda k: (computed, rows_of[k]))  # noqa: B023
            for k in range(40):
                clock.now += rows_of[k] / rate
                computed += rows_of[k]
                stage.at(k + 1, rows_of[k + 1])
                line = told()[-1] if (batch, k) != (2, 39) else None
                if line and (batch, k) > (0, 2):
                    assert f"batch {batch + 1} of 3, layer {k + 1} of 40, " in line
                    truth = (3 * whole - computed) / rate
                    # a batch on its way is taken to cost no more than a whole one of those before it
                    assert truth - 0.5 <= left(line) <= truth + (4.0 if batch else 0.0) + 0.5


def test_work_ahead():
    assert progress.work_ahead([], [], 10) is None
    assert progress.work_ahead([], [(0, 0, 0)], 10) is None
    assert progress.work_ahead([], [(4, 6.0, 2.0)], 10) == 2 + 2 * 6
    assert progress.work_ahead([(4, 6.0, 2.0)], [(2, 0.0, 100.0)], 10) == 2 + 2 * 2 + 2 * 4
    assert progress.work_ahead([(4, 6.0, 2.0)], [(2, 3.0, 1.0)], 10) == 2 + 1 + 2 * 4


def test_time_to_go_that_is_not_known_is_left_out(clock, told, monkeypatch):
    monkeypatch.setenv(progress_output.VARIABLE, "lines=1")
    with progress.Inference(course(9, 5), 100) as stage:
        stage.begin(100, lambda k: (0, 100))  # nothing was computed yet
        clock.now += 1
        stage.at(3, 50)
        assert told() == ["inference: layer 3 of 9, 50 of 100 inputs left, 1.5e-09 TeraEdges/s"]


def test_the_variable(monkeypatch):
    chosen = {"off": ("off", np.inf), "bar": ("bar", 0.1), "bar=2": ("bar", 2.0), "lines": ("lines", 30.0),
              "lines=5": ("lines", 5.0), "lines=0": ("lines", 0.0), "": ("lines", 30.0)}  # fmt: skip
    for text, how in chosen.items():
        monkeypatch.setenv(progress_output.VARIABLE, text)
        assert progress_output.output_mode() == how


@pytest.mark.parametrize("text", ["on", "lines=", "lines=-1", "lines=nan", "lines=inf", "off=3", "=5"])
def test_another_value_is_one_sentence(monkeypatch, capsys, text):
    monkeypatch.setenv(progress_output.VARIABLE, text)
    sentence = f"environment variable SPDNN_PROGRESS={text!r}: it must be off, bar, lines, or one of the last two with "
    with pytest.raises(InputError, match=re.escape(sentence)), progress.Stage("read network", 3):
        pass
    assert main(["info"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith(f"spdnn: {sentence}")


@pytest.mark.parametrize("how", ["off", "lines", "bar=1000"])
def test_where_nothing_is_due_a_layer_looks_at_the_clock_and_writes_nothing(clock, told, monkeypatch, how):
    monkeypatch.setenv(progress_output.VARIABLE, how)
    asked = []
    with progress.Inference(course(1000, 7), 50) as stage:
        stage.begin(50, lambda k: asked.append(1) or (0, 1))
        asked.clear()
        clock.looks = 0
        for k in range(1, 1001):
            stage.at(k, 50)
        assert clock.looks == 1000
        assert asked == []
    assert told() == []


def test_one_of_several_ranks_tells_of_its_part(clock, told):
    def run():
        with progress_output.repeat(0, 2), progress.Inference(course(4, 7), 50) as stage:
            stage.begin(50, lambda k: (1, 1))
            clock.now += 31
            stage.at(2, 40)

    progress_output.on_rank(0, 4)
    run()
    assert told()[0].startswith("inference 1 of 2 on rank 0 of 4: layer 2 of 4, 40 of 50 inputs left, ")
    progress_output.on_rank(1, 4)
    run()
    assert told() == []


def test_a_terminal_without_tqdm_gets_lines(clock, told, monkeypatch):
    monkeypatch.setenv(progress_output.VARIABLE, "bar")
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress.Stage("read network", 3) as stage:
        clock.now += 31
        stage.advance()
        assert told() == ["read network: layer 1 of 3, 0.0323 layers/s, 1 min 2 s to go"]


@pytest.mark.parametrize("how", ["lines=0", "bar=0"])
def test_a_log_or_terminal_that_cannot_be_written_to_ends_no_run(clock, monkeypatch, how):
    monkeypatch.setenv(progress_output.VARIABLE, how)
    asked = []

    class Full(io.StringIO):
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


@pytest.mark.parametrize(
    ("name", "reductions"),
    [("cpu", ()), *((name, ("dead", "inputs")) for name in ("cpu", "tiled", "csr", "spgemm", "scipy", "reference"))],
)
def test_an_engine_tells_the_survivors_of_its_layers(told, monkeypatch, name, reductions):
    network, inputs = deadly()
    taken = tuple(reduction for reduction in reductions if reduction == "dead" or name in ("cpu", "spgemm"))
    session = opened(name, network, inputs, taken)
    monkeypatch.setenv(progress_output.VARIABLE, "off")
    quiet = session.run()
    assert told() == []
    monkeypatch.setenv(progress_output.VARIABLE, "lines=0")
    loud = session.run()
    assert loud.digest == quiet.digest
    np.testing.assert_array_equal(loud.survivors, quiet.survivors)
    first, *lines = found = told_of(told())
    assert (first["layer"], first["left"], first["rest"]) == (0, 300, None)
    assert len(found) >= (40 if name != "cpu" else 3 if taken else 2)  # cpu: of each pass
    for line in lines:
        assert (line["depth"], line["inputs"]) == (40, 300)
        assert line["left"] == loud.survivors[line["layer"] - 1]
        assert " TeraEdges/s, " in line["rest"]
    assert all(re.search(r" to go$", line["rest"]) for line in lines[:-1])
    assert lines[-1]["layer"] == 40
    assert ", done in " in lines[-1]["rest"]


@pytest.mark.parametrize("name", ["cpu", "spgemm", "scipy", "taskgraph"])
def test_nothing_of_a_run_is_kept_by_its_stage(name):
    """Else the features of a run, which it reaches, would take memory until Python next looks for cycles."""
    network, inputs = deadly()
    session = opened(name, network, inputs, ("dead",))
    stages = lambda: [thing for thing in gc.get_objects() if isinstance(thing, progress.Stage)]  # noqa: E731
    gc.collect()
    before = stages()  # of other tests, whose exceptions live on
    gc.disable()
    try:
        session.run()
        assert len(stages()) == len(before)
    finally:
        gc.enable()


@pytest.mark.parametrize("name", ["cpu", "spgemm"])
def test_an_engine_tells_of_each_batch(told, monkeypatch, name):
    network, inputs = deadly()
    session = opened(name, network, inputs, ("dead",))
    session.batch = 60
    monkeypatch.setenv(progress_output.VARIABLE, "lines=0")
    told()
    result = session.run()
    lines = told_of(told())
    assert {line["batch"] for line in lines} == set(range(1, 6))
    assert all(line["batches"] == 5 for line in lines)
    ends = [line["left"] for line in lines if line["layer"] == 40 and "done in" not in line["rest"]]
    assert sum(ends) + lines[-1]["left"] == result.survivors[-1]  # the last batch has its end alone


@pytest.mark.parametrize("asked", [
    {"schedule": "stream", "batches": 6}, {"schedule": "resident", "batches": 5}, {"schedule": "resident"},
    {"schedule": "pipeline", "devices": 2, "batches": 3},
])  # fmt: skip
def test_the_task_graph_tells_of_all_its_batches(told, monkeypatch, asked):
    from spdnn.engines.taskgraph.settings import TaskgraphSettings

    network, inputs = deadly()
    session = opened("taskgraph", network, inputs, ("dead", "inputs"), threads=2, settings=TaskgraphSettings(**asked))
    monkeypatch.setenv(progress_output.VARIABLE, "off")
    quiet = session.run()
    monkeypatch.setenv(progress_output.VARIABLE, "lines=0")
    told()
    loud = session.run()
    assert loud.digest == quiet.digest
    lines = told_of(told())
    batches = asked.get("batches", 1)
    counts = [line["layer"] if batches == 1 else line["done"] for line in lines]
    assert counts == sorted(counts)
    assert counts[-1] == (lines[-1]["depth"] if batches == 1 else lines[-1]["total"]) == 40 * loud.notes["batches"]
    remaining = [line["left"] for line in lines]
    assert remaining == sorted(remaining, reverse=True)
    assert (remaining[0], remaining[-1]) == (300, loud.survivors[-1])
    assert any(line["rest"] and line["rest"].endswith(" to go") for line in lines)


def test_other_stages_tell_too(told, monkeypatch, tmp_path):
    network, inputs = deadly()
    monkeypatch.setenv(progress_output.VARIABLE, "lines=0")
    write_network(tmp_path / "net.safetensors", network)
    write_inputs(tmp_path / "in.safetensors", inputs)
    given = [
        "--network",
        str(tmp_path / "net.safetensors"),
        "--inputs",
        str(tmp_path / "in.safetensors"),
        "--truth",
        "oracle",
    ]
    assert main(["infer", *given]) == 0
    names = {line.partition(":")[0] for line in told()}
    assert names == {"write network", "write inputs", "read inputs", "prepare, biases", "prepare, identical neurons",
                     "weights", "inference", "verify"}  # fmt: skip


# ---- the command, on a terminal and in a log ----


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("progress")
    random = np.random.default_rng(0)
    ones = random.random((300, 1024)) < np.linspace(0.1, 0.4, 300)[:, None]
    write_inputs(folder / "in.safetensors", Inputs.from_array(ones))
    write_network(folder / "net.safetensors", RadixNet(1024, 30), formula_ok=True)
    return folder


def arguments(files, folder, name):
    outputs = ["--categories", folder / f"{name}.txt", "--values", folder / f"{name}.npy"]
    given = [
        "--network",
        files / "net.safetensors",
        "--inputs",
        files / "in.safetensors",
        "--engine",
        "csr",
        "--threads",
        "1",
    ]
    return list(map(str, ["infer", *given, "--repeats", "2", *outputs]))


def test_a_log_gets_lines_and_the_output_is_the_same(files, tmp_path, monkeypatch, capsys):
    found = {}
    for how in ("off", "lines", "lines=0"):
        monkeypatch.setenv(progress_output.VARIABLE, how)
        assert main(arguments(files, tmp_path, how)) == 0
        found[how] = capsys.readouterr()
    assert found["off"].err == found["lines"].err == ""  # a short run says nothing unless it is asked to
    outputs = {tuple(re.findall(r"^categories.*|^verdict.*", one.out, re.MULTILINE)) for one in found.values()}
    assert len(outputs) == 1
    for ending in ("txt", "npy"):
        assert len({(tmp_path / f"{how}.{ending}").read_bytes() for how in found}) == 1
    for turn in (1, 2):
        mine = [line for line in found["lines=0"].err.splitlines() if line.startswith(f"inference {turn} of 2: ")]
        assert [one["layer"] for one in told_of(mine)] == [*range(31)]
        assert re.search(r"layer 12 of 30, \d+ of 300 inputs left, [\d.e-]+ TeraEdges/s, [\d.]+ s to go$", mine[12])
    assert int(found["off"].out.split()[1]) == told_of(mine)[-1]["left"]


def on_terminal(arguments, columns, **environment):
    """(exit status, standard output, what a terminal so wide was sent)."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": theirs}
    with started(arguments, **settings, env={**os.environ, **environment}) as process:
        os.close(theirs)
        sent = b""
        while True:
            try:
                part = os.read(ours, 1 << 16)
            except OSError:  # the last who had it open has closed it
                part = b""
            if not part:
                break
            sent += part
        out = process.stdout.read().decode()
        process.wait(SECONDS)
    os.close(ours)
    return process.returncode, out, sent.decode()


def test_a_terminal_gets_a_bar_with_the_survivors(files, tmp_path):
    command = [sys.executable, "-m", "spdnn", *arguments(files, tmp_path, "run")]
    status, out, sent = on_terminal(command, 80, SPDNN_PROGRESS="bar=0", COLUMNS="")
    assert status == 0
    assert out.startswith("active ")
    drawn = [line for line in re.split(r"[\r\n]+", sent) if line.strip()]
    bars = [line for line in drawn if line.startswith("inference 2 of 2: ")]
    assert all(len(line) < 80 for line in drawn)
    words = r"inference 2 of 2: layer 12/30, \d+ left, [\d.e-]+ TeraEdges/s, [\d.]+ s to go \|.+\|"
    assert [line for line in bars if re.fullmatch(words, line)]
    assert not "".join(sent.rsplit("\r", 2)[1:]).strip()  # the line is left empty


def test_a_terminal_gets_a_bar_by_itself():
    class Terminal:
        def isatty(self):
            return True

    with contextlib.redirect_stderr(Terminal()):
        assert progress_output.output_mode() == ("bar", 0.1)


def test_the_log_of_a_script_of_the_workflow_gets_the_lines(tmp_path):
    program = (
        "import sys\nfrom spdnn.runs.workflow.jobs import log_errors\n"
        "with log_errors(sys.argv[1]):\n"
        "    import numpy, spdnn\n"
        "    ones = numpy.ones((5, 1024), numpy.float32)\n"
        "    spdnn.infer(spdnn.RadixNet(1024, 6), spdnn.Inputs.from_array(ones), threads=1)\n"
    )
    for how, expected in (("lines=0", 0), ("on", 1)):
        environment = {**os.environ, progress_output.VARIABLE: how}
        status, out, told = finished([sys.executable, "-c", program, tmp_path / "log"], env=environment)
        log = (tmp_path / "log").read_text()
        assert status == expected
        if how == "on":
            assert told == log
            assert log.startswith("spdnn: environment variable SPDNN_PROGRESS='on': ")
        else:
            assert (out, told) == ("", "")
            assert "inference: layer 0 of 6, 5 of 5 inputs left\n" in log
            assert re.search(r"inference: layer 6 of 6, \d of 5 inputs left, .* TeraEdges/s, done in ", log)
