"""The exact reductions: what a network's own data allows to leave out without changing any result.

Each is found by looking, never assumed. `dead` is here; `inputs`, rows that became equal, is found while an engine runs
(engines/duplicates.py); `neurons` is a name that engines do not offer yet.
"""

from __future__ import annotations

from collections.abc import Iterable

from spdnn.errors import InputError
from spdnn.network import Network

NAMES = ("dead", "inputs", "neurons")


def parse(text: str | Iterable[str], offered: Iterable[str] = NAMES) -> tuple[str, ...]:
    """The reductions named by `text`: 'none', 'all' (of those offered), or names separated by commas.

    Raises:
        InputError: a name that is not known, or not offered by the engine.
    """
    offered = tuple(offered)
    if not isinstance(text, (str, list, tuple)):
        raise InputError(f"reductions {text!r}: give all, none, or names")
    names = [part.strip() for part in text.split(",")] if isinstance(text, str) else list(text)
    if names == ["none"] or names == []:
        return ()
    if names == ["all"]:
        return offered
    for name in names:
        if name not in offered:
            allowed = ", ".join((*offered, "all", "none"))
            raise InputError(f"reduction {name!r} is not offered here: use one or more of {allowed}")
    return tuple(name for name in NAMES if name in names)


def reviving(network: Network) -> list[int]:
    """The layers (0-based) after which a row of zeros need not be zeros: those where activation(bias) is not 0.

    No positive bias under a ReLU, no bias at all without an activation: else the layer is one of them. Source: the
    "dead inputs" of every entry to the challenge, here with the condition that they need.
    """
    return [k for k in range(network.depth) if not network.header(k).keeps_zero]


def dead_from(layers: Iterable[int], depth: int) -> int:
    """The first layer (0-based) before which a row of zeros may leave a network of `depth` layers.

    Args:
        layers: those that revive zeros (`reviving`). `depth` when the last layer is one: no row may leave early.
    """
    return 1 + max((k for k in layers if k < depth), default=-1)
