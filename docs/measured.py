"""Numbers of the documentation, made from records in results/measured/ and from published results, and nothing else.

python docs/measured.py
    renders the tables of PAGES, and the pictures of the documentation
python docs/measured.py measure NAME [KIND...]
    runs what the tables of these kinds show, into results/measured/NAME/KIND.jsonl

KIND is twelve (the networks with all reductions), like-for-like (with dead inputs alone, which published exact systems
leave out: a quarter of an hour on two idle cores), text (three of them read from official text), streamed (all of them
within 4 GiB by the engine taskgraph), peers, ladder, unstructured, threads, ranks, spgemm, reference (the challenge's
program: benchmarks/octave_reference.py), operations, calls, dense-calls, onnx, real-models (published models, which
benchmarks/real_models.py downloads: an hour), sessions or accuracy; all without. What was there of a kind is
replaced.
A table stands between two comments, `<!-- measured: TABLE -->` and `<!-- /measured -->`; one that no record is for is
left as it is. A record without seal or commit, or of a commit whose code was changed, is refused.
"""

import contextlib
import csv
import io
import math
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from headlines import beside_headlines

from spdnn.bench.libraries.registry import PROGRAMS
from spdnn.cli import main
from spdnn.cli.summary import show
from spdnn.core import challenge, config_tables, limits
from spdnn.core.errors import InputError
from spdnn.core.files import write_text
from spdnn.core.resources import usable_cores
from spdnn.core.shown import time
from spdnn.core.statistics import Interval, interval, ratio_of_medians, ratios
from spdnn.report.calls import CALLS, PERCENT, Call, called
from spdnn.report.common.collection import Collection, Part, collect
from spdnn.report.common.words import ceilings
from spdnn.report.limits import limit_rows
from spdnn.report.operations import Means, compare_problems, models_of
from spdnn.report.peers import comparisons
from spdnn.runs import calibration
from spdnn.runs.records.files import read_all
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.published import DEVICES, Baseline, Ratio, read_baselines
from spdnn.runs.records.run_record import RunRecord, busy_part

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "docs/results.md", *(f"docs/explanation/{name}.md" for name in ("cuda", "latency", "onnx")))
PICTURES = {  # the report's figures, by file
    "docs/networks.svg": "overview",
    "docs/explanation/reductions-edges.svg": "reductions-edges",
    "docs/explanation/reductions-rows.svg": "reductions-rows",
    "docs/explanation/time-to-solution.svg": "times-whole",
}
BLOCK = re.compile(r"(<!-- measured: (\w+) -->\n)(.*?)(<!-- /measured -->)", re.DOTALL)
CREATED = re.compile(r'"created": *"([^"]+)"')
RECORD = re.compile(r'"schema": *"spdnn-(record|operation)"')
KINDS = {"all": ["dead", "inputs", "neurons"], "dead": ["dead"]}  # reductions of a run
STREAMED = ("engine=taskgraph", "schedule=stream", f"memory={4 << 30}", "repeats=1")
RUNGS = ("reference", "csr", "tiled", "cpu", "cuda-csr", "cuda-ell", "cuda-staged", "cuda-persistent")  # of ablations
VECTORS = {"x86_64": "SSE2", "x86_64_v3": "AVX2", "x86_64_v4": "AVX-512"}  # by instruction set
ONCE = " †"  # after a time, or the head of a column of times, of which there is one sample
FEW = 5  # samples: of fewer, a cell says how many, and the interval of the median
BUSY = " ¶"  # after a time during which the machine did other work
OTHERS = {"layer loop with weight copies": " ‡", "not stated": " §"}  # by span, after a published rate or a ratio to it
NOTES = {
    ONCE: "one sample",
    BUSY: f"other work took more than {100 * limits.BUSY:.0f} % of the machine",
    OTHERS["layer loop with weight copies"]: "the published time includes the copies of weights",
    OTHERS["not stated"]: "what the published time includes is not stated",
}
TEXTS = (1024, 120), (4096, 120), (1024, 1920)  # sizes of the networks that are read from text
# Operators of a profile by part of the table.
PARTS = {
    "our products": ("Product",),
    "layout changes": ("ReorderInput", "ReorderOutput", "Transpose"),
    "other convolutions and products": ("Conv", "FusedConv", "ConvTranspose", "MatMul", "FusedMatMul", "Gemm", "LSTM"),
}
LEAST_GAINS = 3  # models in that table
SESSIONS = {  # programs of benchmarks/two_sessions.py by column
    "a call of it": "ours", "a call of ONNX Runtime's session": "onnxruntime",
    "in turns, times as long as both alone": "in turns",
    "the same with force_spinning_stop": "in turns without spinning",
}  # fmt: skip
LONG = 10**13  # nominal edges from which a run of dead inputs alone is repeated once
Size = tuple[int, int]


def files_of_the_twelve() -> list[Path]:
    return [path for kind in ("twelve", "like-for-like") for path in files_of(kind)]


@cache
def files_of(kind: str) -> list[Path]:
    """The files of a kind: of each machine with a GPU, and of the machine without one that was measured last.

    So a table of the processor is of one machine.
    """
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(ROOT.glob(f"results/measured/*/{kind}.jsonl"))}
    dates = {path: max(CREATED.findall(text)) for path, text in texts.items() if '"gpu": null' in text}
    latest = max(dates, key=lambda path: dates[path], default=None)
    return [path for path in texts if path == latest or path not in dates]


def read(paths: Iterable[Path]) -> tuple[list[RunRecord], list[OperationRecord]]:
    """(run records, operation records) of files; InputError: one has no seal, or is of no commit."""
    every = read_all(paths)
    for record in (*every[0], *every[1]):
        commit = record.environment.commit
        lacking = "seal" if not record.seal else "commit" if not commit else ""
        if lacking or commit.endswith("-dirty"):
            reason = f"has no {lacking}" if lacking else f"is of {commit}, whose code was changed"
            raise InputError(f"{record.case} of {record.created} {reason}, so no table is made of it; measure it again")
    return every


@cache
def runs() -> dict[tuple[Size, str], RunRecord]:
    """By ((neurons, layers), kind): the latest record of the twelve on the official inputs, by engine cpu."""
    return of_the_twelve(read(files_of_the_twelve())[0])


def of_the_twelve(records: Iterable[RunRecord]) -> dict[tuple[Size, str], RunRecord]:
    """As runs, of some records."""
    found = {}
    for record in sorted(records, key=lambda record: record.created):
        kind = next((kind for kind, names in KINDS.items() if names == record.reductions.requested), None)
        whole = record.problem.official and record.problem.input_count == challenge.INPUTS
        if kind and whole and record.engine.name == "cpu":
            found[_size_of(record), kind] = record
    return found


