"""What the kernels on slices do for an edge, in counts that may not grow: instructions of machine code, and what warps
read (docs/explanation/cuda.md has them)."""

import numpy as np
import nvrtc
import pytest
from counts import LAYERS, TILE, count, official, waits
from shim import ShimDevice

from spdnn.engines.cuda.choice import idle_run
from spdnn.engines.cuda.layers import lay_out, to_device, widths
from spdnn.engines.cuda.schedule import BITS, PERSISTENT, STAGED, variants
from spdnn.kernels.cuda import settings
from spdnn.problem.network import from_matrices

GATHERS = 8  # in one turn of an inner loop
MOST_OF_AN_OUTPUT = 43  # from store to store, of four inputs
# Of one turn, for each number of outputs that share a gather: 32 multiply-adds for each output, and the rest.
MOST = {
    75: {"staged": {1: 58, 2: 90, 4: 154}, "staged, values": {1: 62, 2: 97, 4: 163},
         "staged, bits": {1: 98, 2: 139, 4: 203}, "staged, bits, values": {1: 102, 2: 146, 4: 220},
         "persistent": {1: 61, 2: 93, 4: 157}, "persistent, values": {1: 65, 2: 99}},
    80: {"staged": {1: 59, 2: 91, 4: 158}, "staged, values": {1: 62, 2: 98, 4: 167},
         "staged, bits": {1: 98, 2: 116, 4: 203}, "staged, bits, values": {1: 103, 2: 122, 4: 220},
         "persistent": {1: 61, 2: 93, 4: 157}, "persistent, values": {1: 65, 2: 99}},
    90: {"staged": {1: 66, 2: 98, 4: 165}, "staged, values": {1: 71, 2: 106, 4: 171},
         "staged, bits": {1: 97, 2: 115, 4: 202}, "staged, bits, values": {1: 101, 2: 121, 4: 219},
         "persistent": {1: 69, 2: 101, 4: 165}, "persistent, values": {1: 73, 2: 107}},
    100: {"staged": {1: 65, 2: 100, 4: 169}, "staged, values": {1: 72, 2: 106, 4: 173},
          "staged, bits": {1: 104, 2: 138, 4: 206}, "staged, bits, values": {1: 106, 2: 139, 4: 207},
          "persistent": {1: 77, 2: 109, 4: 173}, "persistent, values": {1: 81, 2: 115}},
    120: {"staged": {1: 66, 2: 100, 4: 169}, "staged, values": {1: 71, 2: 105, 4: 170},
          "staged, bits": {1: 104, 2: 138, 4: 208}, "staged, bits, values": {1: 104, 2: 138, 4: 206},
          "persistent": {1: 77, 2: 109, 4: 173}, "persistent, values": {1: 80, 2: 114}},
}  # fmt: skip
CASES = [
    pytest.param(arch, name, marks=() if arch == 90 and "values" not in name
                 else pytest.mark.full("architectures"))
    for arch, names in MOST.items() for name in names
]  # fmt: skip


