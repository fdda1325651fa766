"""The exact reductions: what a network's own data allows to leave out without changing any result.

Each is found by looking, never assumed. `dead` is here; `inputs` and `neurons` are names that engines do not offer yet.
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


def dead_from(network: Network) -> int:
    """The first layer (0-based) before which a row of zeros may leave: from it on, zeros stay zeros.

    A row of zeros becomes activation(bias), so it stays zero only while that is 0 for every output: no positive bias
    under a ReLU, no bias at all without an activation. `network.depth` when the last layer breaks the rule: no row may
    leave before the end. Source: the "dead inputs" of every entry to the challenge, here with the condition it needs.
    """
    for k in reversed(range(network.depth)):
        if not network.header(k).keeps_zero:
            return k + 1
    return 0
