"""Rows of run records, as tables and figures print them, and the keys by which several runs are grouped."""

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

import numpy as np

from spdnn.common.validation import builtins
from spdnn.problem import challenge
from spdnn.records.run_record import Problem, RunRecord, busy_part
from spdnn.reductions.registry import REDUCTIONS
from spdnn.report.common import words
from spdnn.taskgraph.calibration import decomposition_of

Entry, Key = TypeVar("Entry"), TypeVar("Key", bound=Hashable)
LIKE_FOR_LIKE = ["dead"]  # what the fastest exact published systems leave out as well
LISTS = ("pass_log", "layer_rows", "layer_edges", "timeline", "stages", "groups")  # notes that figures show


def row(record: RunRecord, number: int, placed: bool) -> dict:
    """One record as the tables print it.

    Args:
        number: of the record on the page.
        placed: with where and when it ran.
    """
    problem, samples, rate = record.problem, record.samples, record.edges_per_second
    where = f"{words.machine(record.environment)}, {record.created[:10]}" if placed else None
    clocks = {"read": samples.read_seconds, "prepare": samples.prepare_seconds, "inference": record.seconds}
    seconds = {name: statistics.median(values) for name, values in clocks.items()}
    computed, nominal = record.result.edges_computed, problem.work
    notes = {key: value for key, value in record.engine.noted.items() if key not in LISTS}
    names = record.reductions.requested
    run = {
        "record": record,
        "number": number,
        "case": words.printable(record.case),
        "engine": words.printable(record.engine.name),
        "machine": where,
        "official_size": official_size(problem),
        "neurons": problem.neurons,
        "layers": problem.layers,
        "input_count": problem.input_count,
        "official": bool(problem.official),
        "on_gpu": bool(record.environment.gpu),
        "hardware": words.device(record.environment),
        "year": record.created[:4],
        "truth": words.truth(record.verdict),
        "threads": record.threads,
        "ranks": record.ranks,
        "partition": record.distribution.partition if record.ranks > 1 else None,
        "inputs": words.inputs(problem),
        "comparable": words.comparable(problem),
        "reductions": words.reductions(names),
        "reduced": bool(names),
        "like_for_like": names == LIKE_FOR_LIKE,
        "busy": busy_part(record),
        "configuration": configuration(record),
        "span": record.span,
        "includes": words.includes(record),
        "rate": rate,
        "percent": f"{100 * rate.confidence:g}",
        "seconds": seconds,
        "solution": _solution(record),
        "repeats": len(record.seconds),
        "computed_rate": computed / seconds["inference"],
        "computed_share": computed / nominal if nominal else 1.0,
        "memory": words.size(record.peak_memory_bytes),
        "network_text": words.described(problem.network),
        "inputs_text": words.described(problem.inputs),
        "notes": words.described({"source": record.engine.name, **notes}),
    }
    reductions = {0: "no reductions", len(REDUCTIONS): "all reductions"}.get(len(names), run["reductions"])
    run["setting"] = ", ".join(filter(None, (run["engine"], threads(run), reductions, where)))
    return run


def configuration(record: RunRecord) -> str:
    """What records are grouped by: the configuration files of the workflow, or the command."""
    request = record.request
    command = "spdnn peers" if request is None else "spdnn infer" if request.network else "spdnn challenge"
    return words.printable(record.configuration or command, 40)


def name_runs(runs: Sequence[dict]) -> None:
    """Give each run a short `name`, its `chips` (what differs among the runs) and both as one text, `short`.

    Runs of the same settings differ by their case, or else by the time at which they were made. The long name stays in
    the record.
    """
    told = [_settings(run) for run in runs]
    differ = [name for name in told[0] if len({one[name] for one in told}) > 1] if told else []
    for run, settings in zip(runs, told, strict=True):
        size = run["official_size"]
        run["name"] = f"{size[0]:,} × {size[1]:,}" if size else words.printable(run["case"].split(".")[0], 40)
        run["chips"] = [settings[name] for name in differ if settings[name]]
    for members in grouped(runs, lambda run: (run["name"], *run["chips"])).values():
        if len(members) > 1:
            cases = len({run["case"] for run in members}) > 1
            for run in members:
                made = run["record"].created.replace("T", " ").removesuffix("Z")
                run["chips"].append(words.printable(run["case"], 40) if cases else made)
    for run in runs:
        run["short"] = ", ".join([run["name"], *run["chips"]])


