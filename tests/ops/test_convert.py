"""Ways in and out: SciPy, dense matrices and pruning, DLPack, torch, .smtx."""

import importlib.util
import types

import numpy as np
import pytest
import scipy.sparse as sp
from engine_cases import Exported
from refusals import refuses

from spdnn import ops
from spdnn.ops.arrays import operand


def test_scipy_there_and_back():
    matrix = sp.random_array((7, 96), density=0.3, format="csr", rng=np.random.default_rng(1), dtype=np.float32)
    A = ops.SparseMatrix.from_scipy(matrix)
    assert np.shares_memory(A.values, matrix.data)
    assert (A.to_scipy() != matrix).nnz == 0
    assert np.shares_memory(A.to_scipy().data, matrix.data)
    for kind in ("csc", "coo", "lil", "bsr", "dia"):
        assert (ops.SparseMatrix.from_scipy(matrix.asformat(kind)).to_dense() == matrix.toarray()).all()


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr"])
def test_what_lies_behind_the_last_entry_is_no_entry(kind):
    matrix = sp.random_array((6, 6), density=0.4, format=kind, rng=np.random.default_rng(1), dtype=np.float32)
    dense = matrix.toarray()
    matrix.indices = np.append(matrix.indices, matrix.indices[:3])
    matrix.data = np.append(matrix.data, matrix.data[:3], axis=0)
    assert (ops.SparseMatrix.from_scipy(matrix).to_dense() == dense).all()
    assert len(matrix.indices) == len(matrix.data) > matrix.indptr[-1]  # the caller's stays as it is


def test_stored_zeros_stay():
    A = ops.SparseMatrix.from_scipy(sp.csr_array((np.zeros(2, np.float32), [0, 2], [0, 1, 2]), shape=(2, 3)))
    assert A.nnz == 2


def test_entries_of_a_coo_matrix_may_have_any_order():
    A = ops.SparseMatrix.from_scipy(sp.coo_array(([1.0, 2.0, 3.0], ([1, 0, 1], [2, 1, 0])), shape=(2, 3)))
    assert A.to_dense().tolist() == [[0, 2, 0], [3, 0, 1]]


DOUBLES = sp.csr_array(np.array([[0.1, 0], [0, 70000.0]]))


def test_values_are_rounded_to_what_is_offered():
    assert ops.SparseMatrix.from_scipy(DOUBLES).values[0] == np.float32(0.1)
    assert ops.SparseMatrix.from_scipy(DOUBLES).astype(np.float32).values.dtype == np.float32


@pytest.mark.parametrize(
    ("matrix", "options", "sentence"),
    [
        (sp.csr_array(([1.0, 2.0], [2, 0], [0, 2, 2])), {}, "row 0 has column 0 after column 2; columns must ascend"),
        (sp.coo_array(([1.0, 2.0], ([1, 1], [2, 2]))), {}, "row 1 has column 2 twice"),
        (DOUBLES, {"dtype": np.float16}, "a value of 70000 does not fit into float16"),
        (DOUBLES, {"dtype": np.float64}, "must be float32 or float16"),
        (DOUBLES.astype(np.complex64), {}, "values are of complex64; they must be real numbers"),
        (sp.csr_array([[np.nan, 1.0]]), {}, "values hold NaN"),
        (sp.csr_array([[np.inf, 1e300]]), {}, r"a value of 1e\+300 does not fit into float32"),
    ],
)
def test_what_of_scipy_is_refused(matrix, options, sentence):
    refuses(sentence, ops.SparseMatrix.from_scipy, matrix, **options)


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (np.zeros(4, np.float32), r"values have shape \(4,\); a matrix of 5 nonzeros needs \(5,\)"),
        (np.zeros((2, 4), np.float32), r"values have shape \(2, 4\)"),
        (np.zeros((0, 5), np.float32), r"values have shape \(0, 5\)"),
        (np.zeros((1, 2, 5), np.float32), "values has 3 dimensions; it must have 1 or 2"),
        (np.zeros(5), "values is of float64; it must be of float32 or float16"),
        ([0.0] * 5, "values is a list; it must be an array"),
        (np.zeros(10, np.float32)[::2], "values is not C-contiguous"),
        (np.zeros(24, np.uint8)[1:21].view(np.float32), "no multiple of 4 bytes"),
    ],
)
def test_values_that_do_not_fit_are_refused(random_matrix, values, sentence):
    refuses(sentence, random_matrix(3, 4, 5).with_values, values)