def published() -> tuple[dict[tuple[Size, str], Baseline], dict[str, str]]:
    """The fastest published figure by ((neurons, layers), kind), and by kind what a column of them is called.

    Kinds are "exact" and "lossy", on one GPU, and "any": exact, on any number of GPUs.
    """
    best = {}
    for row in read_baselines():
        if row.neurons and row.edges_per_second and row.kind == "GPU" and row.device_class != DEVICES[2]:
            alone = ["lossy" if row.lossy else "exact"] if row.device_class == DEVICES[0] else []
            for kind in (*alone, *([] if row.lossy else ["any"])):
                key = (row.neurons, row.layers), kind
                if key not in best or row.edges_per_second > best[key].edges_per_second:
                    best[key] = row
    most = max(int(row.devices) for (_, kind), row in best.items() if kind == "any")
    names = {"exact": "one GPU, exact", "lossy": "one GPU, lossy", "any": f"up to {most} GPUs, exact"}
    return best, {kind: f"best published, {name}" for kind, name in names.items()}


def seconds(time: float) -> str:
    return f"{1000 * time:.3g} ms" if time < 1 else f"{time:.3g} s"


def rate(row: RunRecord | Baseline | None) -> str:
    """TeraEdges/s, to two digits."""
    if row is None:
        return ""
    each = row.edges_per_second
    return digits((each.median if isinstance(row, RunRecord) else each) / 1e12)


def rates_of(record: RunRecord) -> list[str]:
    """TeraEdges/s of the inference, with preparation, and of the whole command."""
    whole = record.whole_rate
    return [rate(record), digits(record.prepared_rate / 1e12), digits(whole / 1e12) if whole else ""]


def digits(number: float) -> str:
    """To two digits, or as a whole number."""
    return f"{number:.0f}" if number >= 9.95 else f"{number:#.2g}"


def mark(ratio: Ratio) -> str:
    """The mark of a published figure, and of a ratio to it, where its time includes something else than ours."""
    return OTHERS[ratio.theirs] if ratio.theirs else ""


def beside(ours: RunRecord | None, theirs: Baseline | None) -> str:
    """The rate of a published figure in a row of ours, with its mark."""
    return rate(theirs) + (mark(Ratio.of(ours, theirs)) if ours and theirs else "")


def cores(records: Iterable[RunRecord]) -> str:
    """The cores of our runs, for the head of a column."""
    return f"{' or '.join(map(str, sorted({record.environment.cores for record in records})))} CPU cores"


def machine(record: RunRecord | OperationRecord) -> str:
    """The device, or the cores, and the vectors that they were measured with."""
    place, vectors = record.environment, record.machine and VECTORS.get(record.machine.instruction_set)
    return place.gpu or f"{place.cores} cores of an {place.cpu}{f' ({vectors})' if vectors else ''}"


def machines(records: Iterable[RunRecord | OperationRecord]) -> list[str]:
    """Each machine once: where it was not measured, a name lacks the vectors."""
    names = {machine(record) for record in records}
    return [name for name in sorted(names) if not any(other.startswith(f"{name} ") for other in names)]


def source(records: Sequence[RunRecord]) -> str:
    """Machine, date and commit of some records, in a sentence."""
    environments = [record.environment for record in records]
    days = sorted({record.created[:10] for record in records})
    commits = sorted({environment.commit for environment in environments})
    busy = sum(map(bool, map(busy_part, records)))
    told = f"{' and '.join(machines(records))}, {' to '.join(dict.fromkeys((days[0], days[-1])))}"
    return f"{told}, commit {', '.join(commits)}" + (
        f"; {busy} of {len(records)} records were made while {NOTES[BUSY]}" if busy else ""
    )


def first() -> str | None:
    """The README's table."""
    ours, (theirs, names) = runs(), published()
    small, large = (1024, 120), (65536, 1920)
    rows = [(small, "dead", "dead inputs alone"), (small, "all", "all three"), (large, "all", "all three")]
    if not all((size, kind) in ours for size, kind, _ in rows):
        return None
    lines = [["network", "reductions", "inference", f"TeraEdges/s of it, {cores(ours.values())}"]]
    lines[0] += ["with preparation", f"of the whole command{ONCE}", names["exact"], names["lossy"]]
    for size, kind, words in rows:
        record = ours[size, kind]
        best = [beside(record, theirs.get((size, each))) for each in ("exact", "lossy")]
        lines.append([_name(size), words, _median(record), *rates_of(record), *best])
    below = "Preparation finds the reductions and lays out the weights. Published rates are of the inference. "
    return table(lines, f"{below}{source(list(ours.values()))}.")


def example() -> str | None:
    """What the README's command prints."""
    record = runs().get(((1024, 120), "all"))
    if record is None or record.time_to_solution is None:
        return None
    request = SimpleNamespace(repeats=len(record.seconds), memory=None)
    result = SimpleNamespace(categories=np.empty(record.result.categories), inputs=record.problem.input_count)
    result.edges_computed = record.result.edges_computed
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        show(request, record, result, record.verdict)
    return f"```text\n{printed.getvalue()}```\n\nOn {source([record])}.\n"


def table(lines: Sequence[Sequence[str]], below: str) -> str:
    """Markdown of a head and rows, and a sentence below them."""
    head, *rows = (re.sub(r"\|  (?=\|)", "| ", f"| {' | '.join(cells)} |") for cells in lines)
    used = {mark for mark in NOTES for cells in lines for cell in cells if mark in cell}
    below += "".join(f"{mark}: {note}." for mark, note in NOTES.items() if mark in used)
    return "\n".join([head, "|" + "---|" * len(lines[0]), *rows, "", below, ""])


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.2g}"


def _size_of(record: RunRecord) -> Size:
    return record.problem.neurons, record.problem.layers


def _name(size: Size) -> str:
    return f"{size[0]} x {size[1]}"


def _median(record: RunRecord | OperationRecord) -> str:
    """The median time; of fewer samples than FEW their number and the interval; whether the machine was busy."""
    every = record.seconds
    few = f" (n = {len(every)}, {_range(every)})" if 1 < len(every) < FEW else ""
    return seconds(statistics.median(every)) + few + ONCE * (len(every) == 1) + BUSY * bool(busy_part(record))


def twelve() -> str | None:
    """A row for each of the twelve networks."""
    ours, (theirs, names) = runs(), published()
    if not ours:
        return None
    head = ["network", f"inference on {cores(ours.values())}, all three", "prepare", f"whole command{ONCE}"]
    head += ["TeraEdges/s of the inference", "with preparation", f"of the whole command{ONCE}"]
    head += ["really computed, billion edges/s", "inference, dead inputs alone", "TeraEdges/s", *names.values()]
    head += ["peak GiB"]
    lines = [head]
    for problem in challenge.PROBLEMS:
        size = problem.neurons, problem.layers
        record, fair = ours.get((size, "all")), ours.get((size, "dead"))
        cells, last = [_name(size), *[""] * 7], ""
        if record:
            spent, prepare = record.time_to_solution, statistics.median(record.prepare_seconds)
            computed = record.result.edges_needed / statistics.median(record.seconds) / 1e9
            cells[1:4] = [_median(record), seconds(prepare), seconds(spent.seconds) if spent else ""]
            cells[4:] = [*rates_of(record), digits(computed)]
            last = f"{record.peak_memory_bytes / 2**30:.2g}"
        cells += [_median(fair), rate(fair)] if fair else ["", ""]
        lines.append([*cells, *(beside(record or fair, theirs.get((size, kind))) for kind in names), last])
    last = ours[max(ours, key=lambda key: (key[1] == "all", key[0]))]
    below = f"{source(list(ours.values()))}. Command of the last row: `{last.environment.command}`."
    return table(lines, below) + _elsewhere()


