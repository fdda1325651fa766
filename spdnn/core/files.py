"""Files appear whole or not at all: written under a temporary name next to the target, then renamed."""

import contextlib
import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from spdnn.core import endings, safe_open
from spdnn.core.errors import InputError, SpdnnError, Unavailable

_together: tuple[contextlib.ExitStack, list] | None = None  # of the block of `together` that is under way


@contextlib.contextmanager
def replacing(path: str | os.PathLike, durable: bool = True) -> Iterator[Path]:
    """Yield a temporary path next to `path`; rename it to `path` when the block ends without an error.

    Args:
        durable: the content is on the disk before the name is; else a power failure may leave a damaged file.

    On any error, an interrupt included, the temporary file is removed and `path` is left as it was.

    Raises:
        SpdnnError: the folder cannot be written to, or the disk is full.
    """
    target = check_target(path)
    temporary = _temporary(target)
    with _rename_after(target, lambda: os.replace(temporary, target), lambda: temporary.unlink(missing_ok=True)):
        with open(temporary, "xb"):
            pass
        yield temporary
        if durable:
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())


@contextlib.contextmanager
def replacing_folder(path: str | os.PathLike) -> Iterator[Path]:
    """As `replacing`, of a folder: yield an empty one; at the end it becomes `path`, and all that was there is removed.

    What may be removed is for the caller to know. A process that is killed between the two renames leaves no `path`,
    and never a mixture.

    Raises:
        InputError: `path` is no folder, or the folder that it is to be in does not exist or cannot be written to.
        SpdnnError: the disk is full, or something else that the operating system refuses.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise InputError(f"{path} is not a folder, and would be replaced by one; name another")
    _check_parent(target)
    stage = _temporary(target)
    whole, before = stage / "whole", stage / "before"

    def name():
        if target.exists():
            os.replace(target, before)
        os.replace(whole, target)

    def discard():
        if before.exists() and not target.exists():
            os.replace(before, target)
        shutil.rmtree(stage, ignore_errors=True)

    with _rename_after(target, name, discard):
        whole.mkdir(parents=True)
        yield whole


@contextlib.contextmanager
def together() -> Iterator[None]:
    """What is written in this block by `replacing` and `replacing_folder` gets its names at the end, or none does.

    All of it is whole before the first is renamed, and no signal comes between the renames. What kills the process or
    the machine in these few system calls leaves the first of them renamed, and the others as they were before. Raises
    SpdnnError where one cannot be renamed.
    """
    global _together
    if _together is not None:
        yield
        return
    with contextlib.ExitStack() as discarded:
        _together = discarded, []
        try:
            yield
            names = _together[1]
        finally:
            _together = None
        if names:
            _name(names)


@contextlib.contextmanager
def _rename_after(target: Path, name: Callable[[], None], discard: Callable[[], None]) -> Iterator[None]:
    """After this block, or the one of `together` around it, `name` is called; `discard` is, however that ends."""
    with contextlib.ExitStack() as own:
        discarded, names = _together or (own, None)
        discarded.callback(discard)
        discarded.enter_context(endings.undone(discard))
        try:
            yield
        except OSError as error:
            raise _sentence(error, target) from error
        if names is None:
            _name([(target, name)])
        else:
            names.append((target, name))


def _name(names: list[tuple[Path, Callable[[], None]]]) -> None:
    with endings.hold_signals():
        for target, name in names:
            try:
                name()
            except OSError as error:
                raise _sentence(error, target) from error
            endings.mark_final()


def _temporary(target: Path) -> Path:
    """A new name next to `target`, chosen before anything has it: a signal may come as soon as it is there.

    It begins with a few characters of the target's, whose name may be as long as the file system allows.
    """
    return target.with_name(f".{target.name[:24]}.{os.urandom(4).hex()}.part")


def reserve(stream: BinaryIO, size: int) -> None:
    """Have the disk keep room for the first `size` bytes of a file; an OSError says before writing that it has none."""
    try:
        if size:
            os.posix_fallocate(stream.fileno(), 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):  # a file system that cannot
            raise


def check_target(path: str | os.PathLike) -> Path:
    """The file that writing to `path` would replace; links are followed.

    Raises:
        InputError: it is a folder, a device or another thing that is no plain file, or its folder does not exist or
            cannot be written to, or its name, or the temporary one, is too long.
    """
    try:
        target = Path(os.path.realpath(path))
        for name in (target, _temporary(target)):
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                os.lstat(name)
        if target.is_dir():
            raise InputError(f"{path} is a folder; name a file to write")
        if target.exists() and not target.is_file():
            raise InputError(f"{path} is not a plain file, and would be replaced by one; name another")
        if not target.parent.is_dir():
            safe_open.check_no_url(path)
        _check_parent(target)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    return target


def check_outputs(outputs: Iterable[str | os.PathLike], inputs: Iterable[str | os.PathLike] = ()) -> None:
    """Refuse files to write that cannot be written, that are one file, or that are a file to be read.

    Files are compared by device and inode, so links to one file are that file.

    Args:
        outputs: paths of files.
        inputs: paths of files; those that are not there are passed over.

    Raises:
        InputError: as said, and as `check_target`.
    """
    written = {}
    for path in outputs:
        if (key := identity(check_target(path))) in written:
            raise InputError(f"{path}: two outputs cannot be one file")
        written[key] = path
    for path in inputs:
        if (output := written.get(identity(path))) is not None:
            raise InputError(f"{output}: this output would replace {path}, which is read; name another file")


def identity(path: str | os.PathLike) -> tuple[int, int] | str:
    """What is the same for all names of a file: its device and inode, or its whole name where there is no such file."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return status.st_dev, status.st_ino


def _check_parent(target: Path) -> None:
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} does not exist; make that folder before writing {target.name} into it")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"{target.parent}: nothing can be written into this folder")


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write `text` (UTF-8; parts of a file's name that are no text are escaped) to `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    import hashlib  # OpenSSL, which a command that only prints its version need not load

    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sentence(error: OSError, target: Path) -> SpdnnError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SpdnnError(f"{target}: the disk is full, so nothing was written")
    return SpdnnError(f"{target}: {error.strerror or error}, so nothing was written")


def variable_path(name: str) -> Path | None:
    """The path that an environment variable has, as `expand_home` takes it; None where it is empty or not set."""
    value = os.environ.get(name)
    return expand_home(value, name) if value else None


def expand_home(path: str | os.PathLike, where: str) -> Path:
    """The path with a home folder in place of ~ or ~USER at its beginning, as a shell has it; files of .env, containers
    and schedulers have no shell.

    Raises:
        InputError: there is no such user, or no such folder is known; `where` begins the sentence.
    """
    if (expanded := os.path.expanduser(os.fspath(path))).startswith("~"):
        raise InputError(f"{where}: {path}: no home folder is known that this ~ stands for; write the whole path")
    return Path(expanded)


def cache_folder() -> Path:
    """Where downloads and what is made of them, and choices of tiles, are kept by default: $SPDNN_DATA, else
    $XDG_CACHE_HOME/spdnn, else ~/.cache/spdnn.

    Raises Unavailable where the user has no home folder, as in a container whose user id has no name.
    """
    if folder := variable_path("SPDNN_DATA"):
        return folder
    if os.path.isabs(caches := os.environ.get("XDG_CACHE_HOME", "")):  # the specification has others ignored
        return Path(caches, "spdnn")
    try:
        return Path.home() / ".cache" / "spdnn"
    except RuntimeError as error:
        raise Unavailable("this user has no home folder; SPDNN_DATA must name one for downloads") from error
