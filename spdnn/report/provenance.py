"""The section on provenance: all records, where each was measured, how to run it again, and what each number includes.

The page needs no other file: a table and the records themselves are inside its links, which work without JavaScript.
Records that would make the page too large are thinned.
"""

import json
import statistics
from collections.abc import Iterable, Sequence
from functools import reduce

from spdnn.core.shown import listed, plural, size
from spdnn.core.table import BYTES, NUMBER, Column, Phrase, Styled, Table, code, csv_text
from spdnn.core.validation import builtins
from spdnn.engines.reductions.registry import REDUCTIONS
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Fold, Paragraph, Section, Terms, link
from spdnn.report.common.collection import Collection
from spdnn.report.common.run_rows import RunRow, fair, group_by
from spdnn.runs.records.columns import columns
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.published import SPANS
from spdnn.runs.records.run_record import RunRecord, busy_part

NAME, TITLE = "provenance", "Records and glossary"
Records = Sequence[RunRecord | OperationRecord]
MOST_CHARACTERS = 1_000_000  # of the link that holds records; browsers take addresses of 2 MB
GZIP_RATIO = 60  # more than gzip makes of records: texts that it could not bring under the limit are not tried
SHORT_LIST = 8  # entries of a list that are kept where records are thinned
LISTS = ("pass_log", "layer_rows", "layer_edges", "timeline", "stages", "groups")  # notes that figures show
SHOWN_COMMANDS = 60  # whose command is shown
# Columns of the table of records that are the page's own words and figures, of runs and of operations; the others are
# fields of records.
OF_RUNS = {
    "number": lambda run: run.number,
    "kind": lambda run: "run",
    "verdict": lambda run: "pass",
    "truth": lambda run: words.truth(run.record.verdict),
    "network": lambda run: words.described(run.problem.network),
    "inputs": lambda run: words.described(run.problem.inputs),
    "reductions": lambda run: run.reductions,
    "time_includes": lambda run: run.includes,
    "inference_seconds": lambda run: run.inference_seconds,
    "fastest_seconds": lambda run: min(run.record.seconds),
    "repeats": lambda run: run.repeats,
    "read_seconds": lambda run: run.read_seconds,
    "prepare_seconds": lambda run: run.prepare_seconds,
    "from_cache": lambda run: " ".join(run.solution.cached) if run.solution else None,
}
OF_OPERATIONS = {
    "kind": lambda record: record.operation,
    "verdict": lambda record: "pass",
    "truth": lambda record: "float64 reference",
    "time_includes": lambda record: record.span,
    "inference_seconds": lambda record: statistics.median(record.seconds),
    "fastest_seconds": lambda record: min(record.seconds),
    "repeats": lambda record: len(record.seconds),
}
MACHINES = Table(
    "Machines and software",
    [
        Column("CPU", lambda cases: cases[0].environment.cpu),
        Column("Cores", lambda cases: cases[0].environment.cores, NUMBER),
        Column("Memory", lambda cases: cases[0].environment.memory_bytes, BYTES),
        Column("GPU", lambda cases: cases[0].environment.gpu or "none"),
        Column("System", lambda cases: cases[0].environment.system),
        Column("Versions", lambda cases: _versions(cases[0])),
        Column("Cases", lambda cases: listed([record.case for record in cases])),
    ],
    name="environment",
)
SOURCES = Table(
    "Sources of the published results",
    [
        Column("Publication", lambda rows: rows[0].source.split(";")[0]),
        Column("Systems", lambda rows: "; ".join(sorted({row.system for row in rows}))),
        Column("Figures", len, NUMBER),
    ],
    "Publications, their systems and how many of their figures are in the table",
)
DIGESTS = (
    "The output digest covers the active inputs and the bits of their last rows, in the engine's layout. Layout and "
    "rounding differ between engines and reductions, so correct outputs may have different digests."
)


