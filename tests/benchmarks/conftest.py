"""Programs of benchmarks/ are imported as the modules that they are."""

import re
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))


@pytest.fixture
def assert_committed(root, capsys):
    """A function that compares what the main function of a module prints with results/measured/FOLDER/NAME.txt."""

    def compare(module, name, folder="published"):
        module.main([])
        numbers = re.compile(r"[-+]?\d+(?:\.\d+)?")
        said, kept = capsys.readouterr().out, (root / f"results/measured/{folder}/{name}.txt").read_text()
        assert numbers.sub("#", said) == numbers.sub("#", kept)
        found, wanted = ([*map(float, numbers.findall(text))] for text in (said, kept))
        assert found == pytest.approx(wanted, rel=2e-3, abs=0.11)  # in the digits that are printed

    return compare
