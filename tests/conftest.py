"""Shared fixtures; and the rules on what may be left out.

A test marked `needs("x")` is left out where x is absent, with a reason that `make test` lists; with SPDNN_NO_SKIPS or
CI set it fails.
A test marked `full("x")` is of the set that `make test-full` adds, and the last line of the default set says so. With
--slice, a quarter of these is run (slices.py).
"""

import os
import shutil
import signal
from collections import Counter
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import engine_cases
import pytest
import slices

from spdnn.core.errors import install

ROOT = Path(__file__).resolve().parents[1]
MNIST = "mnist/train-images-idx3-ubyte.gz"


@cache
def mnist_path() -> Path | None:
    """The MNIST file of the mirror, or one fetched earlier."""
    from spdnn.core.files import cache_folder
    from spdnn.formats.fetch import find_mirror

    candidates = [Path(find_mirror() or "", MNIST), cache_folder() / MNIST]
    return next((path for path in candidates if path.is_file()), None)


def peer(name: str) -> bool:
    """Whether the library behind the engine `name` is installed."""
    from spdnn.engines.registry import engine

    return engine(name, usable=False).missing() is None


def slurm_installed() -> bool:
    """Whether a Slurm can be started on this host."""
    return os.geteuid() == 0 and all(map(shutil.which, ("munged", "slurmctld", "slurmd")))


def browser_driven() -> bool:
    """Whether there is a Chromium, and what drives it and reads what it prints."""
    packages = ("axe_playwright_python", "playwright", "pypdf")
    return bool(shutil.which("chromium")) and all(map(find_spec, packages))


NEEDS = {
    "aarch64": (
        lambda: all(map(shutil.which, ("aarch64-linux-gnu-g++", "qemu-aarch64"))),
        "the Debian packages g++-aarch64-linux-gnu and qemu-user",
    ),
    "cores": (lambda: len(os.sched_getaffinity(0)) > 1, "two cores"),
    "git": (lambda: shutil.which("git"), "git"),
    "graphblas": (lambda: peer("graphblas"), f"the package python-graphblas ({install('peers')})"),
    "mkl": (lambda: peer("mkl"), f"the packages sparse-dot-mkl and mkl ({install('peers')})"),
    "jax": (lambda: peer("jax"), f"the package jax ({install('peers')})"),
    "mnist": (mnist_path, "the MNIST training images; name a folder that holds mnist/ in SPDNN_MIRROR"),
    "octave": (lambda: shutil.which("octave-cli"), "the Debian package octave"),
    "slurm": (slurm_installed, "root, and the Debian packages slurm-wlm and munge"),
    "chromium": (browser_driven, "the browser chromium (Debian package chromium) and the packages of envs/test.txt"),
}


# What `full` tests are about, and why the default set can do without them.
FULL = {
    "aarch64": "the kernels built for another processor, and run by an emulator",
    "architectures": "CUDA kernels compiled for every architecture; by default for one",
    "browser": "further pages in the browser, and the checks of pages on pages with faults; by default one page",
    "gpu": "the whole of `make gpu-records` on the CUDA shim; by default a short form of each part",
    "faults": "seeded faults, each found by its test (`make faults`); by default that the table fits the sources",
    "flips": "stores with one in seven of their bits flipped; by default one in 97",
    "ladder": "the same tests of every engine, instruction set and tile of a ladder; by default of those in use",
    "many": "pages of very many records, and of records in other orders",
    "networks": "2,000 random networks through verification; by default sixty",
    "official": "whole official problems on the CUDA shim; by default parts of them",
    "memory": "tests of runs and commands under a limit of memory; by default with what is free",
    "octave": "files of the challenge's format, read and computed by Octave; by default read by spdnn",
    "operators": "every operator of ONNX, in cases of its own and of ours; by default one in eight, or four",
    "pages": "every block of tutorials and tasks, run as written; by default their commands are parsed",
    "ranks": "four and eight ranks, and ranks on devices; by default two and three",
    "types": "what a user writes, checked by pyright; by default that the public names have types",
    "slurm": "the workflow through a real Slurm",
    "workflow": "further whole runs of the workflow; by default one of each kind of rule",
}


