"""One rule for overflow, for the CUDA engines on the shim: docs/explanation/verification.md."""

import itertools

import pytest
from cuda_cases import ENGINES
from engine_cases import assert_exact_or_refused, assert_one_rule_for_overflow
from ladders import rung

from spdnn.engines.taskgraph.settings import SCHEDULES, TaskgraphSettings

ENDS = (0, 3)  # layers, where engines run the kernels that other engines run alone
REDUCTIONS = ("none", "all", "dead", "dead,inputs", "neurons")


@pytest.mark.parametrize(
    ("name", "reductions"),
    [
        rung(*one, default=one in (("cuda", "all"), ("cuda-csr", "none")))
        for one in itertools.product(ENGINES, REDUCTIONS)
    ],
)
def test_the_largest_finite_sum_passes_and_the_first_that_is_not_is_refused(on_shim, name, reductions):
    on_shim()
    assert_one_rule_for_overflow(name, reductions, ENDS if name == "cuda" else range(4))


@pytest.mark.parametrize("schedule", [rung(one, default=one == "graph") for one in SCHEDULES])
def test_of_every_batch(on_shim, schedule):
    on_shim()
    assert_one_rule_for_overflow("taskgraph-cuda", positions=ENDS, settings=TaskgraphSettings(schedule, batches=3))


@pytest.mark.parametrize("name", ENGINES)
def test_partial_sums_past_float32_give_the_sum_or_an_error(on_shim, name):
    on_shim()
    assert_exact_or_refused(name)
