"""What is the caller's stays as it was: compile, sparsify and fuse run copies; a module that has a state is refused."""

import copy
import functools
import random
import threading
import types

import numpy as np
import pytest
import torch
from refusals import refuses
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

import spdnn
import spdnn.torch as st
from spdnn.ops.torch import models
from spdnn.ops.torch.copies import copy_module


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    """No compiled model times its products."""
    monkeypatch.setenv("SPDNN_TUNING", "off")


class Does(nn.Module):
    """A Linear layer (8, 4), what `forward` makes of it, and attributes: buffers where they are tensors."""

    def __init__(self, does, inner=None, **attributes):
        super().__init__()
        self.layer, self.does, self.inner = nn.Linear(8, 4), does, inner
        for name, value in attributes.items():
            if isinstance(value, torch.Tensor):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, *inputs):
        return self.does(self, *inputs)


def agree(module, *inputs, **options):
    """The compiled module gives what the module gives, and neither call of it writes into its inputs."""
    model = spdnn.compile(module, example=inputs, threads=1, **options)
    twin = copy_module(module.eval(), "the test does so")
    for given in (inputs, tuple(tensor[:1] + 0.5 for tensor in inputs)):
        kept = [tensor.clone() for tensor in given]
        found = model(*given)
        assert all(map(torch.equal, given, kept))
        with torch.no_grad():
            torch.testing.assert_close(found, twin(*kept))
    return model


def random_states():
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())  # noqa: NPY002


def everything(module):
    """What a module holds, in a form that compares: tensors by their bits, anything else by its identity."""

    def state(value):
        if isinstance(value, torch.Tensor):
            return id(value), value.requires_grad, value.is_leaf and id(value.grad), value.detach().numpy().tobytes()
        if isinstance(value, dict):
            return {name: state(each) for name, each in value.items()}
        return list(map(state, value)) if isinstance(value, list) else (id(value), type(value))

    return {name: state(vars(part)) for name, part in module.named_modules()}


def draws(self, x):
    y = self.layer(x) * (torch.rand(()) < 2) * (random.random() < 2) * (np.random.rand() < 2)  # noqa: NPY002
    self.seen.append(float(y.detach().sum()) if type(y) is torch.Tensor else 0)
    self.positions = torch.ones(4) if self.positions is None else self.positions
    self.last = y
    return y + self.positions


@pytest.mark.parametrize("fails", [False, True])
def test_compile_touches_nothing(fails):
    module = Does(draws, nn.Sequential(nn.Dropout(), nn.BatchNorm1d(4)).eval(), seen=[], positions=None, last=None)
    records = []
    module.layer.register_forward_hook(lambda *given: records.append(given))
    module.layer.weight.grad = torch.ones(4, 8)
    module.layer.bias.requires_grad_(False)
    x = torch.randn(3, 8, requires_grad=True)
    before, drawn, kept = everything(module), random_states(), x.detach().clone()
    if fails:
        module.does = lambda self, x: draws(self, x) if x.sum() != 0 else x  # which torch.export cannot trace
        before = everything(module)
        refuses("torch.onnx cannot export it", spdnn.compile, module, example=x)
    else:
        spdnn.compile(module, example=x, threads=1)
    assert everything(module) == before
    assert random_states() == drawn
    assert records == []
    assert torch.equal(x, kept)
    assert x.grad is None


def weight_norms(backward):
    module = nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 6)), nn.ReLU(), nn.utils.spectral_norm(nn.Linear(6, 4)))
    if backward:
        module(torch.randn(3, 8)).sum().backward()
    return module


def masked():
    module = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), parametrizations.weight_norm(nn.Linear(6, 4)))
    prune.random_unstructured(module[0], "weight", 0.5)
    return module


