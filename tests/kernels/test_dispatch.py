"""The compiled module: levels, and that a stale build is noticed."""

from __future__ import annotations

import numpy as np
import pytest

from spdnn import kernels, layouts
from spdnn.errors import InputError, Unavailable
from spdnn.network import Layer


def test_levels_are_ordered_and_named():
    names = [level.name for level in kernels.levels()]
    assert names
    assert kernels.level().name == names[0]
    assert [level.vector_bytes for level in kernels.levels()] == sorted(
        (level.vector_bytes for level in kernels.levels()), reverse=True
    )
    with pytest.raises(InputError, match="'v9' cannot run here: it must be one of"):
        kernels.level("v9")


def test_a_stale_build_is_refused(tmp_path, monkeypatch):
    assert kernels.missing() is None
    folder = tmp_path / "cpu"
    folder.mkdir()
    for name in kernels._SOURCES:
        (folder / name).write_text("other\n")
    monkeypatch.setattr(kernels, "__file__", str(tmp_path / "__init__.py"))
    assert "not those of the sources beside them" in kernels.missing()
    with pytest.raises(Unavailable, match="make setup"):
        kernels.levels()


@pytest.mark.parametrize("tile", layouts.TILES)
def test_tiles_go_and_come_back(tile):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(100, 7)).astype(np.float32)
    identity = layouts.bind(Layer.from_matrix(np.eye(7), 100.0))
    level = kernels.level()
    tiled, active = layouts.buffer(100, 7, tile), np.zeros(layouts.tiles_of(100, tile), np.uint64)
    level.first_layer_dense(identity, rows, np.arange(100), tiled, tile, active, 2)
    assert layouts.active_slots(active, tile, 100).size == 100
    kept = np.array([0, 3, 50, 99])
    compacted, out = layouts.buffer(4, 7, tile), np.empty((4, 7), np.float32)
    level.compact(tiled, compacted, 7, kept, tile, 1)
    level.untile(compacted, out, tile, 1)
    np.testing.assert_array_equal(out, rows[kept] + np.float32(100))


def test_what_does_not_fit_is_refused():
    level, layer = kernels.level(), layouts.bind(Layer.from_matrix(np.eye(4)))
    small, masks = layouts.buffer(1, 4, 16), np.zeros(1, np.uint64)
    with pytest.raises(ValueError, match="dst is too small"):
        level.layer(layer, layouts.buffer(64, 4, 16), small, 4, 16, np.zeros(4, np.uint64), 1)
    with pytest.raises(ValueError, match="tile must be 16, 32 or 64"):
        level.layer(layer, small, small, 1, 24, masks, 1)
    with pytest.raises(ValueError, match="64-byte aligned"):
        level.layer(layer, small[1:], small, 0, 16, masks, 1)
    with pytest.raises(ValueError, match="row number is out of range"):
        level.first_layer_dense(layer, np.zeros((2, 4), np.float32), np.array([2]), small, 16, masks, 1)
