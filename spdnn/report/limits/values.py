"""The section on limits: each run compared with the measured best of its own machine, machine by machine.

`spdnn.core.limits` says what bounds a run; here its ceilings are set next to the rates of the run.
Source: the roofline model (Williams et al., CACM 52(4), 2009), with edges in place of operations.
"""

from collections.abc import Sequence

from spdnn.core import limits
from spdnn.report.common import words
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.run_rows import RunRow, group_by
from spdnn.runs.records.notes import TaskgraphNotes


@once
def values(collection: Collection) -> dict | None:
    """What the section prints; None where no machine was measured.

    Returns:
        rows: of each run whose machine was measured, nearest to its limit first; panels: of each machine, the rows of
        its runs that can be drawn and the roofs over them; unmeasured: the cases of the other runs; devices,
        processors, several: whether any run is of a GPU, of a processor, of several ranks.
    """
    runs = collection.runs
    rows = sorted(filter(None, map(_row, runs)), key=lambda row: (-row["share"], row["run"].number))
    if not rows:
        return None
    return {
        "rows": rows,
        "panels": _panels(rows),
        "unmeasured": [run.case for run in runs if not run.record.machine],
        "devices": any(row["device"] for row in rows),
        "processors": not all(row["device"] for row in rows),
        "several": any(row["ranks"] > 1 for row in rows),
    }


def _row(run: RunRow) -> dict | None:
    """How far a run is from its machine's limit; None when its machine was not measured.

    Rates are a second, of all ranks together, each taken as a machine of its own.
    """
    record, least = run.record, run.record.limit
    if least is None:
        return None
    machine, ranks, result = record.machine, record.ranks, record.result
    edges, bytes_moved, bytes_loaded = result.edges_computed, result.bytes_moved, result.bytes_loaded
    return {
        "run": run,
        "ranks": ranks,
        "device": machine.on_device,
        "machine": _machine(run, machine),
        "loaded_edges": machine.load_bytes_per_second * ranks / limits.EDGE_BYTES,
        "second_edges": machine.l2_load_bytes_per_second * ranks / limits.EDGE_BYTES,
        "copies": machine.copy_bytes_per_second * ranks,
        "moved": bytes_moved,
        "intensity": edges / bytes_moved if bytes_moved else None,
        "edge_bytes": (edges * limits.EDGE_BYTES if bytes_loaded is None else bytes_loaded) / edges if edges else None,
        "own_rate": edges / least.seconds if least.seconds else None,
        "seconds": least.seconds,
        "ceiling": least.binds,
        "binds": words.binds(least, machine),
        "share": least.seconds / run.inference_seconds,
    }


def _machine(run: RunRow, machine: limits.Machine) -> str:
    """What was measured, in words: runs that share it have one set of roofs."""
    record = run.record
    if machine.on_device:
        each = run.notes(TaskgraphNotes).devices or 1
        workers = words.plural(each, "GPU") if each > 1 else ""
    else:
        workers = words.plural(record.threads, "thread")
    if record.ranks > 1:
        workers = f"{record.ranks:,} ranks" + (f" of {workers}" if workers else "")
    level = words.printable(machine.instruction_set)
    return ", ".join(filter(None, (words.machine(record.environment), level, workers)))


def _panels(rows: Sequence[dict]) -> list[dict]:
    """Of each machine, that of most runs first: its rows, nearest to their limit first, and the ends of each roof."""
    panels = []
    drawable = [row for row in rows if row["run"].computed_rate and row["own_rate"]]
    machines = group_by(drawable, lambda row: (row["device"], row["ranks"], row["machine"]))
    for key in sorted(machines, key=lambda key: (-len(machines[key]), key)):
        (device, _, name), members = key, machines[key]
        roofs = {roof: [row[roof] for row in members] for roof in ("loaded_edges", "second_edges", "copies")}
        ends = {roof: (min(rates), max(rates)) for roof, rates in roofs.items()}
        panels.append({"id": f"roofline-{len(panels) + 1}", "name": name, "device": device, "rows": members,
                       "roofs": ends})  # fmt: skip
    return panels
