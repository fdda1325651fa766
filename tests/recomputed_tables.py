"""The documentation's tables, worked out again from records and published figures: for recomputed.py.

A function for each table gives head and rows, numbers as numbers, from the fields that docs/reference/records.md
documents. None in a cell: there is nothing to print. Nothing of spdnn is imported but for `plans`, which judges
predictions of the package's cost model; no record has them.
"""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
SIZES = [(neurons, layers) for neurons in (1024, 4096, 16384, 65536) for layers in (120, 480, 1920)]
LABELS = {"dead": "dead inputs", "inputs": "identical inputs", "neurons": "identical neurons"}
ALL, DEAD = ("dead", "inputs", "neurons"), ("dead",)
PARTS = ("startup", "inputs", "network", "prepare", "inference", "verification", "other")  # of the time to solution
KINDS = {"exact": "best published, one GPU, exact", "lossy": "best published, one GPU, lossy"}
L2_KEPT = 0.5 * 50 * 2**20  # bytes that the second-level cache of an H100 or H200 keeps from one launch to the next
Record = dict[str, Any]
Rows = tuple[list[str], list[list]]


class Value(NamedTuple):
    """A number in seconds, bytes, shares or the unit of its column; how many samples it follows from; its interval."""

    number: float
    counts: tuple[int, ...] = ()  # of pairs of samples, or on either side of a ratio
    ends: Callable[[], tuple[float, float]] | None = None
    fastest: float | None = None  # the same of the fastest samples


# Numbers of records.


@cache
def records(kind: str) -> list[Record]:
    """The records of results/measured/*/KIND.jsonl, the earliest first; of machines without a GPU, of the latest."""
    every = [
        [json.loads(line) for line in path.open()] for path in sorted(ROOT.glob(f"results/measured/*/{kind}.jsonl"))
    ]
    own = [of_file for of_file in every if not of_file[0]["environment"]["gpu"]]
    latest = sorted(own, key=lambda of_file: max(record["created"] for record in of_file))[-1:]
    shown = [record for of_file in every if of_file not in own or of_file in latest for record in of_file]
    return sorted(shown, key=lambda record: record["created"])


def samples(record: Record) -> tuple[float, ...]:
    return tuple(record["seconds"] if "seconds" in record else record["inference_seconds"])


def size(record: Record) -> tuple[int, int]:
    return record["problem"]["neurons"], record["problem"]["layers"]


def named(of: tuple[int, int]) -> str:
    return f"{of[0]} x {of[1]}"


def on(record: Record) -> tuple[str, ...]:
    return tuple(record["reductions"]["requested"])


def labels(names: Sequence[str]) -> str:
    return ", ".join(LABELS[name] for name in names) or "none"


def engine(record: Record) -> str:
    return record["engine"]["name"]


def gib(record: Record) -> float:
    return record["peak_memory_bytes"] / 2**30


def middles(values: Sequence[float], seed: int | tuple[int, int] = 0) -> np.ndarray:
    """The medians of 10,000 resamples of some values."""
    generator = np.random.default_rng(seed)
    drawn = (generator.integers(len(values), size=(100, len(values))) for _ in range(100))
    return np.concatenate([np.median(np.asarray(values)[indices], axis=1) for indices in drawn])


def percentiles(value: float, resampled: np.ndarray) -> tuple[float, float]:
    low, high = np.quantile(resampled, [0.025, 0.975])
    return min(low, value), max(high, value)


@cache
def ends_of(values: tuple[float, ...]) -> tuple[float, float]:
    """The interval of a median."""
    return percentiles(median(values), middles(values)) if len(values) > 1 else (values[0], values[0])


def middle(record: Record, field: str | None = None) -> Value:
    """The median of the samples, or of another field of seconds."""
    spent = tuple(record[field]) if field else samples(record)
    return Value(median(spent), (len(spent),), lambda: ends_of(spent))


def pairs(ours: Record, theirs: Record) -> Value:
    """The median of the ratios of pairs of samples, theirs to ours: programs that took turns."""
    ratios = tuple(b / a for a, b in zip(samples(ours), samples(theirs), strict=True))
    return Value(median(ratios), (len(ratios),), lambda: ends_of(ratios), min(samples(theirs)) / min(samples(ours)))


