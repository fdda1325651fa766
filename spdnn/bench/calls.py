"""One's own model, called with batches: compiled, and in other libraries, timed alternately, each verified.

A sample is the mean of a turn of calls after a turn that is not timed; weights are in the library's own layout, on the
same number of threads. All outputs of a turn are compared with a reference (call_cases.py) before a program is timed,
and every timed turn must give the verified outputs to the bit. What is wrong gets no number.
"""

import contextlib
import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from spdnn.bench.call_cases import Call, Case
from spdnn.bench.common import ComparisonSettings, alternate, check_names, check_same
from spdnn.bench.libraries.base import OURS, TimedProgram
from spdnn.bench.libraries.numpy import BlasModel
from spdnn.bench.libraries.onnx import OnnxRuntime, OpenVino
from spdnn.bench.libraries.ours import OurModel
from spdnn.bench.libraries.scipy import ScipyModel
from spdnn.bench.libraries.torch import TorchCompiledModel, TorchModel
from spdnn.bench.product_checks import digest
from spdnn.bench.products import Ceilings, OperationWork, blas_threads, common_fields, operation_record
from spdnn.core import safe_open
from spdnn.core.errors import SpdnnError
from spdnn.runs.records.operation_record import OperationRecord, Verification

PROGRAMS: dict[str, type[TimedProgram]] = {
    kind.name: kind for kind in (OurModel, ScipyModel, BlasModel, TorchModel, TorchCompiledModel, OnnxRuntime, OpenVino)
}
OTHERS = {name: program for name, program in PROGRAMS.items() if program.kind != OURS}
CALLS = 4  # of a turn, at least
LEAST_ROUNDS, MOST_ROUNDS = 5, 200
LAYERS = "it is compared on chains of pruned layers alone, and this model is none"


def others_here(names: Sequence[str] | None = None) -> tuple[list[str], dict[str, str]]:
    """(libraries to run, why each of the others cannot run here).

    Args:
        names: the libraries asked for; None: all.

    Raises:
        InputError: a name that is none, or there twice.
    """
    reasons = {name: OTHERS[name].missing() for name in check_names(names, OTHERS)}
    return [name for name in reasons if not reasons[name]], {name: why for name, why in reasons.items() if why}


def compare_calls(
    case: Case, comparison: ComparisonSettings
) -> Iterator[tuple[int, list[OperationRecord], dict[str, str]]]:
    """Yield (batch, the records of all programs, ours first, why each of the others has none).

    Raises:
        InputError: inputs that the model does not take.
        SpdnnError: our own outputs are wrong, or changed while they were timed.
    """
    ceilings = Ceilings(comparison.threads)
    with blas_threads(comparison.threads), contextlib.ExitStack() as opened:
        programs, spent, refused = _make_programs(case, comparison, opened)
        for batch in case.batches:
            yield batch, *_batch(case, batch, comparison, ceilings, programs, spent, refused)


def _make_programs(
    case: Case, comparison: ComparisonSettings, opened: contextlib.ExitStack
) -> tuple[dict[str, TimedProgram], dict[str, float], dict[str, str]]:
    """(programs, seconds that it took to make each, why others were not made)."""
    programs, spent, refused = {}, {}, {}
    for name in (OURS, *comparison.libraries):
        begun = time.perf_counter()
        if not isinstance(case.source, PROGRAMS[name].takes):
            refused[name] = LAYERS
            continue
        try:
            programs[name] = PROGRAMS[name](case.source, comparison.threads)
        except Exception as error:  # of another library: of any type
            if name == OURS:
                raise
            refused[name] = safe_open.brief(error)
            continue
        spent[name] = time.perf_counter() - begun
        opened.callback(programs[name].close)
    return programs, spent, refused


