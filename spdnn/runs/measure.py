"""The clock of a run.

read       files or formulas to inputs and weights in memory
prepare    searching for reductions, laying the network out
inference  from inputs and weights in memory to categories and row sums (Session.run), every repeat kept
"""

import resource
import sys
import time
from collections.abc import Callable
from dataclasses import replace as replace_fields
from functools import partial
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from spdnn.core import progress, provenance
from spdnn.core.endings import check_ended
from spdnn.core.errors import SpdnnError, Unavailable
from spdnn.core.features import Inputs
from spdnn.core.limits import BUSY, Machine
from spdnn.core.load import Load, LoadMonitor
from spdnn.core.result import Result, check_sound
from spdnn.engines.base import Engine, Options, Prepared
from spdnn.runs import parts
from spdnn.runs.records.environment import Environment
from spdnn.runs.records.result import EngineRecord, ProblemRecord, Reductions, ResultRecord
from spdnn.runs.records.run_record import Measurement

MACHINE_SECONDS = 0.1  # of measuring the machine after the repeats; making its arrays comes on top
LEAST_WATCH = 0.2  # seconds of a watch whose answer decides whether to repeat: the system counts in ticks of 10 ms


class LoadedRun(NamedTuple):
    """Inputs, a prepared network, and the seconds that reading and preparing took."""

    inputs: Inputs
    prepared: Prepared
    read_seconds: float
    prepare_seconds: float
    inputs_seconds: float = 0.0  # of read_seconds


class RepeatSeconds(NamedTuple):
    """Seconds of one repeat, and what of them a rank spent on others."""

    inference: float
    waiting: float = 0.0
    communication: float = 0.0


class Samples(NamedTuple):
    """Seconds of every repeat."""

    read_seconds: list[float]
    prepare_seconds: list[float]
    inference_seconds: list[float]


def time_call(work: Callable, *arguments) -> tuple:
    """(what `work(*arguments)` returns, the seconds it took)."""
    start = time.perf_counter()
    value = work(*arguments)
    return value, time.perf_counter() - start


def measure(
    engine: Engine,
    loaded: LoadedRun,
    options: Options,
    repeats: int,
    again: int = 0,
    until: float | None = None,
    sample: Callable[[Result], np.ndarray | None] = lambda result: None,
    seed: int | None = None,
) -> tuple[Measurement, Result]:
    """Open a session, run it `repeats` times, and measure the machine in the same minute.

    Args:
        loaded: what is run; opening the session is added to the seconds of read.
        again: times that all repeats may be run again where the machine was busy; the quietest attempt counts.
        until: time.perf_counter() after which no repeat but the first ends; None: all are run.
        sample: of the result, the inputs that a verdict compares alone; they are run once more, off the clock, so that
            their survivors are compared too.
        seed: of parts of the network that are run alone, off the clock, where the result saturates; None: none are.

    Raises:
        SpdnnError: as check_repeats.
    """
    begun, watch = time.perf_counter(), LoadMonitor()
    # Opening reads weights into the memory of the engine, so its seconds are of read.
    session, opened = time_call(engine.open, loaded.prepared, loaded.inputs, options)
    digests, result = [], None

    def once() -> RepeatSeconds:
        nonlocal result
        result, seconds = time_call(session.run)
        digests.append(result.digest)
        return RepeatSeconds(seconds)

    kept, load, passed_over = repeat(once, repeats, again, LoadMonitor.load, watch, partial(fits, until))
    # Before anything is kept: repeats that differ have no number.
    check_repeats(engine, digests)
    check_sound(result, loaded.prepared.source)
    session.tell(result)
    seconds = [one.inference for one in kept]
    samples = Samples([loaded.read_seconds + opened], [loaded.prepare_seconds], seconds)
    findings, span, startup, peak = session.findings, session.span, session.startup_seconds, peak_memory()
    # The sample that a verdict compares, by this session or, once its memory is free, by one of its own.
    sampled = time.perf_counter()
    if (numbers := sample(result)) is not None:
        result.sampled, result.sampled_survivors = numbers, session.survivors_of(numbers)
    session = None  # its buffers and weights, so that there is memory for what follows
    if numbers is not None and result.sampled_survivors is None:
        result.sampled_survivors = survivors_alone(engine, loaded, options, numbers)
    if seed is not None:
        spent = samples.read_seconds[0] + loaded.prepare_seconds + seconds[0]
        result.parts = parts.run(engine, loaded.prepared, options, result, seed, spent)
    sampling = time.perf_counter() - sampled
    measurement = measurement_of(engine.name, loaded.prepared, loaded.inputs, options, findings, span, result, samples)
    # The ceilings of the machine, measured in the same minute with the same threads.
    measurement = replace(
        measurement,
        peak_memory_bytes=peak,
        machine=ceilings(engine, options),
        # One attempt: the load is measured over the longest span, ceilings too.
        load=load if again else watch.load(),
        passed_over=passed_over,
        # Time that a user who wants one result would not spend: further repeats and the ceilings.
        excluded_seconds=time.perf_counter() - begun - opened - seconds[0] - sampling,
        startup_seconds=startup,
        verification_seconds=sampling,
    )
    return measurement, result