def section(collection: Collection) -> Section | None:
    """The section; None where nothing was run, and nothing was to be."""
    if collection.empty:
        return None
    runs, records = collection.runs, [*collection.records, *collection.operations]
    blocks: list[Block] = [Paragraph(_downloads(runs, collection.operations), name="records")]
    if records:
        blocks.append(MACHINES.of(list(group_by(records, _machine).values())))
    if runs:
        shown = fair(runs, SHOWN_COMMANDS, lambda run: (run.case, run.setting), lambda run: run.record.created)
        more = [Paragraph(f"{plural(len(runs) - len(shown), 'more run')} in the records.", "soft")]
        folds = [Fold(f"{run.case}, {run.record.created}", [Terms(_again(run))]) for run in shown]
        folds += more if len(runs) > len(shown) else []
        blocks.append(Fold("How to reproduce each run", [Paragraph(DIGESTS, "soft"), *folds], "reproduce"))
    if any(run.official_size for run in runs):
        sources = group_by(collection.baselines, lambda row: row.source.split(";")[0])
        blocks.append(SOURCES.of([figures for _, figures in sorted(sources.items())]))
    if definitions := _definitions(collection):
        glossary: list[Block] = [Terms(definitions, anchored=True)]
        if runs:
            spans = "The parts of a run that a time covers. Published times do not all cover the same parts."
            first = Terms([("Spans", spans)], anchored=True)
            glossary += [first, Terms([*{**SPANS, **words.RECORD_SPANS}.items()])]
        blocks.append(Fold("Glossary: what each number includes", glossary, "meaning"))
    return Section(NAME, TITLE, blocks)


def _downloads(runs: Sequence[RunRow], operations: Sequence[OperationRecord]) -> Phrase:
    """Links that hold all records, as a table and whole."""
    whole, thinned = records_link([*(run.record for run in runs), *operations])
    table = link("records.csv", records_table(runs, operations), "text/csv")
    return (
        f"{plural(len(runs) + len(operations), 'record')}, each of a run that passed, with the command that made it: ",
        Styled(table["name"], href=table["href"], file=table["name"]), " (a line each), ",
        Styled(whole["name"], href=whole["href"], file=whole["name"], name="records-json"),
        f" (whole{f', but {thinned}' if thinned else ''}). Both are inside this page.",
    )  # fmt: skip


def _versions(record: RunRecord | OperationRecord) -> str:
    return ", ".join(f"{name} {version}" for name, version in sorted(record.environment.versions.items()))


def _machine(record: RunRecord | OperationRecord) -> tuple:
    """The same for records of one machine and software."""
    where = record.environment
    return where.cpu, where.cores, where.memory_bytes, where.gpu, where.system, _versions(record)


def _definitions(collection: Collection) -> list[tuple[str, str]]:
    """The terms that the page uses, and their meanings."""
    runs = [run for part in (collection, *collection.others.values()) for run in part.runs]
    busy = any(run.busy for run in runs) or any(map(busy_part, collection.operations))
    records, measured = collection.records, [record.machine for record in collection.records if record.limit]
    # Terms that not every page with runs has.
    shown = {
        "Busy machine": busy,
        "Older code": any(run.older for run in runs),
        **dict.fromkeys(words.SEVERAL_TERMS, any(record.ranks > 1 for record in records)),
        **dict.fromkeys(words.SCALING_TERMS, bool(collection.scaling)),
        **dict.fromkeys(words.LIMIT_TERMS, bool(measured)),
        **dict.fromkeys(words.OFFICIAL_TERMS, any(run.official_size for run in collection.runs)),
    }
    names = {"dead", *(name for record in records for name in record.reductions.requested)}
    texts = dict.fromkeys(words.GPU, "") | (words.GPU if any(machine.on_device for machine in measured) else {})
    texts["reductions"] = " ".join(kind.meaning for kind in REDUCTIONS.values() if kind.name in names)
    terms = [term for term in words.DEFINITIONS if shown.get(term, bool(collection.runs))]
    return [(term, words.DEFINITIONS[term].format(**texts)) for term in terms]


