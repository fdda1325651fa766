"""spdnn.compile(module): PyTorch modules as they are, in inference; what is refused, by the names of all of it."""

import numpy as np
import pytest
import torch
from refusals import refuses
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import spdnn


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
    """The module in inference, its BatchNorms as training left them, half of its 1 x 1 weights pruned."""
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


def agree(ours, theirs):
    assert isinstance(ours, torch.Tensor)
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= 2e-5 * max(1, theirs.abs().max())


@pytest.mark.parametrize("seed", range(16))
def test_chains(seed):
    torch.manual_seed(seed)
    module, x = sequential(seed)
    module = settled(module, x)
    with torch.inference_mode():
        for count in (1, 7):
            agree(spdnn.compile(module)(x[:count]), module(x[:count]))


@pytest.mark.parametrize("threads", [1, 2])
def test_images(threads):
    torch.manual_seed(threads)
    x = torch.randn(5, 3, 20, 17)
    module = settled(Branched(8), x)
    model = spdnn.compile(module, threads=threads, example=x[:2])
    assert "point" in model.sparse
    with torch.inference_mode():
        for count in (1, 5):
            agree(model(x[:count]), module(x[:count]))
        flat = nn.Sequential(module, nn.Flatten(), nn.Linear(5, 3)).eval()
        assert "not all of it can be read" not in repr(spdnn.compile(flat, example=x))
    refuses("x asks for a gradient", model, x.requires_grad_())


def test_a_module_stays_as_it_was():
    module = nn.Sequential(nn.Linear(4, 3), nn.Dropout(), nn.BatchNorm1d(3))
    module[2].eval()
    before = {name: one.clone() for name, one in module.state_dict().items()}
    model = spdnn.compile(module)
    assert [one.training for one in module] == [True, True, False]
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    with torch.no_grad():
        wanted = module.eval()(torch.ones(1, 4))
        module[0].weight.zero_()  # the compiled model has a copy
    agree(model(torch.ones(1, 4)), wanted)


def test_what_is_refused():
    bad = nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3), nn.LayerNorm(3))
    assert refuses("not all of it can be read", spdnn.compile, bad).endswith("'1' (gelu); '3' (layer_norm)")
    refuses("its first layer is no Linear: give an input", spdnn.compile, nn.Conv2d(3, 3, 1))
    refuses("example: a tensor of two inputs or more", spdnn.compile, nn.Linear(3, 3), example=torch.ones(1, 3))
    refuses("example: it is for a torch.nn.Module alone", spdnn.compile, "a.onnx", example=torch.ones(2, 3))
    refuses("Linear: torch.export cannot trace it", spdnn.compile, nn.Linear(3, 3), example=torch.ones(2, 4))
    refuses("runs on the engine cpu", spdnn.compile, Branched(2), "spgemm", example=torch.ones(2, 3, 9, 9))
