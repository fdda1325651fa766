"""What is timed at each density is right: both kernels compare themselves with SciPy's product first."""

import density
import numpy as np

from spdnn.formats.radixnet import RadixNet


def test_both_kernels_give_the_layer():
    layer = RadixNet(64, 9, -0.1).layer(7)
    rows = (np.random.default_rng(0).random((40, 64)) < 0.3).astype(np.float32)
    density.fused(layer, rows, 1)
    run = density.sparse(layer, rows, 1)
    assert sum(run(density.spgemm.BEST)[2]) == 40
