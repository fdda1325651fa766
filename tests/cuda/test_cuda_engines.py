"""The CUDA engines on the CPU shim against the oracle: shapes, kinds of inputs, devices, batches, parts of inputs."""

import re
from dataclasses import replace
from functools import cache
from itertools import product
from threading import current_thread
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from cuda_cases import DEVICES, ENGINES, LITTLE, RUNGS, SAME_BITS, assert_exact, exact_depth, exact_network, scarce
from engine_cases import SHAPES, around_sixteen_bits, assert_equal, assert_keeps_some, assert_same, opened, rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from ladders import rung
from shim import ShimDevice

from spdnn.api import infer
from spdnn.core.errors import MemoryTooSmall, Unavailable, Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.engines import oracle as reference
from spdnn.engines.base import Options
from spdnn.engines.cuda import choice, schedule
from spdnn.engines.cuda import layers as cuda_layers
from spdnn.engines.cuda.layers import lay_out, lay_out_ahead
from spdnn.engines.execute import BatchSession
from spdnn.engines.reductions.registry import REDUCTIONS, parse_reductions
from spdnn.engines.registry import engine
from spdnn.formats.digits import digits_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch
from spdnn.kernels.cuda.sliced import slice_layer, stage_layer
from spdnn.runs.ranks import partition
from spdnn.runs.ranks.gather import gather_results
from spdnn.runs.ranks.run import Ranks

WIDE = {
    # More outputs than a block of staged_layer has, and more edges than a block has of them in one stage.
    "several parts": (70, [300, 700, 530, 40], {"density": 0.05}),
    "several parts, one value": (40, [600, 600, 600], {"density": 0.04, "single": 0.125}),
}
ALL_SHAPES = SHAPES | WIDE


KINDS = ("bits", "dense", "csr")


@pytest.mark.parametrize(
    ("shape", "kind", "name"),  # every shape on every second rung, and every kind
    [
        rung(shape, KINDS[(i + k) % 3], name, default=(i + k) % 2 == 0)
        for i, shape in enumerate(ALL_SHAPES)
        for k, name in enumerate(RUNGS)
    ],
)
def test_awkward_shapes(on_shim, random_network, shape, kind, name):
    on_shim()
    count, widths, options = ALL_SHAPES[shape]
    network, inputs = random_network(widths, **options), rows(count, widths[0], kind=kind)
    digest = infer(network, inputs, "cuda-csr", reductions="none").digest
    for reductions in ("none", "dead,inputs", "all"):
        got, expected = assert_same(name, network, inputs, reductions=reductions)
        assert abs(got.survivors - expected.survivors).max() <= 1  # a value that ties with zero may fall either way
        if reductions != "all":
            assert got.digest == digest, reductions


SOME_SHAPES = ("96 inputs, 7 layers", "rectangular", "one value", "several parts, one value")


def shows_races(device, name):
    return name == "cuda-persistent" and "order" in DEVICES[device]


@pytest.mark.parametrize(
    ("shape", "device", "name"),  # by default every rung on every device, with every shape
    [rung(shape, device, name, default=i == (j + k + 1) % 4 or shows_races(device, name))
     for (i, shape), (j, device), (k, name) in product(*map(enumerate, (SOME_SHAPES, DEVICES, RUNGS)))],
)  # fmt: skip
def test_every_device_gives_the_same_bits(on_shim, monkeypatch, random_network, device, shape, name):
    count, widths, options = ALL_SHAPES[shape]
    network, inputs = random_network(widths, **options), rows(count, widths[0])
    on_shim()
    digest = infer(network, inputs, "cuda-csr", reductions="none").digest
    monkeypatch.setattr(schedule, "EARLY", 2)  # from layer 3 on, few rows take blocks of few inputs
    limits = on_shim(**DEVICES[device]).properties
    if "little" in device:
        monkeypatch.setattr(schedule, "MOST_ROOM", 3)  # so that outputs are summed up over many stages
    if name == "cuda-persistent" and not schedule.variants(limits, network.width, 1):
        name = "cuda"  # which takes other kernels where that does not fit
    for reductions in ("none", "dead,inputs"):
        got, expected = assert_same(name, network, inputs, reductions=reductions)
        assert got.digest == digest, reductions
        assert abs(got.survivors - expected.survivors).max() <= 1


