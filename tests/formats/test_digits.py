"""The default inputs: the same bits everywhere, the same pictures at every size, and a few that survive."""

import numpy as np
import pytest
from ladders import rung
from refusals import refuses

from spdnn.core import challenge
from spdnn.core.errors import Unavailable
from spdnn.formats import digits
from spdnn.formats.digits import digits_inputs
from spdnn.formats.radixnet import RadixNet

SHA256 = {
    1024: "4c588dd48a94b40463df5c87b9f0d086d9760a36f2cf0419b267683ea8f72b6c",
    4096: "e868aed9224a3b67b4e011d68451d5a01ed103704b52c4df0c326fb031d5d0c8",
}
FIRST_8 = {65536: "404153c2e3282894e176884261bb3ffe4c165805f1be3d59d41c6f3cb49e8260"}


def pictures(neurons: int, count: int) -> np.ndarray:
    """bool (count, rows, columns)."""
    side = int(neurons**0.5)
    inputs = digits_inputs(neurons, count)
    return inputs.dense(np.arange(count), bool).reshape(count, side, side).transpose(0, 2, 1)


@pytest.mark.parametrize("neurons", [rung(1024, default=True), rung(4096)])
def test_bits_never_change(neurons):
    inputs = digits_inputs(neurons)
    assert inputs.sha256 == SHA256[neurons]
    assert (inputs.count, inputs.neurons, inputs.kind) == (challenge.INPUTS, neurons, "bits")
    assert 0.08 < inputs.nonzeros / (inputs.count * neurons) < 0.12
    assert inputs.description["source"] == "digits"


def test_bits_at_the_largest_width():
    assert digits_inputs(65536, 8).sha256 == FIRST_8[65536]


@pytest.mark.parametrize("batch", [1024, 5000, 1 << 20])
def test_batches_change_nothing(batch, monkeypatch):
    whole = digits_inputs(1024, 100).data
    monkeypatch.setattr(digits, "BATCH", batch)
    np.testing.assert_array_equal(digits_inputs(1024, 100).data, whole)
    np.testing.assert_array_equal(digits_inputs(1024, 7).data, whole[:7])


def test_every_size_shows_the_same_pictures():
    small = pictures(1024, 50)
    for neurons, factor in ((4096, 2), (16384, 4), (65536, 8)):
        blocks = pictures(neurons, 50).reshape(50, 32, factor, 32, factor).mean(axis=(2, 4))
        assert ((blocks > 0.5) == small).mean() > 0.97


def test_pixels_are_column_major_and_upright():
    """Compared with a picture resized the slow way, by rows, with the exact weights."""
    horizontal, vertical, level = digits._draws(3)
    weights = digits._weights(32).astype(np.float64)
    for i, picture in enumerate(pictures(1024, 3)):
        grey = weights[vertical[i]] @ digits._load_digits()[i].astype(np.float64) @ weights[horizontal[i]].T
        np.testing.assert_array_equal(picture, grey > level[i])


@pytest.mark.parametrize("side", digits.SIDES)
def test_arithmetic_is_exact(side):
    """Products of two weights and a grey level are multiples of 1/4096 up to 16: 17 bits, fewer than float32's 24."""
    weights = digits._weights(side)
    assert weights.dtype == np.float32
    assert (weights * 64 == np.rint(weights * 64)).all()
    assert weights.min() >= 0
    assert weights.sum(axis=2).max() <= 1
    grey = digits._load_digits()
    assert (grey == np.rint(grey)).all()
    assert (grey.min(), grey.max()) == (0, 16)


def test_a_few_per_cent_survive_and_die_slowly():
    """On the official 1024 x 120 network, computed by SciPy in float32."""
    rows = digits_inputs(1024, 3000).dense(np.arange(3000)).T
    network = RadixNet(1024, 120)
    alive = []
    for k in range(network.depth):
        layer = network.layer(k)
        rows = layer.matrix().T.tocsr() @ rows + layer.bias
        rows = np.clip(rows, 0, challenge.YMAX)
        rows = rows[:, rows.any(axis=0)]
        alive.append(rows.shape[1])
    assert 0.01 <= alive[-1] / 3000 <= 0.06
    assert alive[4] > alive[9] > alive[-1]
    assert (rows == challenge.YMAX).all()


def test_other_widths_and_counts_are_refused():
    for neurons in (-1, 0, 1000, 1023, 100, 262_144):
        refuses(f"^{neurons} neurons.*65536", digits_inputs, neurons)
    for count in (0, -1, 60_001):
        refuses("60,000", digits_inputs, 1024, count)


def test_without_scikit_learn(monkeypatch):
    monkeypatch.setattr(digits, "find_spec", lambda name: None)
    with pytest.raises(Unavailable, match="scikit-learn"):
        digits_inputs(1024, 1)