def times(slow: Record, fast: Record) -> Value:
    """The ratio of two medians; either side is resampled by itself, the lesser one first."""
    a, b = sorted(samples(slow)), sorted(samples(fast))

    def ends() -> tuple[float, float]:
        lesser, other = sorted([a, b])
        low, high = percentiles(median(lesser) / median(other), middles(lesser, (0, 0)) / middles(other, (0, 1)))
        return (low, high) if lesser == a else (1 / high, 1 / low)

    return Value(median(a) / median(b), (len(a), len(b)), ends)


def tera(record: Record, seconds: float | None) -> float | None:
    """TeraEdges/s by the challenge's formula: inputs x nonzeros over all layers, whatever was skipped."""
    return seconds and record["problem"]["input_count"] * record["problem"]["edges"] / seconds / 1e12


def rate(record: Record) -> Value:
    """TeraEdges/s of the inference."""
    spent = middle(record)
    ends = lambda: tuple(tera(record, end) for end in reversed(spent.ends()))  # noqa: E731
    return Value(tera(record, spent.number), spent.counts, ends)


def rates(record: Record) -> list:
    """The same, with preparation on the clock, and of the whole command."""
    prepared = median(record["prepare_seconds"]) + middle(record).number
    return [rate(record), tera(record, prepared), tera(record, whole(record))]


def whole(record: Record) -> float | None:
    """The time to solution."""
    parts = record["time_to_solution"]
    return sum(parts[name] for name in PARTS) if parts else None


def computed(record: Record) -> float:
    """Billion edges really computed a second. Where layers were counted: rows that a layer had to compute x edges."""
    result = record["result"]
    edges = result["edges_computed"]  # version 2 counts no layers
    if result.get("layer_rows") and result.get("layer_edges") and not result.get("sparse_rows"):
        edges = sum(rows * each for rows, each in zip(result["layer_rows"], result["layer_edges"], strict=True))
    return edges / median(samples(record)) / 1e9


def limit(record: Record) -> tuple[float, str]:
    """The part of the limit that was reached, and what bounds it: bytes loaded or moved at the best measured rates."""
    result, machine = record["result"], record["machine"]
    loaded, moved = result["bytes_loaded"], result["bytes_moved"]
    loaded = 4 * result["edges_computed"] if loaded is None else loaded
    gpu = machine["instruction_set"].startswith("sm_")
    if moved is None and gpu and on(record) == DEAD:
        # A launch reads the rows of the active inputs and writes as many; the first one reads bits.
        rows = [record["problem"]["input_count"], *result["survivors"][:-1]]
        launches = [4 * size(record)[0] * count * (2 if k else 33 / 32) for k, count in enumerate(rows)]
        moved = sum(max(0, launch - L2_KEPT) for launch in launches)
    least = loaded / max(machine["load_rates"]), (moved or 0) / max(machine["copy_rates"])
    names = ("loads from shared memory", "the GPU's memory") if gpu else ("loads from the nearest cache", "memory")
    return max(least) / median(samples(record)), names[least[1] > least[0]]


@cache
def of_the_twelve() -> dict[tuple[tuple[int, int], tuple[str, ...]], Record]:
    """By size and reductions, the latest record of the twelve on all official inputs by the engine cpu."""
    every = sorted(records("twelve") + records("like-for-like"), key=lambda record: record["created"])
    official = (r for r in every if r["problem"]["official"] and r["problem"]["input_count"] == 60000)
    return {(size(record), on(record)): record for record in official if engine(record) == "cpu"}


def cores() -> str:
    counts = sorted({record["environment"]["cores"] for record in of_the_twelve().values()})
    return f"{' or '.join(map(str, counts))} CPU cores"


@cache
def published() -> list[dict[str, str]]:
    """Published rates of GPUs whose number is stated."""
    with (ROOT / "config/baselines.csv").open(newline="", encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["edges_per_second"] and row["neurons"] and row["devices"]]
    return [row for row in rows if re.search("NVIDIA|GeForce|GPU", row["hardware"])]


def best(of: tuple[int, int], kind: str) -> dict[str, str]:
    """The fastest published row of a network: on one GPU, exact or lossy, or exact on any number of GPUs."""
    same = (row for row in published() if (int(row["neurons"]), int(row["layers"])) == of)
    lossy = (row for row in same if (row["lossy"] == "yes") == (kind == "lossy"))
    asked = (row for row in lossy if kind == "any" or row["devices"] == "1")
    return max(asked, key=lambda row: float(row["edges_per_second"]))