def computed():
    """Tensors that autograd computed, in a list, a dictionary and a buffer."""
    leaf = torch.ones(4, requires_grad=True)

    def does(self, x):
        return self.layer(x) * self.scales[0] + self.shifts["one"] + self.third

    return Does(does, scales=[leaf * 2], shifts={"one": leaf * 3}, third=leaf * 4, functions=F)


def refers_to_itself():
    """Functions of an object that hold the object: the copy's must hold the copy, which is in inference."""
    module = Does(lambda self, x: self.act(self.later(x)), nn.Dropout())
    module.act = lambda x: module.inner(F.relu(x))
    module.later = functools.partial(lambda own, x: own.layer(x), module)
    module.forward = types.MethodType(lambda self, x: self.does(self, x), module)
    return module


class Reduced(nn.Linear):
    """A class that says itself how it is copied: without its lock."""

    def __init__(self):
        super().__init__(8, 4)
        self.lock = threading.Lock()

    def __getstate__(self):
        return {name: value for name, value in vars(self).items() if name != "lock"}


def traced():
    """torch.fx makes a class of its own, which copies itself."""
    return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(8, 4), nn.ReLU()))


@pytest.mark.parametrize(
    "make",
    [lambda: weight_norms(False), lambda: weight_norms(True), masked, computed, refers_to_itself, Reduced, traced],
)
def test_modules_that_are_hard_to_copy(make):
    agree(make(), torch.randn(3, 8))


class Held:
    """An object that holds another."""

    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("call", [lambda module, x: spdnn.compile(module, example=x), lambda module, x: st.fuse(module),
                                  lambda module, x: st.sparsify(module, 0.5, inputs=x)])  # fmt: skip
@pytest.mark.parametrize(
    ("attribute", "value"),
    [("lock", threading.Lock()), ("held.value", (each for each in "ab")), ("locks['a']", {"a": threading.Lock()})],
)
def test_an_attribute_that_cannot_be_copied_is_named(call, attribute, value):
    first, _, rest = attribute.replace("[", ".").partition(".")
    inner = parametrizations.weight_norm(nn.Linear(8, 8)) if rest else nn.Linear(8, 8)  # which has a class of its own
    setattr(inner, first, Held(value) if rest == "value" else value)
    module = nn.Sequential(nn.ReLU(), nn.ModuleDict({"encoder": inner})["encoder"]).eval()
    named = attribute.replace("[", r"\[").replace("]", r"\]") if not rest else first
    refuses(
        rf"Sequential: its attribute 1\.{named}.* cannot be copied \(.*\), and \w+ ", call, module, torch.ones(2, 8)
    )


def cached(self, x):
    y = self.layer(x)
    self.cache = y.mean(0) if self.cache is None else torch.lerp(self.cache, y.mean(0), 0.5)
    return y + self.cache


def data(self, x):
    self.mean.data.lerp_(self.layer(x).mean(0), 0.5)
    return self.layer(x) - self.mean


def counter(self, x):
    self.inner.steps += 1
    return self.layer(x)


def history(self, x):
    self.seen.append(x.mean())
    return self.layer(x)


def largest(self, x):
    y = self.layer(x)
    self.most = torch.maximum(self.most, y.abs().max())
    return y / self.most


def difference(self, x):
    y = self.layer(x)
    gives = y - self.before
    self.before.copy_(y[0])
    return gives


def number(self, x):
    self.calls += 1
    return self.layer(x) * self.calls


def held(self, x):
    self.held.value = self.held.value + self.layer(x).mean()
    return self.layer(x) + self.held.value


def written(self, x):
    self.last = self.layer(x)
    self.mean.copy_(self.last.mean(0))
    return self.last - self.mean


def marks(self, x):
    """What it marks for the example, it does not mark anew for the same numbers in another order."""
    self.seen[(x[:, 0] > 9).long()] = 1
    return self.layer(x) * self.seen.sum()


def toggles(self, x):
    self.phase.copy_(1 - self.phase)
    return self.layer(x) + self.phase


