"""The classes of a run record and a verdict: docstrings have every field with its unit, and `claims` what must hold.

A file follows its class, or is refused (`spdnn.records.files`). A record whose verdict did not pass, or whose numbers
contradict each other or its own samples, is refused too. So a report can only show what was verified and measured.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from statistics import median
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType

from spdnn.common.errors import InputError
from spdnn.common.statistics import CONFIDENCE, interval
from spdnn.common.validation import shortened
from spdnn.problem import challenge
from spdnn.problem.request import RunRequest
from spdnn.records import limits, notes
from spdnn.records.fields import (
    Amount,
    Case,
    Claim,
    Count,
    Digest,
    First,
    Identity,
    Imbalance,
    Label,
    Part,
    Positive,
    Rate,
    Record,
    Samples,
    Seconds,
    Time,
    Unique,
    Whole,
    Word,
    Work,
    check_unique,
    column,
    or_none,
)  # fmt: skip
from spdnn.records.limits import Limit, Machine

SCHEMA, VERSION = "spdnn-record", 1
VERDICT = "spdnn-verdict"
TOLERANCE = 1e-6  # relative: between a stored figure and the one that follows from others
CLOCK = 1e-9  # seconds: parts of a time were rounded apart from it
PER_REPEAT = ("inference_seconds", "waiting_seconds", "communication_seconds")
# Rows that an engine may compute beyond the inputs: a batch holds at least one input and pads it to whole tiles of at
# most 64, and up to 1000 batches a rank that are no whole tiles are allowed for. None passes a layer twice.
TILE, BATCHES = 64, 1000


class Truth(Record):
    """What an output was compared with.

    Attributes:
        kind: official, the challenge's; oracle, float64; or file, categories alone.
        inputs: inputs of the run.
        checked: inputs compared: all of them, or a seeded sample.
        seed: of the sample; null when all inputs were compared.
    """

    kind: Literal["official", "oracle", "file"]
    source: str
    inputs: Count
    checked: Count
    seed: Whole | None


class Difference(Record):
    """Inputs on which run and truth differ.

    Attributes:
        first: 1-based inputs, ascending, at most 10.
    """

    count: Count
    first: First


class Values(Record):
    """How the values of the survivors compare with the truth's.

    Attributes:
        rule: what was compared, and how far it may differ.
        checked: inputs whose values were compared, by their sum, projection, least and largest at least.
        every: inputs of which every single value was compared with the oracle's; drawn before the run.
        failures: inputs of which a value is wrong.
        first: 1-based inputs of them, at most 10.
        largest_error: relative, as the rule says; null when nothing was compared.
    """

    rule: str
    checked: Count
    failures: Count
    first: First
    largest_error: float | None
    every: Count | UnsetType = UNSET


class Judged(Record):
    """What a verdict is on; a record is only made of a measurement of the same.

    Attributes:
        digest: of the output.
        result_sha256: of all that the verdict looked at: survivors, statistics, values that were kept.
    """

    network_identity: Digest
    layers: Positive
    edges: Count
    inputs_sha256: Digest
    input_count: Positive
    digest: Digest
    result_sha256: Digest | UnsetType = UNSET


class Verdict(Record):
    """Whether one output is right, against what, and where it first differs.

    Attributes:
        passed: nothing is missing, unexpected or of a wrong value.
        categories: of the run, among the inputs compared.
        expected: categories of the truth.
        missing: categories of the truth that the run lacks.
        unexpected: categories that the truth lacks.
        borderline: differences that rounding explains.
        reasons: one sentence for each thing that is wrong; empty when it passed.
    """

    schema: Literal["spdnn-verdict"]
    version: Literal[1]
    passed: bool
    truth: Truth
    categories: Count
    expected: Count
    missing: Difference
    unexpected: Difference
    borderline: Difference
    values: Values
    reasons: list[str]
    judged: Judged | UnsetType = UNSET

    def claims(self) -> Iterator[Claim]:
        """Its counts agree, and it passes exactly when nothing is wrong."""
        truth, reasons, values = self.truth, len(self.reasons), self.values
        missing, unexpected, near = self.missing.count, self.unexpected.count, self.borderline.count
        same = not (missing or unexpected or values.failures)
        trivial = self.expected in (0, truth.checked)  # a truth for which a run may fail without a difference
        # A borderline input is in one of the two lists alone, so each moves the difference of the counts by one.
        apart = abs(self.expected - (self.categories + missing - unexpected))
        follows = apart <= near and (near - apart) % 2 == 0
        counts, state = f"{missing} missing, {unexpected} unexpected", "passed" if self.passed else "failed"
        yield self.passed != bool(reasons), f"reasons: a verdict that {state} has {reasons} of them"
        yield truth.checked >= 1, "truth.checked: no input was compared"
        yield truth.checked <= truth.inputs, f"truth.checked: {truth.checked} of {truth.inputs} inputs"
        yield values.failures <= values.checked, f"values.failures: {values.failures} of {values.checked}"
        yield not self.passed or same, f"passed: true, with {counts} and {values.failures} wrong values"
        yield self.passed or not same or trivial, f"passed: false, with {counts} and 0 wrong values"
        what = f"{self.expected} does not follow from {self.categories} found, {counts}, {near} borderline"
        yield follows, f"expected: {what}"

    def allows(self, record: RunRecord) -> Iterator[Claim]:
        """It allows a number, and is on this run."""
        name, inputs, compared = record.engine.name, self.truth.inputs, self.values.checked
        needed = 0 if self.truth.kind == "file" else self.categories - self.borderline.count
        itself = name == "reference" and self.truth.kind == "oracle"
        result, judged, names = record.result, self.judged, Judged.__struct_fields__
        run = [*(getattr(record.problem, field) for field in names[:-2]), result.digests[0], result.sha256]
        other = [name for name, mine in zip(names, run, strict=True) if judged and getattr(judged, name) != mine]
        yield self.passed, "verdict.passed: the verdict is fail, and a record needs one that passed"
        yield not other, f"verdict.judged: {', '.join(other)} of another run than this one"
        count = record.problem.input_count
        yield inputs == count, f"verdict.truth.inputs: {inputs}, but the run had {count} inputs"
        oracle = "the reference engine is the oracle itself, so the oracle cannot verify it"
        yield not itself, f"verdict.truth.kind: {oracle}"
        yield compared >= needed, f"verdict.values.checked: {compared}, but {needed} categories have values to compare"


class Problem(Record):
    """The network and its inputs.

    Attributes:
        official: NEURONS-LAYERS when it is one of the twelve with its official inputs; else null.
        network: where the network comes from; free.
        neurons: width of the widest layer.
        edges: nonzeros over all layers.
        inputs: where the inputs come from; free.
        prepared: digest of the store of the prepared network; null where it was prepared in the process that ran.
    """

    official: Annotated[str | None, column()]
    network: dict[str, Any]
    network_identity: Annotated[Digest, column()]
    neurons: Annotated[Positive, column()]
    layers: Annotated[Positive, column()]
    edges: Annotated[Count, column()]
    inputs: dict[str, Any]
    inputs_sha256: Annotated[Digest, column()]
    input_count: Annotated[Positive, column()]
    prepared: Digest | UnsetType | None = UNSET

    @property
    def work(self) -> int:
        """Inputs x edges, whatever a run leaves out."""
        return self.input_count * self.edges

    def claims(self, record: RunRecord) -> Iterator[Claim]:
        """One of the twelve has known sizes, and with all inputs known digests of inputs and truth."""
        kind = record.verdict.truth.kind
        if self.official is None:
            yield kind != "official", "verdict.truth.kind: official, but the problem is none of the twelve"
            return
        width, sizes = self.neurons, f"{self.neurons} neurons, {self.layers} layers and {self.edges} edges"
        official = ((one.name, one.neurons, one.layers, one.edges) for one in challenge.PROBLEMS)
        wrong = f"{shortened(repr(self.official))} is not the official problem of {sizes}"
        yield (self.official, width, self.layers, self.edges) in official, f"problem.official: {wrong}"
        result, part = record.result, self.input_count != challenge.INPUTS
        count, same = challenge.TRUTH_COUNT[width], result.categories_sha256 == challenge.TRUTH_SHA256[width]
        yield kind == "official", f"verdict.truth.kind: {kind}, but an official problem needs the official truth"
        its = self.inputs_sha256 == challenge.INPUT_SHA256[width]
        yield part or its, "problem.inputs_sha256: not the digest of the official inputs"
        yield part or result.categories == count, f"result.categories: {result.categories}, not {count}"
        yield part or same, "result.categories_sha256: not the digest of the official truth"


class Engine(Record, dict=True, rename={"noted": "notes"}):
    """The program that ran.

    Attributes:
        name: as the command takes it.
        noted: what the engine notes: instruction set, tile, batches...; free, see `notes`.
    """

    name: Annotated[Label, column("engine")]
    noted: dict[str, Any]

    @cached_property
    def notes(self) -> notes.Notes:
        """The notes as the type of this engine has them (`spdnn.records.notes`)."""
        return notes.typed(self.name, self.noted)


class Reductions(Record):
    """Work that was left out, exactly.

    Attributes:
        requested: names of the reductions that were on (`spdnn.reductions.registry`).
        found: for each requested reduction, the result of its search; free.
    """

    requested: Annotated[list[Word], Unique]
    found: dict[str, Any]

    def __post_init__(self) -> None:
        check_unique("requested", self.requested)

    @property
    def on(self) -> frozenset[str]:
        """The names of those that were on."""
        return frozenset(self.requested)

    def number(self, name: str, key: str) -> int | None:
        """A whole number from 0 in the result of one search; None where the record has none."""
        result = self.found.get(name)
        value = result.get(key) if isinstance(result, dict) else None
        return value if type(value) is int and value >= 0 else None


class RunSamples(Record):
    """Seconds of every repeat.

    Attributes:
        read_seconds: from files or formulas to inputs and weights in memory.
        prepare_seconds: searching for reductions, and the engine's layout.
        inference_seconds: of each repeat; `span` says what they include.
    """

    read_seconds: Samples
    prepare_seconds: Samples
    inference_seconds: Samples


class Parts(Record):
    """Parts of a time to solution, in seconds.

    Attributes:
        startup: Python and imports; in a workflow, also opening the stores.
        inputs: made or read.
        network: made or read, weights in memory.
        prepare: searching for reductions, the engine's layout.
        inference: the first repeat.
        verification: comparing with the truth.
        other: what the parts leave of the whole.
    """

    startup: Seconds
    inputs: Seconds
    network: Seconds
    prepare: Seconds
    inference: Seconds
    verification: Seconds
    other: Seconds


class TimeToSolution(Record):
    """What a user waits for: from the start of a process to verified categories.

    Without repeats after the first, measuring the machine and downloads.

    Attributes:
        of: command, one process; or workflow, the sum of the stages of the case, those that other cases share whole.
        seconds: the sum of the parts.
        cached: parts that came from a cache: then this is no time of a first run.
    """

    of: Literal["command", "workflow"]
    seconds: Annotated[Seconds, column("time_to_solution_seconds")]
    parts: Parts
    cached: Annotated[list[Literal["inputs", "prepare"]], Unique]

    def __post_init__(self) -> None:
        check_unique("cached", self.cached)

    def claims(self, record: RunRecord) -> Iterator[Claim]:
        """The parts add up, and one of them is the first repeat."""
        total = sum(getattr(self.parts, name) for name in Parts.__struct_fields__)
        same = math.isclose(self.seconds, total, rel_tol=TOLERANCE)
        yield same, f"time_to_solution.seconds: {self.seconds:g}, but its parts are {total:g} together"
        own, first = self.parts.inference, record.samples.inference_seconds[0]
        same = math.isclose(own, first, rel_tol=TOLERANCE)
        yield same, f"time_to_solution.parts.inference: {own:g}, but the first repeat took {first:g}"


class Result(Record, kw_only=True):
    """What came out, and the work that it took.

    Attributes:
        categories: inputs that survive all layers.
        categories_sha256: digest of their list.
        survivors: inputs with a nonzero row, after each layer.
        edges_computed: inputs x edges really computed in one repeat.
        bytes_moved: bytes read and written past the caches by design: inputs, weights, features between passes; null
            where the engine does not count them.
        bytes_loaded: bytes that the edges gathered at least, from whichever cache, a load for several edges once; null:
            4 for each edge computed.
        digests: of each repeat's output.
        sha256: of all that the verdict looked at: survivors, statistics, values that were kept.
    """

    categories: Annotated[Count, column()]
    categories_sha256: Annotated[Digest, column()]
    survivors: list[Count]
    edges_computed: Annotated[Count, column()]
    bytes_moved: Annotated[Count | UnsetType | None, column()] = UNSET
    bytes_loaded: Count | UnsetType | None = UNSET
    digests: Annotated[list[Digest], Meta(min_length=1)]
    sha256: Digest | UnsetType = UNSET

    def claims(self, record: RunRecord) -> Iterator[Claim]:
        """It agrees with the problem, the repeats and the verdict."""
        problem, verdict, survivors, computed = record.problem, record.verdict, self.survivors, self.edges_computed
        repeats, count, edges = len(record.samples.inference_seconds), problem.input_count, problem.edges
        categories, judged, checked = self.categories, verdict.categories, verdict.truth.checked
        # Survivors may rise: a positive bias revives rows. Where none are left, the layers after may cost nothing.
        layers, last, idle = len(survivors), survivors[-1] if survivors else 0, not edges or 0 in survivors
        most = (count + (TILE - 1) * min(count, BATCHES * record.ranks)) * edges
        # What reductions leave is at least an edge of each layer that rows go into.
        least = min(edges, sum(1 for rows in [count, *survivors[:-1]] if rows))
        unseen = count - checked  # inputs that the verdict did not compare, categories or not
        agree = categories - unseen <= judged <= min(categories, checked)
        yield layers == problem.layers, f"result.survivors: {layers} numbers for {problem.layers} layers"
        yield max(survivors, default=0) <= count, f"result.survivors: more than the {count} inputs"
        yield last >= categories, f"result.categories: {categories}, but {last} inputs survived"
        yield computed > 0 or idle, f"result.edges_computed: 0 of the network's {edges} edges"
        yield computed >= least or idle, f"result.edges_computed: {computed}, for {layers} layers of {edges} edges"
        yield computed <= most, f"result.edges_computed: {computed}, more than {count} inputs in whole tiles have"
        yield len(self.digests) == repeats, f"result.digests: {len(self.digests)} digests for {repeats} repeats"
        yield len(set(self.digests)) == 1, "result.digests: the repeats differ, and one verdict covers one output"
        yield agree, f"result.categories: {categories}, but the verdict is on {judged} categories"
        loaded = or_none(self.bytes_loaded)
        wrong = f"{loaded} for {computed} edges, and an edge loads a bit at least"
        yield loaded is None or loaded >= computed // 8, f"result.bytes_loaded: {wrong}"


class WorkPerSecond(Record):
    """Work / seconds.

    Attributes:
        median: of the samples.
        low, high: its bootstrap interval.
        resamples: that the bootstrap drew.
    """

    median: Amount
    low: Amount
    high: Amount
    confidence: Annotated[float, Meta(ge=CONFIDENCE, le=CONFIDENCE)]
    resamples: Count

    @classmethod
    def of(cls, work: int, seconds: Sequence[float]) -> WorkPerSecond:
        """Of these samples; InputError where they are none."""
        middle, low, high, resamples = interval(seconds)
        return cls(work / middle, work / high, work / low, CONFIDENCE, resamples)

    def claims(self, name: str, samples: str, work: int, seconds: Sequence[float]) -> Iterator[Claim]:
        """It follows from the samples; `name` and `samples` are the fields of both."""
        try:
            right = self.of(work, seconds)
        except InputError as error:
            yield False, f"{samples}: {error}"
            return
        for key in ("median", "low", "high"):
            stored, follows = getattr(self, key), getattr(right, key)
            same = math.isclose(stored, follows, rel_tol=TOLERANCE)
            yield same, f"{name}.{key}: {stored:g}, but {follows:g} follows from the samples"
        same = self.resamples == right.resamples
        yield same, f"{name}.resamples: {self.resamples}, but the samples take {right.resamples}"


class Load(Record):
    """How busy the machine was with other work while the clock ran; of several nodes, the busiest.

    Attributes:
        seconds: that it was watched: the repeats, and a moment around them.
        cores: that the process may run on; of ranks, all of those of the node.
        others: processor time of other processes on these cores / (cores x seconds); null where it is unknown.
        throttled: time that a limit of the control group took / (cores x seconds); null where it is unknown.
    """

    seconds: Seconds
    cores: Positive
    others: Annotated[Part | None, column("other_work_share")]
    throttled: Annotated[Part | None, column("throttled_share")]

    @property
    def busy(self) -> float:
        """Both parts together; of what is unknown, 0."""
        return (self.others or 0.0) + (self.throttled or 0.0)


class Attempt(Record):
    """The repeats, run on a busy machine, that a quieter attempt replaced.

    Attributes:
        inference_seconds: of each repeat.
        load: of the machine meanwhile.
    """

    inference_seconds: Samples
    load: Load


def busy_part(record: Any) -> float | None:
    """The part of the machine that other work had while a record was timed; None where limits.BUSY is not passed."""
    return record.load.busy if record.load and record.load.busy > limits.BUSY else None


class EdgesPerSecond(WorkPerSecond):
    """Inputs x edges / inference seconds, the challenge's formula."""

    median: Annotated[Amount, column("edges_per_second")]
    low: Annotated[Amount, column("edges_per_second_low")]
    high: Annotated[Amount, column("edges_per_second_high")]


