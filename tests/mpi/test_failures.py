"""What goes wrong on one rank ends all of them: one sentence, a nonzero status, no hang, nothing left behind."""

import contextlib
import os
import re
import signal
import sys

import numpy as np
import psutil
import pytest
import scipy.sparse as sp
from children import ended, finished, until
from launched import SPDNN, launched, mpiexec

pytestmark = pytest.mark.xdist_group("ranks")
full = pytest.mark.full("ranks")


def sentences(text):
    return [line for line in text.splitlines() if line.startswith("spdnn: ") and "warning" not in line]


STATED = ["--last", "relu", "--rows", "inputs"]
IN_FILE = ["--network", "net.npz", *STATED, "--inputs", "in.npy"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([*IN_FILE, "--memory", "1MB"], "is too small for the 2 ranks"),
        (["--network", "big.npz", *STATED, "--inputs", "in.npy", "--reductions", "none"], "layer 1 passed the range"),
        pytest.param(["--network", "none.safetensors", "--inputs", "in.npy"],
                     r"none\.safetensors: there is no such model file", marks=full),
        pytest.param([*IN_FILE, "--engine", "warp"], r"engine 'warp' is not known", marks=full),
        pytest.param(["--network", "net.npz", *STATED, "--inputs", "wide.npy"], r"wide\.npy is \(9, 7\)", marks=full),
        pytest.param([*IN_FILE, "--engine", "taskgraph", "--device-memory", "1kB"],
                     r"device memory of 1,000 bytes is too small .* \(--device-memory\)", marks=full),
    ],
)  # fmt: skip
def test_a_mistake_is_told_once(folder, arguments, sentence):
    status, out, told = mpiexec(2, *SPDNN, "infer", *arguments, "--threads", "1", "--categories", "out.txt")
    assert status == 1, told
    assert len(sentences(told)) == 1, told
    assert re.search(rf"^spdnn: (rank \d on \S+: )?.*{sentence}", sentences(told)[0])
    assert "Traceback" not in told
    assert "application called MPI_Abort" not in told or "big.npz" in arguments  # only what fails on the clock
    assert not out
    assert sorted(path.name for path in folder.iterdir()) == FILES
    if "1MB" in arguments:  # what is said to be needed is enough
        needed = re.search(r"need about ([\d,]+)", told)[1].replace(",", "")
        status, _, told = mpiexec(2, *SPDNN, "infer", *IN_FILE, "--threads", "1", "--memory", needed)
        assert status == 0, told


