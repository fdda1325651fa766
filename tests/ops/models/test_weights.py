"""Weights of a model: what a file must hold, and batch norms folded."""

import numpy as np
import pytest
from refusals import refuses
from safetensors.numpy import save_file

from spdnn.ops.models import weights

SHAPES = {"a.weight": (2, 3), "a.bias": (2,)}
GOOD = {"a.weight": np.arange(6, dtype=np.float32).reshape(2, 3), "a.bias": np.ones(2, np.float32)}
NORM = {
    "a.norm.weight": np.array([2.0, -1.0], np.float32),
    "a.norm.bias": np.array([0.5, 0.0], np.float32),
    "a.norm.mean": np.array([1.0, -3.0], np.float32),
    "a.norm.variance": np.array([4.0, 0.0], np.float32),
}


def assert_good(path):
    found = weights.read(path, SHAPES)
    assert list(found) == list(SHAPES)
    assert all(np.array_equal(found[name], GOOD[name]) and found[name].dtype == np.float32 for name in SHAPES)


@pytest.mark.parametrize("ending", [".npz", ".safetensors"])
def test_there_and_back(tmp_path, ending):
    weights.write(tmp_path / f"w{ending}", GOOD, SHAPES)
    assert_good(tmp_path / f"w{ending}")


@pytest.mark.parametrize("kind", [np.float16, np.float64])
def test_other_types_become_float32(tmp_path, kind):
    save_file({name: array.astype(kind) for name, array in GOOD.items()}, tmp_path / "w.safetensors")
    assert_good(tmp_path / "w.safetensors")


@pytest.mark.parametrize("ending", [None, ".npz", ".safetensors"])
def test_what_is_read_is_nobodys_to_change(tmp_path, ending):
    if ending:
        weights.write(path := tmp_path / f"w{ending}", GOOD, SHAPES)
    found = weights.read(path if ending else GOOD, SHAPES)
    assert not any(np.shares_memory(found[name], GOOD[name]) or found[name].flags.writeable for name in SHAPES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a.bias": None}, "there is no tensor a.bias; the model needs 2 of them"),
        ({"b.weight": np.ones(2)}, "tensor 'b.weight' is none of the model's"),
        ({"a.bias": np.ones(3)}, r"a.bias is \(3,\); it must be \(2,\)"),
        ({"a.weight": np.ones((3, 2))}, r"a.weight is \(3, 2\); it must be \(2, 3\)"),
        ({"a.bias": np.array(["x", "y"])}, "a.bias is of <U1; it must be of real numbers"),
        ({"a.bias": np.array([1, np.nan])}, "a.bias holds NaN"),
        ({"a.bias": np.array([1, 1e300])}, "a.bias holds NaN, an infinity, or a number past float32"),
        (NORM, "a has both a bias and a batch norm"),
        ({**NORM, "a.bias": None, "a.norm.mean": None}, "there is no tensor a.norm.mean, which the batch norm of a"),
        ({**NORM, "a.bias": None, "a.norm.mean": np.ones(3)}, "the batch norm of a must have 2 numbers"),
        ({**NORM, "a.bias": None, "a.norm.variance": -np.ones(2)}, "a.norm.variance must be at least 0"),
        ({"c.norm.variance": np.ones(2)}, "there is no tensor c.weight, which the batch norm of c needs"),
    ],
)
def test_refused(tmp_path, change, said):
    path = tmp_path / "w.npz"
    np.savez(path, **{name: array for name, array in {**GOOD, **change}.items() if array is not None})
    refuses(f"{path}: {said}", weights.read, path, SHAPES)


def test_batch_norm_is_folded(tmp_path):
    path, x = tmp_path / "w.npz", np.array([1.0, -2.0, 0.5])
    np.savez(path, **{"a.weight": GOOD["a.weight"]}, **NORM)
    found = weights.read(path, SHAPES)
    y = GOOD["a.weight"] @ x
    scaled = (y - NORM["a.norm.mean"]) / np.sqrt(NORM["a.norm.variance"] + 1e-5)
    wanted = scaled * NORM["a.norm.weight"] + NORM["a.norm.bias"]
    np.testing.assert_allclose(found["a.weight"] @ x + found["a.bias"], wanted, rtol=1e-6)
