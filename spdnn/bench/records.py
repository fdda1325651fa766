"""Records of operations: what all programs of a contest share, and what is each one's own."""

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.bench.contest import ComparisonSettings, Entrant
from spdnn.bench.libraries.base import DENSE
from spdnn.core import provenance
from spdnn.core.limits import Machine
from spdnn.core.load import Load
from spdnn.engines.base import Options
from spdnn.engines.registry import engine
from spdnn.runs import measure
from spdnn.runs.records.environment import Environment
from spdnn.runs.records.files import now, seal_record
from spdnn.runs.records.operation_record import OPERATION_VERSION, SCHEMA, OperationProblem, OperationRecord, Program

MACHINE_AGE = 10.0  # seconds that a measurement of the machine counts

_latest: dict[int, tuple[float, Machine | None]] = {}  # by threads: when the machine was measured, and its ceilings


def ceilings(threads: int) -> Machine | None:
    """The best that the machine does on so many threads, measured again when it is older than MACHINE_AGE seconds."""
    at, machine = _latest.get(threads, (-np.inf, None))
    if time.perf_counter() - at > MACHINE_AGE:
        machine = measure.ceilings(engine("cpu", usable=False), Options(threads))
        _latest[threads] = time.perf_counter(), machine
    return machine


@dataclass(frozen=True)
class Task:
    """What all programs of a contest do.

    Attributes:
        case: of the records, without program and threads.
        multiply_adds: of a call, on nonzeros and on all entries.
        operand_bytes: as a record has them.
    """

    operation: str
    case: str
    problem: OperationProblem
    multiply_adds: tuple[int, int]
    operand_bytes: int


def operation_records(
    task: Task,
    comparison: ComparisonSettings,
    entrants: Iterable[Entrant],
    load: Load | None,
    gpu: str | None = None,
    machine: Machine | None = None,
) -> list[OperationRecord]:
    """The records of entrants, sealed; their verdicts are the part `verification`.

    Args:
        gpu, machine: the name of the device that they ran on, and its ceilings; None: the processor, which is measured.
    """
    useful, whole = task.multiply_adds
    where, machine = ("cuda", machine) if gpu else (f"t{comparison.threads}", ceilings(comparison.threads))
    created, environment = now(), Environment(**provenance.environment(comparison.command, gpu))
    records = [
        OperationRecord(
            schema=SCHEMA, version=OPERATION_VERSION, created=created, comparison=comparison.identity,
            operation=task.operation, problem=task.problem, threads=comparison.threads, machine=machine,
            environment=environment, case=f"{task.case}.{program.name}.{where}",
            program=Program(program.name, program.kind, program.version, program.threads_used, program.notes),
            prepare_seconds=[entrant.prepare_seconds], seconds=entrant.seconds,
            useful_operations=2 * useful, multiply_adds=whole if program.kind == DENSE else useful,
            matrix_bytes=program.matrix_bytes, operand_bytes=task.operand_bytes,
            attention_bytes=program.attention_bytes, verification=entrant.verdict,
            thread_imbalance=entrant.imbalances or None,
            nonzero_imbalance=program.nonzero_imbalance() if entrant.imbalances else None, load=load, seal=None,
        )
        for entrant in entrants
        for program in [entrant.program]
    ]  # fmt: skip
    return [seal_record(record, record.case) for record in records]


def model_problem(
    network: str, layer: str, columns: int, nonzeros: int, digest: str, **others: Any
) -> OperationProblem:
    """The part `problem` of a record: a user's model, all its weights in a row, unless `others` say otherwise."""
    fields = {
        "set": "own", "rows": 1, "batch_columns": 1, "batch": 1, "phase": "inference", "repeats": 1, "origin": "file",
        "seed": 0, "index_bits": 16 if columns <= 1 << 16 else 32,
    }  # fmt: skip
    names = {"network": network, "layer": layer, "columns": columns, "nonzeros": nonzeros, "topology_sha256": digest}
    return OperationProblem(**fields | names | others)
