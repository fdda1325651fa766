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
from pathlib import Path
from typing import NamedTuple

import numpy as np
from msgspec import UNSET
from msgspec.structs import replace

from spdnn.common import progress, progress_output, provenance
from spdnn.common.endings import check_ended
from spdnn.common.errors import InputError, SpdnnError, Unavailable
from spdnn.common.files import replacing, write_text
from spdnn.common.validation import builtins, parsed
from spdnn.engines.base import Engine, Options, Prepared, Session
from spdnn.engines.memory import resident_bytes
from spdnn.formats.checks import sound
from spdnn.formats.container import check_unchanged
from spdnn.measure import machine
from spdnn.problem import challenge
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network
from spdnn.problem.result import Result, RowStatistics
from spdnn.records.fields import Record
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
        problem=problem(prepared.source, inputs),
        engine=EngineNotes(name, result.notes),
        reductions=Reductions(list(prepared.reductions), {**prepared.found, **session.found}),
        threads=options.threads,
        memory_limit_bytes=options.memory,
        samples=samples,
        span=session.span,
        digests=digests,
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
        InputError: no prepared network, or one that is not as deep.
    """
    from spdnn.formats.store import read_prepared

    prepared, info = read_prepared(path)
    whole = Prepared(network.first(prepared.depth), prepared, tuple(info["reductions"]), info["found"])
    return whole.first(layers or prepared.depth), info["prepare_seconds"]


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
    """The official problem that network and inputs are, found by comparing digests, or None.

    Any number of the official inputs counts, from the first on: the truth then covers just those.
    """
    if network.width not in challenge.WIDTHS or network.depth not in challenge.DEPTHS:
        return None
    found = challenge.problem(network.width, network.depth)
    expected = challenge.INPUT_SHA256[found.neurons]
    # All of them are known by their digest; fewer, when they were cut here from inputs of that digest.
    part = inputs.count <= inputs.base < challenge.INPUTS and inputs.cut_from == expected
    if inputs.sha256 != expected and not part:
        return None
    formula = RadixNet(found.neurons, found.layers)
    if network.identity() == formula.identity():
        return found
    layers = progress.bar(range(found.layers), "compare with the official network", found.layers)
    same = all(network.layer_sha256(k) == formula.layer_sha256(k) for k in layers)
    return found if same else None


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
        truth: official:N, oracle, a file of categories, or None.
        edges, seed: what the oracle may go through, and the seed of the sample when that is not enough for all inputs.
        telling: fail also when none or all of the inputs compared survive: such a truth tells little.
    """
    verdict = verify.judge(result, truth_for(network, inputs, result, truth, edges, seed))
    if telling and verdict.expected in (0, verdict.truth.checked):
        survive = f"{verdict.expected} of {verdict.truth.checked} inputs survive"
        reason = f"{survive}: a preset whose truth is empty or full tells nothing"
        verdict = replace(verdict, passed=False, reasons=[*verdict.reasons, reason])
    run = network.identity(), network.depth, network.edges, inputs.sha256, inputs.count, result.digest
    return replace(verdict, judged=Judged(*run))


def truth_for(
    network: Network,
    inputs: Inputs,
    result: Result,
    truth: str | None = None,
    edges: float = ORACLE_EDGES,
    seed: int = 0,
) -> verify.Truth:
    """What `judge` compares a result with; the result tells which inputs a sample for the oracle is drawn from."""
    found = official(network, inputs) if truth is None else None
    if found:
        return verify.official(found.neurons, inputs.count)
    if truth in (None, "oracle"):
        per_layer = [network.header(k).edges for k in range(network.depth)]
        rows = verify.sample(result, per_layer, edges, seed)
        return verify.oracle(network, inputs, rows, None if rows is None else seed)
    return named_truth(truth, inputs.count)


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
    return RunRecord(
        schema=SCHEMA,
        version=VERSION,
        case=case,
        created=now(),
        problem=problem,
        **{name: getattr(measurement, name) for name in same},
        ranks=measurement.ranks,
        distribution=measurement.distribution or UNSET,
        time_to_solution=measurement.time_to_solution or UNSET,
        result=RecordResult(**result_summary, digests=measurement.digests),
        edges_per_second=EdgesPerSecond.of(problem.work, measurement.samples.inference_seconds),
        verdict=verdict,
        environment=replace(environment, command=command),
        comparison=comparison or UNSET,
    )


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
    with sound(f"{path}: not a samples file of an inference"):
        content = parsed(SamplesFile, Path(path).read_text(encoding="utf-8"), str(path), "samples file")
        return content.measurement, content.result


NUMBERS = {"inputs", "outputs", "edges_computed", "bytes_moved", "bytes_loaded"}  # of a result; bytes may be missing


def write_result(path: str | Path, result: Result) -> None:
    """Write survivors, row sums, extremes and hashes as .npz (not the values)."""
    arrays = {name: getattr(result, name) for name in ("alive", *RowStatistics._fields, "survivors")}
    numbers = {name: getattr(result, name) for name in NUMBERS if getattr(result, name) is not None}
    with replacing(path) as temporary, open(temporary, "wb") as stream:
        np.savez_compressed(stream, **arrays, **numbers)


def read_result(path: str | Path) -> Result:
    """A result as write_result wrote it.

    Raises:
        InputError: the file is not one of them.
    """
    with sound(f"{path}: not a result of an inference"):
        with np.load(path, allow_pickle=False) as stored:
            parts = {name: stored[name] for name in stored.files}
        for name in NUMBERS & parts.keys():
            parts[name] = int(parts[name])
        return Result(**parts)