def pytest_addoption(parser):
    group = parser.getgroup("slices of the full set (tests/run.py -m full --slice)")
    group.addoption("--slice", type=int, help="the number of the slice")
    group.addoption("--changed", default="", help="names of folders, all of whose full tests are run")


def pytest_configure(config):
    # Where Slurm is installed and does not run, every start of Snakemake asks it for its configuration, 9 s long.
    os.environ["SLURM_CONF"] = os.devnull
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else importing ONNX Runtime leaves files behind
    # Started with `&` or nohup SIGINT is ignored, and pytest-xdist's workers ignore it; what tests start would too.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[LEFT_OUT] = Counter()


LEFT_OUT = pytest.StashKey[Counter]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    for item in items:
        for marker in item.iter_markers("full"):
            if marker.args[0] not in FULL:
                raise pytest.UsageError(f"{item.nodeid}: full({marker.args[0]!r}); choose from {', '.join(FULL)}")
    if config.option.slice is not None:
        # Tests of a group share what takes long to make.
        names = {item: group.args[0] if (group := item.get_closest_marker("xdist_group")) else item.nodeid
                 for item in items if item.get_closest_marker("full")}  # fmt: skip
        paths = {name: item.path.relative_to(ROOT / "tests") for item, name in names.items()}
        taken = slices.of_slice(paths, config.option.slice, config.option.changed.split(","))
        items[:] = [item for item in items if names.get(item) in taken]
    # Groups are long, and must not be what one processor is left with at the end.
    items.sort(key=lambda item: item.get_closest_marker("xdist_group") is None)


def pytest_deselected(items):
    for item in items:
        if item.config.option.markexpr != "not full":
            return
        for marker in item.iter_markers("full"):
            item.config.stash[LEFT_OUT][marker.args[0]] += 1


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left out"] = dict(session.config.stash[LEFT_OUT])


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = Counter(getattr(node, "workeroutput", {}).get("left out", {}))


def pytest_terminal_summary(terminalreporter, config):
    if left_out := config.stash[LEFT_OUT]:
        counts = ", ".join(f"{count} {what}" for what, count in sorted(left_out.items()))
        terminalreporter.write_line(f"left out: {counts}; `make test-full` runs them too (pytest -m full: them alone)")


def pytest_runtest_setup(item):
    for marker in item.iter_markers("needs"):
        found, what = NEEDS[marker.args[0]]
        if not found():
            pytest.skip(f"left out, for it needs {what}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    report = yield
    strict = next(filter(os.environ.get, ("SPDNN_NO_SKIPS", "CI")), None)
    if strict and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome, report.longrepr = "failed", f"{strict} is set and nothing may be skipped: {report.longrepr[2]}"
    return report


@pytest.fixture(autouse=True)
def own_data(monkeypatch, tmp_path_factory, request):
    """What a test keeps of downloads, inputs and prepared networks is its own; the folder is made when it is needed."""
    mnist_path()
    name = f"data-{hash(request.node.nodeid):x}"
    monkeypatch.setenv("SPDNN_DATA", str(tmp_path_factory.getbasetemp() / name))


@pytest.fixture
def mnist_file() -> Path:
    return mnist_path()


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture
def random_network():
    """A function that makes a network of random layers; every part of a layer can be chosen."""
    return engine_cases.random_network


@pytest.fixture
def set_all(monkeypatch):
    """A function that gives names of a module or a class other values, together, until the test ends."""

    def change(owner, **values):
        for name, value in values.items():
            monkeypatch.setattr(owner, name, value)

    return change


@pytest.fixture
def untimed(monkeypatch):
    """Of ONNX models, all products with few nonzeros are ours."""
    monkeypatch.setenv("SPDNN_TUNING", "off")


@pytest.fixture
def nothing_installed(monkeypatch):
    """As where none of the packages is that engines and libraries look for."""
    monkeypatch.setattr("importlib.util.find_spec", lambda module: None)
