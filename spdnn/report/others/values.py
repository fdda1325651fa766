"""Records that were named besides those of the page: a group for each name, and in no other number of the page."""

from dataclasses import replace

from spdnn.report.common import words
from spdnn.report.common.collection import Collection


def values(collection: Collection) -> dict | None:
    """What the section prints; None where no other records were named.

    Returns:
        groups: of each its `name`, its `runs` (whose records are not in the page, so that they have no
        number), its `machines`, how many `operations` it has, and the cases that `failed`.
    """
    groups = [
        {
            "name": words.printable(name),
            "runs": [replace(run, number=None) for run in other.runs],
            "machines": sorted({words.machine(record.environment) for record in [*other.records, *other.operations]}),
            "operations": len(other.operations),
            "failed": [words.printable(case) for case, verdict in other.judged if not verdict.passed],
        }
        for name, other in collection.others.items()
    ]
    return {"groups": groups} if groups else None
