"""The classes of a record of a sparse operation for deep learning: one program on one problem, verified.

As with a run record (`spdnn.runs.records.run_record`), a file follows its class, and `claims` are next to the fields.
"""

import math
import statistics
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta

from spdnn.core import limits
from spdnn.core.fields import Case, Claim, Count, Digest, Identity, Name, Positive, Record, Samples, Time, column
from spdnn.core.limits import Machine
from spdnn.core.load import Load
from spdnn.core.statistics import Interval
from spdnn.core.validation import END
from spdnn.runs.records.environment import Environment
from spdnn.runs.records.result import Accuracy
from spdnn.runs.records.samples import check_samples, work_per_second

SCHEMA, OPERATION_VERSION = "spdnn-operation", 3
PRODUCTS = ("spmm", "sddmm")  # whose work and output follow from the problem
SPANS = {
    "spmm": "one product, operands in place",
    "sddmm": "one sampled product, operands in place",
    "softmax": "one softmax, operands in place",
    "attention": "one attention, operands in place",
    "depthwise": "one convolution, operands in place",
    "model": "one model, weights in place",
    "network": "one call, weights in place; mean of a turn of calls",
}
NEAR = 1e-9  # relative: between numbers that follow from each other
Amount = Annotated[float, Meta(ge=0, le=sys.float_info.max)]
AtLeastOne = Annotated[float, Meta(ge=1, le=float(2**63 - 1))]
Version = Annotated[str, Meta(min_length=1, max_length=200)]


class DlmcMatrix(Record):
    """A matrix of the Deep Learning Matrix Collection, and the sample that it is in, which the problem's seed drew.

    Attributes:
        name: MODEL/METHOD/SPARSITY/NAME.smtx, where the sparsity is that of the whole pruned model.
        drawn: matrices in the sample.
        drawn_from: matrices of the asked networks and sparsities in the collection.
    """

    name: Annotated[str, Meta(pattern=rf"^[a-z0-9]+/[a-z0-9_]+/0\.[0-9]{{1,6}}/[A-Za-z0-9_]{{1,120}}\.smtx${END}")]
    drawn: Positive
    drawn_from: Positive

    @property
    def sparsity(self) -> float:
        """Of the pruned model, 0 to 1."""
        return float(self.name.split("/")[2])


class OperationProblem(Record, omit_defaults=True):
    """A sparse matrix, and the dense operands.

    Attributes:
        set: a: layers of pruned networks, b: square, c: skewed rows, models: a whole model, own: a user's matrix.
        rows: of the sparse matrix; of a model, of its attention mask, or its images; of a network 1, all its weights in
            a row.
        batch_columns: columns of the dense matrix; of sddmm and attention, the length of the dot products; of a
            network, the inputs of a call.
        batch: matrices that share the positions.
        repeats: how often the shape is in its network.
        origin: where the positions come from.
        topology_sha256: of shape, offsets and columns.
        seed: of values, and of positions that are generated, or of a sample.
        dlmc: the matrix of that collection; absent where the positions do not come from it.
    """

    set: Literal["a", "b", "c", "models", "own"]
    network: Annotated[Name, column()]
    layer: Name
    rows: Positive
    columns: Positive
    batch_columns: Positive
    batch: Positive
    nonzeros: Count
    phase: Literal["inference", "training"]
    repeats: Positive
    origin: Literal["generated", "dlmc", "file"]
    topology_sha256: Digest
    seed: Count
    index_bits: Literal[16, 32]
    dlmc: DlmcMatrix | None = None

    @property
    def sparsity(self) -> float:
        """The part of the matrix that is no nonzero, 0 to 1."""
        return 1 - self.nonzeros / (self.rows * self.columns)

    def claims(self) -> Iterator[Claim]:
        """Sizes agree."""
        wrong = f"problem.nonzeros: {self.nonzeros} in {self.rows} x {self.columns}"
        yield self.nonzeros <= self.rows * self.columns, wrong
        reached = self.index_bits == 32 or self.columns <= 1 << 16
        yield reached, f"problem.index_bits: 16, and they do not reach {self.columns} columns"
        if self.dlmc:
            yield self.origin == "dlmc", f"problem.dlmc: a matrix of it, and origin is {self.origin}"
            drawn, of = self.dlmc.drawn, self.dlmc.drawn_from
            yield drawn <= of, f"problem.dlmc.drawn: {drawn} of {of} matrices"