FILES = ["big.npz", "in.npy", "net.npz", "wide.npy"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder, the current one, with a network, one whose values pass float32 on the last rank alone, and inputs."""
    monkeypatch.chdir(tmp_path)
    sp.save_npz("net.npz", sp.random_array((5, 5), density=0.9, rng=np.random.default_rng(1), format="csc"))
    sp.save_npz("big.npz", sp.csc_array(np.full((5, 5), 3e38)))
    rows = np.zeros((9, 5), np.float32)
    rows[-1] = 4
    np.save("in.npy", rows)
    np.save("wide.npy", np.ones((9, 7), np.float32))
    return tmp_path


BEFORE = """
import os, sys
from spdnn.cli import main
files = "infer --network net.npz --last relu --rows inputs --inputs in.npy".split()
statuses = [main([*files, "--record=no/run.json"])]
statuses += [main(["info"]), main("network info net.npz --last relu --rows inputs".split())]
assert statuses == [1] * 3
main(["infer", "--partition", "odd"])
"""


def test_what_is_refused_before_the_ranks_meet_is_told_once(folder):
    status, out, told = mpiexec(2, sys.executable, "-c", BEFORE)
    assert status == 2, told
    assert not out
    assert "Traceback" not in told
    several = "2 processes were started, and this command takes one; challenge and infer take more"
    expected = ["no does not exist", several, several]
    found = sentences(told)
    assert [part in line for part, line in zip(expected, found, strict=True)] == [True] * 3, found
    assert told.count("spdnn infer: ") == 1
    assert sorted(path.name for path in folder.iterdir()) == FILES


def test_a_variable_that_tqdm_does_not_take_is_told_once(folder):
    status, _, told = mpiexec(2, *SPDNN, "infer", *IN_FILE, TQDM_MININTERVAL="x")
    assert status == 1
    (found,) = sentences(told)
    assert "an environment variable TQDM_* is not what tqdm takes: could not convert string to float: 'x'" in found


@pytest.mark.parametrize(
    ("environment", "sentence"),
    [
        ({}, "2 processes were started, but mpi4py's MPI"),
        ({"SPDNN_CONNECT_SECONDS": "soon"}, "SPDNN_CONNECT_SECONDS is 'soon'"),
    ],
)
def test_ranks_that_cannot_meet_are_one_sentence(environment, sentence):
    """Of another MPI's launcher: one process, whose mpi4py sees no other."""
    command = [*SPDNN, "challenge", "--neurons", "1024", "--layers", "2", "--inputs", "digits"]
    status, _, told = finished(command, env={**os.environ, "OMPI_COMM_WORLD_SIZE": "2", **environment})
    assert status == 1
    assert sentence in sentences(told)[0]


ON_DEVICES = """
import os, sys
from pathlib import Path
from spdnn.cli import main
from spdnn.engines.cpu.engine import CpuEngine

def device_identities(self):
    return {seen}[int(os.environ["PMI_RANK"])]

def opened(self, prepared, inputs, options, real=CpuEngine.open):
    Path(__file__).with_name("device-" + os.environ["PMI_RANK"]).write_text(str(options.device))
    return real(self, prepared, inputs, options)

CpuEngine.on_device = True
CpuEngine.device_identities, CpuEngine.open = device_identities, opened
challenge = "challenge --neurons 1024 --layers 2 --inputs digits --count 20 --threads 1".split()
status = main([*challenge, *sys.argv[1:]])
"""


DEFECT = """
from spdnn.engines.cpu.session import CpuSession
from spdnn.runs.world import world
run = CpuSession.run
CpuSession.run = lambda self, exchange=None: run(self, exchange) if world().rank != 1 else 1 / 0
main(challenge)
"""


def test_ranks_take_devices_and_a_defect_shows_its_traceback_and_ends_all(tmp_path):
    """The engine cpu needs no device: one that says so, on three ranks that see all."""
    (tmp_path / "program.py").write_text(ON_DEVICES.format(seen=[("a", "b", "c")] * 3) + DEFECT)
    status, _, told = mpiexec(3, sys.executable, tmp_path / "program.py")
    assert status == 1
    assert told.count("ZeroDivisionError") == 1
    assert [int((tmp_path / f"device-{rank}").read_text()) for rank in range(3)] == [0, 1, 2]


@full
@pytest.mark.parametrize(
    ("seen", "said", "taken", "sentence"),
    [
        ([("a",), ("b",)], [], [0, 0], ()),
        ([("a", "b")] * 2, ["--device", "1"], [1, 1], ()),
        ([("a",), ("a",)], [], [], ("rank 1 on", "engine cpu sees 1 devices")),
        ([("a",), ("b", "a")], [], [], ("rank 0 on", "ranks of node", "see 1, 2 devices, 2 different ones")),
    ],
    ids=["its own", "the one that was named", "one for two", "others"],
)
def test_each_rank_has_its_device_or_refuses(tmp_path, seen, said, taken, sentence):
    (tmp_path / "program.py").write_text(ON_DEVICES.format(seen=seen) + "sys.exit(status)\n")
    status, _, told = mpiexec(2, sys.executable, tmp_path / "program.py", *said)
    assert status == bool(sentence), told
    assert all(part in sentences(told)[0] for part in sentence), told
    assert len(sentences(told)) == bool(sentence)
    assert [int(path.read_text()) for path in sorted(tmp_path.glob("device-*"))] == taken


def test_a_rank_that_never_comes_ends_all(tmp_path):
    """A launcher says nothing of one that ended by itself before MPI was started."""
    (tmp_path / "program.py").write_text(
        "import os, sys\n"
        "from spdnn.cli import main\n"
        "command = 'challenge --neurons 1024 --layers 2 --inputs digits --count 20 --threads 1'\n"
        "sys.exit(3 if os.environ['PMI_RANK'] == '1' else main(command.split()))\n"
    )
    status, _, told = mpiexec(3, sys.executable, tmp_path / "program.py", SPDNN_CONNECT_SECONDS="1")
    assert status
    first, *_ = sentences(told)  # and of another rank that began earlier
    assert "of 3 ranks not all were there within 1 s" in first


@pytest.mark.parametrize(
    ("number", "whom", "status"),
    [
        (signal.SIGTERM, "rank", 143),
        pytest.param(signal.SIGTERM, "mpiexec", 143, marks=full),
        pytest.param(signal.SIGINT, "mpiexec", 130, marks=full),
    ],
)
def test_a_run_that_is_ended_from_outside_leaves_nothing(tmp_path, number, whom, status):
    record, log = tmp_path / "run.json", tmp_path / "log"
    given = ["--neurons", 1024, "--layers", 480, "--inputs", "digits", "--count", 1000, "--reductions", "dead"]
    given += ["--threads", 1, "--repeats", 100_000, "--record", record]
    with (
        open(log, "w") as stream,
        launched(3, *SPDNN, "challenge", *given, stderr=stream, TQDM_MININTERVAL="0") as process,
    ):
        until(lambda: "inference" in log.read_text(), "inference began", process)
        ranks = until(lambda: ranks_of(record, 3), "three ranks were there", process)
        os.kill(ranks[1].pid if whom == "rank" else process.pid, number)
        assert ended(process)[0] == status, log.read_text()
        until(lambda: not any(map(lives, ranks)), "all ranks had ended")
    assert os.listdir(tmp_path) == ["log"]


def ranks_of(record, count):
    """The processes, as many, whose command line names the record, in order of rank; None while there are fewer."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(record) in process.cmdline() and "PMI_RANK" in process.environ():
                found[int(process.environ()["PMI_RANK"])] = process
    return [found[rank] for rank in sorted(found)] if len(found) == count else None


def lives(process):
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE
    return False
