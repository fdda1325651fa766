"""The rows of a batch on the device: how they begin with the inputs, which go on after a pass, what is read at the end.

Everything here is a list of launches, bound once; how many rows there are, only the device knows.
"""

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np

from spdnn.core.errors import MemoryTooSmall
from spdnn.core.features import Inputs
from spdnn.core.numbers import ceil_div
from spdnn.core.result import LastLayer, RowStatistics
from spdnn.engines.cuda.layers import LayerLauncher
from spdnn.engines.cuda.schedule import SETTLED, LayerPass, SubBatches
from spdnn.kernels.cuda import settings
from spdnn.kernels.cuda.copies import Copies
from spdnn.kernels.cuda.device import Device
from spdnn.kernels.cuda.settings import TILE

# Of a row, as row_statistics in last.cu writes it.
STATISTICS = np.dtype(list(zip(RowStatistics._fields, ("f8", "f8", "f4", "f4", "u8"), strict=True)), align=True)
COLUMNS = STATISTICS.itemsize // 8
Launch = Callable[[], None]
FIRST_NONE = 0x7F  # of every byte of a row's number: later than any


class DeviceRows:
    """Counters and lists of one batch, as rows.cu and merge.cu describe them.

    Args:
        tiles: that there is room for; depth: of the network; searching: identical rows are merged.

    Attributes:
        batch: int32 (2,), the batch that all launches work on: which of all inputs is its first, and how many it has.
        run: of the layer that a pass begins with; inside: of the others, whose rows are where that put them.
        origins: two lists that alternate; the current one, as launches are bound, is the first.
    """

    def __init__(self, device: Device, tiles: int, depth: int, dead_from: int, last: LastLayer, searching: bool):
        self.device, self.tiles, self.depth, self.dead_from = device, tiles, depth, dead_from
        # One allocation for all counters, so that the host reads them in one copy; the others are views of it. Zeros,
        # since that copy has the four bytes of padding behind an even number of layers too.
        size = 32 * tiles
        self.batch = device.empty(2, np.int32)
        self.counters = device.upload(np.zeros(counters_of(depth), np.uint64))
        self.survivors, self.work, self.counts, self.failed, self.merged = _views(self.counters, depth)
        self.list, self.parent, self.weight = (device.empty(size, np.int32) for _ in range(3))
        self.origins = [device.empty(size, np.int32) for _ in range(2)]
        self.row_of, self.index_of = (device.empty(size, np.int32) for _ in range(2))
        self.open = device.empty(1, np.int32)
        self.active = device.empty(depth * tiles, np.uint32)
        self.last_statistics = device.empty(size * COLUMNS, np.uint64)
        self.class_counts, self.class_weights = device.upload(last.counts), device.upload(last.weights)
        self.run = LayerLauncher(device, tiles, self.list, self.active, self.work, self.failed, dead_from, tiles)
        self.inside = replace(self.run, list=device.upload(np.arange(size, dtype=np.int32)))
        # Hash table of the search, at most half full, so that rows find a place within few steps.
        self.searching = searching
        if searching:
            self.keep = device.empty(tiles, np.uint32)
            self.capacity = 1 << (2 * size - 1).bit_length()
            self.keys, self.firsts = device.empty(self.capacity, np.uint64), device.empty(self.capacity, np.int32)
            self.hashes, self.entry_of = device.empty(size, np.uint64), device.empty(size, np.int32)

    def into(self, k: int) -> Any:
        """int32 (1,), the number of rows that go into layer k."""
        return self.counts[k : k + 1]

    def begin(self) -> list[Launch]:
        """The launch after which all inputs of the batch that `batch` tells of have a row."""
        # Counters and masks are cleared on the device, so that a captured graph begins anew with every launch.
        arguments = {"batch": self.batch, "layers": self.depth, "tiles": self.tiles, "list": self.list}
        arguments |= {"origin": self.origins[0], "parent": self.parent, "weight": self.weight, "rows": self.counts}
        arguments |= {"active": self.active, "survivors": self.survivors, "work": self.work, "failed": self.failed}
        blocks = self.run.blocks(max(self.depth, 32) * self.tiles, settings.SIMPLE)
        return [self.device.bind(settings.BEGIN, blocks, {**arguments, "merged": self.merged})]

    def boundary(self, part: LayerPass, features: Any, neurons: int) -> list[Launch]:
        """The launches after a pass that left `features` of so many neurons."""
        # Dead rows leave where zeros stay zeros from here on, and after the last layer, whose rows are the result.
        rows, may_leave = self.into(part.first), int(part.last >= self.dead_from or part.last == self.depth)
        if part.search:
            return self.merge(part.first, part.last, features, neurons, rows, may_leave)
        return [self._next_rows(self.run.marks(part.last - 1), part.first, part.last, rows, may_leave)]

    def merge(self, first: int, last: int, features: Any, neurons: int, rows: Any, may_leave: int) -> list[Launch]:
        """The launches that merge identical ones of so many `rows` (int32 (1,)) of `features`, and make those that are
        left the rows of layer `last`; the survivors of layers first..last-1 are counted."""
        # Hash every row, insert the hashes in a table whose entries keep the first row, compare each row with it. The
        # table is emptied first; while many rows still die (`settled`), the kernels themselves skip the search.
        device, blocks = self.device, self.run.blocks(self.tiles, 1)
        origin = self.origins[0]
        common = {"open": self.open, "rows": rows, "keep": self.keep}
        rest = {"features": features, "neurons": neurons, "origin": origin, "weight": self.weight}
        table = {"firsts": self.firsts, "entry_of": self.entry_of}
        hashed = {"tiles": self.run.stride, "first": first, "last": last, "active": self.active}
        hashed |= {"may_leave": may_leave, "settled": SETTLED, "hashes": self.hashes, "survivors": self.survivors}
        inserted = {"hashes": self.hashes, "mask": self.capacity - 1, "keys": self.keys}
        return [
            lambda: device.fill(self.keys, 0xFF),
            lambda: device.fill(self.firsts, FIRST_NONE),
            device.bind(settings.HASH_ROWS, blocks, {**common, **rest, **hashed}),
            device.bind(settings.INSERT_ROWS, self.run.blocks(32 * self.tiles, settings.SIMPLE),
                        {**common, **table, **inserted}),
            device.bind(settings.COMPARE_ROWS, blocks,
                        {**common, **rest, **table, "parent": self.parent, "merged": self.merged}),
            self._next_rows(self.keep, last, last, rows, 1),
        ]  # fmt: skip

    def cut(self, sub: SubBatches, last: int) -> tuple[Launch, Iterator["DeviceRows"]]:
        """(the launch that cuts the rows before layer `sub.first` into sub-batches, these sub-batches). After them, the
        rows of all go into the pass that begins with layer `last`, where each ended it.

        A sub-batch has parts of the lists and marks: its rows are counted from 0. All share what a search needs.
        """
        step = self.depth + 1
        counts = self.device.empty(step * sub.count, np.int32)
        arguments = {"rows": self.into(sub.first), "size": TILE * sub.tiles, "number": sub.count, "step": step}
        arguments |= {"list": self.list, "counts": counts[sub.first :], "total": self.into(last)}
        launch = self.device.bind(settings.CUT_ROWS, self.run.blocks(TILE * self.tiles, settings.SIMPLE), arguments)
        return launch, (self._part(start, sub, counts[i * step :]) for i, start in enumerate(sub.starts))

    def _part(self, start: int, sub: SubBatches, counts: Any) -> "DeviceRows":
        """The sub-batch that begins with that tile."""
        part, tiles = copy(self), sub.tiles if start < sub.starts[-1] else self.tiles - start
        part.tiles, part.counts = tiles, counts
        part.active = self.active[start:]
        of_rows = slice(TILE * start, TILE * (start + tiles))
        part.list, part.origins = self.list[of_rows], [origin[of_rows] for origin in self.origins]
        part.run = replace(self.run, tiles=tiles, list=part.list, active=part.active)
        part.inside = replace(self.inside, tiles=tiles, active=part.active)
        return part

    def _next_rows(self, keep: Any, first: int, last: int, rows: Any, may_leave: int) -> Launch:
        """The launch that makes of `rows` those that go into layer `last`, where `keep` has their marks."""
        # A prefix sum over the masks gives every row that goes on its place; the two lists change roles.
        origin, following = self.origins
        self.origins.reverse()
        arguments = {"keep": keep, "active": self.active, "tiles": self.run.stride, "first": first, "last": last}
        arguments |= {"rows": rows, "next": self.into(last), "may_leave": may_leave, "origin": origin}
        arguments |= {"weight": self.weight, "list": self.list, "next_origin": following, "survivors": self.survivors}
        kernel = settings.NEXT_ROWS
        return self.device.bind(kernel, ceil_div(self.tiles, kernel.threads // 32), arguments)

    def statistics(self, features: Any, neurons: int) -> Launch:
        """The launch that sums up the last rows."""
        arguments = {"features": features, "neurons": neurons, "list": self.list, "rows": self.into(self.depth)}
        arguments |= {"counts": self.class_counts, "weights": self.class_weights, "statistics": self.last_statistics}
        return self.device.bind(settings.ROW_STATISTICS, self.run.blocks(self.tiles, 1), arguments)

    def resolve(self, k: int) -> list[Launch]:
        """The launches that find the row of each of a batch's inputs before layer k, or at the end (k: the depth)."""
        # Index of each row that is left, then every input follows its representatives (`parent`) to such a row.
        blocks = self.run.blocks(32 * self.tiles, settings.SIMPLE)
        indexed = {"rows": self.into(k), "origin": self.origins[0], "index_of": self.index_of}
        followed = {"batch": self.batch, "parent": self.parent, "index_of": self.index_of, "row_of": self.row_of}
        return [
            lambda: self.device.fill(self.index_of, 0xFF),
            self.device.bind(settings.ROW_INDEX, blocks, indexed),
            self.device.bind(settings.RESOLVE, blocks, followed),
        ]

    def read(self, count: int) -> dict[str, Any]:
        """The outcome of a batch of `count` inputs, as `outcome` has it. Every read is one copy that waits."""
        read = self.device.read
        counters = read(self.counters)
        rows = int(row_counts(counters, self.depth)[-1])
        return self.outcome(counters, read(self.row_of[:count]), read(self.last_statistics[: rows * COLUMNS]))

    def outcome(self, counters: np.ndarray, row_of: np.ndarray, statistics: np.ndarray) -> dict[str, Any]:
        """The outcome of a batch: arrays of the rows at the end, counters, and where inputs are. Of arrays on the host;
        `statistics` may be of more rows than are left."""
        survivors, work, counts, failed, merged = _views(counters, self.depth)
        rows = int(counts[-1])
        statistics = statistics[: rows * COLUMNS].view(STATISTICS)
        return {
            "statistics": RowStatistics(*(statistics[name] for name in RowStatistics._fields)),
            "row_of": row_of,
            "survivors": survivors,
            "work": work,
            "failed": int(failed[0]),
            "merged": int(merged[0]),
            "rows": rows,
        }


def counters_of(depth: int) -> int:
    """uint64 words that the counters of so many layers take."""
    return 2 * depth + (depth + 3 + 1) // 2


def _views(counters: Any, depth: int) -> list[Any]:
    """Survivors and work of each layer, uint64; rows that go into each and past the last, what failed, how many merged,
    int32: the parts of `counters`."""
    numbers = counters[2 * depth :].view(np.int32)
    ends = depth + 1, depth + 2, depth + 3
    parts = (numbers[a:b] for a, b in zip((0, *ends), ends, strict=False))
    return [counters[:depth], counters[depth : 2 * depth], *parts]


def row_counts(counters: np.ndarray, depth: int) -> np.ndarray:
    """int32 (depth + 1,): of `counters` on the host, the rows that went into each layer, and those left at the end."""
    return _views(counters, depth)[2]


class DeviceInputs:
    """What is stored of the inputs, and which of it is behind each of them, on a device; and the launches that make of
    it what the first layer reads, words of bits or features; there once the copies finish."""

    def __init__(self, copies: Copies, inputs: Inputs):
        device, self.kind, self.neurons = copies.device, inputs.kind, inputs.neurons
        self.device = device
        arrays = stored_arrays(inputs)
        try:
            *self.data, self.stored = [copies.upload(array) for array in arrays]
        except MemoryTooSmall as error:
            total = sum(array.nbytes for array in arrays)
            raise MemoryTooSmall(
                f"the inputs take {total:,} bytes, more than {device.properties.name} has free "
                f"({device.free_bytes():,} of {device.properties.memory_bytes:,}); fewer of them fit (--count)",
                max(total, error.least),
            ) from None

    def launches(self, rows: DeviceRows, words: Any, features: Any) -> list[Launch]:
        """What makes words (bits) or features (others) of the batch in `rows.batch`."""
        # Bits stay bits: a word has one bit of each of 32 inputs, and the first layer gathers it in place of 32 floats.
        arguments = {"stored": self.stored, "batch": rows.batch, "neurons": self.neurons}
        blocks = rows.run.blocks(rows.tiles * ceil_div(self.neurons, TILE))
        if self.kind == "bits":
            arguments |= {"bits": self.data[0], "words": words}
            return [self.device.bind(settings.WORDS, blocks, arguments)]
        arguments["features"] = features
        if self.kind == "dense":
            return [self.device.bind(settings.DENSE_TILES, blocks, {"values": self.data[0], **arguments})]
        # CSR is scattered, so the features that it does not name are set to zero before.
        batch_features = features[: rows.tiles * TILE * self.neurons]
        offsets, columns, values = self.data
        arguments |= {"offsets": offsets, "columns": columns, "values": values}
        device = self.device  # and not `self`, which would keep itself and its memory
        return [lambda: device.fill(batch_features, 0), self.device.bind(settings.SPARSE_TILES, blocks, arguments)]


def stored_arrays(inputs: Inputs) -> list[np.ndarray]:
    """What a device holds of the inputs: the arrays of what is stored, then int32, which of it is behind each."""
    data = inputs.data
    if inputs.kind == "csr":
        arrays = [data.indptr.astype(np.int64), data.indices.astype(np.int32), data.data]
    else:
        arrays = [np.ascontiguousarray(data).reshape(-1)]
    return [*arrays, inputs.stored_rows(inputs.numbers_of(0, inputs.count)).astype(np.int32)]
