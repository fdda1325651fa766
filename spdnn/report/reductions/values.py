"""The section on the exact reductions: the edges that each leaves out on each network, from run records alone.

Edges are counted as the challenge does (inputs x edges); then without dead inputs, then with identical inputs sharing
a row, then with identical neurons computed once. Rows are from the run with the fewest rows, edges of a layer from a
run that computed identical neurons once. Where no engine noted its rows, steps are edges really computed.
"""

from collections.abc import Sequence

from spdnn.core import challenge
from spdnn.engines.reductions.registry import REDUCTIONS
from spdnn.report.common import words
from spdnn.report.common.collection import Collection
from spdnn.report.common.run_rows import RunRow, by_formula, group_by
from spdnn.report.reductions import facts

COUNTED, COMPUTED = "counted", "computed"


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run that had reductions on."""
    whole = [run for run in collection.own if not run.record.span.startswith("one layer")]
    if not any(run.reduced for run in whole):
        return None
    # RadiX-Nets with the official inputs come first, for only these can be compared with published systems.
    whole.sort(key=lambda run: (not facts.is_radixnet(run.problem), not run.comparable))
    groups = group_by(whole, lambda run: run.problem_key).values()
    # Ratios of times are taken on one rank, where no communication enters.
    single = [run for run in whole if run.record.ranks == 1]
    networks = [_network(members) for members in groups if any(run.reduced for run in members)]
    times = [rows for group in group_by(single, _setting).values() if (rows := _times(group))]
    # The best example has official inputs, then all steps, then both curves.
    example = min(
        (network for network in networks if network["radixnet"]),
        key=lambda row: (
            not row["comparable"], not row["whole"], row["rows"] is None or not row["searched"], row["problem"].neurons
        ),
        default=None,
    )  # fmt: skip
    return {
        "steps": list(REDUCTIONS.values()),
        "networks": networks,
        "others": [network for network in networks if not network["radixnet"]],
        "example": example,
        "curves": _curves(networks),
        "times": times,
    }


def prefixes() -> list[frozenset[str]]:
    """No reductions, the first one, the first two, ... all, in the order in which they are counted."""
    return [frozenset(list(REDUCTIONS)[:size]) for size in range(len(REDUCTIONS) + 1)]


def _setting(run: RunRow) -> tuple:
    """All but the reductions: what a ratio of times may not come from."""
    record = run.record
    return *run.problem_key, run.engine, run.cut, record.threads, record.span, words.machine(record.environment)


def _network(runs: Sequence[RunRow]) -> dict:
    """The edges of one network that are left after each reduction, and the runs that the numbers are from."""
    source = facts.layer_edges(run.record for run in runs)
    rows_of, problem = _rows_run(runs, source), runs[0].problem
    # Neurons: the latest run that counted them, one with their edges by layer where there is one.
    candidates = [run for run in runs if facts.neurons(run.record)]
    merged_of = max(candidates, key=lambda run: (facts.layer_counts(run.record) is not None, *run.age), default=None)
    # Dead inputs: the run that rows are from, else the latest one, of one rank where there is one.
    candidates = [run for run in runs if facts.alive(run.record)]
    dead_of = rows_of or max(candidates, key=lambda run: (run.record.ranks == 1, *run.age), default=None)
    # What was really computed, where most reductions were on.
    most = min((run for run in runs if run.reduced), key=_computes)
    nominal, computed = problem.work, most.record.result.edges_computed
    steps = _steps(nominal, _count_edges(source, rows_of, merged_of, dead_of), runs)
    return {
        "runs": runs,
        "radixnet": facts.is_radixnet(problem),
        "problem": problem,
        "inputs": runs[0].inputs,
        "comparable": runs[0].comparable,
        "text": runs[0].network_text,
        "edges": nominal,
        "steps": steps,
        "whole": all(step["how"] == COUNTED for step in steps),
        "product": nominal / steps[-1]["edges"] if steps[-1]["edges"] else None,
        "computed": {"edges": computed, "factor": nominal / computed if computed else None, "case": most.case},
        "alive": dead_of and facts.alive(dead_of.record),
        "survivors": dead_of and dead_of.record.result.survivors,
        "rows": rows_of and facts.layer_counts(rows_of.record).rows,
        "searched": bool(rows_of) and facts.has_searched(rows_of.record),
        "merged": merged_of and facts.neurons(merged_of.record),
        "may_leave": dead_of and dead_of.record.reductions.number("dead", "rows_may_leave_before_layer"),
        "cases": sorted({run.case for run in (rows_of, merged_of, dead_of) if run}),
        "notes": _notes(runs, source, rows_of, merged_of),
    }


def _computes(run: RunRow) -> tuple:
    """A sorting key: the reductions that are on, most first, then the edges that the run really computed."""
    return -len(run.record.reductions.on), run.record.result.edges_computed, run.age


def _rows_run(runs: Sequence[RunRow], source: list[int] | None) -> RunRow | None:
    """Of the runs with counts of rows, dead and identical inputs left out, the one that had fewest rows."""
    complete = [
        (facts.edges_of(counts.rows, source or [1] * len(counts.rows)), run.age, index)
        for index, run in enumerate(runs)
        if (counts := facts.layer_counts(run.record)) and {"dead", "inputs"} <= run.record.reductions.on
        and facts.alive(run.record)
    ]  # fmt: skip
    return runs[min(complete)[2]] if complete else None


def _count_edges(
    source: list[int] | None, rows_of: RunRow | None, merged_of: RunRow | None, dead_of: RunRow | None
) -> dict:
    """By step, the edges that are left and the case that they are from, where rows and edges of layers are recorded."""
    # Counts multiply: rows left in a layer times edges left of the layer.
    counts = {}
    if dead_of and source:
        counts["dead"] = facts.edges_of(facts.alive(dead_of.record), source), dead_of.case
    rows, merged = (run and facts.layer_counts(run.record) for run in (rows_of, merged_of))
    if rows and source:
        counts["inputs"] = facts.edges_of(rows.rows, source), rows_of.case
    if rows and merged:
        counts["neurons"] = facts.edges_of(rows.rows, merged.edges), merged_of.case
    return counts


def _steps(nominal: int, counts: dict, runs: Sequence[RunRow]) -> list[dict]:
    """Each step with the edges left after it and how many times fewer that is; None where no record has them.

    Without counts of all steps, runs with that many reductions say what they really computed.
    """
    steps, before = [], nominal
    for name, on in zip(REDUCTIONS, prefixes()[1:], strict=True):
        edges, case = counts.get(name, (None, None))
        how = COUNTED if edges is not None else None
        # Counts are exact; edges computed include padding of tiles, and stand in where nothing was counted.
        same = [run for run in runs if run.record.reductions.on == on]
        if same and (edges is None or (name == "dead" and "inputs" not in counts)):
            run = min(same, key=_computes)
            edges, case, how = run.record.result.edges_computed, run.case, COMPUTED
        # Each factor is relative to the step before, so that their product is the whole reduction.
        factor = before / edges if before and edges else None
        steps.append({"name": name, "edges": edges, "factor": factor, "how": how, "case": case})
        before = edges
    return steps


def _notes(
    runs: Sequence[RunRow], source: list[int] | None, rows_of: RunRow | None, merged_of: RunRow | None
) -> list[dict]:
    """The numbers that no record has, and the run that would record each."""
    notes, merged = [], merged_of and facts.neurons(merged_of.record)
    fewer = bool(merged) and merged["edges_left"] < merged["edges"]
    # Each number that no record has is named with the command that measures it.
    if not rows_of or not source:
        notes.append({"kind": "rows", **_command(runs[0], "dead,inputs")})
    elif not facts.has_searched(rows_of.record):
        notes.append({"kind": "merged" if fewer else "never", **_command(runs[0], "dead,inputs")})
    if not merged_of or (rows_of and not facts.layer_counts(merged_of.record)):
        notes.append({"kind": "neurons", **_command(runs[0], "all")})
    return notes


def _command(run: RunRow, reductions: str) -> dict:
    """The command that runs the same network and inputs with other reductions; None where only its files have them."""
    problem = run.problem
    network, inputs, count = problem.network, problem.inputs.get("source"), problem.input_count
    size = problem.neurons, problem.layers
    note = {"case": run.case, "reductions": reductions, "command": None}
    if inputs not in ("mnist", "digits"):
        return note
    if problem.official or (network.get("layers") == size[1] and by_formula(problem)):
        part = "" if count == challenge.INPUTS else f" --count {count}"
        what = f"spdnn challenge --neurons {size[0]} --layers {size[1]} --inputs {inputs}{part}"
        return note | {"command": f"{what} --reductions {reductions} --record run.json"}
    if network.get("source") == "unstructured" and network.get("seed") == 0:
        what = f"source=unstructured neurons={size[0]} layers={size[1]} inputs={inputs} count={count}"
        return note | {"command": f"snakemake --cores 2 --config {what} reductions={reductions}"}
    return note


def _curves(networks: Sequence[dict]) -> list[dict]:
    """Of each width and its inputs, the network whose run searched for identical inputs, the deepest of several."""
    deepest: dict[tuple, dict] = {}
    for entry in sorted(
        networks, key=lambda network: (network["searched"], network["rows"] is not None, network["problem"].layers)
    ):
        problem = entry["problem"]
        other = None if entry["radixnet"] else problem.network_identity
        if entry["alive"]:
            deepest[problem.neurons, problem.inputs_sha256, problem.input_count, other] = entry
    return [network for network in networks if any(network is member for member in deepest.values())]


def _times(runs: Sequence[RunRow]) -> dict | None:
    """One engine on one network with more and more reductions, the latest run of each; None unless there are two."""
    latest = {run.record.reductions.on: run for run in sorted(runs, key=lambda run: run.age)}
    shown = [latest[names] for names in prefixes() if names in latest]
    if len(shown) < 2:
        return None
    rows = [_time(run, before) for run, before in zip(shown, [None, *shown[:-1]], strict=True)]
    return {"run": shown[0], "rows": rows}


def _time(run: RunRow, before: RunRow | None) -> dict:
    """One run, compared with the one that had a reduction fewer."""
    low, high = run.ends
    edges, seconds = run.record.result.edges_computed, run.inference_seconds
    faster = before.inference_seconds / seconds if before else None
    fewer = before.record.result.edges_computed / edges if before and edges else None
    return {"run": run, "low": low, "high": high, "edges": edges, "faster": faster, "fewer": fewer}


def title_of(network: dict) -> str:
    """A network and its inputs in a few words."""
    return f"{words.network(network['problem'])}, {network['inputs']} inputs"
