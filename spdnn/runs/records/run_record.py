"""The class of a run record; its parts are in the modules beside this one. Docstrings have every field with its unit.

A file follows its class, or is refused (files.py). A record whose verdict did not pass, or whose numbers are
beyond what its machine can do, is refused too. So a report can only show what was verified and measured. What
follows from the facts, rates and their intervals, say, is a property and in no file.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from statistics import median
from typing import Annotated, Any, Literal

from msgspec import Meta

from spdnn.core import limits
from spdnn.core.fields import Case, Claim, Digest, Identity, Positive, Record, Samples, Seconds, Time, column
from spdnn.core.limits import Limit, Machine
from spdnn.core.load import Load
from spdnn.core.request import RunRequest
from spdnn.core.statistics import Interval
from spdnn.runs.records import completed
from spdnn.runs.records.distribution import Distribution
from spdnn.runs.records.environment import Environment
from spdnn.runs.records.result import Accuracy, EngineRecord, ProblemRecord, Reductions, ResultRecord
from spdnn.runs.records.samples import TimeToSolution, check_samples, work_per_second
from spdnn.runs.records.verdict import Verdict, run_digest

SCHEMA, RUN_VERSION = "spdnn-record", 3  # of version 2: layers were not counted, survivors compared with nothing


class Measured(Record, kw_only=True):
    """What was run and measured, before a verdict on it.

    Attributes:
        threads: of each rank.
        ranks: processes that shared the inputs.
        memory_limit_bytes: promised by --memory; null: none.
        read_seconds: from files or formulas to inputs and weights in memory.
        prepare_seconds: searching for reductions, and the engine's layout.
        inference_seconds: of each repeat; fewer than the request's where the time limit of a job allowed no more.
        span: what inference_seconds includes: from inputs and weights in memory (resident), or with the reading of
            weights (streamed), to categories and row sums; or product, bias and activation of one layer alone.
        peak_memory_bytes: peak resident set of the process that ran; of several ranks, of the node that holds most: the
            ranks' own memory and the shared windows once.
        machine: what the machine did at best right after the repeats, on as many threads; null where that is not the
            engine's limit, or memory was too small to measure it.
        distribution: null: one rank.
        load: other work of the machine while the clock ran; null where programs took turns that nobody watched.
        passed_over: other work during attempts that a quieter one replaced (`--repeat-if-busy`).
        time_to_solution: null where no process ran from start to verdict: of other libraries, which took turns.
    """

    problem: ProblemRecord
    engine: EngineRecord
    reductions: Reductions
    threads: Annotated[Positive, column()]
    ranks: Annotated[Positive, column()]
    memory_limit_bytes: Positive | None
    span: Literal["layer loop, resident", "layer loop, weights streamed", "one layer, features in the engine's layout"]
    read_seconds: Samples
    prepare_seconds: Samples
    inference_seconds: Samples
    result: ResultRecord
    peak_memory_bytes: Annotated[Positive, column()]
    machine: Machine | None
    distribution: Distribution | None
    load: Load | None
    passed_over: list[Load]
    time_to_solution: TimeToSolution | None
    environment: Environment

    @property
    def by_formula(self) -> bool:
        """Whether the network is made by its formula, from no file."""
        return self.problem.network.get("source") == "radixnet"

    def layers_read_seconds(self, request: RunRequest | None) -> float | None:
        """The challenge's read time: seconds of reading the layers of the network of this request, into memory.

        None: no file of layers was read, or more layers were than ran; or the run did not read them before it prepared
        them, as those of a model file (.safetensors).
        """
        whole, made = self.time_to_solution, self.by_formula or "first_layers" in self.problem.network
        if request is None or whole is None or made or (request.network is None and request.source != "official"):
            return None
        prepared_from_file = whole.of == "command" and (request.network or "").endswith(".safetensors")
        return None if prepared_from_file else whole.network or None

    def layers_read_rate(self, request: RunRequest | None) -> float | None:
        """The challenge's read rate: edges of the network / layers_read_seconds, in edges/s; None as they are."""
        seconds = self.layers_read_seconds(request)
        return None if seconds is None else self.problem.edges / seconds


