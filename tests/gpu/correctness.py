"""Every engine that runs on a GPU against the float64 oracle, on memory that holds NaNs before it is written."""

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
from engine_cases import SHAPES, assert_equal, assert_same, opened, random_network, rows
from tally import NotHere, Tally

from spdnn.api import infer
from spdnn.core.errors import MemoryTooSmall, SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.network import Network, from_matrices
from spdnn.engines import oracle as reference
from spdnn.engines.cuda import choice
from spdnn.engines.cuda.rows import TILE
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import CUDA_RUNGS, engine
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels.cuda import cupy_device
from spdnn.kernels.cuda.declarations import Kernel

OURS = ("cuda", *(f"cuda-{kind}" for kind in CUDA_RUNGS))
ENGINES = (*OURS, "cusparse")
INPUTS = ("bits", "dense", "csr")
REDUCTIONS = dict.fromkeys(OURS, ("none", "dead", "dead,inputs", "all")) | {"cusparse": ("none", "dead")}
POISON = True  # whether memory holds NaNs before it is written
EXACT = 12  # networks of numbers that float32 holds exactly
DEEP = (1024, 24, 700)  # neurons, layers, inputs
ONE_LAYER = ("cuda-csr", "cuda-ell", "cuda-staged")  # engines whose launches are of one layer, for whole tiles of rows
# Networks whose kernels are chosen, deep enough for a choice for late layers: an official width, one whose indices do
# not fit 16 bits, and edges that have values.
CHOSEN = {
    "1024 neurons": lambda: RadixNet(1024, choice.LATER + 1),
    "65536 neurons": lambda: RadixNet(65536, choice.LATER + 1),
    "values": lambda: random_network([512] * (choice.LATER + 2), 0.1, bias=0.0),
}
LARGE = 2**31  # features in a buffer: places do not fit 32 bits
LARGEST = {"cuda-csr": 65536, "cuda-ell": 65536, "cuda-staged": 65536, "cuda-persistent": 1024}  # neurons of a layer
# Its static_assert names what nothing declares; a built-in of CUDA might be declared under another name.
BROKEN = Kernel("ceilings.cu", "multiply_add", 256, (("ROWS", "nothing_of_that_name"), ("CHAINS", 8), ("STEPS", 16)))


class Poisoned:
    """A device whose fresh memory holds 0xFF bytes (NaNs), and of which no more than `free` bytes are free."""

    def __init__(self, device: Any, free: int | None = None):
        self._device, self._free = device, free

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def empty(self, size: int, dtype: Any) -> Any:
        array = self._device.empty(size, dtype)
        if POISON:
            self._device.fill(array, 0xFF)
        return array

    def free_bytes(self) -> int:
        free = self._device.free_bytes()
        return free if self._free is None else min(free, self._free)


@contextmanager
def poisoned(free: int | None = None) -> Iterator[None]:
    """The engines `cuda...` run on Poisoned devices."""
    real = cupy_device.open_device
    with mock.patch.object(cupy_device, "open_device", lambda ordinal=None: Poisoned(real(ordinal), free)):
        yield


def run(
    tally: Tally,
    seed: int,
    engines: Sequence[str] = ENGINES,
    shapes: Sequence[str] = tuple(SHAPES),
    deep: tuple[int, int, int] = DEEP,
    exact: int = EXACT,
    chosen: Sequence[str] = tuple(CHOSEN),
    large: Mapping[str, int] = LARGEST,
) -> None:
    """All of it.

    Args:
        seed: of networks and inputs; deep: neurons, layers and inputs of a RadiX-Net; exact: networks; chosen: names of
            CHOSEN; large: as LARGEST.
    """
    ours = [name for name in engines if name in OURS]
    with poisoned():
        for shape in shapes:
            for kind in INPUTS:
                _shape(tally, shape, kind, seed, engines)
        for number in range(exact):
            for name in engines:
                tally.case(f"{name}, exact network {number}", lambda name=name, n=number: _exact(name, seed + n))
        for name in ours:
            tally.case(f"{name}, past float32", lambda name=name: _past_float32(name))
    found = {}
    for name in ours:
        found[name] = tally.case(f"{name}, batches", lambda name=name: _batches(name, deep, seed))
        if name in ONE_LAYER:
            tally.case(f"{name}, counts", lambda name=name: _counts(name, deep, seed))
    if found:
        tally.case("one digest, batches", lambda: _one(found))
    if "cuda" in ours:
        for network in chosen:
            tally.case(f"kernels timed on {network}", lambda network=network: _chosen(CHOSEN[network]()))
    for name in sorted(set(large) & set(ours)):
        tally.case(f"{name}, large features", lambda name=name: _large(name, large[name]))
    if ours:
        tally.case("memory that is not there", _no_memory)
        tally.case("a kernel that does not compile", _no_kernel)


