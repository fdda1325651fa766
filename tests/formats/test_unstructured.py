"""Random networks: what they promise, and that no reduction finds anything in them."""

import numpy as np
import pytest
from refusals import refuses

from spdnn.engines.reductions.dead import reviving
from spdnn.engines.reductions.neurons import merge_neurons
from spdnn.formats.unstructured import LEAST_OF_ONE, MOST_OF_ONE, Unstructured


@pytest.mark.parametrize("neurons", [64, 1024])
def test_layers_are_sound_and_repeat(neurons):
    network = Unstructured(neurons, 4, seed=3)
    for k in range(4):
        layer = network.layer(k).check("layer")
        degrees = np.diff(layer.offsets)
        assert LEAST_OF_ONE <= degrees.min() < degrees.max() <= MOST_OF_ONE
        assert layer.edges == network.header(k).edges
        np.testing.assert_array_equal(layer.bias, network.header(k).bias)
        assert layer.bias.min() < 0 < layer.bias.max()
        assert layer.sha256() == Unstructured(neurons, 9, seed=3).layer(k).sha256()
        assert layer.sha256() != Unstructured(neurons, 4, seed=4).layer(k).sha256()
    assert network.layer(0).sha256() != network.layer(1).sha256()


def test_no_reduction_finds_anything():
    network = Unstructured(256, 5)
    assert reviving(network) == [0, 1, 2, 3, 4]
    assert merge_neurons(network)[0] is network


def test_features_keep_their_size():
    network, rows = Unstructured(512, 20), np.random.default_rng(0).random((20, 512))
    for layer in network.layers():
        rows = np.maximum(rows @ layer.matrix(np.float64) + layer.bias, 0)
    assert rows.any(axis=1).all()
    assert 0.01 < rows.mean() < 100


@pytest.mark.parametrize(("numbers", "what"), [((63, 1), "63 neurons"), ((64, 0), "0 layers"), ((64, 1, -1), "seed")])
def test_out_of_range(numbers, what):
    refuses(what, Unstructured, *numbers)
    refuses("layer 1: the network has layers 0 to 0", Unstructured(64, 1).layer, 1)
