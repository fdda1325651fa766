"""The CUDA engines on the CPU shim: rows that die, revive and merge; what does not fit; accesses out of bounds."""

import numpy as np
import pytest
import shim
from cuda_cases import ENGINES, LITTLE, RUNGS, assert_exact, exact_network, repeated, scarce
from engine_cases import opened, rows

from spdnn.api import infer
from spdnn.core.errors import MemoryTooSmall, Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.engines import oracle as reference
from spdnn.engines.cuda import schedule
from spdnn.engines.reductions import dead


@pytest.fixture
def looks(monkeypatch):
    """Looks for identical rows in networks of few edges too, whatever leaves."""
    monkeypatch.setattr(schedule, "AHEAD", 0)


def merging(seed=0, depth=6):
    """A network of 30 neurons that maps integers to integers, and in which few rows die."""
    return exact_network(np.random.default_rng(seed), [30] * depth, 0.5, (0, 2), 8.0)


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("order", [0, 2])
def test_identical_rows_become_one_and_every_input_has_its_result(on_shim, looks, name, order):
    on_shim(order=order)
    rng, network = np.random.default_rng(3), merging()
    distinct = rng.integers(-2, 3, (7, 30))
    inputs = repeated(rng, distinct, 300)  # of nearly ten tiles, duplicates in all of them
    got = assert_exact(name, network, inputs, reductions="dead,inputs")
    alive = np.unique(got.row_hash).size
    assert got.notes["rows_merged"] >= got.alive.size - alive
    none = infer(network, inputs, name, reductions="none")
    assert none.notes["rows_merged"] == 0
    assert got.edges_computed < 0.6 * none.edges_computed
    assert got.digest == none.digest


@pytest.mark.parametrize("name", RUNGS)
def test_merged_rows_that_die_later_die_with_all_they_stand_for(on_shim, looks, name):
    on_shim()
    rng = np.random.default_rng(1)
    eye, low = np.eye(20), np.zeros(20)
    down = [low, low, low, low - 1, low - 1, low - 1]  # after four layers, one less each
    network = from_matrices([eye] * 6, down, 32.0, last="relu")
    distinct = np.repeat(np.arange(1, 7), 20).reshape(6, 20)  # rows of all ones die in layer 4, and so on
    inputs = repeated(rng, distinct, 200)
    got = assert_exact(name, network, inputs, reductions="dead,inputs")
    assert got.notes["rows_merged"] >= 190
    counts = np.bincount(inputs.data[:, 0].astype(int), minlength=8)
    expected = [200, 200, 200, *(200 - np.cumsum(counts[1:4]))]
    assert got.survivors.tolist() == expected
    assert set(inputs.data[got.alive, 0]) == {4, 5, 6}


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize("order", [0, 1, 2])
def test_a_pass_of_several_layers_has_one_boundary(on_shim, looks, set_all, name, order):
    """Rows die in layers that their pass goes on from, and the next pass is of those that are left."""
    set_all(dead, PASS_LENGTHS=((2, 1), (5, 3)), LONGEST_PASS=4)
    rng = np.random.default_rng(8)
    matrices = [rng.integers(-1, 2, (40, 40)) * (rng.random((40, 40)) < 0.12) for _ in range(13)]
    network = from_matrices(matrices, -0.25, 8.0, last="relu")
    inputs = repeated(rng, rng.integers(0, 2, (90, 40)) * (rng.random((90, 40)) < 0.2), 200)
    device = on_shim(order=order, multiprocessors=1)
    digest = infer(network, inputs, "cuda-csr", reductions="none").digest
    for reductions in ("dead", "dead,inputs"):
        device.launches.clear()
        got = assert_exact(name, network, inputs, reductions=reductions)
        assert got.digest == digest
        assert device.launches["next_rows"] == got.notes["passes"] == 5  # after layers 1, 2, 5, 9 and 13
        assert len({*got.survivors[2:5].tolist()}) > 1
    assert got.notes["rows_merged"] > 0


@pytest.mark.parametrize("name", RUNGS)
def test_rows_merge_where_none_may_leave(on_shim, looks, name):
    """A positive bias in the last layer revives rows: dead ones must stay until it, and identical ones are dead too."""
    on_shim()
    rng = np.random.default_rng(2)
    matrices = [np.where(rng.random((25, 25)) < 0.4, rng.integers(-2, 2, (25, 25)), 0.0) for _ in range(5)]
    network = from_matrices(matrices, [-2.0, -2.0, -2.0, -2.0, 1.0], 16.0, last="relu")
    inputs = repeated(rng, rng.integers(0, 2, (40, 25)), 150)
    survivors = reference.infer(network, inputs).survivors
    assert survivors[3] < 140
    assert survivors[4] == 150
    got = assert_exact(name, network, inputs, reductions="dead,inputs")
    assert got.notes["rows_merged"] >= 150 - survivors[3] - 1  # all that are dead are one