def best_rate(of: tuple[int, int], kind: str) -> float:
    return float(best(of, kind)["edges_per_second"]) / 1e12


def latest(kind: str, model: bool = False) -> list[tuple[Record, list[Record]]]:
    """Ours and the other programs of its comparison, of the latest comparison on each problem, by network and batch."""
    groups = defaultdict(list)
    for record in records(kind):
        if model == (record["operation"] == "model"):
            problem = [record["problem"][name] for name in ("network", "batch_columns", "layer", "topology_sha256")]
            place = record["environment"]["gpu"] or record["environment"]["cpu"]
            groups[*problem, record["problem"]["set"], record["operation"], place, record["threads"]].append(record)
    found = []
    for _, members in sorted(groups.items()):
        own = [r for r in members if r["program"]["kind"] == "ours" and r["program"]["name"] != "ours-in-order"]
        ours = max(own, key=lambda record: (record["created"], record["comparison"]))
        others = [r for r in members if r["comparison"] == ours["comparison"] and r["program"]["kind"] != "ours"]
        found.append((ours, sorted(others, key=program)))
    return found


def program(record: Record) -> str:
    return record["program"]["name"]


def nonzero(problem: dict) -> float:
    """The part of a matrix that is not zero."""
    return problem["nonzeros"] / (problem["rows"] * problem["columns"])


# Tables.


def first() -> Rows:
    head = ["network", "reductions", "inference", f"TeraEdges/s of it, {cores()}", "with preparation"]
    asked = (SIZES[0], DEAD, "dead inputs alone"), (SIZES[0], ALL, "all three"), (SIZES[-1], ALL, "all three")
    ours = [(of, words, of_the_twelve()[of, names]) for of, names, words in asked]
    rows = [[named(of), words, middle(r), *rates(r), *(best_rate(of, kind) for kind in KINDS)] for of, words, r in ours]
    return [*head, "of the whole command", *KINDS.values()], rows


def twelve() -> Rows:
    most = max(int(best(of, "any")["devices"]) for of in SIZES)
    head = ["network", f"inference on {cores()}, all three", "prepare", "whole command"]
    head += ["TeraEdges/s of the inference", "with preparation", "of the whole command"]
    head += ["really computed, billion edges/s", "inference, dead inputs alone", "TeraEdges/s"]
    rows = []
    for of in SIZES:
        ours, fair = of_the_twelve()[of, ALL], of_the_twelve()[of, DEAD]
        cells = [named(of), middle(ours), middle(ours, "prepare_seconds"), whole(ours), *rates(ours), computed(ours)]
        rows.append([*cells, middle(fair), rate(fair), *(best_rate(of, kind) for kind in (*KINDS, "any")), gib(ours)])
    return [*head, *KINDS.values(), f"best published, up to {most} GPUs, exact", "peak GiB"], rows


def solution() -> Rows:
    ours = [of_the_twelve()[of, ALL] for of in SIZES]
    parts = [[record["time_to_solution"][name] for name in PARTS] for record in ours]
    rows = [[named(size(r)), sum(each), *each, tera(r, sum(each))] for r, each in zip(ours, parts, strict=True)]
    return ["network", "to solution", "start", *PARTS[1:-1], "writing and other", "TeraEdges/s by it"], rows


def text() -> Rows:
    head = ["network", "layers from", "read time", "read rate, million edges/s", "prepare", "inference"]
    rows = []
    for record in sorted(records("text"), key=size):
        for each in (record, of_the_twelve()[size(record), ALL]):
            read = each["time_to_solution"]["network"] if each is record else None
            cells = [
                named(size(each)),
                "text" if read else "formula",
                read,
                read and each["problem"]["edges"] / read / 1e6,
            ]
            rows.append([*cells, middle(each, "prepare_seconds"), middle(each)])
    return head, rows


def limits() -> Rows:
    head = ["network", "really computed, billion edges/s", "billion loads/s of its machine's nearest cache"]
    rows = []
    for record in (of_the_twelve()[of, ALL] for of in SIZES):
        roofs = max(record["machine"]["load_rates"]) / 4e9, max(record["machine"]["copy_rates"]) / 1e9
        rows.append([named(size(record)), computed(record), *roofs, *limit(record)])
    return [*head, "copies, GB/s", "of its limit", "what bounds it"], rows


