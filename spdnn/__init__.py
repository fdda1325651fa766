"""spdnn: sparse deep neural network inference at scale, exact and verified.

>>> import numpy as np, spdnn
>>> matrices = [np.eye(3), np.ones((3, 2))]  # each (inputs, outputs)
>>> network = spdnn.from_matrices(matrices, bias=[0, -1], last="relu")  # last="none" for logits
>>> model = spdnn.compile(network)  # made ready once, called often
>>> model([[1, 0, 2]])
array([[2., 2.]], dtype=float32)

Names are loaded when they are first used: importing the package needs only Python.
"""

from __future__ import annotations

import importlib

__version__ = "0.1.0"

_PARTS = {"models": "spdnn.ops.models", "ops": "spdnn.ops"}
_ON_REQUEST = {"torch": "spdnn.torch"}  # with another library; not among the names of `import *`
# The stub, which type checkers read, says where each name is: `from spdnn.api import infer as infer`.
with open(f"{__file__}i", encoding="utf-8") as _stub:
    _IMPORTS = [line.split() for line in _stub if line.startswith("from ")]
_NAMES = {words[-1]: words[1] for words in _IMPORTS if words[-1] not in _PARTS}
__all__ = sorted(["__version__", *_NAMES, *_PARTS])


def __getattr__(name: str):
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if module := {**_PARTS, **_ON_REQUEST}.get(name):
        return importlib.import_module(module)
    raise AttributeError(f"module 'spdnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
