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

import math
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
from spdnn.core.numbers import ceil_div
from spdnn.core.resources import use_all_cores
from spdnn.core.result import KeptInputs, LayerWork, Result, RowStatistics
from spdnn.core.threads import threads

REFERENCE_BYTES = 64 << 20  # of one float64 copy of the features
DENSE = 2**20  # weights and zeros of a layer, at most, whose product may be a dense one
BLOCK_INPUTS = 128  # inputs that a thread takes through a layer; smaller blocks are slower where few inputs are left
PAST_FLOAT32 = 2.0**128 - 2.0**103  # the least number that float32 rounds to an infinity
ROUNDING, SUBNORMAL = 2.0**-24, 2.0**-149  # u of float32, and its least number
# A right value is at most so many times as far from the exact one as the copy with drawn errors is (its own distance,
# or the root mean square of its row, whichever is more). Measured on 1,690 random networks in four engines: at most
# 4.6 times, in tiny networks; 0.2 times where sums have 32 terms (tests/runs/verify/test_tolerance.py).
FACTOR = 16
LEAST_MEAN = 64  # values that a mean square is taken of; of smaller networks, over several inputs and copies
WIDE_COPY, MOST_COPIES = 256, 8  # neurons of which one copy says enough; copies of narrower networks
ULPS = 4 * ROUNDING  # of the value itself, at least
DOUBTFUL, PACE = 8, 2  # doubtful rows that may differ, however few should be left; and times as many as should be


class Forward(NamedTuple):
    """What follows from first rows.

    Attributes:
        rows: float64 (count, outputs), the last rows.
        survivors: int64 (layers,), rows with a nonzero after each layer.
        doubtful: int64 (layers,), rows that rounding may have brought to life or left dead, there or in a layer before.
        drawn: the last rows of each copy with drawn errors; drawn_survivors: int64 (copies, layers).
    """

    rows: np.ndarray
    survivors: np.ndarray
    doubtful: np.ndarray
    drawn: list[np.ndarray]
    drawn_survivors: np.ndarray


class Tolerances(NamedTuple):
    """How far a right float32 result may be from the oracle's, of each input gone through.

    Attributes:
        doubtful: int64 (layers,): by how many a right number of survivors may differ.
        numbers: int64, ascending, the inputs (0-based).
        value: float64, of any value of the last row, at most; whole: float64, of the sum of a row.
        kept: int64, ascending: the inputs whose values are kept, all of which are alive or not in the oracle.
        values, each: float32 (kept, outputs): the oracle's values, and the tolerance of each.
    """

    doubtful: np.ndarray
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
    terms: int = 0,
    dense: bool = False,
) -> Forward:
    """What follows from first rows. The number of workers changes no bit: a sum belongs to one input, and
    errors are drawn for weights.

    Args:
        rows: (count, neurons), any real dtype.
        tell: as of execute.advance.
        copies: with errors drawn from `seed`, that go through the layers too.
        workers: threads; None: as many as this process may use cores.
        terms: that a sum is taken to have at least, for the errors drawn: of merged neurons, those of the network.
        dense: multiply by small layers with their zeros: of few rows that takes less time than importing SciPy.

    Raises:
        SpdnnError: a sum is past float32.
    """
    # Features lie by neurons, so that a sparse matrix times a block reads rows of the block.
    starts = range(0, max(1, len(rows)), BLOCK_INPUTS)
    blocks = [np.ascontiguousarray(rows[start : start + BLOCK_INPUTS].T, dtype=np.float64) for start in starts]
    # Blocks (neurons, inputs) of each run: number 0 is exact, the others have drawn errors.
    of_copies, random = [blocks] * (1 + copies), np.random.default_rng(seed)
    survivors = np.zeros((1 + copies, network.depth), np.int64)
    doubtful = np.zeros(network.depth, np.int64)
    doubts = [np.zeros(block.shape[1], bool) for block in blocks]
    with ThreadPoolExecutor(workers or threads(None), initializer=use_all_cores) as pool:
        # The exact rows and the copies go through a layer together, so that each layer is read once.
        for k, layer in enumerate(network.layers()):
            # Of each edge, by outputs; `matrix` makes a matrix of such.
            values = np.broadcast_to(layer.values, layer.edges).astype(np.float64)
            matrix = partial(_matrix, layer, dense)
            bias = np.broadcast_to(layer.bias, layer.outputs).astype(np.float64)
            futures = []
            for number, blocks in enumerate(of_copies):
                # All sums are off upwards in one copy, downwards in the next.
                given = values, bias, None
                if number:
                    given = _off(values, bias, np.diff(layer.offsets), random, terms, number % 2 or -1)
                step = partial(_next, layer, matrix(given[0]), *given[1:])
                futures.append([pool.submit(step, block, None if number else k) for block in blocks])
            steps = [[block.result() for block in blocks] for blocks in futures]
            of_copies = [[step.y for step in blocks] for blocks in steps]
            survivors[:, k] = [sum(np.count_nonzero(block.any(axis=0)) for block in blocks) for blocks in of_copies]
            if copies:
                for doubt, step, *others in zip(doubts, *steps, strict=True):
                    doubt |= _doubtful(step, others, doubt)
                    doubtful[k] += np.count_nonzero(doubt)
            tell(k + 1, int(survivors[0, k]))
    exact, *drawn = (np.ascontiguousarray(np.concatenate(blocks, axis=1).T) for blocks in of_copies)
    return Forward(exact, survivors[0], doubtful, drawn, survivors[1:])