def peers() -> Rows:
    groups = defaultdict(list)
    for record in records("peers"):
        groups[size(record), record["problem"]["inputs_sha256"], record["comparison"]].append(record)
    others = sorted({engine(record) for record in records("peers")} - {"cpu"})
    rows = []
    for ((neurons, layers), *_), members in sorted(groups.items()):
        ours = max((record for record in members if engine(record) == "cpu"), key=lambda record: len(on(record)))
        theirs, problem = {engine(record): record for record in members}, ours["problem"]
        origin = "official" if problem["official"] else problem["inputs"]["source"]
        name = f"{neurons:,} × {layers:,}, {origin}, {problem['input_count']:,} inputs"
        rows.append([name, labels(on(ours)), middle(ours), *(pairs(ours, theirs[name]) for name in others)])
    return ["network and inputs", "reductions of ours", "ours", *others], rows


def ladder(several: Sequence[Record] | None = None) -> Rows:
    """One network by engine and reductions, each row after the first with its ratio to the row before."""
    order = ("reference", "csr", "tiled", "cpu", "cuda-csr", "cuda-ell", "cuda-staged", "cuda-persistent")
    shown = [record for record in several or records("ladder") if engine(record) in order]
    shown.sort(key=lambda record: (order.index(engine(record)), len(on(record))))
    faster = [None, *(times(before, record) for before, record in zip(shown, shown[1:], strict=False))]
    rows = [[engine(r), ", ".join(on(r)) or "none", middle(r), each] for r, each in zip(shown, faster, strict=True)]
    return ["engine", "reductions", "inference", "times as fast as the step before"], rows


def gpu_ladder() -> Rows:
    small = [record for record in records("networks") if size(record) == SIZES[0]]
    device = next(record["environment"]["gpu"] for record in small if engine(record) == "cusparse")
    return ladder([record for record in small if record["environment"]["gpu"] == device])


def unstructured() -> Rows:
    turns = defaultdict(lambda: ([], []))  # samples without and with reductions
    for record in records("unstructured"):
        turns[size(record)][bool(on(record))].extend(samples(record))
    cells = [pairs(*({"seconds": side} for side in both)) for _, both in sorted(turns.items())]
    return ["network", *map(named, sorted(turns))], [["time with all reductions, relative to none", *cells]]


def threads() -> Rows:
    order = sorted(records("threads"), key=lambda record: record["threads"])
    rows = [[record["threads"], middle(record), times(order[0], record)] for record in order]
    return ["threads", "inference", "times as fast"], rows


def ranks() -> Rows:
    groups = defaultdict(dict)
    for record in records("ranks"):
        way = record["ranks"], (record["distribution"] or {"partition": ""})["partition"]
        groups[size(record), -len(on(record)), on(record)][way] = middle(record)
    order = ("", "static", "cyclic", "rebalanced")
    ways = sorted({way for each in groups.values() for way in each}, key=lambda way: (way[0], order.index(way[1])))
    rows = [[named(of), labels(on), *map(spent.get, ways)] for (of, _, on), spent in sorted(groups.items())]
    return ["network", "reductions", *(f"{count} {partition}".strip() for count, partition in ways)], rows


def spgemm() -> Rows:
    serial = {size(record): record for record in records("spgemm") if engine(record) == "scipy"}
    rows = []
    for record in records("spgemm"):
        cells = named(size(record)), engine(record), record["threads"], record["ranks"], middle(record)
        rows.append([*cells, times(serial[size(record)], record), gib(record)])
    head = ["network", "engine", "threads", "ranks", "inference", "times as fast", "memory of the node, GiB"]
    return head, sorted(rows, key=lambda row: (int(row[0].split()[0]), row[1:4]))


def plans() -> Rows:
    from spdnn.runs.calibration import expected
    from spdnn.runs.records.files import read_all

    several, _ = read_all(sorted(ROOT.glob("results/measured/*/ranks.jsonl")))
    errors = defaultdict(list)
    for record in (record for record in several if record.ranks > 1):
        case = record.problem.network_identity, record.reductions.requested
        base = next(r for r in several if r.ranks == 1 and (r.problem.network_identity, r.reductions.requested) == case)
        share = expected(base, record)[0] / median(record.inference_seconds)
        errors[-len(case[1]), labels(case[1]), record.ranks].append(share - 1)
    rows = [[*key[1:], len(each), median(each), min(each), max(each)] for key, each in sorted(errors.items())]
    return ["reductions", "ranks", "runs", "predicted relative to measured, median", "from", "to"], rows


