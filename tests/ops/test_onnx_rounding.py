"""Products of ONNX models: right ones are off by a part of what is allowed, those in half precision by more."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from spdnn.core.closeness import worst
from spdnn.formats.onnx_files import OnnxGraph
from spdnn.ops import onnx_trial

KINDS = {
    "drawn": lambda w: w,
    "of one sign": abs,
    "sorted": lambda w: np.sort(w, axis=0)[::-1],
    "large and small": lambda w: w * 10.0 ** np.linspace(-3, 3, len(w))[:, None],
}


def matmul(weights):
    """The trial of a model of one product, and its product."""
    sizes = {"x": len(weights), "y": weights.shape[1]}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in sizes.items()]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    trial = onnx_trial.Trial(OnnxGraph.of_content(model.SerializeToString(), "g"), 1)
    (product,) = trial.products
    return trial, product


def with_data(matrix, change):
    """A copy of a matrix whose nonzeros are changed."""
    matrix = matrix.copy()
    matrix.data = change(matrix.data)
    return matrix


@pytest.mark.parametrize("edges", [16, 800, 3000])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("positive", [False, True])
def test_rounding_passes_and_half_precision_does_not(edges, kind, positive):
    rng = np.random.default_rng(edges)
    drawn = rng.standard_normal((4 * edges, 64)) * (rng.random((4 * edges, 64)) < 0.25)
    weights = np.ascontiguousarray(KINDS[kind](drawn), np.float32)
    x = rng.standard_normal((32, 4 * edges)).astype(np.float32)
    x = abs(x) if positive else x
    trial, product = matmul(weights)
    given = {"x": x, "y": trial.plain.run(None, {"x": x})[0]}
    assert trial._apart(product, 64, given) <= 0.4
    # In float64 rounding is what the other program has alone.
    exact = x.astype(np.float64) @ weights
    assert worst(given["y"], exact, onnx_trial._rounding(product, x, given["y"])) <= 0.4
    assert product.matrix.nnz == np.count_nonzero(weights)
    changes = [
        lambda data: data.astype(np.float16).astype(np.float32),
        lambda data: data * np.float32(1 + 1e-3),
        lambda data: np.where(abs(data) == abs(data).max(), np.float32(0), data),
    ]
    # The errors of so many weights in half precision cancel in a large sum, to less than its rounding in float32.
    if (edges, kind, positive) == (3000, "of one sign", True):
        changes.pop(0)
    for change in changes:
        assert trial._apart(replace(product, matrix=with_data(product.matrix, change)), 64, given) > 1


def test_outputs_may_differ_as_far_as_forms_of_onnx_runtime_do():
    """Near zero, a sigmoid that is computed in another way differs by as much as it is."""
    wanted, form = np.float32([1.8e-7, 1e-7]), np.float32([1.0e-7, 1.2e-7])
    graph = SimpleNamespace(session=lambda change: SimpleNamespace(run=lambda names, sample: [form, np.int64([5])]))
    for apart, right in ((0.0, True), (3e-7, True), (3.3e-7, False), (np.nan, False)):
        found = [wanted + np.float32([0, apart]), np.int64([4])]
        assert onnx_trial.all_alike(found, [wanted, np.int64([4])], graph, {}) == right
    assert not onnx_trial.all_alike([wanted + np.float32(3e-7)], [wanted], SimpleNamespace(
        session=lambda change: SimpleNamespace(run=lambda names, sample: [wanted])), {})  # fmt: skip
