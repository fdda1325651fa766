"""The containers in which people pass arrays to a compiled ONNX model: mappings, frames, sparse matrices."""

import copy
import pickle
from collections import OrderedDict, UserDict
from types import MappingProxyType

import numpy as np
import onnx
import pandas as pd
import pytest
import scipy.sparse as sp
from onnx_models import Maker
from refusals import refuses

import spdnn

pytestmark = pytest.mark.usefixtures("untimed")
X = np.float32([[1, 0, 2], [0, 3, 0]])


def model_of(text, name="made", opset=17):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}, "ai.onnx.ml": 3]> {name} {text}')


TWO = (
    "(int64[n, s] input_ids, float[n, s] attention_mask) => (float[n, s] y) "
    "{ f = Cast <to = 1> (input_ids) y = Sub (f, attention_mask) }"
)
COLUMNS = (
    "(float[n, 1] age, string[n, 1] city, float[n] size) => (float[n, 1] a, string[n, 1] c, float[n] s) "
    "{ a = Neg (age) c = Identity (city) s = Neg (size) }"
)
STRINGS = (
    "(string[n, 2] names) => (int64[n, 2] y) "
    '{ y = ai.onnx.ml.LabelEncoder <keys_strings = ["a", "b"], values_int64s = [7, 8]> (names) }'
)
SPARSE = "(float[n, 3] x, double[m, 3] b) => (float[n, 3] y, double[m, 3] c) { y = Neg (x) c = Neg (b) }"
FRAME = pd.DataFrame({"city": ["x", "y", "z"], "age": [1, 2, 3], "size": [0.5, 1.5, 2.5]})
IDS, MASK = np.int64([[1, 2], [3, 4]]), np.float32([[1, 0], [1, 1]])


class Encoding(UserDict):
    """As the tokenizers of transformers give it."""


@pytest.fixture
def chain(tmp_path):
    made = Maker(3)
    made.add("MatMul", np.eye(3, 4, dtype=np.float32))
    return spdnn.compile(made.save(tmp_path / "chain.onnx"), threads=1)


@pytest.mark.parametrize("kind", [dict, OrderedDict, UserDict, Encoding, MappingProxyType])
def test_one_mapping(kind, chain):
    given = kind({"attention_mask": MASK, "input_ids": IDS})
    model = spdnn.compile(model_of(TWO), threads=1, example=None if kind is MappingProxyType else given)
    assert isinstance(model, spdnn.OnnxModel)
    assert (model(given) == IDS - MASK).all()
    assert (model(kind({"input_ids": IDS.astype(np.int32), "attention_mask": MASK.tolist()})) == IDS - MASK).all()
    refuses("3 inputs; it takes input_ids, attention_mask$", model, kind({**given, "token_type_ids": IDS}))
    refuses("1 input; it takes", model, kind({"input_ids": IDS}))
    refuses("0 inputs; it takes", model, kind({}))
    refuses("^input_ids is of .*; the model takes int64$", model, given, MASK)
    # Models of layers, and those that state no names.
    assert isinstance(chain, spdnn.Model)
    assert (chain(kind({"x": X})) == chain(X)).all()
    assert (chain(kind({"x": sp.csr_array(X)})) == chain(X)).all()
    refuses("1 input; it takes x$", chain, kind({"y": X}))
    plain = spdnn.compile(spdnn.from_matrices([np.eye(3)], last="none"), threads=1)
    assert (plain(kind({"x": X})) == X).all()


def test_a_mapping_is_kept_with_the_model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = {"input_ids": IDS.copy(), "attention_mask": MASK}
    model = spdnn.compile(model_of(TWO), threads=1, example=given)
    given["input_ids"] += 9
    sent = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert (sent(IDS, MASK) == IDS - MASK).all()
    refuses("example|it takes", spdnn.compile, pruned(), threads=1, example={"y": X})


def pruned():
    made = Maker(40)
    made.add("MatMul", made.draw(40, 40, density=0.1))
    made.add("Softplus")
    made.save("pruned.onnx")
    return "pruned.onnx"


def test_a_frame_with_a_column_for_each_input():
    model = spdnn.compile(model_of(COLUMNS), threads=1)
    for frame in (FRAME, FRAME.astype({"city": object, "age": np.int8})):
        a, c, s = model(frame)
        assert (a == [[-1], [-2], [-3]]).all()
        assert (c == [["x"], ["y"], ["z"]]).all()
        assert (s == [-0.5, -1.5, -2.5]).all()
    for part, sentence in (
        (FRAME.drop(columns="age"), "2 inputs; it takes age, city, size$"),
        (FRAME.assign(more=1), "4 inputs; it takes age"),
        (FRAME.assign(city=["x", None, "z"]), r"^city \(.*\) holds a gap or what is no text$"),
        (FRAME.assign(city=[1, 2, 3]), r"^city \(int64\) holds a gap or what is no text$"),
        (FRAME.assign(age=["1", "2", "3"]), "^age is of object; the model takes float32$"),
    ):
        refuses(sentence, model, part)


def test_strings():
    model = spdnn.compile(model_of(STRINGS), threads=1)
    expected = [[7, 8], [8, 8]]
    for given in (
        np.array([["a", "b"], ["b", "b"]]),
        np.array([["a", "b"], ["b", "b"]], object),
        [["a", "b"], ["b", "b"]],
        pd.DataFrame({"first": ["a", "b"], "second": ["b", "b"]}),
        pd.DataFrame({"first": ["a", "b"], "second": ["b", "b"]}, dtype=object),
    ):
        assert (model(given) == expected).all()
    refuses("^names is of float32; the model takes strings$", model, X)
    refuses(r"^names has shape \(2, 1\)", model, pd.DataFrame({"first": ["a", "b"]}))
    refuses("^names: the column 'b' .* holds a gap", model, pd.DataFrame({"a": ["a", "b"], "b": ["b", None]}))


def test_sparse_matrices():
    model = spdnn.compile(model_of(SPARSE), threads=1)
    for form in (sp.csr_array, sp.csc_matrix, sp.coo_array, sp.lil_matrix):
        y, c = model(form(X.astype(np.int64)), b=form(X))
        assert type(y) is type(c) is np.ndarray
        assert (y.dtype, c.dtype) == (np.float32, np.float64)
        assert (y == -X).all()
        assert (c == -X).all()
    refuses("^x has shape", model, sp.csr_array(X.T), X)
    damaged = sp.csr_array(X)
    damaged.indices[0] = 9
    refuses("^x is not a sound sparse matrix: ", model, damaged, X)


@pytest.mark.parametrize(("inputs", "outputs"), [(8, 0), (0, 8), (0, 0)])
def test_products_without_outputs_or_inputs(tmp_path, inputs, outputs):
    made = Maker(inputs)
    made.add("MatMul", np.zeros((inputs, outputs), np.float32))
    made.add("Relu")
    model = spdnn.compile(made.save(tmp_path / "none.onnx"), threads=1)
    x = np.ones((3, inputs), np.float32)
    assert model(x).shape == (3, outputs)
    assert not model(x).any()
