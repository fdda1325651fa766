"""What a caller passes is neither written to nor kept; and every public class can be pickled and copied."""

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from onnx_models import convolutional
from refusals import refuses
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import spdnn
from spdnn import models, ops
from spdnn.core.network import MemoryNetwork
from spdnn.engines.reductions.neurons import merge_neurons
from spdnn.formats.inputs import write_inputs
from spdnn.formats.store import read_network, read_prepared, write_network, write_prepared
from spdnn.formats.unstructured import Unstructured
from spdnn.ops.models import mobilenet, transformer

RNG = np.random.default_rng(11)
TRANSFORMER = models.TransformerConfig(sequence=8, layers=1, heads=2, width=4, between=4, vocabulary=5, band=2)
MOBILE = models.MobileNetConfig(width=0.1, size=32, classes=3)


def drawn(*shape, part=1.0):
    return np.where(RNG.random(shape) < part, RNG.standard_normal(shape), 0).astype(np.float32)


def csr(*shape):
    return sp.csr_array(drawn(*shape, part=0.5))


def network(*matrices, bias):
    return spdnn.from_matrices(matrices, list(bias), last="none")


def digest(made):
    return [made.sha256(), made.identity(), repr(made.description)]


X, NET = drawn(5, 8), network(drawn(8, 6), drawn(6, 3), bias=(drawn(6), 0.5))
A = ops.SparseMatrix.from_dense(drawn(6, 8, part=0.4))
TOKENS, PART, DIGITS = np.arange(8) % 5, A.topology, (drawn(3, 1024) > 1).astype(np.float32)
IMAGE, PICTURE = drawn(1, 3, 32, 32), convolutional(3)[1]
RANDOM = {"Transformer": transformer.random_weights(TRANSFORMER), "MobileNet": mobilenet.random_weights(MOBILE)}
WEIGHTS = {name: {key: array.copy() for key, array in weights.items()} for name, weights in RANDOM.items()}


def of_matrices(first, second, third, fourth):
    made = network(first, second, bias=(third, fourth))
    model = spdnn.compile(made, threads=1)
    return lambda: [model(X), model.infer(X, values=True).all_values(), made.layer(0).bias, made.identity()]


def of_fields(*fields):
    layer = spdnn.Layer(8, 2, *fields)
    model = spdnn.compile(MemoryNetwork([layer], {}), threads=1)
    return lambda: [model(X), layer.matrix().toarray(), layer.bias]


def of_description(description):
    made = MemoryNetwork([spdnn.Layer.from_matrix(np.eye(2))], description)
    inputs = spdnn.Inputs.from_array(np.eye(2), description)
    return lambda: [repr(made.description), made.identity(), repr(inputs.description)]


def of_estimator(x, y):
    """partial_fit changes an estimator's arrays in place."""
    estimator = make_pipeline(StandardScaler(), MLPClassifier((6,), max_iter=2, tol=1e9)).fit(x, y)
    scaler, mlp = estimator.named_steps.values()
    model = spdnn.compile(estimator, threads=1)
    own = [*mlp.coefs_, *mlp.intercepts_, mlp.classes_, scaler.mean_, scaler.scale_]
    assert mlp.intercepts_[0].dtype == np.float32  # of another type it is copied anyway

    def probe():
        found = [model(X), model.classes.copy()]
        for array in own:
            array += 1
        return found

    return probe


def of_inputs(array):
    inputs = spdnn.Inputs.from_array(array)
    return lambda: [inputs.dense(np.arange(inputs.count)), inputs.sha256]


def of_topology(offsets, columns):
    topology = ops.Topology((6, 8), offsets, columns)
    return lambda: [topology.offsets, topology.columns, topology.transposed[1], topology.lengths]


def of_scipy(matrix):
    """The values of a matrix of ours stay the caller's, as the docstring says; where they are does not."""
    made = ops.SparseMatrix.from_scipy(matrix).topology
    return lambda: [made.offsets, made.columns]


def of_weights(kind, config, x):
    def case(weights):
        model = kind(config, weights)
        return lambda: [(model.images if kind is models.MobileNet else model.prefill)(x)]

    return case


def once(call):
    """A call, whose outcome must stay as it is."""

    def case(*arguments):
        outcome = call(*arguments)
        return lambda: [outcome]

    return case


def calls(**options):
    model = spdnn.compile(network(drawn(8, 6, part=0.5), drawn(6, 3), bias=(drawn(6), 0.5)), threads=2, **options)
    return once(lambda x: [model(x), model.infer(x, values=True).all_values(), model.infer(x).categories])