class Program(Record):
    """The program that ran.

    Attributes:
        kind: ours; sparse: another library on the nonzeros; dense: all of the matrix, zeros too.
        notes: how threads were set, the layout, of calls of a model the precision of the arithmetic (float32, bfloat16,
            ...), and of ours the instruction set, setting and swizzle; free.
    """

    name: Annotated[Name, column("engine")]
    kind: Literal["ours", "sparse", "dense"]
    version: Version
    threads_used: Positive
    notes: dict[str, Any]


class DeviceRecord(NamedTuple):
    """Where an operation ran: cpu or cuda, and its name."""

    kind: str
    name: str


class Verification(Record, omit_defaults=True):
    """How the output was compared: with float64, by spdnn.ops.oracle, of a network by spdnn.engines.oracle, which share
    no code with the kernels; a model with itself in the other arithmetic; an ONNX model that is no chain of layers with
    ONNX Runtime, which `rule` then names. Every timed output was the same to the bit.

    Attributes:
        entries: of the output; of a program of lower precision, without the whole numbers, which rounding can change.
        checked: that were compared, each with its own tolerance.
        seed: of the sample; null where all were compared.
        worst: the largest error / its tolerance.
        digest: of the verified output.
        error: of calls of a model: the largest difference from the reference / the largest value of the same output,
            over all calls of a turn; absent of other operations.
    """

    entries: Positive
    checked: Positive
    seed: Count | None
    rule: Annotated[str, Meta(min_length=1, max_length=300)]
    worst: Amount
    digest: Digest
    error: Amount | None = None

    def claims(self, record: "OperationRecord") -> Iterator[Claim]:
        """It passed."""
        problem, entries, checked = record.problem, self.entries, self.checked
        right = {
            "spmm": problem.rows * problem.batch_columns * problem.batch,
            "sddmm": problem.nonzeros * problem.batch,
        }.get(record.operation, entries)
        wrong = f"verification.worst: {self.worst:g} times the tolerance, and a record needs an output that passed"
        yield self.worst <= 1, wrong
        yield checked <= entries, f"verification.checked: {checked} of {entries} entries"
        wrong = f"verification.seed: a sample has one; {checked} of {entries} entries were compared"
        yield (self.seed is None) == (checked == entries), wrong
        yield entries == right, f"verification.entries: {entries}, but the output has {right}"


