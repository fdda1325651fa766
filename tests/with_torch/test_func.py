"""Sparse layers within torch.func's transforms: the derivatives of the dense layers, of every order."""

import pytest
import torch
from refusals import refuses
from torch import nn
from torch.func import functional_call, grad, hessian, jacrev, jvp, vjp, vmap

import spdnn.torch as st

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop")


@pytest.fixture
def pairs():
    """(sparse layer, the dense one, an input)."""
    torch.manual_seed(0)
    linear = st.SparseLinear.from_dense(nn.Linear(9, 7), 0.6)
    convolution = st.SparseConv2d.from_dense(nn.Conv2d(6, 5, 1, 2), 0.5)
    last = torch.randn(2, 6, 4, 3).to(memory_format=torch.channels_last)
    return [(linear, linear.to_dense(), torch.randn(4, 9)), (convolution, convolution.to_dense(), last)]


def cubes(layer):
    return lambda x: layer(x).pow(3).sum()


TRANSFORMS = {
    "grad": lambda layer, x: grad(cubes(layer))(x),
    "vjp": lambda layer, x: vjp(layer, x)[1](torch.ones_like(layer(x)))[0],
    "jacrev": lambda layer, x: jacrev(layer)(x),
    "vmap": lambda layer, x: vmap(layer, out_dims=1)(torch.stack([x, 2 * x])),
    "vmap of vjp": lambda layer, x: vmap(lambda y: vjp(layer, x)[1](y)[0])(torch.stack(3 * [layer(x)])),
    "vmap of grad": lambda layer, x: vmap(grad(cubes(layer)))(torch.stack([x, 2 * x])),
    "bias of each sample": lambda layer, x: vmap(
        grad(lambda bias, one: functional_call(layer, {"bias": bias}, (one[None],)).pow(3).sum()), (None, 0)
    )(layer.bias.detach(), x),
    "second order": lambda layer, x: jacrev(jacrev(cubes(layer)))(x[:1]),
    "third order": lambda layer, x: grad(lambda v: grad(lambda u: grad(cubes(layer))(u).sum())(v).sum())(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_derivatives_are_those_of_the_dense_layer(pairs, name):
    for sparse, dense, x in pairs:
        torch.testing.assert_close(
            TRANSFORMS[name](sparse, x), TRANSFORMS[name](dense, x), rtol=1e-4, atol=1e-4, check_stride=False
        )


def test_gradients_of_values_for_each_sample(pairs):
    for sparse, dense, x in pairs:
        kept = torch.from_numpy(sparse.matrix().to_dense() != 0)
        found, wanted = (
            vmap(
                grad(
                    lambda p, one, layer=layer, name=name: functional_call(layer, {name: p}, (one[None],)).sin().sum()
                ),
                (None, 0),
            )(getattr(layer, name).detach(), x)
            for layer, name in ((sparse, "values"), (dense, "weight"))
        )
        torch.testing.assert_close(found, wanted.flatten(2)[:, kept])


def test_attention():
    mask = torch.rand(5, 6, generator=torch.Generator().manual_seed(0)) < 0.6
    q, k, v = torch.randn(3, 5, 4), torch.randn(3, 6, 4), torch.randn(3, 6, 2)

    def dense(q, k, v):
        scores = (q @ k.transpose(-1, -2) / 2).masked_fill(~mask, -torch.inf)
        return scores.softmax(-1).nan_to_num() @ v

    def squares(attend):
        return lambda *one: attend(*one).square().sum()

    def again(loss):
        gradients = grad(loss, (0, 1, 2))
        return lambda *one: sum(part.square().sum() for part in gradients(*one))

    for made in (squares, lambda attend: again(squares(attend))):
        found, wanted = (vmap(grad(made(attend), (0, 1, 2)))(q, k, v) for attend in (st.SparseAttention(mask), dense))
        torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-3)


def test_what_has_no_derivative_is_said(pairs):
    for layer, _, x in pairs:
        refuses("no forward-mode derivatives", jvp, layer, (x,), (x,))
        refuses("no forward-mode derivatives", hessian(cubes(layer)), x)
