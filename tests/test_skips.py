"""Whether a test that would be skipped fails: on request, and in continuous integration."""

import os
import shutil
import sys

import pytest
from children import finished

TESTS = """
import pytest

@pytest.mark.needs("mnist")
def test_without_its_file(): ...

def test_without_a_mark():
    pytest.skip("no reason")

@pytest.mark.xfail
def test_that_fails():
    assert False
"""


@pytest.mark.parametrize("strict", ["", "SPDNN_NO_SKIPS", "CI"])
def test_a_skip_is_a_failure_where_nothing_may_be_skipped(root, tmp_path, strict):
    (tmp_path / "test_given.py").write_text(TESTS)
    shutil.copy(root / "tests/conftest.py", tmp_path)
    environment = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    environment |= {"HOME": str(tmp_path)} | ({strict: "1"} if strict else {})
    command = [sys.executable, "-m", "pytest", "-c", root / "pyproject.toml", "--rootdir", tmp_path, tmp_path]
    status, out, _ = finished(command, cwd=tmp_path, env=environment)
    outcome = "1 failed, 1 xfailed, 1 error" if strict else "2 skipped, 1 xfailed"
    assert (status, f"{outcome} in " in out) == (bool(strict), True)
    assert not strict or f"{strict} is set and nothing may be skipped" in out