def many(self, x):
    for buffer in self.buffers():
        buffer += 1
    return self.layer(x)


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize(
    ("does", "attributes", "why"),
    [
        (cached, {"cache": None}, "each call changes its cache,"),
        (data, {"mean": torch.zeros(4)}, "each call changes its mean,"),
        (counter, {"inner": Does(None, steps=torch.zeros(()))}, "each call changes its inner.steps,"),
        (history, {"seen": []}, r"each call changes its seen\[1\], seen\[2\],"),
        (largest, {"most": torch.zeros(())}, "each call changes its most,"),
        (difference, {"before": torch.zeros(4)}, "each call changes its before,"),
        (written, {"mean": torch.zeros(4), "last": None}, "each call changes its mean,"),
        (marks, {"seen": torch.zeros(2)}, "each call changes its seen,"),
        (toggles, {"phase": torch.zeros(())}, "each call changes its phase,"),
        (number, {"calls": 0}, "each call changes its calls,"),
        (held, {"held": Held(torch.zeros(()))}, "each call changes its held.value,"),
        (many, dict(zip("abcde", torch.zeros(5, 2), strict=True)), "each call changes its a, b, c, and 2 more,"),
    ],
)
def test_a_module_with_a_state_is_refused(does, attributes, why, verify):
    torch.manual_seed(0)
    module = Does(does, **copy.deepcopy(attributes))
    why = f"Does: {why} and a compiled model has no state; take it as an input and return it"
    refuses(why, spdnn.compile, module, example=torch.randn(3, 8), verify=verify)


def positions(self, x):
    if self.positions is None:
        self.positions = torch.arange(x.shape[1]) / 100
    return self.layer(x + self.positions)


def attribute(self, x):
    if not hasattr(self, "table"):
        self.table = torch.arange(4) / 10
    return self.layer(x) + self.table


def recorded(self, x):
    self.last = self.layer(x)
    return F.relu(self.last)


def counted(self, x):
    self.calls += 1
    return self.layer(x) + torch.nan_to_num(self.nothing)


@pytest.mark.parametrize(
    ("does", "attributes"),
    [
        (positions, {"positions": None}),
        (attribute, {}),
        (recorded, {"last": None}),
        (counted, {"calls": 0, "nothing": torch.full((4,), torch.nan)}),
    ],
)
def test_what_a_first_call_fills_and_what_no_output_depends_on(does, attributes):
    agree(Does(does, **attributes), torch.randn(3, 8))


@pytest.mark.parametrize(
    ("does", "count"),
    [
        (lambda self, x: self.layer(x.sub_(0.5).div_(0.25)), 1),
        (lambda self, x: self.layer(F.hardtanh_(x)), 1),
        (lambda self, x, y: self.layer(x) + self.layer(y.sub_(y.mean(1, keepdim=True)).mul_(2)), 2),
        (lambda self, x, y: (self.layer(x.relu_()), F.layer_norm(y, (8,)).add_(y.clamp_(0, 1))), 2),
        (lambda self, x: (x[:, :4].zero_(), self.layer(x))[1], 1),
        (lambda self, x: (x.exp_(), self.layer(x) + torch.arange(len(x))[:, None])[1], 1),
    ],
)
def test_a_module_that_writes_into_its_inputs(does, count):
    torch.manual_seed(0)
    inputs = [torch.randn(3, 8) for _ in range(count)]
    kept = [tensor.clone() for tensor in inputs]
    agree(Does(does), *inputs)
    assert all(map(torch.equal, inputs, kept))


def test_inputs_keep_their_names():
    class Named(nn.Linear):
        def forward(self, pixels, scale):
            return super().forward(pixels.relu_()) * scale.neg_()

    model = agree(Named(8, 4), torch.randn(3, 8), torch.randn(3, 1))
    assert model.inputs == ["pixels", "scale"]