def _elsewhere() -> str:
    """A sentence for each other machine without a GPU on which the twelve were measured."""
    told = []
    for path in sorted({*ROOT.glob("results/measured/*/twelve.jsonl")} - {*files_of("twelve")}):
        theirs = {size: record for (size, kind), record in of_the_twelve(read([path])[0]).items() if kind == "all"}
        pairs = [(runs()[size, "all"], record) for size, record in theirs.items()]
        faster = [ratio_of_medians(one.seconds, record.seconds).median for one, record in pairs]
        shares = [one.time_to_solution.seconds / record.time_to_solution.seconds for one, record in pairs]
        told.append(
            f"With all three reductions, {source([*theirs.values()])}: the inference is {min(faster):.2g} to "
            f"{max(faster):.2g} times as fast, and the whole command {min(shares):.2g} to {max(shares):.2g} times."
        )
    return "".join(f"\n{textwrap.fill(sentence, 120)}\n" for sentence in told)


def _range(samples: Sequence[float]) -> str:
    """The interval of their median, and its unit once where it is one."""
    found = interval(samples)
    (least, unit), (most, other) = (seconds(end).split() for end in (found.low, found.high))
    return f"{least} to {most} {other}" if unit == other else f"{least} {unit} to {most} {other}"


def solution() -> str | None:
    """The parts of the time to solution of each network with all reductions, and how it grows with the edges."""
    ours = {size: record for (size, kind), record in runs().items() if kind == "all" and record.time_to_solution}
    if len(ours) < 2:
        return None
    names = {"startup": "start", "other": "writing and other"}
    lines = []
    for size, record in sorted(ours.items()):
        spent = record.time_to_solution
        parts = spent.parts
        lines.append([_name(size), *map(seconds, (spent.seconds, *parts.values()))])
        lines[-1].append(f"{record.whole_rate / 1e12:.2g}")
    head = ["network", "to solution", *(names.get(name, name) for name in parts), "TeraEdges/s by it"]
    small, large = min(ours), max(ours)
    edges = ours[large].problem.edges / ours[small].problem.edges
    grown = ours[large].time_to_solution.seconds / ours[small].time_to_solution.seconds
    below = f"From {_name(small)} to {_name(large)} the edges grow {edges:,.0f} times, and the time to solution "
    below += f"{grown:.2g} times: it grows as edges to the power {math.log(grown) / math.log(edges):.2g}."
    return table([head, *lines], f"{below}\n\n{source(list(ours.values()))}. Each once, from nothing, without a cache.")


def text() -> str | None:
    """Networks that were read from official text, each beside the one that its formula makes."""
    found = sorted(kept("text").records, key=_size_of)
    formula = runs()
    if not found or not all((_size_of(record), "all") in formula for record in found):
        return None
    lines = [
        ["network", "layers from", f"read time{ONCE}", f"read rate, million edges/s{ONCE}", "prepare", "inference"]
    ]
    for record in found:
        for each in (record, formula[_size_of(record), "all"]):
            read, kind = each.read_seconds_of_layers, "formula" if each.by_formula else "text"
            cells = [seconds(read), digits(each.read_rate / 1e6)] if read else ["", ""]
            spent = seconds(statistics.median(each.prepare_seconds)), _median(each)
            lines.append([_name(_size_of(each)), kind, *cells, *spent])
    return table(lines, f"{source([*found, *(formula[_size_of(record), 'all'] for record in found)])}.")


def kept(kind: str) -> Collection:
    """The records of results/measured/*/`kind`.jsonl, as the report collects them."""
    records, operations = read(files_of(kind))
    return collect([Part(records)], operations=operations)


def limit() -> str | None:
    """What bounds each of the twelve on its machine, and how near it is."""
    ours = {size: record for (size, kind), record in sorted(runs().items()) if kind == "all" and record.limit}
    if not ours:
        return None
    lines = [["network", "really computed, billion edges/s", "billion loads/s of its machine's nearest cache"]]
    lines[0] += ["copies, GB/s", "of its limit", "what bounds it"]
    for row in sorted(limit_rows(collect([Part(list(ours.values()))])), key=lambda row: row.run.number):
        problem, rates = row.run.problem, (row.run.computed_rate, row.roofs[0], row.roofs[2])
        billions = [digits(rate / 1e9) for rate in rates]
        lines.append([_name((problem.neurons, problem.layers)), *billions, f"{100 * row.share:.0f} %", row.binds])
    return table(lines, f"{source(list(ours.values()))}.")


def unstructured() -> str | None:
    """What the search for reductions costs where it finds nothing."""
    pairs = defaultdict(lambda: {True: [], False: []})
    for made in sorted(kept("unstructured").records, key=lambda record: record.created):
        pairs[made.problem.neurons, made.problem.layers][bool(made.reductions.requested)].append(made)
    if not pairs:
        return None
    seconds_of = [
        [[t for record in pair[on] for t in record.seconds] for on in (False, True)]
        for _, pair in sorted(pairs.items())
    ]
    shares = [ratios(*both) for both in seconds_of]
    cells = [f"{each.median:.2f} ({each.low:.2f} to {each.high:.2f})" for each in shares]
    lines = [["network", *map(_name, sorted(pairs))], ["time with all reductions, relative to none", *cells]]
    return table(lines, f"{source(kept('unstructured').records)}.")


def threads() -> str | None:
    """Inference on one thread and on several."""
    records = sorted(kept("threads").records, key=lambda record: record.threads)
    if len(records) < 2:
        return None
    first = records[0]
    lines = [["threads", "inference", "times as fast"]]
    for record in records:
        lines.append(
            [str(record.threads), _median(record), f"{ratio_of_medians(first.seconds, record.seconds).median:.2f}"]
        )
    size = _name((first.problem.neurons, first.problem.layers))
    below = f"{size}, {first.problem.input_count:,} inputs, {', '.join(first.reductions.requested)}. {source(records)}."
    return table(lines, below)


def spgemm() -> str | None:
    """The engine spgemm on threads and ranks, beside SciPy's product on one thread."""
    found = defaultdict(dict)
    for record in kept("spgemm").records:
        found[_size_of(record)][record.engine.name, record.threads, record.ranks] = record
    if not found:
        return None
    lines = [["network", "engine", "threads", "ranks", "inference", "times as fast", "memory of the node, GiB"]]
    for size, of_size in sorted(found.items()):
        first = next(record for record in of_size.values() if record.engine.name == "scipy")
        for (name, threads, count), record in of_size.items():
            times = _times(statistics.median(first.seconds) / statistics.median(record.seconds))
            cells = [_name(size), name, str(threads), str(count), _median(record), times]
            lines.append([*cells, f"{record.peak_memory_bytes / 2**30:.2g}"])
    return table(lines, f"{source([record for of_size in found.values() for record in of_size.values()])}.")


