"""A rank's device: which it takes, and whose memory a sentence is about."""

from __future__ import annotations

import types

import pytest

from spdnn.distributed.run import Ranks
from spdnn.engines import Options
from spdnn.errors import MemoryTooSmall, Unavailable


def ranks(devices, local_rank=0, local_size=2):
    """The Ranks of one rank of a node with so many devices, whose engine finds no memory."""

    def scarce(prepared, inputs, options):
        raise MemoryTooSmall("the device's memory is too small", 10)

    world = types.SimpleNamespace(
        together=lambda work, *given: work(*given), local_rank=local_rank, local_size=local_size, node="here"
    )
    engine = types.SimpleNamespace(name="some", devices=lambda: devices, open=scarce)
    return Ranks(world, engine, "static", 1000)


def test_a_rank_takes_a_device_by_its_local_rank():
    assert ranks(4, local_rank=3).device == 3
    assert ranks(None, local_rank=3).device is None
    with pytest.raises(Unavailable, match="engine some sees 2 devices on node here, and this is its rank 3"):
        ranks(2, local_rank=2)


@pytest.mark.parametrize(
    ("devices", "told"),
    [(2, "^the device's memory is too small$"), (None, "memory of 1,000 bytes is too small for the 2 ranks of node")],
)
def test_a_device_that_is_too_small_is_told_as_it_is(devices, told):
    with pytest.raises(MemoryTooSmall, match=told):
        ranks(devices)._open(None, types.SimpleNamespace(count=1), Options(1))
