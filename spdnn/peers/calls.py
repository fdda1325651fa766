"""One's own network, called with batches: a compiled model and other libraries, timed alternately, each verified.

A sample is the mean of a turn of calls, each with inputs of its own, after a turn that is not timed; weights are in the
library's own layout, on the same number of threads. All outputs of a turn are compared with the float64 oracle before a
program is timed, and every timed turn must give the verified outputs to the bit. What is wrong gets no number.
"""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from spdnn.common import door
from spdnn.common.errors import InputError, SpdnnError
from spdnn.common.resources import available_bytes
from spdnn.peers.call_programs import OTHERS, PROGRAMS, Ours, Program
from spdnn.peers.common import Comparison, alternated, check_same, named
from spdnn.peers.product_checks import digest
from spdnn.peers.products import Ceilings, blas_threads, shared_parts
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network
from spdnn.records.operation_record import OperationRecord, Verification  # fmt: skip
from spdnn.records.operation_record import Program as RecordProgram
from spdnn.verify import oracle

INPUTS, CALLS = 64, 4  # of a turn, at least
LEAST_ROUNDS, MOST_ROUNDS = 5, 200
SHARE = 0.5  # of the free memory, for the inputs and what the oracle makes of them
RULE = "every value within float32 rounding of a float64 reference"


class Case(NamedTuple):
    """A network with the inputs that it is called with.

    Attributes:
        name: of the network, in records.
        rows: float32 (inputs, neurons); taken again from the first where a turn needs more.
        origin: of the network: file or generated; seed: of drawn inputs.
    """

    name: str
    network: Network
    rows: np.ndarray
    origin: str
    seed: int = 0


def others_here(names: Sequence[str] | None = None) -> tuple[list[str], dict[str, str]]:
    """(libraries to run, why each of the others cannot run here).

    Args:
        names: the libraries asked for; None: all.

    Raises:
        InputError: a name that is none, or there twice.
    """
    reasons = {name: OTHERS[name].missing() for name in named(names, OTHERS)}
    return [name for name in reasons if not reasons[name]], {name: why for name, why in reasons.items() if why}


def drawn_rows(count: int, neurons: int, zeros: float, seed: int = 0) -> np.ndarray:
    """float32 (count, neurons): uniform numbers from 0 to 1, of which the part `zeros` is 0."""
    random = np.random.default_rng(seed)
    rows = random.random((count, neurons), dtype=np.float32)
    rows[random.random(rows.shape, dtype=np.float32) < zeros] = 0
    return rows


def inputs_needed(batches: Sequence[int]) -> int:
    """Inputs of the longest turn."""
    return max(INPUTS, *batches)


def compare_calls(
    case: Case, batches: Sequence[int], comparison: Comparison
) -> Iterator[tuple[int, list[OperationRecord], dict[str, str]]]:
    """Yield (batch, the records of all programs, ours first, why each of the others has none).

    Raises:
        InputError: inputs that do not fit the network, or the memory.
        SpdnnError: our own outputs are wrong, or changed while they were timed.
    """
    network, threads = case.network, comparison.threads
    count, ceilings = inputs_needed(batches), Ceilings(threads)
    _check_memory(network, count)
    x = np.ascontiguousarray(np.take(case.rows, np.arange(count), axis=0, mode="wrap"), np.float32)
    truth = oracle.judged(network, Inputs.from_array(x), None, np.arange(count), "verify outputs")[1]
    with blas_threads(threads), contextlib.ExitStack() as opened:
        programs, spent, refused = _made(network, comparison, opened)
        for batch in batches:
            yield batch, *_batch(case, batch, x, truth, comparison, ceilings, programs, spent, refused)


def _made(
    network: Network, comparison: Comparison, opened: contextlib.ExitStack
) -> tuple[dict[str, Program], dict[str, float], dict[str, str]]:
    """(programs, seconds that it took to make each, why others were not made)."""
    programs, spent, refused = {}, {}, {}
    for name in (Ours.name, *comparison.libraries):
        begun = time.perf_counter()
        try:
            programs[name] = PROGRAMS[name](network, comparison.threads)
        except Exception as error:  # of another library: of any type
            if name == Ours.name:
                raise
            refused[name] = door.brief(error)
            continue
        spent[name] = time.perf_counter() - begun
        opened.callback(programs[name].close)
    return programs, spent, refused