def plans() -> str | None:
    """How far the cost model's predictions are from the runs on several ranks."""
    records = kept("ranks").records
    if not any(record.ranks > 1 for record in records):
        return None
    errors = defaultdict(list)
    for group in kept("ranks").scaling:
        runs_of = [run.record for run in group.runs]
        for of_ranks in (record for record in runs_of if record.ranks > 1):
            base = next(record for record in runs_of if record.ranks == 1)
            predicted, _ = calibration.expected(base, of_ranks)
            error = 100 * (predicted / statistics.median(of_ranks.seconds) - 1)
            errors[group.shown[0].reductions, of_ranks.ranks].append(error)
    lines = [["reductions", "ranks", "runs", "predicted relative to measured, median", "from", "to"]]
    for (reductions, count), each in errors.items():
        spread = [f"{error:+.0f} %" for error in (statistics.median(each), min(each), max(each))]
        lines.append([reductions, str(count), str(len(each)), *spread])
    return table(lines, f"{source(records)}.")


def published_models() -> str | None:
    """The last lines of what the benchmarks print that compare our models with published figures."""
    paths = sorted(ROOT.glob("results/measured/published/*.txt"))
    lines = [line for path in paths for line in path.read_text(encoding="utf-8").splitlines()]
    told = "\n".join(line for line in lines if line.startswith(("two fitted", "order of", "error of", "fitted:")))
    return f"```text\n{told}\n```\n" if paths else None


def predicted_scaling() -> str | None:
    """What benchmarks/predicted_scaling.py prints and draws."""
    path = ROOT / "results/measured/one-h100/predicted_scaling.txt"
    if not path.exists():
        return None
    told = path.read_text(encoding="utf-8")
    return f"![TeraEdges/s on 1 to 768 H100, predicted](predicted-scaling.svg)\n\n```text\n{told}```\n"


def streamed() -> str | None:
    """The twelve within a limit of memory, by the engine taskgraph."""
    records = kept("streamed").records
    if not records:
        return None
    records = sorted(records, key=_size_of)
    lines = [["network", "inference", "TeraEdges/s", "peak GiB", f"to solution{ONCE}"]]
    for record in records:
        spent = record.time_to_solution
        cells = [_median(record), rate(record), f"{record.peak_memory_bytes / 2**30:.2g}", seconds(spent.seconds)]
        lines.append([_name(_size_of(record)), *cells])
    return table(lines, f"{source(records)}.")


def headlines() -> str | None:
    """Headline results of the four systems, and what was measured of them; a row for each kind of records."""
    if not runs():
        return None
    with config_tables.table("headlines.csv").open(newline="", encoding="utf-8") as stream:
        theirs = list(csv.DictReader(stream))
    ours = beside_headlines(runs(), on_gpus(), kept)
    lines = [["system", "result", "hardware of it", "ours", "our hardware", "our time", "samples", "records"]]
    lines[0].append("quantity")
    for row in theirs:
        beside = [one for (start, of), one in ours.items() if row["result"].startswith(start) and row["records"] == of]
        cells = [""] * 5
        for figure, records in beside:
            counts = [len(record.seconds) for record in records]
            cells = [figure, ", ".join(machines(records)), ", ".join(sorted({record.span for record in records}))]
            cells += [" to ".join(dict.fromkeys(map(str, (min(counts), max(counts))))), f"`{row['records']}.jsonl`"]
        if beside or not row["records"]:
            lines.append([row["system"], row["result"], row["hardware"], *cells, row["quantity"]])
    return table(lines, f"Sources: {'; '.join(dict.fromkeys(row['source'] for row in theirs))}.")


def models() -> str | None:
    """Whole models with sparse and with dense arithmetic."""
    rows = models_of([operation for operation in kept("operations").operations if operation.operation == "model"])
    if not rows:
        return None
    lines = [["model", "compared with", "sparse", "the other", "times as fast, median of pairs"]]
    lines[0] += ["memory of the other, times"]
    for row in rows:
        pairs, problem = ratios(row.ours.seconds, row.record.seconds), row.ours.problem
        few = f" (n = {n}, {pairs.low:.2f} to {pairs.high:.2f})" if (n := len(row.ours.seconds)) < FEW else ""
        cells = [f"{problem.network} {problem.layer}", row.record.program.name, _median(row.ours), _median(row.record)]
        lines.append([*cells, f"{pairs.median:.2f}{few}", f"{row.memory:.1f}" if row.memory else ""])
    return table(lines, f"{source([row.ours for row in rows])}.")


def peers() -> str | None:
    """How many times as long as ours other libraries take, a row for each problem."""
    every = comparisons(kept("peers"))
    if not every:
        return None
    others = sorted({row.run.engine for one in every for row in one.rows} - {one.ours.engine for one in every})
    lines = [["network and inputs", "reductions of ours", "ours", *others]]
    for one in every:
        ratios = {row.run.engine: row.ratio for row in one.rows}
        cells = [ratios.get(name) for name in others]
        ends = [[_times(value) for value in (each.median, each.low, each.high)] if each else None for each in cells]
        shares = ["{} ({} to {})".format(*each) if each else "" for each in ends]
        lines.append([one.label, one.ours.reductions, seconds(one.ours.inference_seconds), *shares])
    below = "Times as long as ours, with 95 % intervals of the median over pairs of samples."
    return table(lines, f"{below} {source([one.ours.record for one in every])}.")


def ladder() -> str | None:
    """Seconds of each step from the oracle to everything."""
    return steps(kept("ladder").records)


def gpu_ladder() -> str | None:
    """As ladder, on the GPU that ran all steps of it."""
    first = challenge.PROBLEMS[0]
    records = [record for record in kept("networks").records if record.problem.official == first.name]
    devices = {record.environment.gpu for record in records if record.engine.name == "cusparse"}
    return steps([record for record in records if record.environment.gpu in devices])


def on_gpus() -> dict[str, dict[Size, dict[str, RunRecord]]]:
    """Records of the engine `cuda` by GPU, size and reductions."""
    ours: dict[str, dict] = defaultdict(lambda: defaultdict(dict))
    for record in kept("networks").records:
        if record.engine.name == "cuda":
            ours[record.environment.gpu][_size_of(record)][",".join(record.reductions.requested)] = record
    return {name: ours[name] for name in sorted(ours)}


def gpu() -> str | None:
    """Of each GPU, the inference of each of the twelve, beside the fastest published on one."""
    theirs, tables = published()[0], []
    for networks in on_gpus().values():
        lines = [["network", "all three", "TeraEdges/s", f"to solution{ONCE}", "dead inputs alone", "TeraEdges/s"]]
        lines[0] += ["of its limit", "what bounds it", f"to solution{ONCE}"]
        lines[0] += ["best published, one GPU, exact", "times as fast as it"]
        for size, runs_of in sorted(networks.items()):
            every, fair, best = runs_of["dead,inputs,neurons"], runs_of.get("dead"), theirs[size, "exact"]
            cells = [_name(size), _median(every), rate(every), _solution(every)]
            if fair:
                share, binds = fair.limit.seconds / statistics.median(fair.seconds), ceilings(fair.machine)
                shown = f"{100 * share:.0f} %", binds[fair.limit.binds]
                cells += [_median(fair), rate(fair), *shown, _solution(fair)]
            cells += [""] * (9 - len(cells)) + [f"{rate(best)} ({best.hardware})"]
            ratio = Ratio.of(fair, best) if fair else None
            lines.append([*cells, _times(ratio.times) + mark(ratio) if ratio else ""])
        tables.append(table(lines, f"{source([record for each in networks.values() for record in each.values()])}."))
        tables.append(_with_copies(networks))
    return "\n".join(filter(None, tables)) or None


