"""What files of the user's own hold, as a parameter of the rules that read them.

Snakemake asks of an input whether it is newer. An older file in its place (cp -p, rsync, a backup), or another layer in
the folder of a network, would be no reason to run again.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

from spdnn.core.errors import SpdnnError
from spdnn.core.files import sha256, write_text

KNOWN = Path(".snakemake/spdnn-contents.json")  # {file: [status, digest]}; to read 16 GB takes 18 s at every start


def content(paths: Iterable[str | Path | None]) -> str:
    """SHA-256 over the names and the contents of these files; one that cannot be read is left to its reader.

    A file is read again where its status changed, in which the time of its last change can be set by no program.
    """
    try:
        known = json.loads(KNOWN.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    before, digest = dict(known), hashlib.sha256()
    with contextlib.suppress(SpdnnError):  # a list of layers that is not sound
        for path in sorted(str(path) for path in paths if path):
            with contextlib.suppress(OSError):
                status = os.stat(path)
                seen = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
                if path not in known or known[path][0] != seen:
                    known[path] = [seen, sha256(path)]
                digest.update(f"{os.path.basename(path)!a} {known[path][1]}\n".encode())
    if known != before:
        with contextlib.suppress(SpdnnError):  # it is read again the next time
            write_text(KNOWN, json.dumps(known))
    return digest.hexdigest()
