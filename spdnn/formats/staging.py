"""Several files that appear in a folder together, once all of them are whole."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from spdnn.core import endings
from spdnn.core.errors import SpdnnError


@contextlib.contextmanager
def stage_folder(folder: Path, names: list[str]) -> Iterator[Path]:
    """A hidden folder in `folder` to write the files `names` to; at the end they move to `folder`, the first one last.

    On any error, an interrupt included, the hidden folder is removed, and `folder` too when it was made here. Files
    of these names are replaced, the first one removed before any other: what a process leaves that is killed while
    they move has no file of the first name, and so is no mixture that looks whole.

    Raises:
        SpdnnError: `folder` cannot be made or written to.
    """
    new, stage = not folder.is_dir(), folder / f".export.{os.urandom(4).hex()}.part"

    def discard():
        shutil.rmtree(stage, ignore_errors=True)
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()  # which fails when there is anything in it

    with contextlib.ExitStack() as discarded:
        discarded.callback(discard)
        discarded.enter_context(endings.undone(discard))
        with writing(folder):
            folder.mkdir(exist_ok=True)
            stage.mkdir()
        yield stage
        with endings.hold_signals(), writing(folder):
            (folder / names[0]).unlink(missing_ok=True)
            for name in reversed(names):
                os.replace(stage / name, folder / name)
            endings.mark_final()


def write(path: Path, content: bytes) -> None:
    """Write a new file and wait until the disk has it. Raises OSError."""
    with open(path, "xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Tell what the operating system refuses (a full disk, no permission...) as one SpdnnError."""
    try:
        yield
    except OSError as error:
        raise SpdnnError(f"{folder}: {error.strerror or error}, so the layers were not written") from error
