"""`make setup` where something is missing: one sentence names the package, before anything is downloaded."""

import os
import pty
import re
import shutil
from pathlib import Path

import pytest
from children import executable, finished

ROOT = Path(__file__).resolve().parents[1]
# A Python that makes an environment as Debian's does without python3-venv: bin/python is there, pip is not.
PYTHON = """
case "$*" in
*version_info*) ;;
*Python.h*) exit {headers} ;;
*"-m venv"*)
    mkdir -p .venv/bin
    printf '#!/bin/sh\\n' > .venv/bin/python
    chmod +x .venv/bin/python
    exit {venv} ;;
*) exit 1 ;;
esac
"""


@pytest.fixture
def locked(tmp_path):
    """A function that makes .venv/.locked with such a Python: (exit status, standard error)."""
    (tmp_path / "envs").mkdir()
    (tmp_path / "envs/run.txt").write_text("")
    shutil.copy(ROOT / "Makefile", tmp_path)

    def make(*words, headers=0, venv=0, **environment):
        executable(python := tmp_path / "python", PYTHON.format(headers=headers, venv=venv))
        command = ["make", "-s", f"PYTHON={python}", *words, ".venv/.locked"]
        status, _, told = finished(command, cwd=tmp_path, env=os.environ | environment)
        return status, told

    return make


def test_the_headers_of_python_are_asked_for_first(locked, tmp_path):
    status, told = locked(headers=1)
    assert status == 2
    assert "Python.h is missing (install python3-dev on Debian and Ubuntu, python3-devel on Fedora)" in told
    assert not (tmp_path / ".venv").exists()


# A compiler: what it makes of the names that the Makefile asks for, and its --version.
COMPILER = 'case "$*" in *-E*) echo "{}" ;; *) echo "a compiler 1.2"; echo "of somebody" ;; esac'
OTHERS = "__clang__ __INTEL_COMPILER __NVCOMPILER"