def survivors_alone(engine: Engine, loaded: LoadedRun, options: Options, numbers: np.ndarray) -> np.ndarray | None:
    """The survivors of the inputs `numbers` (int64, ascending), run in a session of their own; None where that is
    refused, as standard error says."""
    alone = replace_fields(options, values=False)
    try:
        return engine.open(loaded.prepared, loaded.inputs.part(numbers), alone).run().survivors
    except SpdnnError as error:
        print(f"spdnn: warning: {error}; active inputs are not compared", file=sys.stderr)
        return None


def check_repeats(engine: Engine, digests: list[str]) -> None:
    """Raise SpdnnError when repeats of one run gave different outputs."""
    if len(set(digests)) != 1:
        raise SpdnnError(f"engine {engine.name} gave different outputs in {len(digests)} repeats of the same run")


def measurement_of(
    name: str,
    prepared: Prepared,
    inputs: Inputs,
    options: Options,
    findings: dict,
    span: str,
    result: Result,
    samples: Samples,
) -> Measurement:
    """What runs of engine `name` measured, with findings and span of their session, on one rank until more is known."""
    return Measurement(
        problem=ProblemRecord.of(prepared.source, inputs),
        engine=EngineRecord(name=name, noted=result.notes),
        reductions=Reductions(requested=list(prepared.reductions), found={**prepared.findings, **findings}),
        threads=options.threads,
        ranks=1,
        memory_limit_bytes=options.memory,
        span=span,
        **samples._asdict(),
        result=ResultRecord.of(result),
        peak_memory_bytes=peak_memory(),
        machine=None,
        distribution=None,
        load=None,
        passed_over=[],
        time_to_solution=None,
        environment=Environment(**provenance.environment("", result.notes.get("device"))),
    )


def ceilings(engine: Engine, options: Options, together: int = 1, warn: bool = True) -> Machine | None:
    """As Engine.ceilings, and None where memory is too small to measure it; with `warn`, standard error says so."""
    try:
        return engine.ceilings(options, MACHINE_SECONDS, together)
    except Unavailable as error:
        if warn:
            print(f"spdnn: warning: {error}; the record will have no limit of this machine", file=sys.stderr)
        return None


def peak_memory() -> int:
    """Bytes of this process's peak resident set so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def fits(until: float | None, seconds: float) -> bool:
    """Whether so many seconds end before `until`, of time.perf_counter(); None: there is no limit."""
    return until is None or time.perf_counter() + seconds <= until


def repeat(
    once: Callable[[], RepeatSeconds],
    repeats: int,
    again: int,
    load: Callable[[LoadMonitor, float], Load],
    watch: LoadMonitor,
    in_time: Callable[[float], bool],
) -> tuple[list[RepeatSeconds], Load, list[Load]]:
    """Call `once` for each repeat, and all repeats up to `again` times more while the machine was busy.

    Args:
        load: of a watch that began before the repeats, of at least so many seconds.
        watch: of the first attempt.
        in_time: whether so many seconds are left; a repeat is begun only if it would end by the slowest one so far.

    Returns:
        of the attempt on the quietest machine, the first of equals: its repeats and load; the loads of the others.
    """
    attempts: list[list[RepeatSeconds]] = []
    loads: list[Load] = []
    begun, first = time.perf_counter(), 0.0
    while not loads or (loads[-1].busy > BUSY and len(loads) <= again and in_time(first)):
        seconds: list[RepeatSeconds] = []
        for _ in progress.repeats(repeats):
            # Only the first attempt may stop early: later ones repeat its count.
            if seconds and not attempts and not in_time(max(one.inference for one in seconds)):
                break
            # A library may have swallowed what a signal raised.
            check_ended()
            seconds.append(once())
        attempts.append(seconds)
        repeats, first = len(seconds), first or time.perf_counter() - begun
        loads.append(load(watch, LEAST_WATCH if again else 0.0))
        watch = LoadMonitor()
    best = min(range(len(loads)), key=lambda k: loads[k].busy)
    return attempts[best], loads[best], loads[:best] + loads[best + 1 :]
