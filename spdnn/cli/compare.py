"""`spdnn compare`: compare two sets of records, pair by pair."""

import json
import shutil
import sys

from spdnn.cli.colours import has_colours
from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.files import write_text
from spdnn.runs.records.cases import record_files
from spdnn.runs.records.comparison import Comparable

DESCRIPTION = """\
Compare each record of B with the record of A that measured the same: the same problem, engine, schedule,
reductions, threads, ranks and included times; for operations, the same program, problem and threads. Commit,
versions, machine and date may differ; the differences are listed.

The ratio A/B is A's median seconds over B's: how many times as fast B is. B is called faster or slower
where a two-sided Mann-Whitney U test gives p < 0.05 and the 95 % bootstrap interval of the ratio
excludes 1. Among many pairs without a difference, a few may be called so by chance.
"""
EPILOG = """\
exit status: 0 compared, 1 nothing to compare (or, with --fail-slower, a pair is slower), 2 an error
"""
RECORDS = "record file (.json, or .jsonl with one per line), folder of them, or results/ of a workflow"
NARROWEST = 40  # columns of a terminal that lines are made for


def add(command) -> None:
    command.description, command.epilog = DESCRIPTION, EPILOG
    command.add_argument("a", metavar="A", help=RECORDS)
    command.add_argument("b", metavar="B", help="the records to compare with A")
    command.add_argument(
        "--sort",
        choices=("name", "ratio"),
        default="name",
        help="order of the pairs: by name, or by ratio with the slowest first (default: name)",
    )
    command.add_argument("--json", metavar="FILE", help="also write the result as JSON")
    command.add_argument("--fail-slower", action="store_true", help="exit with status 1 if a pair is slower")
    command.set_defaults(run=_compare, reads=("a", "b"), writes=("json",))


def _compare(args) -> int:
    from spdnn.cli.compare_table import lines
    from spdnn.report.common.words import printable
    from spdnn.runs.records.comparison import SLOWER, compare

    try:
        (a, unrecorded_a), (b, unrecorded_b) = _read(args.a), _read(args.b)
        comparison = compare(a, b)
    except (SpdnnError, OSError) as error:  # 1 is an answer here, as of diff
        print(f"spdnn: {printable(error, 1000)}", file=sys.stderr)
        return 2
    if not comparison.pairs:
        raise InputError(printable(f"{args.a} and {args.b}: {_unlike(comparison)}", 2000))
    if args.sort == "ratio":
        comparison = comparison._replace(pairs=sorted(comparison.pairs, key=lambda pair: pair.ratio.median))
    sides = (args.a, len(a), unrecorded_a), (args.b, len(b), unrecorded_b)
    # As wide as the terminal; not cut where there is none. Letters that it cannot show are replaced.
    width = max(NARROWEST, shutil.get_terminal_size().columns) if sys.stdout.isatty() else None
    encoding = sys.stdout.encoding or "utf-8"
    text = "\n".join(lines(comparison, sides, width, has_colours()))
    print(text.encode(encoding, "replace").decode(encoding))
    if args.json:
        write_text(args.json, _json(comparison, sides) + "\n")
    return 1 if args.fail_slower and comparison.counts[SLOWER] else 0


def _read(name: str) -> tuple[list[Comparable], list[str]]:
    """(records, cases that failed verification and so have no record).

    Raises:
        InputError: a file that is not sound, or a record of a case whose verdict is fail.
    """
    from spdnn.runs.records.files import read_all, read_verdict

    files = record_files(name)
    runs, operations = read_all(files.records)
    failed = [path.resolve().parent.name for path in files.verdicts if not read_verdict(path).passed]
    for record in runs:
        if record.case in failed:
            raise InputError(f"{name}: {record.case}: its verification failed, so its record has no number")
    if not runs and not operations:
        raise InputError(f"{name}: no records there")
    return [*runs, *operations], failed


def _unlike(comparison) -> str:
    """Why nothing can be compared: the differences of the nearest pair."""
    from spdnn.runs.records.comparison import abbreviate, nearest

    best = nearest(comparison.only_a, comparison.only_b)
    if best is None:
        kinds = [dict(only[0].key)["kind"] for only in (comparison.only_a, comparison.only_b)]
        return f"nothing can be compared; the records are of {kinds[0]} in one and of {kinds[1]} in the other"
    differs = "; ".join(
        f"{name}: {abbreviate(value_of_a)} and {abbreviate(other)}" for name, value_of_a, other in best.differs
    )
    return f"nothing can be compared; the nearest pair ({best.a.name} and {best.b.name}) is the same but for {differs}"


def _json(comparison, sides) -> str:
    """The rows as JSON, the same text for the same records."""
    from spdnn.core.statistics import CONFIDENCE
    from spdnn.runs.records.comparison import SIGNIFICANCE

    tables = [
        {"path": path, "records": count, "failed_verification": failed, "told": values}
        for (path, count, failed), values in zip(sides, comparison.circumstances, strict=True)
    ]
    alone = [
        [{"name": group.name, "key": dict(group.key), "records": group.records} for group in only]
        for only in (comparison.only_a, comparison.only_b)
    ]
    pairs = [
        {
            **pair._asdict(), "key": dict(pair.key), "a": pair.a._asdict(), "b": pair.b._asdict(),
            "ratio": pair.ratio._asdict(),
        }
        for pair in comparison.pairs
    ]  # fmt: skip
    content = {
        "ratio": "median seconds of A / of B: how many times as fast B is; the result is for B",
        "confidence": CONFIDENCE,
        "significance": SIGNIFICANCE,
        "a": tables[0],
        "b": tables[1],
        "pairs": pairs,
        "only_a": alone[0],
        "only_b": alone[1],
        "geometric_mean": comparison.geometric_mean,
        "verdicts": comparison.counts,
    }
    return json.dumps(content, indent=1, allow_nan=False).replace("\x7f", "\\u007f")