def _settings(run: dict) -> dict[str, str]:
    """What can differ between runs of one network, in words."""
    machine = run["record"].environment
    on = run["record"].reductions.requested
    named = {0: "no reductions", len(REDUCTIONS): "all reductions"}.get(len(on), run["reductions"])
    return {
        "inputs": run["inputs"],
        "engine": run["engine"],
        "cut": cut(run["record"]),
        "reductions": "like for like" if run["like_for_like"] and run["official_size"] else named,
        "threads": threads(run),
        "machine": words.machine(machine),
    }


def _solution(record: RunRecord) -> dict | None:
    """A record's time to solution, with the rate that follows from it; None where it has none."""
    time, problem = record.time_to_solution, record.problem
    if not time or not time.seconds:
        return None
    return {**builtins(time), "rate": problem.work / time.seconds, "cold": not time.cached}


def official_size(problem: Problem) -> tuple[int, int] | None:
    """(neurons, layers) when the network is one of the twelve, whatever its inputs."""
    size = problem.neurons, problem.layers
    official = challenge.Problem(*size)
    if official not in challenge.PROBLEMS or problem.edges != official.edges:
        return None
    return size if problem.official or by_formula(problem) else None


def by_formula(problem: Problem) -> bool:
    """Whether the network is what `spdnn challenge` makes for its width."""
    if problem.neurons not in challenge.WIDTHS:
        return False
    bias = float(np.float32(challenge.BIAS[problem.neurons]))
    formula = {"source": "radixnet", "seed": challenge.SEED, "bias": bias, "ymax": challenge.YMAX}
    return all(problem.network.get(key) == value for key, value in formula.items())


def network(run: dict) -> Hashable:
    """The network of a run: of an official one its size, of any other its identity."""
    return run["official_size"] or run["record"].problem.network_identity


def grouped(entries: Iterable[Entry], key: Callable[[Entry], Key | None]) -> dict[Key, list[Entry]]:
    """The entries by `key`, groups in the order of their first; those whose key is None are left out."""
    groups: dict[Key, list[Entry]] = {}
    for entry in entries:
        if (value := key(entry)) is not None:
            groups.setdefault(value, []).append(entry)
    return groups


def problem_key(run: dict) -> tuple:
    """The same for two runs of the same network, depth and inputs."""
    problem = run["record"].problem
    return problem.network_identity, problem.layers, problem.inputs_sha256, problem.input_count


def age(run: dict) -> tuple:
    """A sorting key under which the latest of several runs is the last."""
    return run["record"].created, run["case"]


def latest(runs: Iterable[dict], key: Callable[[dict], Key]) -> list[dict]:
    """The latest run of each key, in the order of the keys."""
    newest = {key(run): run for run in sorted(runs, key=age)}
    return [newest[one] for one in sorted(newest)]


def heading(runs: Sequence[dict], shown: Sequence[dict]) -> dict:
    """What stands above the rows `shown` of a group of runs that share all this; left_out: runs that are not shown."""
    names = ("neurons", "layers", "inputs", "engine", "reductions", "threads")
    common = {name: shown[0][name] for name in names}
    return common | {"cores": shown[0]["record"].environment.cores, "left_out": len(runs) - len(shown)}


def threads(run: dict) -> str:
    """Threads, ranks and partition in words."""
    text = f"{run['threads']} thread{'s' if run['threads'] > 1 else ''}"
    return text if run["ranks"] == 1 else f"{run['ranks']} ranks ({run['partition']}) of {text}"


def cut(record: RunRecord) -> str:
    """The schedule of a run of the task graph and its devices, in words; empty for any other."""
    made = decomposition_of(record)
    return f"{made.schedule}, {words.plural(made.devices, 'device')}" if made else ""


def ends(run: dict) -> tuple[float, float]:
    """The ends of the interval of the median inference seconds; they follow from those of the rate."""
    rate, middle = run["rate"], run["seconds"]["inference"]
    low, high = (middle * rate.median / end if end else middle for end in (rate.high, rate.low))
    return low, high


def configurations(runs: Sequence[dict]) -> str:
    """Each engine setting of the runs once, as captions list it."""
    settings = {f"{run['engine']}, {threads(run)}, reductions: {run['reductions']}" for run in runs}
    return words.listed(sorted(settings), between="; ")