class _Step(NamedTuple):
    """Features (outputs, inputs) after a layer; of each input, before the activation, the value that decides if its row
    has a nonzero (the largest where negative ones become zero, else the largest magnitude), and the largest magnitude.
    """

    y: np.ndarray
    decides: np.ndarray
    size: np.ndarray


def _doubtful(exact: _Step, drawn: list[_Step], before: np.ndarray) -> np.ndarray:
    """bool (inputs,): whether rounding may decide if a row has a nonzero: what decides it is as near to zero as the
    copies with drawn errors are apart, within the factor of `tolerances`."""
    apart = np.max([np.abs(step.decides - exact.decides) for step in drawn], axis=0)
    # How far they are apart is a draw: the mean square of all rows, relative to their sizes, says where it was lucky.
    # Rows that were doubtful `before` may have gone another way in a copy, which is no rounding.
    sized = exact.size > 0
    alike = sized & ~before
    share = np.sqrt(np.mean(np.square(apart[alike] / exact.size[alike]))) if alike.any() else 0.0
    return sized & (np.abs(exact.decides) <= FACTOR * np.maximum(apart, share * exact.size))


def _matrix(layer: Layer, dense: bool, values: np.ndarray) -> "np.ndarray | sp.csr_array":
    """float64 (outputs, inputs), of the values of a layer's edges; `dense`: with its zeros, where these are few."""
    if not dense or layer.inputs * layer.outputs > DENSE:
        indices = layer.indices.astype(np.int32)
        return sp.csr_array((values, indices, layer.offsets), shape=(layer.outputs, layer.inputs))
    whole = np.zeros((layer.outputs, layer.inputs))
    whole[np.repeat(np.arange(layer.outputs), np.diff(layer.offsets)), layer.indices] = values
    return whole


def _next(
    layer: Layer,
    weights: "np.ndarray | sp.csr_array",
    bias: np.ndarray,
    least: np.ndarray | None,
    y: np.ndarray,
    number: int | None = None,
) -> _Step:
    """Features (outputs, inputs) after a layer, of those before it; a sum past float32 is an error of a layer that has
    a `number` (0-based). `least` is added to sums that are computed.
    """
    # Inputs whose row is zero need no product: their next row is the activation of the bias.
    low, high, nonzero = layer.activation.low, layer.activation.high, y.any(axis=0)
    product = weights @ (y if nonzero.all() else y[:, nonzero])
    product += (bias if least is None else bias + least)[:, None]
    most, fewest = product.max(axis=0, initial=-np.inf), product.min(axis=0, initial=np.inf)
    sizes = np.maximum(most, -fewest)
    if number is not None and not sizes.max(initial=0.0) < PAST_FLOAT32:  # so a NaN is an error, too
        raise past_float32(number)
    # The check comes before the clip, which would hide an overflow.
    np.clip(product, low, high, out=product)
    # Of rows that are zero nothing is rounded: their size here is 0.
    decides, size = np.zeros((2, nonzero.size))
    decides[nonzero], size[nonzero] = most if low == 0 else sizes, sizes
    if nonzero.all():
        return _Step(product, decides, size)
    y = np.repeat(np.clip(bias, low, high)[:, None], nonzero.size, axis=1)
    y[:, nonzero] = product
    return _Step(y, decides, size)


