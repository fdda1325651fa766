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


def test_models_in_training_and_those_that_branch_on_values_are_refused():
    class Branching(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(InputError, match=r"the model is in training.*; call eval\(\) first"):
        st.fuse(nn.Sequential(nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)))
    with pytest.raises(InputError, match=r"the model cannot be traced by torch.fx \(symbolically traced variables"):
        st.fuse(Branching().eval())
