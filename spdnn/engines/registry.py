"""The engines, by name. Listing them imports nothing that may be absent."""

import importlib
import os
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, overload

from spdnn.common.errors import InputError, Unavailable
from spdnn.common.resources import usable_cores
from spdnn.engines.base import Engine, Options, Prepared, Session
from spdnn.engines.model import Model
from spdnn.engines.program import IMAGES, Program, around
from spdnn.formats import onnx_files
from spdnn.formats.readers import open_network
from spdnn.problem.network import Network
from spdnn.problem.result import Result
from spdnn.reductions.registry import parse_reductions
from spdnn.taskgraph.decomposition import ScheduleRequest

__all__ = [
    "ENGINES",
    "PEERS",
    "Engine",
    "Model",
    "Options",
    "Prepared",
    "Session",
    "compile",
    "engine",
    "infer",
    "usable_cores",
]

PEERS = ("scipy", "graphblas", "mkl", "jax", "torch", "cusparse")  # other libraries, measured with our own engines
CUDA_RUNGS = ("csr", "ell", "staged", "persistent")
ENGINES = {
    "cpu": "spdnn.engines.cpu.engine:CpuEngine",
    "tiled": "spdnn.engines.cpu.engine:TiledEngine",
    "csr": "spdnn.engines.cpu.engine:CsrEngine",
    "spgemm": "spdnn.engines.spgemm.engine:SpgemmEngine",
    "taskgraph": "spdnn.engines.taskgraph.engine:TaskgraphEngine",
    "reference": "spdnn.engines.reference:OracleEngine",
    "cuda": "spdnn.engines.cuda.engine:CudaEngine",
    **{f"cuda-{kind}": f"spdnn.engines.cuda.engine:Cuda{kind.capitalize()}Engine" for kind in CUDA_RUNGS},
    "taskgraph-cuda": "spdnn.engines.taskgraph.engine:TaskgraphCudaEngine",
    **{name: f"spdnn.engines.libraries.{name}:{name.capitalize()}Engine" for name in PEERS},
}


def engine(name: str, usable: bool = True) -> Engine:
    """The engine of that name.

    Args:
        usable: refuse one that cannot run here.

    Raises:
        InputError: no engine of that name.
        Unavailable: it cannot run here; the sentence says what is missing.
    """
    if name not in ENGINES:
        raise InputError(
            f"engine {name!r} is not known: it must be one of {', '.join(ENGINES)} (spdnn engines lists them)"
        )
    one = _made(ENGINES[name])
    if usable and (reason := one.missing()):
        raise Unavailable(f"engine {name} cannot run here: {reason}")
    return one


@cache
def _made(where: str) -> Engine:
    """The one engine of a class, `module:class`: what starting it has cost is paid once in a process."""
    module, kind = where.split(":")
    return getattr(importlib.import_module(module), kind)()


def engines_that_cut() -> list[str]:
    """The names of the engines that take a schedule."""
    return [name for name in ENGINES if engine(name, usable=False).cuts]


@overload
def compile(
    network: Network,
    engine: str = ...,
    batch: int | None = ...,
    threads: int | None = ...,
    reductions: str | Sequence[str] = ...,
    memory: int | None = ...,
    request: ScheduleRequest | None = ...,
) -> Model: ...
@overload
def compile(
    network: str | os.PathLike | Callable[..., Any],
    engine: str = ...,
    batch: int | None = ...,
    threads: int | None = ...,
    reductions: str | Sequence[str] = ...,
    memory: int | None = ...,
    request: ScheduleRequest | None = ...,
    example: Any = ...,
) -> Model | Program: ...
def compile(
    network: Any,
    engine: str = "cpu",
    batch: int | None = None,
    threads: int | None = None,
    reductions: str | Sequence[str] = "all",
    memory: int | None = None,
    request: ScheduleRequest | None = None,
    example: Any = None,
) -> Model | Program:
    """A network made ready once, to be called often: `model(x)` gives arrays, `model.infer(inputs)` a Result.

    Args:
        network: a Network; the path of a file that states all of a model: a store, official text, an ONNX model; or a
            torch.nn.Module, in inference, copied. A model with convolutions, or with a flattening or a softmax that no
            network has, becomes a Program: `model(x)` alone, on the engine cpu.
        engine: as `spdnn engines` lists them. `cpu` answers few inputs in microseconds; others open a session a call.
        batch: inputs of a usual call, for which memory and threads are made ready too; calls may have any number.
        threads: all cores by default.
        reductions: 'all' that the engine offers, 'none', or names.
        memory: bytes of peak resident memory not to be passed by a call, or None. Weights that do not fit are streamed.
        request: how the engines `taskgraph` and `taskgraph-cuda` cut an inference; None: as they find best.
        example: a tensor that a torch.nn.Module takes, of two inputs or more; not needed where a Linear comes first.

    Raises:
        InputError: arguments that do not fit, or a model that holds what cannot be run: all of it is named.
        Unavailable: the engine cannot run here.
    """

    def made(network: Network) -> Model:
        return _compiled(network, engine, batch, threads, reductions, memory, request)

    modules = getattr(sys.modules.get("torch"), "nn", None)
    if modules is not None and isinstance(network, modules.Module):
        name = type(network).__name__
        steps = importlib.import_module("spdnn.torch.programs").read_steps(network, example)
    elif example is not None:
        raise InputError("example: it is for a torch.nn.Module alone")
    elif not isinstance(network, str | os.PathLike):
        return made(network)
    elif os.fspath(network).endswith(".onnx"):
        name, steps = os.fspath(network), onnx_files.read_steps(network)
    else:
        return made(open_network(network))
    if any(step.kind in IMAGES for step in steps):
        if engine != "cpu" or request or memory is not None:
            raise InputError(f"{name}: a model with convolutions runs on the engine cpu, without a memory limit")
        return Program(steps, threads)
    return around(made(onnx_files.network(name, steps, "none" if steps[-1].kind == "softmax" else None)), steps)


def infer(
    network: Network,
    inputs: Any,
    engine_name: str = "cpu",
    reductions: str | Sequence[str] = "all",
    threads: int | None = None,
    memory: int | None = None,
    values: bool = False,
    request: ScheduleRequest | None = None,
) -> Result:
    """Run one inference: compile, Model.infer, close.

    Args:
        inputs: Inputs, or what Inputs.from_array takes: (count, neurons), neurons equal to the network's width at its
            first layer.
        engine_name, other arguments: see compile.
        values: keep all last rows (Result.values).

    Returns:
        a Result: categories, survivors per layer, row sums, and the values when asked for.

    Raises:
        InputError: inputs, reductions or memory that do not fit.
        Unavailable: the engine cannot run here.
    """
    with _compiled(network, engine_name, None, threads, reductions, memory, request, hold=False) as model:
        return model.infer(inputs, values)


def _compiled(
    network: Network,
    name: str,
    batch: int | None,
    threads: int | None,
    reductions: str | Sequence[str],
    memory: int | None,
    request: ScheduleRequest | None,
    hold: bool = True,
) -> Model:
    chosen = engine(name)
    if request and not chosen.cuts:
        others = " and ".join(engines_that_cut())
        raise InputError(f"engine {name} cuts nothing, so `request` is for {others} alone")
    options = Options(usable_cores() if threads is None else threads, memory, request=request)
    return Model(network, chosen, parse_reductions(reductions, chosen.offers), options, batch, hold)
