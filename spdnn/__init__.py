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
_NAMES = {
    "Activation": "spdnn.core.network",
    "Agreement": "spdnn.runs.verify.classes",
    "EstimatorModel": "spdnn.ops.estimators",
    "Inputs": "spdnn.core.features",
    "Layer": "spdnn.core.network",
    "Model": "spdnn.engines.model",
    "Network": "spdnn.core.network",
    "OnnxModel": "spdnn.ops.onnx_model",
    "RadixNet": "spdnn.formats.radixnet",
    "Result": "spdnn.core.result",
    "SpdnnError": "spdnn.core.errors",
    "TaskgraphSettings": "spdnn.engines.taskgraph.settings",
    "Scores": "spdnn.runs.verify.classes",
    "agreement": "spdnn.runs.verify.classes",
    "compile": "spdnn.api",
    "from_matrices": "spdnn.core.network",
    "infer": "spdnn.api",
    "load_records": "spdnn.report.rendering",
    "open_inputs": "spdnn.formats.readers",
    "open_network": "spdnn.formats.readers",
    "score": "spdnn.runs.verify.classes",
}
__all__ = sorted(["__version__", *_NAMES, *_PARTS])


def __getattr__(name: str):
    if name in _NAMES:
        return getattr(importlib.import_module(_NAMES[name]), name)
    if module := {**_PARTS, **_ON_REQUEST}.get(name):
        return importlib.import_module(module)
    raise AttributeError(f"module 'spdnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
