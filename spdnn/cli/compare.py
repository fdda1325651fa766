"""`spdnn compare`: compare two sets of records, pair by pair."""

import json
from collections.abc import Sequence

from spdnn.cli.terminal import say, show
from spdnn.core.errors import InputError, SpdnnError, fail
from spdnn.core.files import write_text
from spdnn.core.limits import BUSY
from spdnn.core.shown import listed, plural, printable, significant
from spdnn.core.table import NUMBER, Column, Styled, Table, between
from spdnn.runs.records.cases import record_files
from spdnn.runs.records.comparison import FASTER, SLOWER, TOO_FEW, Comparable, Comparison, compare, enough

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
LISTED_RECORDS = 10  # records of one set alone
DIRECTION = "A/B, of median seconds, is how many times as fast B is: above 1, B is faster."
DAYS = "Samples of one run do not show how runs on different days differ: before believing a small ratio, repeat both."
KINDS = {FASTER: "good", SLOWER: "bad"}  # colours of verdicts
PAIRS = Table(
    "Pairs of records",
    [
        Column("case", lambda pair: pair.name),
        Column("A, s", lambda pair: pair.a.median_seconds, NUMBER),
        Column("B, s", lambda pair: pair.b.median_seconds, NUMBER),
        Column("A/B (95 % interval)", lambda pair: pair.ratio.median, NUMBER, lambda pair: between(*pair.ratio[1:3])),
        Column("samples", lambda pair: ", ".join(f"{side.samples}{'*' * (side.records > 1)}" for side in pair[2:4])),
        Column("B is", lambda pair: Styled(pair.verdict, KINDS.get(pair.verdict, ""))),
    ],
)


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
    try:
        (a, unrecorded_a), (b, unrecorded_b) = _read(args.a), _read(args.b)
        comparison = compare(a, b)
    except (SpdnnError, OSError) as error:  # 1 is an answer here, as of diff
        return fail(printable(error, 1000), 2)
    if not comparison.pairs:
        raise InputError(printable(f"{args.a} and {args.b}: {_unlike(comparison)}", 2000))
    if args.sort == "ratio":
        comparison = comparison._replace(pairs=sorted(comparison.pairs, key=lambda pair: pair.ratio.median))
    sides = (args.a, len(a), unrecorded_a), (args.b, len(b), unrecorded_b)
    heads = [_head(*row) for row in zip("AB", sides, comparison.circumstances, strict=True)]
    say([*heads, DIRECTION, ""], wrapped=True)
    show(PAIRS, comparison.pairs)
    say(["", *_settings(comparison), *_counts(comparison), *_alone(comparison, sides), DAYS], wrapped=True)
    if args.json:
        write_text(args.json, _json(comparison, sides) + "\n")
    return 1 if args.fail_slower and comparison.counts[SLOWER] else 0


def _read(name: str) -> tuple[list[Comparable], list[str]]:
    """(records, cases that failed verification and so have no record); an InputError for a record of such a case."""
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

    a, b = (
        {"path": path, "records": count, "failed_verification": failed, "told": values}
        for (path, count, failed), values in zip(sides, comparison.circumstances, strict=True)
    )
    only_a, only_b = (
        [{"name": group.name, "key": dict(group.key), "records": group.records} for group in only]
        for only in (comparison.only_a, comparison.only_b)
    )
    pairs = [
        pair._asdict() | {name: getattr(pair, name)._asdict() for name in ("a", "b", "ratio")} | {"key": dict(pair.key)}
        for pair in comparison.pairs
    ]
    content = {
        "ratio": "median seconds of A / of B: how many times as fast B is; the result is for B",
        "confidence": CONFIDENCE,
        "significance": SIGNIFICANCE,
        "a": a,
        "b": b,
        "pairs": pairs,
        "only_a": only_a,
        "only_b": only_b,
        "geometric_mean": comparison.geometric_mean,
        "verdicts": comparison.counts,
    }
    return json.dumps(content, indent=1, allow_nan=False).replace("\x7f", "\\u007f")


def _head(letter: str, side: tuple[str, int, list[str]], software: dict[str, list[str]]) -> str:
    path, count, _ = side
    dates = software["date"]
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    return f"{letter}: {_clean(path, 1000)}, {plural(count, 'record')}; commit {_values(software['commit'])}; {when}"


def _values(values: Sequence[str], joint: str = ", ") -> str:
    """Some values, the first few of many."""
    some = joint.join(_clean(value, 60) for value in values[:3])
    return f"{some} and {len(values) - 3} more" if len(values) > 3 else some or "none"


def _clean(text: str, longest: int) -> str:
    return " ".join(printable(text, longest).split())


def _settings(comparison: Comparison) -> list[str]:
    """Sentences on the circumstances that differ."""
    differs, notes = comparison.differences, []
    if "machine" in differs:
        a, b = (_values(values, " and ") for values in differs["machine"])
        notes.append(f"Different machines, and the ratios compare these too: A on {a}; B on {b}.")
    elif comparison.moved:
        pairs = plural(len(comparison.moved), "pair")
        names = _join_names(comparison.moved)
        notes.append(f"Different machines in A and in B in {pairs}, and the ratios compare these too: {names}.")
    if comparison.mixed:
        notes.append(f"Samples of several machines taken together: {_join_names(comparison.mixed)}.")
    for letter, names in zip("AB", comparison.busy, strict=True):
        if names:
            busy = f"Busy machine in {letter} (other work above {100 * BUSY:.0f} %), so times may be longer"
            notes.append(f"{busy}: {_join_names(names)}.")
    rest = [name for name in differs if name not in ("machine", "commit", "date")]
    if rest:
        both = ((_clean(name, 60), *map(_values, differs[name])) for name in rest)
        notes.append(f"Different too: {'; '.join(f'{name} {a} in A, {b} in B' for name, a, b in both)}.")
    return notes


def _counts(comparison: Comparison) -> list[str]:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in comparison.counts.items() if count)
    mean = significant(comparison.geometric_mean)
    notes = [f"{plural(len(comparison.pairs), 'pair')}: {counts}. Geometric mean of A/B: {mean}."]
    if comparison.counts[TOO_FEW]:
        (even, _), *others = enough()
        uneven = ", ".join(f"{few} and {many}" for few, many in others)
        notes.append(
            f"Too few samples: the test finds a difference only with {even} and {even} samples or more ({uneven})."
        )
    if any(side.records > 1 for pair in comparison.pairs for side in (pair.a, pair.b)):
        notes.append("*: samples of several records of the set, taken together.")
    return notes


def _alone(comparison: Comparison, sides: Sequence[tuple[str, int, list[str]]]) -> list[str]:
    """Sentences on records of one set alone, and on cases that failed."""
    notes = []
    for letter, only in zip("AB", (comparison.only_a, comparison.only_b), strict=True):
        if only:
            records = sum(group.records for group in only)
            names = [f"{group.name} ({group.records} records)" if group.records > 1 else group.name for group in only]
            notes.append(f"In {letter} alone, {plural(records, 'record')}: {_join_names(names)}.")
    for letter, (_, _, failed) in zip("AB", sides, strict=True):
        if failed:
            notes.append(f"Failed verification in {letter}, {plural(len(failed), 'case')}: {_join_names(failed)}.")
    return notes


def _join_names(names: Sequence[str]) -> str:
    return listed([_clean(name, 1000) for name in names], LISTED_RECORDS, "; ")