@pytest.mark.parametrize("given", ["command line", "environment", "g++ on the path"])
@pytest.mark.parametrize(
    ("answer", "fits"),
    [
        (f"11 {OTHERS}", True),
        (f"15 {OTHERS}", True),
        (f"20 {OTHERS}", True),
        (f"10 {OTHERS}", False),
        (f"9 {OTHERS}", False),
        ("4 1 __INTEL_COMPILER __NVCOMPILER", False),
        ("12 __clang__ 2021 __NVCOMPILER", False),
        ("13 __clang__ __INTEL_COMPILER 1", False),
        ("", False),
    ],
)
def test_a_compiler_that_cannot_build_the_kernels_is_refused_before_anything_is_installed(
    locked, tmp_path, given, answer, fits
):
    executable(tmp_path / "g++", COMPILER.format(answer))
    name = str(tmp_path / "g++")
    if given == "g++ on the path":
        name, words, environment = "g++", (), {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    elif given == "environment":  # with a launcher before it
        name, words, environment = f"env {name}", (), {"CXX": f"env {name}"}
    else:
        words, environment = (f"CXX={name}",), {}
    status, told = locked(*words, **environment)
    assert (status == 0) == fits
    sentence = f"spdnn: GCC 11 or newer is needed for the kernels; {name} is a compiler 1.2 (name another: "
    assert told.startswith(sentence) or fits
    assert (tmp_path / ".venv").exists() == fits


def test_a_compiler_that_is_missing_is_named(locked):
    for name, told in ((word, locked(f"CXX={word}")[1]) for word in ("no-such", "no-such g++")):
        assert told.startswith("spdnn: a C++ compiler is needed; no-such is missing (install g++"), name


def test_cmake_gets_the_compiler_that_was_asked_for(tmp_path):
    """Without CXX it takes c++, which may be another."""
    ask = ["make", "-s", "-f", ROOT / "Makefile", "--eval", "asked: ; @echo $$CXX", "asked"]
    bare = {name: value for name, value in os.environ.items() if name != "CXX"}
    for given, wanted in (({}, "g++"), ({"CXX": "ccache g++-12"}, "ccache g++-12")):
        assert finished(ask, cwd=tmp_path, env=bare | given)[1] == f"{wanted}\n"


def test_an_environment_that_was_not_finished_is_not_left_behind(locked, tmp_path):
    status, told = locked(venv=1)
    assert status == 2
    assert "makes no virtual environment with pip (install python3-venv on Debian and Ubuntu)" in told
    assert not (tmp_path / ".venv").exists()


def test_an_environment_without_pip_is_made_anew(locked, tmp_path):
    (tmp_path / ".venv/bin").mkdir(parents=True)
    broken = tmp_path / ".venv/bin/python"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    assert locked() == (0, "")
    assert (tmp_path / ".venv/.locked").exists()


@pytest.mark.parametrize(("terminal", "there"), [(True, False), (False, False), (True, True)])
@pytest.mark.parametrize(("cuda", "size"), [(12, "1.2 GB"), (13, "0.9 GB")])
def test_a_long_download_is_announced_and_shown_on_a_terminal(tmp_path, terminal, there, cuda, size):
    """Where CuPy is there, little is missing, and pip would list all that is not."""
    log, shown = tmp_path / "log", f"*show*cupy-cuda{cuda}x) exit {int(not there)} ;; *show*) exit 1 ;;"
    executable(tmp_path / "python", f'case "$*" in {shown} esac\necho "$@" >> {log}')
    executable(tmp_path / "nvidia-smi", "exit 9")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    command = ["sh", ROOT / "envs/cuda.sh", tmp_path, cuda]
    reader, writer = pty.openpty() if terminal else os.pipe()
    assert finished(command, env=environment, stdout=writer)[0] == 0
    os.close(writer)
    said = os.read(reader, 4096).decode()
    os.close(reader)
    (installed,) = [line for line in log.read_text().splitlines() if "pip install" in line]
    assert ("--quiet" in installed) == (there or not terminal)
    assert (f"about {size}" in said.splitlines()[0]) != there


@pytest.mark.parametrize(
    ("asked", "driver", "devices", "there", "wanted"),
    [
        ("auto", "13.0", "9.0", None, 13),
        ("auto", "13.1", "8.0\n7.0\n10.0", None, 12),
        ("auto", "13.0", "10.0\n7.5", None, 13),
        ("auto", "13.0", "7.0", 13, 12),
        ("auto", "13.0", "9.0", 12, 12),
        ("auto", "12.9", "9.0", 13, 12),
        ("auto", "13.0", 'Field "compute_cap" is not a valid field to query.', None, 13),
        ("13", "12.9", "9.0", 12, 13),
        ("12", None, None, None, 12),
    ],
)
def test_cupy_is_for_the_driver_and_the_devices(tmp_path, asked, driver, devices, there, wanted):
    """A V100's last driver is for CUDA 13, whose compiler has no V100."""
    log, shown = tmp_path / "log", f"*show*cupy-cuda{there}x) exit 0 ;; *show*) exit 1 ;;"
    executable(tmp_path / "python", f'case "$*" in {shown} esac\necho "$@" >> {log}')
    executable(tmp_path / "spdnn", f'echo "$@" >> {log}')
    told = f"case \"$*\" in *compute_cap*) echo '{devices}' ;; *) echo 'CUDA Version: {driver} |' ;; esac"
    executable(tmp_path / "nvidia-smi", told if driver else "exit 9")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert finished(["sh", ROOT / "envs/cuda.sh", tmp_path, asked], env=environment)[0] == 0
    *before, installed, ran = [*log.read_text().splitlines(), *([] if driver else [None])]
    assert f"--require-hashes -r envs/cuda{wanted}.txt" in installed
    other = 25 - wanted
    assert before == ([f"-m pip uninstall --yes --quiet cupy-cuda{other}x"] if there == other else [])
    assert ran == ("challenge --engine cuda --neurons 1024 --layers 1 --inputs digits" if driver else None)


@pytest.mark.parametrize(
    ("asked", "smi", "sentence"),
    [
        ("11", "exit 9", "CUDA=11: it must be 12, 13 or auto"),
        ("auto", "exit 9", "CUDA=auto needs an NVIDIA GPU with its driver, "),
        ("auto", "echo '| CUDA Version: 11.0 |'", "the driver here is for CUDA 11, "),
    ],
)
def test_set_up_for_a_gpu_refuses(tmp_path, asked, smi, sentence):
    executable(tmp_path / "nvidia-smi", smi)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    status, out, told = finished(["sh", ROOT / "envs/cuda.sh", tmp_path, asked], env=environment)
    assert (status, out) == (1, "")
    assert re.fullmatch(f"spdnn: {re.escape(sentence)}.*\n", told)


@pytest.mark.parametrize(("cupy", "status"), [(0, 5), (1, 1)])
def test_a_set_up_that_fails_does_not_stop_the_check_of_the_gpu(tmp_path, cupy, status):
    """Its run on the GPU may be what fails, and the check says why; without CuPy nothing can be checked."""
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin/python", f'case "$1" in -c) exit {cupy} ;; *check.py) exit 5 ;; esac')
    executable(tmp_path / "make", "exit 2")
    environment = {**os.environ, "MAKE": str(tmp_path / "make"), "VENV": str(tmp_path)}
    assert finished(["sh", ROOT / "tests/gpu/run.sh", "check.py"], env=environment)[0] == status


@pytest.mark.parametrize(
    ("arguments", "strict", "pythons", "status", "ran"),
    [
        ((), "", {"3.12.1": "3.12", "3.12.11": "3.12", "3.13.0": "damaged"}, 0, r"tests/run.py .*tests/cli .*"),
        (("all",), "", {"3.12.1": "3.12"}, 0, r"tests/run.py"),
        ((), "CI", {"3.13.0": "damaged"}, 1, None),
        ((), "", {}, 0, None),
    ],
)
def test_every_other_python_of_the_machine_is_tested(tmp_path, arguments, strict, pythons, status, ran):
    log, python = tmp_path / "log", 'case "$1" in -c) echo {} ;; *) echo "$@" >> {} ;; esac'
    for path, version in {"venv": "3.11", **{f"pyenv/versions/{name}": says for name, says in pythons.items()}}.items():
        (tmp_path / path / "bin").mkdir(parents=True)
        executable(tmp_path / path / "bin/python", python.format(version, log))
    # A make whose environments have the same Python; nothing else is on the path.
    executable(tmp_path / "make", f'echo "$@" >> {log}\ncp -r {tmp_path}/venv {tmp_path}/venv-3.12')
    (tmp_path / "tools").mkdir()
    for tool in ("sh", "dirname", "ls", "sort", "cp"):
        (tmp_path / "tools" / tool).symlink_to(shutil.which(tool))
    environment = {"PATH": f"{tmp_path}/tools", "PYENV_ROOT": f"{tmp_path}/pyenv", "VENV": f"{tmp_path}/venv"}
    environment |= {"MAKE": f"{tmp_path}/make", **({strict: "1"} if strict else {})}
    assert finished(["sh", ROOT / "tests/pythons.sh", *arguments], env=environment)[0] == status
    logged = log.read_text().splitlines() if log.exists() else []
    if ran is None:
        assert logged == []
        return
    newest = tmp_path / "pyenv/versions" / [*pythons][min(1, len(pythons) - 1)] / "bin/python"
    made, tested = logged
    assert made == f"-s PYTHON={newest} VENV={tmp_path}/venv-3.12 {tmp_path}/venv-3.12/.tested setup"
    assert re.fullmatch(ran, tested)


@pytest.mark.parametrize(
    ("name", "value", "target", "expected"),
    [
        ("CUDA", "/usr/local/cuda", "setup", "envs/cuda.sh"),
        ("ARGS", "--forceall", "run", "snakemake --cores 7 --forceall"),
        ("ARGS", "-x", "test", "tests/run.py -x"),
        ("CORES", "512", "run", "snakemake --cores 512"),
        ("FUZZ_SECONDS", "1", "fuzz", "run.py --seconds 1 "),
        ("MODULE_SECONDS", "1", "fuzz", "fuzz_modules.py --seconds 1 "),
    ],
)
def test_only_the_command_line_of_make_sets_what_others_export(name, value, target, expected):
    cores = [] if name == "CORES" else ["CORES=7"]
    shown = []
    for words, exported in (([f"{name}={value}"], {}), ([], {name: value}), ([f"{name}={value}"], {name: "another"})):
        status, out, told = finished(
            ["make", "-n", *cores, *words, target], cwd=ROOT, env=os.environ | {"MAKEFLAGS": ""} | exported
        )
        assert status == 0, told
        shown.append(expected in out)
    assert shown == [True, False, True]


@pytest.mark.parametrize(
    ("words", "readers", "modules"),
    [
        ([], "--seconds 600  ", "--seconds 600 "),
        (["ARGS=modules"], None, "--seconds 600 "),
        (["ARGS='\"Matrix Market\" npz'"], "--seconds 600 '\"Matrix Market\" npz' ", None),
        (["ARGS=npz modules", "FUZZ_SECONDS=5"], "--seconds 5 npz ", "--seconds 5 "),
        (["MODULE_SECONDS=7"], "--seconds 600  ", "--seconds 7 "),
    ],
)
def test_readers_or_modules_alone_are_fuzzed(words, readers, modules):
    status, out, told = finished(["make", "-n", *words, "fuzz"], cwd=ROOT, env=os.environ | {"MAKEFLAGS": ""})
    assert status == 0, told
    for program, expected in (("tests/fuzz/run.py", readers), ("tests/with_torch/fuzz_modules.py", modules)):
        assert (program in out) == (expected is not None)
        assert expected is None or f"{program} {expected}|| " in out
