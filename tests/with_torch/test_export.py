"""spdnn.compile(module): PyTorch modules as they are, in inference."""

import numpy as np
import pytest
import torch
from refusals import refuses
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import spdnn
import spdnn.torch as st


class Branched(nn.Module):
    """What no Sequential holds: a branch that is added, functions, constants, a mean over all places."""

    def __init__(self, channels):
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.each = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.point = nn.Conv2d(channels, channels, 1)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.head = nn.Linear(channels, 5)
        self.act = nn.ReLU6(inplace=True)

    def forward(self, x):
        x = (x - 0.5) / torch.tensor([0.5, 1.0, 2.0]).view(1, 3, 1, 1)
        x = self.act(self.norm(self.stem(x)))
        x = F.relu(x + self.point(F.relu(self.each(x))))
        x = F.avg_pool2d(self.pool(x), 2, padding=1)
        return F.log_softmax(self.head(x.mean((2, 3))), -1)


def settled(module, x):
    """The module in inference, its BatchNorms as training left them, its 1 x 1 weights pruned to 80 %."""
    with torch.no_grad():
        for _ in range(3):
            module.train()(x + torch.rand(()))
    for one in module.modules():
        if isinstance(one, nn.Linear) or (isinstance(one, nn.Conv2d) and one.kernel_size == (1, 1)):
            prune.random_unstructured(one, "weight", 0.8)
    return module.eval()


def sequential(seed):
    """A random chain, and its inputs."""
    random = np.random.default_rng(seed)
    widths = [int(width) for width in random.integers(1, 200, int(random.integers(2, 5)))]
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers.append(nn.Linear(before, after, bias=bool(random.random() < 0.7)))
        layers += [nn.BatchNorm1d(after)] if random.random() < 0.4 else []
        layers += [(nn.ReLU(), nn.ReLU6(), nn.Hardtanh(0, 2), nn.Dropout())[int(random.integers(4))]]
    layers += [nn.Softmax(1)] if random.random() < 0.3 else []
    return nn.Sequential(*layers), torch.from_numpy(random.standard_normal((7, widths[0])).astype(np.float32))


def agree(ours, theirs, tolerance=2e-5):
    assert isinstance(ours, torch.Tensor)
    assert ours.dtype == torch.float32
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= tolerance * max(1, theirs.abs().max())


@pytest.mark.parametrize("seed", range(16))
def test_chains(seed):
    torch.manual_seed(seed)
    module, x = sequential(seed)
    module = settled(module, x)
    with torch.inference_mode():
        for count in (1, 7):
            agree(spdnn.compile(module)(x[:count]), module(x[:count]))


@pytest.mark.parametrize("threads", [1, 2])
def test_images(threads, monkeypatch):
    monkeypatch.setenv("SPDNN_TUNING", "off")  # all products with few nonzeros are ours
    torch.manual_seed(threads)
    x = torch.randn(5, 3, 20, 17)
    module = settled(Branched(64), x)
    model = spdnn.compile(module, threads=threads, example=x[:2])
    assert "1 of 1" in repr(model)
    with torch.inference_mode():
        for count in (1, 5):
            agree(model(x[:count]), module(x[:count]))
    refuses("x asks for a gradient", model, x.requires_grad_())


