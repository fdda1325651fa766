"""The cache of `spdnn challenge`: inputs of earlier runs. Networks are not kept: a formula makes them as fast.

Files are in the folder `made` of `cache_folder`, under names with a digest of the source and of this package's code.
When all take more than CACHE_BYTES, those that were not used for longest are removed. A damaged file is made again.
What another user wrote is used, and neither replaced nor removed. A record lists the parts that came from the cache
(`time_to_solution.cached`).
"""

import contextlib
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path

from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.features import Inputs
from spdnn.core.files import cache_folder, sha256
from spdnn.core.provenance import package_digest
from spdnn.formats.inputs import read_inputs, write_inputs

CACHE_BYTES = 10_000_000_000  # that all inputs in the cache may take
BESIDE_ARRAYS = 1 << 20  # of a store besides its arrays


class InputCache:
    """Inputs that one run takes from earlier runs, or leaves for later ones once it is verified.

    Attributes:
        taken: the parts of a time to solution that came from here.
    """

    def __init__(self):
        self.folder = None
        with contextlib.suppress(Unavailable):  # no home folder: nothing is kept
            self.folder = cache_folder() / "made"
        self.taken: list[str] = []
        self._made: list[tuple[Path, Inputs]] = []

    def inputs(self, kind: str, neurons: int, source: Path | None, make: Callable[[], Inputs]) -> Inputs:
        """All inputs of a width, from here or by `make`; `source`: the file that they are made of."""
        if self.folder is None:
            return make()
        key = [{"inputs": kind, "neurons": neurons, "source": source and sha256(source)}, package_digest()]
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        path = self.folder / f"inputs-{kind}-{neurons}-{digest}.safetensors"
        # A damaged file, one that this user may not read, or that another process removed: they are made anew.
        with contextlib.suppress(OSError, InputError):
            if path.exists():
                inputs = read_inputs(path)
                with contextlib.suppress(OSError):  # of another user, or mounted read-only
                    os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))  # it was used, and not changed
                self.taken.append("inputs")
                return inputs
        inputs = make()
        self._made.append((path, inputs))
        return inputs

    def keep(self) -> None:
        """Write what was made, now that it is verified; standard error says what cannot be written."""
        for path, inputs in self._made:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if _own(path) and self._room(inputs.nbytes + BESIDE_ARRAYS):
                    write_inputs(path, inputs, durable=False)
            except (OSError, SpdnnError) as error:
                print(f"spdnn: warning: {error}; it is made again the next time", file=sys.stderr)

    def _room(self, size: int) -> bool:
        """Whether a file of `size` bytes may be written; the oldest ones of this user go for it."""
        files = sorted((file.stat().st_atime, file.stat().st_size, file) for file in self.folder.glob("*.safetensors"))
        own = [(nbytes, path) for _, nbytes, path in files if _own(path)]
        over = size - CACHE_BYTES + sum(nbytes for _, nbytes, _ in files)
        if over > sum(nbytes for nbytes, _ in own) or size > shutil.disk_usage(self.folder).free:
            return False
        for nbytes, path in own:
            if over <= 0:
                break
            path.unlink(missing_ok=True)
            over -= nbytes
        return True


def _own(path: Path) -> bool:
    """Whether no other user wrote this file."""
    try:
        return path.stat().st_uid == os.geteuid()
    except FileNotFoundError:
        return True
