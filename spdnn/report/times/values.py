"""The section on where the time goes: read, prepare, inference, and the parts of inference.

A record splits inference in one of three ways: by the clocks of several ranks, the timeline of a task graph, or the
events of a GPU. Seconds that none of them attributes are unassigned, never guessed.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from spdnn.report.common.collection import Collection, fair
from spdnn.report.common.drawing import MOST_DRAWN
from spdnn.report.common.run_rows import RunRow
from spdnn.report.common.words import LANES, STREAMED, plural
from spdnn.report.times.ladders import curves, ladders
from spdnn.runs.records.distribution import PER_REPEAT
from spdnn.runs.records.notes import Notes, TaskgraphNotes
from spdnn.runs.records.published import read_preparations
from spdnn.runs.records.samples import CLOCK, TOLERANCE

RANKS, TIMELINE, EVENTS, JOINED = "Clocks of the ranks", "Timeline", "Events of the GPU", "Kernel at most"
MEANINGS = {
    RANKS: "All seconds of all ranks in all repeats. Wait: for other ranks. Copy: messages, packing and unpacking rows "
    "included. Kernel: everything else that a rank did; where it also read weights, that is unassigned.",
    TIMELINE: "Each device has a lane that computes and lanes that copy, and the last repeat of each was recorded. The "
    "whole is the seconds of that repeat, for each device once. Kernel: the computing lane was busy, compaction and "
    "results included. Seconds after the last task are unassigned, and so is a captured graph that copies weights too.",
    EVENTS: "Two events on the GPU, before its first launch of a batch and after its last: kernel is the time between "
    "them, gaps between launches included. The rest of the last repeat is the host's, and unassigned.",
    JOINED: "The record's timeline has fewer entries than there were tasks: neighbours are one entry, so gaps between "
    "them count as busy.",
}
COMPUTE = "compute"  # the lane of a device that computes; the others copy
WITH_COPIES = "with host-to-device copies"  # of a GPU engine's spans: copies made while opening included


class Parts(NamedTuple):
    """Parts of the inference seconds of a run; copy, kernel, wait and unassigned add up to the whole. None: the record
    does not have that part, and its seconds are in `unassigned`.

    Attributes:
        whole: the seconds that are split: of all ranks and repeats, or of all devices in the last repeat.
        copy: while weights, rows or messages were copied and nothing was computed.
        kernel: while something was computed.
        wait: while neither happened.
        unassigned: seconds that the record attributes to none of these.
        hidden: of copies that overlapped computing on the same device; part of `kernel`.
        joined: (tasks, entries of the timeline) where several tasks are one entry: gaps between them count as busy.
        source: where the record has the parts, in a few words.
    """

    whole: float
    copy: float | None
    kernel: float | None
    wait: float | None
    unassigned: float
    hidden: float | None
    joined: tuple[int, int] | None
    source: str


def values(collection: Collection) -> dict | None:
    """What the section prints; None without a run.

    Returns:
        rows: {run, parts, uploaded} of each run: parts None where its record has none, uploaded the seconds of read
        that copied to a GPU; split: the rows with parts; streamed: whether others streamed weights; meanings: of the
        sources of the parts; curves: of the survivors; ladders;
        preparations: what published systems do before inference, where one of the twelve networks was run.
    """
    runs, own = collection.runs, collection.own
    if not runs:
        return None
    alone = sorted(runs, key=lambda run: bool(run.record.comparison))  # runs of a comparison with peers come last
    rows = [{"run": run, "parts": parts(run), "uploaded": _upload_seconds(run)} for run in alone]
    split = [row for row in rows if row["parts"]]
    # Only the meanings of the sources that are on the page are explained.
    sources = {term for term in MEANINGS if any(row["parts"].source.startswith(term) for row in split)}
    sources |= {JOINED for row in split if row["parts"].joined}
    solved = [run.solution.inference / run.solution.seconds for run in runs if run.solution]
    return {
        "rows": rows,
        "split": split,
        "streamed": any(row["run"].record.span == STREAMED for row in rows if not row["parts"]),
        "meanings": [(term, meaning) for term, meaning in MEANINGS.items() if term in sources],
        "curves": curves(own, MOST_DRAWN),
        "ladders": ladders(own)[:MOST_DRAWN],
        "preparations": read_preparations() if any(run.official_size for run in runs) else [],
        "inference_share": (min(solved), max(solved)) if solved else None,
    }


def fastest(rows: Sequence[dict], most: int) -> list[dict]:
    """Those of the rows that a figure has room for: of each network the fastest before the second of any."""

    def network(row: dict) -> tuple:
        return row["run"].problem.neurons, row["run"].problem.layers, bool(row["run"].record.comparison)

    return fair(rows, most, network, lambda row: row["run"].rate.median)


def parts(run: RunRow) -> Parts | None:
    """The parts of a run's inference seconds; None where its record has none."""
    record = run.record
    if record.ranks > 1:
        return _of_ranks(run)
    if record.comparison:
        return None  # engines timed in turn: their notes are of a run before that
    if "schedule" in record.engine.noted:
        return _of_timeline(run)
    return _of_events(run)