def _shape(tally: Tally, shape: str, kind: str, seed: int, engines: Sequence[str]) -> None:
    count, widths, options = SHAPES[shape]
    network, inputs = random_network(widths, seed=seed, **options), rows(count, widths[0], seed, kind)
    found = {}
    for name in engines:
        told = f"{name}, {shape}, {kind}"
        found[name] = tally.case(told, lambda name=name: _agrees(name, network, inputs))
    if any(name in OURS for name in engines):
        ours = {name: digests for name, digests in found.items() if name in OURS}
        tally.case(f"one digest, {shape}, {kind}", lambda: _one(ours))


def _agrees(name: str, network: Network, inputs: Inputs) -> dict[bool, str]:
    """Compare with the oracle under every reduction, and repeat; our engines' digests without and with merged neurons.

    Only neurons that are merged may change a bit of ours. The library may take another kernel for another number of
    columns, so its bits are held against those of the same reductions alone.
    """
    ours, digests, first = name in OURS, {}, {}
    for reductions in REDUCTIONS[name]:
        got, expected = assert_same(name, network, inputs, reductions=reductions)
        apart = abs(got.survivors - expected.survivors).max()
        assert apart <= 1, f"{reductions}: survivors of a layer differ by {apart}"  # one may tie with zero
        first[reductions] = got.digest
        if ours:
            same = digests.setdefault(reductions == "all", got.digest)
            assert got.digest == same, f"{reductions}: other bits than without it"
    for reductions in REDUCTIONS[name][:1] if ours else REDUCTIONS[name]:
        session = opened(name, network, inputs, parse_reductions(reductions, engine(name).offers))
        repeats = {first[reductions], *(session.run().digest for _ in range(3))}
        assert len(repeats) == 1, f"{reductions}: {len(repeats)} outputs of three repeats and a run before them"
    return digests


def _one(found: dict[str, Any]) -> None:
    """All engines that ran gave the same."""
    ran = {name: digests for name, digests in found.items() if digests is not None}
    assert ran, "no engine ran"
    first = next(iter(ran))
    other = [name for name, digests in ran.items() if digests != ran[first]]
    assert not other, f"other bits than {first}: {', '.join(other)}"


def _exact(name: str, seed: int) -> None:
    """Small multiples of powers of two: float32 and float64 agree exactly."""
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 90, rng.integers(2, 7))
    matrices = [
        np.where(rng.random(shape) < 0.3, rng.integers(-3, 4, shape) / 4, 0)
        for shape in zip(widths[:-1], widths[1:], strict=True)
    ]
    biases = [rng.integers(-2, 3, outputs) / 8 for outputs in widths[1:]]
    network = from_matrices(matrices, biases, rng.choice([1.0, 32.0]), last=rng.choice(["relu", "none"]))
    values = rng.integers(-2, 3, (rng.integers(1, 100), widths[0])).astype(np.float32)
    inputs = Inputs.from_array(values)
    got, expected = infer(network, inputs, name, values=True), reference.infer(network, inputs, values=True)
    assert_equal(got, expected, to_the_bit=False)


def _batches(name: str, deep: tuple[int, int, int], seed: int) -> dict[bool, str]:
    """A RadiX-Net in one batch and in several, with every reduction; the digests as `_agrees` gives them."""
    neurons, layers, count = deep
    network = RadixNet(neurons, layers, -0.3)
    inputs = rows(count, neurons, seed, "bits", np.linspace(0, 0.35, count)[:, None])
    digests: dict[bool, str] = {}
    for reductions in REDUCTIONS[name]:
        with poisoned():
            whole, _ = assert_same(name, network, inputs, reductions=reductions)
        with poisoned(free=0):
            least = _least(name, network, inputs, reductions)
        with poisoned(free=4 * least):
            parts = infer(network, inputs, name, reductions=reductions)
        batches = parts.notes["batches"]
        assert batches > 1, f"{reductions}: one batch, though the memory holds four tiles"
        for other in (whole, parts):
            assert other.digest == digests.setdefault(reductions == "all", other.digest), f"{reductions}: other bits"
        np.testing.assert_array_equal(whole.survivors, parts.survivors)
    return digests


