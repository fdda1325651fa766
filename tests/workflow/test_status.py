"""The script `status` of the profile cluster-generic: what a job is by the words of squeue, here a stand-in."""

import os

import pytest
from children import executable, finished

NOISE = "echo 'squeue: warning: slurm.conf differs' >&2"
TIMEOUT = "echo 'slurm_load_jobs error: Socket timed out on send/recv operation' >&2; exit 1"
INVALID = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
RUNNING = ("PENDING", "CONFIGURING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED", "A_STATE_OF_LATER")
FAILED = (
    "BOOT_FAIL", "CANCELLED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"
)  # fmt: skip


@pytest.fixture
def status(root, tmp_path):
    """A function: (what the script says of job 7, how often it asked) where squeue is this shell script."""

    def ask(script):
        executable(tmp_path / "squeue", f'echo "$@" >> {tmp_path}/asked\n{script}')
        environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        code, out, told = finished([root / "workflow/profiles/cluster-generic/status", "7"], env=environment)
        asked = (tmp_path / "asked").read_text().splitlines()
        assert (code, told) == (0, "")
        assert all(line.endswith("--jobs=7") for line in asked)
        return out, len(asked)

    return ask


@pytest.mark.parametrize(
    ("state", "word"),
    [("COMPLETED", "success"), *((state, "running") for state in RUNNING), *((state, "failed") for state in FAILED)],
)
def test_a_state_is_one_word_whatever_is_on_standard_error(status, state, word):
    assert status(f"{NOISE}\necho {state}") == (f"{word}\n", 1)


@pytest.mark.parametrize(
    ("script", "word"),
    [
        ("true", "failed"),
        (NOISE, "failed"),
        ("exit 1", "running"),
        (TIMEOUT, "running"),
        (INVALID, "failed"),
        (f"{NOISE}\n{INVALID}", "failed"),
        ("echo RUNNING; exit 1", "running"),
        ("echo COMPLETED; exit 1", "success"),
        ("echo 'CANCELLED by 1000'", "failed"),
    ],
)
def test_no_answer_is_no_failure(status, script, word):
    assert status(script)[0] == f"{word}\n"


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ("COMPLETED COMPLETED", "success"),
        ("COMPLETED FAILED COMPLETED", "failed"),
        ("FAILED RUNNING COMPLETED", "running"),
        ("COMPLETED PENDING", "running"),
    ],
)
def test_a_job_of_parts_runs_while_one_does(status, states, word):
    assert status(f"printf '%s\\n' {states}")[0] == f"{word}\n"
