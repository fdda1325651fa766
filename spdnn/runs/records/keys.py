"""The key of a record: the values that two records must share for their times to be compared; all others may differ."""

import json

from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord

RUNS, OPERATIONS = "runs", "operations"  # kinds of records

Value = str | int | float | None
Key = tuple[tuple[str, Value], ...]  # (what must be the same, its value)


def key_of(record: RunRecord | OperationRecord) -> Key:
    """The values that two records must share for their times to be compared."""
    values = _run_key(record) if isinstance(record, RunRecord) else _operation_key(record)
    return tuple((name, _plain(value)) for name, value in values.items())


def _run_key(record: RunRecord) -> dict:
    problem, settings = record.problem, record.request.settings if record.request else {}
    return {
        "kind": RUNS,
        "network": problem.network_identity,
        "layers": problem.layers,
        "inputs": problem.inputs_sha256,
        "input count": problem.input_count,
        "engine": record.engine.name,
        # As they were asked for: what was left to the cost model may differ, its choice is part of the comparison.
        "settings": ", ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "default",
        "reductions": "+".join(sorted(record.reductions.requested)) or "none",
        "threads": record.threads,
        "ranks": record.ranks,
        "partition": record.distribution.partition if record.distribution else None,
        "span": record.span,
    }


def _operation_key(record: OperationRecord) -> dict:
    problem = record.problem
    named = ("set", "network", "layer", "phase", "rows", "columns", "batch_columns", "batch", "index_bits")
    return {
        "kind": OPERATIONS,
        "operation": record.operation,
        **{name.replace("_", " "): getattr(problem, name) for name in named},
        "nonzeros": problem.nonzeros,
        "positions": problem.topology_sha256,
        "program": record.program.name,
        "threads": record.threads,
        "device": record.device.kind,
    }


def _plain(value: object) -> Value:
    """A value of a record as part of a key; notes may hold anything."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)


def abbreviate(value: Value) -> str:
    """A value of a key in a few letters; of a digest, the first ones."""
    text = str(value)
    digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return text[:12] if digest else text
