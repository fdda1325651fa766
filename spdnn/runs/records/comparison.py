"""Two sets of records, compared pair by pair: how many times as fast B is, and whether that is noise.

Records are a pair where their keys are equal: the values that two must share for their times to be compared.

Samples of A and B are no pairs: they were taken at other times. A difference is reported only where a rank test and the
bootstrap interval of the ratio of medians both see it. Models: benchstat (rank test, unpaired), criterion (bootstrap),
asv compare (two sets of results). The test: Mann and Whitney, Annals of Mathematical Statistics 18(1), 1947.
"""

import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from spdnn.core.statistics import Interval, ratio_of_medians
from spdnn.core.validation import builtins
from spdnn.runs.records.environment import Environment
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord, busy_part

RUNS, OPERATIONS = "runs", "operations"  # kinds of records

Value = str | int | None
Key = tuple[tuple[str, Value], ...]  # (what must be the same, its value)
SIGNIFICANCE = 0.05  # of the rank test
FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference beyond noise"
TOO_FEW = "too few samples"
VERDICTS = (FASTER, SLOWER, NO_DIFFERENCE, TOO_FEW)
Comparable = RunRecord | OperationRecord
MOST_ARRANGEMENTS = 20_000  # that an exact test with ties tries: those of 8 and 8 samples are 12,870


class PairSide(NamedTuple):
    """A pair's records in one set; their samples are taken together."""

    records: int
    samples: int
    median_seconds: float


class Pair(NamedTuple):
    """What both sets have records of.

    Attributes:
        name: the case, with the values in which it differs from others of that name.
        ratio: median seconds of A / of B, how many times as fast B is; with its interval.
        p: of the two-sided rank test.
        verdict: on B, one of VERDICTS.
    """

    name: str
    key: Key
    a: PairSide
    b: PairSide
    ratio: Interval
    p: float
    verdict: str


class OnlyIn(NamedTuple):
    """What one set alone has records of."""

    name: str
    key: Key
    records: int


class Comparison(NamedTuple):
    """Two sets of records, compared; each part in the order of names.

    Attributes:
        circumstances: of A and of B: commit, date, machine, versions and the like, which may differ: every value that
            the records in pairs have.
        moved: the names of pairs whose records in A and in B are not of the same machines.
        mixed: the names of pairs with records of several machines in one set.
        busy: of A and of B, the names of pairs with a record of a machine that was busy with other work.
    """

    pairs: list[Pair]
    only_a: list[OnlyIn]
    only_b: list[OnlyIn]
    circumstances: tuple[dict[str, list[str]], dict[str, list[str]]]
    moved: list[str]
    mixed: list[str]
    busy: tuple[list[str], list[str]] = ([], [])

    @property
    def geometric_mean(self) -> float | None:
        """Of the pairs' ratios; None without pairs."""
        return statistics.geometric_mean(pair.ratio.median for pair in self.pairs) if self.pairs else None

    @property
    def counts(self) -> dict[str, int]:
        """How many pairs have each verdict."""
        return {verdict: sum(pair.verdict == verdict for pair in self.pairs) for verdict in VERDICTS}

    @property
    def differences(self) -> dict[str, tuple[list[str], list[str]]]:
        """The circumstances that differ: the values in A and in B."""
        a, b = self.circumstances
        names = dict.fromkeys([*a, *b])
        return {name: (a.get(name, []), b.get(name, [])) for name in names if a.get(name) != b.get(name)}


def compare(records_a: Iterable[Comparable], records_b: Iterable[Comparable]) -> Comparison:
    """Compare the records of B with those of A that measured the same; those that only one set has are kept apart.

    Args:
        records_a, records_b: checked run and operation records; one that is given twice in a set counts once.

    Raises:
        InputError: seconds so far apart that they have no ratio.
    """
    a, b = _group(records_a), _group(records_b)
    names = _names(a, b)
    order = sorted(names, key=lambda key: (names[key], repr(key)))
    both = [key for key in order if key in a and key in b]
    return Comparison(
        [_pair(names[key], key, a[key], b[key]) for key in both],
        [OnlyIn(names[key], key, len(a[key])) for key in order if key not in b],
        [OnlyIn(names[key], key, len(b[key])) for key in order if key not in a],
        (_circumstances(a, both), _circumstances(b, both)),
        [names[key] for key in both if _machines(a[key]) != _machines(b[key])],
        [names[key] for key in both if max(len(_machines(records[key])) for records in (a, b)) > 1],
        tuple([names[key] for key in both if any(map(busy_part, records[key]))] for records in (a, b)),
    )