def _with_copies(networks: Mapping[Size, Mapping[str, RunRecord]]) -> str:
    """A sentence on the times that include host-to-device copies, beside those that were published."""
    span, fair = "with host-to-device copies", {size: of["dead"] for size, of in networks.items() if "dead" in of}
    ours = {size: record.engine.notes.spans[span] for size, record in fair.items()}
    theirs: dict[Size, list[float]] = defaultdict(list)
    for row in read_baselines():
        if "copies" in row.span and row.devices == "1" and row.kind == "GPU" and row.seconds and not row.lossy:
            theirs[row.neurons, row.layers].append(row.seconds)
    times = [spent / min(theirs[size]) for size, spent in ours.items() if size in theirs]
    if not times:
        return ""
    told = (
        "With the copies of inputs and weights to the GPU on the clock, which includes laying out the weights on the "
        f"host, dead inputs alone take {seconds(min(ours.values()))} to {seconds(max(ours.values()))}: "
        f"{_times(min(times))} to {_times(max(times))} times as long as the fastest published time on one GPU that "
        f"includes copies, in {len(times)} of {len(ours)} networks ({source([*fair.values()])}). Laying out was made "
        "faster since; no GPU has run it yet."
    )
    return textwrap.fill(told, 120) + "\n"


def _solution(record: RunRecord) -> str:
    return seconds(record.time_to_solution.seconds) if record.time_to_solution else ""


def gpu_memory() -> str | None:
    """How much sooner a GPU with faster memory is."""
    if len(on_gpus()) != 2:
        return None
    (slow, ours), (fast, others) = sorted(on_gpus().items(), key=lambda one: _copies(one[1]))
    rates = [_copies(networks) / 1e12 for networks in (others, ours)]
    shares = []
    for kind, words in (("dead", "dead inputs alone"), ("dead,inputs,neurons", "all three reductions")):
        sizes = [size for size in ours if kind in ours[size] and kind in others.get(size, {})]
        both = [ratio_of_medians(others[size][kind].seconds, ours[size][kind].seconds).median for size in sizes]
        shares.append(f"{min(both):.2f} to {max(both):.2f} of its time with {words} ({len(both)} networks)")
    told = f"The {fast} copies {rates[0] / rates[1]:.1f} times as fast as the {slow} ({rates[0]:.2f} and "
    told += f"{rates[1]:.2f} TB/s), and takes {' and '.join(shares)}."
    return textwrap.fill(told, 120) + "\n"


def _copies(networks: Mapping[Size, Mapping[str, RunRecord]]) -> float:
    records = (record for runs_of in networks.values() for record in runs_of.values())
    return statistics.median(record.machine.copy_bytes_per_second for record in records)


def gpu_schedules() -> str | None:
    """The task graph on one device, next to the engine `cuda`."""
    names = {"graph": "one graph of all batches", "resident": "resident weights", "stream": "streamed weights"}
    found: dict[tuple, dict[str, RunRecord]] = defaultdict(dict)
    for record in (records := kept("schedules").records):
        of = _name(_size_of(record)), ",".join(record.reductions.requested)
        name = "cuda" if record.engine.name == "cuda" else record.engine.notes.schedule
        found[of][name] = record
    if not found:
        return None
    lines = [["network", "reductions", "`cuda`", *(f"`taskgraph-cuda`, {name}" for name in names.values())]]
    for (size, kind), each in found.items():
        times = [ratio_of_medians(each[name].seconds, each["cuda"].seconds).median for name in names]
        words = {",".join(KINDS["all"]): "all three", "dead": "dead inputs alone"}[kind]
        lines.append([size, words, _median(each["cuda"]), *(f"{ratio:.2f}" for ratio in times)])
    return table(lines, f"Times as long as `cuda`. {source(records)}.")


def steps(records: Sequence[RunRecord]) -> str | None:
    """Runs of one problem by RUNGS, of the commit that has most, so that each row changes one thing."""
    records = [record for record in records if record.engine.name in RUNGS]
    if not records:
        return None
    (commit, _), *_ = Counter(record.environment.commit for record in records).most_common()
    records = [record for record in records if record.environment.commit == commit]
    lines = [["engine", "reductions", "inference", "times as fast as the step before"]]
    before = None
    for step in sorted(records, key=lambda one: (RUNGS.index(one.engine.name), len(one.reductions.requested))):
        spent = statistics.median(step.seconds)
        on = ", ".join(step.reductions.requested) or "none"
        lines.append([step.engine.name, on, _median(step), f"{before / spent:.3g}" if before else ""])
        before = spent
    return table(lines, f"{_name((step.problem.neurons, step.problem.layers))}, {source(records)}.")


def ranks() -> str | None:
    """Inference seconds on one and several ranks."""
    groups = kept("ranks").scaling
    if not groups:
        return None
    ways = list(dict.fromkeys((run.record.ranks, run.partition) for group in groups for run in group.shown))
    ways.sort(key=lambda way: (way[0], ("static", "cyclic", "rebalanced").index(way[1] or "static")))
    lines = [["network", "reductions", *(f"{ranks} {partition or ''}".strip() for ranks, partition in ways)]]
    for group in groups:
        spent = {(run.record.ranks, run.partition): _median(run.record) for run in group.shown}
        first = group.shown[0]
        size = first.problem.neurons, first.problem.layers
        lines.append([_name(size), first.reductions, *(spent.get(way, "") for way in ways)])
    records = [run.record for group in groups for run in group.runs]
    return table(lines, f"Inference by number of ranks, of one thread each, and partition. {source(records)}.")


def gpu_products() -> str | None:
    """As operations, on a GPU."""
    return operations("products")


def operations(kind: str = "operations") -> str | None:
    """How many times as fast as others our products are, geometric means at each sparsity."""
    every = kept(kind).operations
    problems = [compared for compared in compare_problems(every) if compared.operation != "model"]
    if not problems:
        return None
    levels = sorted({problem.percent for problem in problems})
    lines = [["operation", "than", *(f"{percent} %" for percent in levels)]]
    for name in dict.fromkeys(problem.operation for problem in problems):
        of_level = [
            Means([problem for problem in problems if (problem.operation, problem.percent) == (name, p)])
            for p in levels
        ]
        for kind, label in (("sparse", "the fastest sparse library"), ("dense", "the fastest dense")):
            ratios_of = [(level.get(f"{kind}.times"), level.get(f"{kind}.best")) for level in of_level]
            each = [[one for problem in level.problems if (one := problem.get(f"{kind}.times"))] for level in of_level]
            lost = [f"{sum(one < 1 for one in times)} of {len(times)}" for times in each]
            shown = zip(ratios_of, lost, strict=True)
            cells = [f"{times:.2f} ({best:.2f}), {loses}" if times else "" for (times, best), loses in shown]
            lines.append([f"`{name}`", label, *cells])
        if serial := {
            (record.comparison, record.problem.topology_sha256): statistics.median(record.seconds)
            for record in every
            if (record.operation, record.program.name) == (name, "scipy")
        }:
            times = defaultdict(list)
            for one in problems:
                if spent := serial.get((one.ours.comparison, one.problem.topology_sha256)):
                    times[one.operation, one.percent].append(spent / statistics.median(one.ours.seconds))
            cells = [f"{statistics.geometric_mean(times[name, p]):.2f}" if times[name, p] else "" for p in levels]
            lines.append([f"`{name}`", "SciPy, which has one thread", *cells])
    below = (
        "Geometric means by medians, in brackets by fastest samples; then the problems in which the other is faster."
    )
    return table(lines, f"{below} {source([compared.ours for compared in problems])}.")


