"""Prepared networks in files, and the cache of `spdnn challenge`: inputs and prepared networks of earlier runs.

Files are in the folder `made` of $SPDNN_DATA (or ~/.cache/spdnn), under names with a digest of the source and of this
package's code. When all take more than MOST bytes, those that were not used for longest are removed. A damaged file is
made again. What another user wrote is used, and neither replaced nor removed. A record lists the parts that came from
the cache (`time_to_solution.cached`).
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
from typing import TypeVar

from spdnn.core.challenge import MAX_LAYERS
from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.features import Inputs
from spdnn.core.files import cache_folder, sha256
from spdnn.core.network import Network
from spdnn.core.provenance import package_digest
from spdnn.engines.base import Prepared
from spdnn.formats.inputs import read_inputs, write_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.store import read_prepared, write_prepared

MOST = 10_000_000_000  # bytes
SLACK = 1 << 20  # of a store besides its arrays
Content = TypeVar("Content")


class StoreCache:
    """The stores of one run: those that were read, and those to write once the run is verified.

    Attributes:
        taken: the parts of a time to solution that came from here.
    """

    def __init__(self):
        self.folder = None
        with contextlib.suppress(Unavailable):  # no home folder: nothing is kept
            self.folder = cache_folder() / "made"
        self.taken: list[str] = []
        self._kept: list[tuple[Path, int, Callable[[Path], None]]] = []

    def inputs(self, kind: str, neurons: int, source: Path | None, make: Callable[[], Inputs]) -> Inputs:
        """All inputs of a width, from here or by `make`; `source`: the file that they are made of."""
        key = {"inputs": kind, "neurons": neurons, "source": source and sha256(source)}
        path = self._path(f"inputs-{kind}-{neurons}", key)
        inputs = self._take("inputs", path, read_inputs)
        if inputs is None:
            inputs = make()
            self._keep(path, inputs.nbytes, lambda path: write_inputs(path, inputs, durable=False))
        return inputs

    def prepare(
        self, network: Network, engine: str, reductions: tuple[str, ...], make: Callable[[], Prepared]
    ) -> Prepared:
        """A network prepared for an engine, from here if it was as deep or deeper, or by `make`."""
        if not isinstance(network, RadixNet):  # others are not kept
            return make()
        whole = RadixNet(network.neurons, MAX_LAYERS)
        key = {"network": whole.description, "engine": engine, "reductions": reductions}
        path = self._path(f"prepared-{network.neurons}-{engine}", key)

        def read(path: Path) -> Prepared | None:
            stored, _ = read_store(path, whole)
            return stored.first(network.depth) if stored.network.depth >= network.depth else None

        prepared = self._take("prepare", path, read)
        if prepared is None:
            prepared = make()
            if type(prepared.network) is not RadixNet:  # else there is nothing to gain
                info = store_info(prepared, 0.0)
                write = lambda path: write_prepared(path, prepared.network, info, durable=False)  # noqa: E731
                self._keep(path, prepared.network.nbytes, write)
        return prepared

    def keep(self) -> None:
        """Write the content, now that it is verified; standard error says what cannot be written."""
        for path, size, write in self._kept:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if _own(path) and self._room(size):
                    write(path)
            except (OSError, SpdnnError) as error:
                print(f"spdnn: warning: {error}; it is made again the next time", file=sys.stderr)

    def _path(self, name: str, key: dict) -> Path | None:
        if self.folder is None:
            return None
        text = json.dumps([key, package_digest()], sort_keys=True)
        return self.folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:32]}.safetensors"

    def _take(self, part: str, path: Path | None, read: Callable[[Path], Content | None]) -> Content | None:
        try:
            content = read(path) if path is not None and path.exists() else None
        except (OSError, InputError):  # damaged, not to be read by this user, or removed by another process
            return None
        if content is not None:
            with contextlib.suppress(OSError):  # of another user, or mounted read-only
                os.utime(path, ns=(time.time_ns(), path.stat().st_mtime_ns))  # it was used, and not changed
            self.taken.append(part)
        return content

    def _keep(self, path: Path | None, size: int, write: Callable[[Path], None]) -> None:
        if path is not None:
            self._kept.append((path, size + SLACK, write))

    def _room(self, size: int) -> bool:
        """Whether a file of `size` bytes may be written; the oldest ones of this user go for it."""
        files = sorted((file.stat().st_atime, file.stat().st_size, file) for file in self.folder.glob("*.safetensors"))
        own = [(nbytes, path) for _, nbytes, path in files if _own(path)]
        over = size - MOST + sum(nbytes for _, nbytes, _ in files)
        if over > sum(nbytes for nbytes, _ in own) or size > shutil.disk_usage(self.folder).free:
            return False
        for nbytes, path in own:
            if over <= 0:
                break
            path.unlink(missing_ok=True)
            over -= nbytes
        return True


def read_store(path: str | Path, network: Network, layers: int | None = None) -> tuple[Prepared, float]:
    """A prepared network from its store, and the seconds that preparing took.

    Args:
        network: what it was prepared of; at least as deep.
        layers: how many of the first to take; None: all that were prepared.

    Raises:
        InputError: no prepared network, one that is not as deep, or one of another network.
    """
    # A stored network could be of any source: its identity must be that of this network, as deep as it goes.
    prepared, info = read_prepared(path)
    source = network.first(prepared.depth)
    if info.get("source") != source.identity():
        raise InputError(f"{path}: this was prepared of another network than this one; prepare it anew")
    whole = Prepared(source, prepared, tuple(info["reductions"]), info["found"])
    return whole.first(layers or prepared.depth), info["prepare_seconds"]


def store_info(prepared: Prepared, seconds: float) -> dict:
    """What a store of a prepared network tells besides its layers; `read_store` reads it."""
    info = {"reductions": list(prepared.reductions), "found": prepared.findings, "prepare_seconds": seconds}
    return {**info, "source": prepared.source.identity()}


def _own(path: Path) -> bool:
    """Whether no other user wrote this file."""
    try:
        return path.stat().st_uid == os.geteuid()
    except FileNotFoundError:
        return True