def test_pruning_keeps_the_largest():
    dense = np.array([[1.0, -5.0, 0.5], [3.0, -2.0, 4.0]])
    A = ops.SparseMatrix.from_dense(dense, sparsity=0.5)
    assert A.to_dense().tolist() == [[0, -5, 0], [3, 0, 4]]
    equal = ops.SparseMatrix.from_dense(np.ones((2, 3)), sparsity=0.5)
    assert equal.to_dense().tolist() == [[1, 1, 1], [0, 0, 0]]
    assert ops.SparseMatrix.from_dense(dense).nnz == 6
    assert ops.SparseMatrix.from_dense(np.array([[0.0, 2.0]])).nnz == 1
    assert ops.SparseMatrix.from_dense([[False, True, True]], sparsity=1 / 3).to_dense().tolist() == [[0, 1, 1]]


def test_random_pruning_is_drawn_with_its_seed():
    dense = np.ones((20, 30))
    one, same, other = (ops.SparseMatrix.from_dense(dense, 0.8, "random", seed=seed) for seed in (1, 1, 2))
    assert one.nnz == 120
    assert one.topology == same.topology
    assert one.topology != other.topology


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((np.ones((2, 2)), 1.0), "sparsity 1.0: it must be a number from 0 to below 1"),
        ((np.ones((2, 2)), "most"), "sparsity 'most'"),
        ((np.ones((2, 2)), 0.5, "luck"), "method 'luck': it must be one of magnitude, random"),
        ((np.ones(3),), "two dimensions of real numbers, not 1 of float64"),
        (([[np.nan, 1.0]],), "holds NaN or an infinity"),
    ],
)
def test_what_cannot_be_pruned_is_refused(arguments, sentence):
    refuses(sentence, ops.SparseMatrix.from_dense, *arguments)


def test_a_batch_shares_its_topology(random_matrix):
    A = random_matrix(5, 6, 7, batch=3)
    assert (A.batch, A.to_dense().shape) == (3, (3, 5, 6))
    assert A.to_dense()[1][A.topology.row_numbers, A.topology.columns].tolist() == A.values[1].tolist()
    refuses("a batch of 3 matrices is no SciPy matrix", A.to_scipy)


def test_smtx_there_and_back(tmp_path, random_matrix):
    A = random_matrix(11, 55, 60)
    A.to_smtx(tmp_path / "a.smtx")
    B = ops.SparseMatrix.from_smtx(tmp_path / "a.smtx", A.values)
    assert B.topology == A.topology
    assert np.shares_memory(B.values, A.values)
    assert (tmp_path / "a.smtx").read_text().startswith("11, 55, 60\n0 ")
    one, other = (ops.SparseMatrix.from_smtx(tmp_path / "a.smtx", seed=seed).values for seed in (0, 1))
    assert one.shape == other.shape
    assert (one != other).any()


def test_unsound_positions_in_an_smtx_file_are_told_with_its_name(tmp_path):
    (tmp_path / "a.smtx").write_text("1, 3, 2\n0 2\n2 1\n")
    refuses(r"a.smtx: row 0 has column 1 after column 2", ops.SparseMatrix.from_smtx, tmp_path / "a.smtx")


def test_dlpack_is_read_without_a_copy():
    array = np.ones((3, 4), np.float32)
    assert np.shares_memory(operand(Exported(array), "B").array, array)


@pytest.mark.needs("jax")
def test_arrays_of_jax_are_taken():
    import jax.numpy as jnp

    assert operand(jnp.ones((3, 4), jnp.float32), "B").array.tolist() == np.ones((3, 4)).tolist()
    refuses("B is of int32; it must be of float32 or float16", operand, jnp.ones((3, 4), jnp.int32), "B")


