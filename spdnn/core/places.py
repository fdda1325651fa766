"""Parts by place: a table names the module of each part, which is imported when the part is first asked for.

What nobody asks for is not imported. Engines and their settings may be absent: they are then not listed.
"""

import importlib
import importlib.util
from collections import UserDict
from typing import Any


def load(place: str) -> Any:
    """What a place names: a module, or `module:name` in one. Raises ImportError, AttributeError: there is none."""
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


def is_there(place: str) -> bool:
    """Whether this installation has the module of a place; it is not imported."""
    try:
        return importlib.util.find_spec(place.partition(":")[0]) is not None
    except ModuleNotFoundError:  # of a package above it
        return False


class Instances(UserDict[str, Any]):
    """Objects by name, in order; one that is given as the place of its class is made when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        if isinstance(found := self.data[name], str):
            found = self.data[name] = load(found)()
        return found
