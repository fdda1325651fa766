"""One's own model, called with batches: compiled, and in other libraries, timed in turns, each verified.

A sample is the mean of a turn of calls after a turn that is not timed; weights are in the library's own layout, on the
same number of threads. A model is a network of layers, or any other ONNX model. All outputs of a turn are compared with
a reference before a program is timed. What is wrong gets no number.
"""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from spdnn.bench.contest import Changed, ComparisonSettings, Entrant, Pace, contest, make_programs
from spdnn.bench.judge import Call, Judge
from spdnn.bench.libraries.base import OURS, TimedProgram
from spdnn.bench.libraries.numpy import blas_threads
from spdnn.bench.libraries.onnx import OnnxFile
from spdnn.bench.libraries.registry import PROGRAMS
from spdnn.bench.records import Task, model_problem, operation_records
from spdnn.core import closeness
from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.resources import CALLS_SHARE, available_bytes
from spdnn.core.shown import plural
from spdnn.engines import oracle
from spdnn.formats import onnx_files
from spdnn.formats.readers import network_files
from spdnn.formats.tensors import NpzArchive
from spdnn.ops.onnx_trial import FORMS, UNKNOWN
from spdnn.runs.records.operation_record import OperationRecord

LEAST_CALLS = 4  # of a turn, at least
PACE = Pace(5, 200, warm=True, wait_for_idle=True)
LAYERS = "it is compared on chains of pruned layers alone, and this model is none"
# How far an output may be off: of its largest value, and at least so many roundings of its type.
OUTPUT_TOLERANCE, OUTPUT_ROUNDINGS = 1e-4, 4


class NetworkCase:
    """A network, compared with the float64 reference.

    Args:
        rows: float32 (inputs, neurons); taken again from the first where a turn needs more.

    Attributes, those of OnnxCase too:
        name: in records; source: what programs take; batches: numbers of inputs of a call; inputs: of a turn, at least.
        layers, facts: in words; reference: what outputs are compared with; rule: what is tolerated.
        entries, nonzeros: of all weights; digest: of the model.
        work: multiply-adds of an input, on nonzeros and on all entries; zeros where they are not counted.

    Raises:
        InputError: inputs that do not fit the network, or the memory.
    """

    reference = "float64"
    rule = "every value within float32 rounding of a float64 reference"
    inputs = 64

    def __init__(self, name: str, network: Network, rows: np.ndarray, batches: Sequence[int]):
        self.name, self.source, self.batches, self.digest = name, network, batches, network.sha256()
        self.entries, self.nonzeros = network.entries, network.edges
        self.work, self.layers = (self.nonzeros, self.entries), plural(network.depth, "layer")
        self.facts = f"{network.inputs} -> {network.outputs}, {self.layers}, {network.edges:,} edges"
        count = max(self.inputs, *batches)
        _check_memory(network, count)
        self._x = np.ascontiguousarray(np.take(rows, np.arange(count), axis=0, mode="wrap"), np.float32)
        numbers = np.arange(count)
        self._truth = oracle.judge(network, Inputs.from_array(self._x), None, numbers, "verify outputs")[1]

    def calls(self, batch: int, count: int) -> Iterable[Call]:
        """So many calls, each of `batch` inputs."""
        different, truth = len(self._x) // batch, self._truth
        for first in (batch * (call % different) for call in range(count)):
            part = slice(first, first + batch)
            yield Call((self._x[part],), [truth.values[part]], [truth.each[part]])


