"""The calls of the Python API that need engines and readers together: compile, infer."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from spdnn.core.errors import InputError
from spdnn.core.network import Network
from spdnn.core.resources import usable_cores
from spdnn.core.result import Result
from spdnn.core.threads import warn_of
from spdnn.engines.base import Engine, Options
from spdnn.engines.model import Model, check_batch
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine as engine_named
from spdnn.formats.detection import Source, is_source

if TYPE_CHECKING:
    from spdnn.ops import estimators
    from spdnn.ops.onnx_model import OnnxModel

__all__ = ["compile", "infer"]

AGAIN = "again"


@overload
def compile(
    network: Network,
    engine: str = ...,
    batch: int | None = ...,
    threads: int | None = ...,
    reductions: str | Sequence[str] = ...,
    memory: int | None = ...,
    settings: Any = ...,
) -> Model: ...
@overload
def compile(
    network: Source | Callable[..., Any],
    engine: str = ...,
    batch: int | None = ...,
    threads: int | None = ...,
    reductions: str | Sequence[str] = ...,
    memory: int | None = ...,
    settings: Any = ...,
    example: Any = ...,
    verify: bool = ...,
    tune: str | None = ...,
) -> Model | OnnxModel: ...
@overload
def compile(
    network: estimators.Estimator,
    engine: str = ...,
    batch: int | None = ...,
    threads: int | None = ...,
    reductions: str | Sequence[str] = ...,
    memory: int | None = ...,
    settings: Any = ...,
    *,
    verify: bool = ...,
) -> estimators.EstimatorModel: ...
def compile(
    network: Any,
    engine: str = "cpu",
    batch: int | None = None,
    threads: int | None = None,
    reductions: str | Sequence[str] = "all",
    memory: int | None = None,
    settings: Any = None,
    example: Any = None,
    verify: bool = True,
    tune: str | None = None,
) -> Model | OnnxModel | estimators.EstimatorModel:
    """Make a network ready once and call it often: `model(x)` gives an array, `model.infer(inputs)` a Result.

    Args:
        network: a Network; the path of a model file of spdnn, of official text or of an ONNX model; the bytes of an
            ONNX model, an open file of one, or an onnx.ModelProto; a torch.nn.Module, which is exported to ONNX, or an
            ExportedProgram of torch.export; or a fitted MLPClassifier or MLPRegressor of scikit-learn, also in a
            Pipeline after StandardScaler or MinMaxScaler, which becomes an EstimatorModel. A file of weights alone goes
            through open_network.
            An ONNX model becomes a Model if it is a chain of layers with at most 30 % nonzero weights. Any other
            becomes an OnnxModel: ONNX Runtime runs it on the processor, and our kernels run its pruned products where
            that is faster.
        engine: a name that `spdnn info` lists. `cpu` takes microseconds for a few inputs; the other engines set up
            a whole inference at each call.
        batch: the usual number of inputs of a call. Memory and threads are made ready for it; any number may come.
        threads: the threads of a call; all cores by default. More than cores are slower, which a warning says.
        reductions: 'all' that the engine offers, 'none', or names.
        memory: the most bytes of memory that the process may use during a call, or None. Weights that do not fit are
            read again at each call.
        settings: those of the engine, such as spdnn.TaskgraphSettings for `taskgraph`; None: its defaults.
        example: what a torch.nn.Module takes, a tensor of two inputs or more, a tuple of such, or a mapping of its
            arguments' names to them; not needed where a Linear comes first, or of an ExportedProgram. Of an ONNX model:
            arrays of the shapes for which its products are timed, or a mapping of their names to them.
        verify: compare what a model gives with what ONNX Runtime, the torch.nn.Module or the estimator of scikit-learn
            gives, before it is given out; a module at several numbers of inputs, which `explain` lists. What differs by
            more than rounding stays in ONNX Runtime, with a warning; a module or an estimator that differs is refused.
        tune: 'again': time the pruned products of a torch.nn.Module or an ONNX model anew, whatever choice is kept.

    Raises:
        InputError: arguments that do not fit; a model that ONNX Runtime does not run, or torch does not export; a
            module that has a state, draws random numbers, computes otherwise for other numbers of inputs, or cannot be
            copied (a copy is exported, the module stays as it is).
        Unavailable: the engine cannot run here, or a package is missing.

    Example:
        >>> import numpy as np, spdnn
        >>> network = spdnn.from_matrices([np.eye(3), np.ones((3, 2))], bias=[0, -1], last="none")
        >>> model = spdnn.compile(network, threads=1)
        >>> model(np.float32([[1, 0, 2]]))
        array([[2., 2.]], dtype=float32)
    """

    if tune not in (None, AGAIN):
        raise InputError(f"tune={tune!r}: it must be None or {AGAIN!r}")
    runner, kinds, options = _engine(engine, reductions, threads, memory, settings)
    batch = check_batch(batch)
    make = partial(Model, engine=runner, reductions=kinds, options=options, batch=batch)
    if isinstance(network, Network):
        _refuse_of_graphs(example=example, tune=tune)
        return make(network)
    # Only what the argument is of is imported: estimators, readers and ONNX models are of no use to a Network.
    if _libraries(network) & {"sklearn", "skorch"}:
        from spdnn.ops import estimators

        if (layers := estimators.network_of(network)) is not None:
            _refuse_of_graphs(example=example, tune=tune)
            return estimators.EstimatorModel(make(layers), network, verify)
    if not (is_source(network) or _of_torch(network)):
        return make(network)  # which refuses it
    from spdnn.formats.readers import open_model

    exported = None
    with contextlib.ExitStack() as stack:
        # A file is a network, or the graph of an ONNX model; a module of PyTorch becomes one.
        if is_source(network):
            graph = open_model(network)
        else:
            from spdnn.formats.onnx_files import OnnxGraph

            export = importlib.import_module("spdnn.ops.torch.export").export  # of its types, torch has most
            exported = stack.enter_context(export(network, example, verify))
            graph = OnnxGraph.read(exported.path, exported.name)
            example = example if example is None else exported.inputs  # copies, which the model may keep
        if isinstance(graph, Network):
            _refuse_of_graphs(example=example, tune=tune)
            return make(graph)
        from spdnn.ops.onnx_compile import compile_graph

        certain = None if engine == "cpu" and memory is None and settings is None else engine
        model = compile_graph(
            graph, make, certain, threads=threads, example=example, batch=batch, verify=verify, again=tune == AGAIN
        )
    if exported is not None and verify:
        model.compared = exported.compare(model)
    return model


def _libraries(value: Any) -> set[str]:
    """The packages that define its class and the classes that this is made of."""
    return {kind.__module__.partition(".")[0] for kind in type(value).__mro__}


def _of_torch(network: Any) -> bool:
    """Whether it is a torch.nn.Module or an ExportedProgram; torch is not imported to find that out."""
    kinds = (("torch.nn", "Module"), ("torch.export", "ExportedProgram"))
    found = (getattr(sys.modules.get(module), name, None) for module, name in kinds)
    return any(isinstance(kind, type) and isinstance(network, kind) for kind in found)


def _refuse_of_graphs(**arguments: Any) -> None:
    """Raise InputError for an argument that only graphs of nodes have."""
    for name, value in arguments.items():
        if value is not None:
            raise InputError(f"{name}: it is for a torch.nn.Module or an ONNX model alone")


def infer(
    network: Network,
    inputs: Any,
    engine: str = "cpu",
    reductions: str | Sequence[str] = "all",
    threads: int | None = None,
    memory: int | None = None,
    values: bool = False,
    settings: Any = None,
) -> Result:
    """Run one inference: compile, Model.infer, close.

    Args:
        inputs: Inputs, or what Inputs.from_array takes: (count, neurons), neurons equal to the network's width at its
            first layer.
        engine, reductions, threads, memory, settings: see compile.
        values: keep all outputs, for Result.all_values, Result.top and spdnn.score.

    Returns:
        a Result: categories, active inputs after each layer, row sums, and the values when asked for.

    Raises:
        InputError: inputs, reductions or memory that do not fit.
        Unavailable: the engine cannot run here.

    Example:
        >>> import numpy as np, spdnn
        >>> network = spdnn.from_matrices([np.eye(3)], bias=-1, last="relu")
        >>> result = spdnn.infer(network, [[0, 2, 0], [1, 0, 1], [0, 0, 3]], values=True)
        >>> result.categories  # the second input has no value above zero
        array([1, 3])
    """
    with Model(network, *_engine(engine, reductions, threads, memory, settings), hold=False) as model:
        return model.infer(inputs, values)


def _engine(
    name: str, reductions: str | Sequence[str], threads: int | None, memory: int | None, settings: Any
) -> tuple[Engine, tuple[str, ...], Options]:
    """(the engine of that name, the reductions that are on, its options); raises as `compile`."""
    engine = engine_named(name)
    if settings is not None and not (engine.settings and isinstance(settings, engine.settings)):
        kind = f"takes settings of type {engine.settings.__name__}" if engine.settings else "has no settings"
        raise InputError(f"settings of type {type(settings).__name__}: the engine {name} {kind}")
    options = Options(usable_cores() if threads is None else threads, memory, settings=settings)
    warn_of(options.threads)
    return engine, parse_reductions(reductions, engine.offers), options
