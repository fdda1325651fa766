"""A Slurm for the session, and the workflow run through it."""

import shutil

import one_host
import pytest
from how_to import checkout, follow, script
from through import SECONDS, Run

MADE_ANEW = ("runs", "records", "report.html", "figures", "slurm_logs")


@pytest.fixture(scope="session")
def slurm():
    """A Slurm of two nodes with two cores each."""
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.delenv("SLURM_CONF")  # tests/conftest.py: there is none elsewhere
            with one_host.running():
                yield
    except one_host.NoSlurm as reason:
        pytest.fail(str(reason), pytrace=False)


@pytest.fixture
def run(slurm, root, tmp_path):
    """A function that makes a Run in a copy of another Run's folder."""
    runs = []

    def make(profile: str, source: Run, *but: str) -> Run:
        folder = tmp_path / str(len(runs))
        shutil.copytree(source.folder, folder, symlinks=True, ignore=shutil.ignore_patterns(*MADE_ANEW, *but))
        runs.append(Run(root, folder, profile))
        return runs[-1]

    try:
        yield make
    finally:
        for each in runs:
            each.kill()
        one_host.cancel_all()


@pytest.fixture(scope="session")
def smoke(slurm, root, tmp_path_factory):
    """(Run, what was printed): every block of the tutorial of a cluster, in a checkout without results.

    It runs the smoke preset on two threads, which fill a node, and then with one, on one rank and on two.
    """
    run = Run(root, checkout(tmp_path_factory.mktemp("slurm") / "checkout"))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in run.environment().items():
            patch.setenv(name, value)
        return run, follow(script("tutorials/cluster", activated=True), run.folder, SECONDS)
