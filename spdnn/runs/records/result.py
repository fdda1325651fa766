"""What was run, with which engine and reductions, and what came out: parts of a run record."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from operator import mul
from typing import Annotated, Any

from spdnn.core import challenge
from spdnn.core.features import Inputs
from spdnn.core.fields import Claim, Count, Digest, Label, Positive, Record, Unique, Word, check_unique, column
from spdnn.core.network import Network
from spdnn.core.result import LayerWork, Result
from spdnn.core.validation import shorten
from spdnn.runs.records import notes
from spdnn.runs.records.verdict import Verdict
from spdnn.runs.verify.official import official_problem

MOST_RECORDED = 100  # of a confusion matrix in a record
# Rows that an engine may compute beyond the inputs: a batch holds at least one input and pads it to whole tiles of at
# most 64, and up to 1000 batches a rank that are no whole tiles are allowed for. None passes a layer twice.
LARGEST_TILE, BATCHES = 64, 1000
LAYER_COUNTS = "layer_rows", "layer_edges", "layer_edges_computed"  # in the order of LayerWork


class ProblemRecord(Record):
    """The network and its inputs.

    Attributes:
        official: NEURONS-LAYERS when it is one of the twelve with its official inputs; else null.
        network: where the network comes from; free.
        neurons: width of the widest layer.
        edges: nonzeros over all layers.
        inputs: where the inputs come from; free.
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

    @classmethod
    def of(cls, network: Network, inputs: Inputs) -> ProblemRecord:
        """Of a network and its inputs."""
        matched = official_problem(network, inputs)
        return cls(
            official=matched.name if matched else None,
            network=network.description,
            network_identity=network.identity(),
            neurons=network.width,
            layers=network.depth,
            edges=network.edges,
            inputs=inputs.description,
            inputs_sha256=inputs.sha256,
            input_count=inputs.count,
        )

    @property
    def work(self) -> int:
        """Inputs x edges, whatever a run leaves out."""
        return self.input_count * self.edges

    def claims(self, result: ResultRecord, verdict: Verdict) -> Iterator[Claim]:
        """One of the twelve has known sizes, and with all inputs known digests of inputs and truth."""
        kind = verdict.truth.kind
        if self.official is None:
            yield kind != "official", "verdict.truth.kind: official, but the problem is none of the twelve"
            return
        width, sizes = self.neurons, f"{self.neurons} neurons, {self.layers} layers and {self.edges} edges"
        official = ((problem.name, problem.neurons, problem.layers, problem.edges) for problem in challenge.PROBLEMS)
        wrong = f"{shorten(repr(self.official))} is not the official problem of {sizes}"
        yield (self.official, width, self.layers, self.edges) in official, f"problem.official: {wrong}"
        part = self.input_count != challenge.INPUTS
        count, same = challenge.TRUTH_COUNT[width], result.categories_sha256 == challenge.TRUTH_SHA256[width]
        yield kind == "official", f"verdict.truth.kind: {kind}, but an official problem needs the official ground truth"
        its = self.inputs_sha256 == challenge.INPUT_SHA256[width]
        yield part or its, "problem.inputs_sha256: not the digest of the official inputs"
        yield part or result.categories == count, f"result.categories: {result.categories}, not {count}"
        yield part or same, "result.categories_sha256: not the digest of the official ground truth"


class EngineRecord(Record, dict=True, rename={"noted": "notes"}):
    """The program that ran.

    Attributes:
        name: as the command takes it.
        noted: what the engine notes: instruction set, tile, batches...; free, see `notes`.
    """

    name: Annotated[Label, column("engine")]
    noted: dict[str, Any]

    @cached_property
    def notes(self) -> notes.Notes:
        """The notes as the type of this engine has them (`spdnn.runs.records.notes`)."""
        return notes.read_notes(self.name, self.noted)


