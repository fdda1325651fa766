"""The progress of a long run, by tqdm: a bar on a terminal, a line now and then in a log; nothing without tqdm.

tqdm is imported when the first stage begins. Its environment variables count: TQDM_DISABLE=1 switches progress off, and
TQDM_MININTERVAL is the seconds from one drawing to the next.
"""

import math
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import accumulate
from threading import RLock
from time import time
from types import SimpleNamespace
from typing import Any

from spdnn.core.errors import InputError

BAR_SECONDS, LINE_SECONDS = 0.1, 30.0  # from one drawing to the next, on a terminal and in a log
BYTES = "B"  # a unit that is written in kB, MB, ...

# Of this process: what follows the word "inference"; whether another rank reports; when the repeats under way began, or
# were last drawn.
_process = SimpleNamespace(repeat="", rank="", quiet=False, since=math.inf)


def on_rank(rank: int, size: int) -> None:
    """This process is one of several ranks: the first reports its own part of the inputs; the others do not."""
    _process.rank, _process.quiet = f" on rank {rank} of {size}", rank > 0


def repeats(count: int) -> Iterator[int]:
    """The numbers of the repeats of an inference, which its name shows; a log gets a line once they last long enough
    together."""
    _process.since = time()
    try:
        for number in range(count):
            _process.repeat = f" {number + 1} of {count}" if count > 1 else ""
            yield number
    finally:
        _process.repeat, _process.since = "", math.inf


def inference_name() -> str:
    """What the inference that begins now is called: "inference 2 of 5 on rank 0 of 4"."""
    return f"inference{_process.repeat}{_process.rank}"


def edges_passed(edges: Iterable[int]) -> list[int]:
    """Edges before each layer, and of all (layers + 1 numbers), from those of each layer.

    It is called before the clock of an inference starts, so that tqdm is imported by then.
    """
    _tqdm()
    return [0, *accumulate(edges)]


def bar(items: Iterable, name: str, total: int | None = None, unit: str = "layer") -> Iterator:
    """Iterate over `items` in a stage of that name; an item is done when the next one is asked for."""
    with Stage(name, total, unit) as stage:
        for item in items:
            yield item
            stage.advance()


class Stage:
    """One stage of a run, a context; it counts items that are alike. Where no drawing is due, a step reads the clock.

    Args:
        name: as it is shown: "read inputs".
        total: items in all, or None.
        unit: what an item is, in the singular; BYTES.
        before: items that were done before it began, by others.

    Raises:
        InputError: when the first begins: an environment variable has what tqdm does not take.
    """

    bar_format: str | None = None  # tqdm's own

    def __init__(self, name: str, total: int | None = None, unit: str = "layer", before: int = 0):
        self.name, self.total, self.unit, self.done, self.before = name, total, unit, before, before
        self.begun, self._seconds, self._due = 0.0, 0.0, math.inf
        self._bar: Any = None

    def __enter__(self):
        self.begun = time()
        if sys.stderr and not _process.quiet and _tqdm():
            default = BAR_SECONDS if sys.stderr.isatty() else LINE_SECONDS
            self._seconds = float(os.environ.get("TQDM_MININTERVAL") or default)
            self._due = min(self.begun, _process.since) + self._seconds
        return self

    def __exit__(self, *_) -> None:
        self._due = math.inf
        if self._bar is not None:
            self._bar.n = self.done
            self._bar.set_postfix_str(self.postfix(), refresh=False)
            self._bar.close()  # which leaves a line in a log

    def advance(self, count: int = 1) -> None:
        """So many more items are done."""
        self.done += count
        if time() >= self._due:
            self._draw()

    def postfix(self) -> str:
        """What is going on, as tqdm's postfix."""
        return ""

    def _draw(self) -> None:
        if self._bar is None:
            # delay: it draws nothing yet. position: a stage within another takes the same line.
            self._bar = _tqdm()(
                desc=self.name, total=self.total, initial=self.before, unit=self.unit, unit_scale=self.unit == BYTES,
                bar_format=self.bar_format, file=_Output(), leave=not sys.stderr.isatty(), dynamic_ncols=True,
                mininterval=0, miniters=0, delay=1, position=0,
            )  # fmt: skip
            self._bar.start_t, self._bar.last_print_t, self._bar.delay = self.begun, self.begun, 0
        if self.done != self.total:  # else the end of the stage follows
            self._bar.set_postfix_str(self.postfix(), refresh=False)
            self._bar.update(self.done - self._bar.n)
        now = time()
        self._due = now + self._seconds
        if _process.since < now:
            _process.since = now


class Inference(Stage):
    """Batches that go through all layers, one after the other or at the same time; it counts their layers.

    The postfix has the inputs with a nonzero row, of all that the run has, and the challenge's rate: inputs x edges of
    the network before reductions, whatever was computed of them.

    Args:
        passed: edges_passed of the network before reductions.
        inputs, batches: of the run.
        name: of what is not an inference that is measured.
    """

    bar_format = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"

    def __init__(self, passed: list[int], inputs: int, batches: int = 1, name: str | None = None):
        super().__init__(name or inference_name(), batches * (len(passed) - 1))
        self.passed, self.left, self.edges = passed, inputs, 0

    def batch(
        self, inputs: int, layer: int = 0, left: int | None = None, batches: int = 1
    ) -> Callable[[int, int], None]:
        """A batch of so many inputs begins. The engine calls what this returns with the layers that the batch has been
        through and its inputs with a nonzero row, by one thread at a time.

        Args:
            layer, left: where the batch begins, if it is `batches` others, joined after some layers.
        """
        passed, left = self.passed, inputs if left is None else left

        def tell(done: int, active: int) -> None:
            nonlocal layer, left
            self.done += batches * (done - layer)
            self.edges += inputs * (passed[done] - passed[layer])
            self.left += active - left
            layer, left = done, active
            if time() >= self._due:  # as `advance`, which would be one call more on the clock
                self._draw()

        return tell

    def postfix(self) -> str:
        rate = self.edges / max(time() - self.begun, 1e-9) / 1e12
        return f"{self.left:,} inputs left, {rate:.3g} TeraEdges/s"


class _Output:
    """Standard error, as tqdm writes to it: its errors end no run, and a log gets lines without control characters."""

    def write(self, text: str) -> None:
        if not sys.stderr.isatty():
            text = text.strip() and f"{text.strip()}\n"
        with suppress(OSError):
            print(text, end="", file=sys.stderr, flush=True)

    def flush(self) -> None:
        """`write` has done so."""

    def __getattr__(self, name: str):
        return getattr(sys.stderr, name)  # its encoding, and the file that has a width


@cache
def _tqdm() -> Any:
    """tqdm's class, without its thread and its lock for processes; None where it is not installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        return None
    except ValueError as error:
        raise InputError(f"an environment variable TQDM_* is not what tqdm takes: {error}") from None

    class Bar(tqdm):
        monitor_interval = 0

    Bar.set_lock(RLock())
    return Bar
