"""The oracle: the specification line by line, in SciPy and float64. Slow, obvious, and shared with no engine.

    Y <- min(max(Y W + b, 0), YMAX)

Weights and biases are as rounded to float32; every product and sum is float64. The bias is added to every output: the
same as the specification's "nonzeros of Y W only" when no bias is positive. An input whose row is zero contributes
nothing to Y W, and its next row is activation(b): it is set to that directly, and no sum is computed for it. A sum past
float32 is an error here as it is in every engine.

How far float32 may be from it is found out beside it. A float32 sum of n products, in any order, is the exact sum of
the same products with weights that are off by at most gamma = n u / (1 - n u), u = 2^-24, relative. So the same layers
are gone through once more with every weight and bias off by that much, signs drawn; and all sums off by sqrt(n) u in
one direction too, for where features are alike, sums round alike, and no mean takes that away. What comes out differs
from the exact rows as far as rounding can move them, through clips, dead rows and layers that amplify, within a factor
that `FACTOR` holds. A bound that is certain, |W| e for each layer, grows past the values themselves within a few layers
of weights of both signs, and would let everything pass.
Sources: Kepner et al., "Sparse Deep Neural Network Graph Challenge", HPEC 2019, section II; Higham, "Accuracy and
Stability of Numerical Algorithms", 2002, section 3.1 (gamma, any order of summation); Higham and Mary, "A New Approach
to Probabilistic Rounding Error Analysis", SISC 41(5), 2019 (sqrt(n) u); Parker, "Monte Carlo Arithmetic", 1997 (a
second run with drawn rounding errors).
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

import numpy as np

from spdnn.core import progress
from spdnn.core import sparse as sp
from spdnn.core.errors import past_float32
from spdnn.core.features import Inputs
from spdnn.core.network import Layer, Network
from spdnn.core.result import KeptInputs, Result, RowStatistics
from spdnn.core.threads import threads

CHUNK_BYTES = 64 << 20  # of one float64 copy of the features
BLOCK = 128  # inputs that a thread takes through a layer; smaller blocks are slower where few inputs are left
PAST_FLOAT32 = 2.0**128 - 2.0**103  # the least number that float32 rounds to an infinity
ROUNDING = 2.0**-24  # u of float32
# A right value is at most so many times as far from the exact one as the copy with drawn errors is (its own distance,
# or the root mean square of its row, whichever is more). Measured on 1,690 random networks in four engines: at most
# 4.6 times, in tiny networks; 0.2 times where sums have 32 terms (tests/runs/verify/test_tolerance.py).
FACTOR = 16
LEAST = 64  # values that a mean square is taken of; of smaller networks, over several inputs and copies
WIDE, MOST = 256, 8  # neurons of which one copy says enough; copies of narrower networks
ULPS = 4 * ROUNDING  # of the value itself, at least


class Tolerances(NamedTuple):
    """How far a right float32 result may be from the oracle's, of each input gone through.

    Attributes:
        numbers: int64, ascending, the inputs (0-based).
        value: float64, of any value of the last row, at most; whole: float64, of the sum of a row.
        kept: int64, ascending: the inputs whose values are kept, all of which are alive or not in the oracle.
        values, each: float32 (kept, outputs): the oracle's values, and the tolerance of each.
    """

    numbers: np.ndarray
    value: np.ndarray
    whole: np.ndarray
    kept: np.ndarray
    values: np.ndarray
    each: np.ndarray


def forward(
    network: Network,
    rows: np.ndarray,
    tell: Callable[[int, int], None] = lambda layer, left: None,
    copies: int = 0,
    seed: int = 0,
    workers: int | None = None,
) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """The last rows that follow from first rows. The number of workers changes no bit: a sum belongs to one input, and
    errors are drawn for weights.

    Args:
        rows: (count, neurons), any real dtype.
        tell: as of execute.advance.
        copies: with errors drawn from `seed`, that go through the layers too.
        workers: threads; None: as many as this process may use cores.

    Returns:
        float64 (count, outputs); int64 (layers,), rows with a nonzero after each layer; and the last rows of each copy.

    Raises:
        SpdnnError: a sum is past float32.
    """
    # Features lie by neurons, so that a sparse matrix times a block reads rows of the block.
    starts = range(0, max(1, len(rows)), BLOCK)
    blocks = [np.ascontiguousarray(rows[start : start + BLOCK].T, dtype=np.float64) for start in starts]
    # Blocks (neurons, inputs) of each run: number 0 is exact, the others have drawn errors.
    of_copies, random = [blocks] * (1 + copies), np.random.default_rng(seed)
    survivors = np.zeros(network.depth, np.int64)
    with ThreadPoolExecutor(workers or threads(None)) as pool:
        # The exact rows and the copies go through a layer together, so that each layer is read once.
        for k, layer in enumerate(network.layers()):
            weights = layer.matrix(np.float64).T.tocsr()
            bias = np.broadcast_to(layer.bias, layer.outputs).astype(np.float64)
            futures = []
            for number, blocks in enumerate(of_copies):
                step = partial(_next, layer, *(_off(weights, bias, random) if number else (weights, bias)))
                futures.append([pool.submit(step, block, None if number else k) for block in blocks])
            of_copies = [[block.result() for block in blocks] for blocks in futures]
            survivors[k] = alive = sum(int(np.count_nonzero(block.any(axis=0))) for block in of_copies[0])
            tell(k + 1, alive)
    exact, *drawn = (np.ascontiguousarray(np.concatenate(blocks, axis=1).T) for blocks in of_copies)
    return exact, survivors, drawn


def _next(
    layer: Layer, weights: "sp.csr_array", bias: np.ndarray, y: np.ndarray, number: int | None = None
) -> np.ndarray:
    """Features (outputs, inputs) after a layer, of those before it; a sum past float32 is an error of a layer that has
    a `number` (0-based).
    """
    # Inputs whose row is zero need no product: their next row is the activation of the bias.
    low, high, nonzero = layer.activation.low, layer.activation.high, y.any(axis=0)
    product = weights @ (y if nonzero.all() else y[:, nonzero])
    product += bias[:, None]
    if number is not None and max(product.max(initial=0.0), -product.min(initial=0.0)) >= PAST_FLOAT32:
        raise past_float32(number)
    # The check comes before the clip, which would hide an overflow.
    np.clip(product, low, high, out=product)
    if nonzero.all():
        return product
    y = np.repeat(np.clip(bias, low, high)[:, None], nonzero.size, axis=1)
    y[:, nonzero] = product
    return y


def _off(weights: "sp.csr_array", bias: np.ndarray, random: np.random.Generator) -> tuple["sp.csr_array", np.ndarray]:
    """Weights and bias that are off by gamma of the sums that they are in, up or down, and by sqrt(n) u, all up."""
    edges = np.diff(weights.indptr)
    terms = edges + 2.0  # the bias, and the rounding of what is stored
    gamma, common = terms * ROUNDING / (1 - terms * ROUNDING), np.sqrt(terms) * ROUNDING

    def off(values: np.ndarray, gamma: np.ndarray, common: np.ndarray) -> np.ndarray:
        signs = 2.0 * random.integers(0, 2, values.size, np.int8) - 1
        return values * (1 + signs * gamma) + np.abs(values) * common

    # Each edge is off by as much as the sum of its output may be, which grows with the number of terms.
    data = off(weights.data, np.repeat(gamma, edges), np.repeat(common, edges))
    return sp.csr_array((data, weights.indices, weights.indptr), shape=weights.shape), off(bias, gamma, common)


def tolerances(exact: np.ndarray, drawn: list[np.ndarray]) -> np.ndarray:
    """float64 (count, outputs): how far each value of the rows may be off, from copies with drawn errors."""
    # How far the copies are from the exact rows is a draw: the mean square of the row says where it was lucky.
    apart = np.abs(np.stack([value - exact for value in drawn]))
    square = np.mean(apart**2, axis=(0, 2))  # of each row
    if len(drawn) * exact.shape[1] < LEAST:  # too few values for a mean: those of all inputs, relative to their rows
        size = np.abs(exact).max(axis=1) ** 2
        share = np.mean(square[size > 0] / size[size > 0]) if size.any() else 0.0
        square = np.maximum(square, share * size)
    return FACTOR * np.maximum(apart.max(axis=0), np.sqrt(square)[:, None]) + ULPS * np.abs(exact)


def infer(network: Network, inputs: Inputs, values: bool | np.ndarray = False, workers: int | None = None) -> Result:
    """The oracle's result; `values`: as of Options; `workers`: as of `forward`.

    Raises:
        InputError: the inputs' width is not the network's.
        SpdnnError: a sum is past float32.
    """
    return _propagate(network, inputs, None, KeptInputs(values), None, False, workers)[0]


def judge(
    network: Network, inputs: Inputs, rows: np.ndarray | None, drawn: np.ndarray, stage: str | None = None
) -> tuple[Result, Tolerances]:
    """As `infer`, and how far a right result may be from it; with the values of the inputs `drawn` (int64, ascending)
    among those gone through. The result numbers inputs as the whole does, and its `inputs` counts those gone through.

    Args:
        rows: the inputs to go through (0-based, ascending); None: all.
        stage: what progress calls it; None: an inference, as of any engine.
    """
    return _propagate(network, inputs, rows, KeptInputs(drawn), stage, True)


def _propagate(
    network: Network,
    inputs: Inputs,
    rows: np.ndarray | None,
    keep: KeptInputs,
    stage: str | None,
    judging: bool,
    workers: int | None = None,
) -> tuple[Result, Tolerances | None]:
    inputs.check_width(network.inputs)
    rows = inputs.numbers_of(0, inputs.count) if rows is None else np.asarray(rows, dtype=np.int64)
    headers = [network.header(k) for k in range(network.depth)]
    edges = [header.edges for header in headers]
    # Errors are drawn for weights, not for inputs: where few neurons pass them on, one draw says little.
    narrowest = min([rows.size * network.outputs, *(header.outputs for header in headers[:-1])])
    copies = min(max(1, WIDE // narrowest), MOST) if judging else 0
    # In chunks, whose copies fit in memory.
    chunk = max(1, CHUNK_BYTES // (8 * network.width * (1 + copies)))
    survivors, alive, statistics, kept_values, bounds = np.zeros(network.depth, np.int64), [], [], [], []
    with progress.Inference(progress.edges_passed(edges), rows.size, -(-rows.size // chunk), stage) as steps:
        for start in range(0, rows.size, chunk):
            numbers = rows[start : start + chunk]
            first = inputs.dense(numbers, np.float64)
            y, alive_after, drawn = forward(network, first, steps.batch(numbers.size), copies, start, workers)
            survivors += alive_after
            nonzero = np.flatnonzero(y.any(axis=1))
            alive.append(numbers[nonzero])
            statistics.append(RowStatistics.of(y[nonzero]))
            # Values and their tolerances only for the inputs drawn; all others by sums and extremes.
            if judging:
                each, wanted = tolerances(y, drawn), np.isin(numbers, keep.of)
                values = y[wanted].astype(np.float32), each[wanted].astype(np.float32)
                bounds.append(Tolerances(numbers, each.max(axis=1), each.sum(axis=1), numbers[wanted], *values))
            elif keep:
                rows_kept = keep.rows(numbers[nonzero], nonzero, len(y)) if keep.of is not True else nonzero
                kept_values.append((numbers[rows_kept], y[rows_kept].astype(np.float32)))
    valued, values = map(np.concatenate, zip(*kept_values, strict=True)) if kept_values else (None, None)
    # Edges computed: rows alive before each layer, as any engine counts them.
    result = Result(
        rows.size if inputs.numbers is None else inputs.total,
        network.outputs,
        np.concatenate(alive),
        *RowStatistics.join(statistics),
        survivors,
        int(np.concatenate([[rows.size], survivors[:-1]]) @ edges),
        values,
        None if keep.of is True else valued,
    )
    return result, Tolerances(*map(np.concatenate, zip(*bounds, strict=True))) if judging else None
