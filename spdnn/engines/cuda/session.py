"""A session of the engine `cuda`: everything on the device, and a list of launches that a run goes through.

Data flow of a batch, all of it on the device:

    inputs (bits, dense or CSR) -> words or features -> pass of layers -> next rows -> pass -> ... -> statistics

`rows` holds how many rows go into each layer; kernels read it, the host does not. Between passes, rows that died leave
(*dead*), and where a look is due, identical ones are merged (*inputs*); *neurons* is done in `prepare`.
Source: Hidayetoglu et al., HPEC 2020 (fusion, compaction); a graph of launches that needs no host: SNIG (Lin and Huang,
HPEC 2020).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from spdnn import progress
from spdnn.engines.base import LastLayer, Options, Prepared, Session
from spdnn.engines.compiled import past_float32
from spdnn.engines.cuda.choice import choose, edges_ahead, left
from spdnn.engines.cuda.layers import Run, arranged_ahead, to_device, widths
from spdnn.engines.cuda.rows import DeviceRows
from spdnn.engines.cuda.schedule import BITS, EARLY, PERSISTENT, passes, variants
from spdnn.errors import MemoryTooSmall
from spdnn.features import Inputs, Result
from spdnn.files import check_ended
from spdnn.kernels.cuda import settings
from spdnn.kernels.cuda.device import Device
from spdnn.layouts import tiles_of

TILE = 32
ROW_BYTES = 192  # of an input, beside its features: where its row is, hashes and their table, statistics
SHARE = 0.95  # of the free memory of the device that features may take, when the weights are there
CHECKED = 64  # launches between two looks at signals
Launch = Callable[[], None]


class CudaSession(Session):
    """Weights and inputs on the device, two feature buffers for one batch of inputs, and all launches bound.

    Args:
        kind: of the kernels (schedule.KINDS), or None: the ones that are fastest.
    """

    def __init__(self, device: Device, prepared: Prepared, inputs: Inputs, options: Options, kind: str | None = None):
        super().__init__()
        network = prepared.network
        inputs.check_width(network.inputs)
        self.device, self.inputs, self.depth = device, inputs, network.depth
        self.last, self.keep_values = LastLayer(network), options.values
        self.outputs, self.dead_from = network.outputs, prepared.dead_from
        self.edges = np.array([network.header(k).edges for k in range(self.depth)], np.int64)
        if "dead" in prepared.reductions:
            self.found["dead"] = {"rows_may_leave_before_layer": self.dead_from + 1}
        device.trim()
        begun = time.perf_counter()
        self.numbers = inputs.numbered(0, inputs.count)
        self.given, self.stored = _upload_inputs(device, inputs, self.numbers)
        device.synchronize()
        inputs_copied = time.perf_counter() - begun
        looking = "inputs" in prepared.reductions
        leaving = looking or "dead" in prepared.reductions
        first, tiles = 1 if inputs.kind == "bits" else 0, tiles_of(inputs.count, TILE)
        self.choice = choose(device, network, first, tiles, kind, left(tiles, leaving, looking))
        device.trim()
        kinds = [BITS] * first + self.choice.kinds[first:]
        self.layers = _upload_layers(device, network, kinds, self.choice.room, options.threads)
        self.table = device.upload(np.concatenate([self._row(layer) for layer in self.layers]))
        valued = [layer.valued for layer in self.layers]
        self.passes = passes(kinds, valued, leaving, looking, edges_ahead(network))
        widest = max([layer.outputs for layer in self.layers] + [network.inputs] * (1 - first))
        self.tiles, self.buffers = self._feature_buffers(widest)
        self.words = device.empty(self.tiles * network.inputs, np.uint32) if first else None
        self.rows = DeviceRows(device, self.tiles, self.depth, self.dead_from, self.last, looking)
        self.told = _batches(device, inputs.count, self.tiles * TILE)
        self.launches = [*self.rows.begin(), *self._first_features(), *self._bind_body(), *self.rows.resolve()]
        self.copy_seconds = inputs_copied + sum(layer.copy_seconds for layer in self.layers)
        self.notes = {
            "device": device.properties.name,
            "capability": device.properties.capability / 10,
            "multiprocessors": device.properties.multiprocessors,
            "software": device.properties.software,
            "kernels": self.choice.told,
            "passes": len(self.passes),
            "padding": self._padding(),
        }

    @property
    def batches(self) -> int:
        return -(-self.inputs.count // (self.tiles * TILE))

    def run(self, meetings=None) -> Result:
        advance, close = progress.ticker("inference", len(self.told), " batches")
        seconds, parts = 0.0, []
        try:
            for told in self.told:
                seconds += self.device.seconds(lambda told=told: self._launch(told))
                first, count = map(int, told)
                parts.append((self.numbers[first : first + count], self._finish(count)))
                advance(1)
        finally:
            close()
        return self._result(parts, seconds)

    def _launch(self, told: np.ndarray) -> None:
        """A batch, `told` of as DeviceRows.batch is, through all layers."""
        self.device.copy_in(self.rows.batch, told)
        for i, launch in enumerate(self.launches):
            if i % CHECKED == 0:
                check_ended()
            launch()

    def _first_features(self) -> list[Launch]:
        """The launches that make of a batch's inputs what the first layer reads."""
        arguments = {"stored": self.stored, "batch": self.rows.batch, "neurons": self.inputs.neurons}
        blocks = self.rows.run.blocks(self.tiles * -(-self.inputs.neurons // TILE))
        if self.inputs.kind == "bits":
            arguments |= {"bits": self.given[0], "found": self.words}
            return [self.device.bind(settings.WORDS, blocks, arguments)]
        arguments["features"] = self.buffers[0]
        if self.inputs.kind == "dense":
            return [self.device.bind(settings.DENSE_TILES, blocks, {"values": self.given[0], **arguments})]
        filled = self.buffers[0][: self.tiles * TILE * self.inputs.neurons]
        offsets, columns, values = self.given
        arguments |= {"offsets": offsets, "columns": columns, "values": values}
        device = self.device  # and not `self`, which would keep itself and its memory
        return [lambda: device.fill(filled, 0), self.device.bind(settings.SPARSE_TILES, blocks, arguments)]

    def _bind_body(self) -> list[Launch]:
        """The launches of all passes; `source` after them is the buffer with the last features."""
        found, source, target = [], *self.buffers
        run: Run = self.rows.run
        for part in self.passes:
            rows = self.rows.into(part.first)
            layers = self.layers[part.first : part.last]
            if part.kind == BITS:
                found.append(run.layer(part.first, layers[0], self.words, target, rows))
            elif part.kind == PERSISTENT:
                settings_of = variants(self.device.properties, *widths(layers))
                early = part.first < EARLY
                for variant in settings_of[-1:] if early else settings_of:
                    launch = run.layers(part.first, part.last, self.table, variant, layers, source, target, rows, early)
                    found.append(launch)
            else:
                found.append(run.layer(part.first, layers[0], source, target, rows))
            source, target = target, source
            found += self.rows.boundary(part, source, layers[-1].outputs)
        self.features = source
        return [*found, self.rows.statistics(source, self.outputs)]

    def _row(self, layer) -> np.ndarray:
        return layer.row(self.device) if layer.kind == PERSISTENT else np.zeros(8, np.uint64)

    def _feature_buffers(self, widest: int) -> tuple[int, list[Any]]:
        """(tiles of a batch, two buffers of as many); fewer than could be where the free memory is in pieces.

        Raises:
            MemoryTooSmall: not one tile fits.
        """
        tiles = self._batch_tiles(widest)
        while True:
            try:
                return tiles, [self.device.empty(tiles * TILE * widest, np.float32) for _ in range(2)]
            except MemoryTooSmall:
                if tiles == 1:
                    raise
                tiles = -(-tiles // 2)

    def _batch_tiles(self, widest: int) -> int:
        """Tiles of inputs in a batch, as many as the memory that is left allows.

        Raises:
            MemoryTooSmall: not one fits.
        """
        each = TILE * (2 * 4 * widest + ROW_BYTES) + 4 * (self.depth + self.inputs.neurons)
        free, needed = int(SHARE * self.device.free_bytes()), tiles_of(self.inputs.count, TILE)
        most = min(needed, free // each, 2**30 // TILE)
        if not most:
            raise MemoryTooSmall(
                f"{self.device.properties.name} has {free:,} bytes of memory left beside weights and inputs, and "
                f"{TILE} inputs of this network need {each:,} there; fewer layers (--layers) or inputs (--count) fit",
                each,
            )
        return -(-needed // -(-needed // most))

    def _finish(self, count: int) -> dict[str, Any]:
        """What a batch left on the device, on the host."""
        found = self.rows.read(count)
        if found["failed"] < self.depth:
            raise past_float32(found["failed"])
        if self.keep_values:
            tiles = tiles_of(found["last_rows"], TILE)
            values = self.device.read(self.features[: tiles * TILE * self.outputs])
            rows = values.reshape(tiles, self.outputs, TILE).transpose(0, 2, 1).reshape(-1, self.outputs)
            found["values"] = rows[self.device.read(self.rows.list[: found["rows"]])]
        return found

    def _result(self, parts: list[tuple[np.ndarray, dict]], seconds: float) -> Result:
        alive, columns, kept = [], [[] for _ in range(5)], []
        for numbers, found in parts:
            living = np.flatnonzero(found["row_of"] >= 0)
            row_of = found["row_of"][living].astype(np.int64)
            alive.append(numbers[living])
            for column, name in zip(columns, ("sums", "projections", "least", "most", "hashes"), strict=True):
                column.append(found[name][row_of])
            kept.append((found.get("values"), row_of))
        work = np.sum([found["work"] for _, found in parts], axis=0, dtype=np.int64)
        computed = int(work @ self.edges)
        loaded = 4 * computed
        if self.inputs.kind == "bits":
            loaded -= int(work[0] * self.edges[0]) * 31 // 8  # a bit for each edge, not a float
        notes = {
            **self.notes,
            "batches": len(self.told),
            "rows_merged": int(sum(found["merged"] for _, found in parts)),
            # Of the last run: between two events on the device; and with what opening the session copied to it.
            "spans": {"layer loop, resident": seconds, "with host-to-device copies": seconds + self.copy_seconds},
        }
        survivors = np.sum([found["survivors"] for _, found in parts], axis=0, dtype=np.int64)
        values = self.last.gathered(kept) if self.keep_values else None
        statistics = [np.concatenate(column) for column in columns]
        return Result(
            self.inputs.total, self.last.outputs, np.concatenate(alive), *statistics, survivors, computed, values,
            notes, bytes_loaded=loaded,
        )  # fmt: skip

    def _padding(self) -> float:
        """The share of the places for edges that hold none, of all layers."""
        places = [edges / (1 - layer.padding) for edges, layer in zip(self.edges, self.layers, strict=True) if edges]
        return 1 - float(self.edges.sum()) / max(1.0, sum(places))


def _batches(device: Device, count: int, size: int) -> np.ndarray:
    """int32 (batches, 2), pinned: of all inputs in batches of `size`, what DeviceRows.batch takes."""
    firsts = np.arange(0, count, size)
    told = device.pinned(2 * firsts.size, np.int32).reshape(-1, 2)
    told[:, 0], told[:, 1] = firsts, np.minimum(firsts + size, count) - firsts
    return told


def _upload_inputs(device: Device, inputs: Inputs, numbers: np.ndarray) -> tuple[list[Any], Any]:
    """(what is stored of the inputs, which of it is behind each of the inputs `numbers`) on the device.

    Raises:
        MemoryTooSmall: they do not fit; the sentence says what they take.
    """
    data = inputs.data
    if inputs.kind == "csr":
        arrays = [data.indptr.astype(np.int64), data.indices.astype(np.int32), data.data]
    else:
        arrays = [np.ascontiguousarray(data).reshape(-1)]
    arrays.append(inputs.stored(numbers).astype(np.int32))
    try:
        *given, stored = (device.upload(array) for array in arrays)
        return given, stored
    except MemoryTooSmall as error:
        total = sum(array.nbytes for array in arrays)
        raise MemoryTooSmall(
            f"the inputs take {total:,} bytes, more than {device.properties.name} has free ({device.free_bytes():,} of "
            f"{device.properties.memory_bytes:,}); fewer of them fit (--count)",
            max(total, error.least),
        ) from None


def _upload_layers(device: Device, network, kinds: list[str], room: int, threads: int) -> list:
    """All layers on the device, laid out by so many threads.

    Raises:
        MemoryTooSmall: they do not fit; the sentence says how many do.
    """
    layers = []
    try:
        with closing(arranged_ahead(network.layers(), kinds, room, threads)) as arranged:
            for layer in progress.bar(arranged, "weights to the device", network.depth):
                layers.append(to_device(device, layer))
    except MemoryTooSmall as error:
        total = sum(network.header(k).nbytes for k in range(network.depth))
        raise MemoryTooSmall(
            f"the weights of {network.depth} layers take about {total:,} bytes, more than {device.properties.name} has "
            f"left; {f'the first {len(layers)} fit' if layers else 'not one fits'} (--layers), before features",
            max(total, error.least),
        ) from None
    return layers
