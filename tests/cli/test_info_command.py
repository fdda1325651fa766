"""`spdnn info`: what it prints and writes, and its mistakes."""

import json
import re

import pytest
from refusals import misused, spdnn

from spdnn.core.limits import Machine
from spdnn.core.validation import convert
from spdnn.engines.cpu.ceilings import caches


def test_figures_are_printed_and_written(tmp_path, capsys):
    assert spdnn("info", "--threads", 1, "--seconds", 0.02, "--json", tmp_path / "m.json") == 0
    shown = capsys.readouterr().out
    written = json.loads((tmp_path / "m.json").read_text())
    found = convert(Machine, written["machine"], "m.json")
    assert f"measured with 1 thread, {found.instruction_set}" in shown
    assert written["environment"]["cpu"] in shown
    for cache in caches():
        assert f"level {cache.level} {cache.bytes // 1024:,} KiB" in shown
    for line, name in (("memory", "copy"), ("nearest cache", "load"), ("second cache", "l2_load")):
        rate = getattr(found, f"{name}_bytes_per_second") / 1e9
        assert re.search(rf"^{line} +{rate:.1f}  GB/s ", shown, re.MULTILINE)
    assert re.search(rf"^arithmetic +{found.fma_per_second / 1e9:.1f}  billion FMA/s", shown, re.MULTILINE)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "61", "soon"])
def test_seconds_out_of_range(seconds, capsys):
    assert "must be a number above 0 and at most 60" in misused(capsys, "info", "--seconds", seconds)
