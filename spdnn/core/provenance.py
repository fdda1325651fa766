"""The origin of a result: the digest of the code, the commit, the machine."""

import contextlib
import hashlib
import importlib.metadata
import os
import platform
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from spdnn.core.resources import memory_bytes, usable_cores

PACKAGE = Path(__file__).resolve().parents[1]
SUFFIXES = {".py", ".cpp", ".hpp", ".cu", ".cuh", ".j2", ".css", ".js", ".tsv"}  # of sources, not what is compiled
SHOWN = ("docs", "results", "*.md")  # of a checkout: what shows numbers and makes none
VERSIONS = ("spdnn", "numpy", "scipy", "blake3", "mpi4py", "snakemake")


@cache
def code_digest(*places: str | Path, devices: bool = False) -> str:
    """SHA-256 over the sources in folders and files of the package, or elsewhere by an absolute path.

    Args:
        devices: kernels of GPUs (.cu, .cuh) too.
    """
    digest = hashlib.sha256()
    for place in (PACKAGE / place for place in places):
        for path in [place] if place.is_file() else sorted(place.rglob("*")):
            if path.suffix in SUFFIXES and (devices or not path.suffix.startswith(".cu")):
                digest.update(f"{path.relative_to(PACKAGE.parent)}\n".encode())
                digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def package_digest() -> str:
    """SHA-256 over all sources of the package, as they lie where it is installed: a checkout, a wheel, a container."""
    return code_digest(".", devices=True)


@cache
def lock_digest() -> str:
    """SHA-256 over the names and versions of all packages that are installed: the lock of what really ran.

    Both are in the names of the folders that installers leave; reading what lies in them takes a tenth of a second.
    """
    installed: set[str] = set()
    for folder in sys.path:
        with contextlib.suppress(OSError):
            installed.update(name for name in os.listdir(folder or ".") if name.endswith((".dist-info", ".egg-info")))
    return hashlib.sha256("".join(f"{name}\n" for name in sorted(installed)).encode()).hexdigest()


def _build_facts() -> tuple[str | None, dict[str, str]]:
    """(compiler and flags of the kernels, versions of the libraries under them) of the modules that were imported."""
    versions: dict[str, str] = {}
    kernels, mpi, cupy = (sys.modules.get(name) for name in ("spdnn.kernels._cpu", "mpi4py.MPI", "cupy"))
    if kernels:
        versions["OpenMP"] = str(kernels.openmp)
    if mpi:
        versions["MPI"] = mpi.Get_library_version().split("\n")[0].strip("\0 ")[:80]
    if cupy:
        runtime, compiler = cupy.cuda.runtime, cupy.cuda.nvrtc.getVersion()
        versions |= {"cupy": cupy.__version__, "CUDA runtime": str(runtime.runtimeGetVersion())}
        versions |= {"CUDA driver": str(runtime.driverGetVersion()), "NVRTC": ".".join(map(str, compiler))}
    return (kernels.compiler if kernels else None), versions


def environment(command: str, gpu: str | None = None) -> dict:
    """The machine and the software, as a record holds them; `command` reproduces the run, which used `gpu` or none."""
    compiler, libraries = _build_facts()
    packages = {name: version for name in VERSIONS if (version := _version(name))}
    return {
        "cpu": cpu_name(),
        "cores": usable_cores(divided=False),
        "memory_bytes": memory_bytes(),
        "gpu": gpu,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | packages | libraries,
        "commit": _commit(),
        "code": package_digest(),
        "compiler": compiler,
        "lock": lock_digest(),
        "command": command,
    }


@cache
def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@cache
def cpu_name() -> str:
    """The processor, as the system names it."""
    with open("/proc/cpuinfo", encoding="utf-8") as stream:
        for line in stream:
            if line.startswith(("model name", "Model")):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


@cache
def _commit() -> str | None:
    """The commit of the checkout that the package lies in, with -dirty where more than SHOWN differs; None outside, and
    where git refuses the checkout or cannot read it.
    """
    if not shutil.which("git") or not (PACKAGE.parent / ".git").exists():
        return None

    def git(*arguments: str) -> str | None:
        # Git tells its hooks their repository in variables; and a broken checkout may lie in another repository.
        given = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
        given["GIT_CEILING_DIRECTORIES"] = str(PACKAGE.parents[1])
        run = subprocess.run(
            ["git", *arguments], cwd=PACKAGE.parent, env=given, capture_output=True, errors="replace", check=False
        )
        return run.stdout.strip() if run.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *(f":(exclude){path}" for path in SHOWN))
    return None if commit is None or changed is None else commit + ("-dirty" if changed else "")
