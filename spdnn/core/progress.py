"""The progress of a long run, stage by stage, on a terminal or in a log (spdnn/core/progress_output.py).

A stage reports its items, its rate, and the time to go where it can be estimated; an inference also the inputs left.
Where no line is due, a step only reads the clock.

Layers get cheaper as inputs die, so the mean over past layers would overestimate the time to go. It is the work ahead
(present rows x edges of the layers ahead) over the rate of the edges computed lately.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from time import monotonic

from spdnn.core.progress_output import duration, inference_name, magnitude, of, output, significant

LATELY = 10.0  # seconds, at least, over which the rate for the time to go is taken
Batch = tuple[int, float, float]  # its inputs, work done, work ahead of its present rows
BYTES = "B"  # a unit that is written in kB, MB, ...


def bar(items: Iterable, name: str, total: int | None = None, unit: str = "layer") -> Iterator:
    """Iterate over `items` in a stage of that name; an item is done when the next one is asked for."""
    with Stage(name, total, unit) as stage:
        for item in items:
            yield item
            stage.advance()


class Stage:
    """One stage, a context; it counts items that are alike.

    Args:
        name: as it is written: "read inputs".
        total: items in all, or None.
        unit: what an item is, in the singular; BYTES.
        before: items that were done before it began, by others.
        timed: it has a rate and a time to go; else items that are counted are not done yet.

    Attributes:
        done: items so far.

    Raises:
        InputError: when it begins, as progress_output.output_mode.
    """

    def __init__(self, name: str, total: int | None = None, unit: str = "layer", before: int = 0, timed: bool = True):
        self.name, self.total, self.unit, self.timed = name, total, unit, timed
        self.units = unit + ("es" if unit.endswith("ch") else "s")
        self.done = self._before = before
        self.begun, self._due, self._output = 0.0, math.inf, None
        self._samples: deque[tuple[float, float]] = deque()  # (when, work done by then), of the last while
        self._work: Callable | None = None  # what an inference asks for the work done and ahead

    def __enter__(self):
        self.begun = now = monotonic()
        self._output = output(now)
        if self._output:
            self._samples.append((now, self._before))
            self._due = self._output.due
            self.update()
        return self

    def __exit__(self, kind, *_) -> None:
        self._due = math.inf
        if self._output:
            if self._output.shown and not kind:
                self._write(self.summarize(monotonic()))
            self._output.close()
        self._work = None  # which holds what the engine computes with

    def advance(self, count: int = 1) -> None:
        """So many more items are done."""
        self.done += count
        if monotonic() >= self._due:
            self.update()

    def update(self) -> None:
        """Write how far the stage is, if that is due; its end follows when it is over."""
        now = monotonic()
        if now >= self._output.due and self.done != self.total:
            self._write(self.text(now, self._output.brief))
        self._due = self._output.due

    def _write(self, text: str) -> None:
        self._output.write(f"{self.name}: {text}", self.done, self.total)

    def text(self, now: float, brief: bool = False) -> str:
        """How far it is; `brief`: on a line that a bar needs a part of."""
        remaining = self._seconds_left(now) if self.timed else None
        return self._join(now, brief, None if remaining is None else f"{duration(remaining)} to go")

    def summarize(self, now: float) -> str:
        """How far it came, and how long that took."""
        return self._join(now, False, f"done in {duration(now - self.begun)}")

    def _join(self, now: float, brief: bool, last: str | None) -> str:
        rate = self.rate(now - self.begun) if self.timed and now > self.begun else None
        return ", ".join(part for part in (*self.where(brief), rate, last) if part)

    def where(self, brief: bool) -> list[str]:
        """The items done, in words."""
        if self.unit == BYTES:
            return [of(self.done, self.total, brief, magnitude)]
        if self.total is None:
            return [f"{self.done:,} {self.units}"]
        return [f"{self.unit} {of(self.done, self.total, brief)}"]

    def rate(self, seconds: float) -> str | None:
        """So far, in words: of an inference the challenge's; None: nothing is done yet."""
        if (edges := self.edges()) is not None:
            return f"{significant(edges / seconds / 1e12)} TeraEdges/s" if edges else None
        if self.done == self._before:
            return None
        rate = (self.done - self._before) / seconds
        return f"{magnitude(rate)}/s" if self.unit == BYTES else f"{significant(rate)} {self.units}/s"

    def edges(self) -> float | None:
        """Of an inference: inputs x edges of the layers done, whatever was computed of them."""
        return None

    def work(self) -> tuple[float, float | None]:
        """Work done, and work ahead where it can be estimated, in one unit."""
        return self.done, None if self.total is None else self.total - self.done

    def _seconds_left(self, now: float) -> float | None:
        """The work ahead at the rate of late; None where either is missing, or nothing is ahead."""
        (done, ahead), samples = self.work(), self._samples
        samples.append((now, done))
        while len(samples) > 2 and samples[1][0] <= now - LATELY:
            samples.popleft()
        since, before = samples[0]
        return ahead * (now - since) / (done - before) if ahead and done > before and now > since else None


@dataclass(frozen=True)
class WorkProfile:
    """The layers that an inference goes through, counted before its clock starts: lists of layers + 1 numbers.

    Attributes:
        passed: edges of the network before reductions, which the challenge's rate counts, before each layer.
        ahead: edges of the network as it was prepared, from each layer on.
    """

    passed: list[int]
    ahead: list[int]

    @classmethod
    def of(cls, edges: Iterable[int], prepared: Iterable[int]) -> "WorkProfile":
        """From the edges of each layer of both networks."""
        return cls([0, *accumulate(edges)], [0, *accumulate(reversed(list(prepared)))][::-1])

    @property
    def depth(self) -> int:
        return len(self.passed) - 1


