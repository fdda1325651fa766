"""A small run, measured."""

import numpy as np
import pytest

from spdnn.core.features import Inputs
from spdnn.engines.base import Options
from spdnn.engines.registry import engine
from spdnn.runs import measure
from spdnn.runs.verify.official import draw_kept

ROWS = np.random.default_rng(0).random((9, 6))


@pytest.fixture
def small_run(random_network):
    """A function: (network, inputs, measurement, result) of repeats of nine inputs; what a verdict needs is kept."""

    def run(repeats=1, again=0, until=None, widths=(6, 5, 4), rows=ROWS, **network):
        made, inputs, runner = random_network(list(widths), **network), Inputs.from_array(rows), engine("cpu")
        loaded = measure.LoadedRun(inputs, runner.prepare(made, ()), 0.1, 0.2)
        options = Options(1, values=draw_kept(made, inputs))
        return made, inputs, *measure.measure(runner, loaded, options, repeats, again, until)

    return run