def _counts(name: str, deep: tuple[int, int, int], seed: int) -> None:
    """Edges computed and bytes loaded are what the host counts from the rows that are left."""
    neurons, layers, count = deep
    network, inputs = RadixNet(neurons, layers, -0.3), rows(count, neurons, seed, "bits")
    for reductions in ("none", "dead"):
        session = opened(name, network, inputs, parse_reductions(reductions, engine(name).offers))
        got, prepared = session.run(), session.plan
        left = np.full(layers, count)
        for part in prepared.passes():  # rows leave between passes, and a row that dies goes on to the end of its own
            if prepared.leaving and part.first >= max(1, prepared.dead_from):
                left[part.first :] = got.survivors[part.first - 1]
        edges = -(-left // TILE) * TILE * prepared.edges
        loads = (
            edges // [size.shared for size in session.sizes] * np.where(np.arange(layers) == 0, 8, 32)
        )  # bits: first, four inputs in 32
        told, counted = (got.edges_computed, got.bytes_loaded), (int(edges.sum()), int(loads.sum()) // 8)
        assert told == counted, f"{reductions}: {told} edges and bytes, and the host counts {counted}"


def _large(name: str, neurons: int, least: int = LARGE) -> None:
    """The same rows again and again, until there are more than so many features, each as when they come once."""
    network, once = RadixNet(neurons, 2, -0.3), rows(64, neurons, 1, "bits")
    times = least // (neurons * once.count) + 2
    needed, free = 2 * 4 * neurons * once.count * times, cupy_device.open_device().free_bytes()
    if needed > 0.8 * free:
        raise NotHere(f"{needed:,} bytes are needed, and {free:,} are free")
    expected = infer(network, once, name, reductions="none")
    got = infer(network, once.first(times * once.count), name, reductions="none")
    assert got.notes["batches"] == 1, "features were not in one buffer"
    assert got.alive.size == times * expected.alive.size > 0, "other inputs are active"
    for field in ("row_sum", "row_min", "row_max", "row_projection"):
        found = getattr(got, field).reshape(times, -1)
        wrong = (found != getattr(expected, field)).any(axis=1)
        assert not wrong.any(), f"{field}: {wrong.sum()} of {times} copies of the rows differ, first {wrong.argmax()}"


def _chosen(network: Network) -> None:
    """Every kernel that `choose` times, on all its samples, gives the bits of the others that it compares with it."""
    found: dict[tuple, dict[str, str]] = {}

    def several(device: Any, laid: Any, source: Any, target: Any, count: int, times: int) -> Any:
        device.fill(target, 0xFF)
        real(device, laid, source, target, count, 1)()
        rows = device.read(target).reshape(-1, laid.outputs, 32).transpose(0, 2, 1).reshape(-1, laid.outputs)[:count]
        digest = hashlib.sha256(rows.tobytes()).hexdigest()
        found.setdefault((laid.inputs, laid.outputs, count), {})[laid.kind] = digest
        return real(device, laid, source, target, count, times)

    device, real = cupy_device.open_device(), choice.several_layers
    with mock.patch.object(choice, "several_layers", several):
        choice.choose(device, network, 0, choice.TILES_EACH * device.properties.multiprocessors, later=1)
    assert {count for *_, count in found} > {1}, "no kernel was timed on many rows and on one"
    for kernels in found.values():
        _one(kernels)


def _least(name: str, network: Network, inputs: Inputs, reductions: str) -> int:
    """Bytes that a session says it needs, where none are free."""
    error = _raised(MemoryTooSmall, lambda: infer(network, inputs, name, reductions=reductions))
    assert re.search(r"[\d,]+ bytes", str(error)), f"no figure in: {error}"
    return error.least


def _raised(kind: type[SpdnnError], work: Callable[[], Any]) -> Any:
    """The error that `work` ends with."""
    try:
        work()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__} was raised")


def _no_memory() -> None:
    device = cupy_device.open_device()
    size = device.properties.memory_bytes + 1
    error = _raised(MemoryTooSmall, lambda: device.empty(size, np.uint8))
    assert f"{size:,} bytes" in str(error), str(error)
    assert (device.read(device.upload(np.arange(5))) == np.arange(5)).all()  # and all goes on


def _no_kernel() -> None:
    """The compiler's log is the sentence."""
    device = cupy_device.open_device()
    one = device.upload(np.zeros(1, np.float32))
    arguments = {"sums": one, "factor": 1.0, "step": 1.0, "rounds": 1}
    error = str(_raised(SpdnnError, lambda: device.bind(BROKEN, 1, arguments)))
    assert "does not compile" in error, error
    assert "nothing_of_that_name" in error, error


def _past_float32(name: str) -> None:
    network = from_matrices([np.full((2, 2), 3e38), np.ones((2, 1))], last="relu")
    inputs = Inputs.from_array(np.ones((1, 2), np.float32))
    error = str(_raised(SpdnnError, lambda: infer(network, inputs, name)))
    assert "layer 1" in error, error
    assert "float32" in error, error
