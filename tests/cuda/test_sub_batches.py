"""Sub-batches that stay in L2: the same bits as all rows at once, and less traffic of memory."""

import gc
import weakref

import numpy as np
import pytest
from cuda_cases import RUNGS, assert_exact, repeated
from shim import ShimDevice

from spdnn.api import infer
from spdnn.core.network import from_matrices
from spdnn.engines.base import Options
from spdnn.engines.costs.official import SURVIVORS, official_work
from spdnn.engines.cuda import buffers, choice, rows, schedule, session
from spdnn.engines.cuda.engine import CudaEngine
from spdnn.engines.cuda.schedule import (
    KINDS,
    LAYOUT_BYTES,
    PERSISTENT,
    STAGED,
    SubBatches,
    memory_bytes,
    passes,
    sub_batches,
)
from spdnn.engines.reductions import dead
from spdnn.formats.radixnet import RadixNet

H100 = ShimDevice(multiprocessors=132, l2_bytes=50 << 20).properties
MEMORY = 3.35e12  # bytes a second, by the data sheet
DEPTH = 1920


@pytest.fixture
def force(set_all):
    """A function that sets the tiles of a sub-batch, the layer from which on there are any, and the rows that are
    expected there."""

    def change(tiles, first=2, expected=160):
        set_all(buffers, LATER=first, ROWS_MARGIN=1 << 20, rows_left=lambda *_: expected)
        set_all(CudaEngine, sub_batch_tiles=tiles)

    set_all(dead, PASS_LENGTHS=((3, 1), (7, 2)), LONGEST_PASS=3)
    set_all(schedule, AHEAD=0, FIRST_SEARCH=6)
    set_all(rows, SETTLED=1024)
    return change


def pairs(seed, depth=14):
    """A network of 80 neurons, two of which are always equal, and in which rows die in many layers."""
    rng, eye = np.random.default_rng(seed), np.eye(40)
    matrices = [eye - np.roll(eye, k + 1, 1) + (rng.random((40, 40)) < 0.01) for k in range(depth)]
    return from_matrices([np.kron(m, [[1, 1], [0, 0]]) for m in matrices], -0.25, 8.0, last="relu")


def inputs_of(seed, distinct, count):
    rng = np.random.default_rng(seed)
    return repeated(rng, (rng.random((distinct, 80)) < 0.2).astype(float), count)


