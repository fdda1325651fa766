"""Compiled kernels, and which instruction-set level of them this process uses.

It is the best level that the processor can run, or the one that the environment variable SPDNN_ISA names (x86_64_v4,
x86_64_v3, x86_64).
"""

import functools
import hashlib
import os
from pathlib import Path
from typing import Any

from spdnn.core import resources
from spdnn.core.errors import InputError, Unavailable


def missing() -> str | None:
    """None when the compiled CPU kernels can be used, else one sentence that says why not."""
    try:
        with resources.unbound():
            from spdnn.kernels import _cpu
    except ImportError as error:
        return f"the compiled kernels cannot be loaded ({error}); build them with: make setup"
    # The module holds a digest of the sources it was built from: a stale one could give results of other code.
    sources = sorted((Path(__file__).parent / "cpu").glob("*.[ch]pp"))  # as CMakeLists.txt takes them
    if sources:
        digests = "".join(hashlib.sha256(source.read_bytes()).hexdigest() for source in sources)
        if hashlib.sha256(digests.encode()).hexdigest() != _cpu.source_digest:
            return "the compiled kernels are not those of the sources next to them; build them again with: make setup"
    return None


@functools.cache
def find_module():
    """The compiled module; None where it is absent or stale."""
    if missing() is not None:
        return None
    from spdnn.kernels import _cpu

    return _cpu


def compiled_module() -> Any:
    """The compiled module; Unavailable where it is absent or stale."""
    if (module := find_module()) is None:
        raise Unavailable(missing())
    return module


def use_all_cores() -> None:
    """As that of `resources`, for a thread of Python that calls kernels: OpenMP does not bind it any more."""
    if resources.binds() and (module := find_module()):
        module.join_openmp()
    resources.use_all_cores()


def levels() -> list:
    """The kernels at every level that this processor can run, the best first; Unavailable as `compiled_module`."""
    if reason := missing():  # asked anew: sources may have changed since they were loaded
        raise Unavailable(reason)
    return find_module().levels()


def level(name: str | None = None):
    """The kernels at one level: `name`, else what SPDNN_ISA names, else the best.

    Raises:
        InputError: this processor cannot run the level, or there is none of that name.
    """
    # The best level comes first, so it is the default.
    available = {candidate.name: candidate for candidate in levels()}
    chosen = name or os.environ.get("SPDNN_ISA") or next(iter(available))
    if chosen not in available:
        raise InputError(
            f"instruction-set level {chosen!r} cannot run here: it must be one of {', '.join(available)} (SPDNN_ISA)"
        )
    return available[chosen]
