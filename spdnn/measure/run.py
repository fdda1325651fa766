"""The clock: read, prepare, and repeated inference, each named; and the run record that a verdict allows.

read       files or formulas to inputs and weights in memory
prepare    looking for reductions, laying the network out
inference  from inputs and weights in memory to categories and row sums (Session.run), every repeat kept
"""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from spdnn.common import door, progress, progress_output, provenance
from spdnn.common.errors import InputError, SpdnnError, Unavailable
from spdnn.common.files import check_ended, replacing, write_text
from spdnn.common.validation import builtins, converted, parsed
from spdnn.engines.base import Engine, Options, Prepared, Session
from spdnn.engines.memory import resident_bytes
from spdnn.formats.container import check_unchanged
from spdnn.formats.tensors import Archive
from spdnn.measure import machine
from spdnn.problem import challenge
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network
from spdnn.problem.result import Result
from spdnn.records import ledger
from spdnn.records.fields import Record
from spdnn.records.files import sealed
from spdnn.records.limits import Machine
from spdnn.records.run_record import (
    SCHEMA,
    VERSION,
    Distribution,
    EdgesPerSecond,
    Environment,
    Judged,
    Problem,
    Reductions,
    RunRecord,
    RunSamples,
    TimeToSolution,
    Verdict,
)  # fmt: skip
from spdnn.records.run_record import Engine as EngineNotes
from spdnn.records.run_record import Result as RecordResult
from spdnn.sources.radixnet import RadixNet
from spdnn.verify import verdict as verify

ORACLE_EDGES = 1e10  # some ten seconds of oracle on one core
MACHINE_SECONDS = 0.1  # of measuring the machine after the repeats, less the making of its arrays


class Measurement(Record, kw_only=True):
    """All that one case measured, before it is judged; `describe` of it goes into the samples file.

    Attributes:
        environment: of the process that ran; what joins samples and verdict may run elsewhere.
        aside_seconds: that went to no part of a solution: repeats after the first, measuring the machine.
    """

    problem: Problem
    engine: EngineNotes
    reductions: Reductions
    threads: int
    memory_limit_bytes: int | None
    samples: RunSamples
    span: str
    digests: list[str]
    result_sha256: str
    peak_memory_bytes: int
    machine: Machine | None
    ranks: int = 1
    distribution: Distribution | None = None
    environment: Environment | None = None
    time_to_solution: TimeToSolution | None = None
    aside_seconds: float = 0.0


class SamplesFile(Record):
    """What an inference leaves for the record: its measurement, and the summary of its result."""

    measurement: Measurement
    result: dict


class Loaded(NamedTuple):
    """Inputs, a prepared network, and the seconds that reading and preparing took."""

    inputs: Inputs
    prepared: Prepared
    read_seconds: float
    prepare_seconds: float
    inputs_seconds: float = 0.0  # of read_seconds


def timed(work: Callable, *arguments) -> tuple:
    """(what `work(*arguments)` returns, the seconds it took)."""
    start = time.perf_counter()
    done = work(*arguments)
    return done, time.perf_counter() - start


def measure(
    engine: Engine,
    prepared: Prepared,
    inputs: Inputs,
    options: Options,
    repeats: int,
    read_seconds: float,
    prepare_seconds: float,
) -> tuple[Measurement, Result]:
    """Open a session, run it `repeats` times, and measure the machine in the same minute.

    Args:
        read_seconds, prepare_seconds: what the caller has spent on them; opening the session is added to read.

    Raises:
        SpdnnError: as check_repeats.
    """
    begun = time.perf_counter()
    session, opened = timed(engine.open, prepared, inputs, options)
    seconds, digests, result = [], [], None
    for turn in range(repeats):
        check_ended()
        with progress_output.repeat(turn, repeats):
            result, spent = timed(session.run)
        seconds.append(spent)
        digests.append(result.digest)
    check_repeats(engine, digests)
    session.tell(result)
    spent = RunSamples([read_seconds + opened], [prepare_seconds], seconds)
    found = measured(engine.name, prepared, inputs, options, session, result, spent, digests)
    del session  # its buffers and weights, so that there is memory to measure
    found = replace(found, machine=ceilings(engine, options))
    return replace(found, aside_seconds=time.perf_counter() - begun - opened - seconds[0]), result


