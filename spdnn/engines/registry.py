"""The engines, by name. Listing them imports nothing that may be absent."""

import importlib
import os
from functools import cache

from spdnn.common.errors import InputError, Unavailable
from spdnn.engines.base import Engine, Options, Prepared, Session
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network
from spdnn.problem.result import Result
from spdnn.reductions.registry import parse_reductions
from spdnn.taskgraph.decomposition import ScheduleRequest

__all__ = ["ENGINES", "PEERS", "Engine", "Options", "Prepared", "Session", "engine", "infer", "usable_cores"]

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


def usable_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def infer(
    network: Network,
    inputs: Inputs,
    engine_name: str = "cpu",
    reductions="all",
    threads: int | None = None,
    memory: int | None = None,
    values: bool = False,
    request: ScheduleRequest | None = None,
) -> Result:
    """Run one inference.

    Args:
        network: see spdnn.problem.network.
        inputs: (count, neurons), neurons equal to the network's width at its first layer.
        engine_name: as `spdnn engines` lists them.
        reductions: 'all' that the engine offers, 'none', or names.
        threads: all cores by default.
        memory: bytes of peak resident memory not to be passed, or None.
        values: keep all last rows (Result.values).
        request: how the engines `taskgraph` and `taskgraph-cuda` cut the inference; None: as they find best.

    Returns:
        a Result: categories, survivors per layer, row sums, and the values when asked for.

    Raises:
        InputError: inputs, reductions or memory that do not fit.
        Unavailable: the engine cannot run here.
    """
    if not isinstance(network, Network) or not isinstance(inputs, Inputs):
        raise InputError(
            f"infer takes a Network and Inputs, not {type(network).__name__} and {type(inputs).__name__}; "
            "make them with spdnn.from_matrices and spdnn.Inputs.from_array"
        )
    chosen = engine(engine_name)
    prepared = chosen.prepare(network, parse_reductions(reductions, chosen.offers), memory)
    if request and not chosen.cuts:
        others = " and ".join(engines_that_cut())
        raise InputError(f"engine {engine_name} cuts nothing, so `request` is for {others} alone")
    options = Options(usable_cores() if threads is None else threads, memory, values, request=request)
    session = chosen.open(prepared, inputs, options)
    result = session.run()
    session.tell(result)
    return result
