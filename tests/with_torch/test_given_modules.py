"""Ways in which a module is given to compile, and modes of torch in which it is."""

import contextlib
import functools
import logging

import pytest
import torch
from refusals import refuses
from torch import fx, nn

import spdnn
import spdnn.torch
from spdnn import ops

DYNAMIC = {0: torch.export.Dim.DYNAMIC}
X = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    """No compiled model times its products."""
    monkeypatch.setenv("SPDNN_TUNING", "off")


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 4)).eval()


def exported(dynamic=True):
    return torch.export.export(net(), (X,), dynamic_shapes=(DYNAMIC,) if dynamic else None)


def close(one, other):
    torch.testing.assert_close(one, other.detach(), rtol=1e-5, atol=1e-5)


class Names(nn.Module):
    """Takes a tensor, and others by name; gives a mapping."""

    def __init__(self):
        super().__init__()
        self.layer, self.other = nn.Linear(8, 4), nn.Linear(6, 4)

    def forward(self, x, mask=None, *, y=None, scale=2.0):
        z = self.layer(x) if mask is None else self.layer(x) * mask
        z = z if y is None else z + self.other(y)
        return {"last": z * scale, "more": (z.sum(1), z[:, :2])}


@pytest.mark.parametrize(
    "made",
    [
        lambda: exported().module(),
        lambda: fx.symbolic_trace(net()),
        lambda: torch.compile(net()),
        lambda: torch.compile(net(), backend="eager"),
        lambda: nn.DataParallel(net()),
        lambda: nn.DataParallel(torch.compile(net())),
        lambda: torch.optim.swa_utils.AveragedModel(net()),
    ],
)
def test_what_was_made_of_a_module_is_compiled_as_it(made):
    with spdnn.compile(made(), example=X) as model:
        close(model(X), net()(X))
        close(model(X[:2]), net()(X[:2]))


def test_a_module_that_compiles_itself():
    module = net()
    module.compile(backend="eager")
    module(X)
    with spdnn.compile(module) as model:
        close(model(X), module(X))


def test_an_exported_program_has_its_own_example():
    with spdnn.compile(exported()) as model:
        close(model(X[:3]), net()(X[:3]))
        assert "compared with ExportedProgram at 5, 1, 2, 3, " in model.explain()
    module, y = Names().eval(), torch.randn(5, 6)
    program = torch.export.export(module, (), {"x": X, "y": y}, dynamic_shapes={"x": DYNAMIC, "y": DYNAMIC})
    with spdnn.compile(program) as model:
        close(model(x=X[:2], y=y[:2])[0], module(X[:2], y=y[:2])["last"])


@pytest.mark.parametrize("made", [lambda: exported(False), lambda: exported(False).module()])
def test_a_program_for_one_number_of_inputs(made):
    refuses("torch.export made it for 5 inputs alone, and with dynamic_shapes", spdnn.compile, made(), example=X)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (lambda: torch.jit.trace(net(), X), "^TopLevelTracedModule: torch.onnx cannot export TorchScript"),
        (lambda: torch.jit.script(net()), "^RecursiveScriptModule: torch.onnx cannot export TorchScript"),
        (lambda: functools.partial(net()), "^a partial is no Network; a torch.nn.Module whose forward calls it is"),
        (lambda: net().forward, "^a method is no Network; a torch.nn.Module whose forward calls it is taken"),
        (lambda: torch.compile(lambda x: x, backend="eager"), "^a function is no Network; a torch.nn.Module whose"),
        (lambda: Names, "^Names is a class; give an object of it"),
        (lambda: net().state_dict(), "^a OrderedDict is no Network; spdnn.from_matrices"),
    ],
)
def test_what_cannot_be_compiled_is_named(value, why):
    for options in ({}, {"example": X}):
        refuses(why, spdnn.compile, value(), **options)


@pytest.mark.parametrize("names", ["x", "x mask", "x y", "y mask x"])
def test_an_example_by_the_names_of_arguments(names):
    given = {"x": X, "mask": (X[:, :4] > 0).float(), "y": X[:, 2:]}
    example, module = {name: given[name] for name in names.split()}, Names().eval()
    with spdnn.compile(module, example=example) as model:
        outputs, expected = model(example), module(**example)
        for one, other in zip(outputs, (expected["last"], *expected["more"]), strict=True):
            close(one, other)
        few = {name: tensor[:2] for name, tensor in example.items()}
        close(model(**few)[1], module(**few)["more"][0])


def test_an_output_that_is_an_input_leaves_the_input_its_name():
    class Keeps(nn.Linear):
        def forward(self, x, y):
            return super().forward(x + y), x, y, x

    module = Keeps(8, 4)
    with spdnn.compile(module, example=(X, X * 2)) as model:
        assert model.inputs == ["x", "y"]
        outputs, expected = model(y=X * 3, x=X), module(y=X * 3, x=X)
        assert len({*model.outputs, *model.inputs}) == len(model.outputs) + 2
        for one, other in zip(outputs, expected, strict=True):
            close(one, other)


