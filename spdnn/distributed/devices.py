"""Which device a rank takes, from what all ranks of its node see: pure."""

from __future__ import annotations

from collections.abc import Sequence

from spdnn.errors import Unavailable


def device(whose: str, node: str, seen: Sequence[Sequence[str]], rank: int) -> int:
    """The number, among the devices that this rank sees, of the one that it takes.

    Where every rank sees the same devices, rank i of the node takes device i. Where each sees one that no other sees
    (`srun --gpus-per-task=1`, or CUDA_VISIBLE_DEVICES of its own), it takes that.

    Args:
        whose: the engine; node: its name; both for the sentence.
        seen: of each rank of the node, in their order, the identities of its devices, in theirs.
        rank: of the node, from 0.

    Raises:
        Unavailable: there is none for this rank, or it cannot be said which.
    """
    mine, ranks = seen[rank], len(seen)
    if all(list(other) == list(mine) for other in seen):
        if rank < len(mine):
            return rank
        raise Unavailable(
            f"engine {whose} sees {len(mine)} devices on node {node}, and this is its rank {rank + 1}: "
            f"start at most {len(mine)} ranks a node"
        )
    different = len({identity for devices in seen for identity in devices})
    if different == ranks and all(len(devices) == 1 for devices in seen):
        return 0
    counts = ", ".join(str(len(devices)) for devices in seen)
    raise Unavailable(
        f"engine {whose}: the {ranks} ranks of node {node} see {counts} devices, {different} different ones: "
        "all must see the same devices, or each one of its own"
    )
