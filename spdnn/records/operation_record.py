"""Records of sparse operations for deep learning: one program on one problem, verified; as files, read and checked.

As a run record, one holds the verification that allowed it, and its numbers follow from its own samples.
"""

from __future__ import annotations

import contextlib
import gc
import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spdnn.common.errors import InputError
from spdnn.common.files import write_text
from spdnn.common.statistics import CONFIDENCE, interval
from spdnn.common.validation import check_schema
from spdnn.records import limits, run_record

SCHEMA, VERSION = "spdnn-operation", 1
PRODUCTS = ("spmm", "sddmm")  # whose work and output follow from the problem
SPANS = {
    "spmm": "one product, operands in place",
    "sddmm": "one sampled product, operands in place",
    "softmax": "one softmax, operands in place",
    "attention": "one attention, operands in place",
    "depthwise": "one convolution, operands in place",
    "model": "one model, weights in place",
}
NEAR = 1e-9  # relative: between numbers that follow from each other


def read_all(paths: Iterable[str | Path]) -> tuple[list[dict], list[dict]]:
    """(run records, operation records) in these files, of either kind, .json or .jsonl.

    Raises:
        InputError: a file that is absent, no JSON, or holds a record that is not sound.
    """
    runs, operations = [], []
    with _nothing_collected():
        for path in paths:
            for content, where in run_record.contents(path):
                if isinstance(content, dict) and content.get("schema") == SCHEMA:
                    operations.append(check_operation(content, where))
                else:
                    runs.append(run_record.check_record(content, where))
    return runs, operations


