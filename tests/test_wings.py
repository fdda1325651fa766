"""Wings: parts of the package that the others do without. Each is closed in turn: what it is for alone falls with it.

DESIGN.md has a picture of them. Reach, too: the lines of the modules that a run and a compiled model import.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

# Of each wing, the modules outside it that cannot be imported without it.
CUDA = ["engines.taskgraph.cuda.*", "engines.taskgraph.engine"]
FALL = {
    "bench": [],
    "report": [],
    **{f"report.{section}": [] for section in ("reductions", "scaling", "schedules", "operations")},
    "engines.cpu": ["engines.spgemm.engine", "engines.taskgraph.cpu.*", "engines.taskgraph.engine"],
    "engines.cuda": CUDA,
    "engines.spgemm": [],
    "engines.reference": [],
    "engines.taskgraph": ["cli.plan", "runs.calibration", "runs.schedules"],
    "engines.costs": [
        "engines.taskgraph.choice", "engines.taskgraph.cpu.*", "engines.taskgraph.cuda.*",
        "engines.taskgraph.simulation", "runs.calibration",
    ],
    "engines.reductions.neurons": [],
    "formats.text": [],
    "formats.onnx_files": ["bench.*", "ops.onnx_*"],
    "kernels.cuda": [*CUDA, "engines.cuda.*", "ops.cuda", "ops.cuda_launches"],
    "ops.models": ["bench.models"],
    "ops.torch": ["torch"],
    "runs.ranks": [],
    "runs.workflow": [],
}  # fmt: skip
MOST = 8  # modules that may fall with a wing that has no star here
# The wings that a call does without, all closed at once; and the most lines that it may import.
ANY = ["bench", "engines.costs", "engines.cuda", "engines.spgemm", "engines.taskgraph", "kernels.cuda", "ops"]
FORMATS = ["formats.images", "formats.matrices", "formats.onnx_files", "formats.readers", "formats.text"]
WITHOUT = {
    "run": [*ANY, *FORMATS, "api", "engines.reference", "report", "runs.ranks", "runs.workflow"],
    "challenge": [*ANY, *FORMATS, "api", "engines.reference", "report", "runs.ranks"],
    "compile": [*ANY, *FORMATS, "cli", "engines.oracle", "engines.reference", "report", "runs"],
    "report": [
        *ANY, *FORMATS, "api", "engines.cpu", "engines.oracle", "runs.calibration", "runs.ranks", "runs.workflow",
    ],
}  # fmt: skip
LINES = {"run": 13_000, "compile": 7_000, "report": 20_000}


@pytest.fixture(scope="module")
def found():
    """(by wing the modules that fall, by call the lines that it imports)."""
    command = [sys.executable, Path(__file__).with_name("wings.py"), json.dumps([list(FALL), WITHOUT])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    fallen, lines = json.loads(done.stdout)
    assert not [call for call, count in lines.items() if count is None], done.stderr
    return fallen, lines


@pytest.mark.parametrize("wing", FALL)
def test_only_what_a_wing_is_for_falls_with_it(found, wing):
    """A name that ends with * stands for all modules that begin so, some of which fall."""
    fallen, listed = found[0][wing], FALL[wing]
    exact = [name for name in listed if not name.endswith("*")]
    begin = tuple(name[:-1] for name in listed if name.endswith("*"))
    assert sorted({*exact, *(name for name in fallen if name.startswith(begin))}) == fallen
    assert [one for one in begin if not any(name.startswith(one) for name in fallen)] == []
    assert len(fallen) <= MOST or begin


@pytest.mark.parametrize("call", LINES)
def test_a_call_works_without_the_wings_that_it_does_not_ask_for_and_imports_few_lines(found, call):
    assert found[1][call] <= LINES[call]
