"""What goes wrong on one rank ends all of them: one sentence, a nonzero status, no hang, nothing left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from launched import Launched

from spdnn.records import read_record

SPDNN = (sys.executable, "-m", "spdnn")
SECONDS = 30  # in which a run that is ended has ended; far more than it takes


def sentences(text):
    return [line for line in text.splitlines() if line.startswith("spdnn: ") and "warning" not in line]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--network", "none.h5", "--inputs", "in.npy"], r"none\.h5: there is no such network"),
        (["--network", "net.npz", "--inputs", "wide.npy"], r"inputs of 7 neurons"),
        (["--network", "net.npz", "--inputs", "in.npy", "--engine", "warp"], r"engine 'warp' is not known"),
        (["--network", "net.npz", "--inputs", "in.npy", "--memory", "1MB"], "is too small for the 3 ranks"),
        (["--network", "net.npz", "--inputs", "in.npy", "--engine", "taskgraph", "--device-memory", "1kB"],
         r"device memory of 1,000 bytes is too small .* \(--device-memory\)"),
        (["--network", "net.npz", "--inputs", "in.npy", "--record", "no/run.json"], r"no does not exist"),
        (["--network", "big.npz", "--inputs", "in.npy", "--reductions", "none"], "layer 1 passed the range"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_once(mpiexec, folder, arguments, sentence):
    status, out, told = mpiexec(3, *SPDNN, "infer", *arguments, "--threads", "1", "--categories", "out.txt")
    assert status == 1, told
    assert len(sentences(told)) == 1, told
    assert re.search(rf"^spdnn: rank \d on \S+: .*{sentence}", sentences(told)[0])
    assert "Traceback" not in told
    assert "application called MPI_Abort" not in told or "big.npz" in arguments  # only what fails on the clock
    assert not out
    assert sorted(path.name for path in folder.iterdir()) == FILES


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


def test_the_memory_that_is_said_to_be_needed_is_enough(mpiexec, folder):
    command = [*SPDNN, "infer", "--network", "net.npz", "--inputs", "in.npy", "--threads", "1", "--memory"]
    _, _, told = mpiexec(3, *command, "1MB")
    needed = re.search(r"need about ([\d,]+)", told)[1]
    status, _, told = mpiexec(3, *command, needed.replace(",", ""))
    assert status == 0, told


@pytest.mark.parametrize("command", [["engines"], ["network", "info", "net.npz"]])
def test_what_is_of_one_process_refuses_several(mpiexec, folder, command):
    status, out, told = mpiexec(3, *SPDNN, *command)
    assert status == 1
    assert not out
    assert sentences(told) == [
        "spdnn: 3 processes were started, and this command takes one; challenge and infer take more"
    ]


def test_without_room_for_windows_ranks_have_copies(mpiexec, folder):
    (folder / "program.py").write_text(
        "import sys\n"
        "from spdnn.distributed import run, shared\n"
        "run.room = shared.room = lambda: 0\n"
        "from spdnn.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = ["infer", "--network", "net.npz", "--inputs", "in.npy", "--threads", "1", "--record", "run.json"]
    status, _, told = mpiexec(3, sys.executable, "program.py", *command, "--values", "three.npy")
    assert status == 0, told
    distribution = read_record("run.json")["distribution"]
    assert (distribution["weights"], distribution["shared_bytes"]) == ("a copy a rank", 0)
    status, _, told = mpiexec(1, *SPDNN, *command, "--values", "one.npy")
    assert status == 0, told
    np.testing.assert_array_equal(np.load("three.npy"), np.load("one.npy"))


def test_wrong_arguments_are_told_once(mpiexec):
    status, _, told = mpiexec(3, *SPDNN, "infer", "--partition", "odd")
    assert status == 2
    assert told.count("error:") == 1


def test_a_launcher_of_another_mpi_is_one_sentence():
    command = [*SPDNN, "challenge", "--neurons", "1024", "--layers", "2", "--inputs", "digits"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMPI_COMM_WORLD_SIZE": "2"}
    )
    assert done.returncode == 1
    assert "2 processes were started, but mpi4py's MPI" in sentences(done.stderr)[0]


ON_DEVICES = """
import os, sys
from pathlib import Path
from spdnn.cli import main
from spdnn.engines.cpu import CpuEngine

def device_identities(self):
    return {seen}[int(os.environ["PMI_RANK"])]

