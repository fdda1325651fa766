"""Run records as tables and figures print them, and the keys by which several runs are grouped."""

import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

import numpy as np

from spdnn.core import challenge
from spdnn.core.shown import plural, printable
from spdnn.core.table import PERCENT, RATE, SECONDS, Column, Number, Phrase, Rows, Styled, Table, between, mark
from spdnn.engines.reductions.registry import REDUCTIONS
from spdnn.engines.taskgraph.decomposition import Decomposition
from spdnn.engines.taskgraph.timeline import Span
from spdnn.report.common import words
from spdnn.runs.calibration import decomposition_of, timeline_of
from spdnn.runs.records.notes import Notes
from spdnn.runs.records.result import ProblemRecord
from spdnn.runs.records.run_record import RunRecord, busy_part
from spdnn.runs.records.samples import TimeToSolution, WorkPerSecond

Entry, Key = TypeVar("Entry"), TypeVar("Key", bound=Hashable)
NotesType = TypeVar("NotesType", bound=Notes)
LIKE_FOR_LIKE = ["dead"]  # what the fastest exact published systems leave out as well
MOST_RUNS = 150  # in a table of every run
BUSY_MARK, OLDER_MARK = Styled("busy machine", "mark busy"), mark("older code")
LISTS = ("pass_log", "layer_rows", "layer_edges", "timeline", "stages", "groups")  # notes that figures show