def check_repeats(engine: Engine, digests: list[str]) -> None:
    """Raise SpdnnError when repeats of one run gave different outputs, or a file that they used was changed."""
    if len(set(digests)) != 1:
        raise SpdnnError(f"engine {engine.name} gave different outputs in {len(digests)} repeats of the same run")
    check_unchanged()


def measured(
    name: str,
    prepared: Prepared,
    inputs: Inputs,
    options: Options,
    session: Session,
    result: Result,
    samples: RunSamples,
    digests: list[str],
) -> Measurement:
    """The Measurement of runs of a session of engine `name`, with their samples and digests as a record has them."""
    return Measurement(
        problem=replace(problem(prepared.source, inputs), prepared=prepared.digest),
        engine=EngineNotes(name, result.notes),
        reductions=Reductions(list(prepared.reductions), {**prepared.found, **session.found}),
        threads=options.threads,
        memory_limit_bytes=options.memory,
        samples=samples,
        span=session.span,
        digests=digests,
        result_sha256=result.sha256,
        peak_memory_bytes=peak_memory(),
        machine=None,
        environment=Environment(**provenance.environment("", result.notes.get("device"))),
    )


def stored(path: str | Path, network: Network, layers: int | None = None) -> tuple[Prepared, float]:
    """A prepared network from its store, and the seconds that preparing took.

    Args:
        network: what it was prepared of; at least as deep.
        layers: how many of the first to take; None: all that were prepared.

    Raises:
        InputError: no prepared network, one that is not as deep, or one of another network.
    """
    from spdnn.formats.store import read_prepared

    prepared, info = read_prepared(path)
    source = network.first(prepared.depth)
    if info.get("source") != source.identity():
        raise InputError(f"{path}: this was prepared of another network than this one; prepare it anew")
    whole = Prepared(source, prepared, tuple(info["reductions"]), info["found"], digest=info["digest"])
    return whole.first(layers or prepared.depth), info["prepare_seconds"]


def stored_info(prepared: Prepared, seconds: float) -> dict:
    """What a store of a prepared network tells besides its layers; `stored` reads it."""
    info = {"reductions": list(prepared.reductions), "found": prepared.found, "prepare_seconds": seconds}
    return {**info, "source": prepared.source.identity()}


def ceilings(engine: Engine, options: Options, beside: int = 1) -> Machine | None:
    """What the machine does at best on the same threads, or the engine's device; None where neither is the engine's
    limit, or where memory is too small to measure it. `beside` as machine.measure takes it.
    """
    memory = None if options.memory is None else max(0, options.memory - resident_bytes())
    try:
        if engine.on_kernels:
            return machine.measure(options.threads, MACHINE_SECONDS, memory, beside)
        return engine.ceilings(options, MACHINE_SECONDS)
    except Unavailable:
        return None


def problem(network: Network, inputs: Inputs) -> Problem:
    """The `problem` part of a record."""
    found = official(network, inputs)
    return Problem(
        official=found.name if found else None,
        network=network.description,
        network_identity=network.identity(),
        neurons=network.width,
        layers=network.depth,
        edges=network.edges,
        inputs=inputs.description,
        inputs_sha256=inputs.sha256,
        input_count=inputs.count,
    )


def official(network: Network, inputs: Inputs) -> challenge.Problem | None:
    """The official problem that network and inputs are, found from their data, or None.

    Any number of the official inputs counts, from the first on: the truth then covers just those.
    """
    if network.width not in challenge.WIDTHS or network.depth not in challenge.DEPTHS:
        return None
    found = challenge.problem(network.width, network.depth)
    return found if not _not_official(network, inputs, found) else None


def _not_official(network: Network, inputs: Inputs, one: challenge.Problem) -> str | None:
    """What of a network and inputs of its sizes is not that official problem's, in words; None: nothing."""
    expected = challenge.INPUT_SHA256[one.neurons]
    # All of them are known by their digest; fewer, when they were cut here from inputs of that digest.
    part = inputs.count <= inputs.base < challenge.INPUTS and inputs.cut_from == expected
    if inputs.sha256 != expected and not part:
        return f"the inputs' SHA-256 is {inputs.sha256[:16]}..., not {expected[:16]}..."
    different = _different_layer(network, one)
    return f"layer {different} is not the official one" if different else None


