"""What the engine `spgemm` decides before it runs: batches within the memory, the cost of a search for equal rows."""

from functools import partial

import numpy as np

from spdnn.core.features import Inputs
from spdnn.core.network import Header, Network, index_dtype
from spdnn.core.result import LastLayer
from spdnn.engines.base import Options
from spdnn.engines.memory import RunSizes, limit_bytes, plan_batches, process_bytes, process_sentence
from spdnn.kernels import dispatch

NONZERO_BYTES = 8  # a column and a value
ROW_BYTES = 256  # what each row needs besides: indices, hashes, representatives, statistics
SMALL_BYTES = 4 << 20  # stacks of threads, small objects: 1.2 MB were seen beyond all that is counted
# What a search for equal rows costs in multiply-adds, about: to hash a nonzero; to sort and compare a row.
SEARCH_NONZERO, SPARSE_SEARCH_ROW = 4, 400
SEARCH_SHARE = 0.03  # of the work ahead that a search may cost: equal rows are common where rows are sparse


def batches(network: Network, inputs: Inputs, options: Options, panel: int, shared: bool = False) -> tuple[int, bool]:
    """As `plan_batches`, within the memory allowed, were every row full; `shared`: the weights are in memory by input
    neuron already."""
    headers = [network.header(k) for k in range(network.depth)]
    weights = tuple(bytes_by_input(header) for header in headers)
    # Whatever the batch: the accumulators of all threads; of layers the one in use, the next one as it is read and by
    # input, and the arrays that reading it needs.
    held = SMALL_BYTES + 4 * max(header.nbytes for header in headers) + 2 * max(weights)
    widths = max(header.inputs for header in headers), max(header.outputs for header in headers)
    held += options.threads * dispatch.compiled_module().SpgemmWorkspace.bytes_of(*widths, panel)
    held += process_bytes(inputs, options.keep, LastLayer(network).outputs)
    one_row = 2 * NONZERO_BYTES * network.width + ROW_BYTES
    sizes = RunSizes(inputs.count, 1, weights, one_row, held, 0 if shared else None)
    # Weights stay where what they leave takes some rows for each thread.
    limit = limit_bytes(options.memory)
    sentence = partial(process_sentence, limit, " for one input at a time", f"{options.threads} threads")
    return plan_batches(sizes, limit, sentence, 64 * options.threads)


def bytes_by_input(header: Header) -> int:
    """Bytes of a layer's arrays when they are by input neuron, and of the counters that put them so."""
    edge = index_dtype(header.outputs).itemsize + (0 if header.single_value else 4)
    return header.edges * edge + 16 * (header.inputs + 1) + 4 * np.size(header.bias)
