"""How long the parts of a run took, and the rates that follow: parts of run records and operation records.

Published systems time the inference alone, and so does the challenge; the time to solution is in a record besides.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from spdnn.core.errors import InputError
from spdnn.core.fields import Claim, Record, Seconds, Unique, check_unique
from spdnn.core.statistics import Interval, as_samples, interval

FOLLOWING_TOLERANCE = 1e-6  # relative: between figures that follow from one another
CLOCK = 1e-9  # seconds: parts of a time were rounded apart from it


class TimeToSolution(Record, omit_defaults=True):
    """What a user waits for: from the start of a process to verified categories, in seconds.

    Without repeats after the first, measuring the machine and downloads.

    Attributes:
        of: command, one process; or workflow, the sum of the stages of the case, those that other cases share whole.
        cached: parts that came from a cache: then this is no time of a first run.
        startup: Python, imports, devices and their kernels; in a workflow, also opening the stores.
        inputs: made or read.
        network: made or read, weights in memory.
        prepare: searching for reductions, the engine's layout.
        inference: the first repeat.
        verification: comparing with the truth.
        other: what these parts leave of the whole.
        excluded: no part of it: repeats after the first, measuring the machine. None: not recorded.
    """

    of: Literal["command", "workflow"]
    cached: Annotated[list[Literal["inputs"]], Unique]
    startup: Seconds
    inputs: Seconds
    network: Seconds
    prepare: Seconds
    inference: Seconds
    verification: Seconds
    other: Seconds
    excluded: Seconds | None = None

    def __post_init__(self) -> None:
        check_unique("cached", self.cached)

    @classmethod
    def of_parts(
        cls, of: str, seconds: float, excluded: float, cached: Sequence[str] = (), **parts: float
    ) -> "TimeToSolution":
        """Of the seconds of the whole; what `parts` leave of it is `other`."""
        every = dict.fromkeys(PARTS, 0.0) | parts | {"other": max(0.0, seconds - sum(parts.values()))}
        return cls(of, list(cached), **every, excluded=excluded)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of each part."""
        return {name: getattr(self, name) for name in PARTS}

    @property
    def seconds(self) -> float:
        """Of all parts."""
        return sum(self.parts.values())

    @property
    def wall(self) -> float | None:
        """From the start of the command, or of the first stage, until its record is written, downloads left out."""
        return None if self.excluded is None else self.seconds + self.excluded

    @property
    def said(self) -> str:
        """One line for a terminal."""
        parts = ", ".join(f"{name} {spent:.2f}" for name, spent in self.parts.items() if spent >= 0.005)
        cached = f"; from the cache: {', '.join(self.cached)}" if self.cached else ""
        return f"{self.seconds:.2f} s from the start to a verified result ({parts}{cached})"

    def claims(self, first: float) -> Iterator[Claim]:
        """One of the parts is the first repeat."""
        same = math.isclose(self.inference, first, rel_tol=FOLLOWING_TOLERANCE)
        yield same, f"time_to_solution.inference: {self.inference:g}, but the first repeat took {first:g}"


PARTS = TimeToSolution.__struct_fields__[2:-1]  # all but `of`, `cached` and `excluded`


def work_per_second(work: int, seconds: Sequence[float]) -> Interval:
    """The median of work / seconds over these samples, and its interval; InputError where they are none."""
    middle, low, high, resamples = interval(seconds)
    return Interval(work / middle, work / high, work / low, resamples)


def check_samples(name: str, seconds: Sequence[float]) -> Iterator[Claim]:
    """The claim that samples have a median: each is above 0."""
    try:
        as_samples(seconds)
    except InputError as error:
        yield False, f"{name}: {error}"