def test_names_that_a_module_does_not_take():
    module = Names().eval()
    refuses("^example: Names takes other arguments .*'x'", spdnn.compile, module, example={"y": X[:, :6]})
    refuses("^example: Names takes other arguments .*'z'", spdnn.compile, module, example={"x": X, "z": X})
    refuses("^example: a tensor of two inputs or more", spdnn.compile, module, example={"x": X, "mask": None})


def mode(setter, getter, value):
    @contextlib.contextmanager
    def entered():
        before = getter()
        setter(value)
        try:
            yield
        finally:
            setter(before)

    return entered


MODES = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast to half": lambda: torch.autocast("cpu", torch.float16),
    "inference": torch.inference_mode,
    "another device": lambda: torch.device("meta"),
    "float64": mode(torch.set_default_dtype, torch.get_default_dtype, torch.float64),
    "bfloat16": mode(torch.set_default_dtype, torch.get_default_dtype, torch.bfloat16),
    "deterministic": mode(torch.use_deterministic_algorithms, torch.are_deterministic_algorithms_enabled, True),
    "anomalies": torch.autograd.detect_anomaly,
    "profiler": torch.autograd.profiler.profile,
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_modes_of_torch_change_no_compiled_model(name):
    module = net()
    with MODES[name](), spdnn.compile(module) as model, spdnn.compile(module, example=X) as other:
        outputs = [model(X), other(X)]
    for one in outputs:
        close(one, module(X))


@pytest.mark.parametrize("name", MODES)
@pytest.mark.filterwarnings("ignore:Anomaly Detection", "ignore:Sparse CSR tensor")
def test_modes_of_torch_change_no_layer_that_is_made_in_them(name):
    dense, conv = nn.Linear(8, 4), nn.Conv2d(8, 4, 1)
    matrix = ops.SparseMatrix.from_dense(dense.weight.detach().numpy())
    images = X[:, :, None, None].expand(-1, -1, 2, 2)
    with MODES[name]():
        layers = [
            spdnn.torch.SparseLinear.from_dense(dense), spdnn.torch.SparseLinear(matrix, [0.0, 1, 2, 3]),
            spdnn.torch.SparseLinear(dense.weight, dense.bias.detach().numpy()),
        ]  # fmt: skip
        sparse_conv, copied = spdnn.torch.SparseConv2d.from_dense(conv), matrix.to_torch()
        restored = layers[0].to_dense()
    with torch.no_grad():
        close(layers[0](X), dense(X))
        close(layers[1](X), nn.functional.linear(X, dense.weight, torch.arange(4.0)))
        close(layers[2](X), dense(X))
        close(restored(X), dense(X))
        close(sparse_conv(images), conv(images))
    assert copied.device == torch.device("cpu")
    assert copied.values().tolist() == dense.weight.flatten().tolist()


def test_an_exporter_logs_nothing(capfd, caplog):
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with spdnn.compile(attention, example=X[:, None]):
        pass
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_an_exporter_prints_nothing_of_what_it_cannot_trace(capfd):
    class Branches(nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y + 1 if float(y.sum()) > 0 else y

    refuses("^Branches: torch.onnx cannot export it", spdnn.compile, Branches(8, 4), example=X)
    assert capfd.readouterr() == ("", "")


def test_attention_is_exported_without_fused_operators():
    fused = []

    class Notes(nn.Linear):
        def forward(self, x):
            fused.append(torch.backends.mha.get_fastpath_enabled())
            return super().forward(x)

    with spdnn.compile(Notes(8, 4), example=X):
        pass
    assert False in fused  # while torch exports it
    assert fused[0]
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("exclude", [["*layers.0*"], ["*layers.1*"], []])
@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_a_padded_encoder_whose_layers_are_partly_sparse(exclude, inner):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    model = nn.Sequential(encoder) if inner else encoder
    padded = torch.zeros(3, 6, dtype=torch.bool)
    padded[1, 4:] = padded[2, 1:] = True
    x = torch.randn(3, 6, 16)
    for layer in encoder.layers:
        nn.utils.prune.l1_unstructured(layer.linear1, "weight", 0.5)
        nn.utils.prune.l1_unstructured(layer.linear2, "weight", 0.5)
        nn.utils.prune.remove(layer.linear1, "weight")
        nn.utils.prune.remove(layer.linear2, "weight")
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padded)
        table = spdnn.torch.sparsify(model, min_size=1, measure=False, exclude=exclude)
        assert len(table.replaced) == (2 if exclude else 4)
        close(encoder(x, src_key_padding_mask=padded)[~padded], expected[~padded])


def test_a_nested_tensor_is_refused():
    layer = spdnn.torch.SparseLinear.from_dense(nn.Linear(8, 4))
    refuses("^the input is a nested tensor; ", layer, torch.nested.nested_tensor([X[:2], X[2:]]))
