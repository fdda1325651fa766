"""The section on calls of a network: a compiled model and other libraries, timed alternately, by inputs of a call."""

import statistics
from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter

from spdnn.core.shown import plural, printable, significant, time
from spdnn.core.statistics import ratios
from spdnn.core.table import (
    BYTES,
    DURATION,
    NUMBER,
    PERCENT,
    RATIO,
    Column,
    Number,
    Phrase,
    Styled,
    Table,
    between,
    code,
)
from spdnn.report.common.blocks import Block, Paragraph, Part, Section
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import MARKS, canvas, colours, despine, logarithmic, set_ticks
from spdnn.report.common.run_rows import BUSY_MARK, group_by
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import busy_part

NAME, TITLE = "calls", "Latency"
LIBRARIES = {
    "scipy": "SciPy", "blas": "dense BLAS", "torch": "PyTorch", "torch-compile": "torch.compile",
    "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO", "openvino-f32": "OpenVINO in float32", "mnn": "MNN",
    "deepsparse": "DeepSparse",
}  # fmt: skip
DRAWN_NETWORKS, SHOWN_NETWORKS = 4, 8  # with a figure, and with a table
HOW = (
    "Ours (",
    code("spdnn.compile"),
    ") and the other libraries ran in turns, on as many threads as each can use, in one process; DeepSparse has one "
    "of its own, and is timed there. A turn is several calls, after an untimed turn; weights are in place. Every "
    "output was first compared with the reference; every timed output equals the verified one to the bit. The "
    "precision is the type that a program computes in. Its largest error is the largest difference from the "
    "reference, divided by the largest value of the same output. A program of lower precision than float32 rounds "
    "more, and is compared with a wider tolerance. Under each ratio: the interval of the median over pairs of "
    "turns, and the ratio of the fastest turns, which other processes interrupt least.",
)


class Call:
    """A program that called a network with so many inputs.

    Attributes:
        record: of the program; ours: of our own in the same comparison; number: of the record on the page.
        seconds: the median; rate: inputs a second.
        ratio: how many times as long as ours it took; fastest: the same of the fastest turns.
        precision: the type that it computes in; error: of its outputs, relative to the largest; None of older records.
    """

    def __init__(self, record: OperationRecord, ours: OperationRecord, number: int | None) -> None:
        self.record, self.ours, self.number, self.is_ours = record, ours, number, record is ours
        self.name, self.batch = printable(record.program.name), record.problem.batch_columns
        self.ratio = ratios(ours.seconds, record.seconds)
        self.fastest = min(record.seconds) / min(ours.seconds)
        self.seconds = statistics.median(record.seconds)
        self.rate = self.batch / self.seconds
        precision, self.error = record.program.notes.get("precision"), record.verification.error
        self.precision = None if precision is None else printable(precision)

    @property
    def lower(self) -> str:
        """Where it computes in another type than float32, that type and the error, in words; else nothing."""
        if self.precision in (None, "float32"):
            return ""
        return self.precision if self.error is None else f"{self.precision}, error {PERCENT.write(self.error)}"


def _layout(call: Call) -> str:
    program, used = call.record.program, call.record.program.threads_used
    threads = f"{plural(used, 'thread')} used" if used < call.record.threads else ""
    return "; ".join(filter(None, (program.version, threads, program.notes.get("layout"))))


CALLS = Table(
    "Calls by batch size",
    [
        Column("Program", lambda call: (call.name, *([" ", BUSY_MARK] if busy_part(call.ours) else []))),
        Column("Inputs per call", lambda call: call.batch, NUMBER),
        Column("Median time", lambda call: call.seconds, DURATION),
        Column("Inputs a second", lambda call: call.rate, RATIO),
        Column(
            "Times as long as ours",
            lambda call: call.ratio.median,
            RATIO,
            below=lambda call: None if call.is_ours
            else (between(*call.ratio[1:3], RATIO), "; fastest ", Number(call.fastest, RATIO)),
        ),
        Column("Precision", lambda call: call.precision),
        Column("Largest error", lambda call: call.error, PERCENT),
        Column("Weights", lambda call: call.record.matrix_bytes, BYTES),
        Column("Version and layout", _layout),
    ],
    record=lambda call: call.number,
    kind=lambda call: "ours" if call.is_ours else "",
)  # fmt: skip


class Called:
    """A network that was called.

    Attributes:
        batches: the calls of each batch, by size: ours, then the others, the fastest first.
        short: times of the largest batch and the smallest, and the fastest other library, in a few words.
        results: sentences on the same, beside the two fastest other libraries.
    """

    def __init__(self, newest: OperationRecord, batches: Sequence[Sequence[Call]]) -> None:
        self.newest, self.batches, self.name = newest, batches, printable(newest.problem.network)
        ends = [batches[-1], *batches[:-1][:1]]
        self.short = "; ".join(_sentence(calls, "in", 1, ", ") for calls in ends)
        self.results = [_sentence(calls, "takes" if calls[0].batch == 1 else "take", 2, ": ") for calls in ends]


def _sentence(calls: Sequence[Call], verb: str, most: int, joint: str) -> str:
    """A batch in words: its time, compared with at most so many other libraries."""
    text = f"{plural(calls[0].batch, 'input')} {verb} {time(calls[0].seconds)}"
    return f"{text}{joint}{_compared(calls[1 : most + 1])}" if calls[1:] else text


