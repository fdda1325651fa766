"""What callers do that is nobody's plan: odd arrays and numbers, memory that is shared, processes that fork."""

import subprocess
import sys

import jax.numpy as jnp
import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from spdnn import ops
from spdnn.core.errors import Unavailable
from spdnn.kernels import _cpu


def dense(*shape, dtype=np.float32):
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


Q, K, X, W = dense(5, 3), dense(6, 3), dense(1, 2, 4, 4), dense(2, 3, 3)
HALF = dense(6, 2, dtype=np.float16)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda A: ops.spmm(A, dense(6, 2), activation=(0, 10**400)), 'it must be None, "relu" or a pair'),
        (lambda A: ops.sddmm(A, Q, K, 10**400), "it must be a finite number of float32"),
        (lambda A: ops.sddmm(A, Q, K, 1e300), r"scale 1e\+300: it must be a finite number of float32"),
        (lambda A: ops.depthwise_conv(X, W, stride=1.0), "stride 1.0: it must be 1 or 2"),
        (lambda A: ops.depthwise_conv(X, W, stride=np.ones(2)), "it must be 1 or 2"),
        (lambda A: ops.depthwise_conv(X, W, layout=np.array(["a", "b"])), "it must be NCHW or NHWC"),
        (lambda A: ops.spmm(A, jnp.zeros((6, 2), jnp.bfloat16)), "B is of bfloat16; it must be of float32 or float16"),
        (lambda A: ops.spmm(A, np.ndarray), "B is a type; it must be an array"),
        (lambda A: ops.spmm(A, np.ma.masked_array(dense(6, 2), True)), "B is a masked array; its filled"),
        (lambda A: ops.SparseMatrix.from_dense(np.ma.masked_array(dense(6, 2), True)), "matrix is a masked array"),
        (lambda A: ops.SparseMatrix.from_dense([[1.0, 2.0], [3.0]]), r"the dense matrix is no array \("),
        (lambda A: ops.SparseMatrix.from_dense(dense(6, 2), 0.5, "random", seed=-1), "seed -1: it must be a whole num"),
        (lambda A: ops.SparseMatrix.from_dense(dense(6, 2), 0.5, "random", seed="x"), "seed 'x': it must be a whole"),
        (lambda A: ops.spmm_gradients(A, HALF, dense(5, 2)), "B is of float16, and the sparse matrix of float32"),
        (lambda A: ops.spmm_gradients(A, dense(7, 2), dense(5, 2)), r"B has shape \(7, 2\); A of 5 x 6 needs 6 rows"),
        (lambda A: ops.spmm_gradients(A.with_values(dense(2, 9)), K, Q), "A is a batch of 2 matrices; gradients are"),
        (lambda A: ops.sddmm_gradients(A, dense(5, 2), dense(5, 2)), "a mask of 5 x 6 needs 5 and 6 rows"),
        (lambda A: ops.sddmm_gradients(A, dense(5, 2), HALF), "K of float16"),
        (lambda A: ops.sddmm_gradients(A, dense(5, 2), dense(2, 6, 2), 1e300), "it must be a finite number of float32"),
    ],
)
def test_one_sentence(random_matrix, call, sentence):
    refuses(sentence, call, random_matrix(5, 6, 9))


class Strange:
    """An array of a library that raises what it likes, and that may have a lazy negation."""

    def __init__(self, error=None):
        self.error = error

    def is_neg(self):
        return self.error is None

    def __dlpack__(self, **_):
        return dense(6, 2).__dlpack__()

    def __dlpack_device__(self):
        raise self.error


@pytest.mark.parametrize("error", [ValueError("of\nmeta"), NotImplementedError("of\nmeta"), AttributeError("of\nmeta")])
def test_what_another_library_raises_becomes_one_sentence(random_matrix, error):
    refuses(r"^B: its DLPack cannot be read \(of meta\)$", ops.spmm, random_matrix(5, 6, 9), Strange(error))


def test_a_sign_that_torch_is_yet_to_turn_is_not_lost(random_matrix):
    refuses("B is a torch tensor with a lazy negation", ops.spmm, random_matrix(5, 6, 9), Strange())


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_subclasses_are_plain_arrays():
    plain = np.where(dense(5, 6) > 0, dense(5, 6), 0)
    A = ops.SparseMatrix.from_dense(np.asmatrix(plain))
    assert A.batch is None
    assert (A.to_dense() == plain).all()
    assert (ops.spmm(A, np.asmatrix(dense(6, 3))) == ops.spmm(A, dense(6, 3))).all()


