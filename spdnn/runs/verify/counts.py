"""Are the counts of a result possible? What a run counted, layer by layer, against its network.

A record asks more, for it knows the reductions too (spdnn/runs/records/result.py).
"""

from collections.abc import Iterator

import numpy as np

from spdnn.core.network import Network
from spdnn.core.result import Result


def faults(network: Network, result: Result, layer_edges: np.ndarray | None = None) -> Iterator[str]:
    """A sentence for each thing that is wrong with the survivors of a result and the counts of its layers.

    Args:
        network: before reductions.
        layer_edges: of a row in each layer, as the network was prepared; None: not known.
    """
    survivors, depth, counts = result.survivors, network.depth, result.counts
    if survivors.shape != (depth,):
        yield f"there are {survivors.size} numbers of active inputs for {depth} layers"
        return
    headers = [network.header(k) for k in range(depth)]
    into = np.concatenate([[result.inputs], survivors[:-1]])
    # Survivors: the last are the inputs that are left, and where zeros stay zeros none comes back.
    if survivors[-1] != result.alive.size:
        yield f"{survivors[-1]} inputs are active after the last layer, and {result.alive.size} rows are left"
    back = (survivors > into) & np.array([header.keeps_zero for header in headers])
    if back.any() or survivors.max() > result.inputs or survivors.min() < 0:
        k = int(back.argmax())
        yield f"after layer {k + 1} {survivors[k]} inputs are active, and {into[k]} were before it"
    # Layers that rows went through.
    if counts is None:
        yield "the engine counted no layers"
        return
    rows, edges, computed, sparse = counts
    if any(array.shape != (depth,) or (array < 0).any() for array in (rows, edges, computed)):
        yield f"the engine did not count {depth} layers"
        return
    source, distinct = np.array([header.edges for header in headers]), np.unique(result.row_hash).size
    for wrong, what in (
        (edges > source, "has more edges than the network's"),
        (edges != (edges if layer_edges is None else layer_edges), "has other edges than were prepared"),
        (rows < distinct, f"had fewer rows than the {distinct} different ones that are left"),
        ((into > 0) & ((rows == 0) | ((edges > 0) & (computed == 0) & (not sparse))), "was not gone through"),
        (rows > result.inputs, "had more rows than there are inputs"),
        ((computed > rows * edges) if sparse else (computed < rows * edges), "did not take all rows through all edges"),
    ):
        if wrong.any():
            k = int(wrong.argmax())
            yield f"layer {k + 1} {what}: {rows[k]} rows of {edges[k]} edges, {computed[k]} computed, {into[k]} inputs"
    if int(computed.sum()) != result.edges_computed:
        yield f"{result.edges_computed} edges were computed, and {computed.sum()} in the layers"
