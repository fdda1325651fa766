"""What counts and data sheets say of the twelve official networks on GPUs: predicted times, of which none is measured.

    python tests/gpu/predicted.py      prints the tables of docs/explanation/cuda.md

A time is the least that the counted work of a kernel can take (gpus.py). The engine is `cuda-staged`,
from whose layers dead inputs leave, as from those of At-scale SpDNN. How far such times are from the truth show two
kernels whose times are published: the same is counted for them, as their papers and code describe them.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from gpus import GPUS, WARP, Gpu, TileWork, seconds

from spdnn.costmodel.official import official_work
from spdnn.engines.cuda.choice import room_for
from spdnn.kernels.cuda.device import Properties
from spdnn.kernels.cuda.settings import STAGED_HELD, staged_outputs
from spdnn.kernels.layouts.sliced import CHUNK, SLICE, staged
from spdnn.problem import challenge
from spdnn.problem.network import Layer
from spdnn.records.published import read_baselines
from spdnn.sources.radixnet import RadixNet

TILE, LINE = 32, 128  # inputs of a tile; bytes of a delivery of shared memory
# Of a warp in staged.cu, by machine code: one turn of the inner loop (tests/cuda/test_counts.py holds them); the end of
# an output; and what a copy of 16 bytes takes.
TURN = {
    1: {70: 58, 75: 58, 80: 59, 90: 66},
    2: {70: 90, 75: 90, 80: 91, 90: 98},
    4: {70: 154, 75: 154, 80: 158, 90: 165},
}
OUTPUT, COPY = 43, 5
PREDICTED = ("V100", "A100", "H100", "H200")
AT_SCALE, SNIG = "at-scale SpDNN (Hidayetoglu)", "SNIG"
PUBLISHED = {  # what their times were published for
    AT_SCALE: {"V100": "NVIDIA V100 16GB (Summit)", "A100": "NVIDIA A100 40GB"},
    SNIG: {"RTX 2080 Ti": "GeForce RTX 2080 Ti 11GB"},
}
# At-scale SpDNN: HPEC 2020, section III-B. Machine code of the loop there, by NVRTC 12.9: 337 for 8 edges x 12 inputs.
BLOCK, MINIBATCH, BUFFER, EDGE = 256, 12, 512, 337 / 8
# SNIG: HPEC 2020; a warp for each input neuron, a block for each row and section of outputs. Machine code likewise.
SECTION, NEURON = 12288, 45


@dataclass(frozen=True)
class Row:
    """A network on a GPU; `published`: seconds, of kernels that have them."""

    system: str
    gpu: str
    neurons: int
    layers: int
    seconds: float
    binds: str
    published: float | None = None

    @property
    def factor(self) -> float | None:
        """Published over predicted seconds."""
        return self.published / self.seconds if self.published else None


def ours(layer: Layer, gpu: Gpu) -> TileWork:
    """What staged_layer does for a tile of inputs."""
    limits = Properties(gpu.name, gpu.capability, gpu.multiprocessors, 2048, gpu.shared_per_block, gpu.shared, 0, 0, "")
    outputs = staged_outputs(not layer.single_value)
    laid = staged(layer, outputs, room_for(limits, [layer]), STAGED_HELD)
    gathers, shared, copied = laid.slices.indices.size, laid.slices.shared, laid.map.size
    turns = gathers / (SLICE * CHUNK)  # of a warp, whose lanes take SLICE groups
    instructions = turns * TURN[shared][gpu.capability] + layer.outputs / SLICE * OUTPUT + copied / SLICE * COPY
    weights = laid.slices.nbytes + laid.map.nbytes
    l2 = weights + LINE * (copied + layer.outputs)
    rows = 4 * (layer.inputs + layer.outputs)
    return TileWork(TILE, laid.parts, instructions, gathers * shared, gathers + copied, l2, weights, rows)


def at_scale(layer: Layer, gpu: Gpu) -> TileWork:
    """What At-scale's kernel does for a minibatch: a thread for each output, footprints staged in order of neurons."""
    edges, outputs = layer.edges, layer.outputs
    output = np.repeat(np.arange(outputs), np.diff(layer.offsets))
    footprint, rank = np.unique(output // BLOCK * layer.inputs + layer.indices, return_inverse=True)
    block = footprint // layer.inputs
    position = np.arange(footprint.size) - np.searchsorted(block, block)
    stage_of = block * -(-layer.inputs // BUFFER) + position // BUFFER
    stage, place = stage_of[rank], position[rank] % BUFFER
    # The steps of a warp in a stage: as many as the lane with most edges there has.
    key = stage * outputs + output
    order = np.argsort(key, kind="stable")
    runs = np.flatnonzero(np.diff(key[order], prepend=-1))
    step = np.arange(edges) - np.repeat(runs, np.diff(np.append(runs, edges)))
    warp_step = ((stage[order] * outputs + output[order]) // WARP) * layer.inputs + step
    steps = np.unique(warp_step).size
    # Each step and bank, how many places are asked for; lanes that ask for one place are served together.
    asked = np.unique(warp_step * BUFFER + place[order])
    bank = asked // BUFFER * WARP + asked % WARP
    banks, often = np.unique(bank, return_counts=True)
    begins = np.flatnonzero(np.diff(banks // WARP, prepend=-1))
    deliveries = int(np.maximum.reduceat(often, begins).sum())
    # A warp copies 32 neurons of the footprint in a row, of one input at a time, in sectors of 32 bytes.
    sectors = np.unique(
        (stage_of * BUFFER + position % BUFFER) // WARP * layer.inputs + footprint % layer.inputs // 8
    ).size
    weights = steps * WARP * 6
    l2 = weights + MINIBATCH * (32 * sectors + 4 * outputs)
    copies = MINIBATCH * footprint.size / WARP
    return TileWork(
        inputs=MINIBATCH,
        blocks=-(-outputs // BLOCK),
        instructions=steps * EDGE + 8 * copies,
        multiply_adds=steps * MINIBATCH,
        deliveries=MINIBATCH * deliveries + copies,
        l2_bytes=l2,
        weight_bytes=weights,
        row_bytes=4 * (layer.inputs + outputs),
    )


def snig(layer: Layer, gpu: Gpu) -> TileWork:
    """What SNIG's kernel does for a row: a warp adds the edges of an input neuron up in shared memory, atomically."""
    sections = -(-layer.outputs // SECTION)
    section = layer.outputs // sections
    output = np.repeat(np.arange(layer.outputs), np.diff(layer.offsets))
    warp = layer.indices.astype(np.int64) * sections + output // section
    bank = warp * WARP + output % WARP
    banks, often = np.unique(bank, return_counts=True)
    begins = np.flatnonzero(np.diff(banks // WARP, prepend=-1))
    deliveries = 2 * int(np.maximum.reduceat(often, begins).sum())  # read, compared and exchanged
    l2 = 8 * layer.edges + 4 * (layer.inputs * sections * 3 + layer.outputs)
    busy = layer.inputs * sections
    return TileWork(
        1, sections, busy * NEURON, busy, deliveries, l2, 8 * layer.edges, 4 * (layer.inputs + layer.outputs)
    )


KERNELS: dict[str, Callable[[Layer, Gpu], TileWork]] = {"cuda-staged": ours, AT_SCALE: at_scale, SNIG: snig}


@cache
def layers(neurons: int) -> tuple[Layer, ...]:
    """Layers of the second block, whose neurons are permuted as all later ones': the first, the middle, the last."""
    block = RadixNet(neurons, 1).block
    network = RadixNet(neurons, 2 * block)
    return tuple(network.layer(block + k) for k in (0, block // 2, block - 1))


def predicted(system: str, gpu: Gpu, neurons: int) -> Iterator[Row]:
    """A row for each depth."""
    work = [KERNELS[system](layer, gpu) for layer in layers(neurons)]
    mean = TileWork(*np.mean(work, axis=0))
    place = PUBLISHED.get(system, {}).get(gpu.name)
    published = {
        (row.neurons, row.layers): row.seconds
        for row in baselines()
        if (row.system, row.year, row.devices, row.hardware) == (system, 2020, "1", place)
    }
    for depth in challenge.DEPTHS:
        least, binds = seconds(gpu, mean, official_work(neurons, depth).rows)
        yield Row(system, gpu.name, neurons, depth, least, binds, published.get((neurons, depth)))


@cache
def baselines():
    return read_baselines()


def own(widths: Sequence[int] = challenge.WIDTHS) -> list[Row]:
    """Of `cuda-staged`, all networks of these widths."""
    return [row for width in widths for name in PREDICTED for row in predicted("cuda-staged", GPUS[name], width)]


def checked(widths: Sequence[int] = challenge.WIDTHS) -> list[Row]:
    """Of the published kernels, all that is published."""
    return [
        row
        for system, places in PUBLISHED.items() for name in places for width in widths
        for row in predicted(system, GPUS[name], width) if row.published
    ]  # fmt: skip


def tables(widths: Sequence[int] = challenge.WIDTHS) -> Iterator[str]:
    """The lines of docs/explanation/cuda.md, for networks of these widths."""
    names = "".join(f" {name} |" for name in PREDICTED)
    yield f"| neurons x layers |{names}"
    yield "|---" * (1 + len(PREDICTED)) + "|"
    found = {(row.neurons, row.layers, row.gpu): row for row in own(widths)}
    for neurons in widths:
        for depth in challenge.DEPTHS:
            cells = [found[neurons, depth, name] for name in PREDICTED]
            yield f"| {neurons} x {depth} |" + "".join(f" {one.seconds:.2g} ({one.binds}) |" for one in cells)
    yield ""
    yield "| kernel, GPU | neurons | binds | published / predicted, by layers |"
    yield "|---|---|---|---|"
    several: dict[tuple, list[Row]] = {}
    for row in checked(widths):
        several.setdefault((row.system, row.gpu, row.neurons), []).append(row)
    for (system, gpu, neurons), rows in several.items():
        factors = ", ".join(f"{row.factor:.1f}" for row in rows)
        yield f"| {system}, {gpu} | {neurons} | {rows[-1].binds} | {factors} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in tables())
