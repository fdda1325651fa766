"""The compiled module: levels, and that a stale build is noticed."""

import numpy as np
import pytest

from spdnn.core.errors import InputError, Unavailable
from spdnn.core.features import Inputs
from spdnn.core.network import Layer
from spdnn.kernels import dispatch
from spdnn.kernels import tiles as layouts


def test_levels_are_ordered_and_named(monkeypatch):
    names = [level.name for level in dispatch.levels()]
    assert names
    monkeypatch.delenv("SPDNN_ISA", raising=False)
    assert dispatch.level().name == names[0]
    monkeypatch.setenv("SPDNN_ISA", names[-1])
    assert dispatch.level().name == names[-1]
    assert [level.vector_bytes for level in dispatch.levels()] == sorted(
        (level.vector_bytes for level in dispatch.levels()), reverse=True
    )
    with pytest.raises(InputError, match="'v9' cannot run here: it must be one of"):
        dispatch.level("v9")


def test_a_stale_build_is_refused(tmp_path, monkeypatch):
    assert dispatch.missing() is None
    folder = tmp_path / "cpu"
    folder.mkdir()
    (folder / "fused_layers.cpp").write_text("other\n")
    monkeypatch.setattr(dispatch, "__file__", str(tmp_path / "__init__.py"))
    assert "not those of the sources next to them" in dispatch.missing()
    with pytest.raises(Unavailable, match="make setup"):
        dispatch.levels()
    monkeypatch.setattr(dispatch, "find_module", lambda: None)
    with pytest.raises(Unavailable, match="make setup"):
        dispatch.compiled_module()


def test_what_does_not_fit_is_refused():
    level, layer = dispatch.level(), layouts.bind(Layer.from_matrix(np.eye(4)))
    small, masks = layouts.buffer(1, 4, 16), np.zeros((1, 1), np.uint64)
    stored = layouts.bind_inputs(Inputs(np.zeros((2, 4), np.float32)))
    with pytest.raises(ValueError, match="dst is too small"):
        level.layers([layer], layouts.buffer(64, 4, 16), small, 64, 16, 1, np.zeros((1, 4), np.uint64), 1)
    with pytest.raises(ValueError, match="tile must be 1, 16, 32 or 64"):
        level.layers([layer], small, small, 1, 24, 1, masks, 1)
    with pytest.raises(ValueError, match="64-byte aligned"):
        level.layers([layer], small[1:], small, 1, 16, 1, masks, 1)
    with pytest.raises(ValueError, match="widths must chain"):
        level.layers([layer, layouts.bind(Layer.from_matrix(np.eye(3)))], small, small, 1, 16, 1, masks, 1)
    with pytest.raises(ValueError, match="active must be"):
        level.layers([layer, layer], small, small, 1, 16, 1, masks, 1)
    with pytest.raises(ValueError, match="row number is out of range"):
        level.layers_stored([layer], stored, np.array([2]), small, 16, 1, masks, 1)
