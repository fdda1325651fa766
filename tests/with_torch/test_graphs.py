"""Compiled models and spdnn.ops in functions that torch compiles or records: the same numbers, or one sentence."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from refusals import refuses
from sklearn.neural_network import MLPClassifier
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

import spdnn
from spdnn import ops

X = torch.randn(5, 16, generator=torch.Generator().manual_seed(0))
W = ops.SparseMatrix.from_dense(np.random.default_rng(0).standard_normal((16, 16)), sparsity=0.8)


@pytest.fixture(scope="module")
def models():
    weights = np.eye(16, dtype=np.float32)
    classifier = MLPClassifier(hidden_layer_sizes=(8,), max_iter=2).fit(np.eye(16), np.arange(16) % 3)
    return {
        "network": spdnn.compile(spdnn.from_matrices([weights], bias=-0.5, last="relu"), threads=1),
        "classifier": spdnn.compile(classifier, threads=1),
        "graph": spdnn.compile(nn.Sequential(nn.Linear(16, 4), nn.GELU()), threads=1),
    }


CALLS = {
    "network": lambda models, x: models["network"](x.relu()) * 2,
    "network of NumPy": lambda models, x: torch.from_numpy(models["network"](x.relu().numpy())) * 2,
    "network by name": lambda models, x: models["network"](x=x.relu()) * 2,
    "infer": lambda models, x: torch.from_numpy(models["network"].infer(x.relu(), values=True).all_values()) * 2,
    "classifier": lambda models, x: models["classifier"](x.relu()) * 2,
    "graph": lambda models, x: models["graph"](x.relu()) * 2,
    "linear": lambda _, x: ops.linear(x.relu(), W) * 2,
    "spmm": lambda _, x: ops.spmm(W, x.t().contiguous(), activation="relu") * 2,
    "sddmm": lambda _, x: ops.spmm(ops.sddmm(W, x.t().contiguous(), x.t().contiguous()), x.t().contiguous()) * 2,
    "convolution": lambda _, x: ops.depthwise_conv(x.relu()[None, None], torch.ones(1, 3, 3)) * 2,
    "values": lambda _, x: ops.linear(x.relu(), W.with_values(torch.arange(W.nnz).float() + x.mean())) * 2,
    "matrix": lambda _, x: ops.linear(x.relu(), ops.SparseMatrix.from_torch(x.t() @ x)) * 2,
}


@pytest.mark.parametrize("name", CALLS)
def test_compiled_it_gives_the_same_numbers(models, name):
    def call(x):
        return CALLS[name](models, x)

    torch.compiler.reset()
    compiled = torch.compile(call, backend="eager")
    for x in (X, X + 1, X[:3]):
        torch.testing.assert_close(compiled(x), call(x))


def test_without_breaks_torch_says_why_not(models):
    compiled = torch.compile(lambda x: models["network"](x), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"torch\.compiler\.disable"):
        compiled(X)


@pytest.mark.parametrize("name", [name for name in CALLS if name != "network of NumPy"])
@pytest.mark.parametrize("record", ["trace", "make_fx", "symbolic", "export"])
def test_no_result_is_recorded_as_a_constant(models, name, record):
    def call(x):
        return CALLS[name](models, x)

    class Module(nn.Module):
        def forward(self, x):
            return call(x)

    recorders = {
        "trace": lambda: torch.jit.trace(call, X, check_trace=False),
        "make_fx": lambda: make_fx(call)(X),
        "symbolic": lambda: make_fx(call, tracing_mode="symbolic")(X),
        "export": lambda: torch.export.export(Module(), (X,), strict=False),
    }
    refuses("is a tensor of a call that torch.jit.trace, make_fx or torch.export records", recorders[record])


def test_torch_may_come_after_the_model():
    code = """
import sys, numpy as np, spdnn
from spdnn import ops
model = spdnn.compile(spdnn.from_matrices([np.eye(3)], last="none"), threads=1)
A = ops.SparseMatrix.from_dense(np.eye(3))
assert "torch" not in sys.modules
import torch
compiled = torch.compile(lambda x: ops.linear(model(x * 2), A) + 1, backend="eager")
assert compiled(torch.ones(2, 3)).tolist() == [[3.0] * 3] * 2
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