def _group(records: Iterable[Comparable]) -> dict[Key, list[Comparable]]:
    """The records of each key, without repeats of what is the same to the last value."""
    groups: dict[Key, dict[str, Comparable]] = {}
    for record in records:
        groups.setdefault(key_of(record), {})[json.dumps(builtins(record), sort_keys=True)] = record
    return {key: [members[text] for text in sorted(members)] for key, members in groups.items()}


def _names(*sets: dict[Key, list[Comparable]]) -> dict[Key, str]:
    """A name for each key: the case of its first records, with the values in which other keys of that case differ."""
    cases = {key: min(one.case for one in members) for groups in reversed(sets) for key, members in groups.items()}
    alike = defaultdict(list)
    for key, case in cases.items():
        alike[case].append(dict(key))
    # Of each key, the values that tell it from the others of its case.
    names = {}
    for key, case in cases.items():
        others = alike[case]
        apart = [f"{name} {abbreviate(value)}" for name, value in key if len({other.get(name) for other in others}) > 1]
        names[key] = ", ".join([case, *apart])
    return names


def _circumstances(groups: dict[Key, list[Comparable]], keys: Iterable[Key]) -> dict[str, list[str]]:
    """Every value of the circumstances that the records of these keys have, by name."""
    values: dict[str, set[str]] = {"commit": set(), "date": set(), "machine": set()}
    for record in (record for key in keys for record in groups[key]):
        place = record.environment
        own = {"commit": place.commit, "date": record.created[:10], "machine": _machine(place)}
        own |= place.versions
        if isinstance(record, OperationRecord):
            own[f"program {record.program.name}"] = record.program.version
            own["instruction set"] = record.program.notes.get("instruction_set")
        else:
            own["memory limit"] = record.memory_limit_bytes
            own["instruction set"] = record.engine.notes.instruction_set
        for name, value in own.items():
            missing = "unknown" if name == "commit" else "none"
            values.setdefault(name, set()).add(missing if value is None else str(value))
    return {name: sorted(texts) for name, texts in values.items()}


def _machine(environment: Environment) -> str:
    return f"{environment.cpu}, {environment.cores} cores" + (f", {environment.gpu}" if environment.gpu else "")


def _machines(records: Iterable[Comparable]) -> set[str]:
    return {_machine(record.environment) for record in records}


def _pair(name: str, key: Key, records_a: list[Comparable], records_b: list[Comparable]) -> Pair:
    a, b = ([value for record in records for value in record.seconds] for records in (records_a, records_b))
    ratio, p = ratio_of_medians(a, b), p_value(a, b)
    side_a = PairSide(len(records_a), len(a), statistics.median(a))
    side_b = PairSide(len(records_b), len(b), statistics.median(b))
    return Pair(name, key, side_a, side_b, ratio, p, _verdict(side_a, side_b, ratio, p))


def _verdict(a: PairSide, b: PairSide, ratio: Interval, p: float) -> str:
    if not can_tell(a.samples, b.samples):
        return TOO_FEW
    if p < SIGNIFICANCE and not ratio.low <= 1 <= ratio.high:
        return FASTER if ratio.low > 1 else SLOWER
    return NO_DIFFERENCE


def can_tell(samples_a: int, samples_b: int) -> bool:
    """Whether the rank test can show a difference between so many samples at all: its least p is that of sides that do
    not overlap, two of the ways to choose which samples are of A.
    """
    sizes = [min(size, round(2 / SIGNIFICANCE)) for size in (samples_a, samples_b)]  # more do no harm
    return 2 / math.comb(sum(sizes), sizes[0]) < SIGNIFICANCE