def calls() -> str | None:
    """Seconds of a call of a compiled model by its inputs, and how many times as long others take."""
    networks = called(records := kept("calls"))
    if not networks:
        return None
    called_by = {call.name: call for batch in networks[0].batches for call in batch if not call.is_ours}
    names = sorted(called_by)
    lines = [["inputs of a call", "ours"]]
    lines[0] += [name + (f" ({called_by[name].precision})" if called_by[name].lower else "") for name in names]
    for ours, *others in networks[0].batches:
        times = {call.name: _times(call.ratio.median) for call in others}
        lines.append([f"{ours.batch:,}", _call(ours), *(times.get(name, "") for name in names)])
    return table(lines, f"Others in times as long as ours, {source(records.operations)}.")


def _call(ours: Call) -> str:
    """The time of a call, and whether the machine was busy."""
    return time(ours.seconds) + BUSY * bool(busy_part(ours.record))


def calls_in_full() -> str | None:
    """Calls of a compiled model and of other libraries by inputs of a call, as the report has them."""
    networks = called(records := kept("calls"))
    every = [call for network in networks for batch in network.batches for call in batch]
    return f"{CALLS.markdown(every)}\n{source(records.operations)}.\n" if every else None


def onnx() -> str | None:
    """Seconds of a call of pruned ONNX models, and how many times as long other libraries take."""
    networks = called(records := kept("onnx"))
    if not networks:
        return None
    lines = [["model", "inputs of a call", "ours", "compared with", "times as long, median", "95 % interval"]]
    for network in networks:
        for ours, *others in network.batches:
            for other in others:
                ratio, name = other.ratio, other.name + (f" ({other.lower})" if other.lower else "")
                cells = [network.name, str(ours.batch), _call(ours), name]
                lines.append([*cells, f"{ratio.median:.2f}", f"{ratio.low:.2f} to {ratio.high:.2f}"])
    threads = f"{records.operations[0].threads} threads"
    return table(lines, f"`benchmarks/onnx_models.py`, {threads}; {source(records.operations)}.")


def real() -> str | None:
    """Seconds of a call of pruned published models, how many times as long other libraries take, and the means."""
    networks = called(records := kept("real-models"))
    if not networks:
        return None
    every = [(*network.name.rsplit("-", 1), *batch) for network in networks for batch in network.batches]
    wrong = {name for _, _, ours, *_ in every for name in ours.record.program.notes.get("wrong", {})}
    names = sorted({other.name for _, _, _, *others in every for other in others} | wrong)
    lines, found = [["model", "zeros", "ours", *names]], defaultdict(lambda: defaultdict(list))
    for model, percent, ours, *others in every:
        cells = dict.fromkeys(names, "")
        for other in others:
            ratio, lower = other.ratio, f"; {other.lower}" if other.lower else ""
            cells[other.name] = f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f}){lower}"
            found[percent][other.name].append(ratio.median)
        for name, (precision, error) in ours.record.program.notes.get("wrong", {}).items():
            # No finite value is off: the others are wrong.
            cells[name] = f"not right: {precision}, {f'error {PERCENT.write(error)}' if error else 'not finite'}"
        lines.append([model, f"{percent} %", _call(ours), *cells.values()])
    for percent, of_level in sorted(found.items()):
        means = [
            f"{statistics.geometric_mean(of_level[name]):.2f} (n = {len(of_level[name])})" if of_level[name] else ""
            for name in names
        ]
        lines.append(["geometric mean", f"{percent} %", "", *means])
    below = (
        f"One input a call, {records.operations[0].threads} threads. Others in times as long as ours: the median over "
        "pairs of turns (its 95 % interval); in the last rows the geometric mean over n models. All compute "
        "in float32 unless a cell says otherwise, with the error of the outputs; those that are off by more than their "
        "precision explains have no time. An empty cell: the program does not run the model. "
    )
    return table(lines, f"{below}{source(records.operations)}.")


def profiles() -> str | None:
    """Where the time goes, in the three published models that gain least over ONNX Runtime."""
    networks = called(records := kept("real-models"))
    gains = {}
    for network in networks:
        for ours, *others in network.batches:
            ratio = next((other.ratio.median for other in others if other.name == "onnxruntime"), math.inf)
            model, percent = network.name.rsplit("-", 1)
            gains[model] = min(gains.get(model, (math.inf, "", ours)), (ratio, percent, ours), key=lambda gain: gain[0])
    if not gains:
        return None
    lines = [["model", "zeros", "times as long: onnxruntime", *PARTS, "other nodes"]]
    for model, (ratio, percent, ours) in sorted(gains.items(), key=lambda gain: gain[1][0])[:LEAST_GAINS]:
        profile = ours.record.program.notes["profile"]
        whole = sum(profile.values())
        parts = [sum(profile.get(kind, 0.0) for kind in kinds) / whole for kinds in PARTS.values()]
        shares = [f"{100 * part:.1f} %" for part in (*parts, 1 - sum(parts))]
        lines.append([model, f"{percent} %", f"{ratio:.2f}", *shares])
    return table(lines, f"Shares of the time of all nodes, by ONNX Runtime's profiler. {source(records.operations)}.")


def sessions() -> str | None:
    """What calls of a model and of another session take in turns, in times of both alone."""
    records = kept("sessions").operations
    if not records:
        return None
    lines = [["our model", *SESSIONS]]
    for name in sorted({record.problem.network for record in records}):
        found = {record.program.name: record.seconds for record in records if record.problem.network == name}
        calls = records[0].program.notes["calls"]  # of each model in a sample
        ours, theirs, *turns = (found[way] for way in SESSIONS.values())
        both = [a + b for a, b in zip(ours, theirs, strict=True)]
        cells = [f"{one.median:.2f} ({one.low:.2f} to {one.high:.2f})" for one in (ratios(both, way) for way in turns)]
        lines.append([name, time(statistics.median(ours) / calls), time(statistics.median(theirs) / calls), *cells])
    return table(lines, f"`benchmarks/two_sessions.py`, {records[0].threads} threads; {source(records)}.")


