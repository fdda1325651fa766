"""The section on scaling: runs of several ranks, compared with one rank.

Strong scaling: the same inputs on more ranks. Weak scaling: inputs that grow with the ranks. Speed-up is the ratio of
the challenge's rates, so it means the same in both, and efficiency is speed-up / ranks.
"""

import json
import statistics
from collections.abc import Callable, Sequence

from spdnn.common.validation import builtins
from spdnn.records.fields import or_none
from spdnn.records.published import Baseline
from spdnn.records.run_record import PER_REPEAT, Distribution, RankImbalance
from spdnn.report.common import run_rows, words
from spdnn.report.common.collection import Collection
from spdnn.report.common.run_rows import Run
from spdnn.report.scaling import predictions

STRONG, WEAK, OTHER = "strong", "weak", "other"
LEAST_DEVICES = 4  # numbers of devices that make a published scaling curve
IMBALANCES = RankImbalance.__struct_fields__
MOST_RANKS, MOST_EXCHANGES = 64, 20  # that one run's details list


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run of several ranks."""
    runs = collection.own
    several = [run for run in runs if run.ranks > 1]
    if not several:
        return None
    weak = _groups(WEAK, runs, _weak_key)
    strong = _groups(STRONG, runs, _strong_key)
    grouped = {id(run) for group in (*strong, *weak) for run in group["runs"]}
    alone = [run for run in several if id(run) not in grouped]
    other = [_group(OTHER, members, 0) for members in run_rows.grouped(alone, _strong_key).values()]
    return {
        "groups": [*strong, *weak, *other],
        "published": published(collection.baselines),
        "predicted": predictions.rows([*strong, *weak]),
    }


def _strong_key(run: Run) -> tuple:
    problem = run.problem
    return *_setting(run), problem.inputs_sha256, problem.input_count


def _weak_key(run: Run) -> tuple | None:
    """Inputs of one origin, as many for each rank; None where they cannot be divided evenly."""
    problem, ranks = run.problem, run.ranks
    origin = {key: value for key, value in problem.inputs.items() if key not in ("count", "sha256")}
    if problem.input_count % ranks:
        return None
    return *_setting(run), json.dumps(origin, sort_keys=True), problem.input_count // ranks


def _setting(run: Run) -> tuple:
    """All but inputs and ranks: a speed-up must not come from these."""
    record = run.record
    problem = record.problem
    names = tuple(sorted(record.reductions.requested))
    network = problem.network_identity, problem.layers
    return *network, record.engine.name, names, record.threads, record.span, words.machine(record.environment)


def _groups(kind: str, runs: Sequence[Run], key: Callable[[dict], tuple | None]) -> list[dict]:
    """The groups that compare at least two numbers of ranks."""
    members = [group for group in run_rows.grouped(runs, key).values() if len({run.ranks for run in group}) > 1]
    return [_group(kind, group, number) for number, group in enumerate(members, 1)]


def _group(kind: str, runs: Sequence[Run], number: int) -> dict:
    """One table and, unless its kind is OTHER, one figure; of several runs of one setting the latest is shown."""
    shown = run_rows.latest(runs, lambda run: (run.ranks, run.partition or ""))
    base = next((run for run in shown if run.ranks == 1), None)
    return run_rows.heading(runs, shown) | {
        "id": f"scaling-{kind}-{number}",
        "kind": kind,
        "runs": runs,
        "base": base,
        "inputs_per_rank": shown[0].input_count // shown[0].ranks,
        "rows": [_row(run, base) for run in shown],
    }


def _row(run: Run, base: Run | None) -> dict:
    """One run as tables and figures show it; a figure that it does not have is None."""
    record, seconds, ranks = run.record, run.inference_seconds, run.ranks
    ranked, (low, high) = or_none(record.distribution), run.ends
    speedup = None
    if base is not None:
        grown = record.problem.input_count / base.record.problem.input_count
        speedup = grown * base.inference_seconds / seconds
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