class Reductions(Record):
    """Work that was left out, exactly.

    Attributes:
        requested: names of the reductions that were on (`spdnn.engines.reductions.registry`).
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


class ResultRecord(Record, omit_defaults=True):
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
        digest: of the output, the same in every repeat.
        sha256: of all that the verdict looked at: survivors, counts of layers, statistics, values that were kept,
            outputs of parts.
        layer_rows: by layer, rows that it had to compute: all inputs, or the active ones where dead ones may leave;
            identical ones once. Absent of version 2.
        layer_edges: by layer, edges of one row in the network that the engine read, after reductions; absent of
            version 2.
        layer_edges_computed: by layer, inputs x edges gone through, those of dead rows and of the padding of tiles
            included: edges_computed is their sum; absent of version 2.
        sparse_rows: rows held their nonzeros alone, and edges_computed counts the edges of these.
    """

    categories: Annotated[Count, column()]
    categories_sha256: Annotated[Digest, column()]
    survivors: list[Count]
    edges_computed: Annotated[Count, column()]
    bytes_moved: Annotated[Count | None, column()]
    bytes_loaded: Count | None
    digest: Digest
    sha256: Digest
    layer_rows: list[Count] | None = None
    layer_edges: list[Count] | None = None
    layer_edges_computed: list[Count] | None = None
    sparse_rows: bool = False

    @classmethod
    def of(cls, result: Result) -> ResultRecord:
        """Of a result."""
        moved, loaded = result.bytes_moved, result.bytes_loaded
        return cls(
            categories=int(result.categories.size),
            categories_sha256=challenge.categories_sha256(result.categories),
            survivors=result.survivors.tolist(),
            edges_computed=int(result.edges_computed),
            bytes_moved=None if moved is None else int(moved),
            bytes_loaded=None if loaded is None else int(loaded),
            digest=result.digest,
            sha256=result.sha256,
            **cls._counts(result.counts),
        )

    @staticmethod
    def _counts(counts: LayerWork | None) -> dict[str, Any]:
        if counts is None:
            return {}
        *numbers, sparse = counts
        lists = dict(zip(LAYER_COUNTS, (array.tolist() for array in numbers), strict=True))
        return {**lists, "sparse_rows": sparse}

    @property
    def counted(self) -> bool:
        """Whether layers were counted; not in records of version 2."""
        return all(getattr(self, name) is not None for name in LAYER_COUNTS)

    @property
    def edges_needed(self) -> int:
        """Edges that had to be gone through: rows x edges of each layer, without dead rows and padding; where rows are
        sparse, and of version 2, those gone through.
        """
        if self.sparse_rows or not self.counted:
            return self.edges_computed
        return sum(map(mul, self.layer_rows or (), self.layer_edges or ()))

    def claims(self, problem: ProblemRecord, reductions: Reductions, verdict: Verdict, ranks: int) -> Iterator[Claim]:
        """It agrees with the problem, the reductions and the verdict."""
        survivors, computed = self.survivors, self.edges_computed
        count, edges = problem.input_count, problem.edges
        categories, judged, checked = self.categories, verdict.categories, verdict.truth.checked
        # Survivors may rise: a positive bias revives rows. Where none are left, the layers after may cost nothing.
        layers, last, idle = len(survivors), survivors[-1] if survivors else 0, not edges or 0 in survivors
        most = (count + (LARGEST_TILE - 1) * min(count, BATCHES * ranks)) * edges
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
        yield agree, f"result.categories: {categories}, but `verdict` is on {judged} categories"
        loaded = self.bytes_loaded
        wrong = f"{loaded} for {computed} edges, and a load of a bit serves 8 outputs at most"
        yield loaded is None or loaded >= computed // 64, f"result.bytes_loaded: {wrong}"
        if self.counted:
            yield from self._counted_claims(problem, reductions, ranks)

    def _counted_claims(self, problem: ProblemRecord, reductions: Reductions, ranks: int) -> Iterator[Claim]:
        """Layers were counted where rows went through them: what the counts must be, given survivors and reductions."""
        rows, edges, computed = lists = [getattr(self, name) for name in LAYER_COUNTS]
        for name, numbers in zip(LAYER_COUNTS, lists, strict=True):
            right = len(numbers) == len(self.survivors)
            yield right, f"result.{name}: {len(numbers)} numbers for {problem.layers} layers"
            if not right:
                return
        total, whole, on = sum(computed), sum(edges), reductions.on
        yield total == self.edges_computed, f"result.layer_edges_computed: {total} in all, not {self.edges_computed}"
        # Dead and identical inputs leave the edges of a row as they are; identical neurons are merged, once known.
        left = reductions.number("neurons", "edges_left") if on <= {"dead", "inputs", "neurons"} else None
        left = problem.edges if on <= {"dead", "inputs"} else left
        fits = whole <= problem.edges if left is None else whole == left <= problem.edges
        yield fits, f"result.layer_edges: {whole} in all, and the network has {problem.edges if left is None else left}"
        # Rows that go into a layer: all, or from some layer on those of active inputs; identical ones once.
        count, first = problem.input_count, reductions.number("dead", "rows_may_leave_before_layer")
        leaving = first if "dead" in on and first is not None else problem.layers + 1
        # Rows that merged, of one rank: of several, each knows its own.
        merged = reductions.number("inputs", "rows_merged") if ranks == 1 else None
        merged = 0 if on <= {"dead", "neurons"} else count if merged is None else merged
        padded = count + (LARGEST_TILE - 1) * min(count, BATCHES * ranks)
        for k, (row, edge, done, into) in enumerate(
            zip(rows, edges, computed, [count, *self.survivors[:-1]], strict=True), 1
        ):
            most = into if k >= max(2, leaving) else count
            least = max(into - merged, min(into, 1))
            yield least <= row <= most, f"result.layer_rows: {row} in layer {k}, which {into} of {count} inputs reach"
            if self.sparse_rows:
                right = done <= row * edge
            else:  # whole tiles, in which rows may be dead
                right = row * edge <= done <= padded * edge and (done % edge if edge else done) == 0
            yield right, f"result.layer_edges_computed: {done} in layer {k}, of {row} rows of {edge} edges"


class Accuracy(Record):
    """How often the outputs of a run agree with labels.

    Attributes:
        labels_sha256: digest of the labels, int64.
        top1: inputs whose largest output is that of the label.
        confusion: inputs by label (row) and largest output (column); null: more than 100 classes.
    """

    labels_sha256: Digest
    top1: Count
    confusion: list[list[Count]] | None

    def claims(self, inputs: int) -> Iterator[Claim]:
        """Its counts agree with one another and with the number of inputs."""
        yield self.top1 <= inputs, f"accuracy.top1: {self.top1} of {inputs} inputs"
        if self.confusion is None:
            return
        size = len(self.confusion)
        square = all(len(row) == size for row in self.confusion)
        yield square, f"accuracy.confusion: {size} rows, and not as many columns"
        total = sum(map(sum, self.confusion))
        right = sum(row[k] for k, row in enumerate(self.confusion)) if square else 0
        yield total == inputs, f"accuracy.confusion: {total} inputs of {inputs}"
        yield right == self.top1, f"accuracy.confusion: {right} right answers, and top-1 is {self.top1}"