class Environment(Record, kw_only=True, forbid_unknown_fields=False):
    """Machine and software. A file may have more fields, which are ignored.

    Attributes:
        cores: that the process may use: those it may run on, fewer where a control group limits their time.
        memory_bytes: that the process may hold: of the machine, less where a limit is set; null where it is unknown.
        gpu: name of the device that was used.
        system: operating system and architecture.
        versions: of the packages that matter.
        commit: git commit, with -dirty where its code differs; null outside a checkout.
        code: digest of the package's sources, as installed.
        compiler: that built the kernels, with its flags; null where they were not loaded.
        lock: digest of the names and versions of all packages installed.
        command: that repeats the run.
    """

    cpu: Annotated[str, column()]
    cores: Annotated[Positive, column()]
    memory_bytes: Count | None
    gpu: Annotated[str | UnsetType | None, column()] = UNSET
    system: str
    python: str
    versions: dict[str, str]
    commit: Annotated[str | None, column()]
    code: Annotated[Digest | UnsetType, column()] = UNSET
    compiler: str | UnsetType | None = UNSET
    lock: Digest | UnsetType = UNSET
    command: Annotated[str, column()]


class Messages(Record):
    """What messages between ranks cost, measured after the repeats, so no part of any other time.

    Attributes:
        latency_seconds: of a small allgather among all ranks.
        bytes_per_second: of large messages between two ranks.
    """

    latency_seconds: Seconds
    bytes_per_second: Rate


