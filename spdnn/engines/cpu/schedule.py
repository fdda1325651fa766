"""What the engine `cpu` decides: batches within the memory, layers in a pass, what a search for equal rows costs.

Costs are in vector operations for each vector of inputs, and depend on the data alone, never on the clock or the number
of threads, so that a run repeats to the bit whatever the machine does. The factors were measured (benchmarks/).
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from spdnn.core.features import Inputs
from spdnn.core.locks import cached_property
from spdnn.core.network import Network
from spdnn.engines.base import Options
from spdnn.engines.memory import RunSizes, limit_bytes, plan_batches, process_bytes, process_sentence
from spdnn.kernels.tiles import TILE_BYTES, feature_bytes

EPILOGUE = 3  # bias, activation and store of one output, against one gathered edge
ADDED = 0.4  # of that cost: the multiplication and addition, without the load that outputs of a set share
BOUNDARY = 20  # closing the gaps between two passes, and the way to memory and back, for each neuron
PASS = 16_000_000  # edges x inputs that take as long as a pass as such
FIRST_DEATHS = 0.15  # of the rows in a layer, as long as nothing is measured of them
PASS_WEIGHTS = 8 << 20  # bytes of weights that tiles of one pass go through again and again
CACHED_FEATURES = 32 << 20  # bytes of all rows' two buffers that a last-level cache holds
STEP_FEATURES = 16 << 20  # bytes of two buffers of all tiles, when they go through the layers in step
MOST_LAYERS = 128  # of a pass: a signal is answered between passes

SIGNED_NEURONS = 64  # neurons whose values sign a row at first; rows are hashed whole where signatures are equal
SEARCH, SEARCH_ROW = 400_000, 300  # of a search for identical rows: as such, and for each row (sorting its signature)
BREAK = 14  # for each neuron of a row: ending a pass for a search sends features that no cache holds through memory
HASH, COMPARE = 4, 20  # for each neuron: a row's hash, and comparing two rows
WHOLE_SHARE = 0.02  # of the work ahead of rows of equal signature, that hashing and comparing them may cost


@dataclass(frozen=True)
class Costs:
    """Of every layer of a network: arrays of numbers (layers,).

    Attributes:
        work: of one vector of inputs; `ahead` is the work from each layer to the end (layers + 1,).
        outputs, nbytes: of the layer.
    """

    work: np.ndarray
    outputs: np.ndarray
    nbytes: np.ndarray

    @classmethod
    def of(cls, network: Network) -> "Costs":
        headers = [network.header(k) for k in range(network.depth)]
        outputs = np.array([header.outputs for header in headers], dtype=np.int64)
        work = np.array([header.edges for header in headers], dtype=np.int64) + EPILOGUE * outputs
        return cls(work, outputs, np.array([header.nbytes for header in headers], dtype=np.int64))

    @cached_property
    def ahead(self) -> np.ndarray:
        return np.concatenate([np.cumsum(self.work[::-1])[::-1], [0]])

    def layers(self, k: int, tiles: int, tile: int, deaths: float, most: int) -> int:
        """How many layers, from layer k on, the tiles go through in one pass.

        Long passes keep features in the cache, and compute dead rows to their end: the length is the one with the least
        cost for each row's worth of useful work, when `deaths` of the rows die in a layer.
        """
        most = min(most, self.work.size - k)
        if most <= 1:
            return 1
        # Candidates: a pass may end after any layer up to which a tile's two buffers, and the weights, stay in cache.
        work, outputs = self.work[k : k + most], self.outputs[k : k + most]
        features = 8 * tile * np.maximum.accumulate(outputs)
        fits = (features <= TILE_BYTES) & (np.cumsum(self.nbytes[k : k + most]) <= PASS_WEIGHTS)
        # Few rows stay in the cache all together, so that their tiles go through the layers in step.
        if tiles * tile <= STEP_FEATURES // (8 * outputs[0]):
            fits |= tiles * features <= STEP_FEATURES
        fits = np.minimum.accumulate(fits)
        # Trade-off: rows that die in a pass are computed to its end, and each pass costs a start and closing the gaps.
        alive = (1 - deaths) ** np.arange(most + 1)
        cost = np.cumsum(work) + BOUNDARY * outputs * alive[1:] + PASS / (tiles * tile)
        useful = np.cumsum(work * alive[:-1])
        return 1 + int(np.argmin((cost / useful)[: max(1, int(fits.sum()))]))

    def search(self, k: int, rows: int, lanes: int, stopped: bool = False) -> tuple[float, float]:
        """(cost, work ahead) of a search for identical rows before layer k, as `layers_to_search` takes them."""
        # A search ends a pass, so features that no cache holds go through memory; where ranks meet they do anyway.
        features = 0 if stopped else rows * int(self.outputs[max(0, k - 1)])
        out_of_cache = BREAK * features / lanes if 8 * features > CACHED_FEATURES else 0
        return SEARCH + SEARCH_ROW * rows + out_of_cache, self.ahead[k] * rows / lanes

    def compares(self, k: int, rows: int, candidates: int) -> bool:
        """Whether the `candidates`, rows before layer k with the signature of another, are worth hashing and comparing
        whole."""
        # Each candidate that is merged saves its work ahead: hashing all rows and comparing those must cost far less.
        neurons = int(self.outputs[k - 1])
        return (HASH * rows + COMPARE * candidates) * neurons <= WHOLE_SHARE * candidates * self.ahead[k]


def run_sizes(network: Network, inputs: Inputs, widest: int, outputs: int, options: Options, tile: int) -> RunSizes:
    """What a run takes of this process, with what the process holds now; `widest`: outputs of the widest layer;
    `outputs`: of the last one, before identical neurons were merged."""
    # Scratch memory of kernels, at most: for each thread a tile of inputs (words of bits, or floats) and of features;
    # for all of them what goes through the layers in step.
    threads, one_input = options.threads, 8 if inputs.kind == "bits" and tile > 1 else 4 * tile
    scratch = threads * (one_input * network.inputs + min(2 * feature_bytes(1, widest, tile), TILE_BYTES))
    scratch += min(STEP_FEATURES, 2 * feature_bytes(4 * threads, widest, 1) * tile)
    held = scratch + process_bytes(inputs, options.keep, outputs)
    weights = tuple(network.header(k).nbytes for k in range(network.depth))
    stay = sum(nbytes for k, nbytes in enumerate(weights) if not network.in_memory(k))
    # Streamed weights: the layer in use, the next one, and the arrays that reading it needs.
    return RunSizes(inputs.count, tile, weights, 8 * widest, held, stay, stream_bytes=4 * max(weights))


def batches(
    network: Network, inputs: Inputs, widest: int, outputs: int, options: Options, tile: int
) -> tuple[int, bool]:
    """As `plan_batches`, within the memory allowed; arguments as `run_sizes`."""
    # Weights stay where what they leave takes a few tiles for each thread.
    sizes, limit = run_sizes(network, inputs, widest, outputs, options, tile), limit_bytes(options.memory)
    sentence = partial(process_sentence, limit, f" for one tile of {tile} inputs", f"{options.threads} threads")
    return plan_batches(sizes, limit, sentence, 4 * options.threads)
