"""spdnn.compile(module): PyTorch modules by way of ONNX, sparse layers with their weights; what is refused, and why."""

import logging

import numpy as np
import pytest
import torch
from refusals import refuses
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import spdnn
import spdnn.torch as st
from spdnn.ops.onnx_model import OnnxModel


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    """All products with few nonzeros are ours."""
    monkeypatch.setenv("SPDNN_TUNING", "off")


def agree(module, x, *, ours=None, tolerance=2e-5, **options):
    """The compiled module gives the module's outputs for any number of inputs; `ours` products are spdnn's."""
    x = x if isinstance(x, tuple) else (x,)
    model = spdnn.compile(module, example=tuple(one[:2] for one in x), **options)
    assert isinstance(model, spdnn.Model if ours is None else OnnxModel)
    assert ours is None or f"products={ours} of" in repr(model).replace("OnnxModel(", "products=")
    module.eval()
    for count in (1, len(x[0])):
        with torch.inference_mode():
            wanted = module(*(one[:count] for one in x))
        found = model(*(one[:count] for one in x))
        for one, other in zip(*(each if isinstance(each, tuple) else (each,) for each in (found, wanted)), strict=True):
            assert (one.dtype, one.shape) == (other.dtype, other.shape)
            assert (one - other).abs().max() <= tolerance * max(1, other.abs().max())
    return model


class Called(nn.Module):
    """What `does` makes of layers and inputs."""

    def __init__(self, does, *layers):
        super().__init__()
        self.does, self.layers = does, nn.ModuleList(layers)

    def forward(self, *x):
        return self.does(*self.layers, *x)


def linear(inputs, outputs, sparsity=0.9):
    return st.SparseLinear.from_dense(nn.Linear(inputs, outputs), sparsity)


@pytest.mark.parametrize("seed", range(5))
def test_chains_of_pruned_layers(seed):
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    widths = [int(width) for width in random.integers(1, 200, int(random.integers(2, 5)))]
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers.append(nn.Linear(before, after, bias=bool(random.random() < 0.7)))
        if random.random() < 0.5:
            prune.random_unstructured(layers[-1], "weight", 0.8)
        else:
            layers[-1] = st.SparseLinear.from_dense(layers[-1], 0.8)
        layers += [nn.BatchNorm1d(after)] if random.random() < 0.4 else []
        layers += [(nn.ReLU(), nn.ReLU6(), nn.Hardtanh(0, 2), nn.Dropout())[int(random.integers(4))]]
    layers += [nn.Softmax(1)] if random.random() < 0.3 else []
    module, x = nn.Sequential(*layers), torch.randn(7, widths[0])
    with torch.no_grad():
        module(x)  # of which BatchNorm keeps the mean
    agree(module, x)


@pytest.mark.parametrize(
    ("ours", "module", "shape"),
    [
        (1, linear(64, 50), (5, 3, 64)),
        (2, Called(lambda one, two, x: two(F.gelu(one(x))), linear(64, 128), linear(128, 64)), (5, 64)),
        (2, Called(lambda one, two, x: two(one(F.silu(one(x)))), linear(64, 64), nn.Linear(64, 3)), (5, 64)),
        (1, nn.Sequential(nn.Conv2d(3, 64, 3), st.SparseConv2d.from_dense(nn.Conv2d(64, 50, 1, 2), 0.9)), (3, 3, 9, 8)),
        (1, Called(lambda one, x: F.layer_norm(x + one(F.relu(x)), (64,)), linear(64, 64)), (4, 7, 64)),
    ],
)
def test_sparse_layers_are_exported_with_their_weights(ours, module, shape):
    agree(module, torch.randn(shape), ours=ours, threads=2)


def test_a_sparsified_encoder():
    torch.manual_seed(0)
    module = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 128, batch_first=True), 2)
    table = st.sparsify(module, 0.9, min_size=4096, measure=False, quiet=True)
    assert len(table.replaced) == 4
    agree(module, torch.randn(3, 9, 32), ours=4)


