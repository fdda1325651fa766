"""Batches into one result, in whatever order their inputs come."""

import numpy as np
import pytest

from spdnn.core.network import MemoryNetwork, from_matrices
from spdnn.core.result import KeptInputs, LastLayer

INPUTS, OUTPUTS = 12, 5


def network() -> MemoryNetwork:
    return from_matrices([np.eye(OUTPUTS, dtype=np.float32)], last="relu")


def rows_of(numbers):
    """Rows that tell their inputs apart; those of multiples of 4 are zeros."""
    rows = np.arange(1, OUTPUTS + 1) * (1 + np.asarray(numbers)[:, None]).astype(np.float32)
    rows[np.asarray(numbers) % 4 == 0] = 0
    return rows.astype(np.float32)


@pytest.mark.parametrize("kept", [True, np.array([1, 6, 8, 11])], ids=["all", "drawn"])
@pytest.mark.parametrize("batches", [[range(12)], [range(6), range(6, 12)], [range(8, 12), range(3), range(3, 8)]])
def test_every_input_has_its_own_statistics_and_values(batches, kept):
    last, keep = LastLayer(network()), KeptInputs(kept)
    given = [np.array(batch) for batch in batches]
    parts = [last.rows(numbers, np.arange(numbers.size), rows_of(numbers), keep) for numbers in given]
    result = last.result(INPUTS, parts, keep, survivors=np.array([9]), edges_computed=60)
    result.check()
    alive = np.array([1, 2, 3, 5, 6, 7, 9, 10, 11])
    np.testing.assert_array_equal(result.alive, alive)
    np.testing.assert_array_equal(result.row_sum, 15 * (1 + alive))
    np.testing.assert_array_equal(result.row_max, 5 * (1 + alive))
    numbers = result.alive if result.valued is None else result.valued
    np.testing.assert_array_equal(numbers, alive if kept is True else [1, 6, 11])
    np.testing.assert_array_equal(result.values, rows_of(numbers))