@pytest.mark.parametrize(("arch", "name"), CASES)
def test_instructions_of_an_inner_loop(arch, name):
    kind, valued, most = name.split(",")[0], "values" in name, MOST[arch][name]
    if kind == "staged":
        kernels = [settings.staged_kernel(shared, valued, bits="bits" in name) for shared in most]
    else:
        kernels = [settings.persistent(16, 1024, valued)]  # which has a loop for each
    loops = [loop for kernel in kernels for loop in nvrtc.inner_loops(nvrtc.machine_code(12, arch, kernel))]
    adds = "FADD" if "bits" in name else "FFMA"
    shared = [loop[adds] // (4 * GATHERS) for loop in loops]
    assert sorted(set(shared)) == sorted(most)
    for of, loop in zip(shared, loops, strict=True):
        assert loop[adds] == 4 * GATHERS * of
        assert loop["LDS"] == GATHERS
        assert loop.total() <= most[of]


@pytest.mark.parametrize("arch", [pytest.param(arch, marks=() if arch == 90 else pytest.mark.full("architectures"))
                                  for arch in MOST])  # fmt: skip
def test_instructions_of_an_output(arch):
    """Bias, activation, what is zero, what is past float32, where to: of four inputs."""
    between = nvrtc.between_stores(nvrtc.machine_code(12, arch, settings.staged_kernel(4, False)))
    assert len(between) == settings.STAGED_HELD - 1
    assert max(between) <= MOST_OF_AN_OUTPUT


@pytest.mark.parametrize(("merged", "busy"), [(False, 1 / 16), (True, 1 / 4)])
@pytest.mark.parametrize("neurons", [1024, 4096, 16384])
def test_a_first_layer_on_bits_gathers_words(neurons, merged, busy):
    """One load for four outputs of a warp, or 16 that share inputs; shuffles are those of its outputs."""
    one = count(official(neurons, 0, merged), BITS)
    assert (one.bits(one.reads.deliveries), one.conflicts, one.padding) == (busy, 1, 0)
    assert one.bits(one.reads.shuffles) < 0.04
    assert one.bits(one.reads.copied / 128) < 0.02


# Inputs of a block of `persistent`, and whether edges have values: what the first multiply-add and a bias wait for.
WAITS = {(1, False): (0, 0), (1, True): (1, 0), (16, False): (2, 1), (16, True): (2, 1)}


@pytest.mark.parametrize("arch", [pytest.param(arch, marks=() if arch == 90 else pytest.mark.full("architectures"))
                                  for arch in MOST])  # fmt: skip
@pytest.mark.parametrize(("inputs", "valued"), WAITS)
def test_loads_that_a_layer_waits_for(arch, inputs, valued):
    assert waits(inputs, valued, arch) == WAITS[inputs, valued]


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("merged", [False, True])
def test_each_line_of_the_next_layers_weights_is_fetched_once(rows, merged):
    """By the blocks that have a row, which share them: of a first layer nothing, of the others all."""
    device = ShimDevice(counting=True, multiprocessors=2)
    layers = [to_device(device, lay_out(official(1024, k, merged), PERSISTENT)) for k in (7, 8, 9)]
    source, target = (device.upload(np.ones(TILE * layers[0].inputs, np.float32)) for _ in range(2))
    table = device.upload(np.concatenate([layer.row(device) for layer in layers]))
    few = variants(device.properties, *widths(layers))[0]
    run = idle_run(device, 1, 3)
    device.counted()
    run.layers(0, table, few, layers, source, target, device.upload(np.array([rows], np.int32)))()
    fetched = [array for layer in layers[1:] for name, array in layer.arrays.items() if name != "starts"]
    assert few.inputs == 1
    assert device.counted().prefetched == sum(-(-array.nbytes // 128) for array in fetched if array.size > 1)


# Edges for each time that shared memory delivers (32 where each has a gather of its own), of `staged`, `persistent`.
DELIVERED = {(1024, 0): (128, 128), (1024, 7): (128, 128), (4096, 10): (128, 115), (16384, 12): (128, 81)}
MERGED = {(1024, 7): (42, 42), (4096, 10): (40, 40)}


@pytest.mark.parametrize(("neurons", "k"), LAYERS)
def test_reads_of_official_layers(neurons, k):
    staged, persistent = (count(official(neurons, k), kind) for kind in (STAGED, PERSISTENT))
    assert staged.per_delivery == 128
    assert persistent.per_delivery >= DELIVERED[neurons, k][1]
    assert (staged.conflicts, staged.footprint, staged.padding) == (1, 272, 0)
    assert staged.weight_bytes == 2 / 4 / 32  # an index for four outputs and 32 inputs
    assert staged.copied_bytes == 272 / 256 * 4 / 32  # of 256 outputs, 32 edges each
    if (neurons, k) in MERGED:
        found = [count(official(neurons, k, merged=True), kind) for kind in (STAGED, PERSISTENT)]
        for one, least in zip(found, MERGED[neurons, k], strict=True):
            assert one.per_delivery >= least
            assert one.conflicts == 1


def test_what_shares_nothing_has_a_gather_for_each_edge():
    """Nor does it pass in more stages than a block has room for."""
    rng = np.random.default_rng(0)
    matrix = np.zeros((900, 256))
    for column in range(256):
        matrix[rng.permutation(900)[:32], column] = 0.5
    layer = from_matrices([matrix], last="relu").layer(0)
    one = count(layer, STAGED)
    assert one.footprint == 900
    assert (one.per_delivery, one.conflicts, one.padding) == (32, 1, 0)