def _batch(
    case: Case,
    batch: int,
    comparison: ComparisonSettings,
    ceilings: Ceilings,
    programs: dict[str, TimedProgram],
    spent: dict[str, float],
    refused: dict[str, str],
) -> tuple[list[OperationRecord], dict[str, str]]:
    # Several calls with different inputs make a turn, so that no library gains from equal data.
    calls = list(case.calls(batch, max(CALLS, case.inputs // batch)))
    turns, verified, spent, refused = {}, {}, dict(spent), dict(refused)
    for name, program in programs.items():
        taken = [program.convert_inputs(*call.inputs) for call in calls]

        def turn(program: TimedProgram = program, taken: list[Any] = taken) -> list[Any]:
            return [program(name) for name in taken]

        # Verify before timing; preparing for the shape of a call is part of making the program.
        try:
            begun = time.perf_counter()
            program.prepare_shapes(*calls[0].inputs)
            spent[name] += time.perf_counter() - begun
            outs = _outputs(program, turn())
            worst = _worst(outs, calls)
            if not worst <= 1:
                raise SpdnnError(f"outputs are off by {worst:.3g} times what rounding explains")
        except Exception as error:
            if name == OURS:
                raise SpdnnError(f"ours, batch {batch}: {error}") from error
            refused[name] = safe_open.brief(error)
            continue
        turns[name], entries = turn, sum(out.size for out in outs)
        verified[name] = Verification(entries, entries, None, case.rule, worst, _digest_of(outs))
    # Timed alternately, so that a disturbance of the machine meets all programs.
    samples, digests, load = alternate(
        {name: (turn, functools.partial(_digest, programs[name])) for name, turn in turns.items()},
        (LEAST_ROUNDS, MOST_ROUNDS),
        comparison.seconds,
        warm=True,
        wait_for_idle=True,
    )
    shared = common_fields("network", _about(case, batch), comparison, ceilings.now(), load)
    operands = sum(array.nbytes for array in (*calls[0].inputs, *calls[0].right))
    work = OperationWork(f"network.{case.name}.b{batch}", tuple(batch * flops for flops in case.work), operands)
    records = []
    # Verify after timing: an output that changed has no number.
    for name in turns:
        try:
            check_same(name, digests[name], verified[name].digest)
        except SpdnnError as error:
            if name == OURS:
                raise
            refused[name] = str(error)
            continue
        seconds = [sample / len(calls) for sample in samples[name]]
        records.append(
            operation_record(shared, work, programs[name], spent[name], seconds, verified[name], calls=len(calls))
        )
    return records, refused


def _outputs(program: TimedProgram, outs: list[Any]) -> list[np.ndarray]:
    """The outputs of a turn of calls."""
    return [array for out in outs for array in program.arrays(out)]


def _digest(program: TimedProgram, outs: list[Any]) -> str:
    return _digest_of(_outputs(program, outs))


def _digest_of(outs: Sequence[np.ndarray]) -> str:
    return digest(np.concatenate([np.ascontiguousarray(out).reshape(-1).view(np.uint8) for out in outs]))


def _worst(outs: Sequence[np.ndarray], calls: Sequence[Call]) -> float:
    """The largest error, over what is tolerated there; infinite or no number where outputs cannot be compared."""
    expected = [pair for call in calls for pair in zip(call.right, call.tolerated, strict=True)]
    if [out.shape for out in outs] != [right.shape for right, _ in expected]:
        return np.inf
    worst = 0.0
    for out, (right, tolerated) in zip(outs, expected, strict=True):
        differ = (out != right) & ~(np.isnan(out) & np.isnan(right))
        error = np.abs(out[differ].astype(np.float64) - right[differ])
        with np.errstate(all="ignore"):
            worst = np.maximum(worst, (error / tolerated[differ]).max(initial=0))  # which keeps what is no number
    return float(worst)


def _about(case: Case, batch: int) -> dict:
    """The part `problem` of a record: all weights of the model in a row."""
    return {
        "set": "own",
        "network": case.name,
        "layer": case.layers,
        "rows": 1,
        "columns": case.entries,
        "batch_columns": batch,
        "batch": 1,
        "nonzeros": case.nonzeros,
        "phase": "inference",
        "repeats": 1,
        "origin": "file",
        "topology_sha256": case.digest,
        "seed": 0,
        "index_bits": 16 if case.entries <= 1 << 16 else 32,
    }
