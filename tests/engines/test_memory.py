"""The memory limit is a promise: the peak of a process of its own, in settings that have broken it or could."""

import json
import subprocess
import sys

import numpy as np
import pytest
from ladders import rung

from spdnn.core.features import Inputs
from spdnn.formats.inputs import write_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.store import write_network

PROGRAM = """
import re
import numpy as np
from spdnn.engines.registry import engine
from spdnn.engines.base import Options
from spdnn.engines.memory import resident_bytes
from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import Layer, MemoryNetwork

def network(width, degree, depth):
    layers = []
    for k in range(depth):
        near = (np.arange(width)[:, None] + 7 * np.arange(degree) + k) % width
        offsets, value = np.arange(width + 1, dtype=np.int64) * degree, np.float32(1 / degree)
        layers.append(Layer(width, width, offsets, np.sort(near, axis=1).astype(np.uint16).ravel(), value))
    return MemoryNetwork(layers)

def inputs(width, count):
    return Inputs(np.random.default_rng(0).random((64, width), dtype=np.float32)).first(count)

name, values, threads = {name!r}, {values}, {threads}
net, rows = network({width}, {degree}, {depth}), inputs({width}, {count})
runner = engine(name)
prepared = runner.prepare(net, {reductions})
try:
    runner.open(prepared, rows, Options(threads, 1, values))
except InputError as error:
    least = int(str(error).split("at least ")[1].split()[0].replace(",", ""))
limit = least + {more}
session = runner.open(prepared, rows, Options(threads, limit, values))
result = session.run()
# Not ru_maxrss, which a process takes over from the one that started it.
peak = 1024 * int(re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1])
print(limit, peak, result.notes["batches"], int("streamed" in session.span))
"""

CASES = {
    "values": {"width": 4096, "degree": 32, "depth": 4, "count": 4000, "threads": 4, "values": True},
    "values, merged": {"width": 4096, "degree": 32, "depth": 4, "count": 4000, "threads": 2, "values": True,
                       "reductions": ("dead", "inputs", "neurons")},
    "few tiles, many threads": {"width": 8192, "degree": 32, "depth": 12, "count": 31 * 64, "threads": 8,
                                "more": 200_000_000},
    "narrow rows": {"width": 4, "degree": 1, "depth": 3, "count": 1_000_000, "threads": 2},
    "wide scratch": {"width": 16384, "degree": 8, "depth": 4, "count": 200, "threads": 4},
    "streamed": {"width": 2048, "degree": 32, "depth": 60, "count": 600, "threads": 2, "more": 5_000_000},
}  # fmt: skip


def printed(code, *arguments, **options):
    """What a process of its own prints."""
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("case", "name"),
    [rung(case, name, default=(name == "cpu") != (case == "values") or (case, name) == ("streamed", "spgemm"))
     for case in CASES for name in ("cpu", "spgemm", "taskgraph")],
)  # fmt: skip
def test_the_peak_stays_below_the_limit(name, case):
    setting = {"values": False, "reductions": (), "more": 20_000_000, **CASES[case]}
    limit, peak, batches, streamed = map(int, printed(PROGRAM.format(name=name, **setting)).split())
    assert peak <= limit
    assert (case, name) != ("streamed", "spgemm") or (streamed and batches > 1)


CUT = """
import re
import numpy as np
from spdnn.engines.registry import engine
from spdnn.engines.base import Options
from spdnn.core.errors import MemoryTooSmall
from spdnn.core.features import Inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.engines.taskgraph.settings import TaskgraphSettings

rng = np.random.default_rng(0)
bits = np.concatenate([rng.random((500, {neurons}), dtype=np.float32) < {density} for _ in range({count} // 500)])
rows, runner = Inputs.from_array(bits), engine("taskgraph")
del bits
prepared = runner.prepare(RadixNet({neurons}, {layers}), ("dead",))
options = {{"values": {values}, "settings": TaskgraphSettings(**{request})}}
try:
    runner.open(prepared, rows, Options(2, 1, **options))
except MemoryTooSmall as error:
    limit = error.least + {more}
open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
session = runner.open(prepared, rows, Options(2, limit, **options))
result = session.run()
session.tell(result)
peak = 1024 * int(re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1])
print(limit, peak, result.notes["timeline_tasks"], result.notes["batches_joined"])
"""
CUTS = {
    "many tasks": {"neurons": 1024, "layers": 24, "count": 4000, "request": {"schedule": "stream", "batches": 500},
                   "more": 1_000_000, "density": 0.3},
    "values of joined batches": {"neurons": 1024, "layers": 48, "count": 20_000, "values": True, "density": 0.2,
                                 "request": {"schedule": "resident", "batches": 8}, "more": 20_000_000},
    "chosen by rates": {"neurons": 65536, "layers": 40, "count": 500, "more": 8_000_000, "density": 0.2,
                        "request": {"devices": 2}},
}  # fmt: skip


@pytest.mark.parametrize("case", [rung(case, default=case.startswith("values")) for case in CUTS])
def test_the_peak_of_a_task_graph_stays_below_the_limit(case):
    limit, peak, tasks, joined = map(int, printed(CUT.format(**{"values": False, **CUTS[case]})).split())
    assert peak <= limit
    assert case != "many tasks" or tasks > 10_000
    assert case != "values of joined batches" or joined > 1


HELD = """
import re, sys
from spdnn.cli import main
assert main(sys.argv[1:]) == 0
print(1024 * int(re.search(r"VmHWM:\\s+([0-9]+) kB", open("/proc/self/status").read())[1]))
"""


def test_a_task_graph_streams_from_the_store_within_the_limit(tmp_path):
    """All weights are 70 MB, and the process may hold 130 MB: it reads stages from the store for each batch."""
    rng = np.random.default_rng(3)
    bits = (rng.random((3000, 4096)) < np.linspace(0.1, 0.4, 3000)[:, None]).astype(np.float32)
    write_inputs(tmp_path / "in.safetensors", Inputs.from_array(bits))
    write_network(tmp_path / "net.safetensors", RadixNet(4096, 240))
    command = "infer --network net.safetensors --inputs in.safetensors --threads 2 --reductions dead"
    for name, limit in (("cpu", ""), ("taskgraph", "--memory 130MB")):
        arguments = f"{command} --engine {name} --samples samples.json --categories {name}.txt {limit}"
        told = printed(HELD, *arguments.split(), cwd=tmp_path)
    assert (tmp_path / "cpu.txt").read_text() == (tmp_path / "taskgraph.txt").read_text() != ""
    assert int(told.split()[-1]) < 130e6
    notes = json.loads((tmp_path / "samples.json").read_text())["engine"]["notes"]
    assert notes["streamed_from"] == "the network's source"
    assert notes["batches"] > 1