def _of_ranks(run: RunRow) -> Parts:
    """Sums over all ranks and repeats. When a rank neither waits nor sends, it computes, or reads weights."""
    ranks, repeats = run.record.distribution.per_rank, run.repeats
    whole, waiting, sending = (sum(sum(getattr(rank, name)) for rank in ranks) for name in PER_REPEAT)
    # A rank that neither waits nor sends computes, unless it also reads weights.
    rest, source = _positive(whole - waiting - sending), f"{RANKS}, {plural(repeats, 'repeat')}"
    computed, unassigned = (None, rest) if run.record.span == STREAMED else (rest, 0.0)
    return Parts(whole, sending, computed, waiting, unassigned, None, None, source) if whole else None


def _of_timeline(run: RunRow) -> Parts | None:
    """By device, from the lanes of the last repeat. Copies that overlap computing are hidden, and take no time of their
    own. Where a captured graph copies weights too, it is one entry of the timeline, and unassigned.
    """
    notes, last = run.notes(TaskgraphNotes), run.record.seconds[-1]
    spans, decomposition = run.timeline, run.decomposition
    if spans is None or decomposition is None:
        return None
    # A record may come from anywhere: a timeline that contradicts its decomposition is not interpreted.
    if not all(0 <= span.device < decomposition.devices and span.lane in LANES for span in spans):
        return None
    end = max(span.end for span in spans)
    if not last or end > last * (1 + TOLERANCE) + CLOCK:
        return None  # of another repeat
    # Devices run side by side, so the whole is the seconds of the repeat times the number of devices.
    whole, computing, copying, busy = max(end, last) * decomposition.devices, 0.0, 0.0, 0.0
    for _, own in groupby(sorted(spans, key=lambda span: span.device), key=lambda span: span.device):
        lanes = list(own)
        computing += _covered_seconds(lane for lane in lanes if lane.lane == COMPUTE)
        copying += _covered_seconds(lane for lane in lanes if lane.lane != COMPUTE)
        busy += _covered_seconds(lanes)
    # Hidden copies cost nothing: only the time in which no kernel ran counts as copy.
    copy, wait, after = busy - computing, end * decomposition.devices - busy, whole - end * decomposition.devices
    seconds = {"copy": copy, "kernel": computing, "wait": wait, "unassigned": after, "hidden": copying - copy}
    # A captured graph is one span, so copies in it cannot be told from kernels.
    if notes.captured and run.record.span == STREAMED:
        seconds |= {"kernel": None, "unassigned": after + computing, "hidden": None}
    tasks = notes.timeline_tasks or 0
    # Joined spans make the kernel time an upper bound, which the figure must say.
    joined = (tasks, len(spans)) if tasks > len(spans) else None
    source = f"{TIMELINE}, {plural(decomposition.devices, 'device')}, last repeat"
    return Parts(whole=whole, joined=joined, source=source, **{name: _positive(seconds[name]) for name in seconds})


def _positive(seconds: float | None) -> float | None:
    """A sum of rounded numbers that cannot be negative."""
    return None if seconds is None else max(0.0, seconds)


def _covered_seconds(spans: Iterable) -> float:
    """Seconds that at least one of the spans covers."""
    total, until = 0.0, 0.0
    for interval in sorted(spans, key=lambda span: span.begin):
        total += max(0.0, interval.end - max(interval.begin, until))
        until = max(until, interval.end)
    return total


def _of_events(run: RunRow) -> Parts | None:
    """A GPU's own seconds in the last repeat, from its first launch to its last; the rest is the host's."""
    last, kernel = run.record.seconds[-1], _spans(run).get(run.record.span)
    if kernel is None or not last or kernel > last * (1 + TOLERANCE) + CLOCK:
        return None
    # Events bracket the launches of a batch; what the host did around them has no clock of its own.
    unassigned = _positive(last - kernel)
    return Parts(max(last, kernel), None, kernel, None, unassigned, None, None, f"{EVENTS}, last repeat")


def _upload_seconds(run: RunRow) -> float | None:
    """Seconds of read in which inputs and weights went to a GPU."""
    spans, whole = _spans(run), sum(run.record.read_seconds)
    if run.record.ranks > 1 or not {WITH_COPIES, run.record.span} <= set(spans):
        return None
    copied = spans[WITH_COPIES] - spans[run.record.span]
    return copied if 0 <= copied <= whole else None


def _spans(run: RunRow) -> dict[str, float]:
    """The spans in the notes of an engine that has a GPU."""
    return run.notes(Notes).spans or {}
