"""Reductions: names, when dead inputs may leave, identical neurons."""

import itertools

import numpy as np
import numpy_rows
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from spdnn.core.errors import InputError
from spdnn.core.network import Layer, MemoryNetwork, from_matrices
from spdnn.engines.reductions.dead import dead_from, reviving
from spdnn.engines.reductions.neurons import merge_layer, merge_neurons
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch


@pytest.mark.parametrize(
    ("text", "names"),
    [("none", ()), ("all", ("dead", "inputs")), ("inputs,dead", ("dead", "inputs")), ("dead", ("dead",)), ([], ())],
)
def test_names(text, names):
    assert parse_reductions(text, ("dead", "inputs")) == names


@pytest.mark.parametrize("text", ["", "dead,none", "Dead", "neurons"])
def test_unknown_names(text):
    with pytest.raises(InputError, match=r"is not offered here.*: use one or more of dead, inputs, all, none"):
        parse_reductions(text, ("dead", "inputs"))


@pytest.mark.parametrize(
    ("biases", "first"), [([-1, -1, 0], 0), ([1, -1, 0], 1), ([-1, 0.1, -1], 2), ([-1, -1, [-1, 0, 0.1]], 3)]
)
def test_dead_rows_may_leave_after_the_last_positive_bias(biases, first):
    layers = reviving(from_matrices([np.eye(3)] * 3, biases, last="relu"))
    assert dead_from(layers, 3) == first
    assert dead_from(layers, 1) == (0 in layers)


def doubled(rng, inputs, outputs, copies, degrees, valued, bias):
    """A layer (inputs, copies * outputs) of which output j and j + outputs are alike, in random order."""
    matrix = np.zeros((inputs, outputs), np.float32)
    for column in range(outputs):
        degree = degrees if isinstance(degrees, int) else int(rng.integers(*degrees))
        matrix[rng.permutation(inputs)[:degree], column] = rng.normal(size=degree) if valued else 0.25
    order = rng.permutation(copies * outputs)
    biases = np.tile(rng.normal(size=outputs), copies)[order] if bias == "vector" else bias
    return Layer.from_matrix(np.tile(matrix, copies)[:, order], biases)


@pytest.mark.parametrize("bias", [-0.1, "vector"])
@pytest.mark.parametrize("valued", [True, False])
@pytest.mark.parametrize("degrees", [4, 3, 1100, (0, 6)])
def test_identical_neurons_are_merged_and_restored(degrees, valued, bias):
    rng = np.random.default_rng(2)
    wide = 1200 if degrees == 1100 else 30
    layers = [doubled(rng, wide if k == 0 else 30, 10, 3, degrees if k == 0 else 4, valued, bias) for k in range(4)]
    network = MemoryNetwork(layers)
    merged, found = merge_neurons(network)
    assert found["neurons"] == 120
    assert found["neurons_left"] == sum(merged.header(k).outputs for k in range(4)) <= 40
    assert found["edges_left"] == merged.edges < network.edges / 2.9
    rows = rng.random((5, wide))
    expected, whole = rows, rows
    for k in range(4):
        expected = np.maximum(expected @ network.layer(k).matrix(np.float64) + network.layer(k).bias, 0)
        merged.layer(k).check("merged")
        headers = merged.header(k), merged.layer(k).header
        header, same = (vars(part) | {"bias": part.bias.tolist()} for part in headers)
        assert header == same
        whole = np.maximum(whole @ merged.layer(k).matrix(np.float64) + merged.layer(k).bias, 0)
        np.testing.assert_allclose(whole[:, merged.neuron_classes(k)], expected, rtol=1e-5, atol=1e-6)


def test_neurons_that_become_identical_by_merging_their_inputs():
    first = np.array([[1, 1, 0], [0, 0, 1.0]])  # outputs 0 and 1 are alike
    second = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1.0]])  # so here too, though no two columns are
    merged, found = merge_neurons(from_matrices([first, second], last="relu"))
    assert [merged.header(k).outputs for k in range(2)] == [2, 2]
    np.testing.assert_array_equal(merged.neuron_classes(1), [0, 0, 1])
    assert found["edges_left"] == 4


def test_neurons_that_are_identical_before_and_after_merging_their_inputs():
    first = np.array([[1, 1, 0], [0, 0, 1.0]])  # outputs 0 and 1 are alike
    second = np.array([[0, 0, 1, 0, 1], [0, 0, 0, 1, 0], [1, 1, 0, 0, 0.0]])  # 0 and 1, 2 and 4; by their inputs also 3
    merged, found = merge_neurons(from_matrices([first, second], last="relu"))
    np.testing.assert_array_equal(merged.neuron_classes(1), [0, 0, 1, 1, 1])
    assert found["edges_left"] == 4


def test_edges_on_one_class_are_summed_even_to_zero():
    first = np.array([[1.0, 1.0, 2.0]])
    second = np.array([[1.5], [-1.5], [1.0]])
    merged, _ = merge_neurons(from_matrices([first, second], 0.0, last="none"))
    np.testing.assert_array_equal(merged.layer(1).matrix().toarray(), [[0], [1.0]])
    huge = from_matrices([first, np.array([[3e38], [3e38], [1]])], last="relu")
    merged, found = merge_neurons(huge)
    assert merged is huge
    assert found["left_as_it_is"] == "weights of layer 2 would add up past float32"
    assert found["neurons_left"] == found["neurons"] == 4


