"""The machine's limit: the least time that some work could have taken, from what the machine was measured to do.

Source: the roofline model (Williams et al., CACM 52(4), 2009), with edges in place of operations: the nearest cache is
one roof, the memory another. `spdnn.engines.cpu.ceilings` measures the processor, `spdnn.engines.cuda.ceilings` a GPU;
this module only computes.
"""

from collections.abc import Iterable
from typing import NamedTuple

from spdnn.core.errors import InputError
from spdnn.core.fields import Label, Positive, Rates, Record

# A run may be this many times faster than its limit before its record is refused: loads, which no run gets around, are
# measured in each thread's own processor time just after it, so that other processes do not lower them (measured: by
# 6 % at most). What still may: work on the core's other hardware thread (halved) and the clock (20 %).
# Bytes moved do not count here: a case that fits the caches moves them faster than memory would.
LIMIT_FACTOR = 3
BUSY = 0.1  # of cores x seconds: a machine that did more other work is called busy
BEYOND = "a number above the machine's limit is a failure, not a record"
EDGE_LOAD_BYTES = 4  # an edge gathers one float32 for each input
LOADS, MEMORY = "loads", "memory"
# Of a GPU's L2 that features may take from one launch to the next: weights pass through it too, and it has two halves
# on an H100. Nsight counts there, of DRAM, what is moved past this share within 5 % (tests/cuda/test_bytes_moved.py).
L2_SHARE = 0.5
# What no machine does by far, where a record does not tell what its own did: bytes that a thread, or a GPU, loads in a
# second. A hundred times what two loads of 64 bytes a cycle give, and what the shared memories of today's GPUs give.
THREAD_LOADS, DEVICE_LOADS = 1e14, 1e16
LONGEST_MEASURING = 60.0  # seconds in which the limits of a machine may be measured
ARCHITECTURE = "sm_"  # what the instruction set of a GPU begins with


class Machine(Record, omit_defaults=True):
    """What a machine does at best on the threads of the run, in one process: the rate in every window of measuring.

    A GPU is a machine too, as a whole: its memory is its own, and its nearest cache shared memory.

    Attributes:
        instruction_set: level of the kernels that was measured; a GPU's architecture (sm_90).
        copy_rates: bytes read + bytes written a second, from memory to memory.
        load_rates: bytes a second loaded from the nearest cache and added up, all threads together.
        l2_load_rates: the same from the second-level cache.
        fma_rates: float32 multiply-adds a second in registers, all threads together.
        copy_array_bytes: size of each of the two arrays of the copy; null: not recorded. Arrays that a cache holds in
            part copy faster than memory does: the limit is then too fast, and no run seems closer to it than it is.
    """

    instruction_set: Label
    copy_rates: Rates
    load_rates: Rates
    l2_load_rates: Rates
    fma_rates: Rates
    copy_array_bytes: Positive | None = None

    # Of each rate, the best window.
    copy_bytes_per_second = property(lambda self: max(self.copy_rates))
    load_bytes_per_second = property(lambda self: max(self.load_rates))
    l2_load_bytes_per_second = property(lambda self: max(self.l2_load_rates))
    fma_per_second = property(lambda self: max(self.fma_rates))

    @property
    def on_device(self) -> bool:
        """Whether this is a GPU."""
        return self.instruction_set.startswith(ARCHITECTURE)


RATES = tuple(name for name in Machine.__struct_fields__ if name.endswith("_rates"))
STAGE = "measure the machine", len(RATES), "rate"  # of a run's progress


class Limit(NamedTuple):
    """The least seconds that some work could take, and which ceiling binds: LOADS or MEMORY."""

    seconds: float
    binds: str


def past_cache(launches: Iterable[float], kept: float) -> int:
    """Bytes past a cache that keeps so many of each launch's for the next.

    Args:
        launches: bytes that each reads and writes, one after the other.
    """
    return int(sum(max(0.0, nbytes - kept) for nbytes in launches))


def limit(machine: Machine, edges_computed: int, bytes_moved: int | None, bytes_loaded: int | None = None) -> Limit:
    """The least time for that work: every gather a load from the nearest cache, every byte moved a byte copied.

    The larger of the two counts, since both may go on at once.

    Args:
        edges_computed: inputs x edges really computed.
        bytes_moved: read and written past the caches; None where they were not counted, and then only loads count.
        bytes_loaded: that the edges gathered; None: EDGE_LOAD_BYTES for each.

    Raises:
        InputError: a negative amount of work.
    """
    if edges_computed < 0 or (bytes_moved or 0) < 0:
        raise InputError(f"{edges_computed} edges and {bytes_moved} bytes: neither may be negative")
    loaded = edges_computed * EDGE_LOAD_BYTES if bytes_loaded is None else bytes_loaded
    loads = loaded / machine.load_bytes_per_second
    memory = (bytes_moved or 0) / machine.copy_bytes_per_second
    return Limit(memory, MEMORY) if memory > loads else Limit(loads, LOADS)
