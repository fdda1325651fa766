"""What callers do that is nobody's plan: odd arrays and numbers, memory that is shared, processes that fork."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from refusals import refuses

from spdnn import ops
from spdnn.core.errors import Unavailable
from spdnn.kernels import _cpu


def dense(*shape, dtype=np.float32):
    return np.random.default_rng(5).standard_normal(shape).astype(dtype)


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


@pytest.mark.parametrize(
    "error", [ValueError("of\nmeta"), NotImplementedError("of\nmeta"), AttributeError("of\nmeta"), None]
)
def test_what_another_library_raises_becomes_one_sentence(random_matrix, error):
    """So does a sign that torch is yet to turn."""
    sentence = r"^B: its DLPack cannot be read \(of meta\)$" if error else "B is a torch tensor with a lazy negation"
    refuses(sentence, ops.spmm, random_matrix(5, 6, 9), Strange(error))


@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_subclasses_are_plain_arrays():
    plain = np.where(dense(5, 6) > 0, dense(5, 6), 0)
    A = ops.SparseMatrix.from_dense(np.asmatrix(plain))
    assert A.batch is None
    assert (A.to_dense() == plain).all()
    assert (ops.spmm(A, np.asmatrix(dense(6, 3))) == ops.spmm(A, dense(6, 3))).all()


def test_numbers_of_numpy_are_numbers():
    assert ops.SparseMatrix.from_dense(dense(4, 8), np.float32(0.75), "random", np.int64(3)).nnz == 8


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
