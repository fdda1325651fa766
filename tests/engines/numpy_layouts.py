"""The compiled layouts of weights for GPUs (spdnn/kernels/cpu/layouts.cpp) in NumPy and SciPy.

The same arguments and results, some fifty times slower; every step on arrays of all edges at once.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse as sp

from spdnn.core.network import index_dtype
from spdnn.kernels.cuda.sliced import CHUNK, NO_OUTPUT, PIECES, SHARED, SLICE, VECTOR

# Of a gather, in issue slots of a multiprocessor for one warp: 16 in which shared memory delivers 512 bytes, or the
# instructions (4 multiply-adds for each output, and some 6 more), whichever is more; what shares little stays as it is.
COST = {1: 16, 2: 18, 4: 24}
CHAINED = 3 / 8
MOST_PAIRS = 1 << 24  # of sets that read the same input: beyond it, sets are not walked


@dataclass(frozen=True)
class Weights:
    """A layer's arrays, as compiled code takes them: all but the values of edges are as in Layer.

    Attributes:
        values: of the edges, where `valued`.
        numbers: uint64 (inputs,), random; a hash of inputs is the sum of theirs.
    """

    offsets: np.ndarray
    indices: np.ndarray
    values: np.ndarray
    valued: bool
    numbers: np.ndarray

    @property
    def inputs(self) -> int:
        return self.numbers.size

    @property
    def outputs(self) -> int:
        return self.offsets.size - 1


def sliced_layout(offsets, indices, values, valued, numbers, zero, most_shared) -> tuple:
    """(shared, order, starts, indices, values): of a Sliced; values are None where edges have one."""
    layer = Weights(offsets, indices, values, valued, numbers)
    # Sorting by degree makes slices even, for each is as wide as its widest group; a stable sort keeps neighbours.
    groups = group_outputs(layer, most_shared)
    groups = groups.reorder(np.argsort(-groups.degrees, kind="stable"), SLICE)
    gathers = groups.gathers(layer)
    starts, where = _positions(gathers.group // SLICE, gathers.group % SLICE, gathers.step, len(groups.order) // SLICE)
    return _fill(layer, groups, gathers, starts, where, gathers.index, zero, index_dtype(zero + 1))


def staged_layout(offsets, indices, values, valued, numbers, outputs, room, held, most_shared) -> tuple:
    """(slices, stages, map_starts, map, room): of a Staged, slices as `sliced_layout` has them."""
    layer = Weights(offsets, indices, values, valued, numbers)
    # Parts: neighbours share inputs, so a part's footprint is small. Inside it groups are sorted by degree, and dealt
    # out so that the slices of a warp have about as many gathers.
    groups = group_outputs(layer, most_shared)
    in_part = outputs // groups.shared
    groups = groups.reorder(np.arange(len(groups.order)), in_part)
    by_degree = np.lexsort((-groups.degrees, np.arange(len(groups.order)) // in_part))
    rounds = by_degree.reshape(-1, held // groups.shared, in_part * groups.shared // held // SLICE, SLICE)
    groups = groups.reorder(rounds.swapaxes(1, 2).reshape(-1), in_part)
    gathers, parts = groups.gathers(layer), len(groups.order) // in_part
    sizes, footprint, rank = _footprints(gathers.group // in_part, gathers.index.astype(np.int64), parts, layer.inputs)
    # Stages: as few as the room allows; of equal height, or all full but the last, whichever needs fewer chunks.
    counts = np.maximum(1, -(-sizes // room))
    equal = np.maximum(1, -(-sizes // counts))
    heights = [equal] if counts.max(initial=1) == 1 else [equal, np.minimum(sizes.clip(1), room)]
    cuts = [_cut(gathers, in_part, rank, sums(counts), height) for height in heights]
    height, starts, where = min(cuts, key=lambda cut: int(cut[1][-1]))
    # Indices into a stage have 16 bits; the map says which input neuron is at each place of each stage.
    part, room = gathers.group // in_part, int(height.max(initial=1))
    inside = rank % height[part] * PIECES
    filled = _fill(layer, groups, gathers, starts, where, inside, room * PIECES, np.dtype(np.uint16))
    place = np.arange(int(sizes.sum())) - np.repeat(sums(sizes)[:-1], sizes)
    stage = np.repeat(sums(counts)[:-1], sizes) + place // np.repeat(height, sizes)
    map_starts = sums(np.bincount(stage, minlength=int(counts.sum())))
    return filled, sums(counts).astype(np.int32), map_starts.astype(np.int32), footprint, room


@dataclass(frozen=True)
class Gathers:
    """What groups of outputs read.

    Attributes:
        group, index, step: of each gather its group, its input, and its number in the group; ascending.
        edges, member, of: edges of the layer; of each its output's number in the group, and its gather.
    """

    group: np.ndarray
    index: np.ndarray
    step: np.ndarray
    edges: np.ndarray
    member: np.ndarray
    of: np.ndarray


@dataclass(frozen=True)
class Groups:
    """Groups of outputs, in order.

    Attributes:
        order: int32 (groups, shared), outputs, NO_OUTPUT for none, which comes last in a group.
        degrees: int64 (groups,), inputs that each reads.
        alike: all outputs of a group read the same inputs.
    """

    order: np.ndarray
    degrees: np.ndarray
    alike: bool

    @property
    def shared(self) -> int:
        return self.order.shape[1]

    def reorder(self, chosen: np.ndarray, multiple: int) -> "Groups":
        """These groups in that order, and empty ones up to a multiple of so many."""
        # Padding: empty groups fill the last slice or part, so that kernels need no case for it.
        missing = -chosen.size % multiple
        order = np.concatenate([self.order[chosen], np.full((missing, self.shared), NO_OUTPUT, np.int32)])
        return Groups(order, np.append(self.degrees[chosen], np.zeros(missing, np.int64)), self.alike)

    def gathers(self, layer: Weights) -> Gathers:
        edges, position, step = edges_of(layer, self.order.reshape(-1))
        group, member, index = position // self.shared, position % self.shared, layer.indices[edges]
        # Outputs that are alike: the gathers are the edges of the first, and all others have the same places.
        if self.alike:
            first, begins = member == 0, sums(self.degrees)[:-1]
            return Gathers(group[first], index[first], step[first], edges, member, begins[group] + step)
        # Else a group gathers the union of its inputs, in ascending order.
        keys, of = self.unions(layer, edges, position)
        group, index = np.divmod(keys, layer.inputs)
        return Gathers(group, index, np.arange(keys.size) - sums(self.degrees)[group], edges, member, of)

    def unions(self, layer: Weights, edges: np.ndarray, position: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(keys, of): group * inputs + input of all that groups read, ascending; and of each edge its key's place."""
        keys, of = np.unique(position // self.shared * layer.inputs + layer.indices[edges], return_inverse=True)
        return keys, of.reshape(-1)


def group_outputs(layer: Weights, most_shared: int) -> Groups:
    """The layer's outputs in groups of `most_shared` at most, by the least COST."""
    # Sets of outputs with the same inputs, each by its first output, in an order in which neighbours share inputs.
    order, same = _sets(layer)
    degrees = np.diff(layer.offsets)
    heads = np.flatnonzero(~same)
    walk, common = _walk(layer, order[heads])
    sizes = np.diff(np.append(heads, order.size))[walk]
    reads = degrees[order[heads]][walk]
    sets = np.repeat(np.arange(walk.size), sizes)
    member = np.arange(order.size) - np.repeat(sums(sizes)[:-1], sizes)
    order = order[np.repeat(heads[walk], sizes) + member]
    # Cost model: all gathers of groups of one, two or four outputs, a set whose size is no multiple being filled up.
    costs = {(n, True): COST[n] * int((-(-sizes // n) * reads).sum()) for n in SHARED if n <= most_shared}
    if most_shared > 1 and layer.valued and walk.size == order.size:
        # Neighbours two by two: the second of each pair reads what the first does not.
        costs[2, False] = COST[2] * int(reads.sum() - common[1::2].sum())
    # Sets in groups of the cheapest size, or neighbours two by two.
    shared, alike = min(costs, key=costs.__getitem__)
    if alike:
        filled = -(-sizes // shared)  # groups of each set
        begins = sums(filled)
        outputs = np.full(int(begins[-1]) * shared, NO_OUTPUT, np.int32)
        outputs[begins[sets] * shared + member] = order
        return Groups(outputs.reshape(-1, shared), np.repeat(reads, filled), True)
    outputs = np.full(-(-order.size // 2) * 2, NO_OUTPUT, np.int32)
    outputs[: order.size] = order
    groups = Groups(outputs.reshape(-1, 2), np.zeros(outputs.size // 2, np.int64), False)
    keys, _ = groups.unions(layer, *edges_of(layer, outputs)[:2])
    return replace(groups, degrees=np.bincount(keys // layer.inputs, minlength=outputs.size // 2))


def edges_of(layer: Weights, order: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(edges, positions, steps): the edges of the outputs in `order`, the position of each one's output, and which
    edge of its output it is."""
    real = order != NO_OUTPUT
    degrees = np.zeros(order.size, np.int64)
    degrees[real] = np.diff(layer.offsets)[order[real]]
    begins = np.zeros(order.size, np.int64)
    begins[real] = layer.offsets[:-1][order[real]]
    position = np.repeat(np.arange(order.size), degrees)
    step = np.arange(position.size) - np.repeat(sums(degrees)[:-1], degrees)
    return begins[position] + step, position, step


def sums(counts: np.ndarray) -> np.ndarray:
    """int64 (n + 1,): where each of n runs begins, and the end."""
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _sets(layer: Weights) -> tuple[np.ndarray, np.ndarray]:
    """(order, same): the outputs by their lowest and highest inputs, those of a set side by side; and of each whether
    it reads what the one before it reads."""
    degrees = np.diff(layer.offsets)
    ends = np.zeros((2, layer.outputs), np.int64)
    some = degrees > 0
    ends[0, some] = layer.indices[layer.offsets[:-1][some]]
    ends[1, some] = layer.indices[layer.offsets[1:][some] - 1]
    # A hash of each set, the sum of random numbers of its inputs: sorting by it puts equal sets side by side.
    marks = np.concatenate([np.zeros(1, np.uint64), np.cumsum(layer.numbers[layer.indices], dtype=np.uint64)])
    marks = marks[layer.offsets[1:]] - marks[layer.offsets[:-1]]
    order = np.lexsort((marks, ends[1], ends[0]))
    same = np.zeros(order.size, bool)
    same[1:] = (marks[order[1:]] == marks[order[:-1]]) & (degrees[order[1:]] == degrees[order[:-1]])
    # Hashes may collide, so what is to be the same as the output before it is compared edge by edge.
    edges, position, step = edges_of(layer, np.where(same, order, NO_OUTPUT))
    before = layer.offsets[order[position - 1]] + step
    same[position[layer.indices[edges] != layer.indices[before]]] = False
    return order, same


def _walk(layer: Weights, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(walk, common): sets in the order in which they are walked, and of each the inputs that it has in common with the
    one before it, as far as that was looked for.

    Args:
        heads: an output of each set.
    """
    # Inputs in common of all pairs of sets: one sparse product, left out where it would have too many entries.
    count = heads.size
    edges, position, _ = edges_of(layer, heads)
    reads = sp.csr_array((np.ones(edges.size, np.int32), (position, layer.indices[edges])), (count, layer.inputs))
    readers = np.bincount(layer.indices[edges], minlength=1).astype(np.int64)
    walk, common = np.arange(count), np.zeros(count, np.int64)
    if (readers**2).sum() > MOST_PAIRS:
        return walk, common
    pairs = (reads @ reads.T).tocoo()
    degrees = np.diff(layer.offsets)[heads]
    row, column = pairs.coords
    # Neighbours of a set: those that share enough, most first.
    near = (row != column) & (pairs.data >= CHAINED * np.minimum(degrees[row], degrees[column]))
    row, column, both = row[near], column[near], pairs.data[near]
    nearest = np.lexsort((column, -both, row))
    column, both = column[nearest].tolist(), both[nearest].tolist()
    ends = sums(np.bincount(row, minlength=count)).tolist()
    # Greedy walk: on to the nearest set not yet taken; where there is none, a new chain begins.
    visited, count_walked = bytearray(count), 0
    for start in range(count):
        output, shared = (start, 0) if not visited[start] else (NO_OUTPUT, 0)
        while output != NO_OUTPUT:
            visited[output] = 1
            walk[count_walked], common[count_walked] = output, shared
            count_walked += 1
            ahead = ((column[i], both[i]) for i in range(ends[output], ends[output + 1]) if not visited[column[i]])
            output, shared = next(ahead, (NO_OUTPUT, 0))
    return walk, common


def _cut(
    gathers: Gathers, in_part: int, rank: np.ndarray, stages: np.ndarray, height: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(height, starts, where): as `_positions`, where a part's footprint has stages of so many neurons.

    Args:
        rank: of each gather's input in the footprint; stages, height: of each part its first stage, neurons in one.
    """
    group, part = gathers.group, gathers.group // in_part
    stage = stages[part] + rank // height[part]
    # Gathers of a group ascend, and so do their stages: a new run begins where either changes.
    runs = np.flatnonzero(np.concatenate([[True], (group[1:] != group[:-1]) | (stage[1:] != stage[:-1])]))
    step = np.arange(group.size) - np.repeat(runs, np.diff(np.append(runs, group.size))) if group.size else group
    slices = in_part // SLICE
    return height, *_positions(stage * slices + group % in_part // SLICE, group % SLICE, step, int(stages[-1]) * slices)


def _positions(slices: np.ndarray, lane: np.ndarray, step: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, where): of `count` slices the first chunks, and of each gather its position in (chunks, SLICE, CHUNK).

    Args:
        slices, lane, step: of each gather its slice, its group in that, and its number among the gathers of both.
    """
    # A slice has the chunks of its widest group; in a chunk the groups lie side by side, so that a warp loads it whole.
    chunks = np.zeros(count, np.int64)
    np.maximum.at(chunks, slices, step // CHUNK + 1)
    starts = sums(chunks)
    where = ((starts[slices] + step // CHUNK) * SLICE + lane) * CHUNK + step % CHUNK
    return starts, where


def _fill(
    layer: Weights,
    groups: Groups,
    gathers: Gathers,
    starts: np.ndarray,
    where: np.ndarray,
    index: np.ndarray,
    zero: int,
    dtype: np.dtype,
) -> tuple:
    # Padding reads a neuron of zeros, so that kernels need no test for it; its values are zero too.
    shape = int(starts[-1]), SLICE, CHUNK
    indices = np.full(int(np.prod(shape)), zero, dtype)
    indices[where] = index
    values = None
    if layer.valued:
        loads = CHUNK * groups.shared // VECTOR  # of the values of a chunk
        values = np.zeros((shape[0], loads, SLICE, VECTOR), np.float32)
        chunk, lane, step = np.unravel_index(where[gathers.of], shape)
        place = step * groups.shared + gathers.member
        values[chunk, place // VECTOR, lane, place % VECTOR] = layer.values[gathers.edges]
    return groups.shared, groups.order.reshape(-1), starts.astype(np.int32), indices.reshape(shape), values


def _footprints(
    part: np.ndarray, index: np.ndarray, parts: int, inputs: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(sizes, footprints, ranks): of each part how many inputs it reads, which (uint32, ascending, part after part),
    and of each gather the rank of its input among them."""
    keys = part * inputs + index
    neurons, indices = np.unique(keys, return_inverse=True)
    sizes = np.bincount(neurons // inputs, minlength=parts)
    return sizes, (neurons % inputs).astype(np.uint32), indices.reshape(-1) - sums(sizes)[part]