@pytest.mark.parametrize("kind", ["sparse", "weight_norm", "batch_norm"])
def test_other_threads_call_the_module_while_it_is_compiled(kind):
    torch.manual_seed(0)
    module = {
        "sparse": lambda: nn.Sequential(st.SparseLinear.from_dense(nn.Linear(8, 40), 0.5), nn.Dropout(), nn.ReLU()),
        "weight_norm": lambda: nn.Sequential(nn.utils.weight_norm(nn.Linear(8, 4)), nn.ReLU()),
        "batch_norm": lambda: nn.Sequential(nn.Linear(8, 4), nn.BatchNorm1d(4), masked()[1]),
    }[kind]().eval()
    x, stop, faults, calls = torch.randn(3, 8), threading.Event(), [], 0
    with torch.no_grad():
        wanted = module(x)

    def serve():
        nonlocal calls
        while not stop.is_set() and not faults:
            calls += 1
            try:
                with torch.no_grad():
                    torch.testing.assert_close(module(x), wanted)
            except Exception as error:
                faults.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        for _ in range(2):
            spdnn.compile(module, example=x, threads=1)
    finally:
        stop.set()
        thread.join()
    assert faults == []
    assert calls > 1


def test_two_threads_compile_at_once():
    module, x, models = nn.Sequential(nn.Linear(8, 4), nn.ReLU()).eval(), torch.randn(3, 8), []
    threads = [threading.Thread(target=lambda: models.append(spdnn.compile(module, example=x))) for _ in range(2)]
    call, notes = nn.Module.__call__, torch._dynamo.eval_frame.fx_traceback
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (nn.Module.__call__, torch._dynamo.eval_frame.fx_traceback) == (call, notes)
    for model in models:
        torch.testing.assert_close(model(x), module(x).detach())
    assert len(models) == 2


def test_sparsify_runs_a_copy_of_the_model(monkeypatch):
    monkeypatch.setattr(models, "_measured", {})
    module = Does(lambda self, x: (self.norm(draws(self, x.relu_())), setattr(self, "last", x))[0])
    module.norm, module.seen, module.positions, module.last = nn.BatchNorm1d(4).eval(), [], None, None
    prune.l1_unstructured(module.layer, "weight", 0.5)
    x, rest = torch.randn(3, 8), {}
    before, drawn, kept = everything(module), random_states(), x.clone()
    monkeypatch.setattr(models, "_beside", lambda dense, sparse, wait: (rest.update(y=dense()), (1.0, 2.0))[1])
    (row,) = st.sparsify(module, min_size=0, inputs=x, quiet=True)
    assert rest["y"].shape == (3, 4)
    assert row.reason == "dense is 2.00 times as fast"
    assert everything(module) == before
    assert random_states() == drawn
    assert torch.equal(x, kept)


def test_fuse_traces_a_copy_of_the_model():
    class Noted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.norm, self.last = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3), None
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x):
            self.steps += torch.rand(())
            self.last = self.norm(self.first(x))
            return self.last

    module, drawn = Noted().eval(), random_states()
    assert st.fuse(module) == ["norm"]
    assert module.last is None
    assert module.steps == 0
    assert random_states() == drawn


@pytest.mark.parametrize(
    "make", [lambda: st.SparseLinear.from_dense(nn.Linear(8, 4), 0.0),
             lambda: st.SparseConv2d.from_dense(nn.Conv2d(8, 4, 1), 0.0)]
)  # fmt: skip
def test_layers_share_no_memory_with_what_they_are_made_of(make):
    layer, drawn = make(), random_states()
    dense = layer.to_dense()
    assert random_states() == drawn  # no weights are drawn that are replaced at once
    again = type(layer).from_dense(dense, 0.0)
    matrix = st.SparseLinear(layer.matrix(), dense.bias)
    parts = [{part.data_ptr() for part in one.state_dict().values()} for one in (layer, dense, again, matrix)]
    assert len(set().union(*parts)) == sum(map(len, parts))
