"""Copies of files on a disk of this node.

The node's leader makes them, so that what is read again and again is near.
"""

import contextlib
import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from spdnn.core import endings, progress
from spdnn.core.errors import InputError
from spdnn.core.files import expand_home
from spdnn.core.safe_open import existing
from spdnn.runs.world import World

VARIABLE = "SPDNN_STAGE"  # the folder, where no option names it; $NAME and ~ in it are expanded on the node


@contextlib.contextmanager
def stage_files(world: World, folder: str | None, *paths: str | None) -> Iterator[list[str | None]]:
    """The paths of copies of the files `paths` in a folder of this node's own; the copies are gone at the end.

    Args:
        folder: on a disk of the node; None: the one that SPDNN_STAGE names, and without it, the files as they are.
        paths: files; a None stays None.

    Raises:
        InputError: the folder is none, or has no room for the files; a path is not a file, or names others.
    """
    folder = os.path.expandvars(folder or os.environ.get(VARIABLE, ""))
    if not folder:
        yield list(paths)
        return
    # Named before it is made, for a signal may come as soon as it is there.
    where = expand_home(folder, f"--stage (or {VARIABLE})") / f"spdnn-{os.urandom(4).hex()}"
    discard = partial(shutil.rmtree, where, ignore_errors=True)
    with contextlib.ExitStack() as discarded:
        if world.leader:
            discarded.callback(discard)
            discarded.enter_context(endings.undone(discard))
        copies = world.on_leaders(_copy, where, paths)
        yield copies if world.local is None else world.local.bcast(copies)


def _copy(where: Path, paths: tuple[str | None, ...]) -> list[str | None]:
    """Copies in the new folder `where`."""
    folder = where.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        unset = ", for that variable is not set here" if "$" in str(folder) else ""
        raise InputError(
            f"{folder}: not a folder to write to{unset}; --stage (or {VARIABLE}) names one on a disk of the node"
        )
    from spdnn.formats.readers import network_files

    files = [None if path is None else existing(path, "file") for path in paths]
    for path in filter(None, files):
        if not path.is_file() or len(list(network_files(path))) > 1:
            raise InputError(
                f"{path}: a folder, or a file that names others; --stage copies single files, so convert it to one "
                "(spdnn network import)"
            )
    needed, free = sum(path.stat().st_size for path in files if path), shutil.disk_usage(folder).free
    if needed > free:
        raise InputError(f"{folder}: {free:,} bytes are free, and the files to stage have {needed:,}")
    where.mkdir(mode=0o700)
    copies = []
    for number, path in enumerate(progress.bar(files, "stage files", len(files), "file")):
        # names may say what a file holds, and stay
        near = where / str(number)
        near.mkdir()
        copies.append(path and str(shutil.copyfile(path, near / path.name)))
    return copies