def enough() -> list[tuple[int, int]]:
    """The least numbers of samples that can tell a difference, the even one first: (4, 4), (3, 5), ..."""
    even = next(size for size in range(1, 100) if can_tell(size, size))
    return [(size, next(other for other in range(size, 100) if can_tell(size, other))) for size in range(even, 0, -1)]


def p_value(samples_a: Sequence[float], samples_b: Sequence[float]) -> float:
    """Of the two-sided rank test of Mann and Whitney: exact for few samples, else its normal approximation. The order
    of the sides and of their samples does not count.
    """
    from scipy.stats import PermutationMethod, mannwhitneyu  # half a second

    first, second = sorted((sorted(samples_a), sorted(samples_b)), key=lambda side: (len(side), side))
    whole = np.array([*first, *second])
    distinct = np.unique(whole).size
    if len(first) == 1:  # its rank among all, which SciPy does not take where there are ties
        ends = (whole <= first[0]).sum(), (whole >= first[0]).sum()
        return min(1.0, 2 * float(min(ends)) / whole.size)
    if distinct == 1:
        return 1.0
    few = whole.size < MOST_ARRANGEMENTS and math.comb(whole.size, len(first)) <= MOST_ARRANGEMENTS
    # Without ties SciPy's "auto" is exact where one side has at most 8; with ties it never is.
    method = PermutationMethod(n_resamples=MOST_ARRANGEMENTS) if few and distinct < whole.size else "auto"
    return float(mannwhitneyu(first, second, method=method).pvalue)


class NearestPair(NamedTuple):
    """Two records, one of each set, that are the same but for what differs: (name, value in A, value in B)."""

    a: OnlyIn
    b: OnlyIn
    differs: list[tuple[str, Value, Value]]


def nearest(only_a: Sequence[OnlyIn], only_b: Sequence[OnlyIn]) -> NearestPair | None:
    """The pair of one kind with the fewest differences, the first of several; None: there is no pair of one kind."""
    others = [(b, dict(b.key)) for b in only_b]
    best = None
    for a in only_a:
        key = dict(a.key)
        for b, other in others:
            names = [name for name in {**key, **other} if key.get(name) != other.get(name)]
            if key["kind"] == other["kind"] and (best is None or len(names) < len(best.differs)):
                best = NearestPair(a, b, [(name, key.get(name), other.get(name)) for name in names])
    return best


def key_of(record: RunRecord | OperationRecord) -> Key:
    """The values that two records must share for their times to be compared."""
    values = _run_key(record) if isinstance(record, RunRecord) else _operation_key(record)
    return tuple(values.items())


def _run_key(record: RunRecord) -> dict:
    problem, settings = record.problem, record.request.settings if record.request else {}
    return {
        "kind": RUNS,
        "network": problem.network_identity,
        "layers": problem.layers,
        "inputs": problem.inputs_sha256,
        "input count": problem.input_count,
        "engine": record.engine.name,
        # As they were asked for: what was left to the cost model may differ, its choice is part of the comparison.
        "settings": ", ".join(f"{name}={value}" for name, value in sorted(settings.items())) or "default",
        "reductions": "+".join(sorted(record.reductions.requested)) or "none",
        "threads": record.threads,
        "ranks": record.ranks,
        "partition": record.distribution.partition if record.distribution else None,
        "span": record.span,
    }


def _operation_key(record: OperationRecord) -> dict:
    problem = record.problem
    named = ("set", "network", "layer", "phase", "rows", "columns", "batch_columns", "batch", "index_bits")
    return {
        "kind": OPERATIONS,
        "operation": record.operation,
        **{name.replace("_", " "): getattr(problem, name) for name in named},
        "nonzeros": problem.nonzeros,
        "positions": problem.topology_sha256,
        "program": record.program.name,
        "threads": record.threads,
        "device": record.device.kind,
    }


def abbreviate(value: Value) -> str:
    """A value of a key in a few letters; of a digest, the first ones."""
    text = str(value)
    digest = len(text) == 64 and set(text) <= set("0123456789abcdef")
    return text[:12] if digest else text