def accuracy() -> str | None:
    """Top-1 accuracy of small models by how they are pruned, time of a call and memory, next to ONNX Runtime."""
    records = [operation for operation in kept("accuracy").operations if operation.accuracy]
    if not records:
        return None
    found: dict[tuple, dict] = defaultdict(dict)
    for made in sorted(records, key=lambda record: record.created):
        found[made.problem.network, made.problem.layer][made.problem.batch_columns, made.program.kind == "ours"] = made
    batches = sorted({batch for each in found.values() for batch, _ in each})
    lines = [["model", "weights", "nonzero", "top-1 accuracy"]]
    lines[0] += [f"{what}: ours, ONNX Runtime" for what in (*map(_inputs, batches), "memory of the weights")]
    for (network, kind), each in found.items():
        first = each[batches[0], True]
        whole = sum(map(sum, first.accuracy.confusion))
        cells = [
            network,
            kind,
            f"{100 * (1 - first.problem.sparsity):.1f} %",
            f"{100 * first.accuracy.top1 / whole:.1f} %",
        ]
        for batch in batches:
            both = [seconds(statistics.median(each[batch, ours].seconds)) for ours in (True, False)]
            times = ratios(each[batch, True].seconds, each[batch, False].seconds).median
            cells.append(f"{', '.join(both)} ({times:.2f} times as fast)")
        largest = max(each[batch, True].matrix_bytes for batch in batches), each[batches[0], False].matrix_bytes
        lines.append([*cells, ", ".join(f"{nbytes / 2**20:.2f} MiB" for nbytes in largest)])
    return table(lines, f"{whole:,} images that were held out. {source(records)}.")


def _inputs(count: int) -> str:
    return f"{count} image{'s' * (count > 1)}"


def lead() -> str | None:
    """The README's first sentences: whom it is for, with a number for each."""
    networks, largest = called(kept("calls")), runs().get(((65536, 1920), "all"))
    if not networks or not largest:
        return None
    ours, *others = networks[0].batches[0]
    times = next(_ratio(call.ratio) for call in others if call.name == "onnxruntime")
    told = ""
    if dense := called(kept("dense-calls")):
        without = next(_ratio(call.ratio) for call in dense[0].batches[0] if call.name == "onnxruntime")
        where = {machine(each.newest) for each in (networks[0], dense[0])}
        told = f", and {without} where none of its values is zero" + f" (on {machine(dense[0].newest)})" * (
            len(where) > 1
        )
    sentences = (
        "spdnn runs pruned and sparse neural networks exactly: for engineers who serve such networks, and for",
        "researchers who measure sparse kernels. On two CPU cores, a 95 % pruned 784-2048-2048-10 MLP answers one",
        f"input, most of it zeros, in {1e6 * ours.seconds:.0f} µs. Dense ONNX Runtime takes {times} times as",
        f"long{told}.",
        "The largest network of the",
        "[IEEE HPEC Sparse DNN Challenge](https://graphchallenge.mit.edu/), 65,536 neurons x 1,920 layers, takes",
        f"{seconds(largest.time_to_solution.seconds)} from the start of the command to 60,000 verified results.",
    )
    return textwrap.fill(" ".join(sentences), 120) + "\n"


def _ratio(found: Interval) -> str:
    """A ratio and its interval."""
    return f"{found.median:.1f} ({found.low:.1f} to {found.high:.1f})"


def scales() -> str | None:
    """Two of the README's points: threads and ranks, and a GPU."""
    by_threads = {record.threads: statistics.median(record.seconds) for record in kept("threads").records}
    h100 = next((networks for name, networks in on_gpus().items() if "H100" in name), {})
    largest = h100.get((65536, 1920), {}).get(",".join(KINDS["all"]))
    if len(by_threads) < 2 or largest is None:
        return None
    times, spent = by_threads[1] / by_threads[2], seconds(statistics.median(largest.seconds))
    points = (
        f"**Scales**: [two threads are {times:.2f} times as fast as one](docs/results.md#threads). MPI ranks and Slurm "
        "jobs give the same bits; more than one node is not measured. Weights are streamed within a memory limit.",
        f"**On a GPU**: the largest network takes {spent} of inference on one H100, and "
        f"{seconds(largest.time_to_solution.seconds)} from the start of the command to 60,000 verified results "
        "([all measurements](docs/results.md#one-gpu)).",
    )
    filled = (textwrap.fill(f"* {point}", 120, subsequent_indent="  ") for point in points)
    return "\n".join(filled) + "\n"


def shown() -> str | None:
    """The picture of the twelve networks, where there is something of ours to show."""
    if not runs():
        return None
    most = published()[1]["any"].removesuffix(", exact").removeprefix("best published, ")
    below = f"Ours on {cores(runs().values())}; the best published exact results on one GPU and on {most}. "
    below += "The next table says what their times include."
    return f"![TeraEdges/s of each of the twelve networks](networks.svg)\n\n{below}\n"


MADE = (
    first,
    twelve,
    solution,
    text,
    limit,
    peers,
    ladder,
    unstructured,
    threads,
    ranks,
    spgemm,
    plans,
    published_models,
    predicted_scaling,
    streamed,
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
    gpu_ladder,
    gpu_products,
    gpu_memory,
    gpu_schedules,
    example,
)
TABLES = {make.__name__: make for make in MADE} | {"picture": shown, "lead": lead, "scales": scales}


def rendered(page: str) -> str:
    """The text of a page with its tables as records have them."""

    def made(match: re.Match) -> str:
        text = TABLES[match[2]]()
        return match[0] if text is None else f"{match[1]}\n{text}\n{match[4]}"

    return BLOCK.sub(made, (ROOT / page).read_text(encoding="utf-8"))


def draw(figure: str, target: Path) -> None:
    """A figure of the report, of the twelve."""
    words = ["report", *files_of_the_twelve(), "--figure", figure, "-o", target, "--width", "9in", "--style", "page"]
    if main([*map(str, words)]):
        sys.exit(f"{figure} was not drawn")


def command(*words: object, place: Path = ROOT) -> None:
    """Run a module in the folder `place`, so that no record has a path of this machine."""
    subprocess.run([sys.executable, "-m", *map(str, words)], check=True, cwd=place)


def run_twelve(kind: str, place: Path) -> None:
    for problem in challenge.PROBLEMS:
        repeats = 1 if kind == "dead" and problem.edges * challenge.INPUTS > LONG else 5
        words = ["challenge", "--neurons", problem.neurons, "--layers", problem.layers, "--inputs", "mnist"]
        words += ["--reductions", kind, "--repeats", repeats, "--no-cache"]
        command("spdnn", *words, "--record", place / f"{problem.neurons}-{problem.layers}.json")


def run_text(place: Path) -> None:
    """Networks whose layers are read from official text, which the formula writes first: for the read rate."""
    for neurons, layers in TEXTS:
        network, folder, rows = f"{neurons}-{layers}.safetensors", f"neuron{neurons}-{layers}", f"mnist-{neurons}"
        size = ["--neurons", neurons, "--layers", layers]
        command("spdnn", "network", "make", "radixnet", *size, "-o", network, place=place)
        command("spdnn", "network", "export", network, folder, place=place)
        command("spdnn", "inputs", "make", "mnist", "--neurons", neurons, "-o", f"{rows}.safetensors", place=place)
        words = ["--network", folder, "--inputs", f"{rows}.safetensors", "--reductions", "all", "--repeats", 5]
        command("spdnn", "infer", *words, "--record", f"{neurons}-{layers}.json", place=place)
        shutil.rmtree(place / folder)