def streamed() -> Rows:
    order = sorted(records("streamed"), key=size)
    rows = [[named(size(record)), middle(record), rate(record), gib(record), whole(record)] for record in order]
    return ["network", "inference", "TeraEdges/s", "peak GiB", "to solution"], rows


def operations(kind: str = "operations") -> Rows:
    order = "the fastest sparse library", "the fastest dense", "SciPy, which has one thread"
    ratios = defaultdict(list)  # of each problem: by medians, and by fastest samples
    for ours, others in latest(kind):
        name, level = f"`{ours['operation']}`", round(100 * (1 - nonzero(ours["problem"])))
        for place, of in enumerate(("sparse", "dense")):
            if every := [pairs(ours, other) for other in others if other["program"]["kind"] == of]:
                fastest = min(every, key=lambda ratio: ratio.number)
                ratios[name, place, level].append((fastest.number, fastest.fastest))
        for other in others:
            if program(other) == "scipy":
                ratios[name, 2, level].append((times(other, ours).number,))
    means = {key: [*map(geometric_mean, zip(*each, strict=True))] for key, each in ratios.items()}
    lost = {key: sum(one[0] < 1 for one in each) for key, each in ratios.items()}
    cells = {
        key: [mean[0], " (", mean[1], "), ", lost[key], " of ", len(ratios[key])] if mean[1:] else mean
        for key, mean in means.items()
    }
    levels, names = sorted({key[2] for key in cells}), sorted({key[:2] for key in cells})
    rows = [[name, order[place], *(cells.get((name, place, level)) for level in levels)] for name, place in names]
    return ["operation", "than", *(f"{level} %" for level in levels)], rows


def headlines() -> Rows:
    """Ours beside the headline results of papers, by the first words of a result and kind of records."""
    with (ROOT / "config/baselines.csv").open(newline="", encoding="utf-8") as stream:
        serial = {
            (int(row["neurons"]), int(row["layers"])): float(row["seconds"])
            for row in csv.DictReader(stream)
            if row["system"] == "MATLAB reference (Kepner), run by Davis"
        }
    fair = [record for (_, names), record in of_the_twelve().items() if names == DEAD]
    threaded = [record for record in records("spgemm") if engine(record) == "spgemm" and record["threads"] > 1]
    found: dict[tuple[str, str], tuple[list, list[Record]]] = {}
    for kind, several in (("spgemm", threaded), ("like-for-like", fair)):
        over = [serial[size(record)] / middle(record).number for record in several]
        found["120 to 500", kind] = [min(over), " to ", max(over), f" (`{engine(several[0])}`)"], several
    if reference := records("reference"):
        ours, other = (next(r for r in reference if (engine(r) == "cpu") == own) for own in (True, False))
        told = f" (`cpu`, one thread; {ours['problem']['input_count']:,} inputs)"
        found["120 to 500", "reference"] = [times(other, ours), told], [other, ours]
    rated = [1e12 * rate(record).number for record in fair]
    found["1.16e12", "like-for-like"] = [min(rated), " to ", max(rated), " edges/s"], fair
    by_gpu = defaultdict(dict)
    for record in records("networks"):
        if engine(record) == "cuda" and on(record) == DEAD:
            by_gpu[record["environment"]["gpu"].split()[1]][size(record)] = record
    both = [(by_gpu["H100"][of], by_gpu["H200"][of]) for of in by_gpu["H200"]]
    ends = sorted(times(slow, fast).number for slow, fast in both)
    found["2.37", "networks"] = [ends[0], " to ", ends[-1]], [one for pair in both for one in pair]
    for kind in ("products", "operations"):
        peaks, ratios, shown = defaultdict(list), defaultdict(list), []
        for ours, others in latest(kind):
            if ours["operation"] in ("spmm", "sddmm"):
                key = f"`{ours['operation']}` at {round(100 * (1 - nonzero(ours['problem'])))} %: "
                done = ours["useful_operations"] / middle(ours).number
                peaks[key].append(done / (2 * max(ours["machine"]["fma_rates"])))
                if sparse := [pairs(ours, one).number for one in others if one["program"]["kind"] == "sparse"]:
                    ratios[key].append(min(sparse))
                    shown.append(ours)
        best_of = [
            ["; ", key, max(one), " at best, ", geometric_mean(one), " in the mean"] for key, one in peaks.items()
        ]
        found["27 %", kind] = flat(best_of), [ours for ours, _ in latest(kind)]
        faster = {key: sum(each < 1 for each in one) for key, one in ratios.items()}
        means = [
            ["; ", k, geometric_mean(one), ", slower in ", faster[k], " of ", len(one)] for k, one in ratios.items()
        ]
        found["faster than cuSPARSE", kind] = flat(means), shown
    for ours, others in latest("operations", model=True):
        for other in others:
            result = "sparse MobileNetV1" if ours["problem"]["network"] == "mobilenet" else "sparse Transformer"
            if stored := program(other) == "stored":
                result = "12.8"
            figure = held(other) / held(ours) if stored else pairs(ours, other).number
            found[result, "operations"] = [figure], [ours, other]
    with (ROOT / "config/headlines.csv").open(newline="", encoding="utf-8") as stream:
        theirs = list(csv.DictReader(stream))
    rows = []
    for row in theirs:
        of = next((one for one in found if row["result"].startswith(one[0]) and one[1] == row["records"]), None)
        cells: list = [None] * 5
        if of:
            figure, several = found[of]
            counts = [len(samples(record)) for record in several]
            places = {place(record) for record in several}  # where it was not measured, without vectors
            known = sorted(one for one in places if not any(other.startswith(f"{one} (") for other in places))
            cells = [
                figure,
                ", ".join(known),
                ", ".join(sorted({span(record) for record in several})),
                " to ".join(map(str, dict.fromkeys((min(counts), max(counts))))),
                f"`{of[1]}.jsonl`",
            ]
        if of or not row["records"]:
            rows.append([row["system"], row["result"], row["hardware"], *cells, row["quantity"]])
    head = ["system", "result", "hardware of it", "ours", "our hardware", "our time", "samples", "records"]
    return [*head, "quantity"], rows


