"""Which decomposition: every schedule that the devices and their memory allow is simulated, and the fastest taken.

Among those that are as good as equally fast, the simplest: predictions are not so exact that it would be worth more.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product

from spdnn.core.errors import InputError, MemoryTooSmall
from spdnn.engines.memory import RunSizes
from spdnn.engines.taskgraph.decomposition import BATCHES_EACH, LEAST_BUFFERS, Decomposition, MemoryRoom, cut
from spdnn.engines.taskgraph.settings import AUTO, GRAPH, PIPELINE, RESIDENT, SCHEDULES, STREAM, TaskgraphSettings
from spdnn.engines.taskgraph.simulation import Simulated, TaskCosts, least_seconds, simulate

EQUAL = 1.02  # of two that differ by less than this factor, the simpler is taken
STREAMED = (LEAST_BUFFERS, 3, 4)  # buffers of streamed weights
BUFFER_COUNTS = {RESIDENT: [None], STREAM: [*STREAMED], GRAPH: [None, *STREAMED], PIPELINE: [None, *STREAMED]}
SHORT = 4  # of the largest layers: bytes of stages that leave more of the memory to features
MORE_BATCHES = (2, 4)  # times BATCHES_EACH batches for each device, where devices draw them or wait for each other
UNFIT = "does not fit"


@dataclass(frozen=True)
class Candidate:
    """One that was considered.

    Attributes:
        settings: those of `cut`.
        seconds: predicted; None: `why_not` tells.
        least: seconds that it could not be faster than, where that was enough not to simulate it.
    """

    schedule: str
    settings: dict
    seconds: float | None
    why_not: str | None = None
    least: float | None = None

    def __str__(self) -> str:
        labels = {"buffers": "buffers of weights", "pipeline": "devices in a pipeline"}
        batches = self.settings.get("batches")
        words = [f"{batches} batch{'es' if batches > 1 else ''}"] if batches else []
        words += [f"{self.settings[name]} {what}" for name, what in labels.items() if self.settings.get(name)]
        if self.settings.get("buffers") and self.settings.get("stages"):
            words.append(f"{self.settings['stages']} stages")
        return ", ".join([self.schedule, *words])


@dataclass(frozen=True)
class Selection:
    """A decomposition, its predicted run, one sentence that says why, and the other candidates."""

    decomposition: Decomposition
    predicted: Simulated
    why: str
    considered: list[Candidate] = field(repr=False)


def choose_unmeasured(
    requested: TaskgraphSettings, sizes: RunSizes, memory: int | None, stays: str = RESIDENT, **options
) -> tuple[Decomposition, str] | None:
    """(decomposition, why) where what tasks cost cannot matter: the schedule was asked for and its devices all hold the
    same, or all weights fit the one device; None: it can.

    Args:
        stays: the schedule of weights that all fit; options: further ones of `cut`.

    Raises:
        InputError, MemoryTooSmall: as `cut`, of a schedule that was asked for.
    """
    if requested.schedule not in (AUTO, PIPELINE) and (requested.pipeline or 1) == 1:
        decomposition = cut(requested, sizes, memory, **options)
        return decomposition, f"{requested.schedule} was asked for"
    if requested.schedule == AUTO and requested.devices == 1 and not requested.buffers:
        try:
            decomposition = cut(replace(requested, schedule=stays), sizes, memory, **options)
        except MemoryTooSmall:
            return None
        if not decomposition.streamed:
            return decomposition, f"{stays}: all weights fit the one device there is, and nothing is faster"
    return None


def choose(
    sizes: RunSizes,
    requested: TaskgraphSettings,
    memory: int | None,
    costs: TaskCosts,
    cores: int | None = None,
    *,
    stage_bytes: float | None = None,
    leaving: bool = True,
    also: MemoryRoom | None = None,
) -> Selection:
    """The fastest decomposition predicted that keeps the promise on memory.

    Args:
        requested: what is asked for is not chosen.
        memory: bytes of each device; None: enough.
        costs: of tasks, of the same inputs and layers as `sizes`.
        cores: that all devices share; None: each is a device of its own.
        stage_bytes, leaving, also: as `cut` takes them.

    Raises:
        InputError: numbers that do not fit each other.
        MemoryTooSmall: none fits; the sentence is of the one that needs least.
    """
    more = {"leaving": leaving, "costs": costs.layers(costs.work.rows).tolist(), "also": also}
    requests = {"pipeline": requested.pipeline, "batches": requested.batches, "buffers": requested.buffers}
    requests["stage_bytes"] = stage_bytes
    short = None if memory is None or stage_bytes else SHORT * max(sizes.weights)
    considered: list[Candidate] = []
    errors: list[InputError] = []
    stays, seen, best = set(), set(), None
    # Exhaustive: the candidates are few, and one that does not fit the memory is noted with the reason.
    for name, settings in _candidates(requested.schedule, requested.devices, requests, short):
        if (name, settings["pipeline"]) in stays and settings["buffers"] and not requested.buffers:
            continue  # weights that fit are not streamed
        # Batches are as large as the memory allows, unless the candidate says how many there are.
        named = {key: settings[key] for key in ("pipeline", "batches", "buffers")}
        try:
            decomposition = cut(
                replace(requested, schedule=name, **named), sizes, memory, stage_bytes=settings["stage_bytes"], **more
            )
        except InputError as error:
            errors.append(error)
            why = UNFIT if isinstance(error, MemoryTooSmall) else str(error)
            considered.append(Candidate(name, settings, None, why))
            continue
        if not decomposition.streamed:
            stays.add((name, settings["pipeline"]))
        if decomposition in seen:
            continue
        seen.add(decomposition)
        settings |= {"batches": decomposition.batches, "buffers": decomposition.buffers}
        settings["stages"] = len(decomposition.stages)
        # Branch and bound: what could not be faster even if nothing waited is not simulated.
        least = least_seconds(decomposition, costs, cores)
        if best and least * EQUAL >= best[2].seconds:
            why = f"no faster than {least:.4g} s, even if nothing waited"
            considered.append(Candidate(name, settings, None, why, least))
            continue
        # Simulation is the judge; the candidates come simplest first, so a later one must be faster by more than noise.
        predicted = simulate(decomposition, costs, cores)
        considered.append(Candidate(name, settings, predicted.seconds))
        if best is None or predicted.seconds * EQUAL < best[2].seconds:
            best = considered[-1], decomposition, predicted
    if best is None:
        too_small = [error for error in errors if isinstance(error, MemoryTooSmall)]
        raise min(too_small, key=lambda error: error.least) if too_small else errors[-1]
    candidate, decomposition, predicted = best
    return Selection(decomposition, predicted, _why(candidate, considered), considered)


def _candidates(schedule: str, devices: int, requests: dict, short: int | None) -> Iterator[tuple[str, dict]]:
    """(schedule, settings of `cut`), the simplest first, with what was requested; `cut` interprets None. `short`: bytes
    of short stages, where memory is promised, so that what stages leave is worth having."""
    for name in SCHEDULES if schedule == AUTO else (schedule,):
        # A schedule that was asked for keeps its settings; `auto` leaves out those that devices or buffers rule out.
        free = schedule == AUTO
        if free and ((name == RESIDENT and requests["buffers"]) or (name == PIPELINE and devices == 1)):
            continue
        parts = [n for n in range(2, devices + 1) if not devices % n] if free and name == PIPELINE else [None]
        # More batches where devices wait for each other: the ends are evener, and each batch pays its fixed costs.
        waits = name == PIPELINE or (name == GRAPH and devices > 1)
        batches = [None, *(n * BATCHES_EACH * devices for n in MORE_BATCHES)] if waits else [None]
        stages = [math.inf] if short is None or name == RESIDENT else [math.inf, short]
        options = {"pipeline": parts, "batches": batches, "buffers": BUFFER_COUNTS[name], "stage_bytes": stages}
        # Short stages leave more memory to features; streamed weights may have more buffers than two.
        choices = [[requests[key]] if requests[key] else values for key, values in options.items()]
        for values in product(*choices):
            settings = dict(zip(options, values, strict=True))
            if settings["buffers"] or settings["stage_bytes"] != short:  # weights that stay are as large in any stages
                yield name, settings


def _why(best: Candidate, considered: list[Candidate]) -> str:
    """Why not the others, in one sentence."""
    if len(considered) == 1:
        return f"{best}: nothing else was left to choose"
    reasons = []
    refused = [candidate.schedule for candidate in considered[: considered.index(best)] if candidate.why_not == UNFIT]
    if refused:
        reasons.append(f"{' and '.join(dict.fromkeys(refused))} would not fit the memory of a device")
    slower = [candidate for candidate in considered if candidate.seconds is not None and candidate is not best]
    if slower:
        next_best = min(slower, key=lambda candidate: candidate.seconds)
        ratio = next_best.seconds / best.seconds if best.seconds else 1.0
        much = "as fast as makes no difference, and less simple" if ratio <= EQUAL else f"{ratio - 1:.0%} slower"
        reasons.append(f"the next best ({next_best}) is predicted to be {much}")
    elif not refused:
        reasons.append(f"no other could be {EQUAL - 1:.0%} faster, even if nothing waited")
    return f"{best}: {', and '.join(reasons)}" if reasons else f"{best}: the only one that fits"