def run_peers(place: Path) -> None:
    command("spdnn", "bench", "kernels", "--seconds", 8, "--records", place)
    whole = ["--neurons", 1024, "--layers", 120, "--inputs", "mnist", "--repeats", 5]
    command("spdnn", "bench", "kernels", *whole, "--records", place)


def run_workflow(preset: str | None, place: Path, settings: Sequence[str] = ()) -> None:
    files: list[str | Path] = ["--snakefile", ROOT / "workflow/Snakefile"]
    if preset:
        shutil.copy(ROOT / "config" / preset, place)
        files += ["--configfile", preset]
    command("snakemake", "--cores", "all", *files, *(["--config", *settings] if settings else []), place=place)


def run_unstructured(place: Path) -> None:
    """With all reductions and with none in turns, for what a machine does changes from minute to minute."""
    for neurons in (1024, 4096, 16384):
        network, rows = f"unstructured-{neurons}-24.safetensors", f"digits-{neurons}.safetensors"
        command(
            "spdnn", "network", "make", "unstructured", "--neurons", neurons, "--layers", 24, "-o", network, place=place
        )
        command("spdnn", "inputs", "make", "digits", "--neurons", neurons, "--count", 6000, "-o", rows, place=place)
        for turn in range(5):
            for kind in ("all", "none"):
                words = ["--network", network, "--inputs", rows, "--reductions", kind, "--record"]
                command("spdnn", "infer", *words, f"{neurons}-{kind}-{turn}.json", place=place)


def run_threads(place: Path) -> None:
    whole = ["--neurons", 16384, "--layers", 120, "--inputs", "mnist", "--count", 30000, "--reductions", "dead"]
    for count in (1, usable_cores()):
        command("spdnn", "challenge", *whole, "--repeats", 5, "--threads", count, "--record", place / f"{count}.json")


def run_spgemm(place: Path) -> None:
    """One thread of SciPy is the serial reference; then threads, and ranks of one thread each."""
    for neurons in (1024, 4096):
        whole = ["challenge", "--neurons", neurons, "--layers", 120, "--inputs", "mnist", "--reductions", "dead"]
        for engine, threads, count in (("scipy", 1, 1), ("spgemm", 1, 1), ("spgemm", 2, 1), ("spgemm", 1, 2)):
            words = [*whole, "--engine", engine, "--threads", threads, "--no-cache"]
            record = place / f"{neurons}-{engine}-{threads}-{count}.json"
            if count == 1:
                command("spdnn", *words, "--record", record)
            else:
                python = Path(sys.executable)
                launch = [python.parent / "mpiexec", "-n", count, python, "-P", "-m", "spdnn", *words]
                subprocess.run([*map(str, launch), "--record", str(record)], check=True, cwd=ROOT)


def run_reference(place: Path) -> None:
    """The folder of the program is in SPDNN_CHALLENGE_REFERENCE."""
    subprocess.run([sys.executable, ROOT / "benchmarks/octave_reference.py", "-o", place], check=True)


def run_operations(place: Path) -> None:
    sparse = ["--sparsity", "80,90,95,98", "--libraries", "mkl,scipy,numpy,blas"]
    whole = ["--models", "transformer-paper", "--models", "mobilenet-paper"]
    command("spdnn", "bench", "sets", "--set", "a", *sparse, *whole, "-o", place)


def run_calls(place: Path, zeros: float = 0.8) -> None:
    network = "784-2048-2048-10.safetensors"
    subprocess.run([sys.executable, ROOT / "benchmarks/latency.py", network], check=True, cwd=place)
    command(
        "spdnn", "bench", "model", network, "--zeros", zeros, "--batches", "1,8,64,512,4096", "-o", "calls", place=place
    )


def run_onnx(place: Path) -> None:
    subprocess.run([sys.executable, ROOT / "benchmarks/onnx_models.py", place], check=True)
    runtimes = ("onnxruntime", "openvino", "openvino-f32", "mnn", "deepsparse")
    here = [name for name in runtimes if PROGRAMS["network"][name].missing() is None]
    for path in sorted(place.glob("*.onnx")):
        # More than one input beside ONNX Runtime alone: that takes long enough.
        several = 8 if "encoder" in path.name else 16
        for batch, against in ((1, ",".join(here)), (several, "onnxruntime")):
            words = ["--against", against, "--batches", batch, "-o", f"calls-{path.stem}-{batch}"]
            command("spdnn", "bench", "model", path.name, *words, place=place)


def run_real_models(place: Path) -> None:
    subprocess.run([sys.executable, ROOT / "benchmarks/real_models.py", ".", "-o", "records"], check=True, cwd=place)


def run_sessions(place: Path) -> None:
    subprocess.run([sys.executable, ROOT / "benchmarks/two_sessions.py", "-o", "records"], check=True, cwd=place)


def run_accuracy(place: Path) -> None:
    """By the Python of the environment that has PyTorch (make test-torch makes it)."""
    python = ROOT / ".venv-torch/bin/python"
    subprocess.run([python, ROOT / "benchmarks/accuracy.py", "."], check=True, cwd=place)


RUNS: dict[str, Callable[[Path], None]] = {
    "twelve": partial(run_twelve, "all"),
    "like-for-like": partial(run_twelve, "dead"),
    "text": run_text,
    "peers": run_peers,
    "ladder": partial(run_workflow, "ladder.yaml"),
    "unstructured": run_unstructured,
    "threads": run_threads,
    "ranks": partial(run_workflow, "strong.yaml"),
    "spgemm": run_spgemm,
    "reference": run_reference,
    "streamed": partial(run_workflow, None, settings=STREAMED),
    "operations": run_operations,
    "calls": run_calls,
    "dense-calls": partial(run_calls, zeros=0),
    "onnx": run_onnx,
    "real-models": run_real_models,
    "sessions": run_sessions,
    "accuracy": run_accuracy,
}


def measure(name: str, kinds: Sequence[str]) -> None:
    """Run what the tables of these kinds show, and write the records to results/measured/`name`/KIND.jsonl."""
    folder = ROOT / "results/measured" / name
    folder.mkdir(parents=True, exist_ok=True)
    for kind in kinds or RUNS:
        with tempfile.TemporaryDirectory() as place:
            RUNS[kind](Path(place))
            lines = []
            for path in sorted(Path(place).rglob("*.json*")):
                text = path.read_text(encoding="utf-8")
                whole = [text] if path.suffix == ".json" else text.splitlines()
                lines += [
                    " ".join(paragraph.split("\n")).strip() + "\n" for paragraph in whole if RECORD.search(paragraph)
                ]
        write_text(folder / f"{kind}.jsonl", "".join(lines))


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2], sys.argv[3:])
    try:
        pages = {each: rendered(each) for each in PAGES}
    except InputError as error:
        sys.exit(f"measured: {error}")
    for each, whole in pages.items():
        (ROOT / each).write_text(whole, encoding="utf-8")
    for each, figure in PICTURES.items():
        draw(figure, ROOT / each)
