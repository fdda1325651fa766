"""A rank's device: which it takes of those that the ranks of its node see, and whose memory a sentence is about."""

import itertools
import types

import pytest

from spdnn.core.errors import MemoryTooSmall, Unavailable
from spdnn.engines.base import Options
from spdnn.runs.ranks.partition import device
from spdnn.runs.ranks.run import Ranks


def ranks(seen, local_rank=0):
    """The Ranks of one rank of a node whose ranks see these devices, and whose engine finds no memory."""

    def scarce(prepared, inputs, options):
        raise MemoryTooSmall("the device's memory is too small", 10)

    def allgather(mine):
        assert mine == seen[local_rank]
        return seen

    world = types.SimpleNamespace(
        together=lambda work, *given: work(*given),
        local=types.SimpleNamespace(allgather=allgather),
        local_rank=local_rank,
        local_size=len(seen),
        node="here",
    )
    mine = seen[local_rank]
    engine = types.SimpleNamespace(name="some", on_device=mine is not None, device_identities=lambda: mine, open=scarce)
    return Ranks(world, engine, "static", 1000)


def test_a_rank_takes_a_device():
    assert ranks(4 * [("a", "b", "c", "d")], local_rank=3).device == 3
    assert ranks([("a",), ("b",), ("c",)], local_rank=2).device == 0
    assert ranks(4 * [None], local_rank=3).device is None
    with pytest.raises(Unavailable, match="engine some sees 2 devices on node here, and this is its rank 3"):
        ranks(3 * [("a", "b")], local_rank=2)


def test_a_rank_takes_several_devices():
    four = ("a", "b", "c", "d")
    assert [device("some", "here", [four, four], rank, 2) for rank in (0, 1)] == [0, 2]
    assert [device("some", "here", [four[:2], four[2:]], rank, 2) for rank in (0, 1)] == [0, 0]
    with pytest.raises(Unavailable, match="rank 2: start at most 1 ranks a node, of 3 devices each"):
        device("some", "here", [four, four], 1, 3)
    with pytest.raises(Unavailable, match="see 2, 3 devices, 4 different ones: .* or each 2 of its own"):
        device("some", "here", [four[:2], four[1:]], 0, 2)


VIEWS = [view for size in range(4) for view in itertools.permutations("abc", size)]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_no_two_ranks_take_one_device(count):
    """All views of up to three devices on up to three ranks: a device each, or a sentence, never one for two."""
    sentences = set()
    for seen in itertools.product(VIEWS, repeat=count):
        taken, refused = [], []
        for rank in range(count):
            try:
                taken.append(seen[rank][device("some", "here", seen, rank)])
            except Unavailable as error:
                refused.append(str(error))
        same, own = len(set(seen)) == 1, {len(view) for view in seen} == {1} and len(set(seen)) == count
        assert len(set(taken)) == len(taken)
        if same:
            assert taken == list(seen[0][:count])
            assert len(refused) == max(0, count - len(seen[0]))
        elif own:
            assert taken == [view[0] for view in seen]
        else:
            assert len(refused) == count
            sentences.add(refused[0])
        assert len(set(refused)) <= (count if same else 1)
    if count == 2:
        assert (
            "engine some: the 2 ranks of node here see 2, 1 devices, 3 different ones: "
            "all must see the same devices, or each one of its own"
        ) in sentences


@pytest.mark.parametrize(
    ("devices", "told"),
    [
        (("a", "b"), "^the device's memory is too small$"),
        (None, "memory of 1,000 bytes is too small for the 2 ranks of node"),
    ],
)
def test_a_device_that_is_too_small_is_told_as_it_is(devices, told):
    with pytest.raises(MemoryTooSmall, match=told):
        ranks(2 * [devices])._open(None, types.SimpleNamespace(count=1), Options(1))
