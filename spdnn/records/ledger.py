"""What this user's commands made and repeated: a list of the seals of records, in $SPDNN_DATA (or ~/.cache/spdnn).

A record carries its seal with it, and this list stays here: so of a record that comes from elsewhere, whatever it says
of itself, nothing is known but that. It is kept for the reader of a page, and no check depends on it.
"""

import contextlib
import os
from pathlib import Path

from spdnn.common.errors import Unavailable
from spdnn.common.files import cache_folder
from spdnn.records.run_record import RunRecord

MADE, REPEATED, GIVEN = "made here", "repeated here", "as given"
_WORDS = {"made": MADE, "repeated": REPEATED}  # as a line has them; the later one of a record is the stronger
_BYTES = 1 << 26  # of the list that are read, its end


def note(record: RunRecord, word: str) -> None:
    """Add a sealed record to the list, as `made` or `repeated`; where nothing can be written, it is not known here."""
    with contextlib.suppress(OSError, Unavailable):
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            os.write(file, f"{record.seal} {word}\n".encode())  # one write, so that processes do not mix their lines
        finally:
            os.close(file)


def origins() -> dict[str, str]:
    """MADE or REPEATED by the seal of the record; of all others, it is GIVEN."""
    known: dict[str, str] = {}
    with contextlib.suppress(OSError, Unavailable), open(_path(), "rb") as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - _BYTES))
        for line in file.read(_BYTES).decode("ascii", "replace").splitlines():
            seal, _, word = line.partition(" ")
            if len(seal) == 64 and word in _WORDS and known.get(seal) != REPEATED:
                known[seal] = _WORDS[word]
    return known


def _path() -> Path:
    return cache_folder() / "records.txt"