@dataclass(eq=False)
class RunRow:
    """A run record as tables and figures print it: texts are printable, seconds are medians over the repeats.

    Attributes:
        number: of the record on the page; None: the page does not have the record.
        placed: whether the setting names machine and day.
        older: whether it ran on older code than the newest record of its machine.
        name, chips: a short name, and what else tells the run from the others of the page (`name_runs`).
    """

    record: RunRecord
    number: int | None
    placed: bool
    older: bool = False
    name: str = ""
    chips: list[str] = field(default_factory=list)

    @property
    def short(self) -> str:
        """Name and chips as one text."""
        return ", ".join([self.name, *self.chips])

    @property
    def problem(self) -> ProblemRecord:
        return self.record.problem

    @property
    def case(self) -> str:
        return printable(self.record.case)

    @property
    def engine(self) -> str:
        return printable(self.record.engine.name)

    @property
    def machine(self) -> str | None:
        """Machine and day; None unless they belong to the setting."""
        return f"{words.machine(self.record.environment)}, {self.record.created[:10]}" if self.placed else None

    @cached_property
    def official_size(self) -> tuple[int, int] | None:
        """(neurons, layers) when the network is one of the twelve, whatever its inputs."""
        problem = self.problem
        size = problem.neurons, problem.layers
        official = challenge.OfficialProblem(*size)
        if official not in challenge.PROBLEMS or problem.edges != official.edges:
            return None
        return size if problem.official or by_formula(problem) else None

    @property
    def inputs(self) -> str:
        """The inputs in a few words, saying when they are not the challenge's 60,000."""
        count, source = self.problem.input_count, self.problem.inputs.get("source")
        if self.problem.official:
            return f"official{'' if self.comparable else ', other count'}, {count:,}"
        return f"{printable(source, 40) if isinstance(source, str) else 'own'}, {count:,}"

    @property
    def comparable(self) -> bool:
        """Whether network, inputs and their number are the challenge's."""
        return bool(self.problem.official) and self.problem.input_count == challenge.INPUTS

    @property
    def hardware(self) -> str:
        return words.device(self.record.environment)

    @property
    def partition(self) -> str | None:
        return self.record.distribution.partition if self.record.ranks > 1 else None

    @property
    def threads_text(self) -> str:
        """Threads, ranks and partition."""
        text = plural(self.record.threads, "thread")
        return text if self.record.ranks == 1 else f"{self.record.ranks} ranks ({self.partition}) of {text}"

    @cached_property
    def decomposition(self) -> Decomposition | None:
        """Of a run of the task graph; None of any other."""
        return decomposition_of(self.record)

    @cached_property
    def timeline(self) -> list[Span] | None:
        """What tasks of the task graph did when; None where the record has no sound timeline."""
        return timeline_of(self.record)

    @property
    def cut(self) -> str:
        """The schedule of a run of the task graph and its devices; empty for any other."""
        decomposition = self.decomposition
        return f"{decomposition.schedule}, {plural(decomposition.devices, 'device')}" if decomposition else ""

    @property
    def device_memory(self) -> int | None:
        """Bytes that a run of the task graph was promised of each device; None: what is free."""
        return self.record.request.settings.get("device_memory") if self.record.request else None

    @property
    def reductions(self) -> str:
        names = self.record.reductions.requested
        return ", ".join(reduction.label for reduction in REDUCTIONS.values() if reduction.name in names) or "none"

    @property
    def reductions_in_short(self) -> str:
        count = len(self.record.reductions.requested)
        return {0: "no reductions", len(REDUCTIONS): "all reductions"}.get(count, self.reductions)

    @property
    def reduced(self) -> bool:
        return bool(self.record.reductions.requested)

    @property
    def like_for_like(self) -> bool:
        return self.record.reductions.requested == LIKE_FOR_LIKE

    @property
    def busy(self) -> float | None:
        return busy_part(self.record)

    @property
    def includes(self) -> str:
        """What the inference seconds include, in a few words."""
        return self.record.span if self.record.ranks == 1 else f"{self.record.span}; {words.IN_SHORT}"

    @property
    def rate(self) -> WorkPerSecond:
        return self.record.edges_per_second

    @cached_property
    def read_seconds(self) -> float:
        return statistics.median(self.record.read_seconds)

    @cached_property
    def prepare_seconds(self) -> float:
        return statistics.median(self.record.prepare_seconds)

    @cached_property
    def inference_seconds(self) -> float:
        return statistics.median(self.record.seconds)

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of the interval of the inference seconds; they follow from those of the rate."""
        rate, middle = self.rate, self.inference_seconds
        low, high = (middle * rate.median / end if end else middle for end in (rate.high, rate.low))
        return low, high

    @property
    def inputs_per_second(self) -> float:
        return self.problem.input_count / self.inference_seconds

    @property
    def solution(self) -> TimeToSolution | None:
        """The time to solution; None where the record has none."""
        time = self.record.time_to_solution
        return time if time and time.seconds else None

    @property
    def repeats(self) -> int:
        return len(self.record.seconds)

    @property
    def computed_rate(self) -> float:
        """Edges really computed in a second."""
        return self.record.result.edges_computed / self.inference_seconds

    @property
    def computed_share(self) -> float:
        return self.record.result.edges_computed / self.problem.work if self.problem.work else 1.0

    @property
    def network_text(self) -> str:
        return words.described(self.problem.network)

    @property
    def notes_text(self) -> str:
        engine = self.record.engine
        notes = {key: value for key, value in engine.noted.items() if key not in LISTS}
        return words.described({"source": engine.name, **notes})

    def notes(self, kind: type[NotesType]) -> NotesType:
        """The notes of the engine, if they are of this type; else none."""
        notes = self.record.engine.notes
        return notes if isinstance(notes, kind) else kind()

    @property
    def setting(self) -> str:
        """Engine, threads and reductions; with the machine, where runs are placed."""
        return ", ".join(filter(None, (self.engine, self.threads_text, self.reductions_in_short, self.machine)))

    @property
    def problem_key(self) -> tuple:
        """The same for two runs of the same network, depth and inputs."""
        problem = self.problem
        return problem.network_identity, problem.layers, problem.inputs_sha256, problem.input_count

    @property
    def age(self) -> tuple:
        """A sorting key under which the latest of several runs is the last."""
        return self.record.created, self.case


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
        return f"{words.network(run.problem)}, {run.network_text}; {run.inputs}"
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
