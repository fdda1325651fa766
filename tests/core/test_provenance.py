"""What a record says of the packages under it, and of the commit of the code."""

import os
import subprocess
from pathlib import Path

import pytest

from spdnn.core import provenance


def test_the_lock_is_of_what_is_installed(tmp_path, monkeypatch):
    provenance.lock_digest.cache_clear()
    before = provenance.lock_digest()
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "absent"))
    seen = {before}
    for name in ("one-1.0.dist-info", "two-1.0.egg-info"):
        (tmp_path / name).mkdir()
        provenance.lock_digest.cache_clear()
        seen.add(provenance.lock_digest())
    (tmp_path / "module.py").touch()
    provenance.lock_digest.cache_clear()
    assert provenance.lock_digest() in seen
    assert len(seen) == 3
    monkeypatch.undo()
    provenance.lock_digest.cache_clear()
    assert provenance.lock_digest() == before


def git(folder: Path, *words) -> str:
    given = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false", *words]
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout with a package in another repository, which has two commits."""
    folder = tmp_path / "other" / "checkout"
    (folder / "spdnn").mkdir(parents=True)
    (folder / "spdnn" / "a.py").write_text("a = 1\n")
    for where in (tmp_path / "other", folder):
        git(where, "init", "-q")
        git(where, "add", ".") if where == folder else None
        git(where, "commit", "-q", "--allow-empty", "-m", where.name)
    monkeypatch.setattr(provenance, "PACKAGE", folder / "spdnn")
    return folder


@pytest.mark.needs("git")
def test_the_commit_is_of_the_code_whatever_the_variables_of_git_say(checkout, tmp_path, monkeypatch):
    commit = provenance._commit.__wrapped__
    clean = git(checkout, "rev-parse", "--short=12", "HEAD")
    other = tmp_path / "other" / ".git"
    (tmp_path / "empty").mkdir()
    told = [*git(checkout, "rev-parse", "--local-env-vars").split(), "GIT_CEILING_DIRECTORIES", "GIT_LITERAL_PATHSPECS"]
    values = {"GIT_DIR": other, "GIT_COMMON_DIR": other, "GIT_INDEX_FILE": other / "none", "GIT_CONFIG_COUNT": "1"}
    values |= {"GIT_WORK_TREE": tmp_path / "empty", "GIT_OBJECT_DIRECTORY": tmp_path / "empty"}
    values |= {"GIT_CONFIG_PARAMETERS": f"'core.worktree={tmp_path / 'empty'}'", "GIT_CEILING_DIRECTORIES": checkout}
    assert values.keys() <= {*told}
    for name in told:
        with monkeypatch.context() as patch:
            patch.setenv(name, str(values.get(name, "1")))
            assert commit() == clean, name
    (checkout / "spdnn" / "a.py").write_text("a = 2\n")
    monkeypatch.setenv("GIT_LITERAL_PATHSPECS", "1")
    assert commit() == f"{clean}-dirty"


@pytest.mark.needs("git")
@pytest.mark.parametrize("broken", ["HEAD", "index", *(["owner"] if os.geteuid() == 0 else [])])
def test_a_checkout_that_git_cannot_read_has_no_commit_and_not_that_around_it(checkout, capfd, monkeypatch, broken):
    monkeypatch.setenv("HOME", str(checkout))  # whose user trusts no other owner
    if broken == "owner":
        os.chown(checkout, 12345, 12345)
        os.chown(checkout / ".git", 12345, 12345)
    else:
        (checkout / ".git" / broken).write_text("broken")
    assert provenance._commit.__wrapped__() is None
    assert capfd.readouterr() == ("", "")
