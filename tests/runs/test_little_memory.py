"""What measures and plans passes its tests where little memory is free."""

import resource
import sys

import pytest
from children import finished

LIMIT = 4 << 30  # bytes of data
WHAT = ("tests/runs", "tests/cli", "tests/bench")
MANY_THREADS = "tests/cli/test_command.py::test_more_threads_than_cores_warn"  # of which each takes of the limit


@pytest.mark.full("memory")
def test_the_tests_of_runs_and_commands_pass_with_four_gigabytes(root):
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *WHAT, "--deselect", MANY_THREADS]
    limit = lambda: resource.setrlimit(resource.RLIMIT_DATA, (LIMIT, LIMIT))  # noqa: E731
    status, out, _ = finished(command, cwd=root, preexec_fn=limit)
    assert status == 0, out[-5000:]