def flat(parts: list[list]) -> list:
    """The parts of a cell, in their order, without what divides the first from those before it."""
    return [each for part in sorted(parts, key=lambda part: part[1]) for each in part][1:]


def place(record: Record) -> str:
    where, level = record["environment"], (record["machine"] or {}).get("instruction_set")
    vectors = {"x86_64_v3": " (AVX2)", "x86_64_v4": " (AVX-512)"}.get(level, "")
    return where["gpu"] or f"{where['cores']} cores of an {where['cpu']}{vectors}"


def span(record: Record) -> str:
    """What a sample of a record includes."""
    words = {
        "spmm": "one product, operands in place",
        "sddmm": "one sampled product, operands in place",
        "model": "one model, weights in place",
    }
    return record["span"] if "span" in record else words[record["operation"]]


def held(record: Record) -> int:
    return record["matrix_bytes"] + record["operand_bytes"] + (record["attention_bytes"] or 0)


def models() -> Rows:
    rows = []
    for ours, others in latest("operations", model=True):
        for other in others:
            name = f"{ours['problem']['network']} {ours['problem']['layer']}"
            cells = middle(ours), middle(other), pairs(ours, other), held(other) / held(ours)
            rows.append([name, program(other), *cells])
    head = ["model", "compared with", "sparse", "the other", "times as fast, median of pairs"]
    head.append("memory of the other, times")
    return head, sorted(rows, key=lambda row: row[:2])


def calls() -> Rows:
    names = {program(other): lower(other) for _, others in latest("calls") for other in others}
    rows = []
    for ours, others in latest("calls"):
        ratios = {program(other): pairs(ours, other) for other in others}
        rows.append([ours["problem"]["batch_columns"], middle(ours), *map(ratios.get, sorted(names))])
    heads = [name + (f" ({names[name]})" if names[name] else "") for name in sorted(names)]
    return ["inputs of a call", "ours", *heads], rows