@once
def called(collection: Collection) -> list[Called]:
    """The networks that were called. Of several comparisons of one network and batch on one machine, the latest."""
    records = [operation for operation in collection.operations if operation.operation == "network"]
    network = attrgetter("problem.network", "device.name", "threads", "problem.topology_sha256")
    networks = []
    for _, members in sorted(group_by(records, network).items()):
        batches = []
        for _, of_batch in sorted(group_by(members, lambda member: member.problem.batch_columns).items()):
            own = [record for record in of_batch if record.program.kind == "ours"]
            if ours := max(own, key=attrgetter("created", "comparison"), default=None):
                compared = [record for record in of_batch if record.comparison == ours.comparison]
                batches.append(calls_of(compared, collection.operation_numbers))
        if batches:
            networks.append(Called(members[-1], batches))
    return networks


def calls_of(members: Sequence[OperationRecord], numbers: Mapping[int, int] | None = None) -> list[Call]:
    """The programs of a comparison, ours first and then the fastest by its ratio to ours.

    Args:
        numbers: of the records on the page, by the identity of each.
    """
    ours = next(member for member in members if member.program.kind == "ours")
    same = [member for member in members if len(member.seconds) == len(ours.seconds)]
    calls = [Call(member, ours, (numbers or {}).get(id(member))) for member in same]
    return sorted(calls, key=lambda call: (not call.is_ours, call.ratio.median, call.name))


def _compared(calls: Sequence[Call]) -> str:
    """How ours compares with other programs."""
    texts, alike = [], []
    for call in calls:
        name, ratio = LIBRARIES.get(call.name, call.name), call.ratio
        name += f" ({call.lower})" if call.lower else ""
        if ratio.resamples and ratio.low <= 1 <= ratio.high:
            alike.append(name)
            continue
        number = significant(max(ratio.median, 1 / ratio.median), 2)
        texts.append(f"{number} times {'as fast as' if ratio.median >= 1 else 'slower than'} {name}")
    return ", ".join([*texts, f"no clear difference from {' or '.join(alike)}"] if alike else texts)


def section(collection: Collection) -> Section | None:
    """The section; None where no network was called."""
    networks = called(collection)
    if not networks:
        return None
    drawn = [network for network in networks if len(network.batches) > 1][:DRAWN_NETWORKS]
    parts: list[Block] = [_part(network, f"calls-{k}", network in drawn) for k, network in enumerate(networks, 1)]
    more = len(parts) - SHOWN_NETWORKS
    left = [Paragraph(f"{plural(more, 'network')} more, in the records.", "soft")] if more > 0 else []
    blocks = [*parts[:SHOWN_NETWORKS], *left, Paragraph(HOW, "soft")]
    return Section(NAME, TITLE, blocks, "Latency and throughput by batch")


def _part(called: Called, name: str, drawn: bool) -> Part:
    newest, threads = called.newest, plural(called.newest.threads, "thread")
    rules = dict.fromkeys(call.record.verification.rule for calls in called.batches for call in calls)
    about: Phrase = (
        f"{newest.problem.layer}, {plural(newest.problem.nonzeros, 'nonzero weight')}, ",
        Number(newest.problem.sparsity, PERCENT),
        f" sparse; {newest.device.name}. Verified: {'; '.join(rules)}.",
    )  # fmt: skip
    blocks: list[Block] = [Paragraph(about, "soft"), Paragraph(f"{'. '.join(called.results)}.")]
    blocks += [_throughput(called, name)] if drawn else []
    title = f"{CALLS.title}: {called.name}, {threads}"
    blocks.append(CALLS.of([call for calls in called.batches for call in calls], title=title, opened=True))
    blocks.append(Paragraph(Styled(newest.environment.command, "code"), "soft"))
    return Part(f"{called.name}, {threads}", blocks, name)


def _throughput(called: Called, name: str) -> Figure:
    every = [call for calls in called.batches for call in calls]
    return Figure(
        name,
        f"Inputs a second by inputs of a call, {called.name}",
        f"Inputs of a call ÷ its median seconds, logarithmic scales. {called.newest.device.name}, "
        f"{called.newest.threads} threads.",
        partial(_plot, every),
        ("program", "inputs of a call", "seconds of a call", "inputs a second", "times ours", "low", "high"),
        [(call.name, call.batch, call.seconds, call.rate, *call.ratio[:3]) for call in every],
        {call.number: f"{call.name}, {call.batch} inputs: {call.rate:.4g} inputs/s" for call in every},
    )


def _plot(every: Sequence[Call], narrow: bool):
    plot, axes = canvas(4.0, narrow=narrow)
    lines, programs = [], group_by(every, lambda call: call.name)
    for calls, colour, mark in zip(programs.values(), colours(10), MARKS * 2, strict=False):
        lines += axes.plot([call.batch for call in calls], [call.rate for call in calls], color=colour)
        for call in calls:
            axes.scatter([call.batch], [call.rate], s=36, marker=mark, color=colour, gid=f"{RECORD}{call.number}")
    logarithmic(axes, "xy")
    set_ticks(axes.xaxis, [call.batch for call in every])
    axes.set_xlabel("inputs of a call")
    axes.set_ylabel("inputs a second")
    despine(plot)
    plot.legend(lines, list(programs), loc="outside lower left", ncols=3)
    return plot