class Exchange(Record):
    """Rows that changed ranks.

    Attributes:
        before_layer: 1-based.
        rows: that changed ranks.
        bytes: of these rows, as sent.
        gain, cost: predicted, in edges that one rank computes.
    """

    before_layer: Positive
    rows: Positive
    bytes: Count
    gain: Work
    cost: Work


class RankImbalance(Record):
    """Maximum over mean of the ranks; 1 is even, and so is nothing at all.

    Attributes:
        edges: of edges really computed in the whole run.
        edges_from_exchange: of edges computed from the first exchange on; null without an exchange.
        seconds: of computing seconds (inference - waiting - communication), each rank's median over the repeats.
    """

    edges: Imbalance
    edges_from_exchange: Imbalance | None
    seconds: Imbalance


class OneRank(Record):
    """What one rank did.

    Attributes:
        host: name of the node.
        local_rank: the rank's number on its node.
        inputs: that it started with.
        read_seconds, prepare_seconds: as of RunSamples, of this rank.
        inference_seconds: of each repeat, barrier to barrier.
        waiting_seconds: of each repeat's inference seconds: waiting for other ranks.
        communication_seconds: of each repeat's inference seconds: sending and receiving.
        edges_computed: inputs x edges that this rank computed in one repeat.
        edges_from_exchange: the part of them from the first exchange on; null without an exchange.
        survivors: after each layer, the inputs alive whose row this rank holds.
        rows_sent, rows_received: in one repeat.
        peak_memory_bytes: its own: peak resident set less the shared windows.
        proportional_memory_bytes: largest proportional set size seen: each shared page divided by those that share it;
            null where the system has no such number.
    """

    host: Annotated[str, Meta(min_length=1, max_length=255)]
    local_rank: Count
    inputs: Count
    inference_seconds: Samples
    waiting_seconds: Samples
    communication_seconds: Samples
    edges_computed: Count
    edges_from_exchange: Count | None
    survivors: list[Count]
    rows_sent: Count
    rows_received: Count
    peak_memory_bytes: Positive
    proportional_memory_bytes: Count | None
    read_seconds: Seconds
    prepare_seconds: Seconds

    @property
    def computing_seconds(self) -> float:
        """Inference - waiting - communication, the median over the repeats."""
        repeats = zip(*(getattr(self, name) for name in PER_REPEAT), strict=True)
        return median(whole - waiting - sending for whole, waiting, sending in repeats)


