"""The clock: read, prepare, and repeated inference, each named.

read       files or formulas to inputs and weights in memory
prepare    searching for reductions, laying the network out
inference  from inputs and weights in memory to categories and row sums (Session.run), every repeat kept

What is measured is plain values, fit for JSON, in the shape that the parts of a run record have; record.py makes
records of them, so that no change of a record's classes makes an inference run again.
"""

import json
import resource
import time
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spdnn.core import challenge, progress, progress_output, provenance, safe_open
from spdnn.core.endings import check_ended
from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.features import Inputs
from spdnn.core.files import replacing, write_text
from spdnn.core.limits import Machine
from spdnn.core.network import Network
from spdnn.core.result import Result
from spdnn.core.validation import builtins
from spdnn.engines.base import Engine, Options, Prepared
from spdnn.formats.container import check_unchanged
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.tensors import NpzArchive
from spdnn.runs.measure.load import LoadMonitor, attempts, fits, quietest
from spdnn.runs.verify.draw import draw

MACHINE_SECONDS = 0.1  # of measuring the machine after the repeats, less the making of its arrays


class LoadedRun(NamedTuple):
    """Inputs, a prepared network, and the seconds that reading and preparing took."""

    inputs: Inputs
    prepared: Prepared
    read_seconds: float
    prepare_seconds: float
    inputs_seconds: float = 0.0  # of read_seconds


def time_call(work: Callable, *arguments) -> tuple:
    """(what `work(*arguments)` returns, the seconds it took)."""
    start = time.perf_counter()
    done = work(*arguments)
    return done, time.perf_counter() - start


def measure(
    engine: Engine, loaded: LoadedRun, options: Options, repeats: int, again: int = 0, until: float | None = None
) -> tuple[dict, Result]:
    """Open a session, run it `repeats` times, and measure the machine in the same minute.

    Args:
        loaded: what is run; opening the session is added to the seconds of read.
        again: times that all repeats may be run again where the machine was busy; the quietest attempt counts.
        until: time.perf_counter() after which no repeat but the first ends; None: all are run.

    Raises:
        SpdnnError: as check_repeats.
    """
    begun, watch = time.perf_counter(), LoadMonitor()
    # Opening reads weights into the memory of the engine, so its seconds are of read.
    session, opened = time_call(engine.open, loaded.prepared, loaded.inputs, options)
    seconds, digests, result = [], [], None
    in_time = partial(fits, until)

    def attempt() -> None:
        nonlocal result
        for number in range(repeats):
            # A later repeat is begun only if it would end in time by the slowest one so far. Only the first attempt may
            # stop early: later ones repeat its count.
            if number == len(seconds) > 0 and not in_time(max(seconds)):
                break
            # A library may have swallowed what a signal raised.
            check_ended()
            with progress_output.repeat(number, repeats):
                result, spent = time_call(session.run)
            seconds.append(spent)
            digests.append(result.digest)

    # Where other processes took the machine, all repeats are run again.
    loads = attempts(attempt, again, LoadMonitor.load, watch, in_time)
    # Before anything is kept: repeats that differ have no number.
    check_repeats(engine, digests)
    session.tell(result)
    kept, passed_over = quietest_attempt(seconds, loads)
    spent = samples([loaded.read_seconds + opened], [loaded.prepare_seconds], kept)
    # What the record says, taken while the session is open.
    of_session = session.findings, session.span
    measurement = measurement_of(engine.name, loaded.prepared, loaded.inputs, options, *of_session, result, spent)
    # The ceilings of the machine, measured in the same minute with the same threads.
    session = None  # its buffers and weights, so that there is memory to measure
    measurement["machine"] = ceilings(engine, options)
    # One attempt: the load is measured over the longest span, ceilings too.
    measurement |= passed_over if again else {"load": watch.load()}
    # Time that a user who wants one result would not spend: further repeats and the ceilings.
    measurement["excluded_seconds"] = time.perf_counter() - begun - opened - kept[0]
    return measurement, result


