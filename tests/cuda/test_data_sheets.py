"""The least time of counted work on a GPU by its data sheet."""

import numpy as np
import pytest
from gpus import GPUS, PARTS, TileWork, parts, seconds

V100 = GPUS["V100"]
WORK = TileWork(32, 4, 8000.0, 4000.0, 2000.0, 1e4, 1e5, 8192.0)


def test_each_part_by_hand():
    rows = 32 * 80 * 10
    found = dict(zip(PARTS, parts(V100, WORK, rows), strict=True))
    cycle, blocks = 1 / 1.53e9, 40  # of each multiprocessor, a quarter of a tile each
    assert found["instructions"] == pytest.approx(blocks * 2000 / 4 * cycle)
    assert found["multiply-adds"] == pytest.approx(blocks * 1000 * 32 / 64 * cycle)
    assert found["shared memory"] == pytest.approx(blocks * 500 * cycle)
    assert found["L2"] == pytest.approx(800 * 1e4 / 2048 * cycle)
    assert found["memory"] == pytest.approx((rows * 8192 + 1e5) / 9e11)


def test_few_rows_leave_multiprocessors_idle_and_stay_in_the_cache():
    one, all_busy = (parts(V100, WORK, rows) for rows in (1, 32 * 20))  # a block on each of 80 multiprocessors
    assert one[:3] == pytest.approx(all_busy[:3])
    assert all_busy[4] == pytest.approx(1e5 / 9e11)  # weights alone
    assert parts(V100, WORK, 0)[:4].tolist() == [0, 0, 0, 0]


def test_the_slowest_part_counts_and_layers_add_up():
    rows = np.array([32 * 80, 32])
    least, binds = seconds(V100, WORK, rows)
    assert least == pytest.approx(parts(V100, WORK, rows).max(axis=0).sum())
    assert binds == "memory"
    assert seconds(V100, WORK._replace(deliveries=1e6), rows)[1] == "shared memory"
