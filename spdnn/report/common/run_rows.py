"""Run records as tables and figures print them, and the keys by which several runs are grouped."""

from collections.abc import Callable, Hashable, Iterable, Sequence
from statistics import median
from typing import TypeVar

import numpy as np

from spdnn.core import challenge
from spdnn.core.shown import plural, printable
from spdnn.core.statistics import Interval
from spdnn.core.table import PERCENT, RATE, SECONDS, Column, Number, Phrase, Rows, Styled, Table, between, mark
from spdnn.engines.reductions.registry import REDUCTIONS
from spdnn.report.common import words
from spdnn.runs.records.notes import Notes, TaskgraphNotes
from spdnn.runs.records.result import ProblemRecord
from spdnn.runs.records.run_record import RunRecord, busy_part

Entry, Key = TypeVar("Entry"), TypeVar("Key", bound=Hashable)
NotesType = TypeVar("NotesType", bound=Notes)
LIKE_FOR_LIKE = ["dead"]  # what the fastest exact published systems leave out as well
MOST_RUNS = 150  # in a table of every run
BUSY_MARK, OLDER_MARK = Styled("busy machine", "mark busy"), mark("older code")


class RunRow:
    """A run record as tables and figures print it: texts are printable, seconds are medians over the repeats.

    Attributes:
        number: of the record on the page; None: the page does not have the record.
        older: whether it ran on older code than the newest record of its machine.
        name, chips: a short name, and what else tells the run from the others of the page (`name_runs`).
        official_size: (neurons, layers) when the network is one of the twelve, whatever its inputs.
        comparable: whether network, inputs and their number are the challenge's.
        inputs: in a few words, saying when they are not the challenge's 60,000.
        machine: machine and day; None unless they belong to the setting.
        setting: engine, threads and reductions; with the machine, where it belongs to it.
        problem_key: the same for two runs of the same network, depth and inputs.
        age: a sorting key under which the latest of several runs is the last.
        includes: what the inference seconds include.
        device_memory: bytes that a run of the task graph was promised of each device; None: what is free.
        computed_rate: edges really computed in a second; computed_share: of all edges.
    """

    def __init__(self, record: RunRecord, number: int | None = None, placed: bool = False, older: bool = False) -> None:
        """`placed`: whether machine and day belong to the setting."""
        self.record, self.number, self.older = record, number, older
        self.problem = problem = record.problem
        self.name, self.chips = "", list[str]()
        self.case, self.engine = printable(record.case), printable(record.engine.name)
        # Network and inputs.
        self.official_size = _official_size(problem)
        self.comparable = bool(problem.official) and problem.input_count == challenge.INPUTS
        source = problem.inputs.get("source")
        origin = printable(source, 40) if isinstance(source, str) else "own"
        if problem.official:
            origin = "official" if self.comparable else "official, other count"
        self.inputs = f"{origin}, {problem.input_count:,}"
        self.problem_key = problem.network_identity, problem.layers, problem.inputs_sha256, problem.input_count
        # The setting.
        self.partition = record.distribution.partition if record.distribution else None
        self.threads_text = threads = plural(record.threads, "thread")
        if self.partition:
            self.threads_text = f"{record.ranks} ranks ({self.partition}) of {threads}"
        names = record.reductions.requested
        self.reduced, self.like_for_like = bool(names), names == LIKE_FOR_LIKE
        self.reductions = ", ".join(kind.label for kind in REDUCTIONS.values() if kind.name in names) or "none"
        few = {0: "no reductions", len(REDUCTIONS): "all reductions"}
        self.reductions_in_short = few.get(len(names), self.reductions)
        self.machine = f"{words.machine(record.environment)}, {record.created[:10]}" if placed else None
        setting = (self.engine, self.threads_text, self.reductions_in_short, self.machine)
        self.setting = ", ".join(filter(None, setting))
        self.device_memory = record.request.settings.get("device_memory") if record.request else None
        # What was measured.
        self.busy, self.age = busy_part(record), (record.created, self.case)
        self.includes = record.span if record.ranks == 1 else f"{record.span}; {words.IN_SHORT}"
        self.solution, self.repeats = record.time_to_solution, len(record.seconds)
        self.read_seconds, self.prepare_seconds = map(median, (record.read_seconds, record.prepare_seconds))
        self.inference_seconds = seconds = median(record.seconds)
        self.inputs_per_second = problem.input_count / seconds
        self.computed_rate = record.result.edges_needed / seconds
        self.computed_share = record.result.edges_needed / problem.work if problem.work else 1.0

    @property
    def short(self) -> str:
        """Name and chips as one text."""
        return ", ".join([self.name, *self.chips])

    @property
    def cut(self) -> str:
        """The schedule of a run of the task graph and its devices; empty for any other."""
        notes = self.notes(TaskgraphNotes)
        known = notes.schedule and notes.devices
        return f"{printable(notes.schedule)}, {plural(notes.devices, 'device')}" if known else ""

    @property
    def rate(self) -> Interval:
        return self.record.edges_per_second

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval of the inference seconds; they follow from those of the rate."""
        rate, middle = self.rate, self.inference_seconds
        low, high = (middle * rate.median / end if end else middle for end in (rate.high, rate.low))
        return low, high

    def notes(self, kind: type[NotesType]) -> NotesType:
        """The notes of the engine, if they are of this type; else none."""
        notes = self.record.engine.notes
        return notes if isinstance(notes, kind) else kind()


def run_name(run: RunRow) -> Phrase:
    """The short name of a run as a table has it, with what tells it from others and what a reader must know of it."""
    marks = [Styled(chip, "chip") for chip in run.chips] + [BUSY_MARK] * bool(run.busy) + [OLDER_MARK] * run.older
    return Styled(run.name, "once"), *(part for mark in marks for part in (" ", mark))


def interval(run: RunRow) -> Phrase:
    """The interval of the median of the inference seconds."""
    return between(*run.ends, SECONDS) if run.rate.resamples else "measured once"


def _inputs(run: RunRow) -> Phrase:
    """The inputs of a run; the network too, where it is none of the twelve."""
    if not run.official_size:
        return f"{words.network(run.problem)}, {words.described(run.problem.network)}; {run.inputs}"
    other = "another number of inputs" if run.problem.official else "not the official inputs"
    return run.inputs if run.comparable else (run.inputs, " ", mark(other))


def _solution(run: RunRow) -> Phrase:
    """What a time to solution is as a rate."""
    if run.solution is None:
        return None
    cached = (" ", mark("inputs read from the cache")) if run.solution.cached else ""
    return Number(run.problem.work / run.solution.seconds, RATE), " ", RATE, cached


RUNS = Table(
    "Every run",
    [
        Column("Network", run_name),
        Column("Engine", lambda run: f"{run.engine}, {run.threads_text}", below=lambda run: run.machine),
        Column("Inputs", _inputs),
        Column("Reductions on", lambda run: run.reductions),
        Column(
            "Median", lambda run: run.rate.median, RATE,
            below=lambda run: between(run.rate.low, run.rate.high, RATE) if run.rate.resamples else "measured once",
        ),
        Column("Inference", lambda run: run.inference_seconds, SECONDS),
        Column("To solution", lambda run: run.solution and run.solution.seconds, SECONDS, below=_solution),
        Column(
            "Really computed", lambda run: run.computed_rate, RATE,
            below=lambda run: (
                Number(run.computed_share, PERCENT), " of the edges",
                ": inputs are padded to whole tiles" if run.computed_share > 1 else "",
            ),
        ),
        Column("Time includes", lambda run: run.includes),
    ],
    "Under each median, its 95 % interval",
    record=lambda run: run.number,
    kind=lambda run: "ours",
)  # fmt: skip


def every_run(title: str, runs: Sequence[RunRow], name: str = "") -> Rows:
    """The table of these runs; of very many, the latest of every case and setting before the second of any."""
    shown = fair(runs, MOST_RUNS, lambda run: (run.case, run.setting), lambda run: run.record.created)
    more = f"; {len(runs) - MOST_RUNS:,} more are in the records" if len(runs) > MOST_RUNS else ""
    return RUNS.of(shown, title=f"{title}: {len(runs):,}{more}", name=name, most=MOST_RUNS)


def name_runs(runs: Sequence[RunRow]) -> None:
    """Give each run a short name, and as its chips what differs among the runs.

    Runs of the same settings differ by their case, or else by the time at which they were made. The long name stays in
    the record.
    """
    chips = [_settings(run) for run in runs]
    # A chip says only what tells runs apart: what all of them share is left out.
    differ = [name for name in chips[0] if len({chip[name] for chip in chips}) > 1] if chips else []
    for run, settings in zip(runs, chips, strict=True):
        size = run.official_size
        run.name = f"{size[0]:,} × {size[1]:,}" if size else printable(run.case.split(".")[0], 40)
        run.chips = [settings[name] for name in differ if settings[name]]
    # Names may be equal even so: the case, or else the time, tells such runs apart.
    for members in group_by(runs, lambda run: run.short).values():
        if len(members) > 1:
            cases = len({run.case for run in members}) > 1
            for run in members:
                created = run.record.created.replace("T", " ").removesuffix("Z")
                run.chips.append(printable(run.case, 40) if cases else created)


def _settings(run: RunRow) -> dict[str, str]:
    """What can differ between runs of one network, in words."""
    return {
        "inputs": run.inputs,
        "engine": run.engine,
        "cut": run.cut,
        "reductions": "same work" if run.like_for_like and run.official_size else run.reductions_in_short,
        "threads": run.threads_text,
        "machine": words.machine(run.record.environment),
    }


def _official_size(problem: ProblemRecord) -> tuple[int, int] | None:
    size = problem.neurons, problem.layers
    official = challenge.OfficialProblem(*size)
    same = official in challenge.PROBLEMS and problem.edges == official.edges
    return size if same and (problem.official or by_formula(problem)) else None


def by_formula(problem: ProblemRecord) -> bool:
    """Whether the network is what `spdnn challenge` makes for its width."""
    if problem.neurons not in challenge.WIDTHS:
        return False
    # A record holds the bias as it was rounded to float32.
    bias = float(np.float32(challenge.BIAS[problem.neurons]))
    formula = {"source": "radixnet", "seed": challenge.SEED, "bias": bias, "ymax": challenge.YMAX}
    return all(problem.network.get(key) == value for key, value in formula.items())


def group_by(entries: Iterable[Entry], key: Callable[[Entry], Key | None]) -> dict[Key, list[Entry]]:
    """The entries by `key`, groups in the order of their first; those whose key is None are left out."""
    groups: dict[Key, list[Entry]] = {}
    for entry in entries:
        if (value := key(entry)) is not None:
            groups.setdefault(value, []).append(entry)
    return groups


def fair(entries: Sequence[Entry], most: int, setting, age) -> list[Entry]:
    """At most `most` of the entries, in their order: of every setting the latest, before the second of any.

    Args:
        setting: the group of an entry.
        age: a sorting key of the entries of one setting, the latest last.
    """
    if len(entries) <= most:
        return list(entries)
    # The number of its round is the first sorting key, so that no setting is crowded out by one with many runs.
    rounds = []
    for members in group_by(range(len(entries)), lambda index: (setting(entries[index]),)).values():
        rounds += enumerate(sorted(members, key=lambda index: (age(entries[index]), index), reverse=True))
    return [entries[index] for index in sorted(index for _, index in sorted(rounds)[:most])]


def latest(runs: Iterable[RunRow], key: Callable[[RunRow], Key]) -> list[RunRow]:
    """The latest run of each key, in the order of the keys."""
    newest = {key(run): run for run in sorted(runs, key=lambda run: run.age)}
    return [newest[key] for key in sorted(newest)]