class OnnxCase:
    """An ONNX model of any kind, compared with ONNX Runtime, which then optimises nothing.

    Args:
        batches: sizes of the first dimension of each input that leaves it free; None: usual ones.
        given: an .npz file with an array for each input; None: they are drawn anew for each call.

    Attributes:
        spread: what ONNX Runtime's optimisations change at most of an output of the calls so far / its largest value.

    Raises:
        InputError: a model that ONNX Runtime does not run, arrays or batches that it does not take.
    """

    reference = "ONNX Runtime without optimisations"
    rule = (
        f"every value within {OUTPUT_TOLERANCE:g} of the largest of its output, or {FORMS} times what ONNX Runtime's "
        "optimisations change, by ONNX Runtime without optimisations; whole numbers equal"
    )
    inputs, work = 16, (0, 0)
    BATCHES = (1, 8)

    def __init__(self, name: str, path: str, threads: int, batches: Sequence[int] | None, given: str | None = None):
        def usual(options: Any) -> None:
            options.intra_op_num_threads = threads

        def plain(options: Any) -> None:
            onnx_files.without_optimisations(options)
            usual(options)

        graph = onnx_files.OnnxGraph.read(path)
        self.name, self._path, self._signature, self.spread = name, path, graph.signature, 0.0
        self._plain, self._optimised = graph.session(plain), graph.session(usual)
        self._free = [bool(each.shape) and not isinstance(each.shape[0], int) for each in self._signature.inputs]
        self.batches = list(batches or self.BATCHES) if any(self._free) else self._fixed_batches(batches)
        self._given = None if given is None else self._read(given)
        next(iter(self.calls(self.batches[0], 1)))  # what it does not take is refused before anything is printed
        self._weights(graph.model)
        self.digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(network_files(path)))).hexdigest()

    def calls(self, batch: int, count: int) -> Iterable[Call]:
        """As NetworkCase.calls."""
        for call in range(count):
            feed = self._feed(batch, call)
            try:
                right, other = self._plain.run(None, feed), self._optimised.run(None, feed)
            except Exception as error:  # of many types, none of them public
                raise InputError(f"{self._path}: {onnx_files.reason(error)}") from error
            if not all(isinstance(expected, np.ndarray) and expected.dtype.kind in "biuf" for expected in right):
                raise InputError(f"{self._path}: it has outputs that are no numbers, which cannot be compared")
            tolerated = [self._tolerated(*forms) for forms in zip(right, other, strict=True)]
            yield Call(tuple(feed.values()), right, tolerated)

    def _tolerated(self, expected: np.ndarray, other: np.ndarray) -> np.ndarray:
        """How far a value of an output may be from the expected one; `other`: the output with optimisations.

        Whole numbers must be equal. Others may differ by a part of the output's largest magnitude: deep models, and
        outputs that are small differences of large values, amplify the rounding of sums whose order is free.
        """
        if expected.dtype.kind != "f":
            return np.zeros(expected.shape)
        with np.errstate(invalid="ignore"):  # of infinities, which are not looked at
            largest, changed = closeness.largest(expected), closeness.largest(expected - other)
        self.spread = max(self.spread, changed / largest if largest else 0.0)
        part = max(OUTPUT_TOLERANCE, OUTPUT_ROUNDINGS * float(np.finfo(expected.dtype).eps))
        return np.full(expected.shape, max(part * largest, FORMS * changed))

    def _feed(self, batch: int, call: int) -> dict[str, np.ndarray]:
        if self._given is None:
            feed = self._signature.draw(batch, UNKNOWN, call)
            if feed is None:
                raise InputError(f"{self._path}: its inputs cannot be drawn; give them with --inputs")
            return feed
        rows = np.arange(batch * call, batch * (call + 1))
        return {
            name: array.take(rows, axis=0, mode="wrap") if free else array
            for (name, array), free in zip(self._given.items(), self._free, strict=True)
        }

    def _read(self, file: str) -> dict[str, np.ndarray]:
        archive = NpzArchive(file)
        given = replace(self._signature, what=file).feed((), {name: archive.any(name) for name in archive})
        for name, free in zip(self._signature.names, self._free, strict=True):
            if free and not len(given[name]):
                raise InputError(f"{file}: {name} has no inputs")
        return given

    def _fixed_batches(self, batches: Sequence[int] | None) -> list[int]:
        """The one number of inputs that the model takes."""
        shape = self._signature.inputs[0].shape if self._signature.inputs else ()
        own = [max(1, shape[0]) if shape else 1]
        if batches and list(batches) != own:
            raise InputError(f"--batches: {self._path} takes calls of {own[0]} alone, since its shapes are fixed")
        return own

    def _weights(self, model: Any) -> None:
        """Count constants of two dimensions or more."""
        from onnx import numpy_helper

        weights = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if len(tensor.dims) > 1]
        self.entries = max(1, sum(weight.size for weight in weights))
        self.nonzeros = sum(int(np.count_nonzero(weight)) for weight in weights)
        sizes: Counter[str] = Counter()
        for weight in weights:
            sizes[weight.dtype.name] += weight.size
        precision = sizes.most_common(1)[0][0] if sizes else "float32"
        self.source = OnnxFile(self._path, sum(weight.nbytes for weight in weights), precision)
        self.layers = plural(len(model.graph.node), "node")
        self.facts = f"{self.layers}, {self.entries:,} weights, {100 * self.nonzeros / self.entries:.3g} % nonzero"