def operations(q, k, v, b, c, bias, images, taps):
    made = [
        ops.spmm(A, b, bias, "relu"),
        ops.linear(c, A, bias),
        ops.sddmm(PART, q, k),
        ops.softmax(A),
        ops.transpose(A),
        ops.attention(PART, q, k, v),
        ops.depthwise_conv(images, taps),
        *ops.spmm_gradients(A, b, drawn(6, 3)),
        *ops.sddmm_gradients(A, q, k),
    ]
    return [getattr(each, "values", each) for each in made]


# By name: what is made of things of the caller's, and these things.
CASES = {
    "from_matrices": (of_matrices, (drawn(8, 6), drawn(6, 3), drawn(6), drawn(3))),
    "from_matrices, float64": (of_matrices, (drawn(8, 6).astype(float), drawn(6, 3), drawn(6).astype(float), drawn(3))),
    "from_matrices, CSR": (of_matrices, (csr(8, 6), csr(6, 3).tocsc(), drawn(6), drawn(3))),
    "from_matrices, COO": (of_matrices, (csr(8, 6).tocoo(), csr(6, 3).tobsr(), drawn(6), drawn(3))),
    "from_matrices, views": (of_matrices, (drawn(6, 8).T, drawn(6, 6)[:, ::2], drawn(12)[::2], drawn(9)[3:6])),
    "Layer": (of_fields, (np.int64([0, 2, 3]), np.uint16([1, 5, 3]), drawn(3), drawn(2))),
    "Layer, views": (of_fields, (np.int64([0, 0, 2, 3])[1:], np.uint16([1, 5, 3, 0])[:3], drawn(6)[::2], drawn(2))),
    "description": (of_description, ({"source": "mine", "list": [1, 2]},)),
    "estimator": (of_estimator, (drawn(40, 8), RNG.integers(0, 3, 40))),
    "Inputs, zeros and ones": (of_inputs, ((drawn(5, 20) > 0).astype(np.float32),)),
    "Inputs, CSR": (of_inputs, (csr(5, 20),)),
    "Inputs, float64": (of_inputs, (drawn(5, 20).astype(float),)),
    "Topology": (of_topology, (PART.offsets.copy(), PART.columns.copy())),
    "Topology, int64": (of_topology, (PART.offsets.copy(), PART.columns.astype(np.int64))),
    "SparseMatrix.from_scipy": (of_scipy, (csr(6, 8),)),
    "SparseMatrix.from_dense": (once(lambda x: ops.SparseMatrix.from_dense(x, 0.5).values), (drawn(6, 8),)),
    "Transformer": (of_weights(models.Transformer, TRANSFORMER, TOKENS), (WEIGHTS["Transformer"],)),
    "MobileNet": (of_weights(models.MobileNet, MOBILE, IMAGE), (WEIGHTS["MobileNet"],)),
    "score": (once(lambda *given: spdnn.score(*given).labels), (drawn(6, 3), RNG.integers(0, 3, 6))),
    "agreement": (once(lambda *given: spdnn.agreement(*given).passed), (drawn(6, 3), drawn(6, 3))),
    "operations": (
        once(operations),
        [drawn(*shape) for shape in ((6, 4), (8, 4), (8, 5), (8, 3), (5, 8), (6,), (1, 2, 5, 5), (2, 3, 3))],
    ),
    **{f"calls, {name}": (calls(engine=name), (drawn(5, 8),)) for name in ("cpu", "spgemm", "taskgraph", "reference")},
    "calls, float64": (calls(), (drawn(5, 8).astype(float),)),
    "calls, CSR": (calls(), (csr(5, 8),)),
}


def arrays_in(things):
    for thing in things:
        if isinstance(thing, np.ndarray):
            yield thing
        elif sp.issparse(thing):
            parts = ("data", "indices", "indptr", "row", "col", "offsets")
            yield from arrays_in(getattr(thing, part) for part in parts if hasattr(thing, part))
        elif isinstance(thing, list | tuple | dict):
            yield from arrays_in(thing.values() if isinstance(thing, dict) else thing)


def snapshot(things):
    return [repr(thing) for thing in things if not isinstance(thing, np.ndarray)], [
        (array.tobytes(), str(array.dtype), array.shape, str(array.flags)) for array in arrays_in(things)
    ]


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("name", CASES)
def test_what_is_passed_is_neither_changed_nor_kept(name):
    case, given = CASES[name]
    before = snapshot(given)
    probe = case(*given)
    found = snapshot(probe())
    if name != "estimator":  # whose probe trains it on
        assert snapshot(given) == before
    for array in arrays_in(given):
        array += 1
    for thing in given:
        if isinstance(thing, dict):
            thing.clear()
    assert snapshot(probe()) == found