def imbalance(parts: Sequence[float]) -> float:
    """The largest part over their mean; 1 when all are 0, for nothing is shared out evenly."""
    return max(parts) * len(parts) / total if (total := sum(parts)) > 0 else 1.0


class Distribution(Record):
    """How several ranks shared the inputs; present exactly where ranks is more than 1.

    Attributes:
        partition: which inputs a rank starts with: contiguous, every R-th, or contiguous with rows exchanged while it
            runs.
        nodes: machines that the ranks ran on.
        shared_bytes: of weights and inputs in shared-memory windows, of the node that has most.
        meetings: times in one repeat that the ranks compared how many rows each still had.
        exchanges: meetings of one repeat at which rows changed ranks, as they came; layers begin anew with each batch.
        told: one sentence: why rows were exchanged, or why not.
        rows_merged_across_ranks: rows that were identical to one on another rank.
        per_rank: one entry a rank, rank 0 first.
    """

    partition: Annotated[Literal["static", "cyclic", "rebalanced"], column()]
    nodes: Positive
    weights: Literal["one copy a node", "a copy a rank", "streamed by each rank"]
    shared_bytes: Count
    messages: Messages
    meetings: Count
    exchanges: list[Exchange]
    told: Annotated[str, Meta(min_length=1, max_length=1000)]
    rows_merged_across_ranks: Count
    imbalance: RankImbalance
    per_rank: Annotated[list[OneRank], Meta(min_length=2)]

    def claims(self, record: RunRecord) -> Iterator[Claim]:
        """Rank by rank, it adds up to the whole run."""
        ranks, entries = record.ranks, len(self.per_rank)
        yield entries == ranks, f"distribution.per_rank: {entries} entries for {ranks} ranks"
        yield from self._hosts()
        yield from self._times(record.samples.inference_seconds)
        yield from self._sums(record)
        yield from self._exchanges(record)
        yield from self._imbalance()

    def _hosts(self) -> Iterator[Claim]:
        counts = Counter(rank.host for rank in self.per_rank)
        yield self.nodes == len(counts), f"distribution.nodes: {self.nodes}, but the ranks ran on {len(counts)} hosts"
        for host, here in sorted(counts.items()):
            numbers = sorted(rank.local_rank for rank in self.per_rank if rank.host == host)
            what = f"distribution.per_rank: the local ranks of one host are not the numbers 0 to {here - 1}"
            yield numbers == list(range(here)), what

    def _times(self, seconds: Sequence[float]) -> Iterator[Claim]:
        """Each list has an entry a repeat, no part is more than the whole, and the slowest rank's time is the run's."""
        for place, rank in enumerate(self.per_rank):
            where = f"distribution.per_rank[{place}]"
            for name in PER_REPEAT:
                count = len(getattr(rank, name))
                yield count == len(seconds), f"{where}.{name}: {count} numbers for {len(seconds)} repeats"
            for whole, waiting, sending in zip(*(getattr(rank, name) for name in PER_REPEAT), strict=True):
                what = (
                    f"{where}: {waiting:g} s of waiting and {sending:g} s of communication in {whole:g} s of inference"
                )
                yield waiting + sending <= whole * (1 + TOLERANCE) + CLOCK, what
        for repeat, sample in enumerate(seconds):
            slowest = max(rank.inference_seconds[repeat] for rank in self.per_rank)
            what = f"samples.inference_seconds[{repeat}]: {sample:g}, but the slowest rank took {slowest:g}"
            yield math.isclose(sample, slowest, rel_tol=TOLERANCE), what

    def _sums(self, record: RunRecord) -> Iterator[Claim]:
        result, layers, per_rank = record.result, record.problem.layers, self.per_rank
        for name, whole in (("inputs", record.problem.input_count), ("edges_computed", result.edges_computed)):
            total = sum(getattr(rank, name) for rank in per_rank)
            yield total == whole, f"distribution.per_rank: {name} add up to {total}, and the whole run has {whole}"
        for place, rank in enumerate(per_rank):
            count = len(rank.survivors)
            yield count == layers, f"distribution.per_rank[{place}].survivors: {count} numbers for {layers} layers"
        totals = map(sum, zip(*(rank.survivors for rank in per_rank), strict=True))
        for layer, (total, whole) in enumerate(zip(totals, result.survivors, strict=True), 1):
            if total != whole:  # no sentence is made up for the others, of which there are thousands
                wrong = f"survivors of layer {layer} add up to {total}, and the whole run has {whole}"
                yield False, f"distribution.per_rank: {wrong}"

    def _exchanges(self, record: RunRecord) -> Iterator[Claim]:
        """No row is lost where rows change ranks, and there are figures from then on exactly if any did."""
        per_rank, count, merged = self.per_rank, len(self.exchanges), self.rows_merged_across_ranks
        moved = sum(one.rows for one in self.exchanges)
        last, layers = max((one.before_layer for one in self.exchanges), default=1), record.problem.layers
        sent, received = sum(rank.rows_sent for rank in per_rank), sum(rank.rows_received for rank in per_rank)
        where, merging = "distribution.exchanges", "inputs" in record.reductions.requested
        yield not count or self.partition == "rebalanced", f"{where}: {count} with the partition {self.partition}"
        yield count <= self.meetings, f"{where}: {count} at {self.meetings} meetings"
        yield last <= layers, f"{where}: before layer {last} of {layers}"
        yield sent == received, f"distribution.per_rank: {sent} rows were sent and {received} received"
        yield moved == sent, f"{where}: {moved} rows, but the ranks sent {sent}"
        yield merging or not merged, f"distribution.rows_merged_across_ranks: {merged} without the reduction inputs"
        figures = [(f"per_rank[{place}]", rank) for place, rank in enumerate(per_rank)]
        for name, figure in [*figures, ("imbalance", self.imbalance)]:
            there = figure.edges_from_exchange is not None
            wrong = f"{'a number' if there else 'null'} with {count} exchanges"
            yield there == bool(count), f"distribution.{name}.edges_from_exchange: {wrong}"
        for name, rank in figures:
            part, whole = rank.edges_from_exchange or 0, rank.edges_computed
            yield part <= whole, f"distribution.{name}.edges_from_exchange: {part} of {whole} edges"

    def _imbalance(self) -> Iterator[Claim]:
        for name, right in rank_imbalance(self.per_rank).items():
            figure = getattr(self.imbalance, name)
            if figure is not None:
                what = f"distribution.imbalance.{name}: {figure:g}, but {right:g} follows from the ranks"
                yield math.isclose(figure, right, rel_tol=TOLERANCE), what


