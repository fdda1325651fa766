"""The engines, by name. Listing them imports nothing that may be absent."""

import dataclasses
import importlib.metadata
from collections.abc import Mapping
from functools import cache
from typing import Any

from spdnn.core.errors import InputError, Unavailable, unknown
from spdnn.core.places import is_there, load
from spdnn.core.validation import convert
from spdnn.engines.base import Engine

GROUP = "spdnn.engines"  # of the entry points by which installed packages add engines of their own
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
    **{name: f"spdnn.bench.engines.{name}:{name.capitalize()}Engine" for name in PEERS},
}

# Types of settings, as commands and configurations declare them before any engine is imported.
SETTINGS = {("taskgraph", "taskgraph-cuda"): "spdnn.engines.taskgraph.settings:TaskgraphSettings"}


def engine(name: str, usable: bool = True) -> Engine:
    """The engine of that name.

    Args:
        usable: refuse one that cannot run here.

    Raises:
        InputError: no engine of that name.
        Unavailable: it cannot run here; the sentence says what is missing.
    """
    if name not in names():
        raise unknown("engine", name, names())
    instance = _load(ENGINES.get(name) or find_installed()[name])
    if usable and (reason := instance.missing()):
        raise Unavailable(f"engine {name} cannot run here: {reason}; `spdnn info` lists those that can")
    return instance


@cache
def find_installed() -> dict[str, str]:
    """`module:class` of the engines that installed packages add, by name."""
    points = importlib.metadata.entry_points(group=GROUP)
    return {point.name: point.value for point in points if point.name not in ENGINES}


@cache
def _own() -> list[str]:
    return [name for name, place in ENGINES.items() if is_there(place)]


def names() -> list[str]:
    """The names of all engines that this installation has."""
    return [*_own(), *find_installed()]


@cache
def _load(where: str) -> Engine:
    """The one engine of a class, `module:class`: what starting it has cost is paid once in a process."""
    return load(where)()


def settings_types() -> dict[tuple[str, ...], type]:
    """The types of settings, by the engines that have them."""
    return {engines: load(place) for engines, place in SETTINGS.items() if is_there(place)}


def settings_of(name: str, values: Mapping[str, Any]) -> Any:
    """The settings of an engine, as its type has them; None for an engine that has none.

    Raises:
        InputError: a setting that the engine does not have, or a value that is not allowed.
    """
    # An unknown setting is answered with the engines that have it, or with what this one has.
    kind = engine(name, usable=False).settings
    known = [field.name for field in dataclasses.fields(kind)] if kind else []
    if unknown := sorted(set(values) - set(known)):
        having = [other for other in names() if (its := engine(other, usable=False).settings)
                  and unknown[0] in its.__dataclass_fields__]  # fmt: skip
        hint = f"; the engines {' and '.join(having)} do" if having else f"; it has {', '.join(known) or 'none'}"
        raise InputError(f"engine {name} has no setting {unknown[0]}{hint}")
    return convert(kind, dict(values), f"settings of engine {name}") if kind else None


def nondefault_settings(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """These settings of an engine without those that are its defaults; raises as settings_of."""
    default = settings_of(name, {})
    settings_of(name, values)
    return {key: value for key, value in values.items() if value != getattr(default, key)}
