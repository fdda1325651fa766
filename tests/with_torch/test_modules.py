"""SparseLinear and SparseConv2d: equal to torch's layers, forward and backward, in all that torch does with modules.

The tolerance of an output is the standard bound of a float32 sum (spdnn/ops/oracle.py), rounded once to the dtype; that
of a gradient is the same, of the sum that it is: over outputs, over the batch. The reference is torch in float64.
"""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

import spdnn.torch as st
from spdnn import ops
from spdnn.core.errors import InputError
from spdnn.ops import oracle

MODULES = 320


def assert_near(got, exact, size, terms):
    """`got` within the bound of a sum of `terms` products of which the absolute values add up to `size`."""
    allowed = oracle.tolerance(size.detach().numpy(), terms, got.detach().numpy().dtype)
    error = np.abs(got.detach().numpy().astype(np.float64) - exact.detach().numpy())
    assert got.shape == exact.shape
    assert (error <= allowed).all(), float((error - allowed).max())


def drawn(seed):
    """A random layer, its dense form in float64, and an input that may be non-contiguous."""
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    torch.set_num_threads(int(random.integers(1, 5)))
    dtype = (torch.float32, torch.float16)[seed % 2]

    def size(most):
        return round(most ** random.random()) if random.random() < 0.9 else int(random.integers(1, most + 1))

    inner, outer, bias = size(3000), size(3000), bool(random.integers(2))
    sparsity = float(random.choice([0.0, 0.5, 0.9, 0.98]))
    if seed % 4 < 2:
        module, batch = nn.Linear(inner, outer, bias), int(random.integers(0, 2) * size(600))
        made = st.SparseLinear.from_dense(module, sparsity).to(dtype)
        x = torch.randn(batch, inner)
        kind = random.integers(4)
        if kind == 1:
            x = torch.randn(inner, batch).t()
        elif kind == 2:
            x = torch.randn(batch, 2 * inner)[:, ::2]
        elif kind == 3:
            x = torch.randn(2, batch, inner)[:, : batch // 2]
    else:
        stride = (int(random.integers(1, 3)), int(random.integers(1, 3)))
        module = nn.Conv2d(inner, outer, 1, stride, bias=bias)
        made = st.SparseConv2d.from_dense(module, sparsity).to(dtype)
        x = torch.randn(int(random.integers(0, 4)), inner, int(random.integers(1, 10)), int(random.integers(1, 10)))
        kind = random.integers(3)
        if kind == 1:
            x = x.to(memory_format=torch.channels_last)
        elif kind == 2:
            x = x.transpose(2, 3)
    return made, made.to_dense().double(), x.to(dtype)


@pytest.mark.parametrize("block", range(16))
def test_random_modules_are_torchs_forward_and_backward(block):
    for seed in range(block, MODULES, 16):
        made, dense, x = drawn(seed)
        x.requires_grad_()
        wide = x.detach().double().requires_grad_()
        y, exact = made(x), dense(wide)
        absolute = copy.deepcopy(dense)
        with torch.no_grad():
            for parameter in absolute.parameters():
                parameter.abs_()
        large = wide.detach().abs().requires_grad_()
        assert_near(y, exact, absolute(large), made.width + 1)

        grown = torch.randn(y.shape).to(y.dtype)
        y.backward(grown)
        exact.backward(grown.double())
        bound = absolute(large)
        absolute.zero_grad()
        bound.backward(grown.double().abs())
        terms = max(1, y.numel() // made.rows)
        assert_near(x.grad, wide.grad, large.grad, made.rows)
        weights = torch.from_numpy(made.matrix().to_dense() != 0).view_as(dense.weight)
        kept = weights.sum() == made.nnz  # a value that became zero in float16 is not found in the dense form
        if kept:
            # A batch of images is summed image by image: each part is rounded to the type of the values.
            parts = len(x) + 1 if isinstance(made, st.SparseConv2d) else 1
            allowed = absolute.weight.grad[weights] * (parts if x.dtype == torch.float16 else 1)
            assert_near(made.values.grad, dense.weight.grad[weights], allowed, terms)
        if made.bias is not None:
            assert_near(made.bias.grad, dense.bias.grad, absolute.bias.grad, terms)


@pytest.fixture
def layer():
    torch.manual_seed(0)
    return st.SparseLinear.from_dense(nn.Linear(40, 30), 0.8)


def test_gradients_of_gradients(layer):
    layer = layer.float()
    dense, x = layer.to_dense(), torch.randn(5, 40)
    found = []
    for module in (layer, dense):
        weight = next(iter(module.parameters()))
        one = x.clone().requires_grad_()
        (first,) = torch.autograd.grad(module(one).pow(3).sum(), one, create_graph=True)
        first.pow(2).sum().backward()
        kept = torch.from_numpy(layer.matrix().to_dense() != 0)
        found.append((one.grad, weight.grad if weight.dim() == 1 else weight.grad[kept]))
    for ours, theirs in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_optimisers_train_it(layer):
    torch.manual_seed(1)
    x, goal = torch.randn(64, 40), torch.randn(64, 30)
    for made in (torch.optim.SGD, torch.optim.AdamW):
        trained = copy.deepcopy(layer)
        optimiser = made(trained.parameters(), lr=0.01)
        losses = []
        for _ in range(20):
            optimiser.zero_grad()
            losses.append((trained(x) - goal).square().mean())
            losses[-1].backward()
            optimiser.step()
        assert losses[-1] < losses[0]
        assert trained.nnz == layer.nnz


def test_copies_and_files_give_the_same(layer, tmp_path):
    x = torch.randn(3, 40)
    torch.save(layer.state_dict(), tmp_path / "layer.pt")
    loaded = st.SparseLinear.from_dense(nn.Linear(40, 30), 0.5)
    parameter = loaded.values
    assert loaded.nnz != layer.nnz
    loaded.load_state_dict(torch.load(tmp_path / "layer.pt", weights_only=True))
    assert loaded.values is parameter
    stream = io.BytesIO()
    torch.save(layer, stream)
    stream.seek(0)
    whole = torch.load(stream, weights_only=False)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), loaded, whole):
        assert torch.equal(other(x), layer(x))
        assert other.values is not layer.values


