"""What records of earlier versions lack, worked out of what they have when they are read, never in their files."""

from typing import Any

from spdnn.core import limits

L2_BYTES = {"sm_90": 50 << 20}  # of the GPUs that have such records, by architecture (H100 and H200)


def bytes_moved(record: Any) -> int | None:
    """Of a RunRecord, bytes between memory and cache, which GPUs' engines did not count before; weights are left out.

    With dead inputs alone the active inputs after each layer are the rows that it wrote and the next one reads. With
    merged inputs they are not, and with none the persistent kernel wrote fewer layers: None.
    """
    result, machine, neurons = record.result, record.machine, record.problem.neurons
    if result.bytes_moved is not None:
        return result.bytes_moved
    l2 = L2_BYTES.get(machine.instruction_set) if machine else None
    alone = record.reductions.requested == ["dead"] and record.ranks == 1
    if l2 is None or not alone or record.problem.network.get("source") != "radixnet":
        return None
    # A launch reads the rows that are left and writes as many; the first one reads bits.
    rows = [record.problem.input_count, *result.survivors[:-1]]
    launches = [4 * neurons * count * (1 + (1 / 32 if k == 0 else 1)) for k, count in enumerate(rows)]
    return limits.past_cache(launches, limits.L2_SHARE * l2)
