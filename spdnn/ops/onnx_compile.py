"""What becomes of an ONNX model: a chain of pruned layers is a Model of an engine, any other graph an OnnxModel."""

import warnings
from collections.abc import Callable
from typing import Any

from spdnn.core.errors import InputError
from spdnn.engines.model import Model
from spdnn.formats.onnx_files import OnnxGraph
from spdnn.ops.onnx_model import OnnxModel, agrees
from spdnn.ops.onnx_trial import STAYS

PRUNED = 0.3  # of its weights: a chain of layers with more nonzeros goes to ONNX Runtime


def compile_graph(
    graph: OnnxGraph,
    make: Callable[..., Model],
    engine: str | None = None,
    *,
    threads: int | None = None,
    example: Any = None,
    batch: int | None = None,
    verify: bool = True,
    again: bool = False,
) -> Model | OnnxModel:
    """An ONNX model, ready for calls.

    Args:
        make: the Model of a network.
        engine: the name of the engine that must run it; None: ONNX Runtime may.
        threads, example, batch, verify, again: as OnnxModel takes them.

    Raises:
        InputError: the engine must run a graph that is no chain of layers, or gives other outputs than ONNX Runtime; or
            as OnnxModel.
    """
    model = None
    # A chain of pruned layers goes to the engine, and so does any chain that a certain engine must run.
    try:
        chain, softmax = graph.chain()
    except InputError as error:
        if engine:
            raise InputError(f"{error}; without engine, memory and settings") from error
    else:
        if engine or chain.edges <= PRUNED * chain.entries:
            model = make(chain, softmax=softmax and softmax.kind, signature=graph.signature)
    if model is not None and verify and not agrees(model, graph):
        if engine:
            raise InputError(f"{graph.name}: the engine {engine} gives other outputs than ONNX Runtime")
        warnings.warn(f"{graph.name}: {STAYS}", RuntimeWarning, stacklevel=3)
        model = None
    # Every other graph runs in ONNX Runtime.
    return OnnxModel(graph, threads, example, batch, verify, again) if model is None else model
