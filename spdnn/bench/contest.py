"""A contest of programs on one problem: made, verified, timed in turns, and verified again.

Programs that take turns, again and again, are slowed alike by other work of the machine, so pairs of samples give
ratios that can be trusted where single times cannot. An output is verified before its program is timed, and every
timed output must equal the verified one to the bit. The five kinds of problems (layers, networks, products, calls of a
model, whole models) differ in programs, judge and pace.
"""

import contextlib
import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from spdnn.core.endings import check_ended
from spdnn.core.errors import InputError, SpdnnError, Unavailable, unknown
from spdnn.core.load import Load, LoadMonitor, load_of
from spdnn.core.safe_open import brief
from spdnn.core.turns import wait_for_idle
from spdnn.runs import measure

CONTEST_SEED = 0  # of what a comparison draws: features, weights of models, the outputs that are verified


@dataclass(frozen=True)
class ComparisonSettings:
    """What all parts of one comparison share.

    Attributes:
        threads: of each program; libraries: names of those to compare with ours.
        seconds: of timing each problem, at least.
        command: that makes the records again.
        identity: 16 hexadecimal digits, in each record.
    """

    threads: int
    libraries: Sequence[str]
    seconds: float
    command: str
    identity: str = field(default_factory=lambda: secrets.token_hex(8))


class Pace(NamedTuple):
    """How programs take turns.

    Attributes:
        least, most: rounds; between them, another round begins until the seconds of a problem are over.
        warm: each timed run follows an untimed one of the same program, so that its operands are in the caches.
        each: timed runs of a program in a round.
        wait_for_idle: before a program, until all threads sleep: some stay awake for 0.1 s (OpenBLAS, measured), and
            would take the cores that it needs.
    """

    least: int
    most: float
    warm: bool = False
    each: int = 1
    wait_for_idle: bool = False


@dataclass
class Entrant:
    """A program in a contest.

    Attributes:
        program: a TimedProgram (libraries/base.py).
        prepare_seconds: of making it.
        digest: of its verified output, and of every timed one; verdict: what the judge returned.
        seconds: of each timed run; imbalances: of those of which the program knows it.
    """

    program: Any
    prepare_seconds: float
    digest: str = ""
    verdict: Any = None
    seconds: list[float] = field(default_factory=list)
    imbalances: list[float] = field(default_factory=list)


class Changed(SpdnnError):
    """An output, while it was timed, was not the one that was verified."""


def contest(
    makers: Mapping[str, Callable[[], Any]],
    judge: Callable[[str, Entrant, Any], Any],
    pace: Pace,
    seconds: float = 0.0,
    tolerated: type[Exception] | tuple[type[Exception], ...] = (),
) -> tuple[dict[str, Entrant], dict[str, str], Load]:
    """(entrants by name, ours first; why each of the others is none; other work of the machine while they were timed).

    Args:
        makers: by name, ours first: a function that makes a TimedProgram.
        judge: of a name, an entrant with its digest, and an output: a verdict; it raises where the output is wrong.
        seconds: of timing, at least.
        tolerated: exceptions for which another program than ours is refused; any other ends the contest.

    Raises:
        Changed: see there.
    """
    with contextlib.ExitStack() as opened:
        entrants, refused = make_programs(makers, opened, tolerated)
        ours = next(iter(makers))
        # Verify before timing: a wrong program has no number.
        for name, entrant in entrants.items():
            with _refuse(name, ours, tolerated, refused):
                out = entrant.program()
                entrant.digest = entrant.program.digest(out)
                entrant.verdict = judge(name, entrant, out)
        # Take turns, so that a disturbance of the machine meets all programs; verify each timed output.
        watch, before = LoadMonitor(), _own_processor_seconds(entrants)
        rounds, end = 0, time.perf_counter() + seconds
        while rounds < pace.least or (rounds < pace.most and time.perf_counter() < end):
            for name in [name for name in entrants if name not in refused]:
                check_ended()
                if pace.wait_for_idle:
                    wait_for_idle()
                with _refuse(name, ours, tolerated, refused):
                    for _ in range(pace.each):
                        _time_once(name, entrants[name], pace.warm)
            rounds += 1
        usage = watch.usage()
        # A process that a program has started is no other work.
        usage = usage._replace(ours=usage.ours + _own_processor_seconds(entrants) - before)
        load = load_of([usage])
        return {name: entrant for name, entrant in entrants.items() if name not in refused}, refused, load


def _own_processor_seconds(entrants: Mapping[str, Entrant]) -> float:
    return sum(entrant.program.own_processor_seconds for entrant in entrants.values())


def make_programs(
    makers: Mapping[str, Callable[[], Any]],
    opened: contextlib.ExitStack,
    tolerated: type[Exception] | tuple[type[Exception], ...],
) -> tuple[dict[str, Entrant], dict[str, str]]:
    """(entrants by name, why each of the others was not made), as `contest`; `opened` closes the programs."""
    entrants, refused = {}, {}
    for name, make in makers.items():
        with _refuse(name, next(iter(makers)), tolerated, refused):
            program, spent = measure.time_call(make)
            opened.callback(program.close)
            entrants[name] = Entrant(program, spent)
    return entrants, refused


@contextlib.contextmanager
def _refuse(name: str, ours: str, tolerated: Any, refused: dict[str, str]) -> Iterator[None]:
    """Another library that fails in this block is refused, with the reason; ours may not fail."""
    try:
        yield
    except tolerated as error:
        if name == ours:
            raise
        refused[name] = str(error) if isinstance(error, SpdnnError) else brief(error)


def _time_once(name: str, entrant: Entrant, warm: bool) -> None:
    program = entrant.program
    if warm:
        program()
    out, seconds = measure.time_call(program)
    entrant.seconds.append(seconds if program.own_seconds is None else program.own_seconds)
    if (imbalance := program.imbalance()) is not None:
        entrant.imbalances.append(imbalance)
    check_same(name, program.digest(out), entrant.digest)


def check_same(name: str, timed: str, verified: str) -> None:
    """Raise Changed where the digest of a timed output is not that of the verified one."""
    if timed != verified:
        raise Changed(f"engine {name} gave an output, while it was timed, that is not the one that was verified")


def digest(*outputs: np.ndarray) -> str:
    """SHA-256 of the bytes of all outputs, one after the other."""
    content = hashlib.sha256()
    for output in outputs:
        content.update(np.ascontiguousarray(output).data)
    return content.hexdigest()


def usable(
    names: Sequence[str] | None, offered: Mapping[str, Callable[[], str | None]], kind: str | None = None
) -> tuple[list[str], dict[str, str]]:
    """(the libraries to run, why each of the others cannot run here).

    Args:
        names: the libraries asked for; None: all.
        offered: by name, a function that returns None, or why the library cannot run here.
        kind: what the sentence of Unavailable calls a library; None: one that was asked for may be absent too.

    Raises:
        InputError: a name that is not offered, or a name twice.
        Unavailable: a library asked for cannot run here.
    """
    for name in names or ():
        if name not in offered:
            raise unknown("library", name, offered)
        if names.count(name) > 1:
            raise InputError(f"library {name!r} is named twice")
    asked = offered if names is None else names
    absent = {name: reason for name in asked if (reason := offered[name]())}
    if absent and kind and names is not None:
        name, reason = next(iter(absent.items()))
        raise Unavailable(f"{kind} {name} cannot run here: {reason}")
    return [name for name in asked if name not in absent], absent
