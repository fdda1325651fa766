"""One rule for overflow, for every engine of ours: docs/explanation/verification.md."""

import numpy as np
import pytest
from engine_cases import HALF_STEP, LARGEST, assert_exact_or_refused, assert_one_rule_for_overflow
from ladders import each_level, rung

from spdnn.api import infer
from spdnn.core.errors import Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.engines.registry import engine
from spdnn.engines.taskgraph.settings import TaskgraphSettings

OURS = ("cpu", "tiled", "csr", "spgemm", "taskgraph", "reference")
WITH = [(name, which) for name in OURS for which in ("none", "all", *engine(name).offers)]


@pytest.mark.parametrize("level", each_level)
@pytest.mark.parametrize(
    ("name", "reductions"),
    [rung(*one, default=one in (("cpu", "all"), ("cpu", "none"), ("spgemm", "all"))) for one in WITH],
)
def test_the_largest_finite_sum_passes_and_the_first_that_is_not_is_refused(name, reductions, level, monkeypatch):
    monkeypatch.setenv("SPDNN_ISA", level)
    assert_one_rule_for_overflow(name, reductions, threads=2)


@pytest.mark.parametrize("schedule", ["resident", "stream", "pipeline"])
def test_of_every_batch(schedule):
    assert_one_rule_for_overflow("taskgraph", settings=TaskgraphSettings(schedule, 2, batches=5), threads=2)


@pytest.mark.parametrize("name", OURS)
def test_partial_sums_past_float32_give_the_sum_or_an_error(name):
    assert_exact_or_refused(name)


def test_libraries_refuse_sums_that_rounding_takes_past_float32():
    """Terms of 3/4 of a step are rounded up, each time by a quarter; the exact sum is the largest float32."""
    weights = np.array([2.0**126] + [0.75 * HALF_STEP] * 12, np.float32)
    weights = np.append(weights, np.float32(LARGEST - weights.sum(dtype=np.float64)))
    assert weights.sum(dtype=np.float64) <= LARGEST
    with pytest.raises(Unsuitable, match="layer 1 could"):
        infer(
            from_matrices([weights[:, None]], clip=32, last="relu"),
            Inputs.from_array(np.ones((1, 14), np.float32)),
            "scipy",
        )