def test_other_devices_are_refused():
    class Elsewhere(Exported):
        def __dlpack_device__(self):
            return (10, 0)  # ROCm

    refuses("neither the processor nor an NVIDIA GPU", operand, Elsewhere(np.ones(3, np.float32)), "B")


# torch brings gigabytes of libraries for GPUs: it is tested where it happens to be, and a stand-in of what is used of
# it everywhere.
class Tensor:
    device = types.SimpleNamespace(type="cpu")

    def __init__(self, array, layout="dense", coalesced=True):
        self.array, self.layout, self.coalesced = array, layout, coalesced

    shape = property(lambda self: self.array.shape)
    ndim = property(lambda self: self.array.ndim)
    dtype = property(lambda self: self.array.dtype)

    def detach(self):
        return self

    cpu = to = lambda self, *_: self

    def numpy(self):
        return self.array

    def __ne__(self, other):
        return Tensor(self.array != other)

    def is_coalesced(self):
        return self.coalesced

    def crow_indices(self):
        return Tensor(self.array.indptr.astype(np.int64))

    def col_indices(self):
        return Tensor(self.array.indices.astype(np.int64))

    def indices(self):
        return Tensor(np.array(self.array.coords))

    def values(self):
        return Tensor(self.array.data)


def stand_in():
    def csr(offsets, columns, values, size, device, check_invariants):
        assert device == values.device
        return Tensor(sp.csr_array((values.array, columns.array, offsets.array), shape=size), "sparse_csr")

    return types.SimpleNamespace(
        Tensor=Tensor,
        float16=np.dtype(np.float16),
        bfloat16="bfloat16",
        strided="dense",
        sparse_csr="sparse_csr",
        sparse_coo="sparse_coo",
        from_dlpack=Tensor,
        from_numpy=Tensor,
        sparse_csr_tensor=csr,
        tensor=Tensor,
        csr_of=lambda matrix: Tensor(matrix, "sparse_csr"),
        coo_of=lambda matrix, coalesced: Tensor(matrix.tocoo(), "sparse_coo", coalesced),
        dense_of=lambda matrix: matrix.array.toarray(),
    )


def real():
    import torch

    def coo(matrix, coalesced):
        entries = matrix.tocoo()
        made = torch.sparse_coo_tensor(np.array(entries.coords), entries.data, matrix.shape)
        return made.coalesce() if coalesced else made

    torch.csr_of = lambda matrix: torch.sparse_csr_tensor(matrix.indptr, matrix.indices, matrix.data, matrix.shape)
    torch.coo_of, torch.dense_of = coo, lambda tensor: tensor.to_dense().numpy()
    return torch


@pytest.fixture(params=["stand-in", *(["torch"] if importlib.util.find_spec("torch") else [])])
def torch(request, monkeypatch):
    if request.param == "torch":
        return real()
    module = stand_in()
    monkeypatch.setitem(__import__("sys").modules, "torch", module)
    return module


@pytest.fixture
def matrix():
    return sp.random_array((5, 9), density=0.4, format="csr", rng=np.random.default_rng(3), dtype=np.float32)


@pytest.mark.filterwarnings("ignore:Sparse")
def test_torch_there_and_back(torch, matrix):
    for tensor in (torch.csr_of(matrix), torch.coo_of(matrix, True), torch.tensor(matrix.toarray())):
        assert (ops.SparseMatrix.from_torch(tensor).to_dense() == matrix.toarray()).all()
    A = ops.SparseMatrix.from_scipy(matrix)
    assert (torch.dense_of(A.to_torch()) == matrix.toarray()).all()
    assert ops.SparseMatrix.from_torch(torch.tensor(matrix.toarray().astype(np.float16))).dtype == np.float16
    assert ops.SparseMatrix.from_torch(torch.tensor(matrix.toarray() > 0)).dtype == np.float32


@pytest.mark.filterwarnings("ignore:Sparse")
def test_torch_tensors_that_are_no_such_matrix(torch, matrix):
    refuses("not coalesced", ops.SparseMatrix.from_torch, torch.coo_of(matrix, False))
    refuses("no torch tensor of two dimensions", ops.SparseMatrix.from_torch, matrix.toarray())