def calls_in_full() -> Rows:
    head = ["Program", "Inputs per call", "Median time", "Inputs a second", "Times as long as ours", "Precision"]
    head += ["Largest error", "Weights", "Version and layout"]
    rows = []
    for ours, others in latest("calls"):
        for record in sorted([ours, *others], key=lambda one: (one is not ours, pairs(ours, one).number)):
            count, used = ours["problem"]["batch_columns"], record["program"]["threads_used"]
            alone = [f"{used} thread{'s' * (used > 1)} used"] * (used < record["threads"])
            version = "; ".join([record["program"]["version"], *alone, record["program"]["notes"]["layout"]])
            cells = [middle(record), count / middle(record).number, pairs(ours, record)]
            cells += [record["program"]["notes"].get("precision"), record["verification"].get("error")]
            rows.append([program(record), count, *cells, float(record["matrix_bytes"]), version])
    if not any(row[5] for row in rows):  # records of before programs said their precision
        return [*head[:5], *head[7:]], [[*row[:5], *row[7:]] for row in rows]
    return head, rows


def onnx() -> Rows:
    rows = []
    for ours, others in latest("onnx"):
        for other in sorted(others, key=lambda one: pairs(ours, one).number):
            ratio, problem = pairs(ours, other), ours["problem"]
            low, high = ratio.ends()
            name = program(other)
            if lower(other):
                name = [f"{name} ({lower(other)}, error ", other["verification"]["error"], ")"]
            cells = [problem["network"], problem["batch_columns"], middle(ours), name]
            rows.append([*cells, ratio, [low, " to ", high]])
    return ["model", "inputs of a call", "ours", "compared with", "times as long, median", "95 % interval"], rows


def real() -> Rows | list[Rows]:
    """The published models; no table before they are measured."""
    every = latest("real-models")
    wrong = {name for ours, _ in every for name in ours["program"]["notes"].get("wrong", {})}
    names = sorted({program(other) for _, others in every for other in others} | wrong)
    rows, ratios = [], defaultdict(list)
    for ours, others in every:
        model, _, percent = ours["problem"]["network"].rpartition("-")
        cells = dict.fromkeys(names)
        for other in others:
            ratio = pairs(ours, other)
            ratios[int(percent), program(other)].append(ratio.number)
            cells[program(other)] = [ratio]
            if lower(other):
                cells[program(other)] += [f"; {lower(other)}, error ", other["verification"]["error"]]
        for name, (precision, error) in ours["program"]["notes"].get("wrong", {}).items():
            cells[name] = (
                [f"not right: {precision}, error ", error] if error else [f"not right: {precision}, not finite"]
            )
        rows.append([model, int(percent) / 100, middle(ours), *cells.values()])
    for level in sorted({level for level, _ in ratios}):
        means = [ratios[level, name] and Value(geometric_mean(ratios[level, name]), (len(ratios[level, name]),))
                 for name in names]  # fmt: skip
        rows.append(["geometric mean", level / 100, None, *(mean or None for mean in means)])
    return (["model", "zeros", "ours", *names], rows) if rows else []


def profiles() -> Rows | list[Rows]:
    """The three published models that gain least, each where it does, and what their nodes take."""
    least = {}
    for ours, others in latest("real-models"):
        model, _, percent = ours["problem"]["network"].rpartition("-")
        for other in others:
            if program(other) == "onnxruntime":
                ratio = pairs(ours, other)
                if model not in least or ratio.number < least[model][0].number:
                    least[model] = ratio, int(percent), ours["program"]["notes"]["profile"]
    rows = []
    for model in sorted(least, key=lambda model: least[model][0].number)[:3]:
        ratio, percent, profile = least[model]
        shares, rest = [], 1.0
        for kinds in (
            {"Product"},
            {"ReorderInput", "ReorderOutput", "Transpose"},
            {"Conv", "FusedConv", "ConvTranspose", "MatMul", "FusedMatMul", "Gemm", "LSTM"},
        ):
            shares.append(sum(seconds for kind, seconds in profile.items() if kind in kinds) / sum(profile.values()))
            rest -= shares[-1]
        rows.append([model, percent / 100, ratio, *shares, rest])
    parts = ["our products", "layout changes", "other convolutions and products", "other nodes"]
    return (["model", "zeros", "times as long: onnxruntime", *parts], rows) if rows else []