@lru_cache(maxsize=1)
def _different_layer(network: Network, one: challenge.Problem) -> int | None:
    """The first layer (from 1) that is not the official network's; None: each is, as its arrays say."""
    formula = RadixNet(one.neurons, one.layers)
    if isinstance(network, RadixNet):
        return None if network.description == formula.description else 1
    for k in progress.bar(range(one.layers), "compare with the official network", one.layers):
        mine, its = network.layer(k), formula.layer(k)
        sizes = (mine.inputs, mine.outputs, mine.edges, mine.activation) == (
            its.inputs, its.outputs, its.edges, its.activation
        )  # fmt: skip
        parts = [(getattr(mine, name), getattr(its, name)) for name in ("offsets", "indices", "values", "bias")]
        if not sizes or not all((one == other).all() for one, other in parts):
            return k + 1
    return None


def drawn(network: Network, inputs: Inputs, seed: int = 0) -> bool | np.ndarray:
    """The inputs whose last rows a run keeps for its verdict, as Options.values takes them.

    None (False) where the official truth will judge: it says every value of every survivor.
    """
    return False if official(network, inputs) else np.sort(verify.draw(inputs.count, network.outputs, seed))


def judge(
    network: Network,
    inputs: Inputs,
    result: Result,
    truth: str | None = None,
    edges: float = ORACLE_EDGES,
    seed: int = 0,
    telling: bool = False,
) -> Verdict:
    """The verdict on a result: against `truth`, else the official truth where it applies, else the oracle.

    Args:
        truth: official (or official:N), oracle, a file of categories, or None.
        edges, seed: what the oracle may go through, and the seed of the sample when that is not enough for all inputs.
        telling: fail also when none or all of the inputs compared survive: such a truth tells little.
    """
    verdict = verify.judge(result, truth_for(network, inputs, result, truth, edges, seed))
    if telling and verdict.expected in (0, verdict.truth.checked):
        survive = f"{verdict.expected} of {verdict.truth.checked} inputs survive"
        reason = f"{survive}: a preset whose truth is empty or full tells nothing"
        verdict = replace(verdict, passed=False, reasons=[*verdict.reasons, reason])
    return replace(verdict, judged=judged(network, inputs, result))


def judged(network: Network, inputs: Inputs, result: Result, digest: str | None = None) -> Judged:
    """What a verdict on the result is on; `digest`: of the output, where it is not the result's."""
    run = network.identity(), network.depth, network.edges, inputs.sha256, inputs.count
    return Judged(*run, digest or result.digest, result.sha256)


def truth_for(
    network: Network,
    inputs: Inputs,
    result: Result,
    truth: str | None = None,
    edges: float = ORACLE_EDGES,
    seed: int = 0,
) -> verify.Truth:
    """What `judge` compares a result with; the result tells which inputs a sample for the oracle is drawn from.

    Raises:
        InputError: the official truth was asked for, and the data are not the official ones; or as named_truth.
    """
    demanded = truth is not None and truth.startswith("official")
    if truth is None or demanded:
        if demanded and truth != "official":
            named_truth(truth, inputs.count)  # a width without a truth is another mistake
        found = official(network, inputs)
        if found and truth in (None, "official", f"official:{found.neurons}"):
            return verify.official(found.neurons, inputs.count)
        if demanded:
            raise InputError(f"this is no official problem, as it should be: {unofficial(network, inputs, truth)}")
    if truth in (None, "oracle"):
        per_layer = [network.header(k).edges for k in range(network.depth)]
        rows = verify.sample(result, per_layer, edges, seed)
        return verify.oracle(network, inputs, rows, seed)
    return named_truth(truth, inputs.count)


def unofficial(network: Network, inputs: Inputs, truth: str) -> str:
    """Why a network and inputs, which are not official, have no truth of the name `truth`."""
    size = f"{network.width} neurons x {network.depth} layers"
    if network.width not in challenge.WIDTHS or network.depth not in challenge.DEPTHS:
        return f"{size} are none of the twelve"
    return _not_official(network, inputs, challenge.problem(network.width, network.depth)) or f"{truth} is not {size}"