@pytest.mark.parametrize("valued", [False, True])
@pytest.mark.parametrize("device", DEVICES)
def test_a_first_layer_on_bits_adds_what_others_multiply(on_shim, monkeypatch, device, valued):
    """In one stage and in many, of several parts, for a last tile that is not full."""
    rng = np.random.default_rng(0)
    ones, matrix = rng.random((70, 600)) < 0.3, rng.random((600, 700)) < 0.05
    matrix = matrix * (rng.normal(size=matrix.shape) if valued else 0.3)
    network, halves = (from_matrices([weights], -0.1, last="none") for weights in (matrix, matrix / 2))
    on_shim()
    digest = infer(halves, Inputs.from_array(ones * 2.0), "cuda-csr", reductions="none").digest
    on_shim(**DEVICES[device])
    for most in (1, 8191):
        monkeypatch.setattr(schedule, "MOST_ROOM", most)
        assert infer(network, Inputs.from_array(ones), "cuda-csr", reductions="none").digest == digest


@pytest.mark.parametrize(
    ("name", "kind", "reductions"),
    [rung(name, *given, default=(i + j) % 4 == 0)
     for i, name in enumerate(ENGINES) for j, given in enumerate(zip((*KINDS, "bits"), SAME_BITS, strict=True))],
)  # fmt: skip
def test_batches_change_nothing(on_shim, name, kind, reductions):
    network = exact_network(np.random.default_rng(0), [96] * 8, 0.2, clip=8.0)
    inputs = rows(160, 96, kind=kind) if kind == "bits" else _quarters(160, 96, kind)
    expected = reference.infer(network, inputs, values=True)
    on_shim()
    digest = infer(network, inputs, "cuda-csr", reductions="none").digest
    chosen = engine(name)
    prepared = chosen.prepare(network, parse_reductions(reductions))
    batched, _, _ = scarce(on_shim, lambda: chosen.open(prepared, inputs, Options(values=True)))
    assert batched.batches > 3
    for _ in range(2):  # and the second run begins as the first did
        got = batched.run()
        assert got.notes["batches"] == batched.batches
        assert got.digest == digest
        assert_equal(got, expected, to_the_bit=False)
    some = Options(values=np.arange(0, inputs.count, 3))
    assert_keeps_some(scarce(on_shim, lambda: chosen.open(prepared, inputs, some))[0].run(), got)


def test_progress_is_told_of_batches_that_are_through(on_shim, monkeypatch, capsys):
    network, inputs = exact_network(np.random.default_rng(0), [96] * 8, 0.2), rows(500, 96, kind="bits")
    on_shim()
    batched, _, _ = scarce(on_shim, lambda: opened("cuda-csr", network, inputs, ("dead",)))
    digest, count = batched.run().digest, batched.batches
    monkeypatch.setenv("TQDM_MININTERVAL", "0")
    capsys.readouterr()
    result = batched.run()
    assert result.digest == digest
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == count >= 4
    for turn, line in enumerate(lines, 1):
        assert re.search(rf"^inference: .+ {7 * turn}/{7 * count} \[.+, [\d,]+ inputs left, \S+ TeraEdges/s\]$", line)
    assert f" {result.survivors[-1]} inputs left" in lines[-1]


def _quarters(count, neurons, kind):
    rng = np.random.default_rng(1)
    values = np.where(rng.random((count, neurons)) < 0.3, rng.integers(-4, 5, (count, neurons)) / 4, 0)
    values = values.astype(np.float32)
    return Inputs.from_array(sp.csr_array(values) if kind == "csr" else values)


