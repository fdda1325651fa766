"""Batch normalisations folded into convolutions: the same function, and nothing that must not change changes."""

import copy

import pytest
import torch
from torch import nn

import spdnn.torch as st
from spdnn.core.errors import InputError


def trained(model):
    """Statistics and scales as training leaves them."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d) and module.track_running_stats:
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            if module.affine:
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
    return model.eval()


class Residual(nn.Module):
    """Layers by name, called in forward, with a sum around them."""

    def __init__(self, bias=False):
        super().__init__()
        self.first, self.norm = st.SparseConv2d.from_dense(nn.Conv2d(6, 6, 1, bias=bias), 0.5), nn.BatchNorm2d(6)
        self.wide = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=bias)
        self.last = nn.BatchNorm2d(6, affine=bias)

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x)))
        return x + self.last(self.wide(y))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_it_is_the_same_function(bias, layout):
    torch.manual_seed(0)
    model = trained(nn.Sequential(Residual(bias), nn.ReLU6(), Residual(bias))).to(memory_format=layout)
    x = torch.randn(2, 6, 5, 7).to(memory_format=layout)
    whole = copy.deepcopy(model)
    assert st.fuse(model) == ["0.norm", "0.last", "2.norm", "2.last"]
    assert isinstance(model[0].norm, nn.Identity)
    torch.testing.assert_close(model(x), whole(x), rtol=1e-4, atol=1e-4)
    assert model[0].first.bias.requires_grad
    assert st.fuse(model) == []


def test_what_is_shared_called_twice_hooked_or_used_elsewhere_stays():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.twice, self.used, self.masked = (nn.Conv2d(4, 4, 1) for _ in range(3))
            self.tied, self.other = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
            self.other.weight = self.tied.weight
            self.norms = nn.ModuleList([nn.BatchNorm2d(4) for _ in range(5)])
            self.batch = nn.BatchNorm2d(4, track_running_stats=False)
            nn.utils.prune.l1_unstructured(self.masked, "weight", 0.5)

        def forward(self, x):
            x = self.norms[0](self.twice(x)) + self.norms[1](self.twice(x))
            y = self.used(x)
            x = self.norms[2](y) + y
            x = self.norms[3](self.masked(x)) + self.norms[4](self.tied(x))
            return self.batch(self.other(x))

    model, x = trained(Odd()), torch.randn(2, 4, 3, 3)
    before = model(x)
    assert st.fuse(model) == []
    assert torch.equal(model(x), before)


class Pair(nn.Module):
    def __init__(self, conv=None):
        super().__init__()
        self.conv, self.norm = conv or nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)
        self.hold()

    def hold(self):
        """What a model holds besides its layers."""

    def forward(self, x):
        return self.norm(self.conv(x))


class AnotherName(Pair):
    def hold(self):
        self.filters = self.conv.weight

    def forward(self, x):
        return super().forward(x) + self.filters.sum()


class ViewInAList(Pair):
    def hold(self):
        self.views = [self.conv.weight.detach()[2:4]]

    def forward(self, x):
        return super().forward(x) + self.views[0].sum()


class Statistics(Pair):
    def forward(self, x):
        return super().forward(x) + self.norm.running_mean.sqrt().nan_to_num().sum()


class TypeOfNorm(Pair):
    def forward(self, x):
        return super().forward(x.to(self.norm.weight.dtype))


class FirstParameter(Pair):
    def forward(self, x):
        return super().forward(x) * next(self.conv.parameters()).data.norm()


class AllParameters(Pair):
    def forward(self, x):
        return super().forward(x) + self.norm.state_dict()["bias"][:, None, None]


class Replaced(Pair):
    def hold(self):
        self.conv.forward = lambda x: x * self.conv.weight[:, 0]


KINDS = [AnotherName, Statistics, TypeOfNorm, FirstParameter, AllParameters, Replaced]


@pytest.mark.parametrize(
    ("kind", "sparse"), [*((kind, sparse) for kind in KINDS for sparse in (0, 1)), (ViewInAList, 0)]
)
def test_layers_whose_weights_are_held_or_read_elsewhere_stay(kind, sparse):
    torch.manual_seed(0)
    conv = st.SparseConv2d.from_dense(nn.Conv2d(8, 8, 1), 0.5) if sparse else None
    model, x = trained(kind(conv)), torch.randn(2, 8, 3, 3)
    before = model(x)
    assert st.fuse(model) == []
    assert torch.equal(model(x), before)


class Types(Pair):
    """Looks at the type of a weight, which stays the same."""

    def forward(self, x):
        return super().forward(x.to(self.conv.weight.dtype))


def test_weights_that_share_one_memory_or_are_asked_for_their_type_are_folded():
    torch.manual_seed(0)
    model, x = trained(Types()), torch.randn(2, 8, 3, 3)
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(model.parameters()), model.parameters())
    before = model(x)
    assert st.fuse(model) == ["norm"]
    torch.testing.assert_close(model(x), before, rtol=1e-4, atol=1e-4)


def test_models_in_training_and_those_that_branch_on_values_are_refused():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(InputError, match=r"the model is in training.*; call eval\(\) first"):
        st.fuse(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)))
    with pytest.raises(InputError, match=r"the model cannot be traced by torch.fx \(symbolically traced variables"):
        st.fuse(Branching().eval())
