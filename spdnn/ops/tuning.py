"""The tile of a kernel, chosen by timing the few that are worth trying, once for each device and class of shapes.

The choice changes no bit of a result, so it is kept in memory and in a file of the user's cache. Small work takes the
kernel's default, since a trial would cost more than it could save.

    SPDNN_TUNED     the file in which choices are kept (by default tuned.json in the folder of caches)
    SPDNN_TUNING    off: always the default; forget: what is in the file is not read (it is written)
"""

import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.files import cache_folder, variable_path, write_text
from spdnn.core.locks import Lock

LEAST_OPERATIONS = 1_000_000  # of one call; below, the default is taken
ROUNDS = 3  # of timing the candidates alternately, after one that warms up
FORMAT = 1

_known: dict[Path | None, dict[str, Any]] = {}  # the choices of each file that was used
_passing: dict[Path | None, dict[str, Any]] = {}  # those that are not written to it
_lock = Lock()


def shape_class(*sizes: int, sparsity: float | None = None) -> str:
    """Sizes to the nearest power of two, the sparsity to the nearest 5 %: what shares a choice."""
    rounded = "x".join(str(2 ** round(math.log2(size))) if size > 0 else "0" for size in sizes)
    return rounded if sparsity is None else f"{rounded}@{5 * round(20 * sparsity)}"


def choose(key: str, candidates: Sequence[Any], operations: int, seconds: Callable[[Any], float]) -> Any:
    """The candidate to use: a stored choice, or the fastest in a few alternating rounds of all of them.

    Args:
        key: everything that the choice may depend on: device, kernels, operation, dtypes, class of shapes.
        candidates: fit for JSON; the first is the default.
        operations: of the call.
        seconds: runs the call with a candidate and gives its time.

    Raises:
        InputError: SPDNN_TUNING is another word.
    """
    if operations < LEAST_OPERATIONS or len(candidates) == 1:
        mode()
        return candidates[0]
    best = keep(key, lambda: _fastest(candidates, seconds), lambda choice: choice in candidates)
    return candidates[0] if best is None else candidates[candidates.index(best)]  # 64.0 or 1 of a file are 64 and True


def mode() -> str:
    """What SPDNN_TUNING says. Raises InputError: another word."""
    mode = os.environ.get("SPDNN_TUNING") or "on"
    if mode not in ("on", "off", "forget"):
        raise InputError(f"SPDNN_TUNING={mode!r}: it must be on, off or forget")
    return mode


def keep(
    key: str,
    make: Callable[[], Any],
    fits: Callable[[Any], bool],
    lasting: Callable[[Any], bool] = lambda choice: True,
    again: bool = False,
) -> Any:
    """The stored choice of this key, if it `fits`, or the one that `make` gives, which is stored; None: tuning is off.

    Args:
        lasting: whether a choice is stored in the file; one that is not is known to this process alone, so that copies
            of a model compute the same.
        again: what is stored does not count.

    Raises:
        InputError: as `mode`.
    """
    if mode() == "off":
        return None
    with _lock:
        file = path()
        known, passing = _choices_of(file), _passing.setdefault(file, {})
        choice = passing.get(key, known.get(key))
        if again or choice is None or not fits(choice):
            choice = make()
            if lasting(choice):
                passing.pop(key, None)
                known[key] = choice
                _save(file, known)
            else:
                passing[key] = choice
        return choice


def kept(key: str, fits: Callable[[Any], bool]) -> Any:
    """The choice of this key in the file, or made by this process to last, if it `fits`; None: there is none.

    Raises:
        InputError: as `mode`.
    """
    if mode() == "off":
        return None
    with _lock:
        choice = _choices_of(path()).get(key)
    return choice if choice is not None and fits(choice) else None


def _choices_of(file: Path | None) -> dict[str, Any]:
    if file not in _known:
        _known[file] = {} if mode() == "forget" else _read_choices(file)
    return _known[file]


def path() -> Path | None:
    """The file in which choices are kept; None where the user has no home (a container's user without a name)."""
    try:
        return variable_path("SPDNN_TUNED") or cache_folder() / "tuned.json"
    except Unavailable:
        return None


def _fastest(candidates: Sequence[Any], seconds: Callable[[Any], float]) -> Any:
    best = [math.inf] * len(candidates)
    for number in range(1 + ROUNDS):
        for index, candidate in enumerate(candidates):
            took = seconds(candidate)
            if number:
                best[index] = min(best[index], took)
    return candidates[best.index(min(best))]


def _read_choices(file: Path | None) -> dict[str, Any]:
    """What the file holds; a broken one, or one of another format, holds nothing."""
    try:
        content = json.loads(file.read_text(encoding="utf-8")) if file else {}
        if content.get("format") == FORMAT:
            return {key: _frozen(value) for key, value in content["choices"].items()}
    except (OSError, ValueError, AttributeError, KeyError, RecursionError):
        pass
    return {}


def _save(file: Path | None, known: dict[str, Any]) -> None:
    """Keep all choices, with those that other processes kept meanwhile; where nothing can be written, they last as long
    as the process."""
    if not file:
        return
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        choices = {**_read_choices(file), **known}
        write_text(file, json.dumps({"format": FORMAT, "choices": choices}, indent=1, sort_keys=True) + "\n")
    except (OSError, SpdnnError):
        pass


def _frozen(value: Any) -> Any:
    """JSON has lists where candidates are tuples."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
