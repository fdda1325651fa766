"""The ranks of this run: who they are, how they wait for one another, and how one that fails ends all of them.

Nothing of MPI is imported until a launcher has started more than one process.
"""

import contextlib
import ctypes
import fcntl
import os
import re
import socket
import stat
import sys
import termios
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, NoReturn, TextIO

from spdnn.core import endings, progress
from spdnn.core.errors import InputError, SpdnnError, Unavailable, install
from spdnn.core.resources import BINDING, affinity, binds, libgomps, use_cores

# How many processes a launcher started, as it tells them: MPICH and Slurm's pmi2; Open MPI; MVAPICH.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
NUMBER = re.compile(r"\d{1,9}", re.ASCII)
NODES = ("SLURMD_NODENAME",)  # what the scheduler calls this node, where that may differ from the host's name
SEGMENT = "/dev/shm/mpich"  # what MPICH's own shared memory is called, which it leaves behind when it aborts
FORWARDED = 0.1  # seconds in which a launcher hands on what it has read, before all are ended
READ = 5.0  # seconds, at most, until it has read what this rank wrote
GRACE = 0.2  # seconds for each rank below this one to tell its error and end this one, when several fail at once
LONGEST = 0.005  # seconds between two checks of what another rank does
CONNECT = "SPDNN_CONNECT_SECONDS"  # environment variable: how long the ranks may take to come together
CONNECT_SECONDS = 300.0  # by default: on many nodes that load Python from one file system, the last comes late
SPINS = 200  # checks without a pause, before a rank gives its core to others


def launched_count() -> int:
    """How many processes were started together; 1 without a launcher. InputError where it says no number."""
    value = next((os.environ[name] for name in SIZES if name in os.environ), None)
    if value is None and "PMIX_RANK" in os.environ:  # srun --mpi=pmix tells the number in Slurm's own words
        value = os.environ.get("SLURM_STEP_NUM_TASKS", os.environ.get("SLURM_NTASKS"))
    if value is None:
        return 1
    if not NUMBER.fullmatch(value) or int(value) < 1:
        raise InputError(f"the launcher says that it started {value[:40]!r} processes; it must be a number from 1")
    return int(value)


def launched_rank() -> int:
    """This process's rank as the launcher tells it, before MPI is started; 0 without one."""
    value = next((os.environ[name] for name in RANKS if name in os.environ), "0")
    return int(value) if NUMBER.fullmatch(value) else 0


def separate_tasks() -> int:
    """How many tasks the `srun` that started this process has, where it started no MPI: each takes itself for the only
    one. Else 1.

    No such task is a batch script or a shell of `salloc` (Slurm tells them no number of a step), what another launcher
    started in the step, or what is typed in `srun --pty`, which gives the terminal to one task alone.
    """
    connected = any(name in os.environ for name in (*SIZES, "PMIX_RANK", "SLURM_PTY_PORT"))
    value = os.environ.get("SLURM_STEP_NUM_TASKS", "")
    within = not connected and "SLURM_PROCID" in os.environ and NUMBER.fullmatch(value)
    return max(1, int(value)) if within else 1


