"""The section on calls of a network: a compiled model and other libraries, timed alternately, by inputs of a call."""

import statistics
from collections.abc import Iterator, Sequence

from spdnn.core.statistics import ratios
from spdnn.report.common import words
from spdnn.report.common.collection import Collection, once
from spdnn.report.common.drawing import RECORD, Figure
from spdnn.report.common.plotting import canvas, colours, despine, logarithmic, set_ticks
from spdnn.report.common.run_rows import group_by
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import busy_part

LIBRARIES = {
    "scipy": "SciPy", "blas": "dense BLAS", "torch": "PyTorch", "torch-compile": "torch.compile",
    "onnxruntime": "ONNX Runtime", "openvino": "OpenVINO",
}  # fmt: skip
MOST = 4  # networks that are drawn; all are in tables
MARKS = ("o", "s", "^", "D", "v", "P")


@once
def values(collection: Collection) -> dict | None:
    """What the section prints: `networks`, each with its batches; None without one.

    Of several comparisons of one network and batch on one machine, the latest counts.
    """
    numbers = {id(record): number for number, record in enumerate(collection.operations, len(collection.records))}
    records = [operation for operation in collection.operations if operation.operation == "network"]
    networks = [entry for members in group_by(records, _key).values() if (entry := _network(members, numbers))]
    networks.sort(key=lambda network: (network["name"], network["machine"], network["threads"], network["digest"]))
    for number, entry in enumerate(networks, 1):
        entry["id"] = f"calls-{number}"
    return {"networks": networks} if networks else None


def _key(record: OperationRecord) -> tuple:
    """The same for records of one network and where it ran."""
    return record.problem.network, record.problem.topology_sha256, record.threads, record.device.name


def _network(members: Sequence[OperationRecord], numbers: dict[int, int]) -> dict | None:
    batches = []
    for batch, of_batch in sorted(group_by(members, lambda member: member.problem.batch_columns).items()):
        comparisons = [some for some in group_by(of_batch, lambda record: record.comparison).values() if _ours(some)]
        if comparisons:
            latest = max(comparisons, key=lambda some: (some[0].created, some[0].comparison))
            batches.append({"batch": batch, "rows": _rows(latest, numbers), "busy": busy_part(latest[0])})
    if not batches:
        return None
    newest = members[-1]
    ends = [batches[-1], batches[0]] if len(batches) > 1 else batches
    return {
        "name": words.printable(newest.problem.network),
        "digest": newest.problem.topology_sha256,
        "layers": words.printable(newest.problem.layer),
        "edges": newest.problem.nonzeros,
        "sparsity": newest.problem.sparsity,
        "threads": newest.threads,
        "machine": words.printable(newest.device.name),
        "command": words.printable(newest.environment.command, 2000),
        "rule": words.printable(newest.verification.rule, 300),
        "batches": batches,
        "results": [_sentence(entry) for entry in ends],
        "short": "; ".join(map(_short, ends)),
        "programs": list(dict.fromkeys(row["name"] for entry in batches for row in entry["rows"])),
    }


def _sentence(entry: dict) -> str:
    """A batch in words: its time, compared with the two fastest other libraries."""
    text = f"{words.plural(entry['batch'], 'input')} take{'s' if entry['batch'] == 1 else ''} {_time(entry)}"
    return f"{text}: {_comparison_text(entry['rows'][1:3])}" if entry["rows"][1:] else text


def _short(entry: dict) -> str:
    """The same in short, compared with the fastest of them."""
    text = f"{words.plural(entry['batch'], 'input')} in {_time(entry)}"
    return f"{text}, {_comparison_text(entry['rows'][1:2])}" if entry["rows"][1:] else text


def _time(entry: dict) -> str:
    return words.time(entry["rows"][0]["seconds"])


def _comparison_text(rows: Sequence[dict]) -> str:
    """How ours compares with other programs."""
    texts, alike = [], []
    for row in rows:
        name, ratio = LIBRARIES.get(row["name"], row["name"]), row["ratio"]
        if ratio.resamples and ratio.low <= 1 <= ratio.high:
            alike.append(name)
            continue
        number = words.significant(max(ratio.median, 1 / ratio.median), 2)
        texts.append(f"{number} times {'as fast as' if ratio.median >= 1 else 'slower than'} {name}")
    return ", ".join([*texts, f"no clear difference from {' or '.join(alike)}"] if alike else texts)


def _ours(members: Sequence[OperationRecord]) -> OperationRecord | None:
    return next((member for member in members if member.program.kind == "ours"), None)


def _rows(members: Sequence[OperationRecord], numbers: dict[int, int]) -> list[dict]:
    """The programs of a comparison, ours first and then the fastest by its ratio to ours."""
    ours = _ours(members)
    rows = [_row(member, ours, numbers[id(member)]) for member in members if len(member.seconds) == len(ours.seconds)]
    return sorted(rows, key=lambda row: (not row["is_ours"], row["ratio"].median, row["name"]))


def _row(record: OperationRecord, ours: OperationRecord, number: int) -> dict:
    middle, program = statistics.median(record.seconds), record.program
    return {
        "number": number,
        "name": words.printable(program.name),
        "version": words.printable(program.version),
        "layout": words.printable(program.notes.get("layout", "–"), 160),
        "is_ours": record is ours,
        "threads_used": program.threads_used,
        "seconds": middle,
        "rate": record.problem.batch_columns / middle if middle else 0.0,
        "ratio": ratios(ours.seconds, record.seconds),
        "fastest": min(record.seconds) / min(ours.seconds) if min(ours.seconds) else 0.0,
        "bytes": record.matrix_bytes,
    }


def figures(values: dict) -> Iterator[Figure]:
    """Of each network that was called with several batches, on logarithmic scales."""
    several = [value for value in values["networks"] if len(value["batches"]) > 1]
    yield from map(_throughput, several[:MOST])


def _throughput(calls: dict) -> Figure:
    plot, axes = canvas(4.0)
    lines, rows, tips = [], [], {}
    for name, colour, mark in zip(calls["programs"], colours(10), MARKS * 2, strict=False):
        points = [(entry["batch"], row) for entry in calls["batches"] for row in entry["rows"] if row["name"] == name]
        lines += axes.plot([batch for batch, _ in points], [row["rate"] for _, row in points], color=colour)
        for batch, row in points:
            axes.scatter([batch], [row["rate"]], s=36, marker=mark, color=colour, gid=f"{RECORD}{row['number']}")
            tips[row["number"]] = f"{name}, {batch} inputs: {row['rate']:.4g} inputs/s"
            rows.append((name, batch, row["seconds"], row["rate"], *row["ratio"][:3]))
    logarithmic(axes, "xy")
    set_ticks(axes.xaxis, [entry["batch"] for entry in calls["batches"]])
    axes.set_xlabel("inputs of a call")
    axes.set_ylabel("inputs a second")
    despine(plot)
    plot.legend(lines, calls["programs"], loc="outside lower left", frameon=False, ncols=3)
    return Figure(
        calls["id"],
        f"Inputs a second by inputs of a call, {calls['name']}",
        f"Inputs of a call ÷ its median seconds, logarithmic scales. {calls['machine']}, {calls['threads']} threads.",
        plot,
        ("program", "inputs of a call", "seconds of a call", "inputs a second", "times as long as ours", "low", "high"),
        rows,
        tips,
    )