@pytest.mark.parametrize(
    ("widest", "valued", "multiprocessors"),
    [
        (widest, valued, (1, 20)[(i + valued) % 2])
        for i, widest in enumerate((1, 4, 8, 16, 32))
        for valued in (False, True)
    ],
)
def test_persistent_blocks_of_every_width(on_shim, monkeypatch, widest, valued, multiprocessors):
    """Each setting does the work of its range of rows, and no other; a block counts all inputs that it has room for."""
    monkeypatch.setattr(schedule, "EARLY", 0)
    rng, width = np.random.default_rng(widest), max(40, 1200 // widest)
    network = exact_network(rng, [width, 40, width], 8 / width, (1, 3), single=None if valued else 0.25)
    device = on_shim(shared_per_block=least_shared(widest, width), multiprocessors=multiprocessors)
    found = schedule.variants(device.properties, width, width)
    assert found[-1].inputs == widest
    for variant in found:
        for count in {variant.least, variant.least + 30, min(variant.most, 300)}:
            if variant.least <= count <= variant.most and count <= 400:
                inputs = Inputs.from_array(rng.integers(-4, 5, (count, width)).astype(np.float32))
                got = assert_exact("cuda-persistent", network, inputs, reductions="none")
                assert got.edges_computed == -(-count // variant.inputs) * variant.inputs * network.edges
                assert got.digest == infer(network, inputs, "cuda-csr", reductions="none").digest


@pytest.mark.parametrize(("name", "edges"), [("cuda-ell", 1), ("cuda-staged", 4), ("cuda-persistent", 4)])
def test_a_load_that_serves_several_edges_is_one(on_shim, name, edges):
    """Else such a run is faster than the machine's limit, and has no record."""
    on_shim(multiprocessors=1)
    network = RadixNet(64, 4, bias=-0.1)
    got, bits = (infer(network, rows(40, 64, kind=kind), name, reductions="none") for kind in ("dense", "bits"))
    assert got.bytes_loaded == 4 * got.edges_computed // edges
    first = 64 * network.layer(0).edges // 4  # a word has four inputs of a thread, and serves four edges
    assert bits.bytes_loaded == first + 64 * 4 * 3 * network.layer(0).edges // edges


DEGREES = (0, 1, 7, 8, 9, 31, 32, 33, 70)


def least_shared(inputs, width):
    """Bytes of shared memory a block with which the persistent kernel takes so many inputs of so many neurons."""
    limits = ShimDevice().properties
    for size in range(schedule.persistent_shared(inputs, width), 1 << 30, 4):
        variants = schedule.variants(replace(limits, shared_per_block=size), width, width)
        if variants and variants[-1].inputs == inputs:
            return size
    raise AssertionError


@pytest.mark.parametrize(
    ("name", "degree", "valued"),
    [rung(name, degree, valued, default=(i + j + 2 * valued) % 4 == 0)
     for (i, name), (j, degree), valued in product(enumerate(RUNGS), enumerate(DEGREES), (False, True))],
)  # fmt: skip
def test_any_number_of_nonzeros(on_shim, name, degree, valued):
    on_shim(shared_per_block=LITTLE)
    rng = np.random.default_rng(degree)
    matrix = np.zeros((80, 40), np.float32)
    for column in range(40):
        matrix[rng.permutation(80)[:degree], column] = rng.normal(size=degree) if valued else 0.25
    network = from_matrices([matrix], -0.01, last="relu")
    deeper = from_matrices([np.eye(80), matrix], [0.0, -0.01], last="relu")
    for inputs in (Inputs.from_array(abs(rows(33, 80).data)), rows(33, 80, kind="bits")):
        # The first layer on bits has a kernel of its own, and so the matrix is a second layer too.
        one = infer(deeper, inputs, "cuda-csr", reductions="none")
        for layers, reductions in ((network, "none"), (network, "all"), (deeper, "dead,inputs")):
            got, _ = assert_same(name, layers, inputs, reductions=reductions)
            assert got.digest == one.digest or reductions == "all"


def test_a_stage_of_bits_takes_all_indices_of_sixteen_bits(on_shim):
    """A word is of one neuron, so a stage of a first layer on bits holds 8191 of them: eight indices for each."""
    on_shim(shared_per_block=227 << 10)
    rng = np.random.default_rng(0)
    network = from_matrices([(rng.random((8191, 20)) < 0.05) * 0.25], -0.25, last="relu")
    assert_exact("cuda-staged", network, rows(33, 8191, kind="bits"), reductions="none")


@pytest.mark.parametrize(
    ("name", "shared_per_block"),
    [("cuda-csr", LITTLE), ("cuda-ell", 227 << 10), ("cuda-staged", LITTLE), ("cuda-staged", 227 << 10)],
)
@pytest.mark.parametrize("width", [65_536, 65_537])
def test_widths_around_sixteen_bits(on_shim, name, width, shared_per_block):
    on_shim(shared_per_block=shared_per_block)
    rng = np.random.default_rng(1)
    first, last, indices = around_sixteen_bits(width)
    network = from_matrices([first, last], 0.0, last="relu")
    assert_exact(name, network, Inputs.from_array(rng.integers(1, 9, (9, 3)).astype(np.float32)), reductions="none")
    bits = rng.random((5, width)) < 0.5
    bits[:, indices] = True
    assert_exact(name, from_matrices([last], 0.0, last="relu"), Inputs.from_array(bits), reductions="none")
    assert_exact(name, from_matrices([last], 0.0, last="relu"), Inputs.from_array(bits * 2.0), reductions="none")


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("kind", ["bits", "dense", "csr"])
def test_more_inputs_than_stored_repeat(on_shim, name, kind):
    on_shim()
    network = exact_network(np.random.default_rng(1), [40, 50, 60, 20], 0.2, biases=(-4, -1))
    inputs = rows(50, 40, kind=kind, density=0.1)
    once, twice = infer(network, inputs, name), infer(network, inputs.first(120), name)
    assert 0 < once.alive.size < 50
    expected = [n for n in (*once.alive, *(once.alive + 50), *(once.alive + 100)) if n < 120]
    np.testing.assert_array_equal(twice.alive, expected)
    np.testing.assert_array_equal(twice.row_hash[: once.alive.size], once.row_hash)


@pytest.mark.parametrize(
    ("name", "way", "kind"),
    list(zip(ENGINES, ["static", "cyclic", "rebalanced"] * 2, ["bits", "csr"] * 3, strict=False)),
)
def test_ranks_of_parts_of_the_inputs_give_the_whole(on_shim, name, way, kind):
    """What a run on ranks does with sessions, without MPI: parts, opened on a device each, and gathered on rank 0."""
    on_shim()
    network = exact_network(np.random.default_rng(1), [40, 50, 60, 20], 0.2, biases=(-4, -1))
    inputs = rows(50, 40, kind=kind, density=0.1).first(157)
    chosen, told = engine(name), []
    whole = infer(network, inputs, name, reductions="all")
    world = SimpleNamespace(together=lambda work, *given: work(*given), node="here", local_size=3)
    for rank in (2, 1, 0):
        # Gathering gives rank 0 what the ranks before have told; the order of ranks is not that of inputs.
        world.rank = world.local_rank = rank
        world.comm = SimpleNamespace(gather=lambda mine: told.append(mine) or told)
        on_shim()
        chosen.device_identities = lambda: ("a", "b", "c")
        world.local = SimpleNamespace(allgather=lambda mine: 3 * [mine])
        ranks = Ranks(world, chosen, way, None)
        options = Options(1, device=ranks.device)
        numbers = partition.part(way, inputs.count, 3, rank)
        part = ranks._open(chosen.prepare(network, tuple(REDUCTIONS)), inputs.part(numbers), options)
        assert ranks.device == rank
        assert not isinstance(part, BatchSession)  # so no row moves: what merges does so among its rank's
        result = gather_results(world, part.run(), inputs.count)
    assert 0 < whole.alive.size < 157
    assert_equal(result, whole)
    chosen.device_identities = lambda: ("a", "b")
    world.local_rank = 2
    with pytest.raises(Unavailable, match=f"engine {name} sees 2 devices on node here, and this is its rank 3"):
        Ranks(world, chosen, way, None)


@cache
def two_blocks():
    """The first two blocks of the network of 1,024 neurons, 96 inputs of which 15 survive, and the oracle's result."""
    network, inputs = RadixNet(1024, 12), digits_inputs(1024, 1024)
    alive = np.isin(np.arange(inputs.count), reference.infer(network, inputs).alive)
    chosen = np.sort(np.concatenate([np.flatnonzero(alive)[:15], np.flatnonzero(~alive)[:81]]))
    inputs = Inputs(inputs.data[chosen], 1024)
    return network, inputs, reference.infer(network, inputs)


@pytest.mark.parametrize("name", RUNGS)
def test_two_blocks_of_an_official_network(on_shim, name):
    on_shim()
    network, inputs, expected = two_blocks()
    assert (inputs.count, expected.alive.size) == (96, 15)
    digest = infer(network, inputs, "cuda-csr", reductions="none").digest
    for reductions in ("none", "dead,inputs", "all"):
        got = infer(network, inputs, name, reductions=reductions)
        np.testing.assert_array_equal(got.categories, expected.categories)
        np.testing.assert_array_equal(got.survivors, expected.survivors)
        np.testing.assert_allclose(got.row_sum, expected.row_sum, rtol=1e-3)
        np.testing.assert_allclose(got.row_projection, expected.row_projection, rtol=1e-3, atol=1e-1)
        assert got.digest == digest or reductions == "all"


@pytest.mark.parametrize("name", RUNGS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_network_equals_the_oracle(on_shim, set_all, name, data):
    first = data.draw(st.integers(1, 2), label="first search")
    widths = data.draw(st.lists(st.integers(1, 40) | st.just(130), min_size=2, max_size=7))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1), label="seed"))
    biases = data.draw(st.sampled_from([(-2, 3), (-3, 1), (0, 1)]), label="biases")
    clip = data.draw(st.sampled_from([None, 1.0, 32.0]), label="clip")
    last = data.draw(st.sampled_from(["relu", "none"]), label="last")
    single = data.draw(st.sampled_from([None, 0.25, -0.5]), label="single")
    density = data.draw(st.sampled_from([0.1, 0.4, 1.0]), label="density")
    distinct = rng.integers(*data.draw(st.sampled_from([(-2, 3), (0, 2)]), label="values"),
                            (data.draw(st.integers(1, 30), label="distinct"), widths[0]))  # fmt: skip
    chosen = rng.integers(0, len(distinct), data.draw(st.integers(1, 100), label="inputs"))
    given = distinct[chosen].astype(np.float32)
    inputs = Inputs.from_array(sp.csr_array(given) if data.draw(st.booleans(), label="sparse") else given)
    network = exact_network(rng, widths, density, biases, clip, last, single, inputs)
    on_shim(
        order=data.draw(st.integers(0, 3), label="order"),
        multiprocessors=data.draw(st.sampled_from([1, 4]), label="multiprocessors"),
        shared_per_block=data.draw(st.sampled_from([LITTLE, 12 << 10, 227 << 10]), label="shared"),
    )
    most = data.draw(st.sampled_from([1, 3, 65_535]), label="stage")
    set_all(schedule, AHEAD=0, FIRST_SEARCH=first, MOST_ROOM=most)  # identical rows, in networks of few edges too
    set_all(schedule, EARLY=data.draw(st.sampled_from([0, 8]), label="early"))
    reductions = data.draw(st.sampled_from(["none", "dead", "inputs", "dead,inputs", "all"]), label="reductions")
    assert_exact(name, network, inputs, reductions=reductions)


