"""Layers and networks: what is accepted, what is refused and how it is said."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from spdnn.core.features import Inputs
from spdnn.core.network import Activation, Layer, MemoryNetwork, from_matrices, index_dtype
from spdnn.ops import SparseMatrix


@pytest.fixture
def layer():
    return Layer.from_matrix(np.array([[0, 1, 2], [3, 0, 4]]), [0.5, -1, 0], Activation("relu", 32))


def test_by_output(layer):
    assert (layer.inputs, layer.outputs, layer.edges) == (2, 3, 4)
    assert layer.offsets.tolist() == [0, 1, 2, 4]
    assert layer.indices.tolist() == [1, 0, 0, 1]
    assert layer.values.tolist() == [3, 1, 2, 4]
    np.testing.assert_array_equal(layer.matrix().toarray(), [[0, 1, 2], [3, 0, 4]])


def test_one_value_is_found_not_assumed():
    assert Layer.from_matrix(np.eye(3) / 16).single_value
    assert not Layer.from_matrix(np.diag([1.0, 1, 2])).single_value
    assert Layer.from_matrix(np.zeros((2, 2))).edges == 0


def test_narrow_indices():
    assert index_dtype(65_536) == np.uint16
    assert index_dtype(65_537) == np.uint32


def twice(kind, values, seed=0):
    """A sparse matrix of 3 x 40 with many entries at each place, unsorted, whose values are drawn from `values`."""
    random = np.random.default_rng(seed)
    rows, columns = np.sort(random.integers(0, 3, 400)), random.integers(0, 40, 400)
    data = random.choice(np.asarray(values), 400)
    offsets = np.searchsorted(rows, np.arange(4))
    if kind == "csc":
        return sp.csr_array((data, columns, offsets), shape=(3, 40)).T
    if kind == "csr":
        return sp.csr_array((data, columns, offsets), shape=(3, 40))
    if kind == "bsr":
        return sp.bsr_array((np.repeat(data[:, None, None], 2, 2), columns // 2, offsets), shape=(3, 40))
    return sp.coo_array((data, (rows, columns)), shape=(3, 40))


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "coo"])
@pytest.mark.parametrize(
    "values",
    [[True], np.int8([100, 7]), [(1 << 53) + 1, -(1 << 53)], [1e8, 1.0, -1e8], np.float32([1e8, 1, -1e8, 0.1])],
    ids=["bool", "int8", "int64", "float64", "float32"],
)
def test_duplicates_are_summed_in_their_own_type_as_toarray_does(kind, values):
    for seed in range(4):
        matrix = twice(kind, values, seed)
        wanted = matrix.toarray().astype(np.float32)
        np.testing.assert_array_equal(Layer.from_matrix(matrix).matrix().toarray(), wanted)
        inputs = Inputs.from_array(matrix)
        np.testing.assert_array_equal(inputs.dense(np.arange(len(wanted))), wanted)
        assert inputs.sha256 == Inputs.from_array(sp.csr_array(wanted)).sha256
        if matrix.dtype == np.float32:
            np.testing.assert_array_equal(Inputs(matrix).dense(np.arange(len(wanted))), wanted)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_half_precision_is_summed_in_float32(form):
    matrix = form((np.array([1, 2, 0.5], np.float16), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    expected = form((matrix.data.astype(np.float32), matrix.indices, matrix.indptr), shape=(2, 2)).toarray()
    assert np.array_equal(Inputs.from_array(matrix).dense(np.arange(2)), expected)
    assert np.array_equal(from_matrices([matrix], last="none").layer(0).matrix().toarray(), expected)


def test_duplicates_may_pass_float32_where_their_sum_does_not():
    matrix = sp.csr_array((np.array([1e39, -1e39, 2]), np.array([1, 1, 1]), np.array([0, 3])), shape=(1, 2))
    assert Layer.from_matrix(matrix).values == 2
    assert Inputs.from_array(matrix).dense(np.array([0])).tolist() == [[0, 2]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"indices": np.array([1, 0, 0, 2], np.uint16)}, "x: input neuron 2 .* is out of range; .* 2 input neurons"),
        ({"indices": np.array([1, 0, 1, 0], np.uint16)}, r"output neuron 2 \(from 0\) are unsorted or repeated"),
        ({"indices": np.array([1, 0, 1, 1], np.uint16)}, r"output neuron 2 \(from 0\) are unsorted or repeated"),
        ({"indices": np.array([1, 0, 0, 1], np.int64)}, "indices are int64, not uint16"),
        ({"offsets": np.array([0, 1, 2, 5])}, "offsets must ascend from 0 to the number of edges, 4"),
        ({"offsets": np.array([0, 2, 1, 4])}, "offsets must ascend"),
        ({"offsets": np.array([0, 1, 4])}, "length outputs"),
        ({"values": np.array([1, np.nan, 1, 1], np.float32)}, "a weight is NaN or infinite"),
        ({"bias": np.float32(np.inf)}, "a bias is NaN or infinite"),
        ({"bias": np.zeros(2, np.float32)}, r"bias is of shape \(2,\); .* one number, or 3, one for each output"),
        ({"outputs": 0}, "both widths must be at least 1"),
    ],
)
def test_unsound_layers_are_refused(layer, change, message):
    assert layer.check("x") is layer
    refuses(message, replace(layer, **change).check, "x")


@pytest.mark.parametrize(
    ("matrix", "bias", "message"),
    [
        (np.array([[1e39]]), 0.0, "a weight is NaN or infinite"),
        (np.array([[1j]]), 0.0, "complex128 are not real"),
        (np.ones(3), 0.0, "not an array of 1 dimensions"),
        (np.ones((2, 2)), np.nan, "a bias is NaN"),
        (np.ones((2, 2)), [1.0, 2.0, 3.0], "one for each output; a matrix is"),
        *((np.ones((2, 2)), bias, "is not a number or a vector of numbers") for bias in ("1", 1j, [None, 1.0])),
    ],
)
def test_unsound_matrices_are_refused(matrix, bias, message):
    refuses(message, Layer.from_matrix, matrix, bias)


def test_widths_must_chain():
    matrices = [np.ones((2, 3)), np.ones((4, 2))]
    refuses("layer 2 takes 4 inputs but layer 1 has 3 outputs", from_matrices, matrices, last="relu")
    refuses("at least one layer", MemoryNetwork, [])
    refuses("2 biases for 1 layers", from_matrices, [np.ones((2, 3))], bias=[1, 2], last="relu")


def test_the_last_activation_must_be_given():
    with pytest.raises(TypeError, match="required keyword-only argument: 'last'"):
        from_matrices([np.eye(2)])  # pyright: ignore[reportCallIssue]
    refuses("last activation None is not known: it must be 'relu' or 'none'", from_matrices, [np.eye(2)], last=None)


@pytest.mark.parametrize(
    "matrices", [np.eye(3), sp.eye_array(3, format="csr"), np.matrix(np.eye(3)), "w.npz", Path("w.npz"), None, 5]
)
def test_matrices_are_a_list(matrices):
    refuses(r"list of matrices", from_matrices, matrices, last="relu")


def test_no_bias_is_a_bias_of_zero():
    for none, zero in (([None, 1.0], [0.0, 1.0]), (None, 0.0)):
        one, same = (from_matrices([np.eye(3)] * 2, bias=bias, last="relu") for bias in (none, zero))
        assert one.sha256() == same.sha256()


@pytest.mark.parametrize("kind", [">f2", ">f4", ">f8", ">i2", ">i4", ">u8"])
@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo", "bsr", "dia"])
def test_numbers_of_another_byte_order(kind, form):
    numbers = np.arange(12).reshape(3, 4)
    matrix = numbers.astype(kind)
    if form != "dense":
        matrix = sp.csr_array(numbers).asformat(form)
        matrix.data = matrix.data.astype(kind)
    same = from_matrices([numbers], [np.arange(4)], last="relu")
    assert from_matrices([matrix], [np.arange(4, dtype=kind)], last="relu").sha256() == same.sha256()
    assert np.array_equal(Inputs.from_array(matrix).dense(np.arange(3)), numbers)
    if form != "dense":
        assert np.array_equal(SparseMatrix.from_scipy(matrix).to_dense(), numbers)


def test_first_layers_and_identity():
    network = from_matrices([np.eye(3), np.eye(3), 2 * np.eye(3)], last="relu")
    assert network.first(2).depth == 2
    assert network.first(2).edges == 6
    assert network.first(2).identity() != network.identity()
    assert from_matrices([np.eye(3)], last="relu").identity() != from_matrices([2 * np.eye(3)], last="relu").identity()
    refuses("4 layers asked for; the network has 1 to 3", network.first, 4)


@pytest.mark.parametrize(("name", "ymax"), [("tanh", None), ("relu", 0.0), ("relu", np.inf), ("none", 3.0)])
def test_activations(name, ymax):
    refuses("activation '", Activation, name, ymax)


@pytest.mark.parametrize(
    ("bias", "activation", "keeps"),
    [(0.0, Activation("relu"), True), (-1.0, Activation("relu"), True), (0.1, Activation("relu"), False),
     (0.0, Activation("none"), True), (-1.0, Activation("none"), False)],
)  # fmt: skip
def test_when_zeros_stay_zeros(bias, activation, keeps):
    assert Layer.from_matrix(np.eye(2), bias, activation).header.keeps_zero is keeps
    assert Layer.from_matrix(np.eye(2), [0.0, bias], activation).header.keeps_zero is keeps


def test_a_clip_is_a_float_and_half_precision_is_read():
    whole, real = (Layer.from_matrix(np.eye(2, dtype=np.float16), 0.0, Activation("relu", clip)) for clip in (32, 32.0))
    assert whole.sha256() == real.sha256()


def damaged():
    """SciPy matrices with an index or an offset that lies outside; SciPy follows some of them out of their arrays."""
    for form in ("csr", "csc"):
        for name, place, value in (("indices", 1, 9), ("indices", 0, -1), ("indptr", 1, 7), ("indptr", 2, 0)):
            matrix = sp.random_array((4, 4), density=0.5, rng=np.random.default_rng(1), format=form)
            getattr(matrix, name)[place] = value
            yield matrix
    for axis in (0, 1):
        for value in (-1, 4):
            matrix = sp.random_array((4, 4), density=0.5, rng=np.random.default_rng(1), format="coo")
            matrix.coords[axis][2] = value
            yield matrix
    for offset in (5, -5, 1 << 40, -(1 << 63)):
        matrix = sp.dia_array((np.ones((1, 4)), [1]), shape=(4, 4))
        matrix.offsets = np.array([offset])
        yield matrix
    matrix = sp.dia_array((np.ones((1, 4)), [1]), shape=(4, 4))
    matrix.offsets = np.array([1, 2])  # of two diagonals, with the values of one
    yield matrix
    for form in ("csr", "csc", "bsr"):  # SciPy's own check passes over offsets that end at 0
        matrix = sp.random_array((2, 2), density=1, format=form)
        matrix.indptr = np.array([0, 1_000_000, 0])
        yield matrix
    matrix = sp.random_array((4, 4), density=0.5, rng=np.random.default_rng(1), format="coo")
    matrix.data = matrix.data[:3]
    yield matrix
    for rows, values in (([0, 9], [1.0, 1.0]), ([0, 1], [1.0])):
        matrix = sp.lil_array((4, 4))
        matrix.rows[1], matrix.data[1] = rows, values
        yield matrix
    matrix = sp.dok_array((4, 4))
    matrix[1, 1] = 1
    matrix._dict[7, 7] = 1.0
    yield matrix


@pytest.mark.parametrize("matrix", list(damaged()), ids=lambda matrix: matrix.format)
def test_a_damaged_scipy_matrix_is_refused_before_it_is_read(matrix):
    refuses("matrix 1: this sparse matrix is damaged: ", Layer.from_matrix, matrix, where="matrix 1")
    refuses("inputs are not a sound sparse matrix: ", Inputs.from_array, matrix)
    refuses("this SciPy matrix is damaged: ", SparseMatrix.from_scipy, matrix)
