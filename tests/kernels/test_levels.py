"""Nothing that is compiled for one instruction-set level may stand for the same function of another."""

import re
import subprocess

import pytest


@pytest.fixture
def objects(root):
    """The object files of the levels, by the level's name, of the newest build."""
    builds = sorted(root.glob("build/*/CMakeFiles"), key=lambda folder: folder.stat().st_mtime)
    found = sorted(builds[-1].glob("kernels_*.dir/**/*.o"))
    assert found
    return [(re.search(r"kernels_(\w+)\.dir", str(file))[1], file) for file in found]


def test_shared_functions_carry_their_level_in_their_name(objects):
    # Of functions with one name (weak: W, unique: u) the linker keeps any, perhaps one that this processor cannot run.
    # Data (V, typeinfo and pointers to it) has no instructions.
    for level, file in objects:
        lines = subprocess.run(["nm", file], capture_output=True, text=True, check=True).stdout.splitlines()
        shared = [line.split()[-1] for line in lines if re.search(r" [Wu] ", line)]
        strangers = [name for name in shared if f"{len(level)}{level}" not in name]
        assert not strangers, f"{file.name} of {level}"
