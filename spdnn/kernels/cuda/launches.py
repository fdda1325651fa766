"""Launches in a folder, for whoever wants to replay them elsewhere: on the CPU, in a simulator, under a profiler.

With SPDNN_CUDA_LAUNCHES=FOLDER in the environment every launch that a device binds from then on is waited for and
written down: a line of FOLDER/launches.jsonl for each, with kernel, compiler options, grid, and of each argument its
number, or its array before the launch and after it. Arrays are FOLDER/arrays/DIGEST.npy, each content once; sources,
complete, are FOLDER/sources/DIGEST.cu. Tables of pointers have the arrays that they point to. Nothing is captured then.
"""

import hashlib
import json
import os
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from spdnn.core.errors import InputError
from spdnn.core.files import replacing
from spdnn.kernels.cuda.declarations import Kernel, source

LAUNCHES = "SPDNN_CUDA_LAUNCHES"
LIST, ARRAYS, SOURCES = "launches.jsonl", "arrays", "sources"
_POINTED: "weakref.WeakValueDictionary[int, Any]" = weakref.WeakValueDictionary()  # arrays in tables, by address


def folder() -> Path | None:
    """Where launches are written, if they are.

    Raises:
        InputError: it cannot be made.
    """
    if not os.environ.get(LAUNCHES):
        return None
    path = Path(os.environ[LAUNCHES])
    try:
        for name in (ARRAYS, SOURCES):
            (path / name).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{LAUNCHES}={path}: no folder can be made there ({error.strerror})") from error
    return path


def note_pointer(address: int, array: Any) -> None:
    """`array` may be in a table of pointers."""
    if os.environ.get(LAUNCHES):
        _POINTED[address] = array


def record_launch(
    to: Path, device: Any, launch: Callable[[], None], kernel: Kernel, blocks: int, values: tuple, shared: int
) -> Callable[[], None]:
    """`launch`, as Device._bind gives it for these arguments; each call adds a line to the list in the folder `to`."""

    def call() -> None:
        # Arrays are written before and after, so that a replay can begin with the former and compare with the latter.
        before = [_describe_argument(to, device, value, tables=True) for value in values]
        launch()
        after = [_describe_argument(to, device, value) for value in values]
        arguments = [
            {"name": parameter.name, **was} | ({"after": now["array"]} if parameter.array else {})
            for parameter, was, now in zip(kernel.parameters, before, after, strict=True)
        ]
        text, properties = source(kernel.file), device.properties
        name = hashlib.sha256(text.encode()).hexdigest()[:32]
        if not (path := to / SOURCES / f"{name}.cu").exists():
            path.write_text(text, encoding="utf-8")
        line = {
            "kernel": kernel.name,
            "threads": kernel.threads,
            "macros": dict(kernel.macros),
            "source": name,
            "options": kernel.options,
            "capability": properties.capability,
            "multiprocessors": properties.multiprocessors,
            "shared_per_block": properties.shared_per_block,
            "blocks": blocks,
            "shared": shared,
            "arguments": arguments,
        }
        with open(to / LIST, "a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")

    return call


def _describe_argument(to: Path, device: Any, value: Any, tables: bool = False) -> dict:
    """What a line says of an argument; arrays are written, with `tables` those too that their elements point to."""
    if isinstance(value, np.generic):
        return {"type": value.dtype.name, "value": value.item()}
    # Content addressing: an array that many launches read is written once.
    host = np.ascontiguousarray(device.read(value)).reshape(-1)
    content = hashlib.sha256(f"{host.dtype}\n".encode() + host.tobytes()).hexdigest()[:32]
    path = to / ARRAYS / f"{content}.npy"
    if not path.exists():
        with replacing(path) as temporary, open(temporary, "wb") as stream:
            np.save(stream, host)
    # Tables of pointers: addresses mean nothing elsewhere, so the arrays that they point to are written as well.
    pointers = {}
    if tables and host.dtype == np.uint64:
        for place in np.flatnonzero(host):
            if (array := _POINTED.get(int(host[place]))) is not None:
                pointers[str(place)] = _describe_argument(to, device, array)["array"]
    return {"array": content} | ({"pointers": pointers} if pointers else {})
