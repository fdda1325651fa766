"""Which rank has which inputs at the start, which rows move when they are redistributed, and who has which devices.

Pure functions of counts that every rank knows, so that all ranks come to the same plan without asking one another.
Source of `static`: Hidayetoglu et al., HPEC 2020, section III.C (inputs split in equal, contiguous parts).
"""

from collections.abc import Sequence

import numpy as np

from spdnn.core.errors import Unavailable, unknown

STATIC, CYCLIC, REBALANCED = PARTITIONS = ("static", "cyclic", "rebalanced")


def part(partition: str, count: int, ranks: int, rank: int) -> np.ndarray:
    """int64, ascending: the inputs, of `count`, that a rank starts with (`rebalanced`: as `static`).

    InputError where there is no partition of that name.
    """
    if partition not in PARTITIONS:
        raise unknown("partition", partition, PARTITIONS)
    if partition == CYCLIC:
        return np.arange(rank, count, ranks)
    least, more = divmod(count, ranks)
    return np.arange(rank * least + min(rank, more), (rank + 1) * least + min(rank + 1, more))


def targets(rows: Sequence[int], room: Sequence[int]) -> np.ndarray:
    """int64 (ranks,): how many rows each rank should have, as even as the room on each allows.

    Ranks that have more than an even share keep the odd ones, so that fewer rows move.

    Args:
        rows: that each rank has; never more than its room.
        room: rows that each can hold.
    """
    rows, room = np.asarray(rows, np.int64), np.asarray(room, np.int64)
    low, high = 0, int(room.max())
    while low < high:  # the greatest level that the rows fill everywhere
        middle = (low + high + 1) // 2
        low, high = (middle, high) if np.minimum(room, middle).sum() <= rows.sum() else (low, middle - 1)
    # The remainder, one row each, to ranks with room that already have most: those rows need not move.
    goal = np.minimum(room, low)
    odd = int(rows.sum() - goal.sum())
    order = np.argsort(-rows, kind="stable")
    goal[order[(goal < room)[order]][:odd]] += 1
    return goal


def moves(rows: Sequence[int], targets: Sequence[int]) -> np.ndarray:
    """int64 (ranks, ranks): how many rows rank i sends to rank j, the least that gives each its target."""
    # Match surplus with deficit, two pointers in rank order: every message empties a sender or fills a receiver.
    surplus = np.asarray(rows, np.int64) - np.asarray(targets, np.int64)
    moved, to = np.zeros((surplus.size, surplus.size), np.int64), 0
    for giver in np.flatnonzero(surplus > 0):
        while surplus[giver]:
            while surplus[to] >= 0:
                to += 1
            sent = min(surplus[giver], -surplus[to])
            moved[giver, to] += sent
            surplus[giver] -= sent
            surplus[to] += sent
    return moved


def device(whose: str, node: str, seen: Sequence[Sequence[str]], rank: int, each: int = 1) -> int:
    """The number, among the devices that this rank sees, of the first that it takes; `each` takes as many, in order.

    Where every rank sees the same devices, rank i of the node takes device i (with several each, those from i x each
    on). Where each sees just as many that no other sees (`srun --gpus-per-task=1`, or CUDA_VISIBLE_DEVICES of its own),
    it takes those.

    Args:
        whose: the engine; node: its name; both for the sentence.
        seen: of each rank of the node, in their order, the identities of its devices, in theirs.
        rank: of the node, from 0.

    Raises:
        Unavailable: there is none for this rank, or it cannot be said which.
    """
    visible, ranks = seen[rank], len(seen)
    if all(list(other) == list(visible) for other in seen):
        if (rank + 1) * each <= len(visible):
            return rank * each
        most = f"start at most {len(visible) // each} ranks a node" + (f", of {each} devices each" if each > 1 else "")
        raise Unavailable(
            f"engine {whose} sees {len(visible)} devices on node {node}, and this is its rank {rank + 1}: {most}"
        )
    different = len({identity for devices in seen for identity in devices})
    if different == ranks * each and all(len(devices) == each for devices in seen):
        return 0
    counts = ", ".join(str(len(devices)) for devices in seen)
    raise Unavailable(
        f"engine {whose}: the {ranks} ranks of node {node} see {counts} devices, {different} different ones: "
        f"all must see the same devices, or each {'one' if each == 1 else each} of its own"
    )
