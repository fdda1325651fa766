"""The output of progress (spdnn/core/progress.py): where it is written, how often, and in what words.

The environment variable SPDNN_PROGRESS has the last word:

    off            nothing
    bar            a bar, drawn 10 times a second: what a terminal gets
    lines          a line every 30 s at most, and one at the end of a stage that wrote any: what a log gets
    bar=S, lines=S at most one every S seconds
"""

import contextlib
import math
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from time import monotonic

from spdnn.core.errors import InputError

VARIABLE = "SPDNN_PROGRESS"
SECONDS = {"bar": 0.1, "lines": 30.0}  # from one to the next, where the variable does not say


@dataclass
class _Run:
    """The state of the run that this process is.

    Attributes:
        since: when the last line was written, or the run began; None where the process is more than one run, and each
            stage counts its own time.
        repeat, rank: as they follow the word "inference".
        quiet: another rank reports.
    """

    since: float | None = None
    repeat: str = ""
    rank: str = ""
    quiet: bool = False


_run = _Run()


def begin() -> None:
    """This process is one run from here on: the time until its first line counts over all stages.

    Raises:
        InputError: SPDNN_PROGRESS is none of what it can be.
    """
    output_mode()
    _run.since = monotonic()


def on_rank(rank: int, size: int) -> None:
    """This process is one of several ranks: the first reports its own part of the inputs; the others do not."""
    _run.rank, _run.quiet = f" on rank {rank} of {size}", rank > 0


@contextlib.contextmanager
def repeat(number: int, count: int) -> Iterator[None]:
    """An inference in this context is repeat `number` (from 0) of `count`."""
    _run.repeat = f" {number + 1} of {count}" if count > 1 else ""
    try:
        yield
    finally:
        _run.repeat = ""


def inference_name() -> str:
    """What the inference that begins now is called: "inference 2 of 5 on rank 0 of 4"."""
    return f"inference{_run.repeat}{_run.rank}"


def output_mode() -> tuple[str, float]:
    """(off, bar or lines, seconds between two of them), as the variable says, or as standard error is.

    Raises:
        InputError: the variable says something else.
    """
    value = os.environ.get(VARIABLE)
    if not value:
        how = "off" if sys.stderr is None else "bar" if sys.stderr.isatty() else "lines"
        return how, SECONDS.get(how, math.inf)
    how, separator, number = value.partition("=")
    if how in SECONDS or value == "off":
        with contextlib.suppress(ValueError):
            seconds = float(number) if separator else SECONDS.get(how, math.inf)
            if seconds >= 0 and (seconds < math.inf or not separator):
                return how, seconds
    raise InputError(
        f"environment variable {VARIABLE}={value[:40]!r}: it must be off, bar, lines, or one of the last two with "
        "seconds from one to the next, such as lines=5"
    )


def output(now: float) -> "ProgressBar | Lines | None":
    """The output for a stage that begins now; None: there is none. Raises as `output_mode`."""
    if _run.quiet:
        return None
    how, seconds = output_mode()
    if how == "bar":
        try:
            import tqdm  # noqa: F401  before the stage's clock starts
        except ImportError:
            how, seconds = "lines", SECONDS["lines"]
        else:
            return ProgressBar(seconds, now)
    return Lines(seconds, now) if how == "lines" else None


class Lines:
    """A line on standard error, `seconds` after the last one at the earliest, whatever stage that was of.

    Attributes:
        shown: whether the stage has a line, so that its end has one too.
    """

    brief = False

    def __init__(self, seconds: float, now: float):
        self.seconds, self.shown = seconds, False
        self._since = now if _run.since is None else _run.since

    @property
    def due(self) -> float:
        """When the next line may be written."""
        return max(self._since, _run.since or 0.0) + self.seconds

    def write(self, text: str, done: int, total: int | None) -> None:
        """Write the text; a bar also shows `done` of `total`."""
        with contextlib.suppress(OSError):  # a log that cannot be written to ends no run
            print(text, file=sys.stderr, flush=True)
        self.shown, self._since = True, monotonic()
        if _run.since is not None:
            _run.since = self._since

    def close(self) -> None:
        """The stage is over."""


class ProgressBar:
    """A bar that is drawn where a stage has lasted `seconds`, again after as many, and is gone when the stage ends."""

    brief, shown = True, False

    def __init__(self, seconds: float, now: float):
        self.seconds, self.due, self._drawn = seconds, now + seconds, None

    def write(self, text: str, done: int, total: int | None) -> None:
        """As Lines.write."""
        from tqdm import tqdm

        with contextlib.suppress(OSError):  # as when the terminal is closed and the run goes on
            if self._drawn is None:
                shown = {"bar_format": "{desc} |{bar}|", "dynamic_ncols": True, "leave": False}
                self._drawn = tqdm(desc=text, total=total, initial=done, **shown)
            else:
                self._drawn.n = done
                self._drawn.set_description_str(text)
        self.due = monotonic() + self.seconds

    def close(self) -> None:
        """As Lines.close."""
        with contextlib.suppress(OSError):
            if self._drawn is not None:
                self._drawn.close()


def of(done: float, total: float | None, brief: bool, written=lambda number: f"{int(number):,}") -> str:
    """done of total, or done alone."""
    return written(done) + ("" if total is None else ("/" if brief else " of ") + written(total))


def duration(seconds: float) -> str:
    """In words, to about a hundredth: 0.4 s, 35 s, 3 min 20 s, 2 h 5 min, 3 d 4 h."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for size, unit, part, parts in ((86_400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= size:
            return f"{whole // size} {unit} {whole % size // part} {parts}"
    return f"{whole} s"


def significant(number: float) -> str:
    """A number to three digits, whole from 1,000 on."""
    return f"{number:,.0f}" if number >= 999.5 else f"{number:.3g}"


def magnitude(count: float) -> str:
    """Bytes in words: 12.3 MB."""
    power = min(4, max(0, int(math.log10(count) / 3))) if count >= 1 else 0
    return f"{significant(count / 1000**power)} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
