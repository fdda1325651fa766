"""The columns of the table of records (CSV): fields that are marked with `column`, and what follows from fields."""

from collections.abc import Iterator

import msgspec.inspect

from spdnn.runs.records.notes import NOTES, Notes
from spdnn.runs.records.result import EngineRecord
from spdnn.runs.records.run_record import RunRecord

DERIVED = {  # columns of run records that are properties, and their paths
    "time_to_solution_seconds": ("time_to_solution", "seconds"),
    "layers_read_seconds": ("read_seconds_of_layers",),
    "layers_read_edges_per_second": ("read_rate",),
    "edges_per_second": ("edges_per_second", "median"),
    "edges_per_second_low": ("edges_per_second", "low"),
    "edges_per_second_high": ("edges_per_second", "high"),
}


def columns(kind: type, path: tuple[str, ...] = ()) -> Iterator[tuple[str, tuple[str, ...]]]:
    """(name, path of the value) of each column that a record of the class has in the table, in the order of the class.

    Those are the fields marked with `column`, of the record and of the notes of every engine, and DERIVED.
    """
    for field in msgspec.inspect.type_info(kind).fields:
        marked, types = value_types(field.type)
        if marked is not None:
            yield marked or field.name, (*path, field.name)
        for kind_of_field in types:
            if isinstance(kind_of_field, msgspec.inspect.StructType):
                yield from columns(kind_of_field.cls, (*path, field.name))
    if kind is RunRecord:
        yield from DERIVED.items()
    if kind is EngineRecord:
        yield from dict.fromkeys(pair for note_type in note_types() for pair in columns(note_type, (*path, "notes")))


def value_types(kind: msgspec.inspect.Type) -> tuple[str | None, list[msgspec.inspect.Type]]:
    """(the name of the column that a field is, "" for its own, None for none; the types that it may be of)."""
    extra = getattr(kind, "extra", None) or {}
    kind = kind.type if isinstance(kind, msgspec.inspect.Metadata) else kind
    types = list(kind.types) if isinstance(kind, msgspec.inspect.UnionType) else [kind]
    return (extra["column"] or "") if "column" in extra else None, types


def note_types() -> list[type]:
    return list(dict.fromkeys([Notes, *NOTES.values()]))
