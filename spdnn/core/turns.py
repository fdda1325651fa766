"""Programs of one process timed in turns, none of which runs beside threads of another that are still awake.

A library's threads wait for more work for a while, and do so by spinning: up to 0.1 s (OpenBLAS, measured). On as many
cores as there are threads, a program that begins in that time is slowed, by as much as twice. So before a turn all
threads must sleep, and its first call, which wakes the program's own, is not timed.
"""

import math
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from spdnn.core.endings import check_ended
from spdnn.core.statistics import Interval, ratios

# Seconds of a check, and at most; processor time over them that is none. Of threads on other cores the system knows the
# time to a tick, up to 10 ms, so a check is longer.
REST, LONGEST_REST, IDLE = 0.015, 0.5, 0.1
STEADY = 1.25  # times its fastest turn, that a program may take in a round that counts
TURN, LEAST_TIMED = 0.02, 2  # seconds of a turn, and timed calls, at least; one call where that takes the turn's time


class Timed(NamedTuple):
    """What programs took that were timed in turns.

    Attributes:
        seconds: of each program by its name, one number a round: the median call of its turn.
        rested: whether all threads of this process slept before each turn.
    """

    seconds: dict[Any, list[float]]
    rested: bool

    def steady(self) -> "Timed":
        """The rounds in which no program took much longer than in its fastest.

        What the system does not count as other work may slow all for some seconds, and one program more than another.
        Measured on a virtual machine: threads of ONNX Runtime that spin take up their work late, so that a call takes
        as long as on one thread (2.1 times as long, and 1.7 in another program), while plain arithmetic is not slower.
        """
        most = [STEADY * min(each) for each in self.seconds.values()]
        rounds = zip(*self.seconds.values(), strict=True)
        kept = [each for each in rounds if all(took <= limit for took, limit in zip(each, most, strict=True))]
        return self._replace(seconds={name: [each[k] for each in kept] for k, name in enumerate(self.seconds)})

    def over(self, ours: Any, theirs: Any) -> Interval:
        """How many times as long `theirs` took as `ours`; of no round, anything."""
        own, other = self.seconds[ours], self.seconds[theirs]
        return ratios(own, other) if own else Interval(1.0, 0.0, math.inf, 0)

    def median(self, name: Any) -> float:
        return statistics.median(self.seconds[name])


def wait_for_idle() -> bool:
    """Wait until this process takes next to no processor time, at most LONGEST_REST seconds; whether it does."""
    end = time.perf_counter() + LONGEST_REST
    while time.perf_counter() < end:
        before = time.process_time()
        time.sleep(REST)
        if time.process_time() - before < IDLE * REST:
            return True
    return False


def take_turns(calls: Mapping[Any, Callable[[], Any]], least: int, most: int, enough: Callable[[Timed], bool]) -> Timed:
    """Time some calls in rounds, in each of which every call has a turn.

    Args:
        calls: by name.
        least, most: rounds; from `least` on, `enough` of what was timed so far ends them.
    """
    timed = Timed({name: [] for name in calls}, True)
    for number in range(most):
        if number >= least and enough(timed):
            break
        for name, call in calls.items():
            check_ended()
            # Where others of this process never sleep, waiting for them once is enough.
            timed = timed._replace(rested=timed.rested and wait_for_idle())
            timed.seconds[name].append(_turn(call))
    return timed


def _turn(call: Callable[[], Any]) -> float:
    """Seconds of the median call of a turn, after one that is not timed."""
    call()
    times: list[float] = []
    begun = end = time.perf_counter()
    while end - begun < TURN or (len(times) < LEAST_TIMED and end - begun < LEAST_TIMED * TURN):
        call()
        before, end = end, time.perf_counter()
        times.append(end - before)
    return statistics.median(times)
