"""What is kept from one run of the tests to the next: environments, what tests compile, which slice passed."""

import json
import multiprocessing
import os
import re
import runpy
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import compile_cache
import pytest
import slices
from children import finished

import spdnn
from spdnn.kernels import dispatch

ROOT = Path(__file__).resolve().parents[1]


def test_what_is_tested_is_this_checkout():
    for file in (spdnn.__file__, dispatch.compiled_module().__file__):
        assert ROOT in Path(file).resolve().parents


def test_the_debian_packages_that_tests_need_are_installed():
    installed = re.search(r"^packages=\((.+)\)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)[1].split()
    needs = runpy.run_path(ROOT / "tests/conftest.py")["NEEDS"].values()
    needed = [re.search(r"Debian packages? ([\w+-]+)(?: and ([\w+-]+))?", what) for _, what in needs]
    assert {name for found in needed if found for name in found.groups() if name} == {*installed} - {"ccache"}


@pytest.fixture
def environments():
    return SimpleNamespace(**runpy.run_path(ROOT / ".ci/environments.py"))


def checkout(folder, lock=""):
    for name, text in {"envs/run.txt": lock, "Makefile": "", "spdnn/kernels/cpu/spmm.cpp": ""}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def set_up(folder):
    """An environment as `make` leaves it, with a third party's package and spdnn installed from the checkout."""
    packages = folder / ".venv/lib/python3.11/site-packages"
    for name in ("third/__init__.py", "_editable_skbc_spdnn.py", "spdnn-0.1.0.dist-info/RECORD", "spdnn/_cpu.so"):
        (packages / name).parent.mkdir(parents=True, exist_ok=True)
        (packages / name).write_text(str(folder))
    (folder / ".venv/bin").mkdir()
    for name in ("bin/tool", "bin/spdnn", "pyvenv.cfg"):
        (folder / ".venv" / name).write_text(f"#!{folder}/.venv/bin/python\n")
    (folder / ".venv/bin/tool").chmod(0o755)
    (folder / ".venv/bin/python").symlink_to(sys.executable)
    for stamp in (".locked", ".tested", ".built"):
        (folder / ".venv" / stamp).touch()


def test_environments_are_kept_without_spdnn_for_checkouts_side_by_side(environments, tmp_path, capsys):
    first, second, third = (checkout(tmp_path / name) for name in ("first", "second", "third"))
    (cache := tmp_path / "cache").mkdir()
    set_up(first)
    environments.keep(first, cache)
    environments.restore(second, cache)
    packages = second / ".venv/lib/python3.11/site-packages"
    assert [path.name for path in packages.iterdir()] == ["third"]
    tool = second / ".venv/bin/tool"
    assert (tool.read_text(), tool.stat().st_mode & 0o777) == (f"#!{second}/.venv/bin/python\n", 0o755)
    assert (first / ".venv/bin/tool").read_text() == f"#!{first}/.venv/bin/python\n"
    assert not (second / ".venv/bin/spdnn").exists()
    assert not (second / ".venv/.built").exists()  # so that `make` installs spdnn
    lock, locked, tested = (
        (second / name).stat().st_mtime_ns for name in ("envs/run.txt", ".venv/.locked", ".venv/.tested")
    )
    assert lock <= locked <= tested
    # What the second installs is in no other.
    (packages / "_editable_skbc_spdnn.py").write_text(str(second))
    environments.restore(third, cache)
    assert not list((third / ".venv").rglob("*spdnn*"))
    assert (first / packages.relative_to(second) / "_editable_skbc_spdnn.py").read_text() == str(first)
    assert ".venv-torch: to be set up from nothing" in capsys.readouterr().out


def test_environments_of_other_pythons_are_kept_while_their_python_is_there(environments, tmp_path):
    first, second = (checkout(tmp_path / name) for name in ("first", "second"))
    (cache := tmp_path / "cache").mkdir()
    set_up(first)
    shutil.copytree(first / ".venv", first / ".venv-3.12", symlinks=True)
    shutil.copytree(first / ".venv", first / ".venv-3.13", symlinks=True)
    (first / ".venv-3.13/bin/python").unlink()
    (first / ".venv-3.13/bin/python").symlink_to(tmp_path / "gone")
    environments.keep(first, cache)
    environments.restore(second, cache)
    assert sorted(path.name for path in second.glob(".venv*")) == [".venv", ".venv-3.12"]


@pytest.mark.parametrize("changed", ["envs/run.txt", "envs/new.txt", "Makefile", "spdnn/kernels/cpu/spmm.cpp"])
def test_a_changed_input_is_set_up_from_nothing(environments, tmp_path, changed):
    first, second = (checkout(tmp_path / name) for name in ("first", "second"))
    (cache := tmp_path / "cache").mkdir()
    set_up(first)
    environments.keep(first, cache)
    (second / changed).write_text("other")
    environments.restore(second, cache)
    assert not (second / ".venv").exists()


def test_the_environments_that_were_used_last_are_kept(environments, tmp_path):
    (cache := tmp_path / "cache").mkdir()
    folders = [checkout(tmp_path / lock, lock) for lock in "abc"]
    for age, folder in enumerate(folders):
        set_up(folder)
        environments.keep(folder, cache)
        os.utime(cache / environments.digest(folder), (age, age))
    assert {path.name for path in cache.iterdir()} == {environments.digest(folder) for folder in folders[1:]}


@pytest.fixture
def own_cache(tmp_path, set_all):
    set_all(compile_cache, FOLDER=tmp_path / "kept")
    return tmp_path / "kept"


def make(path):
    """Leaves a line for each time that it was called."""
    with open(path.parents[2] / "calls", "a") as calls:
        calls.write("made\n")
    time.sleep(0.2)
    path.write_text("content")


def test_an_entry_is_made_once_by_processes_at_the_same_time(own_cache):
    given = [("kind", ["source", "flag"], ".so", make)] * 4
    with multiprocessing.get_context("fork").Pool(4) as pool:
        paths = pool.starmap(compile_cache.entry, given)
    assert {path.read_text() for path in paths} == {"content"}
    assert (own_cache.parent / "calls").read_text() == "made\n"
    assert compile_cache.find("kind", ["source", "flag"], ".so") == paths[0]
    assert compile_cache.find("kind", ["source", "other flag"], ".so") is None


def test_an_entry_that_is_damaged_is_made_anew_and_one_that_fails_is_none(own_cache):
    given = ("kind", ["source"], ".so")
    path = compile_cache.entry(*given, make)
    path.write_text("conte")
    assert compile_cache.find(*given) is None
    assert compile_cache.entry(*given, make).read_text() == "content"

    def fail(path):
        path.write_text("half")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        compile_cache.entry("kind", ["other"], ".so", fail)
    assert compile_cache.find("kind", ["other"], ".so") is None
    assert [path.name for path in own_cache.glob("kind/*.so")] == [path.name]


def test_entries_that_nothing_used_for_a_month_go(own_cache):
    used, unused = (compile_cache.entry("kind", [name], ".so", make) for name in ("used", "unused"))
    for path in (used, unused):
        os.utime(path, (0, 0)), os.utime(path.with_suffix(".lock"), (0, 0))
    assert compile_cache.find("kind", ["used"], ".so")
    compile_cache.remove_unused()
    assert {path.stem for path in own_cache.glob("kind/*")} == {used.stem}


@pytest.fixture
def commits(tmp_path):
    """A function that writes a file in a checkout of its own, and commits it: the checkout."""
    folder = tmp_path / "checkout"
    who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]

    def commit(path):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path)
        for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", path]):
            given = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
            subprocess.run(["git", "-C", folder, *words], check=True, env=given)
        return folder

    return commit