def opened(self, prepared, inputs, options, real=CpuEngine.open):
    Path(__file__).with_name("device-" + os.environ["PMI_RANK"]).write_text(str(options.device))
    return real(self, prepared, inputs, options)

CpuEngine.devices = lambda self: len(device_identities(self))
CpuEngine.device_identities, CpuEngine.open = device_identities, opened
sys.exit(main(["challenge", "--neurons", "1024", "--layers", "2", "--inputs", "digits", "--threads", "1"]))
"""


@pytest.mark.parametrize(
    ("seen", "devices"),
    [([("a", "b"), ("a", "b")], [0, 1]), ([("a",), ("b",)], [0, 0])],
    ids=["all see all", "each has its own"],
)
def test_ranks_take_devices(mpiexec, tmp_path, seen, devices):
    """The engine cpu needs no device: one that says so, on two ranks."""
    (tmp_path / "program.py").write_text(ON_DEVICES.format(seen=seen))
    status, _, told = mpiexec(2, sys.executable, tmp_path / "program.py")
    assert status == 0, told
    assert [int((tmp_path / f"device-{rank}").read_text()) for rank in range(2)] == devices


@pytest.mark.parametrize(
    ("seen", "sentence"),
    [
        ([("a",), ("a",)], ("rank 1 on", "engine cpu sees 1 devices")),
        ([("a",), ("b", "a")], ("rank 0 on", "ranks of node", "see 1, 2 devices, 2 different ones")),
    ],
    ids=["one for two", "others"],
)
def test_a_rank_without_a_device_refuses(mpiexec, tmp_path, seen, sentence):
    (tmp_path / "program.py").write_text(ON_DEVICES.format(seen=seen))
    status, _, told = mpiexec(2, sys.executable, tmp_path / "program.py")
    assert status == 1
    (found,) = sentences(told)
    assert all(part in found for part in sentence), found


def test_a_defect_shows_its_traceback_and_ends_all(mpiexec, tmp_path):
    (tmp_path / "program.py").write_text(
        "import sys\n"
        "from spdnn.distributed.world import world\n"
        "from spdnn.engines.cpu import CpuSession\n"
        "run = CpuSession.run\n"
        "def broken(self, meetings=None):\n"
        "    return run(self, meetings) if world().rank != 1 else 1 / 0\n"
        "CpuSession.run = broken\n"
        "from spdnn.cli import main\n"
        "sys.exit(main(['challenge', '--neurons', '1024', '--layers', '2', '--inputs', 'digits', '--threads', '1']))\n"
    )
    status, _, told = mpiexec(3, sys.executable, tmp_path / "program.py")
    assert status == 1
    assert told.count("ZeroDivisionError") == 1


@pytest.mark.parametrize(
    ("number", "whom", "status"),
    [
        (signal.SIGKILL, "rank", 9),
        (signal.SIGTERM, "rank", 143),
        (signal.SIGTERM, "mpiexec", 143),
        (signal.SIGINT, "mpiexec", 130),
    ],
)
def test_a_run_that_is_ended_from_outside_ends_within_seconds(tmp_path, number, whom, status):
    record = tmp_path / "run.json"
    launched = Launched(
        3, *SPDNN, "challenge", "--neurons", "1024", "--layers", "1920", "--inputs", "digits", "--reductions", "dead",
        "--threads", "1", "--repeats", "100000", "--record", record,
    )  # fmt: skip
    ranks = wait_for_ranks(record, 3)
    time.sleep(5)  # into the repeats, most of the time; wherever it is, it has to end
    os.kill(ranks[1] if whom == "rank" else launched.process.pid, number)
    found, _, told = launched.finish(SECONDS)
    assert found == status, told
    assert not list(tmp_path.iterdir())
    deadline = time.monotonic() + SECONDS
    while still := [process for process in ranks if Path(f"/proc/{process}").exists()]:
        assert time.monotonic() < deadline, f"processes {still} are left"
        time.sleep(0.1)


def wait_for_ranks(record, count):
    """The process numbers of the ranks whose command line names the record, in order of rank."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if str(record).encode() in (folder / "cmdline").read_bytes():
                    environment = dict(
                        entry.split(b"=", 1)
                        for entry in (folder / "environ").read_bytes().split(b"\0")
                        if b"=" in entry
                    )
                    if b"PMI_RANK" in environment:
                        found[int(environment[b"PMI_RANK"])] = int(folder.name)
            except OSError:
                continue
        if len(found) == count:
            return [found[rank] for rank in sorted(found)]
        time.sleep(0.1)
    pytest.fail("the ranks did not start")
