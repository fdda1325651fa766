"""What tests compile, kept outside the checkout, so that a fresh clone compiles nothing that was compiled before.

An entry is a file named by the digest of all that it is made from. Beside it is a lock, which holds the digest of the
file's content: an entry that was damaged, or not finished, is made anew. `tests/run.py` removes what nothing has used
for 30 days.
"""

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TextIO

from spdnn.core.files import replacing

# In the environment, for processes that a test starts with another home.
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").absolute()
FOLDER = Path(os.environ.setdefault("SPDNN_TEST_CACHE", str(_CACHE / "spdnn-tests"))).expanduser()
UNUSED = 30 * 24 * 3600  # seconds after which an entry goes


def entry(kind: str, sources: Iterable[str], suffix: str, make: Callable[[Path], object]) -> Path:
    """The file that `make(path)` writes: from the cache, or made now.

    Args:
        kind: the folder of the cache; sources: all that the file depends on; suffix: of its name.
    """
    path = _path(kind, sources, suffix)
    with open(path.with_suffix(".lock"), "a+", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # another process may be making the same
        if not _whole(path, lock):
            with replacing(path, durable=False) as temporary:
                make(temporary)
                content = _digest(temporary)
            lock.truncate(0)
            lock.write(content)
    return path


def find(kind: str, sources: Iterable[str], suffix: str) -> Path | None:
    """The file of an entry, where it is whole."""
    path = _path(kind, sources, suffix)
    with open(path.with_suffix(".lock"), "a+", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        return path if _whole(path, lock) else None


def folder(kind: str, name: str) -> Path:
    """A folder of the cache that another program fills and checks."""
    path = FOLDER / kind / name
    path.mkdir(parents=True, exist_ok=True)
    os.utime(path)
    return path


def remove_unused() -> None:
    """Remove the entries that nothing has used for UNUSED seconds."""
    for path in FOLDER.glob("*/*"):
        try:
            if time.time() - path.stat().st_mtime > UNUSED:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except FileNotFoundError:  # another run removed it
            pass


def _path(kind: str, sources: Iterable[str], suffix: str) -> Path:
    (FOLDER / kind).mkdir(parents=True, exist_ok=True)
    return FOLDER / kind / (hashlib.sha256("\0".join(sources).encode()).hexdigest()[:32] + suffix)


def _whole(path: Path, lock: TextIO) -> bool:
    """Whether the content of an entry is what its lock says; it then counts as used."""
    lock.seek(0)
    if not path.exists() or lock.read() != _digest(path):
        return False
    os.utime(path), os.utime(lock.fileno())
    return True


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
