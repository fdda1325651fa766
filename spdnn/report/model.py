"""What the page says, computed from records, verdicts and published results: plain values for the template."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence

import numpy as np

from spdnn import challenge, limits
from spdnn.baselines import SPANS, Baseline, best, best_of_each_system
from spdnn.intervals import ratios
from spdnn.report import scaling, schedules, words

LISTS = ("pass_log", "timeline", "stages", "groups")
OURS = "cpu"  # the engine of a comparison that the others are set against


def page(records: Sequence[dict], verdicts: Sequence[tuple[str, dict]], baselines: Sequence[Baseline]) -> dict:
    """Everything the template prints, except the figures.

    Args:
        records: checked run records; one that is given twice counts once.
        verdicts: (case, checked verdict), of cases that may have no record; a failed one takes the number of
            its case off the page.
        baselines: the published results.
    """
    failed = {case for case, verdict in verdicts if not verdict["passed"]}
    records, verdicts = sorted(_distinct(records), key=_order), _distinct(verdicts)
    shown = [record for record in records if record["case"] not in failed]
    cases = _cases(shown, verdicts)
    several = len({words.place(record["environment"]) for record in shown}) > 1
    runs = [_run(record, placed=several or bool(record["environment"].get("gpu"))) for record in shown]
    own = [run for run in runs if "comparison" not in run["record"]]
    limited = [row for row in map(_limit, runs) if row]
    return {
        "headline": _headline(cases),
        "cases": cases,
        "withheld": sorted({record["case"] for record in records} & failed),
        "networks": _networks(own, baselines),
        "runs": runs,
        "own": own,
        "comparisons": _comparisons(runs),
        "scaling": scaling.section(own, baselines),
        "schedules": schedules.section(own, baselines),
        "limits": limited,
        "unmeasured": [run["case"] for run in runs if not run["record"].get("machine")],
        "definitions": words.definitions(
            {name for record in shown for name in record["reductions"]["requested"]},
            limited=bool(limited),
            several=any(record["ranks"] > 1 for record in shown),
            devices=any(row["device"] for row in limited),
        ),
        "spans": {**SPANS, **words.RECORD_SPANS},
        "environments": _environments(runs),
        "sources": _sources(baselines) if runs else [],
    }


def _distinct(contents: Sequence) -> list:
    """The contents without repeats of what is the same to the last value, in their order."""
    return list({_text(content): content for content in contents}.values())


def _text(content: object) -> str:
    return json.dumps(content, sort_keys=True)


def _order(record: dict) -> tuple:
    problem = record["problem"]
    return problem["neurons"], problem["layers"], record["case"], record["created"], _text(record)


def _cases(records: Sequence[dict], verdicts: Sequence[tuple[str, dict]]) -> list[dict]:
    """A row for each verdict: failures first, then in the order of the records."""
    known = {record["case"] for record in records}
    timed = [(record["case"], record["verdict"], True) for record in records]
    untimed = sorted(((case, verdict, False) for case, verdict in verdicts if case not in known), key=_by_case)
    rows = [_case(*row) for row in (*timed, *untimed)]
    return sorted(rows, key=lambda row: row["passed"])


def _by_case(row: tuple) -> tuple:
    case, verdict, _ = row
    return case, verdict["passed"], str(verdict)


def _case(case: str, verdict: dict, timed: bool) -> dict:
    return {
        "case": words.printable(case),
        "passed": verdict["passed"],
        "timed": timed,
        "truth": words.truth(verdict),
        "found": verdict["categories"],
        "expected": verdict["expected"],
        "borderline": verdict["borderline"]["count"],
        "values": words.printable(verdict["values"]["rule"]),
        "reasons": [words.printable(reason, 400) for reason in verdict["reasons"]],
    }


def _headline(cases: Sequence[dict]) -> str:
    failures = [row["case"] for row in cases if not row["passed"]]
    if not cases:
        return "Nothing was run: there are no records and no verdicts."
    count = words.plural(len(cases), "case")
    if not failures:
        return f"{count} run, and {'it' if len(cases) == 1 else 'all'} passed verification."
    return f"{count} run, and {len(failures)} failed verification: {', '.join(failures)}."


def _run(record: dict, placed: bool) -> dict:
    """One record as the tables print it; `placed`: with where and when it ran."""
    problem, samples, rate = record["problem"], record["samples"], record["edges_per_second"]
    seconds = {name: statistics.median(samples[f"{name}_seconds"]) for name in ("read", "prepare", "inference")}
    computed, nominal = record["result"]["edges_computed"], problem["input_count"] * problem["edges"]
    return {
        "record": record,
        "case": words.printable(record["case"]),
        "engine": words.printable(record["engine"]["name"]),
        "place": f"{words.place(record['environment'])}, {record['created'][:10]}" if placed else None,
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
        "repeats": len(samples["inference_seconds"]),
        "computed_rate": computed / seconds["inference"],
        "computed_share": computed / nominal if nominal else 1.0,
        "memory": words.size(record["peak_memory_bytes"]),
        "network_text": words.described(problem["network"]),
        "inputs_text": words.described(problem["inputs"]),
        "notes": words.described({"source": record["engine"]["name"], **_notes(record)}),
    }


def _notes(record: dict) -> dict:
    """What an engine told, less lists that figures show."""
    return {key: value for key, value in record["engine"]["notes"].items() if key not in LISTS}


def _limit(run: dict) -> dict | None:
    """How far a run is from its machine's limit, as the table prints it; None when its machine was not measured."""
    record, least = run["record"], limits.of_record(run["record"])
    if least is None:
        return None
    machine = limits.Machine(**record["machine"])
    return {
        "case": run["case"],
        "device": machine.on_device,
        "computed_rate": run["computed_rate"],
        "loaded_edges": machine.load_bytes_per_second * record["ranks"] / limits.EDGE_BYTES,
        "copies": machine.copy_bytes_per_second * record["ranks"],
        "moved": record["result"].get("bytes_moved"),
        "seconds": least.seconds,
        "binds": words.binds(least, machine),
        "share": least.seconds / run["seconds"]["inference"],
        "inference": run["seconds"]["inference"],
    }


def _official_size(problem: dict) -> tuple[int, int] | None:
    """(neurons, layers) when the network is one of the twelve, whatever its inputs."""
    size = problem["neurons"], problem["layers"]
    official = challenge.Problem(*size)
    if official not in challenge.PROBLEMS or problem["edges"] != official.edges:
        return None
    formula = {"seed": challenge.SEED, "bias": float(np.float32(challenge.BIAS[size[0]])), "ymax": challenge.YMAX}
    network = problem["network"]
    by_formula = network.get("source") == "radixnet" and all(network.get(key) == formula[key] for key in formula)
    return size if problem["official"] or by_formula else None


def _networks(runs: Sequence[dict], baselines: Sequence[Baseline]) -> list[dict]:
    """The runs by network, each official one with the published figures to set beside them."""
    groups: dict[tuple, list[dict]] = {}
    for run in runs:
        problem = run["record"]["problem"]
        size = _official_size(problem)
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
                "edges": problem["edges"],
                "text": members[0]["network_text"],
                "runs": members,
                "comparable": all(run["comparable"] for run in members),
                "spans": [] if other else _published(baselines, *key, {run["span"] for run in members}),
                "systems": [] if other else best_of_each_system(baselines, *key),
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
        rows = [{**run, "ratio": ratios(seconds, run["record"]["samples"]["inference_seconds"])} for run in paired]
        rows.sort(key=lambda row: row["ratio"].median)
        comparisons.append({"problem": ours["record"]["problem"], "inputs": ours["inputs"], "rows": rows})
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
