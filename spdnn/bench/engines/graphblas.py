"""Engine `graphblas`: SuiteSparse:GraphBLAS through python-graphblas, the features sparse.

    Y <- Y W;  Y <- Y + b where Y has a value;  keep Y > 0;  Y <- min(Y, YMAX)

Layout: Y (inputs x neurons) by row and W (inputs x outputs) by row; W^T times Y^T took 1.5 to 7 times as long. A row
that became all zero has no entry and costs nothing, so `dead` is always on. Adding the bias to the entries alone is
right when no bias is positive; other layers are refused. Features without a single zero take a shorter way: the bias is
laid out first and the product added to it, into an array that is there already.
Source: Davis, Aznaveh and Kolodziej, "Write Quick, Run Fast: Sparse Deep Neural Network in 20 Minutes of Development
Time via SuiteSparse:GraphBLAS", HPEC 2019.
"""

import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from spdnn.bench.engines.library import Library, Weights
from spdnn.core.errors import Unsuitable, absent
from spdnn.core.network import Header, Layer, common_value


class GraphblasEngine(Library):
    name = "graphblas"
    summary = "SuiteSparse:GraphBLAS: sparse product with sparse features"
    value_bytes = 12  # a 64-bit index and a value
    sparse = True

    def missing(self) -> str | None:
        binding = absent("graphblas", "peers", "python-graphblas")
        return binding or absent("suitesparse_graphblas", "peers", "suitesparse-graphblas")

    def start(self, threads: int) -> dict:
        import graphblas

        graphblas.ss.config["nthreads"] = threads
        version = ".".join(map(str, graphblas.ss.about["library_version"]))
        return {
            "library": f"python-graphblas {graphblas.__version__}, SuiteSparse:GraphBLAS {version}",
            "layout": "sparse features",
            "threads_set": f"ss.config nthreads={threads}",
        }

    def check(self, header: Header, reductions: tuple[str, ...]) -> None:
        if not header.keeps_zero:
            raise Unsuitable(
                "engine graphblas keeps features sparse, and a layer of this network turns zeros into values"
            )
        if "dead" not in reductions:
            raise Unsuitable("engine graphblas leaves rows of zeros out by itself; it needs --reductions dead (or all)")

    def weights(self, layer: Layer) -> Weights:
        from graphblas import Matrix, Vector

        bias = common_value(np.atleast_1d(layer.bias))
        if np.ndim(bias):
            bias = Vector.from_dense(bias).diag()
        matrix = Matrix.ss.import_csr(**_parts(sp.csr_array(layer.matrix())))
        low, high = layer.activation.low, layer.activation.high
        return Weights(matrix, bias, low, high, layer.inputs, layer.outputs, layer.edges)

    def features(self, rows: np.ndarray) -> Any:
        from graphblas import Matrix

        # Features without a zero are stored full: no indices are read, and the product takes a faster kernel.
        if rows.all():
            return Matrix.ss.import_fullr(np.array(rows))
        return Matrix.ss.import_csr(**_parts(sp.csr_array(rows)))

    def step(self, features: Any, weights: Weights, spare: Any = None) -> Any:
        from graphblas import Matrix, binary, semiring

        # The product is an expression, evaluated only when it is assigned: bias and product can share one array.
        product = features.mxm(weights.matrix, semiring.plus_times)
        shape = features.nrows, weights.outputs
        if isinstance(weights.bias, np.float32) and features.nvals == features.nrows * features.ncols:
            y = spare if spare is not None and spare.shape == shape else Matrix(np.float32, *shape)
            y[:, :] = weights.bias
            y(binary.plus) << product
        else:
            # Sparse features: the bias is added to entries alone, which is right as no bias is positive (`check`).
            y = product.new()
            if not isinstance(weights.bias, np.float32):
                y << y.mxm(weights.bias, semiring.any_plus)  # each entry and the one bias of its column
            elif weights.bias:
                y << y.apply(binary.plus, right=weights.bias)
        # ReLU as a selection: entries that are not positive are dropped, which keeps the features sparse.
        y << (y.select(">", np.float32(0)) if weights.low == 0 else y.select("!=", np.float32(0)))
        if weights.high < np.inf:
            y << y.apply(binary.min, right=np.float32(weights.high))
        y.wait()
        return y

    def alive(self, features: Any, signed: bool) -> np.ndarray:
        from graphblas import monoid

        alive = np.zeros(features.nrows, bool)
        rows = features.reduce_rowwise(monoid.any).new().to_coo(values=False)[0]
        alive[rows] = True
        return alive

    def take(self, features: Any, kept: np.ndarray) -> Any:
        return features[np.flatnonzero(kept), :].new()

    def dense(self, features: Any) -> np.ndarray:
        return features.to_dense(fill_value=np.float32(0))

    def work(self, features: Any, weights: Weights, count: int) -> int:
        # A feature goes through the edges of its neuron: edges / inputs of them on average.
        return math.ceil(features.nvals * weights.edges / weights.inputs)


def _parts(rows: sp.csr_array) -> dict:
    """A CSR array as python-graphblas imports it."""
    return {
        "nrows": rows.shape[0],
        "ncols": rows.shape[1],
        "indptr": rows.indptr.astype(np.uint64),
        "col_indices": rows.indices.astype(np.uint64),
        "values": np.array(rows.data, np.float32),
        "sorted_cols": True,
    }
