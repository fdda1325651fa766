"""Inputs and comparisons that the tests of engines share."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from spdnn import reference
from spdnn.engines import engine, infer
from spdnn.engines.base import Options, Session
from spdnn.features import Inputs, projection_weights


def rows(count, neurons, seed=0, kind="dense", density=0.3):
    rng = np.random.default_rng(seed)
    ones = rng.random((count, neurons)) < density
    if kind == "bits":
        return Inputs.from_array(ones)
    values = np.where(ones, rng.normal(1, 1, (count, neurons)), 0).astype(np.float32)
    return Inputs.from_array(sp.csr_array(values) if kind == "csr" else values)


def opened(name, network, inputs, reductions=(), **options) -> Session:
    """A session of the engine of that name."""
    chosen = engine(name)
    return chosen.open(chosen.prepare(network, reductions), inputs, Options(**options))


def assert_same(name, network, inputs, **options):
    """Compare an engine's result with the oracle's; both results."""
    got = infer(network, inputs, name, values=True, **options)
    expected = reference.infer(network, inputs, values=True)
    whole = expected.all_values()
    np.testing.assert_allclose(got.all_values(), whole, rtol=1e-4, atol=1e-5 * max(1.0, abs(whole).max()))
    mine = got.all_values()[got.alive]
    np.testing.assert_array_equal(got.row_min, mine.min(axis=1))
    np.testing.assert_array_equal(got.row_max, mine.max(axis=1))
    projections = mine @ projection_weights(network.outputs).astype(np.float64)
    np.testing.assert_allclose(got.row_projection, projections, rtol=1e-9, atol=1e-9 * max(1.0, abs(whole).sum()))
    np.testing.assert_allclose(got.row_sum, mine.sum(axis=1, dtype=np.float64), rtol=1e-9, atol=1e-9)
    return got, expected
