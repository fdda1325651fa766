"""Single CUDA kernels on dense features, without reductions: seconds, edges per second, and how far from the limit.

    python benchmarks/cuda_kernels.py [--neurons N ...] [--samples S] [--megabytes M] [--device D] [--json FILE]

At each width two layers: a permuted one of the RadiX-Net with 32 nonzeros a neuron, and the same with identical neurons
merged. Features are random, none is zero. The clock is that of the device's events around one launch (span: kernel
only; weights and features on the device, bias and clip included), after a warm-up, with the second-level cache flushed
before each sample, for longer than the host takes to launch; all samples are kept. `persistent x4` is one launch of
four such layers, its time divided by four. What a kernel wrote is compared with SciPy's float64 product before it is
timed and again afterwards, onto memory that holds NaNs. An edge gathers one float32 for each input, so the gather
ceiling is the measured rate of loads from shared memory / 4 bytes; above 100 %, outputs share loads. cuSPARSE is what
the engine `cusparse` launches in a step (product, then bias and clip), bound before as ours is and not waited for in
between, timed in the same run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np

from spdnn.core import challenge, provenance
from spdnn.core.errors import SpdnnError, Unavailable
from spdnn.core.files import write_text
from spdnn.core.limits import EDGE_LOAD_BYTES, Machine
from spdnn.core.network import Layer
from spdnn.core.validation import builtins
from spdnn.engines.cuda import ceilings
from spdnn.engines.cuda.choice import IN_A_ROW, idle_run, several_layers, why_unsuitable
from spdnn.engines.cuda.layers import lay_out, to_device
from spdnn.engines.cuda.schedule import CSR, ELL, PERSISTENT, STAGED, stage_room
from spdnn.engines.reductions.neurons import merge_neurons
from spdnn.engines.registry import engine
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels.cuda import cupy_device
from spdnn.kernels.cuda.device import Device

SPAN = "kernel only"
TILE = 32
PATTERN = 3  # tiles of features that differ; the others repeat them
LAUNCHES = 1000  # between which gaps are measured
KEPT_BYTES = 1 << 32  # of merged layers
CUSPARSE = "cusparse"
# Flushes before a sample. One would do for the cache, but takes only some 30 us: so does the host to launch two kernels
# with Python between them, and the clock must not see that.
FLUSHES = 4

Launch = Callable[[], Any]


def layers(neurons: int) -> dict[str, Layer]:
    """The layers that are timed at one width."""
    block = RadixNet(neurons, 1).block
    network = RadixNet(neurons, block + 2)
    merged, _ = merge_neurons(network, KEPT_BYTES)
    return {"plain": network.layer(block + 1), "merged": merged.layer(block + 1)}


class Features:
    """Dense features of one layer: `rows`, float32 (PATTERN x 32, inputs), again and again up to `tiles` tiles."""

    def __init__(self, layer: Layer, inputs: int):
        self.layer, self.tiles = layer, max(1, inputs // TILE)
        self.rows = np.random.default_rng(0).random((PATTERN * TILE, layer.inputs), np.float32)
        self._expected: dict[int, np.ndarray] = {0: self.rows.astype(np.float64)}

    @property
    def count(self) -> int:
        return self.tiles * TILE

    def tiled(self) -> np.ndarray:
        """All of them as our kernels read them: (tiles, neurons, 32)."""
        return np.resize(self._tiles(self.rows), (self.tiles, self.layer.inputs, TILE))

    def whole(self) -> np.ndarray:
        """All of them by row: (count, neurons)."""
        return np.resize(self.rows, (self.count, self.layer.inputs))

    def check(self, found: np.ndarray, times: int = 1, exact: bool = True) -> None:
        """Compare (tiles, outputs, 32) with the layer applied so many times, in SciPy and float64.

        `exact`: tiles of the same inputs have the same bits. cuSPARSE does not promise it.

        Raises:
            AssertionError: a value is not what it must be.
        """
        expected = self._tiles(self._after(times))[: self.tiles]
        np.testing.assert_allclose(found[:PATTERN], expected, rtol=1e-5, atol=1e-5)
        same = np.array_equal if exact else partial(np.allclose, rtol=1e-5, atol=1e-5)
        wrong = [i for i in range(self.tiles) if not same(found[i], found[i % PATTERN])]
        assert not wrong, (
            f"{len(wrong)} of {self.tiles} tiles differ from tiles of the same inputs, tile {wrong[0]} first"
        )

    def _tiles(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(PATTERN, TILE, -1).transpose(0, 2, 1)

    def _after(self, times: int) -> np.ndarray:
        if times not in self._expected:
            low, high = self.layer.activation.low, self.layer.activation.high
            weights = self.layer.matrix(np.float64).T.tocsr()
            product = (weights @ self._after(times - 1).T).T + self.layer.bias
            self._expected[times] = np.clip(product, low, high)
        return self._expected[times]


def timed(device: Device, launch: Launch, verify: Launch, samples: int, times: int) -> list[float]:
    """The seconds of one layer in each of `samples` launches, of `times` layers each; verified before and after."""
    flush = getattr(device, "flush", device.synchronize)
    verify()
    seconds = []
    for _ in range(samples):
        for _ in range(FLUSHES):
            flush()
        seconds.append(device.seconds(launch) / times)
    verify()
    return seconds


def ours(device: Device, features: Features) -> Iterator[tuple[str, Launch, Launch, int]]:
    """(name, launch, verify, layers of a launch) of every kernel that suits the layer."""
    layer, tiles = features.layer, features.tiles
    source = device.upload(features.tiled().reshape(-1))
    target = device.empty(tiles * TILE * layer.outputs, np.float32)
    room = stage_room(device.properties)

    def verifying(launch: Launch, times: int) -> Launch:
        def verify() -> None:
            device.fill(target, 0xFF)
            launch()
            features.check(device.read(target).reshape(tiles, layer.outputs, TILE), times)

        return verify

    for kind in (CSR, ELL, STAGED, PERSISTENT):
        if why_unsuitable(device.properties, kind, layer.inputs, layer.outputs):
            continue
        laid = to_device(device, lay_out(layer, kind, room))
        for times in (1, IN_A_ROW) if kind == PERSISTENT else (1,):
            launch = several_layers(device, laid, source, target, features.count, times)
            yield f"{kind} x{times}" if times > 1 else kind, launch, verifying(launch, times), times


def vendors(device: Device, features: Features, ordinal: int | None) -> tuple[str, Launch, Launch, int]:
    """As `ours`, of the engine cusparse's step: all that is launched for it, bound before, and not waited for.

    Raises:
        Unavailable: it cannot run here.
    """
    library, layer, made = engine(CUSPARSE), features.layer, {}

    def make() -> None:  # on the device's stream, as the steps are
        library.use(ordinal)
        library.start(1)
        weights, blocks = library.weights(layer), library.features(features.whole())
        made["out"] = library.step(blocks, weights)
        made["launches"] = [library.bind(block, weights, out) for block, out in zip(blocks, made["out"], strict=True)]

    def launch() -> None:
        for launch_kernel in made["launches"]:
            launch_kernel()

    def verify() -> None:
        device.seconds(lambda: [block.fill(np.nan) for block in made["out"]])
        device.seconds(launch)
        found = library.dense(made["out"]).reshape(features.tiles, TILE, layer.outputs)
        features.check(found.transpose(0, 2, 1), exact=False)

    device.seconds(make)
    return CUSPARSE, launch, verify, 1


def measure(
    device: Device,
    machine: Machine,
    neurons: Sequence[int] = challenge.WIDTHS,
    samples: int = 20,
    feature_bytes: int = 1 << 30,
    ordinal: int | None = None,
    tell: Callable[[str], Any] = print,
    starts: Callable[[str], bool] = lambda name: True,
) -> list[dict]:
    """Time every kernel at every width; a row for each, fit for JSON.

    Args:
        machine: the device, measured (ceilings.measure).
        feature_bytes: of one buffer of features, at most.
        tell: is given each line of the table.
        starts: asked before a layer of that name is begun; False leaves it out.

    Raises:
        AssertionError: a kernel computed something else than SciPy.
    """
    found: list[dict] = []
    tell(HEAD)
    for width in neurons:
        for what, layer in layers(width).items():
            if not starts(f"{width} {what}"):
                continue
            count = min(challenge.INPUTS, feature_bytes // (4 * max(layer.inputs, layer.outputs)))
            features = Features(layer, count)
            shape = {"neurons": width, "layer": what, "inputs": layer.inputs, "outputs": layer.outputs}
            shape |= {"edges": layer.edges, "count": features.count, "layers_in_a_launch": 1, "span": SPAN}
            theirs = None
            try:
                seconds = timed(device, *vendors(device, features, ordinal)[1:3], samples, 1)
            except Unavailable as error:
                tell(f"{width:>7}  {what:<7} {CUSPARSE:<15} {error}")
            else:
                theirs = statistics.median(seconds)
                found.append(row(shape, CUSPARSE, seconds, machine, theirs))
                tell(line(found[-1]))
            for name, launch, verify, times in ours(device, features):
                seconds = timed(device, launch, verify, samples, times)
                found.append(row({**shape, "layers_in_a_launch": times}, name, seconds, machine, theirs))
                tell(line(found[-1]))
    return found


def row(shape: dict, kernel: str, seconds: list[float], machine: Machine, theirs: float | None) -> dict:
    """What is told of one kernel; `theirs`: the median seconds of cuSPARSE on the same layer, or None."""
    median, edges = statistics.median(seconds), shape["edges"] * shape["count"]
    moved = 4 * shape["count"] * (shape["inputs"] + shape["outputs"]) / shape["layers_in_a_launch"]
    return {
        **shape,
        "kernel": kernel,
        "samples_seconds": seconds,
        "median_seconds": median,
        "edges_per_second": edges / median,
        "gather_share": EDGE_LOAD_BYTES * edges / machine.load_bytes_per_second / median,
        "copy_share": moved / machine.copy_bytes_per_second / median,
        "times_cusparse": None if theirs is None else theirs / median,
        "verified": "before and after timing, against SciPy in float64",
    }


HEAD = " neurons  layer   kernel           microseconds   10^12 edges/s   of gather   of copy   x cusparse"


def line(found: dict) -> str:
    """A row of the table under HEAD. `of copy`: of the time that reading and writing the features takes at least."""
    times = found["times_cusparse"]
    return (
        f"{found['neurons']:>8}  {found['layer']:<7} {found['kernel']:<15} {found['median_seconds'] * 1e6:>13.1f}"
        f" {found['edges_per_second'] / 1e12:>15.3f} {found['gather_share']:>11.1%} {found['copy_share']:>9.1%}"
        f" {'-' if times is None else format(times, '.2f'):>12}"
    )


def described(device: Device, machine: Machine) -> dict:
    """The device and what it does at best, fit for JSON."""
    return {
        "device": asdict(device.properties),
        "machine": builtins(machine),
        "commit": provenance.environment("")["commit"],
        "created": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }


def gaps(device: Device, launches: int = LAUNCHES) -> dict[str, float]:
    """Seconds from one launch to the next, from Python and in a graph, of a layer's kernel that finds no row. A launch
    from Python takes longer the more arguments it has; this one has as many as others."""
    laid = to_device(device, lay_out(RadixNet(1024, 1).layer(0), ELL))
    source, target = (device.empty(TILE * 1024, np.float32) for _ in range(2))
    launch = idle_run(device, 1, 1).layer(0, laid, source, target, device.upload(np.zeros(1, np.int32)))

    def several() -> None:
        for _ in range(launches):
            launch()

    replay = device.capture(several)
    found = {"launched from Python": several, "in a graph": replay}
    for work in found.values():
        device.seconds(work)  # once to warm up
    return {name: min(device.seconds(work) for _ in range(5)) / launches for name, work in found.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--neurons", type=int, nargs="+", default=list(challenge.WIDTHS))
    options.add_argument("--samples", type=int, default=20, help="of each kernel (default: 20)")
    options.add_argument("--megabytes", type=int, default=1024, help="of a buffer of features (default: 1024)")
    options.add_argument("--device", type=int, help="its number (default: 0)")
    options.add_argument("--json", metavar="FILE", help="all samples, as JSON")
    args = options.parse_args(arguments)
    try:
        device = cupy_device.open_device(args.device)
        machine = ceilings.measure(device, seconds=1.0)
        gathers = machine.load_bytes_per_second / EDGE_LOAD_BYTES
        print(f"{device.properties.name}: {gathers / 1e12:.3f} x 10^12 gathers/s from shared memory (the ceiling)")
        size = args.megabytes << 20
        rows = measure(device, machine, args.neurons, args.samples, size, args.device)
        if args.json:
            write_text(args.json, json.dumps({**described(device, machine), "kernels": rows}, indent=1) + "\n")
    except SpdnnError as error:
        print(f"cuda_kernels: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
