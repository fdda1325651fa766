"""The section on scaling: runs of several ranks, compared with one rank.

Strong scaling: the same inputs on more ranks. Weak scaling: inputs that grow with the ranks. Speed-up is the ratio of
the challenge's rates, so it means the same in both, and efficiency is speed-up / ranks.
"""

import statistics
from collections import Counter
from collections.abc import Sequence

from spdnn.common.validation import builtins
from spdnn.records.fields import or_none
from spdnn.records.published import Baseline
from spdnn.records.run_record import PER_REPEAT, Distribution, RankImbalance
from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.predictions import Group, Predicted
from spdnn.report.common.run_rows import Run

LEAST_DEVICES = 4  # numbers of devices that make a published scaling curve
IMBALANCES = RankImbalance.__struct_fields__
MOST_RANKS, MOST_EXCHANGES = 64, 20  # that one run's details list


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of several ranks."""
    groups, counts = collection.scaling, Counter()
    if not groups:
        return None
    return {
        "groups": [_group(group, counts) for group in groups],
        "published": published(collection.baselines),
        "predicted": [_predicted(group.base, one) for group in groups for one in group.predicted],
    }


def _group(group: Group, counts: Counter) -> dict:
    """One table and, unless its kind is OTHER, one figure; of several runs of one setting the latest is shown."""
    counts[group.kind] += 1
    first = group.shown[0]
    return {
        "id": f"scaling-{group.kind}-{counts[group.kind]}",
        "kind": group.kind,
        "first": first,
        "runs": group.runs,
        "left_out": len(group.runs) - len(group.shown),
        "base": group.base,
        "inputs_per_rank": first.problem.input_count // first.record.ranks,
        "rows": [_row(run, group.base) for run in group.shown],
    }


def _predicted(base: Run, one: Predicted) -> dict:
    """A row of the table of predictions; `measured` is None where nobody made such a run."""
    count = (one.run or base).problem.input_count
    size = f"{words.network(base.problem)}, {count:,} inputs"
    grown = count / base.problem.input_count
    return {
        "setting": f"{size}, {base.engine}, {words.plural(base.record.threads, 'thread')}, {base.reductions}",
        "predicted": one,
        "efficiency": grown * base.inference_seconds / one.seconds / one.ranks,
        "measured": one.run and one.run.inference_seconds,
    }


def _row(run: Run, base: Run | None) -> dict:
    """One run as tables and figures show it; a figure that it does not have is None."""
    record, seconds, ranks = run.record, run.inference_seconds, run.record.ranks
    ranked, (low, high) = or_none(record.distribution), run.ends
    speedup = None
    if base is not None:
        speedup = run.problem.input_count / base.problem.input_count * base.inference_seconds / seconds
    return {
        "run": run,
        "ranks": ranks,
        "partition": run.partition,
        "nodes": ranked.nodes if ranked else 1,
        "seconds": seconds,
        "low": low,
        "high": high,
        "speedup": speedup,
        "efficiency": None if speedup is None else speedup / ranks,
        "imbalance": {name: ranked and getattr(ranked.imbalance, name) for name in IMBALANCES},
        "waiting": _share(ranked, "waiting_seconds"),
        "communication": _share(ranked, "communication_seconds"),
        "rows_moved": sum(one.rows for one in ranked.exchanges) if ranked else None,
        "oversubscribed": _on_one_node(ranked) * record.threads > record.environment.cores,
        "details": _details(ranked) if ranked else None,
    }


def _share(ranked: Distribution | None, name: str) -> float | None:
    """The part of all ranks' inference seconds, all repeats together, that went into `name`."""
    if ranked is None:
        return None
    part, whole = (sum(sum(getattr(rank, key)) for rank in ranked.per_rank) for key in (name, "inference_seconds"))
    return part / whole


def _on_one_node(ranked: Distribution | None) -> int:
    """Ranks on the node that has most."""
    hosts = [rank.host for rank in ranked.per_rank] if ranked else [""]
    return max(map(hosts.count, set(hosts)))


def _details(ranked: Distribution) -> dict:
    """The numbers of each rank, medians over the repeats; of very many ranks, those that computed longest."""
    ranks = []
    for number, rank in enumerate(ranked.per_rank):
        medians = {name: statistics.median(getattr(rank, name)) for name in PER_REPEAT}
        own = {"rank": number, "host": words.printable(rank.host, 60), "last": rank.survivors[-1]}
        ranks.append({**builtins(rank), **medians, **own, "computing": rank.computing_seconds})
    longest = sorted(ranks, key=lambda rank: (-rank["computing"], rank["rank"]))[:MOST_RANKS]
    return {
        "distribution": ranked,
        "exchanges": ranked.exchanges[:MOST_EXCHANGES],
        "more_exchanges": len(ranked.exchanges[MOST_EXCHANGES:]),
        "ranks": sorted(longest, key=lambda rank: rank["rank"]),
        "more_ranks": len(ranks[MOST_RANKS:]),
    }


def published(baselines: Sequence[Baseline]) -> list[dict]:
    """Each system with a published curve over at least LEAST_DEVICES numbers of devices, and its curves by network.

    A curve's efficiency is against the same hardware's one device; a system most of whose curves lack that figure is
    left to the table of published results.
    """
    groups: dict[tuple, dict[tuple, dict[int, Baseline]]] = {}
    for row in baselines:
        if row.devices.isdecimal() and row.edges_per_second and row.neurons and not row.lossy:
            hardware = row.hardware.split(" (")[0]
            curves = groups.setdefault((row.system, hardware, row.span, row.source.split(";")[0]), {})
            curves.setdefault((row.neurons, row.layers), {})[int(row.devices)] = row
    systems = []
    widest = sorted(groups.items(), key=lambda item: (-max(max(curve) for curve in item[1].values()), item[0]))
    for key, curves in widest:
        long = {size: curve for size, curve in curves.items() if len(curve) >= LEAST_DEVICES}
        if long and 2 * sum(1 in curve for curve in long.values()) > len(long):  # most have the base of an efficiency
            numbers = sorted({devices for curve in long.values() for devices in curve})
            about = dict(zip(("system", "hardware", "span", "source"), key, strict=True)) | {"devices": numbers}
            rows = [_published_row(*size, long[size], numbers) for size in sorted(long)]
            systems.append({**about, "id": f"published-scaling-{len(systems) + 1}", "curves": rows})
    return systems


def _published_row(neurons: int, layers: int, curve: dict[int, Baseline], numbers: Sequence[int]) -> dict:
    one, points = curve.get(1), []
    for devices in numbers:
        row = curve.get(devices)
        rate = row and row.edges_per_second
        efficiency = rate / devices / one.edges_per_second if row and one else None
        points.append({"devices": devices, "rate": rate, "efficiency": efficiency})
    return {"neurons": neurons, "layers": layers, "points": points}
