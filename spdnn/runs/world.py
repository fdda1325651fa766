"""The processes of this run: one alone, or the ranks that a launcher started together (runs/ranks/world.py).

Nothing of MPI is imported until a launcher has started more than one process.
"""

import os
import re
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NoReturn

from spdnn.core.errors import InputError
from spdnn.core.places import load

# How many processes a launcher started, as it tells them: MPICH and Slurm's pmi2; Open MPI; MVAPICH.
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PMIX_RANK")
CONNECTED = "spdnn.runs.ranks.world:ConnectedWorld"  # of several ranks
NUMBER = re.compile(r"\d{1,9}", re.ASCII)
NODES = ("SLURMD_NODENAME",)  # what the scheduler calls this node, where that may differ from the host's name
RANK_GRACE = 0.2  # seconds for each rank below this one to tell its error and end this one, when several fail at once


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
    """One process, which no launcher started with others.

    Attributes:
        size, rank: of all; local_size, local_rank: on this node. Rank 0 writes what is written.
        node: the name of this node.
        comm, local: communicators of all ranks and of this node's, None for one rank.
        nodes: the node of each rank.
        sharing: ranks of this node, this one among them, that have its cores; each has some of its own where it can.
        ending: all ranks know that one has failed, and end by themselves.
    """

    comm: Any = None
    local: Any = None
    ending = False

    def __init__(self):
        self.size, self.rank, self.local_size, self.local_rank, self.sharing = 1, 0, 1, 0, 1
        self.node = next((os.environ[name] for name in NODES if os.environ.get(name)), socket.gethostname())
        self.nodes = [self.node]

    @property
    def leader(self) -> bool:
        """Whether this rank reads and prepares for its node."""
        return self.local_rank == 0

    def together(self, work: Callable, *arguments) -> Any:
        """What `work(*arguments)` returns; when it fails on any rank, the first of these tells, and all end."""
        return work(*arguments)

    def on_leaders(self, work: Callable, *arguments) -> Any:
        """What `work(*arguments)` returns on the leader of each node; None on the other ranks."""
        return self.together(lambda: work(*arguments) if self.leader else None)


_world: World | None = None


def world() -> World:
    """The ranks of this run, the same object whenever it is asked for. Raises as ConnectedWorld."""
    global _world
    if _world is None:
        _world = load(CONNECTED)() if launched_count() > 1 else World()
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
        time.sleep(min(1.0, RANK_GRACE * ranks.rank))
    print(f"spdnn: rank {ranks.rank} on {ranks.node}: {sentence}", file=sys.stderr, flush=True)
    if ranks.ending:
        raise SystemExit(status)
    ranks.abort(status)
