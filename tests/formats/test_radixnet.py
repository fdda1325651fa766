"""RadiX-Net: sizes and options that no formula defines, each one sentence."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy_rows
import pytest
from refusals import refuses

from spdnn.engines.reductions.neurons import merge_neurons
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"neurons": 2**70}, "1180591620717411303424 neurons: at most 134217728 are possible here"),
        ({"neurons": 2**28}, "268435456 neurons: at most"),
        ({"layers": 10**22}, "10000000000000000000000 layers: at most 2147483647 are possible here"),
        ({"layers": 2**31}, "2147483648 layers: at most"),
        ({"layers": 0}, "0 layers: a network has at least 1"),
        ({"neurons": 48}, "48 neurons: a RadiX-Net has"),
        ({"bias": 1e39}, r"bias 1e\+39: it must be a finite number"),
        ({"bias": None}, "32 neurons have no official bias"),
        ({"seed": -1}, "seed -1: the generator takes"),
    ],
)
def test_what_no_formula_defines(given, said):
    refuses(said, RadixNet, **{"neurons": 32, "layers": 2, "bias": -0.1, **given})


def test_identity_is_of_numbers_not_of_their_types():
    whole, real = (RadixNet(32, 2, -0.5, ymax) for ymax in (32, 32.0))
    assert whole.identity() == real.identity()
    assert whole.sha256() == real.sha256()
    assert RadixNet(32, 2, -0.5, None).description["ymax"] is None


@pytest.mark.parametrize("merged", [False, True])
def test_threads_read_out_of_step(merged):
    """Six readers, more than there are cursors, forwards, backwards and at random, get what one gets in order."""
    network = RadixNet(256, 40, -0.3)
    if merged:
        network = merge_neurons(network, 0)[0]  # each layer is merged again when it is read
    expected = [network.layer(k).sha256() for k in range(40)]
    wrong = []

    def read(reader):
        order = list(range(40))
        if reader % 3 == 1:
            order.reverse()
        elif reader % 3 == 2:
            random.Random(reader).shuffle(order)
        for k in order:
            if network.layer(k).sha256() != expected[k]:
                wrong.append((reader, k))

    with ThreadPoolExecutor(6) as readers:
        list(readers.map(read, range(6)))
    assert wrong == []


@pytest.mark.parametrize("neurons", [32, 1024, 131_072])
def test_numpy_makes_the_same_layers(neurons, monkeypatch):
    compiled, network = RadixNet(neurons, 40, -0.1), RadixNet(neurons, 40, -0.1)
    for k in (0, 3, 6, 13, 39):
        expected = compiled.layer(k).check("compiled").sha256()
        with monkeypatch.context() as patch:
            patch.setattr(dispatch, "compiled_module", lambda: numpy_rows)
            assert network.layer(k).sha256() == expected