@pytest.mark.parametrize("reductions", ["dead", "dead,inputs", "all"])
@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("name", RUNGS)
def test_sub_batches_change_no_bit(on_shim, force, name, order, reductions):
    """Also where more rows are left than were expected, where sub-batches are empty, and where all have one pass."""
    device = on_shim(order=order, multiprocessors=1)
    network, inputs = pairs(6), inputs_of(6, 150, 400)
    force(0)
    once = infer(network, inputs, name, reductions=reductions)
    assert not device.launches["cut_rows"]
    merged = once.notes["rows_merged"]
    for tiles, first, expected in ((1, 2, 160), (2, 5, 100), (1, 3, 64), (1, 12, 400)):
        device.launches.clear()
        force(tiles, first, expected)
        got = assert_exact(name, network, inputs, reductions=reductions)
        assert device.launches["cut_rows"] == 1
        assert got.notes["sub_batches"] == {
            "from_layer": first + 1,
            "rows": 32 * tiles,
            "number": -(-expected // (32 * tiles)),
        }
        assert got.digest == once.digest
        assert got.notes["rows_merged"] <= merged  # identical rows of different sub-batches stay
        assert bool(got.notes["rows_merged"]) == bool(merged) == (reductions != "dead")


def test_several_batches_are_cut_by_one_graph(on_shim, force, set_all):
    """Counts of a batch before, and rows that it had, change nothing."""
    network, inputs = pairs(6), inputs_of(6, 150, 400)
    force(1)
    device = on_shim()
    once = infer(network, inputs, "cuda-staged", reductions="dead")
    set_all(session, MOST_TILES=5)
    device.launches.clear()
    got = infer(network, inputs, "cuda-staged", reductions="dead")
    assert got.notes["batches"] == device.launches["cut_rows"] == 3
    assert got.digest == once.digest


def later_bytes(neurons, size=None):
    """(sub-batches, bytes of memory traffic with them and without) in the later layers of an official network with dead
    inputs alone."""
    ahead = [32.0 * (DEPTH - k) for k in range(DEPTH + 1)]
    parts = passes([STAGED] * DEPTH, [False] * DEPTH, True, False, ahead)
    parts = [part for part in parts if part.first >= choice.LATER]
    assert parts[0].first == choice.LATER
    weights, rows = LAYOUT_BYTES[False] * 32 * neurons * (DEPTH - choice.LATER), SURVIVORS.get(neurons, [2000])[-1]
    sub = sub_batches(H100, parts, 4 * neurons, weights, rows, size)
    counts = (sub.count if sub else 1, 1)
    return sub, *(memory_bytes(parts, 4 * neurons, weights, rows, count, H100.l2_bytes) for count in counts)


@pytest.mark.parametrize(
    ("neurons", "rows", "count", "streamed", "predicted"),
    [(4096, 800, 3, 0.036, 0.029), (16_384, 192, 10, 0.152, 0.110), (65_536, 32, 63, 0.636, 0.55)],
)
def test_traffic_of_memory_on_one_h100(neurons, rows, count, streamed, predicted):
    """The official networks of 1,920 layers. Predicted were the seconds of their traffic with all rows at once, and of
    whole runs in sub-batches: memory does not bind these any more, although they read weights more often."""
    sub, cut, whole = later_bytes(neurons)
    assert sub == SubBatches(choice.LATER, rows // 32, count)
    early = 2 * 4 * neurons * official_work(neurons, choice.LATER).rows.sum()
    assert (early + whole) / MEMORY == pytest.approx(streamed, rel=0.03)
    assert (early + cut) / MEMORY < 0.25 * predicted
    assert neurons < 65_536 or cut / MEMORY == pytest.approx(0.058, rel=0.02)


def test_all_rows_at_once_where_sub_batches_save_nothing():
    assert later_bytes(1024)[0] is None  # all fit
    assert later_bytes(1 << 20)[0] is None  # not one tile fits
    assert later_bytes(65_536, 0)[0] is None
    assert later_bytes(4096, 1)[0].count == 57  # asked for
    parts = passes([PERSISTENT] * 64, [False] * 64, False, False, [0.0] * 65)
    assert sub_batches(H100, parts, 16_384, 1e9, 2000, None) is None  # features are in shared memory
    parts = passes([STAGED] * 64, [False] * 64, False, False, [0.0] * 65)
    assert sub_batches(H100, parts, 16_384, 1e9, 2000, None)
    assert sub_batches(H100, parts, 16_384, 1e10, 2000, None) is None  # weights are more than features


@pytest.mark.parametrize(("power", "faster"), [(0.9, False), (1.1, True)])
def test_sub_batches_are_taken_where_they_were_timed_as_faster(device, cuda, set_all, power, faster):
    cuda.free = 1 << 30
    seconds = lambda device, layouts, count, refused: {one.kind: count**power for one in layouts}  # noqa: E731
    set_all(choice, _seconds=seconds)
    set_all(schedule, l2_tiles=lambda *_: 1)
    network = RadixNet(64, choice.LATER + 2, -0.3)
    found = choice.choose(device, network, 0, 40, later=64)
    assert found.sub_batches == faster
    assert found.notes["shapes"][0]["rows_sub_batch"] == 32
    assert not choice.choose(device, network, 0, 40, later=32).sub_batches
    assert not choice.choose(device, network, 0, 40, KINDS[0], later=64).sub_batches


def test_the_engine_takes_them_by_itself(on_shim, force, set_all):
    """Where a tile's two buffers are half of L2, and a layer takes less for each row of a tile."""
    force(None)
    on_shim(l2_bytes=2 * 2 * 32 * 4 * 80)
    seconds = lambda device, layouts, count, refused: {  # noqa: E731
        one.kind: count**1.1 * (1 if one.kind == STAGED else 2) for one in layouts
    }
    set_all(choice, LATER=2, _seconds=seconds)
    network, inputs = pairs(6), inputs_of(6, 150, 400)
    got = assert_exact("cuda", network, inputs, reductions="dead")
    assert got.notes["sub_batches"] == {"from_layer": 3, "rows": 32, "number": 5}
    assert "sub_batches" not in infer(network, inputs, "cuda-staged", reductions="dead").notes  # not timed


def test_a_session_holds_all_arrays_of_its_captured_launches(force):
    """A graph holds no array: memory that a launch alone refers to would go to others, and be written to in a run."""
    held = []

    class Holding(ShimDevice):
        def _bind(self, kernel, blocks, values, shared):
            for array in (value for value in values if isinstance(value, np.ndarray)):
                while isinstance(array.base, np.ndarray):  # a view: the array that has the memory
                    array = array.base
                held.append((kernel.name, weakref.ref(array)))
            return super()._bind(kernel, blocks, values, shared)

        def capture(self, work):
            work()
            return lambda: None

    force(1)
    prepared = CudaEngine().prepare(pairs(6), ("dead",))
    kept = session.CudaSession(Holding(multiprocessors=1), prepared, inputs_of(6, 150, 400), Options(), "csr", 1)
    gc.collect()
    assert kept.sub
    assert {name for name, array in held if array() is None} == set()
    assert "cut_rows" in {name for name, _ in held}
