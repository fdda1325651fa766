"""The key of a record: the values that two records must share for their times to be compared; all others may differ."""

import json

from spdnn.records.notes import TaskgraphNotes
from spdnn.records.operation_record import OperationRecord
from spdnn.records.run_record import RunRecord

RUNS, OPERATIONS = "runs", "operations"  # kinds of records
AUTO = "auto"  # a schedule that was left to the cost model

Value = str | int | float | None
Key = tuple[tuple[str, Value], ...]  # (what must be the same, its value)


def key_of(record: RunRecord | OperationRecord) -> Key:
    """The values that two records must share for their times to be compared."""
    values = _run_key(record) if isinstance(record, RunRecord) else _operation_key(record)
    return tuple((name, _plain(value)) for name, value in values.items())


def _run_key(record: RunRecord) -> dict:
    problem = record.problem
    return {
        "kind": RUNS,
        "network": problem.network_identity,
        "layers": problem.layers,
        "inputs": problem.inputs_sha256,
        "input count": problem.input_count,
        "engine": record.engine.name,
        **_asked(record),
        "reductions": "+".join(sorted(record.reductions.requested)) or "none",
        "threads": record.threads,
        "ranks": record.ranks,
        "partition": record.distribution.partition if record.distribution else None,
        "span": record.span,
    }


def _operation_key(record: OperationRecord) -> dict:
    problem = record.problem
    named = ("set", "network", "layer", "phase", "rows", "columns", "batch_columns", "batch", "dtype", "index_bits")
    return {
        "kind": OPERATIONS,
        "operation": record.operation,
        **{name.replace("_", " "): getattr(problem, name) for name in named},
        "sparsity": round(problem.sparsity, 6),
        "positions": problem.topology_sha256,
        "program": record.program.name,
        "threads": record.threads,
        "device": record.device.kind,
        "caches": record.caches,
    }


def _asked(record: RunRecord) -> dict:
    """The settings of the task graph that were asked for, by the notes and the command of the record. Settings left to
    the cost model may differ in A and B: its choice is part of the comparison.
    """
    notes, words = record.engine.notes, record.environment.command.split()
    if not isinstance(notes, TaskgraphNotes) or notes.schedule is None:
        return {}
    options = dict(zip(words, words[1:], strict=False)) | dict(word.split("=", 1) for word in words if "=" in word)
    cut = notes.schedule
    asked = cut in (options.get("--schedule"), options.get("schedules")) or notes.why == f"{cut} was asked for"
    return {
        "schedule": cut if asked else AUTO,
        "devices": notes.devices,
        "device memory": notes.device_memory_bytes,
        **{name: options.get(f"--{name}") for name in ("pipeline", "batches", "buffers")},
        "join": "--no-join" not in words,
    }


def _plain(value: object) -> Value:
    """A value of a record as part of a key; notes may hold anything."""
    return value if value is None or isinstance(value, str | int | float) else json.dumps(value, sort_keys=True)


def shown(value: Value) -> str:
    """A value of a key in a few letters; of a digest, the first ones."""
    text = str(value)
    digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return text[:12] if digest else text