def test_an_example_of_an_onnx_model(tmp_path, monkeypatch):
    monkeypatch.setenv("SPDNN_TUNING", "off")
    made, x = convolutional(3)
    path, given = made.save(tmp_path / "a.onnx"), x.copy()
    model = spdnn.compile(path, threads=1, example=given)
    expected = model(x)
    assert (given == x).all()
    given += 1
    assert (model(x) == expected).all()
    sent = pickle.loads(pickle.dumps(model))
    assert (sent._source.settings[1] == x).all()


@pytest.mark.parametrize("engine", ["cpu", "spgemm", "taskgraph", "reference"])
def test_rows_that_are_kept_are_looked_at_anew(engine):
    """Dense rows stay the caller's, for they may be large: what is run is what they are then."""
    x, model = drawn(5, 8), spdnn.compile(network(drawn(8, 6), drawn(6, 3), bias=(0, 0)), engine=engine, threads=1)
    for inputs in (spdnn.Inputs.from_array(x), spdnn.Inputs(x), spdnn.Inputs(x).first(4)):
        was = inputs.sha256
        assert np.shares_memory(inputs.data, x)
        x += 1
        assert inputs.sha256 == spdnn.Inputs.from_array(x[: inputs.count].copy()).sha256 != was
        assert (model.infer(inputs, values=True).all_values() == model(x[: inputs.count])).all()
        x[1, 2], one = np.nan, x[1, 2]
        refuses("there is a NaN or an infinity", model.infer, inputs)
        x[1, 2] = one
    bits = np.packbits(np.eye(3, 12, dtype=bool), axis=1)
    inputs = spdnn.Inputs(bits, 12)
    was = inputs.sha256
    bits[0, 0] = 1
    assert inputs.sha256 != was
    bits[2, 1] = 1
    refuses("ones behind its 12 neurons", spdnn.Inputs, bits, 12)


def test_read_only_arrays_may_be_written_to_all_the_same():
    """By who has an earlier view of them, and by who makes them writable again."""
    fields = [np.int64([0, 2, 3]), np.uint16([1, 5, 3]), drawn(3), drawn(2)]
    rows, weights = drawn(3, 8), {name: array.copy() for name, array in RANDOM["MobileNet"].items()}
    held = [*fields, rows, *weights.values()]
    views = [array[...] for array in held]
    for array in held:
        array.flags.writeable = False
    layer, inputs, net = spdnn.Layer(8, 2, *fields), spdnn.Inputs(rows), models.MobileNet(MOBILE, weights)
    before, digest, logits = layer.sha256(), inputs.sha256, net.images(IMAGE)
    for view, array in zip(views, held, strict=True):
        view += 1
        array.flags.writeable = True
        array += 1
    assert layer.sha256() == before
    assert inputs.sha256 == spdnn.Inputs.from_array(rows.copy()).sha256 != digest
    assert (net.images(IMAGE) == logits).all()


def test_what_no_layer_is_made_of_is_one_sentence():
    fields = [np.int64([0, 2, 3]), np.uint16([1, 5, 3]), np.float32([1, 2, 3]), np.float32(0)]
    for place, value, sentence in (
        (2, np.ma.masked_array(fields[2]), "values is a masked array"),
        (1, [1, 5, 3], "indices are int64, not uint16"),
        (3, 0.5, "the bias is float64, not float32"),
    ):
        given = [*fields[:place], value, *fields[place + 1 :]]
        refuses(sentence, lambda given=given: MemoryNetwork([spdnn.Layer(8, 2, *given)]))


def test_a_layer_is_nobodys_to_change():
    layer = NET.layer(0)
    for made in (layer, pickle.loads(pickle.dumps(layer)), copy.deepcopy(layer), spdnn.RadixNet(64, 2, 0).layer(1)):
        for array in arrays_in(vars(made).values()):
            assert not array.flags.writeable
    assert layer.matrix().indptr.flags.writeable


def stored(folder):
    write_network(path := folder / "net.safetensors", NET)
    return path


def merged(folder):
    write_prepared(path := folder / "merged.safetensors", merge_neurons(spdnn.RadixNet(64, 3, 0))[0], {})
    return read_prepared(path)[0]


def text_of(folder):
    (folder / "n64-l1.tsv").write_text("".join(f"{k}\t{k}\t0.5\n" for k in range(1, 65)))
    return spdnn.open_network(folder, bias=0)


def onnx_model(folder):
    made, _ = convolutional(3)
    return spdnn.compile(made.save(folder / "a.onnx"), threads=1)


