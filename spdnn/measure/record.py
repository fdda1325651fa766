"""From what an inference measured to its run record, once a verdict allows one.

An inference leaves plain values (`spdnn.measure.run`). Here they become the parts of a record, and are checked; so a
change of the classes of records makes records anew, and no inference.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from msgspec import UNSET
from msgspec.structs import replace

from spdnn.common import door, provenance
from spdnn.common.errors import SpdnnError
from spdnn.common.validation import builtins, converted, parsed
from spdnn.problem.request import RunRequest
from spdnn.records import ledger
from spdnn.records.fields import Record
from spdnn.records.files import sealed
from spdnn.records.limits import Machine
from spdnn.records.run_record import (
    SCHEMA,
    VERSION,
    Attempt,
    Distribution,
    EdgesPerSecond,
    Engine,
    Environment,
    Load,
    OneRank,
    Problem,
    Reductions,
    Result,
    RunRecord,
    RunSamples,
    TimeToSolution,
    Verdict,
    rank_imbalance,
)  # fmt: skip


class Measurement(Record, kw_only=True):
    """All that one case measured, as the parts of a record.

    Attributes:
        environment: of the process that ran; what joins samples and verdict may run elsewhere.
        aside_seconds: that went to no part of a solution: repeats after the first, measuring the machine.
    """

    problem: Problem
    engine: Engine
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
    load: Load | None = None
    passed_over: list[Attempt] | None = None

    @classmethod
    def of(cls, measured: dict, where: str = "measurement") -> Measurement:
        """What `spdnn.measure.run` measured, which InputError refuses where a record does not allow it.

        Args:
            where: begins the sentence of an error.
        """
        content = builtins(measured)
        if several := content.get("distribution"):
            ranks = converted(list[OneRank], several["per_rank"], where)
            content["distribution"] = {**several, "imbalance": rank_imbalance(ranks)}
        return converted(cls, content, where)


class SamplesFile(Record):
    """What an inference leaves for the record: what it measured, and the summary of its result."""

    measurement: dict
    result: dict


def read_samples(path: str | Path) -> tuple[Measurement, dict]:
    """(measurement, summary of the result) as `spdnn.measure.run.write_samples` wrote them.

    Raises:
        InputError: the file is not one of them.
    """
    content = parsed(SamplesFile, door.text(path, "samples file"), str(path), "samples file")
    measurement = Measurement.of(content.measurement, str(path))
    converted(Result, {**content.result, "digests": measurement.digests}, f"{path}: result")
    return measurement, content.result


def record_of(
    case: str,
    measurement: Measurement,
    result_summary: dict,
    verdict: Verdict,
    command: str,
    comparison: str = "",
    request: RunRequest | None = None,
    configuration: str | None = None,
) -> RunRecord:
    """The run record of a measured and judged case.

    Args:
        comparison: of engines that were timed alternately.
        request: what was asked for; None: single layers beside other libraries.
        configuration: the workflow's configuration files by name; None: the run was not the workflow's.

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
        request=request,
        configuration=configuration,
        created=now(),
        problem=problem,
        **{name: getattr(measurement, name) for name in same},
        ranks=measurement.ranks,
        distribution=measurement.distribution or UNSET,
        time_to_solution=measurement.time_to_solution or UNSET,
        result=Result(**result_summary, digests=measurement.digests, sha256=measurement.result_sha256),
        edges_per_second=EdgesPerSecond.of(problem.work, measurement.samples.inference_seconds),
        verdict=verdict,
        environment=replace(environment, command=command),
        comparison=comparison or UNSET,
        load=measurement.load or UNSET,
        passed_over=measurement.passed_over or UNSET,
    )
    return entered(made)


def entered(record: RunRecord) -> RunRecord:
    """The record, sealed and in the list of what was made here: at its end, and again where something was added."""
    made = sealed(record, record.case)
    ledger.note(made, "made")
    return made


def now() -> str:
    """The time as records have it, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