class OperationRecord(Record, kw_only=True, dict=True, omit_defaults=True):
    """One program on one verified problem of the sparse operations.

    What it computed, how long each call took, on what machine. Each sample follows an untimed run of the same program
    on the same operands (warm caches), and is of one call, with the matrix in the program's layout, handles made,
    outputs allocated (where the library takes one).

    Attributes:
        case: names operation, problem and program.
        created: UTC.
        comparison: the same in the records of one run of the benchmark; programs of one problem were timed alternately.
        threads: of every program of the problem.
        prepare_seconds: layouts and handles, outside the clock.
        seconds: of each call; `span` says what they include.
        useful_operations: multiplications and additions on nonzeros in a call: 2 nnz N of a product; 0 of an ONNX model
            that is no chain of layers, where they are not counted.
        multiply_adds: that the program computes in a call, of a dense one with zeros too. Of a network edges x inputs:
            values that are 0, which ours skips in calls with one input, count.
        matrix_bytes: the matrix (of a model, all weights) as the program holds it.
        operand_bytes: dense operands and the output.
        attention_bytes: of a model: masks and scores of its attention; else null.
        thread_imbalance: maximum over mean of the threads' busy processor seconds, of each call; null: not measured.
        nonzero_imbalance: maximum over mean of the threads' nonzeros; null: not known.
        machine: what the machine did at best, at most seconds away from the samples.
        load: other work of the machine while the programs of the problem were timed; null where nobody looked.
        accuracy: of the program's outputs on inputs with labels; absent where there are none.
        seal: digest of all the rest, of whoever wrote the record last: it finds damage and edits, not a forger; null:
            none was given.
    """

    schema: Literal["spdnn-operation"]
    version: Literal[3]
    created: Annotated[Time, column()]
    comparison: Identity
    operation: Literal["spmm", "sddmm", "softmax", "attention", "depthwise", "model", "network"]
    problem: OperationProblem
    threads: Annotated[Positive, column()]
    machine: Machine | None
    environment: Environment
    case: Annotated[Case, column()]
    program: Program
    prepare_seconds: Samples
    seconds: Samples
    useful_operations: Count
    multiply_adds: Count
    matrix_bytes: Count
    operand_bytes: Count
    attention_bytes: Count | None
    verification: Verification
    thread_imbalance: Annotated[list[AtLeastOne], Meta(min_length=1)] | None
    nonzero_imbalance: AtLeastOne | None
    load: Load | None
    seal: Digest | None
    accuracy: Accuracy | None = None

    @property
    def imbalance(self) -> float | None:
        """The median of `thread_imbalance`."""
        return statistics.median(self.thread_imbalance) if self.thread_imbalance else None

    @property
    def held_bytes(self) -> int:
        """The matrix, the operands, and of a model its attention."""
        return self.matrix_bytes + self.operand_bytes + (self.attention_bytes or 0)

    @property
    def device(self) -> DeviceRecord:
        """The GPU, where one was used."""
        place = self.environment
        return DeviceRecord("cuda", place.gpu) if place.gpu else DeviceRecord("cpu", place.cpu)

    @property
    def span(self) -> str:
        """What a sample includes."""
        return SPANS[self.operation]

    @cached_property
    def operations_per_second(self) -> Interval:
        """Useful operations / seconds."""
        return work_per_second(self.useful_operations, self.seconds)

    def claims(self) -> Iterator[Claim]:
        """Its output was verified, and its numbers agree; no claim is worked out before those ahead of it hold."""
        yield from self.problem.claims()
        used = self.program.threads_used
        wrong = f"program.threads_used: {used} of {self.threads}"
        yield used <= self.threads or self.device.kind != "cpu", wrong
        yield from self.verification.claims(self)
        yield from self._work()
        most = max([*(self.thread_imbalance or ()), self.nonzero_imbalance or 1])
        wrong = f"imbalance: {most:g}; maximum over mean of {self.threads} threads is at most {self.threads}"
        yield most <= self.threads * (1 + NEAR), wrong
        yield from check_samples("seconds", self.seconds)
        if self.accuracy:
            yield self.accuracy.confusion is not None, "accuracy.confusion: null, so the number of inputs is unknown"
            yield from self.accuracy.claims(sum(map(sum, self.accuracy.confusion)))
        yield from self._machine() if self.machine else ()

    def _work(self) -> Iterator[Claim]:
        """The operations of a product follow from its problem."""
        problem, dense = self.problem, self.program.kind == "dense"
        useful, done = self.useful_operations, self.multiply_adds
        each = problem.batch_columns * problem.batch
        sparse, whole = problem.nonzeros * each, problem.rows * problem.columns * each
        right, product = whole if dense else sparse, self.operation in PRODUCTS
        wrong = f"useful_operations: {useful}, but the nonzeros take {2 * sparse}"
        yield not product or useful == 2 * sparse, wrong
        wrong = f"multiply_adds: {done}, but a {'dense' if dense else 'sparse'} program takes {right}"
        yield not product or done == right, wrong
        yield 2 * done >= useful, f"multiply_adds: {done}, less than {useful} useful operations need"

    def _machine(self) -> Iterator[Claim]:
        machine, kind, done, fastest = self.machine, self.device.kind, self.multiply_adds, min(self.seconds)
        wrong = f"machine.instruction_set: {machine.instruction_set} is not of a device of kind {kind}"
        yield machine.on_device == (kind == "cuda"), wrong
        times = (done / fastest if fastest > 0 else math.inf) / machine.fma_per_second
        wrong = f"{done} in {fastest:g} s, {times:.3g} times what the machine can multiply and add"
        yield times <= limits.LIMIT_FACTOR, f"multiply_adds: {wrong}; {limits.BEYOND}"
