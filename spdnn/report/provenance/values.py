"""The section on provenance: what each number includes, where it was measured, and how to run each case again."""

from collections.abc import Sequence

from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.limits import section as machine_limits
from spdnn.report.provenance.records import link, records_link, records_table
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.published import SPANS, Baseline
from spdnn.runs.records.run_record import RunRecord, busy_part


def values(collection: Collection) -> dict | None:
    """What the section prints; None where nothing was run, and nothing was to be."""
    if collection.empty:
        return None
    runs, operations = collection.runs, collection.operations
    table = link("records.csv", records_table(runs, operations), "text/csv")
    whole, thinned = records_link([*collection.records, *operations], len(table["href"]))
    return {
        "runs": runs,
        "records": {"count": len(runs) + len(operations), "csv": table, "json": whole, "thinned": thinned},
        "definitions": _definitions(collection),
        "spans": {**SPANS, **words.RECORD_SPANS},
        "environments": _environments([*collection.records, *operations]),
        "sources": _sources(collection.baselines) if any(run.official_size for run in runs) else [],
    }


def _definitions(collection: Collection) -> list[tuple[str, str]]:
    """The terms that the page uses, and their meanings."""
    limits = machine_limits.values(collection)
    runs = [run for part in (collection, *collection.others.values()) for run in part.runs]
    busy = any(run.busy for run in runs) or any(map(busy_part, collection.operations))
    marks = {"Busy machine": busy, "Older code": any(run.older for run in runs)}
    terms = words.definitions(
        {name for record in collection.records for name in record.reductions.requested},
        limited=limits is not None,
        several=any(record.ranks > 1 for record in collection.records),
        scaled=bool(collection.scaling),
        devices=bool(limits and limits["devices"]),
        official=any(run.official_size for run in collection.runs),
    )
    return [(term, meaning) for term, meaning in terms if marks.get(term, bool(collection.runs))]


def _environments(records: Sequence[RunRecord | OperationRecord]) -> list[dict]:
    """Each machine and software once, with the cases that ran there."""
    environments: dict[str, dict] = {}
    for record in records:
        machine = record.environment
        versions = ", ".join(f"{name} {version}" for name, version in sorted(machine.versions.items()))
        row = {
            "cpu": words.printable(machine.cpu),
            "cores": machine.cores,
            "memory": words.size(machine.memory_bytes),
            "gpu": words.printable(machine.gpu or "none"),
            "system": words.printable(machine.system),
            "versions": words.printable(versions, 400),
        }
        environments.setdefault(str(row), {**row, "cases": []})["cases"].append(words.printable(record.case))
    return list(environments.values())


def _sources(baselines: Sequence[Baseline]) -> list[dict]:
    """Each publication once, with its systems and the number of its figures."""
    systems: dict[str, list[str]] = {}
    for row in baselines:
        systems.setdefault(row.source.split(";")[0], []).append(row.system)
    return [
        {"citation": citation, "systems": sorted(set(systems[citation])), "figures": len(systems[citation])}
        for citation in sorted(systems)
    ]