def sessions() -> Rows | list[Rows]:
    """Two models alone and in turns."""
    rows = []
    for ours, others in latest("sessions"):
        ways, calls = {program(other): samples(other) for other in others}, ours["program"]["notes"]["calls"]
        both = [a + b for a, b in zip(samples(ours), ways["onnxruntime"], strict=True)]
        cells: list = [ours["problem"]["network"], median(samples(ours)) / calls, median(ways["onnxruntime"]) / calls]
        for way in ("in turns", "in turns without spinning"):
            parts = tuple(b / a for a, b in zip(both, ways[way], strict=True))
            cells.append(Value(median(parts), (len(parts),), partial(ends_of, parts)))
        rows.append(cells)
    head = ["our model", "a call of it", "a call of ONNX Runtime's session", "in turns, times as long as both alone"]
    return ([*head, "the same with force_spinning_stop"], rows) if rows else []


def lower(record: Record) -> str | None:
    """The type that a program computes in, where that is not float32."""
    precision = record["program"]["notes"].get("precision", "float32")
    return None if precision == "float32" else precision


def accuracy() -> Rows:
    found = defaultdict(dict)  # by model and weights, then by batch
    for ours, (other,) in sorted(latest("accuracy"), key=lambda pair: pair[0]["created"]):
        problem = ours["problem"]
        found[problem["network"], problem["layer"]][problem["batch_columns"]] = ours, other
    batches = sorted({batch for each in found.values() for batch in each})
    rows = []
    for names, each in found.items():
        ours, other = each[batches[0]]
        right = ours["accuracy"]["top1"] / sum(map(sum, ours["accuracy"]["confusion"]))
        both = [each[batch] for batch in batches]
        spent = [[middle(a), ", ", middle(b), " (", pairs(a, b), " times as fast)"] for a, b in both]
        held = [float(max(a["matrix_bytes"] for a, _ in both)), ", ", float(other["matrix_bytes"])]
        rows.append([*names, nonzero(ours["problem"]), right, *spent, held])
    what = [*(f"{batch} image{'s' * (batch > 1)}" for batch in batches), "memory of the weights"]
    return ["model", "weights", "nonzero", "top-1 accuracy", *(f"{one}: ours, ONNX Runtime" for one in what)], rows


def gpu() -> list[Rows]:
    found = defaultdict(lambda: defaultdict(dict))
    for record in records("networks"):
        if engine(record) == "cuda":
            found[record["environment"]["gpu"]][size(record)][on(record)] = record
    head = ["network", "all three", "TeraEdges/s", "to solution", "dead inputs alone", "TeraEdges/s", "of its limit"]
    head += ["what bounds it", "to solution", KINDS["exact"], "times as fast as it"]
    tables = []
    for _, networks in sorted(found.items()):
        rows = []
        for of, each in sorted(networks.items()):
            ours, fair, theirs = each[ALL], each.get(DEAD), best_rate(of, "exact")
            cells, ratio = [None] * 5, None
            if fair:
                cells, ratio = [middle(fair), rate(fair), *limit(fair), whole(fair)], rate(fair).number / theirs
            beside = [theirs, f" ({best(of, 'exact')['hardware']})"], ratio
            rows.append([named(of), middle(ours), rate(ours), whole(ours), *cells, *beside])
        tables.append((head, rows))
    return tables


def gpu_schedules() -> Rows:
    names = {"graph": "one graph of all batches", "resident": "resident weights", "stream": "streamed weights"}
    found = defaultdict(dict)
    for record in records("schedules"):
        found[size(record), -len(on(record)), on(record)][record["engine"]["notes"].get("schedule")] = record
    rows = []
    for (of, _, reductions), each in sorted(found.items()):
        words = "all three" if reductions == ALL else f"{labels(reductions)} alone"
        ratios = (times(each[name], each[None]) for name in names)  # None: the engine cuda
        rows.append([named(of), words, middle(each[None]), *ratios])
    return ["network", "reductions", "`cuda`", *(f"`taskgraph-cuda`, {words}" for words in names.values())], rows


MADE = (first, twelve, solution, text, peers, ladder, gpu_ladder, unstructured, threads, ranks, spgemm, plans, streamed)
MADE += (
    operations,
    headlines,
    models,
    calls,
    calls_in_full,
    onnx,
    real,
    profiles,
    sessions,
    accuracy,
    gpu,
    gpu_schedules,
)
TABLES: dict[str, Callable[[], Rows | list[Rows]]] = {make.__name__: make for make in MADE}
TABLES |= {"limit": limits, "gpu_products": lambda: operations("products")}
