"""From what an inference measured to its run record, once a verdict allows one.

An inference leaves plain values (run.py). Here they become the parts of a record, and are checked; so a change of the
classes of records makes records anew, and no inference.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from msgspec.structs import replace

from spdnn.core import safe_open
from spdnn.core.errors import SpdnnError
from spdnn.core.fields import Seconds
from spdnn.core.request import RunRequest
from spdnn.core.validation import convert, parse
from spdnn.runs.records.accuracy import Accuracy
from spdnn.runs.records.files import seal_record
from spdnn.runs.records.run_record import SCHEMA, VERSION, Measured, RunRecord
from spdnn.runs.records.verdict import Verdict


class Measurement(Measured, kw_only=True):
    """All that one case measured: the samples file of a workflow's stage.

    Attributes:
        excluded_seconds: that went to no part of a solution: repeats after the first, measuring the machine.
    """

    excluded_seconds: Seconds = 0.0

    @classmethod
    def of(cls, measured: dict) -> Measurement:
        """What `spdnn.runs.measure.run` measured, which InputError refuses where a record does not allow it."""
        return convert(cls, measured, "measurement")


def read_samples(path: str | Path) -> Measurement:
    """A measurement as `spdnn.runs.measure.run.write_samples` wrote it; InputError where the file is none."""
    return parse(Measurement, safe_open.text(path, "samples file"), str(path), "samples file")


def record_of(
    case: str,
    measurement: Measured,
    verdict: Verdict,
    command: str,
    comparison: str | None = None,
    request: RunRequest | None = None,
    configuration: str | None = None,
    accuracy: Accuracy | None = None,
) -> RunRecord:
    """The run record of a measured and judged case, sealed.

    Args:
        comparison: of engines that were timed alternately.
        request: what was asked for; None: single layers beside other libraries.
        configuration: the workflow's configuration files by name; None: the run was not the workflow's.
        accuracy: of the output; None: no labels were given.

    Raises:
        SpdnnError: the verdict did not pass: an unverified run has no number.
    """
    if not verdict.passed:
        raise SpdnnError(f"{case}: verification failed ({'; '.join(verdict.reasons)}), so there is no record")
    parts = {name: getattr(measurement, name) for name in Measured.__struct_fields__}
    parts["environment"] = replace(measurement.environment, command=command)
    if verdict.truth.kind != "official":  # an official result is one that the official truth judged
        parts["problem"] = replace(measurement.problem, official=None)
    made = RunRecord(
        schema=SCHEMA, version=VERSION, case=case, created=now(), request=request, configuration=configuration,
        comparison=comparison, accuracy=accuracy, verdict=verdict, seal=None, **parts,
    )  # fmt: skip
    return seal_record(made, case)


def now() -> str:
    """The time as records have it, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