def test_slices_take_turns_and_what_changed_since_one_passed_is_always_run(own_cache, commits):
    first = slices.choose(commits("spdnn/api.py"))
    assert first.folders == frozenset()
    assert slices.choose(commits("spdnn/api.py" + "x")).number in range(4)  # of the tree's hash: nothing has passed
    seen = []
    for path in ("spdnn/kernels/cuda/a.cu", "tests/mpi/b.py", "README.md", "workflow/rules/c.smk", "d"):
        chosen = slices.choose(commits(path))
        seen.append(chosen.number)
        chosen.passed()
    assert sorted(seen[:4]) == [0, 1, 2, 3]
    assert seen[4] == seen[0]  # run longest ago
    assert slices.choose(commits("spdnn/kernels/cuda/e.cu")).folders == {"kernels", "cuda"}
    failed = slices.choose(commits("tests/mpi/f.py"))  # passed() is not called
    again = slices.choose(commits("g"))
    assert (again.number, again.folders) == (failed.number, {"kernels", "cuda", "mpi"})
    (own_cache / "slices.json").write_text("{")
    assert slices.choose(commits("h")).folders == frozenset()


def test_each_full_test_is_of_one_slice_or_of_a_changed_folder():
    tests = {f"test_{n}": f"{folder}/test_some.py" for n, folder in enumerate(["cuda", "mpi", "workflow"] * 7)}
    parts = [slices.of_slice(tests, number, ()) for number in range(slices.SLICES)]
    assert sorted(name for part in parts for name in part) == sorted(tests)
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    mpi = {name for name, path in tests.items() if path.startswith("mpi")}
    assert slices.of_slice(tests, 0, {"mpi", "other"}) == parts[0] | mpi


TESTS = """
import os
import pytest

@pytest.mark.full("ranks")
@pytest.mark.parametrize("number", range(8))
def test_some(number):
    assert "FAILS" not in os.environ

def test_of_the_default_set(): ...
"""


def test_a_slice_is_run_timed_and_remembered_where_it_passes(tmp_path):
    (folder := tmp_path / "tests").mkdir()
    for name in ("run.py", "conftest.py", "slices.py", "compile_cache.py"):
        shutil.copy(ROOT / "tests" / name, folder)
    (folder / "test_given.py").write_text(TESTS)
    words = [sys.executable, folder / "run.py", "-m", "full", "--slice", "-n0", "-c", ROOT / "pyproject.toml"]
    for failing in ({"FAILS": "1"}, {}):
        environment = os.environ | {"SPDNN_TEST_CACHE": str(tmp_path / "kept")} | failing
        status, out, told = finished([*words, "--rootdir", tmp_path, folder], cwd=tmp_path, env=environment)
        assert (status, (tmp_path / "kept/slices.json").exists()) == (1, False) if failing else (0, True), out + told
        assert "full tests: slice 0 of 0 to 3\n" in out
        assert f"2 {'failed' if failing else 'passed'}" in out
        assert "slowest 25 durations" in out
    assert list(json.loads((tmp_path / "kept/slices.json").read_text())["runs"]) == ["0"]
    assert (tmp_path / "build/junit/full.xml").exists()
