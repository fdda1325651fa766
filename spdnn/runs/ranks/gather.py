"""What ranks send to rank 0 at the end of a run, and what their messages cost. All goes through host buffers."""

import time
from dataclasses import replace
from statistics import median

import numpy as np

from spdnn.core.result import KeptInputs, Result, RowStatistics
from spdnn.runs.world import World

SMALL, LARGE, TRIES = 8, 8 << 20, 50  # bytes of the messages whose cost is measured, and how often the small one is
COUNTS = ("edges_computed", "bytes_moved", "bytes_loaded")  # bytes may be missing
PER_INPUT = ("alive", *RowStatistics._fields)


def gather_results(world: World, own: Result | None, count: int) -> Result | None:
    """The result of all ranks, for `count` inputs, on rank 0; values are left out."""
    names = ("survivors", "counts", *COUNTS, *PER_INPUT)
    parts = world.comm.gather(None if own is None else [getattr(own, name) for name in names])
    if world.rank:
        return None
    survivors, layers, *columns = zip(*(part for part in parts if part is not None), strict=True)
    counts = [None if None in values else sum(values) for values in columns[: len(COUNTS)]]
    rows = [np.concatenate(values) for values in columns[len(COUNTS) :]]
    order = np.argsort(rows[0], kind="stable")
    whole = dict(zip(names[2:], [*counts, *(column[order] for column in rows)], strict=True))
    if None not in layers:  # the edges of a row are the same on all ranks
        done = {name: sum(getattr(one, name) for one in layers) for name in ("rows", "edges_computed")}
        whole["counts"] = layers[0]._replace(**done)
    return replace(own, inputs=count, survivors=sum(survivors), values=None, valued=None, **whole)


def with_values(world: World, result: Result | None, own: Result | None, keep: KeptInputs) -> Result | None:
    """The whole result with the values that all ranks kept, in the order of its inputs, on rank 0."""
    kept = None
    if own is not None and own.values.size:
        kept = (own.alive if own.valued is None else own.valued), own.values
    parts = world.comm.gather(kept)
    if world.rank:
        return None
    parts = [part for part in parts if part is not None]
    valued = None
    if isinstance(keep.of, np.ndarray):
        valued = np.sort(np.concatenate([np.empty(0, np.int64), *(numbers for numbers, _ in parts)]))
    numbers = result.alive if valued is None else valued
    values = np.empty((numbers.size, result.outputs), np.float32)
    while parts:
        owned, rows = parts.pop()
        values[np.searchsorted(numbers, owned)] = rows
    return replace(result, values=values, valued=valued)


def messages_cost(world: World) -> dict:
    """What messages cost: a small allgather, and large ones between the first and the last rank."""
    small, all_small = np.zeros(SMALL, np.uint8), np.zeros(SMALL * world.size, np.uint8)
    large, times = np.zeros(LARGE, np.uint8), []
    world.barrier()
    for _ in range(TRIES):
        start = time.perf_counter()
        world.comm.Allgather(small, all_small)
        times.append(time.perf_counter() - start)
    seconds = []
    for _ in range(5):
        world.barrier()
        start = time.perf_counter()
        if world.rank == 0:
            world.comm.Send(large, dest=world.size - 1)
            world.comm.Recv(small[:0], source=world.size - 1)
        elif world.rank == world.size - 1:
            world.comm.Recv(large, source=0)
            world.comm.Send(small[:0], dest=0)
        seconds.append(time.perf_counter() - start)
    return {"message_latency_seconds": median(times), "message_bytes_per_second": LARGE / min(seconds)}