def test_several_inputs_and_outputs():
    module = Called(lambda one, x, y: (one(x) + y, one(y)), linear(64, 64))
    agree(module, (torch.randn(5, 64), torch.randn(5, 64)), ours=2)
    agree(nn.Sequential(nn.Embedding(9, 64), linear(64, 20)), torch.randint(0, 9, (4, 6)), ours=1)


def test_a_whole_model(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks")
    import torch_models

    torch.manual_seed(0)
    x, module = torch.randn(3, 3, 64, 64), torch_models.mobilenet()
    with torch.no_grad():
        for _ in range(3):
            module(x)
    st.sparsify(module, 0.9, min_size=32 * 64, measure=False, quiet=True)
    agree(module, x, ours=14, tolerance=1e-4)  # all of 1 x 1, and the last layer


def test_float64_stays():
    module = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)).double()
    agree(module, torch.randn(5, 20).double(), ours=0, tolerance=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    module = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)).to(dtype)
    x = torch.randn(5, 20).to(dtype).float()
    found = spdnn.compile(module)(x)
    assert module[0].weight.dtype == dtype
    with torch.no_grad():
        torch.testing.assert_close(found, module.float()(x))


class Shared(nn.Module):
    """One sparse layer under two names, a masked one, and BatchNorm that is in inference already."""

    def __init__(self):
        super().__init__()
        self.first = self.again = linear(64, 64)
        self.masked, self.norm = nn.Linear(64, 64), nn.BatchNorm1d(64).eval()
        prune.l1_unstructured(self.masked, "weight", 0.9)

    def forward(self, x):
        return self.norm(self.masked(F.gelu(self.again(F.gelu(self.first(x))))))


@pytest.mark.parametrize("fails", [False, True])
def test_a_module_stays_as_it_was(fails, capfd):
    module, x = Shared(), torch.randn(5, 64)
    module(x)  # after which the masked weights have a gradient
    before = {name: one.clone() for name, one in module.state_dict().items()}
    parts, modes = [*module.modules()], [one.training for one in module.modules()]
    level = logging.getLogger("torch").level
    if fails:
        refuses("Shared: it cannot be called with the example", spdnn.compile, module, example=x[:, :5])
    else:
        model = spdnn.compile(module, example=x)
    assert [*module.modules()] == parts
    assert module.first is module.again
    assert [one.training for one in module.modules()] == modes
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    assert logging.getLogger("torch").level == level
    assert capfd.readouterr() == ("", "")
    if not fails:
        with torch.inference_mode():
            wanted = module.eval()(x)
            for one in module.parameters():
                one.zero_()  # the compiled model has a copy
        torch.testing.assert_close(model(x), wanted)
        refuses("x asks for a gradient", model, x.requires_grad_())


def test_what_is_refused():
    refuses("its first layer is no Linear: give an input", spdnn.compile, nn.Conv2d(3, 3, 1))
    refuses("example: a tensor of two inputs or more", spdnn.compile, nn.Linear(3, 3), example=torch.ones(1, 3))
    refuses("Linear: it cannot be called with the example", spdnn.compile, nn.Linear(3, 3), example=torch.ones(2, 4))
    refuses("Sequential: a lazy layer has no weights", spdnn.compile, nn.Sequential(nn.LazyLinear(3)))
    branches = Called(lambda one, x: one(x) if x.sum() > 0 else x, nn.Linear(3, 3))
    refuses("Called: torch.onnx cannot export it", spdnn.compile, branches, example=torch.ones(2, 3))
    convolution, x = nn.Conv2d(3, 3, 1), torch.ones(2, 3, 4, 4)
    refuses("it is no chain of layers: .*Conv", spdnn.compile, convolution, "spgemm", example=x)
    one_size = Called(lambda one, x: one(x) * torch.arange(len(x))[:, None], nn.Linear(6, 4))
    agree(one_size, torch.ones(4, 6), ours=0)
