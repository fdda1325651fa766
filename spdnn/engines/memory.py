"""The memory of an inference: what this process holds and may hold, what a run takes of it, and the plan within it.

An engine describes what a run takes (`RunSizes`), of this process or of a device; `plan_batches` decides how many
inputs a batch has, and whether weights stay.
"""

import contextlib
import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from spdnn.core.errors import MemoryTooSmall, SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import RUN_SHARE, available_bytes, kernel_bytes, tightest
from spdnn.core.result import KeptInputs

INPUT_BYTES = 160  # of every input, besides its features: its number, its row, its statistics, twice
# Of the least memory in an error: what a process holds already differs from try to try.
SLACK = 1.05
EDGE_BYTES = 8  # of an edge of a layer in memory, at most: an index and a value


def resident_bytes() -> int:
    """Bytes of this process in memory now, less what it shares with the other ranks of its node."""
    return (kernel_bytes("/proc/self/status", "VmRSS") or 0) - shared_bytes()


def give_back() -> None:
    """Return memory that is free inside this process to the system, where the C library can."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def shared_bytes() -> int:
    """Bytes of shared-memory windows that this process has touched."""
    return kernel_bytes("/proc/self/status", "RssShmem") or 0


def proportional_bytes() -> int | None:
    """Bytes of this process, what it shares divided by those that share it; None where the system does not tell."""
    return kernel_bytes("/proc/self/smaps_rollup", "Pss")


def limit_bytes(limit: int | None) -> int:
    """Bytes that this process may hold: `limit`, or less where a control group or resource limit allows less; without
    a `limit`, what the process holds now and `free_share`."""
    if limit is None:
        return resident_bytes() + free_share()
    return int(min(limit, resident_bytes() + tightest()[1]))


def more_memory(least: int) -> str:
    """What a caller raises so that this process may hold `least` bytes: --memory, or a limit of the system below it."""
    name, room = tightest()
    return "--memory" if least <= resident_bytes() + room else f"raise {name}"


def free_share() -> int:
    """RUN_SHARE of the bytes that can be taken without swapping and within all limits.

    Raises:
        SpdnnError: the system does not say what is free.
    """
    free = available_bytes()
    if free is None:
        raise SpdnnError("/proc/meminfo does not say MemAvailable; give a memory limit (--memory)")
    return int(RUN_SHARE * free)


def process_bytes(inputs: Inputs, keep: KeptInputs, outputs: int) -> int:
    """Bytes of this process before any batch: what it holds now, copies of sparse inputs, and the outcome of all inputs
    (any may survive) with the last rows, of `outputs` values, that are kept."""
    copies = 2 * inputs.nbytes if inputs.kind == "csr" else 0
    return resident_bytes() + copies + INPUT_BYTES * inputs.count + keep.nbytes(inputs.count, outputs)


def process_sentence(limit: int, what: str, who: str, least: int, about: str = "at least") -> str:
    """The text of an error: a run of `who`, threads or devices, does not fit `limit` bytes of this process or node, and
    needs `least`; `what` follows "too small", with a space before it."""
    return (
        f"memory of {limit:,} bytes is too small{what}; this network, these inputs and {who} need {about} {least:,} "
        f"({more_memory(least)})"
    )


@dataclass(frozen=True)
class RunSizes:
    """What an inference takes of one memory, that of a process or of a device.

    Attributes:
        inputs: of the whole inference.
        tile: inputs that are computed together; batches are multiples of it.
        weights: bytes of each layer.
        row_bytes: of one input of a batch: its features, twice, and what is kept of it.
        held_bytes: of everything else, which does not depend on the batches.
        stay_bytes: of all weights that stay; None: the sum of `weights`, or of those of a device's layers. It is less
            where weights are in memory already, or devices share one copy.
        stream_bytes: of weights while they are read and computed with, where they do not stay.
        task_bytes: of each task of a task graph; its devices share them out.
    """

    inputs: int
    tile: int
    weights: tuple[int, ...]
    row_bytes: int
    held_bytes: int = 0
    stay_bytes: int | None = None
    stream_bytes: int = 0
    task_bytes: int = 0

    @property
    def layers(self) -> int:
        return len(self.weights)

    @property
    def tiles(self) -> int:
        """Tiles of all inputs."""
        return ceil_div(self.inputs, self.tile)


def plan_batches(
    sizes: RunSizes, memory: int, sentence: Callable[[int], str], enough: int = 1, most: int | None = None
) -> tuple[int, bool]:
    """(inputs in a batch, whether all weights stay) of a run that takes one batch after the other in `memory` bytes.

    Args:
        sentence: gives the text of the error, from the least bytes that are enough.
        enough: weights stay only if they leave room for so many tiles, 1 or more, or for all inputs.
        most: tiles of a batch at most; None: any number.

    Raises:
        MemoryTooSmall: not even one tile fits.
    """
    # Weights stay if they leave room for enough tiles; the batches share what is left.
    stay, each = sum(sizes.weights) if sizes.stay_bytes is None else sizes.stay_bytes, sizes.tile * sizes.row_bytes
    resident = not stay or sizes.held_bytes + stay + min(sizes.tiles, enough) * each <= memory
    room = memory - sizes.held_bytes - (stay if resident else sizes.stream_bytes)
    tiles = batch_tiles(sizes.tiles, lambda tiles: tiles - room // each, most)
    if not tiles:
        least = sizes.held_bytes + sizes.stream_bytes + each
        raise MemoryTooSmall(sentence(least), least)
    return min(sizes.inputs, tiles * sizes.tile), resident


def batch_tiles(tiles: int, excess: Callable[[int], int], most: int | None = None, groups: int = 1) -> int:
    """Tiles of a batch, so that there are as few batches as fit, of equal size; 0 if not one tile fits.

    Args:
        tiles: of all inputs.
        excess: gives, for a batch of so many tiles, how many do not fit at least; 0 or less if all do.
        most: tiles of a batch at most; None: any number.
        groups: of devices that share out the batches: each gets as many.
    """
    # A batch that is too large shrinks by the tiles that do not fit. Smaller batches may need more memory for tasks, so
    # that is repeated.
    size = min(tiles, most or tiles)
    while size > 0 and (over := excess(size)) > 0:
        size -= over
    if size < 1:
        return 0
    # Equal size: a small last batch leaves threads without a tile, and all wait for a group with one batch more.
    even = ceil_div(tiles, groups * ceil_div(ceil_div(tiles, size), groups))
    return even if excess(even) <= 0 else size