def bits_in(folder):
    write_inputs(path := folder / "x.safetensors", spdnn.Inputs.from_array(DIGITS))
    return spdnn.open_inputs(path)


def result_of(folder):
    return spdnn.infer(NET, X, values=True, threads=1)


def fitted(folder):
    estimator = MLPClassifier((6,), max_iter=2, tol=1e9).fit(drawn(40, 8), RNG.integers(0, 3, 40))
    return spdnn.compile(estimator, threads=1)


# Of each public class: how one is made, and what must be the same of it. `Network` and what it may be are many.
SAME = {
    "Activation": (lambda folder: spdnn.Activation("relu", 32), repr),
    "Agreement": (lambda folder: spdnn.agreement(X, X), repr),
    "EstimatorModel": (fitted, lambda made: made(X)),
    "Inputs": (lambda folder: spdnn.Inputs.from_array(csr(4, 8)), lambda made: made.sha256),
    "Inputs, of a file": (bits_in, lambda made: made.sha256),
    "Layer": (lambda folder: NET.layer(0), lambda made: made.sha256()),
    "Model": (lambda folder: spdnn.compile(NET, threads=1), lambda made: made(X)),
    "Model, of a file": (lambda folder: spdnn.compile(stored(folder), threads=1), lambda made: made(X)),
    "Model, of a formula": (
        lambda folder: spdnn.compile(spdnn.RadixNet(1024, 2), threads=1),
        lambda made: made(DIGITS),
    ),
    "Network": (lambda folder: NET, digest),
    "Network, of a file": (lambda folder: read_network(stored(folder)), digest),
    "Network, the first layers": (lambda folder: read_network(stored(folder)).first(1), digest),
    "Network, merged": (lambda folder: merge_neurons(spdnn.RadixNet(64, 3, 0))[0], digest),
    "Network, merged, of a file": (merged, digest),
    "Network, of text": (text_of, digest),
    "Network, unstructured": (lambda folder: Unstructured(64, 2), digest),
    "OnnxModel": (onnx_model, lambda made: made(PICTURE)),
    "RadixNet": (lambda folder: spdnn.RadixNet(64, 3, -0.1, 32, 5), digest),
    "Result": (result_of, lambda made: [made.sha256, made.all_values()]),
    "Scores": (lambda folder: spdnn.score(X, [0] * 5), repr),
    "SpdnnError": (lambda folder: spdnn.SpdnnError("what is wrong"), repr),
    "TaskgraphSettings": (lambda folder: spdnn.TaskgraphSettings(), repr),
    "ops.SparseMatrix": (lambda folder: A, lambda made: made.to_dense()),
    "ops.Topology": (lambda folder: PART, lambda made: [made.offsets, made.columns, made.order]),
    "models.MobileNet": (lambda folder: models.MobileNet(MOBILE), lambda made: made.images(IMAGE)),
    "models.MobileNetConfig": (lambda folder: MOBILE, repr),
    "models.Transformer": (lambda folder: models.Transformer(TRANSFORMER), lambda made: made.prefill(TOKENS)),
    "models.TransformerConfig": (lambda folder: TRANSFORMER, repr),
}


def test_every_public_class_is_in_the_table():
    public = [getattr(spdnn, name) for name in spdnn.__all__] + [getattr(ops, name) for name in ops.__all__]
    public += [getattr(models, name) for name in models.__all__]
    classes = {one.__name__ for one in public if isinstance(one, type)}
    assert classes == {name.split(",")[0].split(".")[-1] for name in SAME}


@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("how", [lambda made: pickle.loads(pickle.dumps(made)), copy.deepcopy])
def test_every_public_class_is_pickled_and_copied(name, how, tmp_path, monkeypatch):
    make, told = SAME[name]
    monkeypatch.chdir(tmp_path)
    made = make(tmp_path)
    monkeypatch.chdir("/")
    np.testing.assert_equal(told(how(made)), told(made))


def test_a_network_of_a_file_that_is_another_by_now(tmp_path):
    network = read_network(path := stored(tmp_path))
    sent = pickle.dumps(network)
    write_network(path, network.first(1))
    refuses(r"net\.safetensors: it was changed since its network was pickled; pickle that anew", pickle.loads, sent)
    assert copy.deepcopy(network).layer(1).sha256() == network.layer(1).sha256()  # of the file that is open
    path.unlink()
    refuses("there is no such file", pickle.loads, sent)
    sent, layer = pickle.dumps(text_of(tmp_path)), tmp_path / "n64-l1.tsv"
    layer.write_text(layer.read_text().replace("0.5", "0.25"))
    refuses("it was changed since its network was pickled", pickle.loads, sent)