def quietest_attempt(seconds: list[float], loads: list[dict]) -> tuple[list[float], dict]:
    """(the repeats of the attempt on the quietest machine, its load and those of the others as a record has them)."""
    each, best = len(seconds) // len(loads), quietest(loads)
    parts = [seconds[at : at + each] for at in range(0, len(seconds), each)]
    return parts[best], {"load": loads[best], "passed_over": loads[:best] + loads[best + 1 :]}


def check_repeats(engine: Engine, digests: list[str]) -> None:
    """Raise SpdnnError when repeats of one run gave different outputs, or a file that they used was changed."""
    if len(set(digests)) != 1:
        raise SpdnnError(f"engine {engine.name} gave different outputs in {len(digests)} repeats of the same run")
    check_unchanged()


def measurement_of(
    name: str,
    prepared: Prepared,
    inputs: Inputs,
    options: Options,
    findings: dict,
    span: str,
    result: Result,
    samples: dict,
) -> dict:
    """What runs of engine `name` measured, with findings and span of their session, on one rank until more is known."""
    return {
        "problem": problem(prepared.source, inputs),
        "engine": {"name": name, "notes": result.notes},
        "reductions": {"requested": list(prepared.reductions), "found": {**prepared.findings, **findings}},
        "threads": options.threads,
        "ranks": 1,
        "memory_limit_bytes": options.memory,
        "span": span,
        **samples,
        "result": summary(result),
        "peak_memory_bytes": peak_memory(),
        "machine": None,
        "distribution": None,
        "load": None,
        "passed_over": [],
        "time_to_solution": None,
        "environment": provenance.environment("", result.notes.get("device")),
    }


def samples(read: list[float], prepare: list[float], inference: list[float]) -> dict:
    """Seconds of every repeat, as a record has them."""
    return {"read_seconds": read, "prepare_seconds": prepare, "inference_seconds": inference}


def read_store(path: str | Path, network: Network, layers: int | None = None) -> tuple[Prepared, float]:
    """A prepared network from its store, and the seconds that preparing took.

    Args:
        network: what it was prepared of; at least as deep.
        layers: how many of the first to take; None: all that were prepared.

    Raises:
        InputError: no prepared network, one that is not as deep, or one of another network.
    """
    from spdnn.formats.store import read_prepared

    # A stored network could be of any source: its identity must be that of this network, as deep as it goes.
    prepared, info = read_prepared(path)
    source = network.first(prepared.depth)
    if info.get("source") != source.identity():
        raise InputError(f"{path}: this was prepared of another network than this one; prepare it anew")
    whole = Prepared(source, prepared, tuple(info["reductions"]), info["found"])
    return whole.first(layers or prepared.depth), info["prepare_seconds"]


def store_info(prepared: Prepared, seconds: float) -> dict:
    """What a store of a prepared network tells besides its layers; `read_store` reads it."""
    info = {"reductions": list(prepared.reductions), "found": prepared.findings, "prepare_seconds": seconds}
    return {**info, "source": prepared.source.identity()}


def ceilings(engine: Engine, options: Options, together: int = 1) -> Machine | None:
    """As Engine.ceilings, and None where memory is too small to measure it."""
    try:
        return engine.ceilings(options, MACHINE_SECONDS, together)
    except Unavailable:
        return None


def problem(network: Network, inputs: Inputs) -> dict:
    """The `problem` part of a record."""
    matched = official(network, inputs)
    return {
        "official": matched.name if matched else None,
        "network": network.description,
        "network_identity": network.identity(),
        "neurons": network.width,
        "layers": network.depth,
        "edges": network.edges,
        "inputs": inputs.description,
        "inputs_sha256": inputs.sha256,
        "input_count": inputs.count,
    }