@pytest.mark.parametrize("name", RUNGS)
def test_six_layers_that_take_more_bits_than_float32_has(on_shim, name):
    """All weights positive, so that values only grow: only layers that nothing rounds are compared to the bit."""
    on_shim()
    given = {"widths": [10, 9, 23, 27, 34, 15, 2], "density": 1.0, "biases": (0, 3), "single": 0.25}
    inputs = Inputs.from_array(np.random.default_rng(0).integers(0, 4, (20, 10)).astype(np.float32))
    whole, exact = (exact_network(np.random.default_rng(0), **given, inputs=known) for known in (None, inputs))
    assert whole.depth == 6 > exact.depth == exact_depth(whole, inputs) >= 4
    assert_exact(name, exact, inputs)
    assert_same(name, whole, inputs)


def test_engines_need_the_compiled_kernels_that_lay_weights_out(on_shim, set_all):
    on_shim()
    set_all(dispatch, missing=lambda: "build them with: make setup")
    for name in RUNGS:
        with pytest.raises(Unavailable, match="build them with: make setup"):
            engine(name)


@pytest.mark.parametrize("threads", [1, 3])
def test_layers_are_laid_out_in_order_and_few_ahead(random_network, monkeypatch, threads):
    network, taken, done = random_network([30] * 21), [], []
    read = network.layer
    monkeypatch.setattr(network, "layer", lambda k: taken.append((k, current_thread())) or read(k))
    for k, found in enumerate(lay_out_ahead(network, ["staged", "csr"] * 10, 50, threads)):
        done.append(found.kind)
        assert len(taken) <= k + threads + 2
        alone = lay_out(read(k), found.kind, 50)
        np.testing.assert_array_equal(found.arrays["indices"], alone.arrays["indices"])
    assert done == ["staged", "csr"] * 10
    assert sorted(k for k, _ in taken) == list(range(20))
    assert current_thread() not in {thread for _, thread in taken}
    monkeypatch.setattr(cuda_layers, "MOST_CHUNKS", 2)
    with pytest.raises(Unsuitable, match="use cuda-csr"):
        list(lay_out_ahead(network, ["csr", *["ell"] * 19], 50, threads))


