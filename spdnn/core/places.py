"""Parts by place: a table names the module of each part, which is imported when the part is first asked for.

What a run does not ask for is not imported, and may be absent.
"""

import importlib
from collections import UserDict
from typing import Any


def load(place: str) -> Any:
    """What a place names: a module, or `module:name` in one. Raises ImportError, AttributeError: there is none."""
    module, _, name = place.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found


class Instances(UserDict[str, Any]):
    """Objects by name, in order; one that is given as the place of its class is made when it is first asked for."""

    def __getitem__(self, name: str) -> Any:
        if isinstance(found := self.data[name], str):
            found = self.data[name] = load(found)()
        return found
