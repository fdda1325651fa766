"""What the page says, computed from records, verdicts and published results: plain values for the template."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from spdnn.common.statistics import ratios
from spdnn.problem import challenge
from spdnn.records.published import SPANS, Baseline, best
from spdnn.report.breakdown import values as breakdown
from spdnn.report.common import collection, series, words
from spdnn.report.common.collection import Part
from spdnn.report.common.drawing import MOST_DRAWN
from spdnn.report.networks import values as networks
from spdnn.report.roofline import values as roofline
from spdnn.report.scaling import values as scaling
from spdnn.report.schedules import values as schedules
from spdnn.report.verdict import values as verdict

LISTS = ("pass_log", "layer_rows", "layer_edges", "timeline", "stages", "groups")
OURS = "cpu"  # the engine of a comparison that the others are set against


def page(parts: Sequence[Part], baselines: Sequence[Baseline], products: Sequence[dict] = ()) -> dict:
    """Everything the template prints of runs, except the figures.

    Args:
        parts: what each folder holds; a failed verdict takes the numbers of its case off the page.
        baselines: the published results.
        products: checked operation records.
    """
    collected = collection.collect(parts)
    shown = collected.records
    several = len({words.machine(record["environment"]) for record in shown}) > 1
    runs = [
        _run(record, number, placed=several or bool(record["environment"].get("gpu")))
        for number, record in enumerate(shown)
    ]
    own = [run for run in runs if "comparison" not in run["record"]]
    limited = roofline.section(runs)
    twelve = networks.twelve(own, baselines)
    return {
        "verdict": verdict.section(collected, runs, twelve, products),
        "twelve": twelve,
        "groups": networks.GROUPS,
        "published": networks.published(baselines) if own else [],
        "networks": _networks(own, baselines),
        "runs": runs,
        "own": own,
        "comparisons": _comparisons(runs),
        "scaling": scaling.section(own, baselines),
        "schedules": schedules.section(own, baselines),
        "ladders": series.ladders(own)[:MOST_DRAWN],
        "breakdown": breakdown.section(runs),
        "roofline": limited,
        "on_gpu": any(record["environment"].get("gpu") for record in shown),
        "definitions": words.definitions(
            {name for record in shown for name in record["reductions"]["requested"]},
            limited=bool(limited),
            several=any(record["ranks"] > 1 for record in shown),
            devices=bool(limited and limited["devices"]),
        ),
        "spans": {**SPANS, **words.RECORD_SPANS},
        "environments": _environments(runs),
        "sources": _sources(baselines) if runs else [],
    }


def _run(record: dict, number: int, placed: bool) -> dict:
    """One record as the tables print it; `placed`: with where and when it ran."""
    problem, samples, rate = record["problem"], record["samples"], record["edges_per_second"]
    where = f"{words.machine(record['environment'])}, {record['created'][:10]}" if placed else None
    seconds = {name: statistics.median(samples[f"{name}_seconds"]) for name in ("read", "prepare", "inference")}
    computed, nominal = record["result"]["edges_computed"], problem["input_count"] * problem["edges"]
    run = {
        "record": record,
        "number": number,
        "case": words.printable(record["case"]),
        "engine": words.printable(record["engine"]["name"]),
        "place": where,
        "official_size": networks.official_size(problem),
        "truth": words.truth(record["verdict"]),
        "threads": record["threads"],
        "ranks": record["ranks"],
        "partition": record["distribution"]["partition"] if record["ranks"] > 1 else None,
        "inputs": words.inputs(problem),
        "comparable": words.comparable(problem),
        "reductions": words.reductions(record["reductions"]["requested"]),
        "reduced": bool(record["reductions"]["requested"]),
        "span": record["span"],
        "includes": words.includes(record),
        "rate": rate,
        "percent": f"{100 * rate['confidence']:g}",
        "seconds": seconds,
        "solution": _solution(record),
        "repeats": len(samples["inference_seconds"]),
        "computed_rate": computed / seconds["inference"],
        "computed_share": computed / nominal if nominal else 1.0,
        "memory": words.size(record["peak_memory_bytes"]),
        "network_text": words.described(problem["network"]),
        "inputs_text": words.described(problem["inputs"]),
        "notes": words.described({"source": record["engine"]["name"], **_notes(record)}),
    }
    on = len(record["reductions"]["requested"])
    reductions = {0: "no reductions", 3: "all three reductions"}.get(on, run["reductions"])
    setting = f"{run['engine']}, {series.threads(run)}, {reductions}"
    return {**run, "told": f"{setting}, {where}" if where else setting}


def _solution(record: dict) -> dict | None:
    """A record's time to solution, with the rate that follows from it; None where it has none."""
    told, problem = record.get("time_to_solution"), record["problem"]
    if not told or not told["seconds"]:
        return None
    rate = challenge.edges_per_second(problem["input_count"], problem["edges"], told["seconds"])
    return {**told, "rate": rate, "cold": not told["cached"]}