@pytest.mark.parametrize("reductions", ["none", "dead", "dead,inputs"])
def test_where_rows_leave_later_layers_may_have_another_kernel(on_shim, monkeypatch, reductions):
    on_shim()
    network = exact_network(np.random.default_rng(0), [64] * 41, 0.1, (-8, 1), 4.0, single=1.0)
    counted = []

    def timed(device, layers, count, refused):
        counted.append(count)
        best = "staged" if len(counted) == 1 else "persistent"
        return {layer.kind: 1.0 + (layer.kind != best) for layer in layers}

    monkeypatch.setattr(choice, "_seconds", timed)
    got = assert_exact("cuda", network, rows_of_integers(3200, 64), reductions=reductions)
    told = got.notes["kernels"]
    (shape,) = told["shapes"]
    assert shape["kernel"] == "staged"
    if reductions == "none":
        assert counted == [3200]
        assert "later" not in told
        assert "kernel_later" not in shape
        assert got.notes["passes"] == 1
    else:
        assert counted == [3200, 128 if reductions == "dead" else 1]
        assert told["later"] == f"from layer 33 on; rows timed: {counted[1]}"
        assert shape["kernel_later"] == "persistent"
        assert got.notes["passes"] == 8 + 4 + 4 + 1


def rows_of_integers(count, neurons):
    return Inputs.from_array(np.random.default_rng(1).integers(0, 3, (count, neurons)).astype(np.float32))