@pytest.mark.parametrize("name", ["mobilenet", "resnet50"])
def test_whole_models(name, root, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks")
    import torch_models

    torch.manual_seed(0)
    x = torch.randn(3, 3, 64, 64)
    module = settled(getattr(torch_models, name)(), x)
    model = spdnn.compile(module, example=x[:2])
    count = {"mobilenet": 14, "resnet50": 37}[name]
    assert f"of {count} pruned products" in repr(model)  # all of 1 x 1, and the last layer
    with torch.inference_mode():
        for count in (1, 3):
            logits = module(x[:count])
            agree(model(x[:count]), logits, 1e-4)
            assert (model(x[:count]).argmax(1) == logits.argmax(1)).all()


class Called(nn.Module):
    """What `does` makes of a layer, or of layers, and of x."""

    def __init__(self, does, *layers):
        super().__init__()
        self.does, self.layers = does, nn.ModuleList(layers)

    def forward(self, x):
        return self.does(*self.layers, x)


@pytest.mark.parametrize(
    "module",
    [
        Called(lambda one, x: 1 - one(x).mean((-1, -2)) / 3, nn.Conv2d(3, 4, (4, 2), padding="same")),
        Called(lambda one, x: F.adaptive_max_pool2d(one(x), 1).squeeze(), nn.Conv2d(3, 4, 3, padding="valid")),
        Called(lambda one, x: x + F.relu6(one(x)), nn.Conv2d(3, 3, 1)),
        Called(lambda one, x: F.avg_pool2d(one(x), 3, 2, 1, count_include_pad=False), nn.Conv2d(3, 3, 1)),
        Called(lambda one, x: torch.addmm(torch.ones(4), x.flatten(1), one.weight.t()), nn.Linear(270, 4)),
        Called(lambda one, x: one(x.view(x.size(0), -1)).clamp(0.0, 0.5), nn.Linear(270, 4)),
        Called(lambda one, two, x: two(one(x).add_(1).flatten(1)).softmax(-1), nn.Conv2d(3, 1, 1), nn.Linear(90, 4)),
        nn.Sequential(nn.Conv2d(3, 8, 3), st.SparseConv2d.from_dense(nn.Conv2d(8, 5, 1, 2), 0.8)),
        nn.Sequential(nn.Flatten(), st.SparseLinear.from_dense(nn.Linear(270, 9), 0.8), nn.Dropout(), nn.ReLU()),
    ],
)
def test_what_modules_say_in_other_ways(module):
    x = torch.randn(4, 3, 10, 9)
    model = spdnn.compile(module, example=x)
    with torch.inference_mode():
        for count in (4, 2):
            agree(model(x[:count]), module.eval()(x[:count]))


def test_several_inputs_and_outputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Linear(64, 64)

        def forward(self, x, y):
            return self.one(x) + y, x.sum(1)

    module, given = Two(), (torch.randn(3, 64), torch.randn(3, 64))
    prune.l1_unstructured(module.one, "weight", 0.9)
    model = spdnn.compile(module, example=given)
    assert "of 1 pruned product" in repr(model)
    with torch.no_grad():
        for found, wanted in zip(model(*given), module(*given), strict=True):
            agree(found, wanted)


def test_a_transformer():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    for one in (layer.linear1, layer.linear2):
        prune.l1_unstructured(one, "weight", 0.9)
    x = torch.randn(4, 9, 64)
    model = spdnn.compile(layer, example=x)
    assert "of 2 pruned products" in repr(model)
    with torch.no_grad():
        agree(model(x[:3]), layer.eval()(x[:3]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 4)).to(dtype)
    with torch.no_grad():
        x = torch.randn(5, 20).to(dtype)
        agree(spdnn.compile(module)(x.float()), module.float()(x.float()))


@pytest.mark.parametrize("image", [False, True])
def test_a_module_stays_as_it_was(image):
    first = nn.Conv2d(4, 3, 1) if image else nn.Linear(4, 3)
    module = nn.Sequential(first, nn.Dropout(), nn.BatchNorm2d(3) if image else nn.BatchNorm1d(3), nn.Identity(), first)
    module[4] = nn.Conv2d(3, 3, 1) if image else st.SparseLinear.from_dense(nn.Linear(3, 3), 0.5)
    module[2].eval()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    x = torch.ones(2, 4, 1, 1) if image else torch.ones(2, 4)
    model = spdnn.compile(module, example=x if image else None)
    assert [one.training for one in module] == [True, True, False, True, True]
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    with torch.no_grad():
        wanted = module.eval()(x)
        for one in module.parameters():
            one.zero_()  # the compiled model has a copy
    agree(model(x), wanted)


def test_what_is_refused():
    refuses("its first layer is no Linear: give an input", spdnn.compile, nn.Conv2d(3, 3, 1))
    refuses("example: a tensor of two inputs or more", spdnn.compile, nn.Linear(3, 3), example=torch.ones(1, 3))
    refuses("Linear: torch.onnx cannot export it", spdnn.compile, nn.Linear(3, 3), example=torch.ones(2, 4))
    refuses("it is no chain of layers", spdnn.compile, Branched(2), "spgemm", example=torch.ones(2, 3, 9, 9))
    ranged = Called(lambda one, x: one(x) * torch.arange(len(x)), nn.Linear(6, 4))
    refuses("torch.onnx cannot export it for any number of inputs", spdnn.compile, ranged, example=torch.ones(4, 6))
