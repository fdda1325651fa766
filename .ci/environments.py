"""Keeps the environments that `make` has set up from one run of .ci/run to the next.

    python3 .ci/environments.py restore    before `make`: .venv, .venv-torch and those of other Pythons, where the same
                                           were set up before
    python3 .ci/environments.py keep       after all has passed

They are kept by the digest of all that goes into them, so that whatever changes there is set up from nothing once, by
the README's commands. Third-party packages alone are kept: spdnn is installed from the checkout every time. Files are
hard links, made in seconds; what names its folder is written anew.
"""

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAMES = (".venv", ".venv-torch")  # that each run needs; .venv-3.12 and the like are of Pythons that the machine has
INPUTS = ("envs/*", "pyproject.toml", "CMakeLists.txt", "Makefile", "spdnn/kernels/cpu/*")
OURS = ("bin/spdnn", ".built", "lib/python*/site-packages/*spdnn*")  # of an environment, what is of one checkout
STAMPS = (".locked", ".tested", ".wheeling", ".documenting", ".fuzzing")  # of the Makefile, each after those it needs
KEPT = 2  # digests, those used last: each is some gigabytes


def digest(root: Path) -> str:
    """Of locks, build files, kernels, the compiler and Python."""
    compiler = subprocess.check_output([os.environ.get("CXX", "g++"), "--version"])
    found = hashlib.sha256(compiler + f"{sys.version} {os.path.realpath(sys.executable)} {platform.machine()}".encode())
    for path in sorted(path for pattern in INPUTS for path in root.glob(pattern) if path.is_file()):
        found.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return found.hexdigest()[:32]


def keep(root: Path, cache: Path) -> None:
    """Keep the environments of a checkout, those that are not kept yet."""
    target = cache / digest(root)
    for name in (path.name for path in root.glob(".venv*")):
        if (root / name).is_dir() and not (target / name).exists():
            target.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                copy = Path(folder, name)
                shutil.copytree(root / name, copy, symlinks=True, copy_function=os.link)
                for path in (path for pattern in OURS for path in copy.glob(pattern)):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                (copy / "made-in").write_text(f"{root / name}")
                copy.rename(target / name)
    for other in sorted(cache.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT]:
        shutil.rmtree(other, ignore_errors=True)


def restore(root: Path, cache: Path) -> None:
    """Put the environments that are kept into a checkout that has none."""
    source = cache / digest(root)
    for name in sorted({*NAMES, *(path.name for path in source.glob(".venv-*"))}):
        # An environment is of one interpreter, which may be gone since.
        if not (source / name / "bin/python").exists() or (root / name).exists():
            print(f"{name}: {'is there' if (root / name).exists() else 'to be set up from nothing'}", flush=True)
            continue
        os.utime(source)
        with tempfile.TemporaryDirectory(dir=root, prefix=f"{name}-") as folder:
            copy = Path(folder, name)
            shutil.copytree(source / name, copy, symlinks=True, copy_function=os.link)
            made_in = (copy / "made-in").read_text().encode()
            # Programs name their interpreter, and scripts of activation the folder.
            for path in [copy / "pyvenv.cfg", *(copy / "bin").iterdir()]:
                if not path.is_symlink() and path.is_file() and made_in in (content := path.read_bytes()):
                    mode = path.stat().st_mode
                    path.unlink()  # else the content that is kept would change with it
                    path.write_bytes(content.replace(made_in, f"{root / name}".encode()))
                    path.chmod(mode)
            # Younger than the files of the checkout, in the order of the Makefile's rules.
            for stamp in STAMPS:
                if (copy / stamp).exists():
                    (copy / stamp).unlink()
                    (copy / stamp).touch()
            copy.rename(root / name)
        print(f"{name}: as it was set up before, without spdnn", flush=True)


if __name__ == "__main__":
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "spdnn-ci")
    folder.mkdir(parents=True, exist_ok=True)
    {"keep": keep, "restore": restore}[sys.argv[1]](Path(__file__).resolve().parents[1], folder)