def test_free_memory_in_pieces_makes_smaller_batches(on_shim):
    network, inputs = exact_network(np.random.default_rng(0), [64] * 4, 0.2), rows_of_integers(640, 64)
    device, refused = on_shim(), []
    whole = infer(network, inputs, "cuda-csr")
    assert whole.notes["batches"] == 1
    empty, largest = device.empty, 6 * 32 * 64

    def pieces(size, dtype):
        if size > largest and dtype is np.float32:
            refused.append(size)
            raise MemoryTooSmall("no piece is so large", size)
        return empty(size, dtype)

    device.empty = pieces
    parts = infer(network, inputs, "cuda-csr")
    assert refused == [20 * 32 * 64, 10 * 32 * 64]
    assert parts.notes["batches"] == 4
    assert parts.digest == whole.digest
    largest = 0
    with pytest.raises(MemoryTooSmall, match="no piece is so large"):
        infer(network, inputs, "cuda-csr")


def irregular(values, seed=0):
    """70,000 inputs to 320 outputs that read 0 to 700 of them, and from there to 100; no two outputs share inputs."""
    rng = np.random.default_rng(seed)
    matrices = []
    for inputs, outputs in ((70_000, 320), (320, 100)):
        degrees = rng.integers(0, min(inputs, 700) + 1, outputs)
        degrees[:2] = 0, min(inputs, 700)
        indices = np.concatenate([rng.choice(inputs, degree, replace=False) for degree in degrees])
        data = rng.normal(size=indices.size) / 16 if values else np.full(indices.size, 0.0625)
        columns = np.repeat(np.arange(outputs), degrees)
        matrices.append(sp.csc_array((data.astype(np.float32), (indices, columns)), shape=(inputs, outputs)))
    return from_matrices(matrices, [np.float32(0.125)] * 2, 32.0, last="relu")