def test_numbers_of_numpy_are_numbers():
    assert ops.SparseMatrix.from_dense(dense(4, 8), np.float32(0.75), "random", np.int64(3)).nnz == 8


def test_one_infinity_does_not_hide_another_value_that_does_not_fit():
    both = sp.csr_array(np.array([[np.inf, 1e300]]))
    refuses(r"a value of 1e\+300 does not fit into float32", ops.SparseMatrix.from_scipy, both)


@pytest.mark.parametrize("bits", [16, 32])
def test_a_topology_is_not_changed_through_scipy(bits):
    given = sp.csr_array(np.array([[0, 1, 2], [3, 0, 4]], np.float32))
    given.data[1] = 0
    A = ops.SparseMatrix.from_scipy(given, index_bits=bits)
    for theirs in (given, A.to_scipy()):
        theirs.eliminate_zeros()
        assert A.topology == ops.Topology((2, 3), [0, 2, 4], [1, 2, 0, 2])


def test_out_of_a_softmax_is_the_values_or_apart_from_them(random_matrix):
    A = random_matrix(5, 6, 9)
    memory = np.empty(10, np.float32)
    memory[:9] = A.values
    inside = A.with_values(memory[:9])
    refuses("out shares a part of its memory with an operand", ops.softmax, inside, out=memory[1:])
    expected = ops.softmax(A).values
    assert (ops.softmax(inside, out=memory[:9]).values == expected).all()


def test_gradients_of_no_columns_are_zero(random_matrix):
    A = random_matrix(5, 6, 9)
    dA, dB = ops.spmm_gradients(A, dense(6, 0), dense(5, 0))
    assert (dA.values == 0).all()
    assert dB.shape == (6, 0)


def test_a_scale_beyond_float16_gives_infinities_without_a_warning(recwarn):
    dS = ops.SparseMatrix(ops.Topology((1, 1), [0, 1], [0]), np.ones(1, np.float16))
    dQ, _ = ops.sddmm_gradients(dS, np.ones((1, 1), np.float16), np.ones((1, 1), np.float16), 1e6)
    assert dQ[0, 0] == np.inf
    assert not recwarn.list


def test_without_a_gpu_values_are_not_moved_there(random_matrix, monkeypatch):
    class Cupy:
        @staticmethod
        def asarray(array):
            raise RuntimeError("no\ndriver")

    monkeypatch.setitem(sys.modules, "cupy", Cupy)
    with pytest.raises(Unavailable, match=r"^CuPy cannot use a GPU: no driver$"):
        random_matrix(5, 6, 9).to("cuda")


def test_the_kernels_write_where_they_are_told_or_not_at_all(random_matrix):
    A, level, bias = random_matrix(5, 6, 9), _cpu.levels()[0].name, np.zeros(5, np.float32)
    apart = np.zeros((1, 4, 5), np.float32).transpose(0, 2, 1)  # not contiguous: a copy would be written, and lost
    where = A.topology.offsets, A.topology.columns, A.topology.order
    with pytest.raises(TypeError):
        _cpu.spmm(level, *where, A.values[None], dense(1, 6, 4), bias, -1, 1, apart, 64, True, 1)
    with pytest.raises(TypeError):
        _cpu.bias_activation(level, apart, bias, -1, 1, 1)


FORKED = """
import os, signal
import numpy as np
from spdnn import ops
from spdnn.ops import cpu, tuning

cpu.LEAST_SHARED = 0
random = np.random.default_rng(1)
A = ops.SparseMatrix.from_dense(random.standard_normal((50, 60)), 0.7)
B, Q, X, W = (random.standard_normal(s).astype("f") for s in ((60, 50), (50, 50), (2, 3, 8, 8), (3, 3, 3)))


def results():
    return [
        ops.spmm(A, B, threads=2),
        ops.sddmm(A, Q, B, threads=2).values,
        ops.softmax(A, threads=2).values,
        ops.transpose(A, threads=2).values,
        ops.attention(A, Q, B, B, threads=2),
        ops.depthwise_conv(X, W, threads=2),
    ]


expected = results()
with tuning._lock:
    child = os.fork()
    if child == 0:
        signal.alarm(300)
        tuning.LEAST_OPERATIONS = 0
        os._exit(0 if all((one == other).all() for one, other in zip(results(), expected)) else 1)
    assert os.waitpid(child, 0)[1] == 0
assert all((one == other).all() for one, other in zip(results(), expected))
"""


def test_a_forked_process_waits_neither_for_threads_nor_for_a_lock_that_it_has_not():
    told = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, timeout=600)
    assert told.returncode == 0, told.stderr
