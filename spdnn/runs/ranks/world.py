"""The ranks that a launcher started: how they find and wait for one another, and how one that fails ends all."""

import contextlib
import ctypes
import fcntl
import os
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
from spdnn.runs.world import RANK_GRACE, World, launched_count, launched_rank

SEGMENT = "/dev/shm/mpich"  # what MPICH's own shared memory is called, which it leaves behind when it aborts
FORWARDED = 0.1  # seconds in which a launcher hands on what it has read, before all are ended
LONGEST_READ = 5.0  # seconds, at most, until it has read what this rank wrote
LONGEST_PAUSE = 0.005  # seconds between two checks of what another rank does
CONNECT = "SPDNN_CONNECT_SECONDS"  # environment variable: how long the ranks may take to come together
CONNECT_SECONDS = 300.0  # by default: on many nodes that load Python from one file system, the last comes late
SPINS = 200  # checks without a pause, before a rank gives its core to others


class ConnectedWorld(World):
    """The ranks that a launcher started, connected by MPI.

    Raises:
        Unavailable: no MPI, or one that sees another number of ranks.
        InputError: OpenMP would bind all ranks of a node to the same cores, or CONNECT is no time.
    """

    def __init__(self):
        super().__init__()
        size, mpi = launched_count(), self.mpi
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

    def wait(self, request, patient: bool = False) -> None:
        """Until the request is through. A rank that waits long, or is `patient`, leaves its core to others."""
        checks = SPINS if patient else 0
        while not request.Test():
            checks += 1
            if checks > SPINS:
                time.sleep(min(LONGEST_PAUSE, 2e-5 * (checks - SPINS)))

    def barrier(self, patient: bool = False) -> float:
        """Until all ranks are here; the seconds that this one waited."""
        start = time.perf_counter()
        self.wait(self.comm.Ibarrier(), patient)
        return time.perf_counter() - start

    def together(self, work: Callable, *arguments) -> Any:
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
    time.sleep(min(1.0, RANK_GRACE * rank))  # so that one tells
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
    deadline = time.monotonic() + LONGEST_READ
    with contextlib.suppress(OSError, ValueError):
        pipe = stream.fileno()
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            while any(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))) and time.monotonic() < deadline:
                time.sleep(LONGEST_PAUSE)