@pytest.mark.parametrize("values", [False, True])
def test_random_degrees_and_inputs_past_sixteen_bits(on_shim, values):
    """Bit for bit the same, and at most 2 % more gathers than if no output looked for others with its inputs."""
    device = on_shim(multiprocessors=2)
    network, inputs = irregular(values), rows(40, 70_000, kind="csr", density=0.05)
    digest = infer(network, inputs, "cuda-csr", reductions="none").digest
    for name in ("cuda-ell", "cuda-staged", "cuda-persistent"):
        assert infer(network, inputs, name, reductions="none").digest == digest, name
    for layer in network.layers():
        room = schedule.stage_room(device.properties)
        alone, found = (stage_layer(layer, 160, room, most_shared=most).slices.indices.size for most in (1, 4))
        assert found <= 1.02 * alone
        alone, found = (slice_layer(layer, most_shared=most).indices.size for most in (1, 4))
        assert found <= 1.02 * alone


@pytest.mark.parametrize("name", ["cuda-ell", "cuda-staged", "cuda-persistent"])
def test_minus_zero_is_zero(on_shim, name):
    """A product that underflows is -0 where it is negative, and so it stays where the bias is -0."""
    on_shim(multiprocessors=1)
    tiny = np.full((8, 8), np.float32(1e-30))
    network = from_matrices([-tiny], [np.full(8, np.float32(-0.0))], last="none")
    got = infer(network, Inputs.from_array(tiny), name, reductions="none")
    assert got.survivors.tolist() == [0]


def test_the_host_copies_no_memory_that_nothing_wrote(on_shim, random_network):
    """Counters of an even number of layers end in four bytes of padding (found by initcheck on an H100)."""
    device, copied = on_shim(), []
    device.read = lambda array, read=device.read: copied.append(read(array)) or copied[-1]
    infer(random_network((64, 64, 64)), rows(40, 64), "cuda-staged", reductions="dead")
    counters = [array for array in copied if array.dtype == np.uint64]
    assert counters
    assert not any((array.view(np.uint32) == 0xFFFFFFFF).any() for array in counters)


@pytest.mark.parametrize("reductions", ["none", "all"])
def test_more_tiles_than_a_block_has_threads(on_shim, reductions):
    on_shim()
    count = 36_000  # in tiles of 32 more than 1,024
    x = np.zeros((count, 8), np.float32)
    x[np.arange(count), np.arange(count) % 8] = np.arange(count) % 6000 + 1
    x[::7] = 0
    network = from_matrices([np.eye(8)] * 2, 0.0, last="relu")
    found = infer(network, x, "cuda-csr", reductions, values=True)
    np.testing.assert_array_equal(found.all_values(), x)