def _batch(
    case: Case,
    batch: int,
    x: np.ndarray,
    truth: oracle.Tolerances,
    comparison: Comparison,
    ceilings: Ceilings,
    programs: dict[str, Program],
    spent: dict[str, float],
    refused: dict[str, str],
) -> tuple[list[OperationRecord], dict[str, str]]:
    calls, different = max(CALLS, INPUTS // batch), len(x) // batch
    parts = [slice(first, first + batch) for first in (batch * (call % different) for call in range(calls))]
    right = np.concatenate([truth.values[part] for part in parts])
    tolerated = np.concatenate([truth.each[part] for part in parts])
    turns, verified, refused = {}, {}, dict(refused)
    for name, program in programs.items():
        turn = functools.partial(_turn, program, [program.taken(x[part]) for part in parts])
        try:
            program.settle(batch)
            out = _outputs(program, turn())
            worst = _worst(out, right, tolerated)
            if not worst <= 1:
                raise SpdnnError(f"outputs are off by {worst:.3g} times what rounding explains")
        except Exception as error:
            if name == Ours.name:
                raise SpdnnError(f"ours, batch {batch}: {error}") from error
            refused[name] = door.brief(error)
            continue
        turns[name] = turn
        verified[name] = Verification(out.size, out.size, None, RULE, worst, digest(out))
    end = time.perf_counter() + comparison.seconds
    samples, digests, load = alternated(
        {name: (turn, functools.partial(_digest, programs[name])) for name, turn in turns.items()},
        lambda rounds: rounds < LEAST_ROUNDS or (rounds < MOST_ROUNDS and time.perf_counter() < end),
        warm=True,
        settle=True,
    )
    shared = shared_parts("network", _about(case, batch), comparison, ceilings.now(), load)
    records = []
    for name in turns:
        try:
            check_same(name, digests[name], verified[name].digest)
        except SpdnnError as error:
            if name == Ours.name:
                raise
            refused[name] = str(error)
            continue
        seconds = [one / calls for one in samples[name]]
        records.append(_record(shared, case, batch, calls, programs[name], spent[name], seconds, verified[name]))
    return records, refused


def _turn(program: Program, parts: list[Any]) -> list[Any]:
    return [program(part) for part in parts]


def _outputs(program: Program, outs: list[Any]) -> np.ndarray:
    return np.concatenate([program.array(out) for out in outs])


def _digest(program: Program, outs: list[Any]) -> str:
    return digest(_outputs(program, outs))


def _worst(out: np.ndarray, right: np.ndarray, tolerated: np.ndarray) -> float:
    """The largest error, over what is tolerated there; infinite where a value is none."""
    if out.shape != right.shape or not np.isfinite(out).all():
        return np.inf
    error = np.abs(out.astype(np.float64) - right)
    return float(np.divide(error, tolerated, out=np.where(error > 0, np.inf, 0.0), where=tolerated > 0).max())


def _about(case: Case, batch: int) -> dict:
    """The part `problem` of a record: all weights of the network in a row."""
    headers = list(map(case.network.header, range(case.network.depth)))
    entries, edges = sum(one.inputs * one.outputs for one in headers), case.network.edges
    return {
        "set": "own",
        "network": case.name,
        "layer": f"{case.network.depth} layers",
        "rows": 1,
        "columns": entries,
        "batch_columns": batch,
        "batch": 1,
        "nonzeros": edges,
        "phase": "inference",
        "repeats": 1,
        "origin": case.origin,
        "topology_sha256": case.network.sha256(),
        "seed": case.seed,
        "index_bits": 16 if entries <= 1 << 16 else 32,
    }


def _record(
    shared: dict,
    case: Case,
    batch: int,
    calls: int,
    program: Program,
    prepared: float,
    seconds: list[float],
    verdict: Verification,
) -> OperationRecord:
    edges, entries = shared["problem"].nonzeros, shared["problem"].columns
    done = batch * (entries if program.kind == "dense" else edges)
    notes = program.notes | {"calls": calls}
    return OperationRecord(
        **shared,
        case=f"network.{case.name}.b{batch}.{program.name}.t{shared['threads']}",
        program=RecordProgram(program.name, program.kind, program.version, program.threads_used, notes),
        prepare_seconds=[prepared],
        seconds=seconds,
        useful_operations=2 * batch * edges,
        multiply_adds=done,
        matrix_bytes=program.matrix_bytes,
        operand_bytes=4 * batch * (case.network.inputs + case.network.outputs),
        attention_bytes=None,
        verification=verdict,
        thread_imbalance=None,
        nonzero_imbalance=None,
    )


def _check_memory(network: Network, count: int) -> None:
    needed, free = 8 * count * (4 * network.width + 4 * network.outputs), available_bytes()
    if free is not None and needed > SHARE * free:
        raise InputError(
            f"{count} inputs of this network need about {needed:,} bytes to be verified; {free:,} are free"
        )
