"""The section on scaling: runs of several ranks, threads or GPUs, compared with one.

Strong scaling: the same inputs on more workers. Weak scaling: inputs that grow with them. Speed-up is the ratio of the
challenge's rates, so it means the same in both, and efficiency is speed-up / workers.
"""

import statistics
from collections import Counter
from collections.abc import Sequence

from spdnn.core.validation import builtins
from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.predictions import THREADS, Predicted, PredictedGroup, workers
from spdnn.report.common.run_rows import RunRow
from spdnn.runs.records.distribution import PER_REPEAT, Distribution, Imbalance
from spdnn.runs.records.published import Baseline

LEAST_DEVICES = 4  # numbers of devices that make a published scaling curve
IMBALANCES = Imbalance._fields
MOST_RANKS, MOST_EXCHANGES = 64, 20  # that one run's details list


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of several ranks, and where no other workers are compared."""
    groups, counts = collection.scaling, Counter()
    if not groups:
        return None
    return {
        "groups": [_group(group, counts) for group in groups],
        "over": list(dict.fromkeys(group.over for group in groups)),
        "published": published_systems(collection.baselines),
        "predicted": [_prediction_row(group, prediction) for group in groups for prediction in group.predicted],
    }


def _group(group: PredictedGroup, counts: Counter) -> dict:
    """One table and, unless its kind is OTHER, one figure; of several runs of one setting the latest is shown."""
    counts[group.kind] += 1
    first = group.shown[0]
    return {
        "id": f"scaling-{group.kind}-{counts[group.kind]}",
        "kind": group.kind,
        "over": group.over,
        "first": first,
        "runs": group.runs,
        "left_out": len(group.runs) - len(group.shown),
        "base": group.base,
        "inputs_each": first.problem.input_count // workers(first, group.over),
        "rows": [_row(run, group) for run in group.shown],
    }


def _prediction_row(group: PredictedGroup, predicted: Predicted) -> dict:
    """A row of the table of predictions; `measured` is None where nobody made such a run."""
    base, count = group.base, (predicted.run or group.base).problem.input_count
    threads = None if group.over == THREADS else words.plural(base.record.threads, "thread")
    setting = words.network(base.problem), f"{count:,} inputs", base.engine, threads, base.reductions
    return {
        "setting": ", ".join(filter(None, setting)),
        "predicted": predicted,
        "workers": words.plural(predicted.workers, group.over[:-1]),
        "efficiency": count / base.problem.input_count * base.inference_seconds / predicted.seconds / predicted.workers,
        "measured": predicted.run and predicted.run.inference_seconds,
    }


def _row(run: RunRow, group: PredictedGroup) -> dict:
    """One run as tables and figures show it; a figure that it does not have is None."""
    record, base, seconds, count = run.record, group.base, run.inference_seconds, workers(run, group.over)
    ranked, (low, high) = record.distribution, run.ends
    hosts = Counter(rank.host for rank in ranked.per_rank) if ranked else {"": 1}
    speedup = None
    if base is not None:
        speedup = run.problem.input_count / base.problem.input_count * base.inference_seconds / seconds
    return {
        "run": run,
        "workers": count,
        "partition": run.partition,
        "nodes": ranked.nodes if ranked else 1,
        "seconds": seconds,
        "low": low,
        "high": high,
        "speedup": speedup,
        "efficiency": None if speedup is None else speedup / count,
        "imbalance": ranked.imbalance._asdict() if ranked else dict.fromkeys(IMBALANCES),
        "waiting": _share(ranked, "waiting_seconds"),
        "communication": _share(ranked, "communication_seconds"),
        "rows_moved": sum(exchange.rows for exchange in ranked.exchanges) if ranked else None,
        "oversubscribed": max(hosts.values()) * record.threads > record.environment.cores,
        "details": _details(ranked) if ranked else None,
    }


def _share(ranked: Distribution | None, name: str) -> float | None:
    """The part of all ranks' inference seconds, all repeats together, that went into `name`."""
    if ranked is None:
        return None
    part, whole = (sum(sum(getattr(rank, key)) for rank in ranked.per_rank) for key in (name, "inference_seconds"))
    return part / whole


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


def published_systems(baselines: Sequence[Baseline]) -> list[dict]:
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
    single, points = curve.get(1), []
    for devices in numbers:
        row = curve.get(devices)
        rate = row and row.edges_per_second
        efficiency = rate / devices / single.edges_per_second if row and single else None
        points.append({"devices": devices, "rate": rate, "efficiency": efficiency})
    return {"neurons": neurons, "layers": layers, "points": points}
