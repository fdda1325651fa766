"""sparsify and restore: what is replaced, what is left and why; attention beside torch's own."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import spdnn
import spdnn.torch as st
from spdnn import ops
from spdnn.core.errors import InputError
from spdnn.ops.torch import models as module


@pytest.fixture(autouse=True)
def unmeasured(monkeypatch):
    monkeypatch.setattr(module, "_measured", {})


def times(monkeypatch, dense, sparse):
    monkeypatch.setattr(module, "_beside", lambda *_: (dense, sparse))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.stem = nn.Conv2d(3, 64, 3, padding=1)
        self.point = nn.Conv2d(64, 64, 1, stride=2)
        self.group = nn.Conv2d(64, 64, 1, groups=2)
        self.body = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64))
        self.again = self.body[0]
        self.tied = nn.Linear(64, 100, bias=False)
        self.embedding = nn.Embedding(100, 64)
        self.embedding.weight = self.tied.weight
        self.hooked = nn.Linear(64, 256)
        self.hooked.register_forward_hook(lambda *_: None)
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = self.group(self.point(self.stem(x))).mean((2, 3))
        return self.head(self.body(x) + self.again(x)[:, :64])


def test_what_gains_is_replaced_and_the_rest_has_a_reason(monkeypatch, capsys):
    times(monkeypatch, 3e-3, 1e-3)
    model, x = Model(), torch.randn(2, 3, 8, 8)
    table = st.sparsify(model, 0.9, min_size=1000, exclude=["body.2"], inputs=x)
    reasons = {row.name: row.reason for row in table}
    assert reasons == {
        "stem": "has kernels of 3 x 3",
        "point": "3.00 times as fast",
        "group": "has 2 groups",
        "body.0": "3.00 times as fast",
        "body.2": "excluded",
        "again": "the same layer under another name",
        "tied": "its parameters are shared with a Embedding",
        "hooked": "it has hooks, which would be lost",
        "head": "640 weights; min_size is 1,000",
    }
    assert table.replaced == ["point", "body.0", "again"]
    assert model.again is model.body[0]
    assert str(table) in capsys.readouterr().out
    assert "point   Conv2d  64 x 64   90.0%     replaced  3.000     1.000      3.00 times as fast" in str(table)
    assert model(x).shape == (2, 10)
    assert model.training


def test_what_does_not_gain_stays_as_it_was(monkeypatch):
    times(monkeypatch, 1e-3, 2e-3)
    model = Model()
    before = copy.deepcopy(model.state_dict())
    table = st.sparsify(model, 0.9, min_size=1000, quiet=True)
    assert not table.replaced
    assert {row.reason for row in table if row.name in ("point", "body.0")} == {"dense is 2.00 times as fast"}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_layers_alike_are_measured_once_on_the_shapes_that_they_get(monkeypatch):
    shapes = []

    def beside(dense, sparse, wait):
        shapes.append(tuple(sparse().shape))
        assert sparse().shape == dense().shape
        return 2.0, 1.0

    monkeypatch.setattr(module, "_beside", beside)
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 32))
    st.sparsify(model, 0.5, min_size=0, inputs=torch.randn(7, 64), quiet=True)
    assert shapes == [(7, 64), (7, 32)]


def test_both_forms_are_timed():
    model = nn.Sequential(nn.Linear(300, 300), nn.ReLU())
    (row,) = st.sparsify(model, 0.9, quiet=True)
    assert row.dense > 0
    assert row.sparse > 0
    assert row.replaced == (row.dense > row.sparse)


def test_a_model_without_zeros_is_left():
    table = st.sparsify(nn.Sequential(nn.Linear(200, 200)), quiet=True)
    assert table[0].reason == "no weight is zero or masked; give a sparsity"


def test_a_lazy_layer_has_no_weights_before_its_first_call():
    model = nn.Sequential(nn.LazyLinear(200), nn.ReLU(), nn.LazyConv2d(200, 1))
    table = st.sparsify(model, 0.9, min_size=0, measure=False, quiet=True)
    for row in table:
        assert not row.replaced
        assert row.reason == f"a {row.kind} has no weights before its first call; call the model once"
        assert f"{row.kind}  0 x 0" in str(table)
    for layer, sparse in ((model[0], st.SparseLinear), (model[2], st.SparseConv2d)):
        with pytest.raises(InputError, match=f"a {type(layer).__name__} has no weights before its first call"):
            sparse.from_dense(layer)
    other = nn.Sequential(nn.LazyLinear(200))
    st.sparsify(other, 0.9, min_size=0, inputs=torch.ones(2, 100), measure=False, quiet=True)
    assert isinstance(other[0], st.SparseLinear)
    with pytest.raises(InputError, match=r"'0', and the model has a LazyLinear there"):
        st.restore(nn.Sequential(nn.LazyLinear(200)), other.state_dict())


def test_a_state_makes_the_same_layers_sparse():
    model, x = Model(), torch.randn(2, 3, 8, 8)
    st.sparsify(model, 0.9, min_size=1000, exclude="body.2", measure=False, quiet=True)
    other = st.restore(Model(), model.state_dict())
    assert isinstance(other.point, st.SparseConv2d)
    assert other.point.stride == (2, 2)
    assert other.again is other.body[0]
    assert torch.equal(other(x), model(x))
    narrow = nn.Sequential(nn.Linear(3, 4))
    with pytest.raises(InputError, match=r"the state has a sparse layer 'again', and the model has no such layer"):
        st.restore(narrow, model.state_dict())


def test_a_dense_state_is_not_one_of_a_sparsified_model():
    model = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4)))
    state = copy.deepcopy(model.state_dict())
    st.sparsify(model, 0.5, min_size=0, measure=False, exclude="0", quiet=True)
    with pytest.raises(
        RuntimeError, match=r"1.0 is sparse, and its weight in the state is dense: load it into the dense"
    ):
        model.load_state_dict(state)


def test_layers_of_a_parametrization_are_replaced_in_evaluation():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(40, 40), nn.Linear(40, 40)), torch.randn(3, 40)
    for layer, norm in zip(model, (parametrizations.weight_norm, nn.utils.spectral_norm), strict=True):
        layer.weight.data.mul_(torch.rand(40, 40) < 0.3)
        norm(layer)
    (row, other) = st.sparsify(model, min_size=0, measure=False, quiet=True)
    assert row.reason == "training would lose its parametrization, such as weight_norm; call eval() first"
    assert row.kind == "ParametrizedLinear"
    assert (row.shape, other.reason) == ((40, 40), row.reason)
    dense, expected = copy.deepcopy(model), model.eval()(x)
    table = st.sparsify(model, min_size=0, inputs=x, measure=False, quiet=True)
    assert table.replaced == ["0", "1"]
    torch.testing.assert_close(model(x), expected)
    torch.testing.assert_close(st.restore(dense, model.state_dict()).eval()(x), expected)


def test_a_parameter_that_a_parametrization_shares_stays():
    model = nn.Sequential(parametrizations.weight_norm(nn.Linear(4, 4)), nn.Module()).eval()
    model[1].scales = model[0].parametrizations.weight.original0
    (row,) = st.sparsify(model, 0.5, min_size=0, measure=False, quiet=True)
    assert row.reason == "its parameters are shared with a Module"


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc])
def test_weights_that_are_sparse_tensors_are_replaced_untimed_and_compiled(layout):
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 4)).eval(), torch.randn(3, 40)
    model[0].weight.data.mul_(torch.rand(40, 40) < 0.3)
    expected = model(x).detach()
    model[0].weight = nn.Parameter(model[0].weight.detach().to_sparse(layout=layout), requires_grad=False)
    torch.testing.assert_close(spdnn.compile(model)(x), expected)
    table = st.sparsify(model, min_size=0, inputs=x, quiet=True)
    assert table[0].reason == "its weight was a sparse tensor of torch; not measured"
    assert isinstance(model[0], st.SparseLinear)
    torch.testing.assert_close(model(x), expected)


def test_an_encoder_layer_of_torch_takes_sparse_layers_in_evaluation():
    layer = nn.TransformerEncoderLayer(32, 4, 128, batch_first=True)
    x = torch.randn(2, 5, 32)
    st.sparsify(layer, 0.8, min_size=1000, measure=False, quiet=True)
    assert isinstance(layer.linear1, st.SparseLinear)
    dense = copy.deepcopy(layer)
    dense.linear1, dense.linear2 = layer.linear1.to_dense(), layer.linear2.to_dense()
    for one in (layer, dense):
        one.eval()
    with torch.inference_mode():
        torch.testing.assert_close(layer(x), dense(x))


def states(made):
    return {name: tensor.tolist() for name, tensor in made.state_dict().items()}


@pytest.mark.parametrize("whole", [np.int64, np.uint8, np.array])
@pytest.mark.parametrize("real", [np.float32, np.float64, np.array])
def test_numbers_of_numpy(whole, real):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(40, 50), nn.Linear(50, 2))
    other = copy.deepcopy(model)
    st.sparsify(model, 0.5, min_size=200, measure=False, quiet=True)
    table = st.sparsify(other, real(0.5), min_size=whole(200), measure=False, quiet=True)
    assert table.replaced == ["0"]
    assert states(other) == states(model)
    linear, conv = nn.Linear(8, 9), nn.Conv2d(8, 9, 1, stride=2)
    assert states(st.SparseLinear.from_dense(linear, real(0.25))) == states(st.SparseLinear.from_dense(linear, 0.25))
    assert states(st.SparseConv2d.from_dense(conv, real(0.25))) == states(st.SparseConv2d.from_dense(conv, 0.25))
    strided = st.SparseConv2d(torch.eye(3), stride=(whole(2), 1))
    assert strided.stride == (2, 1)
    assert all(type(each) is int for each in strided.stride)
    assert ops.SparseMatrix.from_torch(torch.eye(3), index_bits=whole(16)).topology.index_bits == 16
    mask, q = ops.SparseMatrix.from_torch(torch.eye(4)), torch.ones(4, 2)
    assert st.attention(mask, q, q, q, real(0.5)).tolist() == st.attention(mask, q, q, q, 0.5).tolist()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: st.sparsify(Model(), True), "sparsity True: it must be a number from 0 to below 1, or None"),
        (lambda: st.sparsify(Model(), "0.5"), "sparsity '0.5': it must be a number from 0 to below 1, or None"),
        (lambda: st.sparsify(Model(), 0.5, min_size=np.float32(2)), "min_size np.float32.*: it must be a whole number"),
        (lambda: st.sparsify(nn.Linear(3, 4), 0.5), "the model is one layer, which cannot be replaced in place"),
        (lambda: st.sparsify(3, 0.5), "model is a int; it must be a torch.nn.Module"),
        (lambda: st.sparsify(Model(), 1), "sparsity 1: it must be a number from 0 to below 1, or None"),
        (lambda: st.sparsify(Model(), 0.5, min_size=-1), "min_size -1: it must be a whole number from 0"),
        (lambda: st.sparsify(Model(), 0.5, exclude=["bodi.*"]), r"exclude: the model has no layer 'bodi\.\*'"),
    ],
)
def test_one_sentence(call, sentence):
    with pytest.raises(InputError, match=sentence):
        call()


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_attention_and_its_gradients_are_torchs(lead):
    torch.manual_seed(0)
    mask = torch.rand(30, 40) < 0.3
    mask[3] = False
    tensors = [torch.randn(*lead, n, d, requires_grad=True) for n, d in ((30, 16), (40, 16), (40, 8))]
    found = st.attention(ops.SparseMatrix.from_torch(mask.float()), *tensors)
    q, k, v = (tensor.detach().double().requires_grad_() for tensor in tensors)
    scores = (q @ k.transpose(-1, -2) / 4).masked_fill(~mask, -1e30).softmax(-1)
    exact = (scores * mask) @ v
    torch.testing.assert_close(found.double(), exact, rtol=1e-5, atol=1e-5)
    grown = torch.randn(found.shape)
    ours, theirs = torch.autograd.grad(found, tensors, grown), torch.autograd.grad(exact, (q, k, v), grown.double())
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-5)


def test_attention_compiles_and_differentiates_twice():
    torch.manual_seed(0)
    layer = st.SparseAttention(torch.rand(6, 7) < 0.6)
    q, k, v = (torch.randn(2, n, 4, requires_grad=True) for n in (6, 7, 7))
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(q, k, v), layer(q, k, v))
    first = torch.autograd.grad(layer(q, k, v).pow(2).sum(), (q, k, v), create_graph=True)
    mask = torch.zeros(6, 7)
    mask[torch.repeat_interleave(torch.arange(6), layer.offsets.diff()), layer.columns.long()] = 1
    dense = (((q @ k.mT / 2).exp() * mask) / ((q @ k.mT / 2).exp() * mask).sum(-1, keepdim=True)) @ v
    other = torch.autograd.grad(dense.pow(2).sum(), (q, k, v), create_graph=True)
    second = [torch.autograd.grad(sum(one.pow(2).sum() for one in them), (q, k, v)) for them in (first, other)]
    for ours, theirs in zip(*second, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        (((6, 4), (8, 4), (7, 4)), r"K has shape \(8, 4\); a mask of 6 x 7 needs 7 rows"),
        (((2, 6, 4), (7, 4), (7, 4)), "needs 7 rows, and Q, K and V the same sizes in front"),
        (((6, 4), (7, 5), (7, 4)), "Q has 4 columns and K 5"),
    ],
)
def test_attention_refuses_what_does_not_fit(shapes, sentence):
    with pytest.raises(InputError, match=sentence):
        st.attention(torch.ones(6, 7), *(torch.randn(*shape) for shape in shapes))