@contextlib.contextmanager
def _nothing_collected() -> Iterator[None]:
    """No garbage is looked for: records hold none, and looking through all their numbers takes a sixth of reading."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def read_operations(path: str | Path) -> list[dict]:
    """The operation records in the file `path`. Raises InputError as of read_all, and where one is of another kind."""
    return [check_operation(content, where) for content, where in run_record.contents(path)]


def write_operations(path: str | Path, found: Sequence[dict]) -> None:
    """Check the records and write them to `path`, one on each line, whole or not at all."""
    sound = [check_operation(record, f"{path}, line {number}") for number, record in enumerate(found, 1)]
    write_text(path, "".join(run_record.as_text(record, path) for record in sound))


def check_operation(record: Any, where: str) -> dict:
    """The record itself when it follows its schema, its output was verified and its numbers agree.

    Raises:
        InputError: one sentence that starts with `where` and names the key.
    """
    check_schema("operation.json", record, where)
    for claims in (_problem, _verification, _work, _imbalance, _machine):
        run_record.require_each(f"{where}: ", claims(record))
    _check_rate(record, f"{where}: ")
    return record


def rates(operations: int, seconds: Sequence[float]) -> dict:
    """The part `operations_per_second` of a record, from its samples."""
    middle, low, high, resamples = interval(seconds)
    found = {"median": operations / middle, "low": operations / high, "high": operations / low}
    return {**found, "confidence": CONFIDENCE, "resamples": resamples}


def _problem(record: dict) -> list[tuple[bool, str]]:
    problem = record["problem"]
    rows, columns, nonzeros = problem["rows"], problem["columns"], problem["nonzeros"]
    sparsity = 1 - nonzeros / (rows * columns)
    return [
        (nonzeros <= rows * columns, f"problem.nonzeros: {nonzeros} in {rows} x {columns}"),
        (
            abs(problem["sparsity"] - sparsity) <= NEAR,
            f"problem.sparsity: {problem['sparsity']:g}, but {nonzeros} nonzeros leave {sparsity:g}",
        ),
        (
            problem["index_bits"] == 32 or columns <= 1 << 16,
            f"problem.index_bits: 16, and they do not reach {columns} columns",
        ),
        (record["span"] == SPANS[record["operation"]], f"span: not that of {record['operation']}"),
        (
            record["program"]["threads_used"] <= record["threads"] or record["device"]["kind"] != "cpu",
            f"program.threads_used: {record['program']['threads_used']} of {record['threads']}",
        ),
    ]


def _verification(record: dict) -> list[tuple[bool, str]]:
    known, digests, problem = record["verification"], record["digests"], record["problem"]
    entries, checked, samples = known["entries"], known["checked"], len(record["samples"]["seconds"])
    right = {
        "spmm": problem["rows"] * problem["batch_columns"] * problem["batch"],
        "sddmm": problem["nonzeros"] * problem["batch"],
    }.get(record["operation"], entries)
    return [
        (known["passed"], "verification.passed: the output was wrong, and a record needs one that was right"),
        (
            (known["oracle"] == "float64") != (record["operation"] == "model"),
            f"verification.oracle: {known['oracle']} is not that of {record['operation']}",
        ),
        (known["worst"] <= 1, f"verification.worst: {known['worst']:g} times the tolerance, and it passed"),
        (checked <= entries, f"verification.checked: {checked} of {entries} entries"),
        (
            (known["seed"] is None) == (checked == entries),
            f"verification.seed: a sample has one; {checked} of {entries} entries were compared",
        ),
        (entries == right, f"verification.entries: {entries}, but the output has {right}"),
        (len(digests) == samples, f"digests: {len(digests)} for {samples} samples"),
        (set(digests) == {known["digest"]}, "digests: a timed output is not the one that was verified"),
    ]


def _work(record: dict) -> list[tuple[bool, str]]:
    work, problem = record["work"], record["problem"]
    useful, done = work["useful_operations"], work["multiply_adds"]
    dense = record["program"]["kind"] == "dense"
    each = problem["batch_columns"] * problem["batch"]
    right = problem["nonzeros"] * each
    whole = problem["rows"] * problem["columns"] * each
    product = record["operation"] in PRODUCTS
    return [
        (not product or useful == 2 * right, f"work.useful_operations: {useful}, but the nonzeros take {2 * right}"),
        (
            not product or done == (whole if dense else right),
            f"work.multiply_adds: {done}, but a {'dense' if dense else 'sparse'} program takes "
            f"{whole if dense else right}",
        ),
        (2 * done >= useful, f"work.multiply_adds: {done}, less than {useful} useful operations need"),
    ]


def _imbalance(record: dict) -> list[tuple[bool, str]]:
    told, threads = record["imbalance"], record["threads"]
    if told is None:
        return []
    middle = statistics.median(told["samples"])
    most = max(*told["samples"], told["nonzeros"] or 1)
    return [
        (
            math.isclose(told["busy"], middle, rel_tol=NEAR),
            f"imbalance.busy: {told['busy']:g}, but the median of its samples is {middle:g}",
        ),
        (
            most <= threads * (1 + NEAR),
            f"imbalance: {most:g}; maximum over mean of {threads} threads is at most {threads}",
        ),
    ]


def _machine(record: dict) -> list[tuple[bool, str]]:
    if record["machine"] is None:
        return []
    machine, threads = limits.Machine(**record["machine"]), record["threads"]
    done, fastest = record["work"]["multiply_adds"], min(record["samples"]["seconds"])
    rate = done / fastest if fastest > 0 else math.inf
    times = rate / machine.fma_per_second
    best = {name: (max(found), getattr(machine, name)) for name, found in machine.samples.items()}
    return [
        *(
            (most == told, f"machine.{name}: {told:g}, but the best sample is {most:g}")
            for name, (most, told) in best.items()
        ),
        (machine.threads == threads, f"machine.threads: {machine.threads}, but the program had {threads}"),
        (
            machine.on_device == (record["device"]["kind"] == "cuda"),
            f"machine.instruction_set: {machine.instruction_set} is not of a device of kind {record['device']['kind']}",
        ),
        (
            times <= limits.TOLERANCE,
            f"work.multiply_adds: {done} in {fastest:g} s, {times:.3g} times what the machine can multiply and add; "
            "a number above the machine's limit is a failure, not a record",
        ),
    ]


def _check_rate(record: dict, where: str) -> None:
    told = record["operations_per_second"]
    try:
        right = rates(record["work"]["useful_operations"], record["samples"]["seconds"])
    except InputError as error:
        raise InputError(f"{where}samples.seconds: {error}") from None
    for key in ("median", "low", "high"):
        same = math.isclose(told[key], right[key], rel_tol=run_record.RATE_TOLERANCE)
        sentence = f"operations_per_second.{key}: {told[key]:g}, but {right[key]:g} follows from the samples"
        run_record.require_each(where, [(same, sentence)])
    same = told["resamples"] == right["resamples"]
    sentence = f"operations_per_second.resamples: {told['resamples']}, but the samples take {right['resamples']}"
    run_record.require_each(where, [(same, sentence)])
