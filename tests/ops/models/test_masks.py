"""The mask of a band and random far positions."""

import numpy as np
import pytest
from model_oracle import dense
from refusals import refuses

from spdnn.ops import Topology
from spdnn.ops.models import masks
from spdnn.ops.models.masks import band_and_decay, first_rows


@pytest.mark.parametrize(
    ("sequence", "band", "sparsity"),
    [(1, 1, 0.0), (1, 256, 0.95), (40, 40, 0.9), (41, 40, 0.0), (300, 7, 0.5), (257, 64, 0.95), (60, 1, 0.0)],
)
def test_band_and_counts(sequence, band, sparsity):
    seen, distance = dense(band_and_decay(sequence, band, sparsity, 3)), np.subtract.outer(*[np.arange(sequence)] * 2)
    assert not seen[distance < 0].any()
    assert seen[(distance >= 0) & (distance < band)].all()
    far = max(sequence - band, 0)
    assert seen[distance >= band].sum() == round(far * (far + 1) / 2 * (1 - sparsity))


def test_columns_ascend_and_pieces_change_nothing(monkeypatch):
    mask = band_and_decay(300, 20, 0.9, 1)
    assert Topology(mask.shape, mask.offsets, mask.columns) == mask  # whose constructor refuses unsorted columns
    monkeypatch.setattr(masks, "DRAWN_AT_ONCE", 1000)
    assert band_and_decay(300, 20, 0.9, 1) == mask
    assert band_and_decay(300, 20, 0.9, 2) != mask


def test_too_few_below_the_threshold_are_drawn_again(monkeypatch):
    mask = band_and_decay(200, 10, 0.9, 1)
    monkeypatch.setattr(masks, "_threshold", lambda *_: 1e-3)
    assert band_and_decay(200, 10, 0.9, 1) == mask


def test_near_positions_are_drawn_more_often():
    """Few of many: the chance of a position at distance d is nearly proportional to 1 / d."""
    sequence, band, sparsity = 1200, 100, 0.98
    mask = band_and_decay(sequence, band, sparsity, 5)
    distance = mask.row_numbers.astype(np.int64) - mask.columns
    parts = [(100, 200), (200, 400), (400, 800)]
    found = np.array([((distance >= low) & (distance < high)).sum() for low, high in parts])
    wanted = np.array([sum((sequence - d) / d for d in range(low, high)) for low, high in parts])
    wanted *= found.sum() / wanted.sum()
    assert np.abs(found - wanted).max() < 4 * np.sqrt(wanted).max()
    uniform = np.array([sum(sequence - d for d in range(low, high)) for low, high in parts])
    assert np.abs(found - uniform * found.sum() / uniform.sum()).max() > 20 * np.sqrt(wanted).max()


def test_the_first_rows_are_a_mask_of_a_shorter_sequence():
    mask = band_and_decay(50, 8, 0.7, 0)
    assert np.array_equal(dense(first_rows(mask, 31)), dense(mask)[:31, :31])
    assert first_rows(mask, 50) is mask
    for rows in (0, 51):
        refuses(f"{rows} positions: the mask has 50", first_rows, mask, rows)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 1, 0.5), "sequence 0: it must be a whole number from 1 to 65,536"),
        ((65537, 1, 0.5), "sequence 65537"),
        ((4, 0, 0.5), "band 0"),
        ((4, 2, 1.0), "sparsity 1.0: it must be a number from 0 to below 1"),
        ((4, 2, float("nan")), "sparsity nan"),
        ((4.0, 2, 0.5), r"sequence 4\.0"),
    ],
)
def test_refused(arguments, said):
    refuses(said, band_and_decay, *arguments)