class Inference(Stage):
    """Batches that go through all layers one after the other.

    Args:
        inputs, batches: of the run.
        name: of what is not an inference that is measured; its rate is in layers.

    Attributes:
        batch, size: the batch that is under way, counted from 1, and its inputs; layer, left: how many layers it has
            been through, and its inputs with a nonzero row after them.
        computed: inputs x edges really computed, where the engine counts them here.
    """

    def __init__(self, profile: WorkProfile, inputs: int, batches: int = 1, name: str | None = None):
        super().__init__(name or inference_name(), batches * profile.depth)
        self.profile, self.inputs, self.named = profile, inputs, name is not None
        self.batches, self.batch, self.before, self.size = batches, 0, 0, 0
        self.layer, self.left, self.computed, self._spent = 0, 0, 0, 0.0

    def begin(self, size: int, work: Callable[[int], tuple[float, float]] | None = None) -> None:
        """The next batch begins, of `size` inputs.

        Args:
            work: a function of the number of layers that are done, called when a line is written; it gives (inputs x
                edges really computed since the run began, rows that the next layer computes). None: `computed` and
                `left` have these.
        """
        self._spent = self._work(self.layer)[0] if self._work else self.computed
        self.before += self.size
        self.batch += 1
        self.size = self.left = size
        self.layer, self._work = 0, work
        self.at(0, size)

    def at(self, layer: int, left: int) -> None:
        """The batch has been through so many layers, and so many of its inputs are left.

        This is on the clock of the inference: two assignments and a reading of the clock.
        """
        self.layer, self.left = layer, left
        if monotonic() >= self._due:
            self.update()

    def update(self) -> None:
        if self.batch:  # before the first there is nothing to write
            self._count()
            super().update()

    def summarize(self, now: float) -> str:
        self._count()
        return super().summarize(now)

    def _count(self) -> None:
        self.done = max(0, self.batch - 1) * self.profile.depth + self.layer

    def where(self, brief: bool) -> list[str]:
        batch = [f"batch {of(self.batch, self.batches, brief)}"] if self.batches > 1 else []
        return [*batch, f"layer {of(self.layer, self.profile.depth, brief)}", _inputs_left(self.left, self.size, brief)]

    def edges(self) -> float | None:
        return (
            None if self.named else self.before * self.profile.passed[-1] + self.size * self.profile.passed[self.layer]
        )

    def work(self) -> tuple[float, float | None]:
        computed, rows = self._work(self.layer) if self._work else (self.computed, self.left)
        late = [(self.before, self._spent, 0)] if self.before else []
        early = [(self.size, computed - self._spent, rows * self.profile.ahead[self.layer])]
        return computed, work_ahead(late, early, self.inputs)


class Batches(Stage):
    """Batches that are at different layers at the same time; whoever calls sees to it that one does at a time.

    `done` counts layers of batches or, without `work`, batches.

    Args:
        work: a function called when a line is written; it gives (inputs x edges really computed, those ahead or None).
            None: batches count only when they are done, as on a device that the host does not wait for.

    Attributes:
        left: inputs with a nonzero row, those included that have not begun.
    """

    def __init__(self, profile: WorkProfile, inputs: int, batches: int, work: Callable | None = None):
        of_layers = (batches * profile.depth, "layer") if work else (batches, "batch")
        super().__init__(inference_name(), *of_layers)
        self.profile, self.inputs, self.batches, self.left = profile, inputs, batches, inputs
        self._passed, self._work = 0, work

    def through(self, first: int, last: int, inputs: int, batches: int = 1, died: int = 0) -> None:
        """Batches, of `inputs` inputs, have been through layers first..last-1 together, in which so many died."""
        self.left -= died
        self._passed += inputs * (self.profile.passed[last] - self.profile.passed[first])
        self.advance(batches * (last - first) if self._work else batches)

    def where(self, brief: bool) -> list[str]:
        if not self._work:
            return super().where(brief)
        layers = of(self.done, self.total, brief)
        several = f"{layers} layers" + ("" if brief else f" of {self.batches:,} batches")
        return [several if self.batches > 1 else f"layer {layers}", _inputs_left(self.left, self.inputs, brief)]

    def edges(self) -> float:
        return self._passed

    def work(self) -> tuple[float, float | None]:
        return self._work() if self._work else (self._passed, self.inputs * self.profile.passed[-1] - self._passed)


def _inputs_left(left: int, inputs: int, brief: bool) -> str:
    return f"{int(left):,} left" if brief else f"{of(left, inputs, brief)} inputs left"


def work_ahead(late: Sequence[Batch], early: Sequence[Batch], inputs: int) -> float | None:
    """Work ahead of `inputs` inputs in batches, of which some have begun; None: none has.

    Args:
        late, early: batches. Late ones, from which few rows leave any more, show what a batch costs: early ones cost no
            more for each input, those to come as much.
    """
    measured = late or early
    passed = sum(batch[0] for batch in measured)
    if not passed:
        return None
    each = sum(done + ahead for _, done, ahead in measured) / passed
    rest = sum(ahead for _, _, ahead in late) + sum(min(ahead, each * count) for count, _, ahead in early)
    return rest + each * (inputs - sum(batch[0] for batch in (*late, *early)))
