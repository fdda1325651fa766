"""The parts that both comparisons share: the programs that take part, alternate timing, records, rows of a table."""

import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spdnn.core.endings import check_ended
from spdnn.core.errors import InputError, SpdnnError, Unavailable, unknown
from spdnn.core.files import together
from spdnn.core.statistics import Interval, ratios
from spdnn.engines.registry import PEERS, engine
from spdnn.runs import measure
from spdnn.runs.measure import LoadMonitor
from spdnn.runs.records.files import write_record
from spdnn.runs.records.run_record import RunRecord

OURS = "cpu"
# Seconds of a check, and at most; processor time over them that is none. Of threads on other cores the system knows the
# time to a tick, up to 10 ms, so a check is longer.
REST, LONGEST_REST, IDLE = 0.03, 0.5, 0.1


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


def find_libraries(names: str | Sequence[str] = "all") -> tuple[list[str], dict[str, str]]:
    """(the peers to run, why each of the others cannot run here).

    Args:
        names: 'all' that are installed, or a list of names.

    Raises:
        InputError, Unavailable: see usable.
    """
    offered = {name: engine(name, usable=False).missing for name in PEERS}
    return usable(None if names == "all" else names, offered, "engine")


def usable(
    names: Sequence[str] | None, offered: Mapping[str, Callable[[], str | None]], kind: str
) -> tuple[list[str], dict[str, str]]:
    """(the libraries to run, why each of the others cannot run here).

    Args:
        names: the libraries asked for; None: all that can run here.
        offered: by name, a function that returns None, or why the library cannot run here.
        kind: what the sentence of Unavailable calls a library.

    Raises:
        InputError: a name that is not offered, or a name twice.
        Unavailable: a library asked for cannot run here.
    """
    if names is None:
        reasons = {name: reason for name, missing in offered.items() if (reason := missing())}
        return [name for name in offered if name not in reasons], reasons
    for name in check_names(names, offered):
        if reason := offered[name]():
            raise Unavailable(f"{kind} {name} cannot run here: {reason}")
    return list(names), {}


def check_names(names: Sequence[str] | None, offered: Collection[str]) -> list[str]:
    """The names themselves, all that are offered for None; InputError for one that is not, or is there twice."""
    for name in names or ():
        if name not in offered:
            raise unknown("library", name, offered)
        if names.count(name) > 1:
            raise InputError(f"library {name!r} is named twice")
    return list(offered if names is None else names)


def alternate(
    programs: dict[str, tuple[Callable, Callable]],
    limits: tuple[int, float],
    seconds: float = 0.0,
    warm: bool = False,
    each: int = 1,
    wait_for_idle: bool = False,
) -> tuple[dict[str, list[float]], dict[str, list[str]], dict]:
    """(seconds, digests of the outputs) of each program, all alternating, round after round; and the machine's load.

    Args:
        programs: by name: what runs once and is timed, and what takes the digest of its output and is not.
        limits: of rounds, the least and the most; between them, another round begins until `seconds` are over.
        warm: each timed run follows an untimed one of the same program, so that its operands are in the caches.
        each: timed runs of a program in a round.
        wait_for_idle: before a program, until all threads sleep: some stay awake for 0.1 s (OpenBLAS, measured), and
            would take the cores that it needs.
    """
    watch, samples, digests, rounds = LoadMonitor(), {name: [] for name in programs}, {name: [] for name in programs}, 0
    (least, most), end = limits, time.perf_counter() + seconds
    while rounds < least or (rounds < most and time.perf_counter() < end):
        for name, (run, digest) in programs.items():
            check_ended()
            if wait_for_idle:
                _wait_for_idle()
            for _ in range(each):
                if warm:
                    run()
                out, took = measure.time_call(run)
                samples[name].append(took)
                digests[name].append(digest(out))
        rounds += 1
    return samples, digests, watch.load()


def _wait_for_idle() -> None:
    """Wait until this process takes next to no processor time, at most LONGEST_REST seconds."""
    end = time.perf_counter() + LONGEST_REST
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(REST)
        if time.process_time() - before < IDLE * REST:
            return


def check_same(name: str, digests: Sequence[str], verified: str) -> None:
    """Refuse outputs of which one is not the verified one, to the bit."""
    if set(digests) != {verified}:
        raise SpdnnError(f"engine {name} gave an output, while it was timed, that is not the one that was verified")


class TimedRow(NamedTuple):
    """One program in the table of a comparison: medians, and how many times as long as ours it took."""

    name: str
    seconds: float
    rate: float
    ratio: Interval
    verdict: str


def rows(records: Sequence[RunRecord]) -> list[TimedRow]:
    """The rows of one problem's records, of which ours is the first."""
    ours = records[0].seconds
    return [
        TimedRow(
            _label(record),
            float(np.median(record.seconds)),
            record.edges_per_second.median,
            ratios(ours, record.seconds),
            "pass",  # without one there is no record
        )
        for record in records
    ]


def _label(record: RunRecord) -> str:
    """The engine, and of our own the reductions where it did not run with all of them."""
    name, requested = record.engine.name, record.reductions.requested
    whole = name != OURS or not requested or len(requested) == len(engine(name).offers)
    return name if whole else f"{name}, {'+'.join(requested)}"


def write_records(folder: str | Path, records: Iterable[RunRecord]) -> None:
    """Write each record to `folder` (made when it is absent) as CASE.json, all of them or none."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with together():
        for record in records:
            write_record(Path(folder) / f"{record.case}.json", record)
