"""What counts and data sheets say of the twelve official networks on GPUs: predicted times, of which none is measured.

    python tests/gpu/predicted.py      prints the tables of docs/explanation/cuda.md

A time is the least that the counted work of a kernel can take (gpus.py), and GAP for each launch. The engine is
`cuda-staged`, from whose layers dead inputs leave, as from those of At-scale SpDNN. Where all reductions leave one row,
its time is counted apart. How far such times are from the truth show two kernels whose times are published: the same,
but for launches, is counted for them, as their papers and code describe them.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from gpus import GPUS, WARP, Gpu, TileWork, seconds, spent

from spdnn.engines.cuda.buffers import EARLY
from spdnn.engines.cuda.choice import LATER
from spdnn.engines.cuda.schedule import BITS, PERSISTENT, STAGED, passes, stage_room, variants
from spdnn.kernels.cuda.device import Properties
from spdnn.kernels.cuda.settings import PERSISTENT_SHARED, STAGED_HELD, staged_outputs
from spdnn.kernels.cuda.sliced import CHUNK, SLICE, slice_layer, stage_layer
from spdnn.problem import challenge
from spdnn.problem.network import Layer
from spdnn.records.published import read_baselines
from spdnn.reductions.neurons import merge_neurons
from spdnn.scheduling.costmodel.official import official_work
from spdnn.sources.radixnet import RadixNet

TILE, LINE = 32, 128  # inputs of a tile; bytes of a delivery of shared memory
# Of a warp in staged.cu, by machine code: one turn of the inner loop (tests/cuda/test_counts.py holds them); the end of
# an output; and what a copy of 16 bytes takes.
TURN = {
    1: {70: 58, 75: 58, 80: 59, 90: 66},
    2: {70: 90, 75: 90, 80: 91, 90: 98},
    4: {70: 154, 75: 154, 80: 158, 90: 165},
}
BITS_TURN = {70: 203, 75: 203, 80: 203, 90: 202}  # a turn of four outputs on words of bits
OUTPUT, COPY = 43, 5
# Assumed: seconds from one launch of a graph to the next (gpu-check measures it); cycles of a load from L2; seconds of
# one from memory; bytes that a multiprocessor has on their way at once.
GAP, L2_CYCLES, MEMORY_SECONDS, ON_THEIR_WAY = 2e-6, 270, 7e-7, 48 << 10
LOADS = 1  # of weights, that a layer with values in persistent.cu waits for in turn (tests/cuda/test_counts.py)
KEPT = 1 << 33  # bytes of merged layers
PREDICTED = ("V100", "A100", "H100", "H200")
OURS, AT_SCALE, SNIG = "cuda-staged", "at-scale SpDNN (Hidayetoglu)", "SNIG"
LAUNCHED = (  # neurons, layers, reductions, kernel, neurons of a layer that are left
    (1024, 120, "all", PERSISTENT, 64),
    (1024, 1920, "all", PERSISTENT, 64),
    (65536, 1920, "dead,inputs", STAGED, 65536),
    (65536, 1920, "dead", STAGED, 65536),
)
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


def ours(layer: Layer, gpu: Gpu, bits: bool = False) -> TileWork:
    """What staged_layer does for a tile of inputs; `bits`: which are words of bits."""
    outputs = staged_outputs(not layer.single_value)
    laid = stage_layer(layer, outputs, stage_room(gpu_limits(gpu)), STAGED_HELD)
    gathers, shared, copied = laid.slices.indices.size, laid.slices.shared, laid.map.size
    turns = gathers / (SLICE * CHUNK)  # of a warp, whose lanes take SLICE groups
    turn = BITS_TURN if bits else TURN[shared]
    in_line, at_once = (WARP, WARP) if bits else (1, SLICE)  # neurons: of a line, of a copy by a warp
    instructions = turns * turn[gpu.capability] + layer.outputs / SLICE * OUTPUT + copied / at_once * COPY
    weights = laid.slices.nbytes + laid.map.nbytes
    l2 = weights + LINE * (copied / in_line + layer.outputs)
    rows = 4 * (layer.inputs / in_line + layer.outputs)
    deliveries = gathers / (SLICE if bits else 1) + copied / in_line
    return TileWork(TILE, laid.parts, instructions, gathers * shared, deliveries, l2, weights, rows)


def launches(depth: int, kind: str, width: int, searching: bool, each: bool = False) -> int:
    """Launches of a batch of bits through an official network whose layers have this kernel and dead inputs leave.

    Args:
        width: of features; searching: identical inputs leave, too; each: a boundary after every layer, but for
            persistent.
    """
    kinds, h100 = [BITS] + [kind] * (depth - 1), gpu_limits(GPUS["H100"])
    ahead = [challenge.NONZEROS_PER_NEURON * float(depth - k) for k in range(depth + 1)]
    found, breaks = 0, range(depth) if each and kind != PERSISTENT else ()
    for one in passes(kinds, [False] * depth, True, searching, ahead, breaks):
        layers = len(variants(h100, width, width)) if one.first >= EARLY else 1
        found += (layers if one.kind == PERSISTENT else one.last - one.first) + 1 + 5 * one.search
    return found + 6  # the rows, the words; statistics; and, three, where each input is


def tail(neurons: int, gpu: Gpu, depth: int) -> float:
    """Seconds of one row, alone in persistent_layers, through the merged layers after LATER: what it waits for."""
    layer = merged(neurons)
    nbytes = slice_layer(layer, most_shared=PERSISTENT_SHARED[not layer.single_value]).nbytes
    layers, latency = max(0, depth - LATER), L2_CYCLES / gpu.clock
    arrives = latency if nbytes * layers < gpu.l2_bytes else MEMORY_SECONDS
    return layers * max(LOADS * latency, arrives * nbytes / ON_THEIR_WAY)


@cache
def merged(neurons: int) -> Layer:
    """A merged layer of the second block."""
    block = RadixNet(neurons, 1).block
    return merge_neurons(RadixNet(neurons, block + block // 2 + 2), KEPT)[0].layer(block + block // 2)


def gpu_limits(gpu: Gpu) -> Properties:
    """What choices depend on."""
    return Properties(gpu.name, gpu.capability, gpu.multiprocessors, 2048, gpu.shared_per_block, gpu.shared, 0, 0, "")


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


KERNELS: dict[str, Callable[[Layer, Gpu], TileWork]] = {OURS: ours, AT_SCALE: at_scale, SNIG: snig}


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
        rows = official_work(neurons, depth).rows
        least, binds = seconds(gpu, mean, rows)
        if system == OURS:
            first = ours(RadixNet(neurons, 1).layer(0), gpu, bits=True)
            all_spent = spent(gpu, mean, rows[1:]) | {"first layer": seconds(gpu, first, rows[:1])[0]}
            all_spent["launches"] = GAP * launches(depth, STAGED, neurons, False)
            least, binds = sum(all_spent.values()), max(all_spent, key=all_spent.__getitem__)
        yield Row(system, gpu.name, neurons, depth, least, binds, published.get((neurons, depth)))


@cache
def baselines():
    return read_baselines()


def own(widths: Sequence[int] = challenge.WIDTHS) -> list[Row]:
    """Of `cuda-staged`, all networks of these widths."""
    return [row for width in widths for name in PREDICTED for row in predicted(OURS, GPUS[name], width)]


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
            yield f"| {neurons} x {depth} |" + "".join(f" {cell.seconds:.2g} ({cell.binds}) |" for cell in cells)
    yield ""
    yield "| neurons | " + " | ".join(f"{depth} layers" for depth in challenge.DEPTHS) + " |"
    yield "|---" * (1 + len(challenge.DEPTHS)) + "|"
    for neurons in widths:
        cells = "".join(f" {tail(neurons, GPUS['H100'], depth):.2g} |" for depth in challenge.DEPTHS)
        yield f"| {neurons} |{cells}"
    yield ""
    yield from launch_table()
    yield ""
    yield "| kernel, GPU | neurons | binds | published / predicted, by layers |"
    yield "|---|---|---|---|"
    several: dict[tuple, list[Row]] = {}
    for row in checked(widths):
        several.setdefault((row.system, row.gpu, row.neurons), []).append(row)
    for (system, gpu, neurons), rows in several.items():
        factors = ", ".join(f"{row.factor:.1f}" for row in rows)
        yield f"| {system}, {gpu} | {neurons} | {rows[-1].binds} | {factors} |"


def launch_table() -> Iterator[str]:
    """Launches of a run, with a boundary after every layer and now."""
    yield "| neurons x layers, reductions, kernel | launches, before | now |"
    yield "|---|---|---|"
    for neurons, depth, reductions, kind, width in LAUNCHED:
        before, now = (launches(depth, kind, width, reductions != "dead", each) for each in (True, False))
        yield f"| {neurons} x {depth}, `{reductions}`, `{kind}` | {before:,} | {now:,} |"


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in tables())