def test_layers_beyond_the_memory_are_merged_again_when_read():
    network = RadixNet(256, 9, -0.3)
    whole, _ = merge_neurons(network)
    some, found = merge_neurons(network, memory=whole.header(0).nbytes + whole.header(1).nbytes)
    assert found["edges_left"] == whole.edges == some.edges
    for k in (8, 0, 5, 4, 1):
        assert some.layer(k).sha256() == whole.layer(k).sha256()
        assert some.header(k).nbytes == whole.header(k).nbytes
    assert some.layer(1) is some.layer(1)  # kept
    assert some.layer(5) is not some.layer(5)


def test_a_network_without_identical_neurons_is_left_as_it_is():
    rng = np.random.default_rng(0)
    network = from_matrices([rng.normal(size=(20, 20)) for _ in range(3)], last="relu")
    merged, found = merge_neurons(network)
    assert merged is network
    assert found["neurons_left"] == found["neurons"] == 60
    assert merged.neuron_classes(2) is None


@st.composite
def chains(draw):
    """Layers whose rows repeat, in part or whole, with weights that cancel, and empty rows."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    depth, most = draw(st.integers(1, 3)), draw(st.sampled_from([1, 5, 30, 400]))
    widths = [int(random.integers(1, 40 if most < 400 else 600)) for _ in range(depth + 1)]
    layers = []
    for inputs, outputs in itertools.pairwise(widths):
        kinds = int(random.integers(1, outputs + 1))
        matrix = np.zeros((inputs, kinds), np.float32)
        for kind in range(kinds):
            degree = int(random.integers(0, min(inputs, most) + 1)) if draw(st.booleans()) else min(inputs, most)
            matrix[random.permutation(inputs)[:degree], kind] = random.choice([0.5, 1e8, -1e8, 1e-3, 1 / 3], degree)
        matrix = matrix[:, random.integers(0, kinds, outputs)]
        if draw(st.booleans()):
            matrix = np.float32(0.25) * (matrix != 0)
        bias = random.choice(np.float32([0.5, -1]), outputs) if draw(st.booleans()) else -0.1
        layers.append(Layer.from_matrix(matrix, bias))
    return layers


def in_numpy(layer, previous):
    """`merge_layer` with NumPy's functions on rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dispatch, "compiled_module", lambda: numpy_rows)
        return merge_layer(layer, previous)


@settings(max_examples=150, deadline=None)
@given(chains())
def test_merged_layers_are_those_of_numpy_to_the_bit(layers):
    previous = expected = None
    for layer in layers:
        (merged, previous), (oracle, expected) = merge_layer(layer, previous), in_numpy(layer, expected)
        assert merged.check("merged").sha256() == oracle.sha256()
        np.testing.assert_array_equal(previous, expected, strict=True)


def test_wide_layers_are_numbered_in_32_bits():
    random = np.random.default_rng(3)
    matrix = sp.random_array((70_000, 66_000), density=1e-4, rng=random, format="csc")
    layer = Layer.from_matrix(sp.hstack([matrix, matrix[:, :4_000]], format="csc"))
    for previous in (None, random.integers(0, 65_700, 70_000)):
        (merged, found), (oracle, expected) = (merge(layer, previous) for merge in (merge_layer, in_numpy))
        assert merged.sha256() == oracle.sha256()
        assert found.dtype == np.uint32
        np.testing.assert_array_equal(found, expected)


def test_official_networks_are_sixteen_times_smaller():
    network = RadixNet(1024, 24)
    merged, found = merge_neurons(network)
    assert found["neurons"] / found["neurons_left"] > 16
    assert found["edges"] / found["edges_left"] > 16
    # The first block is not permuted: after merging, two edges a neuron are left, all of one value.
    for k in range(1, 6):
        assert (merged.header(k).edges, merged.header(k).single_value) == (2 * merged.header(k).outputs, True)
    assert merged.header(0).inputs == 1024
    np.testing.assert_array_equal(merged.neuron_classes(0), np.arange(1024) % 64)
    np.testing.assert_array_equal(merged.neuron_classes(5), np.arange(1024) % 32)


def test_many_edges_on_classes_are_those_of_numpy():
    """Rows without edges, short ones that are ranked, long ones that are sorted."""
    rng = np.random.default_rng(5)
    degrees = np.array([0, 290_000, 3, 0, *rng.integers(0, 2000, 200)])
    offsets = np.concatenate([[0], np.cumsum(degrees)])
    indices = rng.integers(0, 5000, offsets[-1]).astype(np.uint16)
    classes, values = rng.integers(0, 700, 5000).astype(np.uint32), np.float32([0.1])

    def on_classes(work):
        to, left = np.empty(offsets.size, np.int64), np.zeros(indices.size, np.uint16)
        sums = np.zeros(indices.size, np.float32)
        count = work.on_classes(offsets, indices, values, classes, to, left, sums)
        return count, to, left[:count], sums[:count]

    for ours, expected in zip(on_classes(dispatch.compiled_module()), on_classes(numpy_rows), strict=True):
        np.testing.assert_array_equal(ours, expected)