def _off(
    weights: np.ndarray,
    bias: np.ndarray,
    edges: np.ndarray,
    random: np.random.Generator,
    least_terms: int,
    direction: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Weights and bias that are off by gamma of the sums that they are in, up or down, and by sqrt(n) u, all in one
    direction (1 or -1); and what products too small for float32 lose at most, up or down.

    Args:
        weights: float64, of each edge by outputs; edges: int64, of each output.
    """
    terms = np.maximum(edges, least_terms) + 2.0  # the bias, and the rounding of what is stored
    gamma, common = terms * ROUNDING / (1 - terms * ROUNDING), np.sqrt(terms) * ROUNDING

    def off(values: np.ndarray, gamma: np.ndarray, common: np.ndarray) -> np.ndarray:
        signs = 2.0 * random.integers(0, 2, values.size, np.int8) - 1
        return values * (1 + signs * gamma) + direction * np.abs(values) * common

    # Each edge is off by as much as the sum of its output may be, which grows with the number of terms.
    off_weights = off(weights, np.repeat(gamma, edges), np.repeat(common, edges))
    least = edges * SUBNORMAL * (2.0 * random.integers(0, 2, edges.size, np.int8) - 1)
    return off_weights, off(bias, gamma, common), least


def tolerances(exact: np.ndarray, drawn: list[np.ndarray]) -> np.ndarray:
    """float64 (count, outputs): how far each value of the rows may be off, from copies with drawn errors."""
    # How far the copies are from the exact rows is a draw: the mean square of the row says where it was lucky.
    apart = np.abs(np.stack([value - exact for value in drawn]))
    square = np.mean(apart**2, axis=(0, 2))  # of each row
    if len(drawn) * exact.shape[1] < LEAST_MEAN:  # too few values for a mean: all inputs', relative to their rows
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
    network: Network,
    inputs: Inputs,
    rows: np.ndarray | None,
    drawn: np.ndarray,
    stage: str | None = None,
    dense: bool = False,
) -> tuple[Result, Tolerances]:
    """As `infer`, and how far a right result may be from it; with the values of the inputs `drawn` (int64, ascending)
    among those gone through. The result numbers inputs as the whole does, and its `inputs` counts those gone through.

    Args:
        rows: the inputs to go through (0-based, ascending); None: all.
        stage: what progress calls it; None: an inference, as of any engine.
        dense: as of `forward`.
    """
    return _propagate(network, inputs, rows, KeptInputs(drawn), stage, True, dense=dense)


def _propagate(
    network: Network,
    inputs: Inputs,
    rows: np.ndarray | None,
    keep: KeptInputs,
    stage: str | None,
    judging: bool,
    workers: int | None = None,
    dense: bool = False,
) -> tuple[Result, Tolerances | None]:
    inputs.check_width(network.inputs)
    rows = inputs.numbers_of(0, inputs.count) if rows is None else np.asarray(rows, dtype=np.int64)
    headers = [network.header(k) for k in range(network.depth)]
    edges = [header.edges for header in headers]
    # Errors are drawn for weights, not for inputs: where few neurons pass them on, one draw says little.
    narrowest = min([rows.size * network.outputs, *(header.outputs for header in headers[:-1])])
    copies = min(max(1, WIDE_COPY // narrowest), MOST_COPIES) if judging else 0
    # In chunks, whose copies fit in memory.
    chunk = max(1, REFERENCE_BYTES // (8 * network.width * (1 + copies)))
    survivors, doubtful = np.zeros((2, network.depth), np.int64)
    alive, statistics, kept_values, bounds = [], [], [], []
    with progress.Inference(progress.edges_passed(edges), rows.size, ceil_div(rows.size, chunk), stage) as steps:
        for start in range(0, rows.size, chunk):
            numbers = rows[start : start + chunk]
            first = inputs.dense(numbers, np.float64)
            y, alive_after, doubts, drawn, _ = forward(
                network, first, steps.batch(numbers.size), copies, start, workers, dense=dense
            )
            survivors += alive_after
            doubtful += doubts
            nonzero = np.flatnonzero(y.any(axis=1))
            alive.append(numbers[nonzero])
            statistics.append(RowStatistics.of(y[nonzero]))
            # Values and their tolerances only for the inputs drawn; all others by sums and extremes.
            if judging:
                each, wanted = tolerances(y, drawn), np.isin(numbers, keep.of)
                values = y[wanted].astype(np.float32), each[wanted].astype(np.float32)
                bounds.append((numbers, each.max(axis=1), each.sum(axis=1), numbers[wanted], *values))
            elif keep:
                rows_kept = keep.rows(numbers[nonzero], nonzero, len(y)) if keep.of is not True else nonzero
                kept_values.append((numbers[rows_kept], y[rows_kept].astype(np.float32)))
    valued, values = map(np.concatenate, zip(*kept_values, strict=True)) if kept_values else (None, None)
    # Edges computed: rows alive before each layer; no sum is computed for a row of zeros.
    into, edges = np.concatenate([[rows.size], survivors[:-1]]), np.array(edges, np.int64)
    result = Result(
        rows.size if inputs.numbers is None else inputs.total,
        network.outputs,
        np.concatenate(alive),
        *RowStatistics.join(statistics),
        survivors,
        int(into @ edges),
        values,
        None if keep.of is True else valued,
        counts=LayerWork(into, edges, into * edges),
    )
    if not judging:
        return result, None
    return result, Tolerances(_undecided(survivors, doubtful), *map(np.concatenate, zip(*bounds, strict=True)))


def _undecided(survivors: np.ndarray, doubtful: np.ndarray) -> np.ndarray:
    """int64 (layers,): by how many a right number of survivors may differ.

    Rows that became doubtful in a layer are taken to die as the others do from there on, at half the pace.
    """
    undecided, left = np.zeros(doubtful.size, np.int64), 0.0
    for k, fresh in enumerate(np.diff(doubtful, prepend=0)):
        left = left * (survivors[k] / survivors[k - 1] if k and survivors[k - 1] else 1.0) + fresh
        undecided[k] = min(doubtful[k], DOUBTFUL + math.ceil(PACE * left))
    return undecided
