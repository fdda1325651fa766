"""The output of `spdnn compare`: a table that fits the terminal, and sentences on it.

Texts of records may hold anything, so all of them pass `words.printable`. Widths are counted as a terminal shows them.
"""

import textwrap
import unicodedata
from collections.abc import Iterable, Sequence

from spdnn.cli.colours import GREEN, PLAIN, RED
from spdnn.core.limits import BUSY
from spdnn.report.common.words import plural, printable, significant
from spdnn.runs.records.comparison import FASTER, SLOWER, TOO_FEW, Comparison, Pair, enough

LEAST_NAME = 24  # columns that a name has next to the figures; where it has fewer, it has a line of its own
MOST_LISTED = 10  # records of one set alone
GAP = "  "
SEVERAL = "*"  # marks samples of several records
COLOURS = {FASTER: GREEN, SLOWER: RED}
DIRECTION = "A/B, of median seconds, is how many times as fast B is: above 1, B is faster."
HEAD = ("case", "A, s", "B, s", "A/B (95 % interval)", "samples", "B is")
DAYS = "Samples of one run do not show how runs on different days differ: before believing a small ratio, repeat both."


def lines(
    comparison: Comparison, sides: Sequence[tuple[str, int, list[str]]], width: int | None, colours: bool
) -> list[str]:
    """The whole answer.

    Args:
        comparison: with a pair at least.
        sides: of A and B, (path, number of records, cases that failed verification).
        width: columns of the terminal; None: nothing is cut or wrapped.
        colours: on the verdicts.
    """
    heads = [_head(*row) for row in zip("AB", sides, comparison.circumstances, strict=True)]
    notes = [*_settings(comparison), *_counts(comparison), *_alone(comparison, sides), DAYS]
    return [*_wrap([*heads, DIRECTION], width), "", *table(comparison.pairs, width, colours), "", *_wrap(notes, width)]


def table(pairs: Iterable[Pair], width: int | None, colours: bool) -> list[str]:
    """A line for each pair, and one of heads; or two, where a name would have too little room next to the figures."""
    rows = [HEAD, *map(_row, pairs)]
    sizes = [max(columns(row[i]) for row in rows) for i in range(len(HEAD))]
    figures = sum(sizes[1:]) + len(GAP) * (len(HEAD) - 1)
    if width is not None and width < figures + min(LEAST_NAME, sizes[0]):
        return [line for row in rows for line in _stack(row, sizes, width, colours)]
    name = sizes[0] if width is None else min(sizes[0], width - figures)
    return [
        GAP.join([_align_left(cut(row[0], name), name), *_figures(row, sizes), _colour(row[-1], colours)]).rstrip()
        for row in rows
    ]


def _row(pair: Pair) -> tuple[str, ...]:
    ratio = [significant(value) for value in (pair.ratio.median, pair.ratio.low, pair.ratio.high)]
    samples = ", ".join(f"{side.samples}{SEVERAL if side.records > 1 else ''}" for side in (pair.a, pair.b))
    seconds = [significant(side.median_seconds) for side in (pair.a, pair.b)]
    return _clean(pair.name, 1000), *seconds, "{} ({} to {})".format(*ratio), samples, pair.verdict


def _figures(row: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """Seconds to the right, the others to the left."""
    return [row[1].rjust(sizes[1]), row[2].rjust(sizes[2]), row[3].ljust(sizes[3]), row[4].ljust(sizes[4])]


def _stack(row: Sequence[str], sizes: Sequence[int], width: int, colours: bool) -> list[str]:
    """The name and the verdict, and the figures below them."""
    room = width - sizes[-1] - len(GAP)
    first = _align_left(cut(row[0], room), min(room, sizes[0])) + GAP + _colour(row[-1], colours)
    return [first, (GAP + GAP.join(_figures(row, sizes))).rstrip()]


def _colour(verdict: str, colours: bool) -> str:
    return f"{COLOURS[verdict]}{verdict}{PLAIN}" if colours and verdict in COLOURS else verdict


def columns(text: str) -> int:
    """The columns of a terminal that a text takes: two for a wide letter, none for an accent over another letter."""
    return sum(
        0 if unicodedata.category(sign) in ("Mn", "Me") else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def cut(text: str, room: int) -> str:
    """The text, or its beginning and end around an ellipsis, in `room` columns at most."""
    if columns(text) <= room:
        return text
    head = _fitting(text, room // 2)
    tail = _fitting(text[::-1], room - columns(head) - 1)[::-1]
    return f"{head}…{tail}"


def _fitting(text: str, room: int) -> str:
    """As much of the beginning as `room` columns hold."""
    width = 0
    for index, sign in enumerate(text):
        width += columns(sign)
        if width > room:
            return text[:index]
    return text


def _align_left(text: str, size: int) -> str:
    return text + " " * (size - columns(text))


def _wrap(sentences: Iterable[str], width: int | None) -> list[str]:
    if width is None:
        return list(sentences)
    return [
        line for text in sentences for line in textwrap.wrap(text, width, subsequent_indent=GAP, break_on_hyphens=False)
    ]


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
        notes.append(f"{SEVERAL}: samples of several records of the set, taken together.")
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
    some, more = "; ".join(_clean(name, 1000) for name in names[:MOST_LISTED]), len(names) - MOST_LISTED
    return f"{some}; and {more} more" if more > 0 else some
