"""Files appear whole or not at all: written under a temporary name next to the target, then renamed."""

import contextlib
import errno
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from spdnn.common.errors import InputError, SpdnnError


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
    try:
        with open(temporary, "xb"):
            pass
        yield temporary
        if durable:
            with open(temporary, "rb") as stream:
                os.fsync(stream.fileno())
        os.replace(temporary, target)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _sentence(error, target) from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _temporary(target: Path) -> Path:
    """A new name next to `target`, chosen before anything has it: a signal may come as soon as it is there."""
    return target.with_name(f".{target.name}.{os.urandom(4).hex()}.part")


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
    try:
        whole.mkdir(parents=True)
        yield whole
        if target.exists():
            os.replace(target, before)
        os.replace(whole, target)
    except OSError as error:
        raise _sentence(error, target) from error
    finally:
        if before.exists() and not target.exists():
            os.replace(before, target)
        shutil.rmtree(stage, ignore_errors=True)


def check_target(path: str | os.PathLike) -> Path:
    """The file that writing to `path` would replace; links are followed.

    Raises:
        InputError: it is a folder, a device or another thing that is no plain file, or its folder does not exist or
            cannot be written to.
    """
    try:
        target = Path(os.path.realpath(path))
        if target.is_dir():
            raise InputError(f"{path} is a folder; name a file to write")
        if target.exists() and not target.is_file():
            raise InputError(f"{path} is not a plain file, and would be replaced by one; name another")
        _check_parent(target)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    return target


def _check_parent(target: Path) -> None:
    if not target.parent.is_dir():
        raise InputError(f"{target.parent} does not exist; make that folder before writing {target.name} into it")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise InputError(f"{target.parent}: nothing can be written into this folder")


_ended_by: int | None = None  # the signal that is ending this process


@contextlib.contextmanager
def clean_on_terminate() -> Iterator[None]:
    """In this block, let SIGTERM and SIGHUP end the process as an error does, so that temporary files are removed.

    The exit status is 128 + the signal's number. A signal that is ignored (nohup) stays so. SIGINT raises
    KeyboardInterrupt as ever, and is remembered like the others for `check_ended`. At the end of the block the handlers
    of before are back.
    """
    global _ended_by

    def ended(number, frame):
        global _ended_by
        first, _ended_by = _ended_by is None, number
        if first and number != signal.SIGINT:
            print("spdnn: terminated; nothing was written under a final name", file=sys.stderr)
        check_ended()

    def unraisable_hook(unraisable, default=sys.unraisablehook):
        # Python swallows what is raised in a finalizer, with a traceback; check_ended raises it again.
        if _ended_by is None or unraisable.exc_type not in (KeyboardInterrupt, SystemExit):
            default(unraisable)

    before = _ended_by, sys.unraisablehook
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    handled = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
    _ended_by, sys.unraisablehook = None, unraisable_hook
    try:
        for number in handled:
            signal.signal(number, ended)
        yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: it was not Python's
        _ended_by, sys.unraisablehook = before


def check_ended() -> None:
    """Raise again what a signal raised, in case a library swallowed it, as in a finalizer."""
    if _ended_by == signal.SIGINT:
        raise KeyboardInterrupt
    if _ended_by is not None:
        raise SystemExit(128 + _ended_by)


def write_text(path: str | os.PathLike, text: str) -> None:
    """Write `text` (UTF-8) to `path`, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def sha256(path: str | os.PathLike) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    import hashlib  # OpenSSL, which a command that only prints its version need not load

    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def existing(path: str | os.PathLike, what: str) -> Path:
    """`path` as a Path when it exists, else one sentence that names `what` is missing."""
    full = Path(path)
    try:
        there = full.exists()
    except OSError as error:
        raise InputError(f"{str(full)[:200]}: {error.strerror}") from error
    if not there:
        raise InputError(f"{full}: there is no such {what}")
    return full


def _sentence(error: OSError, target: Path) -> SpdnnError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return SpdnnError(f"{target}: the disk is full, so nothing was written")
    return SpdnnError(f"{target}: {error.strerror or error}, so nothing was written")