def _notes(record: dict) -> dict:
    """What an engine told, less lists that figures show."""
    return {key: value for key, value in record["engine"]["notes"].items() if key not in LISTS}


def _networks(runs: Sequence[dict], baselines: Sequence[Baseline]) -> list[dict]:
    """The runs by network, each official one with the published figures to set beside them."""
    groups: dict[tuple, list[dict]] = {}
    for run in runs:
        problem = run["record"]["problem"]
        size = run["official_size"]
        groups.setdefault((size is None, size or problem["network_identity"]), []).append(run)
    networks = []
    for place, ((other, key), members) in enumerate(sorted(groups.items(), key=lambda item: item[0][0]), 1):
        problem = members[0]["record"]["problem"]
        networks.append(
            {
                "id": f"network-{place}",
                "official": not other,
                "neurons": problem["neurons"],
                "layers": problem["layers"],
                "runs": members,
                "spans": [] if other else _published(baselines, *key, {run["span"] for run in members}),
            }
        )
    return networks


def _comparisons(runs: Sequence[dict]) -> list[dict]:
    """The problems on which several engines were timed in turn, each engine with its ratio to ours; of one rank."""
    groups: dict[tuple, list[dict]] = {}
    for run in runs:
        record, problem = run["record"], run["record"]["problem"]
        if "comparison" in record and run["ranks"] == 1:
            key = record["comparison"], problem["network_identity"], problem["inputs_sha256"], problem["input_count"]
            groups.setdefault(key, []).append(run)
    comparisons = []
    for members in groups.values():
        own = [run for run in members if run["record"]["engine"]["name"] == OURS]
        ours = max(own, key=lambda run: len(run["record"]["reductions"]["requested"]), default=None)
        if ours is None or len(members) < 2:
            continue
        seconds = ours["record"]["samples"]["inference_seconds"]
        paired = [run for run in members if run["repeats"] == ours["repeats"]]
        rows = [
            {**run, "is_ours": run is ours, "ratio": ratios(seconds, run["record"]["samples"]["inference_seconds"])}
            for run in paired
        ]
        rows.sort(key=lambda row: row["ratio"].median)
        problem = ours["record"]["problem"]
        label = f"{problem['neurons']:,} × {problem['layers']:,}, {ours['inputs']} inputs"
        comparisons.append({"problem": problem, "inputs": ours["inputs"], "label": label, "ours": ours, "rows": rows})
    return comparisons


def _published(baselines: Sequence[Baseline], neurons: int, layers: int, ours: set[str]) -> list[dict]:
    """The best published figures by span, the spans that our runs have first."""
    spans: dict[str, list[dict]] = {}
    for group, row in best(baselines, neurons, layers).items():
        spans.setdefault(group.span, []).append({"group": group, "row": row})
    ordered = sorted(spans, key=lambda span: span not in ours)
    return [{"span": span, "ours": span in ours, "figures": spans[span]} for span in ordered]


def _environments(runs: Sequence[dict]) -> list[dict]:
    """Each machine and software once, with the cases that ran there."""
    found: dict[str, dict] = {}
    for run in runs:
        place = run["record"]["environment"]
        versions = ", ".join(f"{name} {version}" for name, version in sorted(place["versions"].items()))
        row = {
            "cpu": words.printable(place["cpu"]),
            "cores": place["cores"],
            "memory": words.size(place["memory_bytes"]),
            "gpu": words.printable(place.get("gpu") or "none"),
            "system": words.printable(place["system"]),
            "python": words.printable(place["python"]),
            "versions": words.printable(versions, 400),
        }
        found.setdefault(str(row), {**row, "cases": []})["cases"].append(run["case"])
    return list(found.values())


def _sources(baselines: Sequence[Baseline]) -> list[dict]:
    """Each publication once, with its systems and the number of its figures."""
    found: dict[str, dict] = {}
    for row in baselines:
        citation = row.source.split(";")[0]
        source = found.setdefault(citation, {"citation": citation, "systems": set(), "figures": 0})
        source["systems"].add(row.system)
        source["figures"] += 1
    return [{**found[key], "systems": sorted(found[key]["systems"])} for key in sorted(found)]
