"""Run records as dictionaries, which sections read, each with the object that it is: the one place between the two."""

from __future__ import annotations

import msgspec

from spdnn.common.validation import builtins
from spdnn.records.run_record import RunRecord


class Plain(dict):
    """A run record as the dictionary that a file holds, with the object that it is as `typed`."""

    def __init__(self, record: RunRecord):
        super().__init__(builtins(record))
        self.typed = record


def typed(record: dict) -> RunRecord:
    """The object that a run record in a dictionary is."""
    return record.typed if isinstance(record, Plain) else msgspec.convert(record, RunRecord)