def _again(run: RunRow) -> list[tuple[str, Phrase]]:
    """What was run and what came out, with the digests of both, and the command."""
    record, limit = run.record, run.record.memory_limit_bytes
    noted = {key: value for key, value in record.engine.noted.items() if key not in LISTS}
    notes = words.described({"source": record.engine.name, **noted})
    pairs: list[tuple[str, Phrase]] = [
        ("Network", (f"{words.described(run.problem.network)}: ", code(record.problem.network_identity))),
        ("Inputs", (f"{words.described(run.problem.inputs)}: ", code(record.problem.inputs_sha256))),
        ("Engine", f"{notes}; {run.threads_text}{f', memory limit {size(limit)}' if limit else ''}"),
    ]
    if run.partition:
        ranked = record.distribution
        held = f"weights: {ranked.weights}; {size(ranked.shared_bytes)} shared"
        where = f"{run.threads_text}, on {plural(ranked.nodes, 'node')}"
        pairs.append(("Ranks", f"{where}; {held}. Time: {words.SEVERAL}"))
    return [
        *pairs,
        ("Reductions on", run.reductions),
        ("Categories", (f"{record.result.categories:,}: ", code(record.result.categories_sha256))),
        ("Output digest, the same in every repeat", code(record.result.digest)),
        ("Ground truth", f"{words.truth(record.verdict)}: {record.verdict.truth.source}"),
        ("Commit", code(record.environment.commit or "unknown")),
        ("Code", code(record.environment.code or "unknown")),
        ("Command", code(record.environment.command)),
    ]


def records_table(runs: Sequence[RunRow], operations: Sequence[OperationRecord]) -> str:
    """A CSV table of all records: rows of `runs`, then operation records; columns of the other kind are empty."""
    fields, of_operations = dict(columns(RunRecord)), dict(columns(OperationRecord))
    rows = [{name: value(run) for name, value in OF_RUNS.items()} | _values(fields, run.record) for run in runs]
    for number, record in enumerate(operations, len(runs)):
        own = {name: value(record) for name, value in OF_OPERATIONS.items()}
        rows.append(_values(of_operations, record) | own | {"number": number})
    names = list(dict.fromkeys([*OF_RUNS, *fields]))
    return csv_text(names, [[row.get(name) for name in names] for row in rows])


def _values(fields: dict[str, tuple[str, ...]], record: RunRecord | OperationRecord) -> dict:
    """The columns that are fields of a record."""
    return {
        name: reduce(lambda part, attribute: getattr(part, attribute, None), path, record)
        for name, path in fields.items()
    }


def records_link(records: Records) -> tuple[dict[str, str], str]:
    """(link, what was left out of it) of records as a list in JSON, in their order.

    Where all of it would be too large, long lists are thinned; then records become null, the last first.
    """
    if whole := _fitting(map(builtins, records)):
        return whole, ""
    count, note = len(records), f"lists of more than {SHORT_LIST} entries are thinned to that many"
    while count:
        first = [_thin(builtins(record)) for record in records[:count]]
        if part := _fitting([*first, *[None] * (len(records) - count)]):
            rest = f", and of the others than the first {count:,} there is the table alone" * (count < len(records))
            return part, note + rest
        count //= 2
    return link("records.json", "[]", "application/json"), "empty, for no record fits; all are in the table"


def _fitting(records: Iterable[object]) -> dict[str, str] | None:
    """The link of these, if it has no more than MOST_CHARACTERS."""
    texts, budget = [], GZIP_RATIO * MOST_CHARACTERS
    for record in records:
        texts.append(json.dumps(record, separators=(",", ":"), ensure_ascii=False, sort_keys=True))
        budget -= len(texts[-1]) + 1
        if budget < 0:
            return None
    whole = link("records.json", f"[{','.join(texts)}]", "application/json")
    return whole if len(whole["href"]) <= MOST_CHARACTERS else None


def _thin(content: object) -> object:
    """The content with every list of more than SHORT_LIST entries cut to that many, evenly spaced, ends included."""
    if isinstance(content, dict):
        return {key: _thin(value) for key, value in content.items()}
    if isinstance(content, list):
        if len(content) > SHORT_LIST:
            content = [content[index * (len(content) - 1) // (SHORT_LIST - 1)] for index in range(SHORT_LIST)]
        return [_thin(value) for value in content]
    return content
