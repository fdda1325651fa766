"""Which devices a rank takes, from what all ranks of its node see. A pure function: it asks no driver and no rank."""

from collections.abc import Sequence

from spdnn.core.errors import Unavailable


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
