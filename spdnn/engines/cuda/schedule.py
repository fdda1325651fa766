"""When the engine `cuda` does what: passes of layers, searches for identical rows, which kernel for how many rows.

All of it is decided before a run from the network's headers, and the device decides the rest from counts that
the host never sees. So a run launches the same kernels in the same order whatever its inputs are.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from spdnn.core import limits
from spdnn.core.numbers import ceil_div
from spdnn.engines.reductions.dead import pass_length
from spdnn.engines.reductions.inputs import SETTLED as SHARE_SETTLED
from spdnn.kernels.cuda.device import Properties
from spdnn.kernels.cuda.settings import PERSISTENT_INPUTS, PERSISTENT_THREADS, RESIDENT, STAGED_BLOCKS
from spdnn.kernels.cuda.sliced import MOST_ROOM

BITS, CSR, ELL, STAGED, PERSISTENT = "bits", "csr", "ell", "staged", "persistent"
KINDS = (PERSISTENT, STAGED, ELL, CSR)  # of kernels that any layer may have; the first of equals is taken

EARLY = 8  # layers before which few rows are not separated: each setting of a kernel is a launch more
FIRST_SEARCH = 2  # layers before the first search for identical rows
AHEAD = 96  # edges for each neuron that must lie ahead of a search
SETTLED = round(1024 * SHARE_SETTLED)  # of 1,024 rows, as kernels count them
RESERVED_SHARED = 1024  # bytes of shared memory that the system takes for each block
PERSISTENT_ROWS = 256  # bytes of shared memory of the persistent kernel, besides its buffers
STAGED_NEXT = 32  # bytes of shared memory of the staged kernel, besides its stages
NARROWER = 8  # inputs of a block: the step between one and as many as fit
ALL_ROWS = 2**31 - 1
LAYOUT_BYTES = {False: 0.77, True: 5.0}  # of memory, without and with values: indices, in official layers; a float more
MOST_LAUNCHES = 1 << 17  # of a graph in sub-batches: the host binds each


@dataclass(frozen=True)
class LayerPass:
    """Layers first..last-1, with kernels of one kind; `search`: for identical rows, after them."""

    first: int
    last: int
    kind: str
    search: bool


@dataclass(frozen=True)
class PersistentSetting:
    """A setting of the persistent kernel, for least..most rows: inputs and threads of a block, and blocks."""

    inputs: int
    threads: int
    shared: int
    blocks: int
    least: int
    most: int

    def for_any_rows(self) -> "PersistentSetting":
        return replace(self, least=1, most=ALL_ROWS)


@dataclass(frozen=True)
class SubBatches:
    """Rows go through all layers from `first` on in `count` sub-batches of so many tiles, one after the other. The last
    takes all rows that are left, however many."""

    first: int
    tiles: int
    count: int

    @property
    def starts(self) -> range:
        """The first tile of each."""
        return range(0, self.tiles * self.count, self.tiles)


def passes(
    kinds: Sequence[str],
    valued: Sequence[bool],
    leaving: bool,
    searching: bool,
    ahead: Sequence[float],
    breaks: Collection[int] = (),
) -> list[LayerPass]:
    """All layers, in order.

    Args:
        kinds, valued: of each layer its kernel, and whether its edges have values; a pass has one of each.
        leaving: rows may leave between passes.
        searching: so do identical ones.
        ahead: of each layer, the edges for each of its inputs from it to the end.
        breaks: layers with which a pass must begin.
    """
    parts, k, depth, next_search = [], 0, len(kinds), FIRST_SEARCH
    while k < depth:
        # A pass has one kind of kernel: it ends where the kernel changes, or where the caller needs a break.
        last = min(k + pass_length(k, leaving), depth)
        other = (j for j in range(k + 1, last) if (kinds[j], valued[j]) != (kinds[k], valued[k]) or j in breaks)
        last = next(other, last)
        # Search for identical rows: rarer and rarer, and none where little work lies ahead that it could save.
        search = searching and next_search <= last < depth and ahead[last] >= AHEAD
        if search:
            next_search = last + max(2, min(4, last), last // 4)
        parts.append(LayerPass(k, last, kinds[k], search))
        k = last
    return parts


def persistent_shared(inputs: int, width: int) -> int:
    """Bytes of shared memory of a block that holds two buffers of so many inputs x (width + 1), and rows of a table."""
    return 2 * (width + 1) * inputs * 4 + PERSISTENT_ROWS


def variants(properties: Properties, width: int, groups: int) -> list[PersistentSetting]:
    """Settings of the persistent kernel for features of at most `width` neurons, the narrowest first; none if one input
    does not fit. Few rows take narrow blocks, so that all multiprocessors have work: each setting but the widest is for
    as many rows as it holds at once. `groups`: of outputs that share loads, in the layer that has most, with
    padding."""
    fitting = [n for n in PERSISTENT_INPUTS if persistent_shared(n, width) <= properties.shared_per_block]
    if not fitting:
        return []
    # Widths: one input, as many as fit, and a step between, for every setting is one more launch in each pass.
    widest = fitting[-1]
    widths = sorted({1, widest} | ({NARROWER} if widest > NARROWER else {4} if widest > 4 else set()))
    settings, covered = [], 0
    for inputs in widths:
        # Occupancy: shared memory and registers bound the blocks that a multiprocessor holds at once.
        shared = persistent_shared(inputs, width)
        lanes = max(1, inputs // 4)
        busy = groups * lanes  # threads that have outputs
        threads = next((t for t in reversed(PERSISTENT_THREADS) if t <= busy), PERSISTENT_THREADS[0])
        resident = max(1, min(properties.shared // (shared + RESERVED_SHARED), RESIDENT // threads))
        blocks = resident * properties.multiprocessors
        # Range of rows: up to what all blocks hold at once; a setting that holds no more than a narrower one goes.
        most = ALL_ROWS if inputs == widest else inputs * blocks
        if most <= covered:
            continue
        settings.append(PersistentSetting(inputs, threads, shared, blocks, covered + 1, most))
        covered = most
    return settings


def stage_shared_bytes(room: int) -> int:
    """Bytes of shared memory of a block with two stages of so many neurons, and one of zeros in each."""
    return 2 * (room + 1) * 32 * 4 + STAGED_NEXT


def stage_blocks(properties: Properties, room: int) -> int:
    """Blocks with such stages that a multiprocessor holds at once."""
    return max(1, min(properties.shared // (stage_shared_bytes(room) + RESERVED_SHARED), STAGED_BLOCKS))


def stage_room(properties: Properties) -> int:
    """Neurons of a stage that a block has room for; footprints that are smaller take less."""
    free = min(properties.shared - RESERVED_SHARED, properties.shared_per_block)
    return max(1, min((free - STAGED_NEXT) // (2 * 32 * 4) - 1, MOST_ROOM))


def memory_bytes(parts: Sequence[LayerPass], row_bytes: int, weights: float, rows: int, count: int, l2: int) -> float:
    """Bytes between a device's memory and its L2 cache, of `l2` bytes, while rows of `row_bytes` go through these
    passes, of `weights` bytes, in `count` sub-batches."""
    # Features are read and written by every launch, unless two buffers of a sub-batch stay in L2; weights are read for
    # every sub-batch.
    stay = 2 * row_bytes * rows / count <= limits.L2_SHARE * l2
    launches = 1 if stay else sum(1 if part.kind == PERSISTENT else part.last - part.first for part in parts)
    return count * weights + 2 * row_bytes * rows * launches


def l2_tiles(properties: Properties, row_bytes: int) -> int:
    """Tiles of which L2 has room for two buffers, at least one."""
    return max(1, int(limits.L2_SHARE * properties.l2_bytes / (2 * 32 * row_bytes)))


def sub_batches(
    properties: Properties, parts: Sequence[LayerPass], row_bytes: int, weights: float, rows: int, size: int | None
) -> SubBatches | None:
    """Sub-batches for the last passes, or None: all rows at once.

    Args:
        row_bytes, weights: as memory_bytes takes them; rows: that are expected.
        size: tiles of each, or 0: none; None: as many as fit L2, where less passes through memory then.
    """
    tiles = l2_tiles(properties, row_bytes) if size is None else size
    sub = SubBatches(parts[0].first, tiles, ceil_div(rows, 32 * tiles) if tiles else 1)
    if sub.count == 1 or sub.count * sum(part.last - part.first for part in parts) > MOST_LAUNCHES:
        return None
    traffic = [memory_bytes(parts, row_bytes, weights, rows, count, properties.l2_bytes) for count in (sub.count, 1)]
    return sub if size or traffic[0] < traffic[1] else None
