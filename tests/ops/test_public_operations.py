"""The public operations on the processor, against the oracle; and what they refuse."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from refusals import refuses

from spdnn import ops
from spdnn.ops import oracle
from spdnn.ops.backend import Backend
from spdnn.ops.cpu import CpuBackend

SHAPES = [(11, 55, 8, 200), (7, 96, 40, 333), (1, 1, 1, 1), (5, 4, 3, 0), (9, 1, 17, 5), (1, 64, 65, 30)]
KINDS = [(np.float32, 16), (np.float32, 32), (np.float16, 16), (np.float16, 32)]
every_kind = pytest.mark.parametrize(("dtype", "bits"), KINDS, ids=lambda kind: getattr(kind, "__name__", str(kind)))
every_shape = pytest.mark.parametrize(("rows", "columns", "width", "nonzeros"), SHAPES)


def dense(*shape, dtype=np.float32, seed=7):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def assert_within(got, exact, magnitude, terms):
    """`got`, of its dtype, lies as near to `exact` as sums of so many float32 products must."""
    allowed = oracle.tolerance(magnitude, terms, got.dtype)
    assert got.shape == exact.shape
    assert (np.abs(got.astype(np.float64) - exact) <= allowed).all()


def assert_product(A, B, got, bias=None, low=-math.inf, high=math.inf):
    exact = oracle.spmm(A.topology, A.values, B, bias, low, high)
    size = None if bias is None else np.abs(bias)
    assert_within(got, exact, oracle.spmm(A.topology, np.abs(A.values), np.abs(B), size), A.shape[1] + 1)


@every_kind
@every_shape
def test_spmm(random_matrix, rows, columns, width, nonzeros, dtype, bits):
    A, B = random_matrix(rows, columns, nonzeros, dtype=dtype, index_bits=bits), dense(columns, width, dtype=dtype)
    assert_product(A, B, ops.spmm(A, B))
    bias = dense(rows)
    got = ops.spmm(A, B, bias, "relu", threads=1)
    assert_product(A, B, got, bias, 0)
    assert got.dtype == dtype
    clipped = ops.spmm(A, B, bias, (-0.5, 0.25), threads=3)
    assert_product(A, B, clipped, bias, -0.5, 0.25)


@every_kind
def test_spmm_of_batches(random_matrix, dtype, bits):
    shared, own = (random_matrix(7, 20, 60, batch=batch, dtype=dtype, index_bits=bits) for batch in (None, 3))
    one, many = dense(20, 10, dtype=dtype), dense(3, 20, 10, dtype=dtype)
    for A, B in ((shared, many), (own, many), (own, one)):
        got = ops.spmm(A, B)
        assert got.shape == (3, 7, 10)
        for place in range(3):
            matrix = A if A.batch is None else A.with_values(A.values[place])
            alone = ops.spmm(matrix, B if B.ndim == 2 else B[place])
            assert (alone == got[place]).all()
            assert_product(matrix, B if B.ndim == 2 else B[place], alone)


@every_kind
@pytest.mark.parametrize("depth", [1, 17, 64, 300])
def test_sddmm(random_matrix, dtype, bits, depth):
    mask = random_matrix(11, 55, 200, index_bits=bits)
    q, k = dense(11, depth, dtype=dtype), dense(55, depth, dtype=dtype, seed=8)
    S = ops.sddmm(mask, q, k, 0.5)
    assert S.topology is mask.topology
    exact, size = oracle.sddmm(mask.topology, q, k, 0.5), oracle.sddmm(mask.topology, np.abs(q), np.abs(k), 0.5)
    assert_within(S.values, exact, size, depth)
    batch = ops.sddmm(mask.topology, np.stack([q, 2 * q]), k, 0.5)
    assert (batch.values[0] == S.values).all()
    assert (batch.values[1] == ops.sddmm(mask, 2 * q, k, 0.5).values).all()


@every_kind
def test_softmax(random_matrix, dtype, bits):
    A = random_matrix(9, 40, 90, dtype=dtype, index_bits=bits, batch=2)
    for scale in (1.0, -3.0, 0.0):
        got = ops.softmax(A, scale).values.astype(np.float64)
        allowed = 1e-6 if dtype == np.float32 else 1e-3
        np.testing.assert_allclose(got, oracle.softmax(A.topology, A.values, scale), rtol=allowed, atol=1e-7)


def test_softmax_of_masked_scores(random_matrix):
    A = random_matrix(4, 10, 20)
    first = slice(A.topology.offsets[0], A.topology.offsets[1])
    values = A.values.copy()
    values[first][0] = -np.inf
    got = ops.softmax(A.with_values(values)).values
    np.testing.assert_allclose(got, oracle.softmax(A.topology, values), rtol=1e-6)
    assert got[0] == 0
    values[first] = -np.inf
    refuses("all of its values are -inf", ops.softmax, A.with_values(values))


@every_kind
def test_transpose(random_matrix, dtype, bits):
    A = random_matrix(11, 55, 200, dtype=dtype, index_bits=bits, batch=2)
    turned = ops.transpose(A)
    assert (turned.to_dense() == A.to_dense().swapaxes(1, 2)).all()
    assert ops.transpose(turned).topology == A.topology
    assert (ops.transpose(turned).values == A.values).all()


@every_kind
@pytest.mark.parametrize("fused", [True, False])
def test_attention(random_matrix, dtype, bits, fused):
    mask = random_matrix(20, 33, 200, index_bits=bits)
    q, k, v = (
        dense(2, size, width, dtype=dtype, seed=n) for n, (size, width) in enumerate(((20, 16), (33, 16), (33, 9)))
    )
    got = ops.attention(mask, q, k, v, fused=fused)
    exact = np.stack([oracle.attention(mask.topology, q[n], k[n], v[n], 0.25) for n in range(2)])
    allowed = 2e-6 if dtype == np.float32 else 2e-3 if fused else 6e-3
    np.testing.assert_allclose(got.astype(np.float64), exact, rtol=0, atol=allowed * np.abs(v).max())
    assert got.dtype == dtype
    alone = ops.attention(mask.topology, q[1], k[1], v[1], 0.25, fused=fused)
    assert (alone == got[1]).all()


def test_attention_of_a_row_that_sees_nothing_is_zero():
    mask = ops.Topology((3, 4), [0, 2, 2, 3], [0, 1, 3])
    got = ops.attention(mask, dense(3, 5), dense(4, 5), dense(4, 6))
    assert (got[1] == 0).all()
    assert (got[0] != 0).any()


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_depthwise_conv(layout, stride, dtype):
    for images, channels, height, width in ((1, 1, 1, 1), (2, 3, 5, 7), (1, 24, 14, 9)):
        x = dense(images, channels, height, width, dtype=dtype)
        weights, bias = dense(channels, 3, 3, dtype=dtype, seed=1), dense(channels, seed=2)
        nhwc = layout == "NHWC"
        given = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if nhwc else x
        got = ops.depthwise_conv(given, weights, bias, "relu", stride, layout)
        exact = oracle.depthwise_conv(given, weights, bias, 0, math.inf, stride, nhwc)
        size = oracle.depthwise_conv(np.abs(given), np.abs(weights), np.abs(bias), stride=stride, nhwc=nhwc)
        assert_within(got, exact, size, 10)


def test_gradients_are_those_of_the_dense_products(random_matrix):
    A, B, dC = random_matrix(6, 9, 20), dense(9, 4), dense(6, 4, seed=1)
    dA, dB = ops.spmm_gradients(A, B, dC)
    where = A.topology.row_numbers, A.topology.columns
    np.testing.assert_allclose(dA.values, (dC @ B.T)[where], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dB, A.to_dense().T @ dC, rtol=1e-5, atol=1e-6)
    q, k = dense(6, 5, seed=2), dense(9, 5, seed=3)
    dS = ops.sddmm(A, dense(6, 5, seed=4), dense(9, 5, seed=5))
    dQ, dK = ops.sddmm_gradients(dS, q, k, 0.5)
    np.testing.assert_allclose(dQ, 0.5 * dS.to_dense() @ k, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(dK, 0.5 * dS.to_dense().T @ q, rtol=1e-5, atol=1e-5)


def test_bits_depend_on_neither_threads_nor_tuning(random_matrix, monkeypatch):
    A, B = random_matrix(300, 400, 12000), dense(400, 900)
    monkeypatch.setenv("SPDNN_TUNING", "off")
    plain = ops.spmm(A, B, threads=1)
    monkeypatch.setenv("SPDNN_TUNING", "on")
    for threads in (1, 2, 3):
        assert (ops.spmm(A, B, threads=threads) == plain).all()


def test_outputs_start_at_a_cache_line(random_matrix):
    A = random_matrix(5, 6, 9)
    assert ops.spmm(A, dense(6, 7)).ctypes.data % 64 == 0


@every_kind
def test_results_are_written_where_the_caller_wants_them(random_matrix, dtype, bits):
    A, B = random_matrix(5, 6, 9, dtype=dtype, index_bits=bits), dense(6, 7, dtype=dtype)
    q, k, x = dense(5, 3, dtype=dtype), dense(6, 3, dtype=dtype), dense(2, 3, 4, 4, dtype=dtype)
    calls = [
        lambda out: ops.spmm(A, B, out=out),
        lambda out: ops.sddmm(A, q, k, out=out),
        lambda out: ops.softmax(A, out=out),
        lambda out: ops.transpose(A, out=out),
        lambda out: ops.attention(A, q, k, B, out=out),
        lambda out: ops.attention(A, q, k, B, fused=False, out=out),
        lambda out: ops.depthwise_conv(x, dense(3, 3, 3, dtype=dtype), out=out),
    ]
    for call in calls:
        new = getattr(call(None), "values", call(None))
        out = np.full(new.shape, 9, dtype)
        result = call(out)
        assert result is out or np.shares_memory(result.values, out)
        assert (out == new).all()
    values = A.values.copy()
    mine = A.with_values(values)
    assert (ops.softmax(mine, out=values).values == ops.softmax(A).values).all()


B, MEMORY = dense(6, 7), np.zeros(100, np.float32)
Q, K, X, W = dense(5, 3), dense(6, 3), dense(1, 2, 4, 4), dense(2, 3, 3)
HALF = dense(6, 2, dtype=np.float16)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda A: ops.spmm(B, B), "A is a ndarray; it must be a SparseMatrix"),
        (lambda A: ops.spmm(A, B[:5]), r"B has shape \(5, 7\); A of 5 x 6 needs 6 rows"),
        (lambda A: ops.spmm(A, B[0]), "B has 1 dimensions; it must have 2 or 3"),
        (lambda A: ops.spmm(A, B.tolist()), "B is a list; it must be an array"),
        (lambda A: ops.spmm(A, B.astype(float)), "B is of float64; it must be of float32 or float16"),
        (lambda A: ops.spmm(A, B.astype(np.float16)), "B is of float16, and the sparse matrix of float32"),
        (lambda A: ops.spmm(A, dense(6, 14)[:, ::2]), "B is not C-contiguous"),
        (lambda A: ops.spmm(A, dense(7, 6).T), "B is not C-contiguous"),
        (
            lambda A: ops.spmm(A, np.zeros(25, np.uint8)[1:].view("f").reshape(6, 1)),
            "B starts at .* multiple of 4 bytes",
        ),
        (lambda A: ops.spmm(A, B, dense(6)), r"bias has shape \(6,\); it must be \(5,\)"),
        (lambda A: ops.spmm(A, B, dense(5, dtype=np.float16)), "bias is of float16; it must be of float32"),
        (lambda A: ops.spmm(A, B, activation="gelu"), "activation 'gelu': it must be None, \"relu\" or a pair"),
        (lambda A: ops.spmm(A, B, activation=(1, 0)), "low must be at most high"),
        (lambda A: ops.spmm(A, B, activation=(0, math.nan)), "low must be at most high"),
        (lambda A: ops.spmm(A, B, threads=0), "threads 0: an integer from 1 to 1024"),
        (lambda A: ops.spmm(A, B, threads=True), "threads True: an integer from 1 to 1024"),
        (lambda A: ops.spmm(A, np.full((6, 7), np.nan, np.float32)), "the product is NaN somewhere"),
        (lambda A: ops.spmm(A.with_values(dense(2, 9)), dense(3, 6, 7)), "different sizes: A has 2, B has 3"),
        (lambda A: ops.spmm(A, B, out=dense(5, 6)), r"out is \(5, 6\) on cpu; it must be \(5, 7\) on cpu"),
        (lambda A: ops.spmm(A, B, out=dense(5, 7, dtype=np.float16)), "out is of float16; it must be of float32"),
        (lambda A: ops.spmm(A, B, out=np.broadcast_to(np.float32(1), (1, 7))), "out is"),
        (lambda A: ops.spmm(A, MEMORY[:42].reshape(6, 7), out=MEMORY[40:75].reshape(5, 7)), "shares memory"),
        (lambda A: ops.transpose(A, out=A.values), "shares memory"),
        (lambda A: ops.softmax(A, out=np.frombuffer(bytes(36), np.float32)), "out is read-only"),
        (lambda A: ops.sddmm(B, B, B), "mask is a ndarray; it must be a SparseMatrix or a Topology"),
        (lambda A: ops.sddmm(A, Q, Q), "a mask of 5 x 6 needs 5 and 6 rows"),
        (lambda A: ops.sddmm(A, Q, dense(6, 4)), "Q has 3 columns and K 4"),
        (lambda A: ops.sddmm(A, dense(5, 0), dense(6, 0)), "Q has 0 columns and K 0"),
        (lambda A: ops.sddmm(A, Q, K, math.inf), "scale inf: it must be a finite number"),
        (lambda A: ops.sddmm(A, Q, K, "big"), "scale 'big': it must be a finite number"),
        (lambda A: ops.sddmm(A, Q, K.astype(np.float16)), "Q is of float32 on cpu, and K of float16"),
        (lambda A: ops.sddmm(A, np.full((5, 3), np.nan, np.float32), K), "is NaN somewhere"),
        (lambda A: ops.softmax(B), "A is a ndarray"),
        (lambda A: ops.transpose(B), "A is a ndarray"),
        (lambda A: ops.attention(A, Q, K, Q), "V has shape .*needs 6 rows"),
        (lambda A: ops.attention(A, Q, K, dense(2, 6, 3)[:0]), "V is a batch of no matrices"),
        (lambda A: ops.depthwise_conv(B, B), "X has 2 dimensions; it must have 4"),
        (lambda A: ops.depthwise_conv(X, dense(3, 3, 3)), r"needs \(2, 3, 3\)"),
        (lambda A: ops.depthwise_conv(X, W, stride=3), "stride 3: it must be 1 or 2"),
        (lambda A: ops.depthwise_conv(X, W, layout="CHWN"), "layout 'CHWN': it must be NCHW or NHWC"),
        (lambda A: ops.spmm_gradients(A, B, B), r"dC has shape \(6, 7\); it must be \(5, 7\), as C"),
        (lambda A: A.to("tpu"), 'device \'tpu\': it must be "cpu" or "cuda"'),
        (lambda A: ops.linear(dense(4, 5), A), r"X has shape \(4, 5\); A of 5 x 6 needs 6 columns"),
        (lambda A: ops.linear(dense(1, 4, 6), A), "X has 3 dimensions; it must have 2"),
        (lambda A: ops.linear(dense(4, 6, dtype=np.float16), A), "X is of float16, and the sparse matrix of float32"),
        (lambda A: ops.linear(np.full((4, 6), np.nan, np.float32), A), "the product is NaN somewhere"),
        (lambda A: ops.linear(dense(4, 6), A.with_values(A.values[None])), "A is a batch of 1"),
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
        (lambda A: ops.sddmm_gradients(A, dense(5, 2), dense(2, 6, 2), 1e300), "it must be a finite number of float32"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_sentence(random_matrix, call, sentence):
    refuses(sentence, call, random_matrix(5, 6, 9))


def test_the_tolerance_is_the_standard_bound():
    assert oracle.tolerance(1.0, 2) == pytest.approx((4 + 3) * 2**-24)
    assert oracle.tolerance(3.0, 2, np.float16) == pytest.approx(3 * (4 * 2**-24 + 2**-11 + 2**-23) + 2**-24)


@every_kind
@every_shape
def test_linear_is_the_product_turned_over(random_matrix, rows, columns, width, nonzeros, dtype, bits):
    A = random_matrix(rows, columns, nonzeros, dtype=dtype, index_bits=bits)
    X, bias = np.random.default_rng(1).standard_normal((width, columns)).astype(dtype), np.ones(rows, np.float32)
    expected = ops.spmm(A, np.ascontiguousarray(X.T), bias, "relu").T
    out = np.empty((width, rows), dtype)
    assert ops.linear(X, A, bias, "relu", out=out) is out
    assert (out == expected).all()
    Backend.linear(CpuBackend(2), A.topology, A.values, X, bias, 0.0, np.inf, out)  # as a GPU does it
    assert (out == expected).all()