def named_truth(text: str, count: int | None) -> verify.Truth:
    """The truth that `text` names, official:N or a file, for `count` inputs (None: as many as a file lists).

    Raises:
        InputError: it names none.
    """
    if text.startswith("official:"):
        width = text.removeprefix("official:")
        if not width.isdigit():
            raise InputError(
                f"truth {text!r}: it must be official:N with N one of {', '.join(map(str, challenge.WIDTHS))}"
            )
        return verify.official(int(width), count)
    return verify.from_file(text, count)


def record(
    case: str, measurement: Measurement, result_summary: dict, verdict: Verdict, command: str, comparison: str = ""
) -> RunRecord:
    """The run record of a measured and judged case; `comparison`: of engines that were timed in turn.

    Raises:
        SpdnnError: the verdict did not pass: an unverified run has no number.
    """
    if not verdict.passed:
        raise SpdnnError(f"{case}: the verdict is fail ({'; '.join(verdict.reasons)}), so there is no record")
    problem = measurement.problem
    if verdict.truth.kind != "official":  # an official result is one that the official truth judged
        problem = replace(problem, official=None)
    environment = measurement.environment or Environment(**provenance.environment(""))
    same = ("engine", "reductions", "threads", "memory_limit_bytes", "samples", "span", "peak_memory_bytes", "machine")
    made = RunRecord(
        schema=SCHEMA,
        version=VERSION,
        case=case,
        created=now(),
        problem=problem,
        **{name: getattr(measurement, name) for name in same},
        ranks=measurement.ranks,
        distribution=measurement.distribution or UNSET,
        time_to_solution=measurement.time_to_solution or UNSET,
        result=RecordResult(**result_summary, digests=measurement.digests, sha256=measurement.result_sha256),
        edges_per_second=EdgesPerSecond.of(problem.work, measurement.samples.inference_seconds),
        verdict=verdict,
        environment=replace(environment, command=command),
        comparison=comparison or UNSET,
    )
    made = sealed(made, case)
    ledger.note(made, "made")
    return made


def now() -> str:
    """The time as records have it, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def summary(result: Result) -> dict:
    """The `result` part of a record, less the digests of the repeats."""
    return {
        "categories": int(result.categories.size),
        "categories_sha256": challenge.categories_sha256(result.categories),
        "survivors": result.survivors.tolist(),
        "edges_computed": int(result.edges_computed),
        "bytes_moved": None if result.bytes_moved is None else int(result.bytes_moved),
        "bytes_loaded": None if result.bytes_loaded is None else int(result.bytes_loaded),
    }


def peak_memory() -> int:
    """Bytes of this process's peak resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def write_samples(path: str | Path, measurement: Measurement, result: Result) -> None:
    """Write a measurement and the summary of its result as JSON."""
    write_text(path, json.dumps(builtins(SamplesFile(measurement, summary(result))), indent=1) + "\n")


def read_samples(path: str | Path) -> tuple[Measurement, dict]:
    """(measurement, summary of the result) as write_samples wrote them.

    Raises:
        InputError: the file is not one of them.
    """
    content = parsed(SamplesFile, door.text(path, "samples file"), str(path), "samples file")
    whole = {**content.result, "digests": content.measurement.digests}
    converted(RecordResult, whole, f"{path}: result")
    return content.measurement, content.result


NUMBERS = {"inputs", "outputs", "edges_computed", "bytes_moved", "bytes_loaded"}  # of a result; bytes may be missing


def write_result(path: str | Path, result: Result) -> None:
    """Write survivors, row sums, extremes, hashes and the values of the inputs that were drawn, as .npz."""
    arrays = result.arrays()
    numbers = {name: getattr(result, name) for name in NUMBERS if getattr(result, name) is not None}
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, **arrays, **numbers)


def read_result(path: str | Path) -> Result:
    """A result as write_result wrote it.

    Raises:
        InputError: the file is not one of them.
    """
    stored = Archive(path)
    with door.sound(f"{path}: not a result of an inference"):
        parts = dict(stored)
        for name in NUMBERS & parts.keys():
            parts[name] = int(parts[name])
        result = Result(**parts)
        result.check()
        return result