Case = NetworkCase | OnnxCase


class Turn(TimedProgram):
    """Several calls of a model with different inputs, so that no library gains from equal data."""

    def __init__(self, model: TimedProgram, calls: Sequence[Call]):
        # Preparing for the shape of a call is part of making the program.
        model.prepare_shapes(*calls[0].inputs)
        self.model, self.calls, self.precision = model, calls, model.precision
        self.notes = model.notes | {"calls": len(calls), "precision": model.precision}
        self.name, self.kind, self.version = model.name, model.kind, model.version
        self.threads_used, self.matrix_bytes = model.threads_used, model.matrix_bytes

    @cached_property
    def inputs(self) -> list[Any]:
        return [self.model.convert_inputs(*call.inputs) for call in self.calls]

    def __call__(self, x: Any = None) -> list[Any]:
        outs = self.model.turn(self.inputs)
        self.own_seconds, self.own_processor_seconds = self.model.own_seconds, self.model.own_processor_seconds
        return outs

    def arrays(self, out: list[Any]) -> list[np.ndarray]:
        return [array for each in out for array in self.model.arrays(each)]


def compare_calls(case: Case, comparison: ComparisonSettings) -> Iterator[tuple[list[OperationRecord], dict[str, str]]]:
    """Yield (the records of all programs, ours first, why each of the others has none) for each number of inputs.

    Raises:
        InputError: inputs that the model does not take.
        SpdnnError: our own outputs are wrong, or changed while they were timed.
    """

    def make(name: str) -> TimedProgram:
        program = PROGRAMS["network"][name]
        if not isinstance(case.source, program.takes):
            raise Unavailable(LAYERS)
        return program(case.source, comparison.threads)

    with blas_threads(comparison.threads), contextlib.ExitStack() as opened:
        makers = {name: partial(make, name) for name in (OURS, *comparison.libraries)}
        models, refused = make_programs(makers, opened, Exception)
        for batch in case.batches:
            records, reasons = _compare(case, batch, comparison, models)
            yield records, refused | reasons


def _compare(
    case: Case, batch: int, comparison: ComparisonSettings, models: dict[str, Entrant]
) -> tuple[list[OperationRecord], dict[str, str]]:
    """(the records of one number of inputs, why other models have none)."""
    calls = list(case.calls(batch, max(LEAST_CALLS, case.inputs // batch)))
    judge = Judge(calls, case.reference, case.rule)
    makers = {name: partial(Turn, model.program, calls) for name, model in models.items()}
    try:
        entrants, refused, load = contest(makers, judge, PACE, comparison.seconds, Exception)
    except Changed:
        raise
    except Exception as error:  # ours: another library is refused
        raise SpdnnError(f"ours, batch {batch}: {error}") from error
    turn = entrants[OURS].program
    turn.notes |= turn.model.findings(turn.inputs[0]) | ({"wrong": judge.wrong} if judge.wrong else {})
    for name, entrant in entrants.items():
        entrant.prepare_seconds += models[name].prepare_seconds
        entrant.seconds = [seconds / len(calls) for seconds in entrant.seconds]
    problem = model_problem(case.name, case.layers, case.entries, case.nonzeros, case.digest, batch_columns=batch)
    operands = sum(array.nbytes for array in (*calls[0].inputs, *calls[0].right))
    work = tuple(batch * multiply_adds for multiply_adds in case.work)
    task = Task("network", f"network.{case.name}.b{batch}", problem, work, operands)
    return operation_records(task, comparison, entrants.values(), load), refused


def draw_rows(count: int, neurons: int, zeros: float) -> np.ndarray:
    """float32 (count, neurons): uniform numbers from 0 to 1, of which the part `zeros` is 0."""
    random = np.random.default_rng(0)
    rows = random.random((count, neurons), dtype=np.float32)
    rows[random.random(rows.shape, dtype=np.float32) < zeros] = 0
    return rows


def _check_memory(network: Network, count: int) -> None:
    needed, free = 8 * count * (4 * network.width + 4 * network.outputs), available_bytes()
    if free is not None and needed > CALLS_SHARE * free:
        raise InputError(
            f"{count} inputs of this network need about {needed:,} bytes to be verified; {free:,} are free"
        )
