"""Progress bars for people: drawn on a terminal's standard error only, silent when piped or logged."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator


def bar(items: Iterable, what: str, total: int | None = None, unit: str = "layers") -> Iterator:
    """Iterate over `items` under a bar named `what`; without a terminal (or tqdm), just iterate."""
    if not sys.stderr.isatty():
        return iter(items)
    try:
        from tqdm import tqdm
    except ImportError:
        return iter(items)
    return iter(tqdm(items, desc=what, total=total, unit=f" {unit}", leave=False, dynamic_ncols=True))


def ticker(
    what: str, total: int | None, unit: str, scale: bool = False
) -> tuple[Callable[[int], None], Callable[[], None]]:
    """(advance by n, close) of a bar that the caller drives; both do nothing without a terminal."""
    if sys.stderr.isatty():
        try:
            from tqdm import tqdm
        except ImportError:
            pass
        else:
            drawn = tqdm(desc=what, total=total, unit=unit, unit_scale=scale, leave=False, dynamic_ncols=True)
            return drawn.update, drawn.close
    return (lambda n: None), (lambda: None)
