"""What the kernels on slices read for one layer, counted on the shim warp by warp: gathers from shared memory and how
often it delivers for them, weights, features copied; and what loads a layer of `persistent` waits for, by machine code.
Counts, not times.

`python tests/cuda/counts.py` prints the tables of docs/explanation/cuda.md.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import nvrtc
from shim import Reads, ShimDevice

from spdnn.engines.cuda.choice import idle_run
from spdnn.engines.cuda.layers import lay_out, to_device, widths
from spdnn.engines.cuda.schedule import BITS, PERSISTENT, STAGED, stage_room, variants
from spdnn.kernels.cuda import settings
from spdnn.problem.network import Layer
from spdnn.reductions.neurons import merge_neurons
from spdnn.sources.radixnet import RadixNet

LAYERS = ((1024, 0), (1024, 7), (4096, 10), (16384, 12))  # neurons and layer
KEPT = 1 << 30  # bytes of merged layers
TILE = 32
PLACES = {90: (227 << 10, "sm_90"), 70: (96 << 10, "sm_70")}  # capability: shared memory of a block


@dataclass(frozen=True)
class Count:
    """Of one layer through one kernel.

    Attributes:
        edges: times inputs.
        footprint: neurons of a stage; 0: it has none.
    """

    kernel: str
    edges: int
    footprint: int
    padding: float
    reads: Reads

    @property
    def per_delivery(self) -> float:
        """Edges for each time that shared memory delivers; 32 at most where every edge has a gather of its own."""
        return self.edges / self.reads.deliveries

    @property
    def conflicts(self) -> float:
        """Times that shared memory delivers for a gather, of the least that it takes (1: no bank is asked twice)."""
        return self.reads.deliveries / self.reads.least

    def bits(self, times: float) -> float:
        """So many times of a warp, for each edge of 32 inputs."""
        return TILE * times / self.edges

    @property
    def weight_bytes(self) -> float:
        """Bytes of weights and what is beside them that warps load, for each edge."""
        return 32 * self.reads.sectors / self.edges

    @property
    def copied_bytes(self) -> float:
        """Bytes of features that are copied to stages, for each edge."""
        return self.reads.copied / self.edges


def count(layer: Layer, kind: str, capability: int = 90) -> Count:
    """One tile of features through the layer by that kind of kernel: dense ones, or words of bits."""
    shared = PLACES[capability][0]
    device = ShimDevice(counting=True, workers=1, capability=capability, multiprocessors=1, shared_per_block=shared)
    laid = to_device(device, lay_out(layer, kind, stage_room(device.properties)))
    features = np.random.default_rng(0).random(TILE * layer.inputs, np.float32)
    source = device.upload(features[: layer.inputs].view(np.uint32) if kind == BITS else features)
    target = device.empty(TILE * layer.outputs, np.float32)
    rows = device.upload(np.array([TILE], np.int32))
    run, table = idle_run(device, 1, 1), device.upload(laid.row(device)) if kind == PERSISTENT else None
    if kind == PERSISTENT:  # the setting for many rows
        setting = variants(device.properties, *widths([laid]))[-1]
        launch = run.layers(0, table, setting, [laid], source, target, rows, always=True)
    else:
        launch = run.layer(0, laid, source, target, rows)
    device.counted()
    launch()
    footprint = laid.numbers.get("room", 0)
    return Count(kind, TILE * layer.edges, footprint, laid.padding, device.counted())


def official(neurons: int, k: int, merged: bool = False) -> Layer:
    """Layer k of the RadiX-Net of so many neurons; `merged`: identical ones, also of the layer after it."""
    network = RadixNet(neurons, k + 2)
    return (merge_neurons(network, KEPT)[0] if merged else network).layer(k)


def table() -> Iterator[str]:
    row = "{:>7} {:>6} {:8} {:11} {:>8} {:>8} {:>9} {:>9} {:>9} {:>9}".format
    yield row("neurons", "layer", "", "kernel", "neurons", "padding", "edges a", "conflicts", "weights", "copied")
    yield row("", "", "", "", "a stage", "", "delivery", "", "bytes", "bytes")
    for neurons, k in LAYERS:
        for what in ("", "merged"):
            layer = official(neurons, k, bool(what))
            for kind in (STAGED, PERSISTENT):
                one = count(layer, kind)
                numbers = f"{one.padding:.0%}", f"{one.per_delivery:.1f}", f"{one.conflicts:.2f}"
                moved = f"{one.weight_bytes:.3f}", f"{one.copied_bytes:.3f}"
                yield row(neurons, k, what, kind, one.footprint or "-", *numbers, *moved)


def bits_table() -> Iterator[str]:
    """Of a first layer on bits, for each edge of 32 inputs: times that shared memory or its crossbar is busy."""
    row = "{:>7} {:8} {:>9} {:>9} {:>9}".format
    yield row("neurons", "", "shuffles", "loads", "copies")
    for neurons in (1024, 4096, 16384):
        for what in ("", "merged"):
            one = count(official(neurons, 0, bool(what)), BITS)
            each = one.reads.shuffles, one.reads.deliveries, one.reads.copied / 128
            yield row(neurons, what, *(f"{one.bits(times):.3f}" for times in each))


def waits(inputs: int, valued: bool, arch: int = 90) -> tuple[int, int]:
    """Loads from global memory that a layer of `persistent` with so many inputs a block waits for, one after the other,
    after the barrier that ends the layer before: before its first multiply-add, and before it adds the last bias."""
    code = nvrtc.machine_code(12, arch, settings.persistent(inputs, 1024, valued))
    found = nvrtc.waits(code, ("FFMA", "FADD"))
    # A sum waits for its weights too, so the bias is the source of an addition that waits for less.
    return min(map(max, found["FFMA"])), max(map(min, found["FADD"]))


def waits_table() -> Iterator[str]:
    row = "{:>7} {:8} {:>20} {:>8}".format
    yield row("inputs", "", "first multiply-add", "bias")
    for inputs in (1, 16):
        for valued in (False, True):
            yield row(inputs, "values" if valued else "", *waits(inputs, valued))


if __name__ == "__main__":
    print(*table(), "", *bits_table(), "", *waits_table(), sep="\n")
