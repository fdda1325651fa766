"""The exact reductions, by name, in the order in which they are taken; and the names that a user may give."""

from collections.abc import Iterable, MutableMapping

from spdnn.core.errors import InputError, nearest
from spdnn.core.places import Instances
from spdnn.engines.reductions.base import Reduction

REDUCTIONS: MutableMapping[str, Reduction] = Instances(
    dead="spdnn.engines.reductions.dead:DeadInputs",
    inputs="spdnn.engines.reductions.inputs:IdenticalInputs",
    neurons="spdnn.engines.reductions.neurons:IdenticalNeurons",
)


def parse_reductions(text: str | Iterable[str], offered: Iterable[str] | None = None) -> tuple[str, ...]:
    """The reductions named by `text`: 'none', 'all' (of those offered), or names separated by commas.

    Args:
        offered: by an engine; None: all that there are.

    Raises:
        InputError: a name that is not known, or not offered by the engine.
    """
    offered = tuple(REDUCTIONS if offered is None else offered)
    if not isinstance(text, (str, list, tuple)):
        raise InputError(f"reductions {text!r}: give all, none, or names")
    names = [part.strip() for part in text.split(",")] if isinstance(text, str) else list(text)
    if names == ["none"] or names == []:
        return ()
    if names == ["all"]:
        return offered
    for name in names:
        if name not in offered:
            allowed = (*offered, "all", "none")
            hint = nearest(name, allowed)
            raise InputError(f"reduction {name!r} is not offered here{hint}: use one or more of {', '.join(allowed)}")
    return tuple(name for name in REDUCTIONS if name in names)