def rank_imbalance(ranks: Sequence[OneRank]) -> dict[str, float | None]:
    """The fields of RankImbalance that follow from the ranks."""
    late = [rank.edges_from_exchange for rank in ranks]
    return {
        "edges": imbalance([rank.edges_computed for rank in ranks]),
        "edges_from_exchange": None if None in late else imbalance(late),
        "seconds": imbalance([rank.computing_seconds for rank in ranks]),
    }


class RunRecord(Record, kw_only=True):
    """One verified run: what was run, how long each part took, what it includes, on what machine.

    Attributes:
        case: names the run in file names and the report.
        created: UTC.
        request: what was asked for; null of single layers beside other libraries, which no request describes.
        configuration: names of the workflow's configuration files; null of a run that was not the workflow's.
        comparison: the same in the records of engines that were timed alternately, sample by sample.
        threads: of each rank.
        ranks: processes that shared the inputs.
        memory_limit_bytes: promised by --memory; null: none.
        span: what inference_seconds includes: from inputs and weights in memory (resident), or with the reading of
            weights (streamed), to categories and row sums; or product, bias and activation of one layer alone.
        edges_per_second: by the challenge's formula, whatever work was left out.
        peak_memory_bytes: peak resident set of the process that ran; of several ranks, of the node that holds most: the
            ranks' own memory and the shared windows once.
        machine: what the machine did at best right after the repeats, on as many threads; null where that is not the
            engine's limit, or memory was too small to measure it.
        load: other work of the machine while the clock ran; absent where nobody looked.
        passed_over: attempts on a busier machine than that of the samples (`--repeat-if-busy`).
        seal: digest of all the rest, of whoever wrote the record last: it finds damage and edits, not a forger.
    """

    schema: Literal["spdnn-record"]
    version: Literal[1]
    case: Annotated[Case, column()]
    created: Annotated[Time, column()]
    request: RunRequest | None
    configuration: Annotated[str, Meta(max_length=200)] | None
    problem: Problem
    engine: Engine
    reductions: Reductions
    threads: Annotated[Positive, column()]
    memory_limit_bytes: Positive | None
    samples: RunSamples
    span: Literal["layer loop, resident", "layer loop, weights streamed", "one layer, features in the engine's layout"]
    peak_memory_bytes: Annotated[Positive, column()]
    machine: Machine | UnsetType | None = UNSET
    ranks: Annotated[Positive, column()]
    distribution: Distribution | UnsetType = UNSET
    time_to_solution: TimeToSolution | UnsetType = UNSET
    result: Result
    edges_per_second: EdgesPerSecond
    verdict: Verdict
    environment: Environment
    comparison: Identity | UnsetType = UNSET
    load: Load | UnsetType = UNSET
    passed_over: list[Attempt] | UnsetType = UNSET
    seal: Digest | UnsetType = UNSET

    @property
    def seconds(self) -> list[float]:
        """The samples that records are compared by."""
        return self.samples.inference_seconds

    @property
    def busiest(self) -> int:
        """Edges of the rank that went through most; of one rank, all."""
        if not self.distribution:
            return self.result.edges_computed
        return max(rank.edges_computed for rank in self.distribution.per_rank)

    @property
    def limit(self) -> Limit | None:
        """The least time that the machine allows; None when it was not measured.

        Each rank is taken as a machine of its own with an even part of the bytes moved: never less than what ranks that
        share a node's memory can do, so the limit stays a lower bound. Loads are those of the busiest rank.
        """
        if not self.machine:
            return None
        moved = or_none(self.result.bytes_moved)
        part = None if moved is None else moved // self.ranks
        return limits.limit(self.machine, self.result.edges_computed, part, self._loaded_by_one())

    def _loaded_by_one(self) -> int:
        """Bytes that one rank loaded at least: of the rank that loaded most, or of the one that computed most edges.

        A rank's own bytes are not in the record. The mean is a bound; so is what is left of the whole when every edge
        of the other ranks loaded all that an edge can.
        """
        edges, loaded = self.result.edges_computed, or_none(self.result.bytes_loaded)
        loaded = edges * limits.EDGE_BYTES if loaded is None else loaded
        return max(loaded // self.ranks, loaded - (edges - self.busiest) * limits.EDGE_BYTES)

    def claims(self) -> Iterator[Claim]:
        """Its verdict passed, and its numbers agree; no claim is worked out before those ahead of it hold."""
        yield from ((holds, f"verdict.{wrong}") for holds, wrong in self.verdict.claims())
        yield from self.verdict.allows(self)
        for part in (self.result, self.problem):
            yield from part.claims(self)
        rate, samples = self.edges_per_second, "samples.inference_seconds"
        yield from rate.claims("edges_per_second", samples, self.problem.work, self.seconds)
        state, ranks = "present" if self.distribution else "absent", self.ranks
        yield bool(self.distribution) == (ranks > 1), f"distribution: {state}, with ranks: {ranks}"
        for part in (self.distribution, self.time_to_solution):
            yield from part.claims(self) if part else ()
        least = self.load.busy if self.load else 0.0
        busier = all(one.load.busy >= least for one in self.passed_over or ())
        yield busier, "passed_over: an attempt on a quieter machine than that of the samples"
        yield from self._machine() if self.machine else self._any_machine()

    def _any_machine(self) -> Iterator[Claim]:
        """No machine is known: what none can do is refused all the same."""
        workers = self.ranks * self.threads
        most = self.ranks * limits.DEVICE_BYTES if self.environment.gpu else workers * limits.THREAD_BYTES
        edges, fastest = self.result.edges_computed, min(self.seconds)
        told = f"{edges} edges in {fastest:g} s are more than any machine can load with {workers} threads"
        yield self._loaded_by_one() * self.ranks <= most * fastest, f"result.edges_computed: {told}; {limits.BEYOND}"

    def _machine(self) -> Iterator[Claim]:
        yield from self.machine.claims(self.threads, "run")
        edges, fastest = self.result.edges_computed, min(self.seconds)
        times = limits.limit(self.machine, edges, None, self._loaded_by_one()).seconds / fastest
        wrong = f"{edges} edges in {fastest:g} s, {times:.3g} times what the machine can load"
        yield times <= limits.TOLERANCE, f"result.edges_computed: {wrong}; {limits.BEYOND}"