class Measurement(Measured, kw_only=True):
    """All that one case measured: the samples file of a workflow's stage.

    Attributes:
        excluded_seconds: that went to no part of a solution: repeats after the first, measuring the machine.
        startup_seconds: of reading, what devices took to start.
        verification_seconds: of verification, to run once more the sample, or run the parts, that it compares.
    """

    excluded_seconds: Seconds = 0.0
    startup_seconds: Seconds = 0.0
    verification_seconds: Seconds = 0.0


class RunRecord(Measured, kw_only=True, dict=True):
    """One verified run: what was run, how long each part took, what it includes, on what machine.

    Attributes:
        case: names the run in file names and the report.
        created: UTC.
        request: what was asked for; null of what no request describes: single layers
            beside other libraries, and the challenge's reference program.
        configuration: names of the workflow's configuration files; null of a run that was not the workflow's.
        comparison: the same in the records of engines that were timed alternately, sample by sample; null of others.
        accuracy: of the output, where labels were given (`--labels`); null: none were.
        seal: digest of all the rest, of whoever wrote the record last: it finds damage and edits, not a forger; null:
            none was given.
    """

    schema: Literal["spdnn-record"]
    version: Literal[2, 3]
    case: Annotated[Case, column()]
    created: Annotated[Time, column()]
    request: RunRequest | None
    configuration: Annotated[str, Meta(max_length=200)] | None
    comparison: Identity | None
    accuracy: Accuracy | None
    verdict: Verdict
    seal: Digest | None

    @property
    def seconds(self) -> list[float]:
        """The samples that records are compared by."""
        return self.inference_seconds

    @cached_property
    def edges_per_second(self) -> Interval:
        """Inputs x edges / inference seconds, the challenge's formula, whatever work was left out."""
        return work_per_second(self.problem.work, self.seconds)

    @property
    def busiest(self) -> int:
        """Edges of the rank that went through most; of one rank, all."""
        if not self.distribution:
            return self.result.edges_computed
        return max(rank.edges_computed for rank in self.distribution.per_rank)

    @property
    def prepared_rate(self) -> float:
        """Edges a second, skipped work included, with the preparation on the clock."""
        return self.problem.work / (median(self.prepare_seconds) + median(self.seconds))

    @property
    def whole_rate(self) -> float | None:
        """The same, from the start of the command to its verified categories; None where no process ran so long."""
        return self.problem.work / self.time_to_solution.seconds if self.time_to_solution else None

    @property
    def read_seconds_of_layers(self) -> float | None:
        """The challenge's read time, as layers_read_seconds."""
        return self.layers_read_seconds(self.request)

    @property
    def read_rate(self) -> float | None:
        """The challenge's read rate, as layers_read_rate."""
        return self.layers_read_rate(self.request)

    @cached_property
    def bytes_moved(self) -> int | None:
        """Past the caches, as the result has them; of an earlier version, what follows from other numbers of it."""
        return completed.bytes_moved(self)

    @property
    def limit(self) -> Limit | None:
        """The least time that the machine allows; None when it was not measured.

        Each rank is taken as a machine of its own with an even part of the bytes moved: never less than what ranks that
        share a node's memory can do, so the limit stays a lower bound. Loads are those of the busiest rank.
        """
        if not self.machine:
            return None
        moved = self.bytes_moved
        part = None if moved is None else moved // self.ranks
        return limits.limit(self.machine, self.result.edges_computed, part, self._bytes_by_one_rank())

    def missing_evidence(self) -> Iterator[str]:
        """What this record lacks that one made by this version has, or could have: a phrase for each."""
        values = self.verdict.values
        if not self.seal:
            yield "no checksum: an edit would not be seen"
        if self.verdict.truth.kind == "file":
            yield "categories were compared with a file alone, and no values"
        elif self.verdict.truth.kind == "oracle" and values.checked and not values.every:
            yield "no last row was compared value by value"
        if not self.result.counted:
            yield "layers not counted, and active inputs not compared (a record of version 2)"
        elif self.verdict.survivors and not self.verdict.survivors.inputs:
            yield self.verdict.survivors.rule
        if not self.machine:
            yield "the machine was not measured, so only what no machine can do limits its times"

    def _bytes_by_one_rank(self) -> int:
        """Bytes that one rank loaded at least: of the rank that loaded most, or of the one that computed most edges.

        A rank's own bytes are not in the record. The mean is a bound; so is what is left of the whole when every edge
        of the other ranks loaded all that an edge can.
        """
        edges, loaded = self.result.edges_computed, self.result.bytes_loaded
        loaded = edges * limits.EDGE_LOAD_BYTES if loaded is None else loaded
        return max(loaded // self.ranks, loaded - (edges - self.busiest) * limits.EDGE_LOAD_BYTES)

    def claims(self) -> Iterator[Claim]:
        """Its verdict passed and is on this run, and its numbers are possible; one is worked out after another."""
        yield from ((holds, f"verdict.{wrong}") for holds, wrong in self.verdict.claims())
        yield from self._verdict_claims()
        yield from self.result.claims(self.problem, self.reductions, self.verdict, self.ranks)
        yield self.version == 2 or self.result.counted, "result.layer_rows: the engine counted no layers"
        yield from self.problem.claims(self.result, self.verdict)
        yield from self.accuracy.claims(self.problem.input_count) if self.accuracy else ()
        yield from check_samples("inference_seconds", self.seconds)
        state, ranks = "present" if self.distribution else "absent", self.ranks
        yield bool(self.distribution) == (ranks > 1), f"distribution: {state}, with ranks: {ranks}"
        if self.distribution:
            merging = "inputs" in self.reductions.requested
            yield from self.distribution.claims(ranks, self.seconds, self.problem, self.result, merging)
        yield from self.time_to_solution.claims(self.seconds[0]) if self.time_to_solution else ()
        least = self.load.busy if self.load else 0.0
        busier = all(load.busy >= least for load in self.passed_over)
        yield busier, "passed_over: an attempt on a quieter machine than that of inference_seconds"
        yield from self._speed()

    def _verdict_claims(self) -> Iterator[Claim]:
        """Its verdict allows a number, and is on this run."""
        verdict, result = self.verdict, self.result
        needed = 0 if verdict.truth.kind == "file" else verdict.categories - verdict.borderline.count
        itself = self.engine.name == "reference" and verdict.truth.kind == "oracle"
        compared, problem = verdict.values.checked, self.problem
        run = problem.network_identity, problem.layers, problem.edges, problem.inputs_sha256
        on_this = verdict.judged == run_digest(*run, result.digest, result.sha256)
        inputs, count = verdict.truth.inputs, self.problem.input_count
        yield verdict.passed, "verdict.passed: verification failed, and a record needs one that passed"
        yield on_this, "verdict.judged: the digest of another network, inputs or output than this run's"
        yield inputs == count, f"verdict.truth.inputs: {inputs}, but the run had {count} inputs"
        yield not itself, "verdict.truth.kind: the engine is the float64 reference, which cannot verify itself"
        yield compared >= needed, f"verdict.values.checked: {compared}, but {needed} categories have values to compare"
        if self.version > 2 and verdict.truth.kind != "file":
            shown = compared > 0 or verdict.expected == 0
            yield shown, f"verdict.values.checked: 0, but the ground truth has {verdict.expected} categories"

    def _speed(self) -> Iterator[Claim]:
        """It is no faster than its machine can be; where that is not known, than any machine can."""
        edges, fastest, loaded = self.result.edges_computed, min(self.seconds), self._bytes_by_one_rank()
        if self.machine:
            times = limits.limit(self.machine, edges, None, loaded).seconds / fastest
            possible, how = times <= limits.LIMIT_FACTOR, f", {times:.3g} times what the machine can load"
        else:
            workers = self.ranks * self.threads
            most = self.ranks * limits.DEVICE_LOADS if self.environment.gpu else workers * limits.THREAD_LOADS
            possible = loaded * self.ranks <= most * fastest
            how = f" are more than any machine can load with {workers} threads"
        yield possible, f"result.edges_computed: {edges} edges in {fastest:g} s{how}; {limits.BEYOND}"


def busy_part(record: Any) -> float | None:
    """The part of the machine that other work had while a record was timed; None where limits.BUSY is not passed."""
    return record.load.busy if record.load and record.load.busy > limits.BUSY else None
