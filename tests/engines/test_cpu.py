"""What is the engine `cpu`'s own: tiles, batches of tiles, its memory. Its results: test_engines.py."""

from __future__ import annotations

import pytest
from engine_cases import rows

from spdnn.engines import cpu, infer
from spdnn.engines.base import Options
from spdnn.engines.memory import resident_bytes
from spdnn.errors import InputError
from spdnn.sources.radixnet import RadixNet


def test_reductions_save_work_and_say_so():
    network, inputs = RadixNet(1024, 40), rows(700, 1024, kind="bits", density=0.12)
    full, dead = infer(network, inputs, reductions="none"), infer(network, inputs, reductions="dead")
    assert full.edges_computed == -(-700 // full.notes["tile"]) * full.notes["tile"] * network.edges
    assert dead.edges_computed < full.edges_computed / 2


def test_small_memory_and_other_engines_are_one_sentence():
    network = RadixNet(1024, 2)
    with pytest.raises(InputError, match="memory of 1,000 bytes is too small for one tile of 16 inputs.*at least"):
        infer(network, rows(3, 1024), memory=1000)
    with pytest.raises(InputError, match="engine 'gpu' is not known: it must be one of cpu"):
        infer(network, rows(3, 1024), "gpu")


def test_memory_is_kept_to():
    network, inputs = RadixNet(1024, 30), rows(4000, 1024, kind="bits")
    batch, resident = cpu._plan(network, inputs, 1024, Options(1, resident_bytes() + 12_000_000), 32)
    assert 32 <= batch < 4000
    assert batch % 32 == 0
    assert 2 * 4 * 1024 * batch + (network.nbytes if resident else 0) <= 12_000_000