def test_a_state_with_a_broken_topology_is_refused(layer):
    state = {name: value.clone() for name, value in layer.state_dict().items()}
    state["columns"][0] = 99
    before = layer(torch.ones(1, 40))
    with pytest.raises(RuntimeError, match="row 0 has column 99; a matrix of 40 columns has 0 to 39"):
        layer.load_state_dict(state)
    assert torch.equal(layer(torch.ones(1, 40)), before)


def in_inference_mode(tensor, new):
    with torch.inference_mode():
        tensor.copy_(new)


def through_numpy(tensor, new):
    tensor.numpy()[:] = new.numpy()


def through_dlpack(tensor, new):
    torch.from_dlpack(tensor).numpy()[:] = new.numpy()


WRITES = {
    "itself": lambda tensor, new: tensor.copy_(new),
    "inference mode": in_inference_mode,
    "data": lambda tensor, new: tensor.data.copy_(new),
    "other data": lambda tensor, new: setattr(tensor, "data", new.clone()),
    "NumPy": through_numpy,
    "DLPack": through_dlpack,
    "storage": lambda tensor, new: tensor.untyped_storage().copy_(new.untyped_storage()),
    "parts": lambda tensor, new: [tensor[k : k + 1].data.copy_(new[k : k + 1]) for k in range(len(new))],
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_positions_that_change_in_place_are_seen(layer, write, inference):
    with torch.inference_mode(inference):
        x = torch.randn(4, 40)
        layer = copy.deepcopy(layer)  # its tensors are of inference mode too
        layer(x), layer.matrix(), layer.to_dense()
        other = st.SparseLinear.from_dense(nn.Linear(40, 30), 0.8)
        layer.values.data.copy_(other.values)
        layer.bias.data.copy_(other.bias)
        WRITES[write](layer.offsets, other.offsets)
        WRITES[write](layer.columns, other.columns)
        assert torch.equal(layer(x), other(x))
        assert (layer.matrix().to_dense() == other.matrix().to_dense()).all()
        assert torch.equal(layer.to_dense().weight, other.to_dense().weight)


@pytest.mark.parametrize("write", [in_inference_mode, through_numpy])
def test_positions_that_become_wrong_in_place_are_refused(layer, write):
    x = torch.randn(4, 40)
    layer(x)
    write(layer.columns, torch.full_like(layer.columns, 40))
    for use in (lambda: layer(x), layer.matrix, layer.to_dense):
        with pytest.raises(InputError, match="row 0 has column"):
            use()


def test_half_and_back(layer):
    x = torch.randn(6, 40)
    exact = layer.to_dense()(x)
    torch.testing.assert_close(layer.half()(x.half()).float(), exact, rtol=1e-2, atol=1e-2)
    assert layer.float()(x).dtype == torch.float32


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compiled_it_is_one_graph(layer, backend):
    torch.compiler.reset()
    x = torch.randn(6, 40, requires_grad=True)
    model = nn.Sequential(layer, nn.ReLU(), st.SparseLinear.from_dense(nn.Linear(30, 5), 0.5))
    compiled = torch.compile(model, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(x), model(x))
    gradients = [torch.autograd.grad(one(x).square().sum(), [x, *model.parameters()]) for one in (compiled, model)]
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_exported_it_is_the_same_function(layer, tmp_path):
    rows = torch.export.Dim("rows", min=2, max=600)
    program = torch.export.export(layer, (torch.randn(4, 40),), dynamic_shapes=({0: rows},))
    torch.export.save(program, tmp_path / "layer.pt2")
    x = torch.randn(17, 40)
    assert torch.equal(torch.export.load(tmp_path / "layer.pt2").module()(x), layer(x))


def test_functional_call_takes_other_parameters(layer):
    x, values = torch.randn(3, 40), torch.randn(layer.nnz, requires_grad=True)
    y = torch.func.functional_call(layer, {"values": values}, (x,))
    y.sum().backward()
    assert values.grad.abs().sum() > 0
    assert layer.values.grad is None


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_no_gradient_is_lost_silently(layer):
    x = torch.randn(3, 40)
    torch.library.opcheck(
        torch.ops.spdnn.product,
        (x.requires_grad_(), layer.values, layer.offsets, layer.columns, 40, layer.bias, False, True),
    )
    x = x.detach()
    with pytest.raises(InputError, match="no forward-mode derivatives"):
        torch.func.jvp(layer, (x,), (x,))
    assert torch.equal(torch.vmap(layer)(torch.stack([x, 2 * x]))[0], layer(x))
    A, tensor = layer.matrix(), torch.randn(40, 2, requires_grad=True)
    calls = {
        "B": lambda: ops.spmm(A, tensor),
        "X": lambda: ops.linear(tensor.t().contiguous(), A),
        "Q": lambda: ops.sddmm(A, torch.randn(30, 2).requires_grad_(), tensor),
        "K": lambda: ops.attention(A, torch.randn(30, 2), tensor, tensor),
        "dC": lambda: ops.spmm_gradients(A, tensor.detach(), torch.randn(30, 2).requires_grad_()),
        "bias": lambda: ops.spmm(A, tensor.detach(), torch.zeros(30, requires_grad=True)),
        "values": lambda: A.with_values(layer.values),
        "weights": lambda: ops.depthwise_conv(torch.randn(1, 2, 4, 4), torch.randn(2, 3, 3).requires_grad_()),
        "out": lambda: ops.spmm(A, tensor.detach(), out=torch.zeros(30, 2, requires_grad=True)),
    }
    for name, call in calls.items():
        with pytest.raises(InputError, match=f"^{name} is a torch tensor that requires grad, and spdnn.ops has no"):
            call()
        with torch.no_grad():
            call()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(InputError, match="B is a torch tensor that requires"):
        ops.spmm(A, torch.autograd.forward_ad.make_dual(tensor.detach(), tensor.detach()))


def test_nan_stays_nan_as_in_torch(layer):
    x = torch.randn(3, 40)
    x[1] = torch.nan
    assert layer(x).isnan().any(1).tolist() == [False, True, False]


def test_torchs_masks_are_taken():
    torch.manual_seed(0)
    module = nn.Linear(50, 20)
    prune.l1_unstructured(module, "weight", 0.7)
    with torch.no_grad():
        module.weight_orig[module.weight_mask.bool().nonzero()[0].tolist()[0]] = 0.0  # zeros that are not masked stay
    made, x = st.SparseLinear.from_dense(module), torch.randn(4, 50)
    assert made.nnz == int(module.weight_mask.sum())
    torch.testing.assert_close(made(x), module(x))
    assert st.SparseLinear.from_dense(module, 0.9).nnz == 100
    module.weight_orig.requires_grad_(False)
    assert not st.SparseLinear.from_dense(module).values.requires_grad


class Centred(nn.Module):
    def forward(self, weight):
        return (weight - weight.mean()) * (weight != 0)


def few(make=nn.Linear, *shape):
    layer = make(40, 30, *shape)
    layer.weight.data.mul_(torch.rand(layer.weight.shape) < 0.5)
    layer.weight.data[:, 0] = 1  # no row is without weights
    return layer


def several_masks(layer):
    prune.l1_unstructured(layer, "weight", 0.2)
    prune.random_unstructured(layer, "weight", 0.3)
    prune.random_unstructured(layer, "bias", 0.5)
    layer.weight_orig.data.add_(1)  # as a step of an optimiser does, after the last call
    layer.bias_orig.data.add_(1)
    return layer


def soft_mask(layer):
    return prune.custom_from_mask(layer, "weight", (torch.rand(layer.weight.shape) > 0.5) * 0.25)


def masked_direction(layer):
    prune.random_unstructured(old_norm(layer), "weight_v", 0.2)
    return layer


def centred(layer):
    return parametrize.register_parametrization(layer, "weight", Centred())


def positive_bias(layer):
    return parametrize.register_parametrization(layer, "bias", nn.Softplus())


def old_norm(layer):
    nn.utils.weight_norm(layer).weight_g.data.mul_(2)
    return layer


MADE = [
    several_masks, soft_mask, masked_direction, centred, positive_bias, old_norm, nn.utils.spectral_norm,
    parametrizations.spectral_norm, parametrizations.weight_norm,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", MADE)
def test_a_layer_is_made_of_what_a_call_in_evaluation_computes(make, training):
    torch.manual_seed(0)
    for dense, sparse, x in (
        (few(), st.SparseLinear, torch.randn(4, 40)),
        (few(nn.Conv2d, 1), st.SparseConv2d, torch.randn(2, 40, 3, 3)),
    ):
        dense = make(dense).train(training)
        state = {name: tensor.clone() for name, tensor in dense.state_dict().items()}
        made = sparse.from_dense(dense)
        assert made.training == training
        assert made.values.requires_grad
        assert all(torch.equal(tensor, state[name]) for name, tensor in dense.state_dict().items())
        torch.testing.assert_close(made.eval()(x), dense.eval()(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", ["csr", "csc", "coo", "bsr", "bsc"])
@pytest.mark.filterwarnings("ignore:Sparse")
def test_sparse_tensors_of_torch_are_read(layout):
    torch.manual_seed(0)
    dense, x = few(), torch.randn(4, 40)
    expected = dense(x)
    blocks = ((2, 4),) if layout.startswith("bs") else ()
    convert = getattr(dense.weight.detach(), "to_sparse" if layout == "coo" else f"to_sparse_{layout}")
    dense.weight = nn.Parameter(convert(*blocks), requires_grad=False)
    made = st.SparseLinear.from_dense(dense)
    torch.testing.assert_close(made(x), expected)
    assert made.nnz < 0.6 * 1200
    assert not made.values.requires_grad


def doubled(layer, x):
    return (2 * x[0],)


def replaced(layer):
    layer.forward = lambda x: x


class Doubling(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.filterwarnings("ignore:.*quantize_per_tensor")
@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda layer: layer.register_forward_pre_hook(doubled), "it has hooks, which would be lost"),
        (lambda layer: layer.register_forward_hook(lambda *_: None), "it has hooks, which would be lost"),
        (replaced, "its forward is not that of Linear"),
        (lambda layer: setattr(layer, "__class__", Doubling), "its forward is not that of Linear"),
        (lambda layer: layer.to("meta"), "its weights are on the device meta, without data"),
        (
            lambda layer: setattr(
                layer, "weight", nn.Parameter(torch.masked.masked_tensor(layer.weight.data, layer.weight.data > 0))
            ),
            "its weights are a MaskedTensor; they must be a plain torch tensor",
        ),
        (
            lambda layer: setattr(
                layer, "weight", nn.Parameter(torch.quantize_per_tensor(layer.weight.data, 1, 0, torch.qint8), False)
            ),
            "its weights are of torch.qint8; they must be float32 or float16",
        ),
    ],
)
def test_layers_that_compute_something_else_are_refused(change, sentence):
    layer = nn.Linear(4, 4)
    change(layer)
    with pytest.raises(InputError, match=sentence):
        st.SparseLinear.from_dense(layer)
    table = st.sparsify(nn.Sequential(layer), min_size=0, measure=False, quiet=True)
    assert not table.replaced
    assert table[0].reason in (sentence, "a Doubling may mean more than its base class")


@pytest.mark.parametrize("kind", [st.SparseLinear, st.SparseConv2d])
def test_its_weight_is_read_as_a_dense_one(kind):
    torch.manual_seed(0)
    made = kind(torch.randn(30, 40) * (torch.rand(30, 40) < 0.2))
    dense = made.to_dense().weight
    assert isinstance(made.weight, torch.Tensor)
    for name in ("shape", "dtype", "device", "requires_grad"):
        assert getattr(made.weight, name) == getattr(dense, name)
    assert torch.equal(made.weight, dense)
    assert type(made.weight * 2) is torch.Tensor
    (made.weight.flatten(1) @ torch.arange(40.0)).square().sum().backward()
    (dense.flatten(1) @ torch.arange(40.0)).square().sum().backward()
    rows = torch.repeat_interleave(made.offsets.diff())
    torch.testing.assert_close(made.values.grad, dense.grad.flatten(1)[rows, made.columns.long()])
    assert [name for name, _ in made.named_parameters()] == ["values"]
    assert torch.equal(copy.deepcopy(made).weight, dense)


@pytest.mark.parametrize(
    "write",
    [
        lambda weight: weight.mul_(2),
        lambda weight: weight.data.clamp_(0),
        lambda weight: weight.detach()[0].zero_(),
        lambda weight: weight.data.t().fill_(1),
        lambda weight: weight.__setitem__(0, 1.0),
        lambda weight: weight.__iadd__(1),
        lambda weight: setattr(weight, "data", torch.zeros(30, 40)),
        lambda weight: nn.init.xavier_uniform_(weight),
        lambda weight: torch.add(weight, 1, out=weight),
        lambda weight: nn.functional.relu(weight, inplace=True),
        lambda weight: weight.unbind()[0].zero_(),
        lambda weight: weight.data_ptr(),
        lambda weight: weight.requires_grad_(False),
    ],
)
@pytest.mark.parametrize("gradients", [False, True])
def test_its_weight_cannot_be_written(layer, write, gradients):
    with (
        torch.set_grad_enabled(gradients),
        pytest.raises(InputError, match="the weight of a sparse layer can only be read"),
    ):
        write(layer.weight)
    with pytest.raises(ValueError, match="read-only"):
        layer.weight.detach().numpy()[0] = 1


class Looking(nn.Module):
    """Casts to the type of a weight, as T5 does, and uses the weight itself."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        x = x.to(self.layer.weight.dtype) if isinstance(self.layer.weight, torch.Tensor) else x
        return self.layer(x) + nn.functional.linear(x, self.layer.weight)


def test_models_that_read_its_weight_are_compiled_and_exported(layer):
    torch.compiler.reset()
    model, x = Looking(layer), torch.randn(4, 40)
    expected = layer(x) + x @ layer.to_dense().weight.t()
    torch.testing.assert_close(model(x), expected)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), expected)
    torch.testing.assert_close(torch.export.export(model, (x,)).module()(x), expected)
    values = 2 * layer.values.detach()
    double = torch.func.functional_call(model, {"layer.values": values}, (x,))
    torch.testing.assert_close(double - layer.bias, 2 * (expected - layer.bias))


def test_a_sparse_weight_is_a_layer():
    dense = torch.randn(6, 9) * (torch.rand(6, 9) < 0.4)
    x = torch.randn(2, 9)
    for weight in (dense, dense.to_sparse_csr(), dense.to_sparse_coo(), ops.SparseMatrix.from_torch(dense)):
        torch.testing.assert_close(st.SparseLinear(weight, torch.ones(6))(x), x @ dense.t() + 1)


def test_autocast_computes_in_the_weights_type(layer):
    x = torch.randn(3, 40)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(layer(x.bfloat16()), layer(x.bfloat16().float()))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda s: s(torch.randn(3, 41)), r"the input has shape \(3, 41\); its last size must be 40"),
        (lambda s: s(torch.randn(3, 40).bfloat16()), "the input is of torch.bfloat16, and the sparse weights"),
        (lambda s: s.bfloat16()(torch.randn(3, 40).bfloat16()), "are of torch.bfloat16; they must be float32 or"),
        (lambda s: s.double()(torch.randn(3, 40).double()), "are of torch.float64; they must be float32 or"),
        (lambda s: st.SparseLinear.from_dense(nn.ReLU()), "ReLU is no torch.nn.Linear"),
        (lambda s: st.SparseLinear.from_dense(nn.Linear(3, 4), 1.0), "sparsity 1.0: it must be a number from 0 to"),
        (lambda s: st.SparseLinear(np.ones((3, 4))), "the weight is a ndarray; it must be a SparseMatrix or a torch"),
        (lambda s: st.SparseLinear(torch.ones(3, 4), torch.ones(4)), r"bias has shape \(4,\); it must be \(3,\)"),
        (lambda s: st.SparseConv2d.from_dense(nn.Conv2d(3, 4, 3)), "this convolution has kernels of 3 x 3"),
        (lambda s: st.SparseConv2d.from_dense(nn.Conv2d(4, 4, 1, groups=2)), "this convolution has 2 groups"),
        (lambda s: st.SparseConv2d(torch.ones(3, 4))(torch.ones(4, 4)), r"has shape \(4, 4\); it must be \(images, 4"),
    ],
)
def test_one_sentence(layer, call, sentence):
    with pytest.raises(InputError, match=sentence):
        call(layer)