@pytest.mark.parametrize("name", RUNGS)
def test_equal_hashes_of_different_rows_do_not_merge(on_shim, looks, monkeypatch, name):
    """Rows are compared bit by bit: with a hash that is the same for all, only identical ones merge all the same."""
    from spdnn.kernels.cuda import declarations as cuda

    real = cuda.source
    weak = lambda file: real(file).replace("return mixed ^ mixed >> 32;", "return 0 * mixed;")  # noqa: E731
    assert weak("merge.cu") != real("merge.cu")
    rng = np.random.default_rng(5)
    inputs = repeated(rng, rng.integers(-2, 3, (9, 30)), 120)
    merged = []
    for source in (real, weak):
        monkeypatch.setattr(cuda, "source", source)
        on_shim()
        merged.append(assert_exact(name, merging(7), inputs, reductions="dead,inputs").notes["rows_merged"])
    assert 0 < merged[1] < merged[0]


@pytest.mark.parametrize("name", ENGINES)
def test_memory_that_is_not_enough_is_told_with_figures(on_shim, name):
    network = exact_network(np.random.default_rng(0), [400] * 4, 0.2)
    inputs = rows(100, 400)
    _, refused, _ = scarce(on_shim, lambda: opened(name, network, inputs))
    for told in ("the inputs take 160,400 bytes", "the weights of 3 layers take about", "the first 1 fit (--layers)"):
        assert any(told in sentence for sentence in refused)
    assert any("bytes of memory left besides weights and inputs" in told for told in refused)
    for told in refused:
        assert "\n" not in told
        assert any(character.isdigit() for character in told)


def test_what_fits_no_block_is_told_by_the_rung_and_done_by_the_engine(on_shim):
    on_shim(shared_per_block=LITTLE)
    network, inputs = exact_network(np.random.default_rng(0), [3000, 3000], 0.002), rows(5, 3000)
    with pytest.raises(
        Unsuitable, match=r"two buffers of 3,000 neurons take 24,264 bytes of shared memory for one input"
    ):
        infer(network, inputs, "cuda-persistent")
    notes = assert_exact("cuda", network, Inputs.from_array(np.round(inputs.data)), reductions="none").notes
    assert "shared memory" in notes["kernels"]["shapes"][0]["not_suitable"]["persistent"]
    on_shim(memory_bytes=1000)
    with pytest.raises(
        MemoryTooSmall, match=r"the inputs take 60,020 bytes, more than CPU shim has free \(1,000 of 1,000\)"
    ):
        infer(network, inputs, "cuda")


# With bounds of shared and global memory checked at each access: every kernel that engines launch.
INFERENCE = [
    "test_cuda_engines.py::test_awkward_shapes[rectangular-bits-cuda-csr]",
    "test_cuda_engines.py::test_awkward_shapes[rectangular-dense-cuda-ell]",
    "test_cuda_engines.py::test_awkward_shapes[several parts-csr-cuda-staged]",
    "test_cuda_engines.py::test_every_device_gives_the_same_bits[one value-little shared memory-cuda-staged]",
    "test_cuda_engines.py::test_persistent_blocks_of_every_width[4-True-1]",
    "test_cuda_engines.py::test_persistent_blocks_of_every_width[32-False-1]",
    "test_cuda_reductions.py::test_identical_rows_become_one_and_every_input_has_its_result[2-cuda-persistent]",
    "test_sub_batches.py::test_sub_batches_change_no_bit[cuda-staged-2-dead,inputs]",
    "test_taskgraph_cuda.py::test_kernels_and_inputs_of_every_kind[persistent-csr]",
    "test_taskgraph_cuda.py::test_kernels_and_inputs_of_every_kind[staged-bits]",
]
# Each kernel of operations: ragged rows, vectors and single numbers, both widths of indices; by default in one dtype.
OPERATIONS = [
    "test_ops_spmm.py::test_every_tile_on_ragged_rows[dtype2-tile2]",
    "test_ops_rows.py::test_sddmm[7 x 96, 333 nonzeros-dtype0]",
    "test_ops_rows.py::test_attention[ragged-dtype0]",
    "test_ops_rows.py::test_softmax[ragged-dtype1]",
    "test_ops_rows.py::test_gather_transposes[dtype1]",
    "test_ops_depthwise.py::test_both_layouts_are_right_and_have_the_same_bits[shape4-1-dtype0]",
]
MORE_OPERATIONS = [
    "test_ops_spmm.py::test_every_tile_on_ragged_rows[dtype12-tile12]",
    "test_ops_spmm.py::test_values_at_any_address[dtype1]",
]


@pytest.mark.parametrize(
    "selection", [INFERENCE, OPERATIONS, pytest.param(MORE_OPERATIONS, marks=pytest.mark.full("ladder"))], ids=len
)
def test_no_access_out_of_bounds_and_none_misaligned(root, selection):
    done = shim.sanitized(*(str(root / "tests/cuda" / name) for name in selection), "-q")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert f"{len(selection)} passed" in done.stdout or "100%" in done.stdout
