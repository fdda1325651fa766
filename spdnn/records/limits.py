"""The machine's limit: the least time that some work could have taken, from what the machine was measured to do.

Source: the roofline model (Williams et al., CACM 52(4), 2009), with edges in place of operations: the nearest cache is
one roof, the memory another. `spdnn.measure.machine` measures the processor, `spdnn.kernels.cuda.ceilings` a GPU; this
module only computes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from spdnn.common.errors import InputError
from spdnn.records import rank_checks

# A run may be this many times faster than its limit before its record is refused: loads, which no run gets around, are
# measured in each thread's own processor time just after it, so that other processes do not lower them (measured: by
# 6 % at most). What still may: work on the core's other hardware thread (halved) and the clock (20 %).
# Bytes moved do not count here: a case that fits the caches moves them faster than memory would.
TOLERANCE = 3
EDGE_BYTES = 4  # an edge gathers one float32 for each input
LOADS, MEMORY = "loads", "memory"
ARCHITECTURE = "sm_"  # what the instruction set of a GPU begins with


@dataclass(frozen=True)
class Machine:
    """What a machine does at best on that many threads, in one process; each rate is the best of its samples.

    A GPU is a machine too, as a whole: its memory is its own, and its nearest cache shared memory.

    Attributes:
        copy_bytes_per_second: read and written, from memory to memory.
        load_bytes_per_second: loaded from the nearest cache and added up.
        l2_load_bytes_per_second: the same from the second-level cache.
        fma_per_second: float32 multiply-adds in registers.
        threads: of the host, that worked at once; the run had as many.
        instruction_set: level of the kernels that was measured; a GPU's architecture (sm_90).
        seconds: that all of it took.
        samples: for each rate, the rate in every window.
    """

    copy_bytes_per_second: float
    load_bytes_per_second: float
    l2_load_bytes_per_second: float
    fma_per_second: float
    threads: int
    instruction_set: str
    seconds: float
    samples: dict[str, list[float]] = field(default_factory=dict)

    @property
    def on_device(self) -> bool:
        """Whether this is a GPU."""
        return self.instruction_set.startswith(ARCHITECTURE)


class Limit(NamedTuple):
    """The least seconds that some work could take, and which ceiling binds: LOADS or MEMORY."""

    seconds: float
    binds: str


def limit(machine: Machine, edges_computed: int, bytes_moved: int | None, bytes_loaded: int | None = None) -> Limit:
    """The least time for that work: every gather a load from the nearest cache, every byte moved a byte copied.

    The larger of the two counts, since both may go on at once.

    Args:
        edges_computed: inputs x edges gone through.
        bytes_moved: read and written past the caches; None when it is not known, and then only loads count.
        bytes_loaded: that the edges gathered; None: EDGE_BYTES for each.

    Raises:
        InputError: a negative amount of work.
    """
    if edges_computed < 0 or (bytes_moved or 0) < 0:
        raise InputError(f"{edges_computed} edges and {bytes_moved} bytes: neither may be negative")
    loaded = edges_computed * EDGE_BYTES if bytes_loaded is None else bytes_loaded
    loads = loaded / machine.load_bytes_per_second
    memory = (bytes_moved or 0) / machine.copy_bytes_per_second
    return Limit(memory, MEMORY) if memory > loads else Limit(loads, LOADS)


def claims(record: dict) -> list[tuple[bool, str]]:
    """What must hold of a record's machine, and of its run on it: (whether it holds, what is wrong if it does not)."""
    edges, loaded = record["result"]["edges_computed"], record["result"].get("bytes_loaded")
    bit = (
        loaded is None or loaded >= edges // 8,
        f"result.bytes_loaded: {loaded} for {edges} edges, and an edge loads a bit at least",
    )
    if record.get("machine") is None:
        return [bit]
    machine, threads = Machine(**record["machine"]), record["threads"]
    best = {name: (max(rates), getattr(machine, name)) for name, rates in machine.samples.items()}
    fastest = min(record["samples"]["inference_seconds"])
    times = limit(machine, edges, None, _loaded_by_one(record)).seconds / fastest
    return [
        *(
            (most == told, f"machine.{name}: {told:g}, but the best sample is {most:g}")
            for name, (most, told) in best.items()
        ),
        bit,
        (machine.threads == threads, f"machine.threads: {machine.threads}, but the run had {threads}"),
        (
            times <= TOLERANCE,
            f"result.edges_computed: {edges} edges in {fastest:g} s, {times:.3g} times what the machine can load; "
            "a number above the machine's limit is a failure, not a record",
        ),
    ]


def of_record(record: dict) -> Limit | None:
    """The limit of a run record; None when its machine was not measured.

    Each rank is taken as a machine of its own with an even part of the bytes moved: never less than what ranks that
    share a node's memory can do, so the limit stays a lower bound. Loads are those of the busiest rank.
    """
    if record.get("machine") is None:
        return None
    machine, result, moved = Machine(**record["machine"]), record["result"], record["result"].get("bytes_moved")
    part = None if moved is None else moved // record["ranks"]
    return limit(machine, result["edges_computed"], part, _loaded_by_one(record))


def _loaded_by_one(record: dict) -> int:
    """Bytes that one rank loaded at least: of the rank that loaded most, or of the one that computed most edges.

    A rank's own bytes are not in the record. The mean is a bound; so is what is left of the whole when every edge of
    the other ranks loaded all that an edge can.
    """
    edges, loaded, ranks = record["result"]["edges_computed"], record["result"].get("bytes_loaded"), record["ranks"]
    loaded = edges * EDGE_BYTES if loaded is None else loaded
    others = edges - rank_checks.busiest(record)
    return max(loaded // ranks, loaded - others * EDGE_BYTES)
