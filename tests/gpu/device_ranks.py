"""MPI ranks on GPUs: the output of one rank, a device for each rank where there are several, and an end when one fails.

This file is the program of each rank, `device_ranks.py ARGUMENTS of spdnn`: each prints which devices it opens.
"""

import importlib.util
import json
import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from tally import NotHere, Tally, TooLittleTime, child, last_line

from spdnn.core.errors import SpdnnError
from spdnn.formats.mnist import locate_mnist
from spdnn.kernels.cuda import cupy_device

SHARING = (2, 4)  # ranks on one device
MOST = 8  # ranks with a device each
SECONDS = 120  # that a run may take
MPIEXEC = Path(sys.executable).parent / "mpiexec"  # of the MPI that mpi4py uses
OWN, OPENS = "own", "device_ranks: rank {} opens {}\n"
PROBLEM = ["--neurons", 1024, "--layers", 120]
DIGITS = ["--inputs", "digits", "--count", 3000]  # where there are no MNIST images


def run(tally: Tally, mnist: str | None, device: int | None) -> None:
    """All of it; `mnist`: the file of MNIST images, None: that of the mirror; `device`: the one that is shared."""
    shared, there = device or 0, cupy_device.count()
    problem = ["challenge", *PROBLEM, *images(mnist)]
    one = tally.case("1 rank", lambda: digest(1, shared, problem))
    tally.case("a rank that fails ends the run", lambda: one_fails(shared))
    if one is None:
        return
    for ranks in SHARING:
        tally.case(f"{ranks} ranks on one device", lambda ranks=ranks: same(one, ranks, shared, problem))
    several = min(there, MOST)
    tally.case(f"{several} ranks on {several} devices", lambda: same(one, several, OWN, problem))
    cut = [*problem, "--engine", "taskgraph-cuda", "--devices", there]
    tally.case(f"taskgraph-cuda on {there} devices", lambda: same(one, 1, OWN, cut))


def images(mnist: str | None) -> list:
    """The arguments that name the inputs: MNIST, with the official ground truth, or digits where there is none."""
    if mnist:
        return ["--inputs", "mnist", "--mnist", mnist]
    try:
        locate_mnist(None)
    except SpdnnError:
        return DIGITS
    return ["--inputs", "mnist"]


def launched(ranks: int, arguments: list):
    """spdnn on so many ranks, once it has ended.

    Raises:
        NotHere: no MPI is installed; AssertionError: it did not end.
    """
    if not MPIEXEC.exists() or importlib.util.find_spec("mpi4py") is None:
        raise NotHere(f"mpi4py and the mpiexec of its MPI are not installed next to {sys.executable}")
    try:
        return child([MPIEXEC, "-n", ranks, sys.executable, __file__, *arguments], SECONDS)
    except TooLittleTime:
        raise AssertionError(f"no end within {SECONDS} s") from None


def digest(ranks: int, device: int | str, problem: list) -> str:
    """Run a problem, which is verified; the digest of its output.

    Raises:
        AssertionError: it failed, or ranks did not take the devices that they should.
    """
    number = [] if device == OWN else ["--device", device]
    engine = [] if "--engine" in problem else ["--engine", "cuda"]
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder) / "run.json"
        done = launched(ranks, [*problem, *engine, *number, "--record", record])
        assert done.returncode == 0, last_line(done)
        assert record.exists(), f"exit status 0 and no record: {last_line(done)}"
        found = json.loads(record.read_text())
    opened = set(re.findall(OPENS.format(r"(\d+)", "(.+)"), done.stderr))
    assert len({rank for rank, _ in opened}) == found["ranks"] == ranks, f"{found['ranks']} ranks of {ranks}: {opened}"
    wanted = 1 if device != OWN else found["engine"]["notes"].get("devices", ranks)
    assert len({name for _, name in opened}) == wanted, f"{wanted} devices were to be taken: {sorted(opened)}"
    return found["result"]["digest"]


def same(one: str, ranks: int, device: int | str, problem: list) -> None:
    """
    Raises:
        NotHere: one device, and several are asked for; AssertionError: not the digest of one rank.
    """
    if device == OWN and ranks == 1 and "--devices" not in problem:
        raise NotHere("there is one device")
    found = digest(ranks, device, problem)
    assert found == one, f"not the output of one rank: digest {found[:12]}, not {one[:12]}"


def one_fails(device: int) -> None:
    """The last row passes the range of float32, on the last rank alone.

    Raises:
        AssertionError: the run does not end, or not with the sentence of that rank.
    """
    with tempfile.TemporaryDirectory() as folder:
        network, inputs = Path(folder) / "network.npz", Path(folder) / "inputs.npy"
        sp.save_npz(network, sp.csc_array(np.full((5, 5), 3e38)))
        rows = np.zeros((64, 5), np.float32)
        rows[-1] = 4
        np.save(inputs, rows)
        given = ["infer", "--network", network, "--inputs", inputs, "--last", "relu", "--rows", "inputs"]
        given += ["--engine", "cuda", "--partition", "static", "--reductions", "none", "--device", device]
        done = launched(2, given)
    assert done.returncode, f"exit status 0, though a rank failed: {last_line(done)}"
    assert re.search(r"^spdnn: rank 1 on .*float32", done.stderr, re.M), f"not of rank 1: {done.stderr[-300:]}"


def rank(arguments: list[str]) -> int:
    """One rank: spdnn, which tells the devices that it opens."""
    from spdnn.cli import main
    from spdnn.kernels.cuda import driver
    from spdnn.runs.world import launched_rank

    real = cupy_device.open_device

    def opened(ordinal: int | None = None):
        sys.stderr.write(OPENS.format(launched_rank(), driver.identities()[ordinal or 0]))
        return real(ordinal)

    cupy_device.open_device = opened
    return main(arguments)


if __name__ == "__main__":
    sys.exit(rank(sys.argv[1:]))
