"""Which kernel each layer gets: those that suit are timed on the device, on layers of the network itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from spdnn.engines.cuda.layers import COLUMNS, Run, arranged, to_device, widths
from spdnn.engines.cuda.schedule import CSR, KINDS, MOST_STAGED, PERSISTENT, STAGED, stage_room, variants
from spdnn.errors import MemoryTooSmall, Unsuitable
from spdnn.kernels.cuda.device import Device, Properties
from spdnn.kernels.cuda.settings import staged_outputs
from spdnn.layouts.sliced import staged
from spdnn.network import Layer, Network

MOST_SHAPES = 4  # of layers that are timed; the others get what suits the one with most edges
SAMPLES = 5
TILES = 2  # of inputs for each multiprocessor, in a sample
SAMPLE_BYTES = 1 << 28  # of its features at most
IN_A_ROW = 4  # layers that the persistent kernel is timed over, where the shape allows it


@dataclass(frozen=True)
class Choice:
    """The kernels of a network's layers.

    Attributes:
        kinds: of each layer; room: neurons of a stage, where one is staged.
        told: why, fit for JSON.
    """

    kinds: list[str]
    room: int
    told: dict


def choose(device: Device, network: Network, first: int, tiles: int, kind: str | None = None) -> Choice:
    """Kernels for the layers from `first` on; those before it have a kernel already.

    Args:
        tiles: of inputs in a batch.
        kind: the one to use wherever it can be used, or None: the one that was fastest.

    Raises:
        Unsuitable: `kind` suits none of the layers.
    """
    headers = [network.header(k) for k in range(network.depth)]
    shapes: dict[tuple, list[int]] = {}
    for k in range(first, network.depth):
        shapes.setdefault((headers[k].inputs, headers[k].outputs, headers[k].single_value), []).append(k)
    heaviest = sorted(shapes, key=lambda shape: -sum(headers[k].edges for k in shapes[shape]))
    kinds, told, room = [CSR] * network.depth, [], 0
    for shape in heaviest:
        refused = {name: why for name in KINDS if (why := unsuited(device.properties, name, *shape[:2]))}
        suited = [name for name in ((kind,) if kind else KINDS) if name not in refused]
        layer = network.layer(max(shapes[shape], key=lambda k: headers[k].edges))
        room = room or _room(device.properties, [network.layer(k) for k in _some(shapes[shape])])
        seconds: dict[str, float] = {}
        if kind is None and len(told) < MOST_SHAPES:
            for name in suited:
                try:
                    seconds[name] = _seconds(device, layer, name, room, tiles)
                except MemoryTooSmall as error:
                    refused[name] = f"not timed: {error}"
            suited = sorted(seconds, key=seconds.__getitem__) or suited
        chosen = suited[0] if suited else STAGED
        for k in shapes[shape]:
            kinds[k] = chosen
        named = {"inputs": shape[0], "outputs": shape[1], "layers": len(shapes[shape]), "kernel": chosen}
        told.append({**named, "seconds_per_layer": seconds, "not_suitable": refused})
    if kind and shapes and kind not in kinds[first:]:
        raise Unsuitable(f"no layer suits the kernel {kind}: {told[0]['not_suitable'][kind]}")
    why = "asked for by the engine's name, staged where it does not suit" if kind else "the fastest of those timed"
    return Choice(kinds, room, {"why": why, "shapes": told[:MOST_SHAPES]})


def unsuited(properties: Properties, kind: str, inputs: int, outputs: int) -> str | None:
    """Why a kernel cannot take a layer of this shape on such a device, or None."""
    width = max(inputs, outputs)
    if kind == PERSISTENT and not variants(properties, width, outputs):
        needed = 2 * 4 * (width + 1)
        return (
            f"two buffers of {width:,} neurons take {needed:,} bytes of shared memory for one input, and a block of "
            f"{properties.name} has {properties.shared_per_block:,}"
        )
    return None


def _some(layers: list[int]) -> list[int]:
    """The first, the middle and the last of `layers`."""
    return sorted({layers[0], layers[len(layers) // 2], layers[-1]})


def _room(properties: Properties, layers: list[Layer]) -> int:
    """Neurons of a stage, from the footprints of some layers."""
    wholes = (staged(layer, staged_outputs(not layer.single_value), MOST_STAGED) for layer in layers)
    return stage_room(properties, max(int(np.diff(whole.map_starts).max()) for whole in wholes))


def _seconds(device: Device, layer: Layer, kind: str, room: int, tiles: int) -> float:
    """The median seconds of one layer with one kind of kernel, on features none of which is zero."""
    one = max(layer.inputs, layer.outputs) * 128
    tiles = max(1, min(tiles, TILES * device.properties.multiprocessors, SAMPLE_BYTES // one))
    laid = to_device(device, arranged(layer, kind, room))
    run = idle_run(device, tiles)
    rows = device.upload(np.array([32 * tiles], np.int32))
    values = np.random.default_rng(0).random((layer.inputs, 32), np.float32)
    source = device.upload(np.tile(values.reshape(-1), tiles))
    target = device.empty(tiles * 32 * layer.outputs, np.float32)
    times = 1
    if kind == PERSISTENT:
        times = IN_A_ROW if layer.inputs == layer.outputs else 1
        several = [laid] * times
        table = device.upload(np.tile(laid.row(device), times))
        assert table.size == times * COLUMNS
        setting = variants(device.properties, *widths(several))[-1]
        launch = run.layers(0, times, table, setting, several, source, target, rows, always=True)
    else:
        launch = run.layer(0, laid, source, target, rows)
    launch()
    return float(np.median([device.seconds(launch) for _ in range(SAMPLES)])) / times


def idle_run(device: Device, tiles: int, layers: int = IN_A_ROW) -> Run:
    """A Run of `tiles` full tiles in their own slots, in which no row leaves."""
    return Run(
        device,
        tiles,
        device.upload(np.arange(32 * tiles, dtype=np.int32)),
        device.upload(np.zeros(layers * tiles, np.uint32)),
        device.upload(np.zeros(layers, np.uint64)),
        device.upload(np.full(1, layers, np.int32)),
        layers,
    )


def edges_ahead(network: Network) -> Sequence[float]:
    """Of each layer and past the last, the edges for each of its inputs from it to the end."""
    headers = [network.header(k) for k in range(network.depth)]
    ahead = np.concatenate([np.cumsum([float(header.edges) for header in headers][::-1])[::-1], [0.0]])
    return [ahead[k] / headers[min(k, network.depth - 1)].inputs for k in range(network.depth + 1)]
