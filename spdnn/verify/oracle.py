"""The oracle: the specification line by line, in SciPy and float64. Slow, obvious, and shared with no engine.

    Y <- min(max(Y W + b, 0), YMAX)

Weights and biases are as rounded to float32; every product and sum is float64. The bias is added to every output: the
same as the specification's "nonzeros of Y W only" when no bias is positive. An input whose row is zero contributes
nothing to Y W, and its next row is activation(b): it is set to that directly, and no sum is computed for it. A sum past
float32 is an error here as it is in every engine.
Source: Kepner et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019, section II.
"""

import numpy as np

from spdnn.common import progress
from spdnn.common.errors import past_float32
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network
from spdnn.problem.result import Result, RowStatistics

CHUNK_BYTES = 64 << 20  # of one float64 copy of the features
PAST_FLOAT32 = 2.0**128 - 2.0**103  # the least number that float32 rounds to an infinity


def forward(
    network: Network, rows: np.ndarray, stage: progress.Inference | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The last rows that follow from first rows.

    Args:
        rows: (count, neurons), any real dtype.
        stage: counts each layer; this is its next batch.

    Returns:
        float64 (count, outputs), and int64 (layers,): rows with a nonzero after each layer.

    Raises:
        SpdnnError: a sum is past float32.
    """
    y = np.ascontiguousarray(rows.T, dtype=np.float64)  # neurons x inputs, as SciPy multiplies fastest
    survivors = np.zeros(network.depth, np.int64)
    if stage:
        stage.begin(len(rows))
    for k, layer in enumerate(network.layers()):
        weights = layer.matrix(np.float64).T.tocsr()
        bias = np.broadcast_to(layer.bias, layer.outputs).astype(np.float64)[:, None]
        low, high = layer.activation.low, layer.activation.high
        nonzero = y.any(axis=0)
        product = weights @ (y if nonzero.all() else y[:, nonzero])
        product += bias
        if product.max(initial=0.0) >= PAST_FLOAT32 or product.min(initial=0.0) <= -PAST_FLOAT32:
            raise past_float32(k)
        np.clip(product, low, high, out=product)
        if nonzero.all():
            y = product
        else:
            y = np.repeat(np.clip(bias, low, high), nonzero.size, axis=1)
            y[:, nonzero] = product
        survivors[k] = np.count_nonzero(y.any(axis=0))
        if stage:
            stage.computed += np.count_nonzero(nonzero) * layer.edges
            stage.at(k + 1, int(survivors[k]))
    return np.ascontiguousarray(y.T), survivors


def infer(
    network: Network, inputs: Inputs, rows: np.ndarray | None = None, values: bool = False, stage: str | None = None
) -> Result:
    """The oracle's result for all inputs, or for the inputs `rows` (0-based, ascending) alone.

    The result numbers inputs as the whole does; `inputs` of the result counts those gone through.

    Args:
        stage: what progress calls it; None: an inference, as of any engine.

    Raises:
        InputError: the inputs' width is not the network's.
        SpdnnError: a sum is past float32.
    """
    inputs.check_width(network.inputs)
    rows = inputs.numbered(0, inputs.count) if rows is None else np.asarray(rows, dtype=np.int64)
    chunk = max(1, CHUNK_BYTES // (8 * network.width))
    survivors, alive, statistics, kept = np.zeros(network.depth, np.int64), [], [], []
    edges = [network.header(k).edges for k in range(network.depth)]
    with progress.Inference(progress.Course.of(edges, edges), rows.size, -(-rows.size // chunk), stage) as steps:
        for start in range(0, rows.size, chunk):
            numbers = rows[start : start + chunk]
            y, alive_after = forward(network, inputs.dense(numbers, np.float64), steps)
            survivors += alive_after
            nonzero = np.flatnonzero(y.any(axis=1))
            alive.append(numbers[nonzero])
            statistics.append(RowStatistics.of(y[nonzero]))
            if values:
                kept.append(y[nonzero].astype(np.float32))
    return Result(
        rows.size if inputs.numbers is None else inputs.total,
        network.outputs,
        np.concatenate(alive),
        *RowStatistics.joined(statistics),
        survivors,
        int(np.concatenate([[rows.size], survivors[:-1]]) @ edges),
        np.concatenate(kept) if values else None,
    )
