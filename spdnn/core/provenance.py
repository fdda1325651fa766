"""The origin of a result: the digest of the code that a module reaches, the commit, the machine."""

import ast
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
# Files besides the code that a module reads, from the root of the checkout.
DATA = {
    "spdnn.kernels": ("spdnn/kernels/cpu/*",),
    "spdnn.kernels.cuda": ("spdnn/kernels/cuda/*.cu", "spdnn/kernels/cuda/*.cuh"),
    "spdnn.report.rendering": ("spdnn/report/**/*.j2", "spdnn/report/*.css", "spdnn/report/*.js"),
    "spdnn.formats.catalog": ("config/data.tsv",),
    "spdnn.runs.verify.verdict": ("config/truth/*",),
}
SHOWN = ("docs", "results", "*.md")  # of a checkout: what shows numbers and makes none
VERSIONS = ("spdnn", "numpy", "scipy", "blake3", "mpi4py", "snakemake")


def module_file(module: str) -> Path | None:
    """The source file of a module of this package, or None when there is none of that name."""
    base = PACKAGE.parent.joinpath(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


@cache
def imports(module: str) -> tuple[str, ...]:
    """The modules of this package that `module` imports, anywhere in its text (packages above it included)."""
    modules = set()
    for node in ast.walk(ast.parse(module_file(module).read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        modules.update(name for name in names if name.split(".")[0] == "spdnn" and module_file(name))
    parts = module.split(".")
    modules.update(".".join(parts[:n]) for n in range(1, len(parts)))
    return tuple(sorted(modules - {module}))


def reachable(*modules: str) -> list[str]:
    """`modules` and all that they import within this package, sorted."""
    seen, todo = set(), list(modules)
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo.extend(imports(module))
    return sorted(seen)


def code_digest(*modules: str) -> str:
    """SHA-256 over the sources that `modules` reach; what a workflow rule depends on besides its input files."""
    digest = hashlib.sha256()
    for module in reachable(*modules):
        files = [module_file(module)]
        for pattern in DATA.get(module, ()):
            files.extend(sorted(path for path in PACKAGE.parent.glob(pattern) if path.is_file()))
        for path in files:
            digest.update(f"{path.relative_to(PACKAGE.parent)}\n".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


@cache
def package_digest() -> str:
    """SHA-256 over all sources of the package, as they lie where it is installed: a checkout, a wheel, a container."""
    digest = hashlib.sha256()
    for path in sorted(path for path in PACKAGE.rglob("*") if path.suffix in (".py", ".cpp", ".hpp", ".cu", ".cuh")):
        digest.update(f"{path.relative_to(PACKAGE)}\n".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


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
    found = {name: version for name in VERSIONS if (version := _version(name))}
    return {
        "cpu": cpu_name(),
        "cores": usable_cores(),
        "memory_bytes": memory_bytes(),
        "gpu": gpu,
        "system": f"{platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | found | libraries,
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
    """The commit of the checkout that the package lies in, with -dirty where more than SHOWN differs; None outside."""
    if not shutil.which("git") or not (PACKAGE.parent / ".git").exists():
        return None

    def git(*arguments: str) -> str | None:
        run = subprocess.run(
            ["git", "-C", str(PACKAGE.parent), *arguments], capture_output=True, errors="replace", check=False
        )
        return run.stdout.strip() if run.returncode == 0 else None

    commit = git("rev-parse", "--short=12", "HEAD")
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", *(f":(exclude){path}" for path in SHOWN))
    return commit and commit + ("-dirty" if changed else "")
