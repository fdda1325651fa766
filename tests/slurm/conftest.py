"""A Slurm for the session, and the workflow run through it."""

import shutil

import one_host
import pytest
from through import Run


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
    """A function that makes a Run, in an empty folder or in a copy of another Run's results."""
    runs = []

    def make(profile: str = "slurm", source: Run | None = None, but: tuple[str, ...] = ()) -> Run:
        folder = tmp_path / str(len(runs))
        if source:
            shutil.copytree(source.folder, folder, symlinks=True, ignore=shutil.ignore_patterns("slurm_logs", *but))
        else:
            folder.mkdir()
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
    """The smoke preset through the Slurm profile, on one rank and on two; one of two threads fills a node."""
    run = Run(root, tmp_path_factory.mktemp("slurm"))
    try:
        run.start("--config", "ranks=[1,2]")
        assert run.end() == 0, run.text
        yield run
    finally:
        run.kill()