def official(network: Network, inputs: Inputs) -> challenge.OfficialProblem | None:
    """The official problem that network and inputs are, recognised by their data, or None.

    Any number of the official inputs counts, from the first on: the truth then covers just those.
    """
    if network.width not in challenge.WIDTHS or network.depth not in challenge.DEPTHS:
        return None
    candidate = challenge.problem(network.width, network.depth)
    return None if not_official(network, inputs, candidate) else candidate


def not_official(network: Network, inputs: Inputs, problem: challenge.OfficialProblem) -> str | None:
    """What of a network and inputs of its sizes is not that official problem's, in words; None: nothing."""
    expected = challenge.INPUT_SHA256[problem.neurons]
    # All of them are known by their digest; fewer, when they were cut here from inputs of that digest.
    part = inputs.count <= inputs.base < challenge.INPUTS and inputs.cut_from == expected
    if inputs.sha256 != expected and not part:
        return f"the inputs' SHA-256 is {inputs.sha256[:16]}..., not {expected[:16]}..."
    different = _different_layer(network, problem)
    return f"layer {different} is not the official one" if different else None


@lru_cache(maxsize=1)
def _different_layer(network: Network, problem: challenge.OfficialProblem) -> int | None:
    """The first layer (from 1) that is not the official network's; None: each is, as its arrays say."""
    formula = RadixNet(problem.neurons, problem.layers)
    if isinstance(network, RadixNet):
        return None if network.description == formula.description else 1
    # A description could claim anything: only the arrays show that a network from files is official.
    for k in progress.bar(range(problem.layers), "compare with the official network", problem.layers):
        layer, official = network.layer(k), formula.layer(k)
        sizes = (layer.inputs, layer.outputs, layer.edges, layer.activation) == (
            official.inputs, official.outputs, official.edges, official.activation
        )  # fmt: skip
        parts = [(getattr(layer, name), getattr(official, name)) for name in ("offsets", "indices", "values", "bias")]
        if not sizes or not all((array == other).all() for array, other in parts):
            return k + 1
    return None


def draw_kept(network: Network, inputs: Inputs, seed: int = 0) -> bool | np.ndarray:
    """The inputs whose last rows a run keeps for its verdict, as Options.values takes them.

    None (False) where the official truth will judge: it says every value of every survivor.
    """
    return False if official(network, inputs) else np.sort(draw(inputs.count, network.outputs, seed))


def summary(result: Result) -> dict:
    """The `result` part of a record."""
    return {
        "categories": int(result.categories.size),
        "categories_sha256": challenge.categories_sha256(result.categories),
        "survivors": result.survivors.tolist(),
        "edges_computed": int(result.edges_computed),
        "bytes_moved": None if result.bytes_moved is None else int(result.bytes_moved),
        "bytes_loaded": None if result.bytes_loaded is None else int(result.bytes_loaded),
        "digest": result.digest,
        "sha256": result.sha256,
    }


def peak_memory() -> int:
    """Bytes of this process's peak resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_samples(path: str | Path, measurement: Any) -> None:
    """Write a measurement, plain or typed, as JSON."""
    write_text(path, json.dumps(builtins(measurement), indent=1) + "\n")


NUMBERS = {"inputs", "outputs", "edges_computed", "bytes_moved", "bytes_loaded"}  # of a result; bytes may be missing


def write_result(path: str | Path, result: Result) -> None:
    """Write survivors, row sums, extremes, hashes and the values of the inputs that were drawn, as .npz."""
    arrays = result.arrays()
    numbers = {name: getattr(result, name) for name in NUMBERS if getattr(result, name) is not None}
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays, **numbers)


@safe_open.releasing()
def read_result(path: str | Path) -> Result:
    """A result as write_result wrote it.

    Raises:
        InputError: the file is not one of them.
    """
    stored = NpzArchive(path)
    with safe_open.sound(f"{path}: not a result of an inference"):
        parts = dict(stored)
        for name in NUMBERS & parts.keys():
            parts[name] = int(parts[name])
        result = Result(**parts)
        result.check()
        return result