class World:
    """All ranks. One, without a launcher: then nothing here needs MPI.

    Attributes:
        size, rank: of all; local_size, local_rank: on this node. Rank 0 writes what is written.
        node: the name of this node.
        comm, local: communicators of all ranks and of this node's, None for one rank.
        nodes: the node of each rank.
        sharing: ranks of this node, this one among them, that have its cores; each has some of its own where it can.
        ending: all ranks know that one has failed, and end by themselves.
    """

    def __init__(self):
        self.ending = False
        self.size, self.rank, self.local_size, self.local_rank, self.sharing = 1, 0, 1, 0, 1
        self.node = next((os.environ[name] for name in NODES if os.environ.get(name)), socket.gethostname())
        self.comm = self.local = None
        self.nodes = [self.node]
        size = launched_count()
        if size > 1:
            self._connect(size)

    def _connect(self, size: int) -> None:
        mpi = self.mpi
        endings.undo(_remove_segments)
        self.comm = mpi.COMM_WORLD
        self.size, self.rank = self.comm.size, self.comm.rank
        if self.size != size:
            library = mpi.Get_library_version().split("\n")[0][:60].strip()
            raise Unavailable(
                f"{size} processes were started, but mpi4py's MPI ({library}) sees {self.size}: start them with the "
                f"mpiexec of that MPI (that of this Python is next to {sys.executable})"
            )
        progress.on_rank(self.rank, self.size)
        self.nodes = self.comm.allgather(self.node)
        names = sorted(set(self.nodes))
        shared = self.comm.Split_type(mpi.COMM_TYPE_SHARED, key=self.rank)
        self.local = shared.Split(names.index(self.node), self.rank)
        self.local_size, self.local_rank = self.local.size, self.local.rank
        bound = any(self.comm.allgather(binds()))
        self.sharing = self.together(self._divide_cores) if bound else self.local_size

    def _divide_cores(self) -> int:
        """Give this rank cores of its own, where OpenMP would bind the threads of each rank to the same ones.

        Ranks that the launcher gave the same cores divide these; with fewer cores than ranks, some have the same one.

        Returns:
            `sharing`.

        Raises:
            InputError: OpenMP's threads have their places already.
        """
        mine = sorted(affinity())
        others = self.local.allgather(mine)
        if libgomps():
            names = " and ".join(name for name in BINDING if os.environ.get(name))
            raise InputError(
                f"{names} would bind all ranks of a node to the same cores, for OpenMP (libgomp) was loaded before the "
                "ranks were connected: start them with `spdnn` itself, or unset it"
            )
        alike = [rank for rank, cores in enumerate(others) if cores == mine]
        place = alike.index(self.local_rank)
        parts = min(len(alike), len(mine))
        own = [mine[k * len(mine) // parts : (k + 1) * len(mine) // parts] for k in range(parts)]
        use_cores(own[place % parts])
        return sum(other % parts == place % parts for other in range(len(alike)))

    @cached_property
    def mpi(self):
        """mpi4py's MPI, started: all ranks are here. Unavailable: not installed. InputError: CONNECT is no time."""
        seconds = _connect_seconds()
        try:
            import mpi4py

            mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
            from mpi4py import MPI
        except (ImportError, RuntimeError) as error:
            raise Unavailable(
                f"{launched_count()} processes were started, and that needs mpi4py ({error}): {install('mpi')}"
            ) from error
        # A launcher does not tell of a rank that ended by itself before this call, which then never returns. mpi4py's
        # own holds the interpreter, so that no other thread of this process, not even that of signals, could end it.
        late = threading.Timer(seconds, _end_alone, [seconds])
        late.daemon = True
        late.start()
        level = ctypes.c_int()
        failed = ctypes.CDLL(MPI.__file__).MPI_Init_thread(None, None, MPI.THREAD_SERIALIZED, ctypes.byref(level))
        late.cancel()
        if failed:
            raise Unavailable(f"{launched_count()} processes were started, and MPI_Init_thread fails with {failed}")
        for comm in (MPI.COMM_WORLD, MPI.COMM_SELF):  # as mpi4py does when it starts MPI
            comm.Set_errhandler(MPI.ERRORS_RETURN)
        return MPI

    @property
    def leader(self) -> bool:
        """Whether this rank reads and prepares for its node."""
        return self.local_rank == 0

    def wait(self, request, patient: bool = False) -> None:
        """Until the request is through. A rank that waits long, or is `patient`, leaves its core to others."""
        checks = SPINS if patient else 0
        while not request.Test():
            checks += 1
            if checks > SPINS:
                time.sleep(min(LONGEST, 2e-5 * (checks - SPINS)))

    def barrier(self, patient: bool = False) -> float:
        """Until all ranks are here; the seconds that this one waited."""
        start = time.perf_counter()
        if self.comm is not None:
            self.wait(self.comm.Ibarrier(), patient)
        return time.perf_counter() - start

    def together(self, work: Callable, *arguments) -> Any:
        """What `work(*arguments)` returns; when it fails on any rank, the first of these tells, and all end."""
        if self.comm is None:
            return work(*arguments)
        value = error = None
        try:
            value = work(*arguments)
        except SpdnnError as caught:
            error = caught
        self.barrier(patient=True)
        failed = self.comm.allgather(error is not None)
        if any(failed):
            self.ending = True
            raise error if failed.index(True) == self.rank else SystemExit(1)
        return value

    def on_leaders(self, work: Callable, *arguments) -> Any:
        """What `work(*arguments)` returns on the leader of each node; None on the other ranks."""
        return self.together(lambda: work(*arguments) if self.leader else None)

    def abort(self, status: int) -> NoReturn:
        """End all ranks with `status`, as soon as the launcher has what this one wrote."""
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
            _until_read(stream)
        time.sleep(FORWARDED)
        _remove_segments()
        self.comm.Abort(status)
        raise SystemExit(status)


def _connect_seconds() -> float:
    text = os.environ.get(CONNECT) or str(CONNECT_SECONDS)
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) <= threading.TIMEOUT_MAX:
            return seconds
    raise InputError(f"{CONNECT} is {text!r}; it must be a number of seconds above 0")


def _end_alone(seconds: float) -> NoReturn:
    """End this process, and by its end the launcher and all ranks: not all of them have come in time."""
    rank = launched_rank()
    time.sleep(min(1.0, GRACE * rank))  # so that one tells
    sentence = (
        f"rank {rank} on {socket.gethostname()}: of {launched_count()} ranks not all were there within {seconds:g} s"
    )
    os.write(2, f"spdnn: {sentence} ({CONNECT}); one of them has ended, or hangs\n".encode())
    os._exit(1)


def _remove_segments() -> None:
    with contextlib.suppress(OSError), open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for path in {line.split()[-1] for line in maps if SEGMENT in line}:
            os.unlink(path)


def _until_read(stream: TextIO) -> None:
    """Wait until whoever reads a pipe has read it: a launcher that has to end all first may lose what is in it."""
    deadline = time.monotonic() + READ
    with contextlib.suppress(OSError, ValueError):
        pipe = stream.fileno()
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            while any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))) and time.monotonic() < deadline:
                time.sleep(LONGEST)


_world: World | None = None


def world() -> World:
    """The ranks of this run, the same object whenever it is asked for. Raises as World."""
    global _world
    if _world is None:
        _world = World()
    return _world


def connect() -> World | None:
    """The ranks of this run when they are several and connected, else None."""
    return _world if _world is not None and _world.comm is not None else None


def tell_and_end(sentence: str, status: int) -> NoReturn:
    """Print an error of this rank, `spdnn: rank 1 on host: sentence`, and end all ranks with `status`.

    When several fail at once, the lowest comes first and ends the others, so that one sentence is printed.
    """
    ranks = connect()
    if not ranks.ending:
        time.sleep(min(1.0, GRACE * ranks.rank))
    print(f"spdnn: rank {ranks.rank} on {ranks.node}: {sentence}", file=sys.stderr, flush=True)
    if ranks.ending:
        raise SystemExit(status)
    ranks.abort(status)
