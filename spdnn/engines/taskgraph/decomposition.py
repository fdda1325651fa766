"""How an inference is cut: batches of inputs, stages of layers, buffers of weights, devices.

    devices = groups x pipeline        a batch passes through one group: its devices one after the other, each of which
                                       has a range of the stages; groups share out the batches
    a device has slots x batches of features, and its weights: all of its range, or rolling buffers of a stage each

The schedules of the field are settings of it:
    resident   all weights on each device, batches dealt out one by one
    stream     weights pass through two buffers or more while layers are computed (At-scale SpDNN)
    graph      as resident, or streamed where weights do not fit; devices draw batches as they finish (SNIG)
    pipeline   each device has a range of the layers, batches go from one to the next (GPipe)

Source: SNIG (Lin and Huang, HPEC 2020); GPipe (Huang et al., NeurIPS 2019); At-scale SpDNN (Hidayetoglu et al., HPEC
2020, section III).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from spdnn.core.errors import InputError, MemoryTooSmall
from spdnn.core.numbers import ceil_div
from spdnn.engines.memory import RunSizes, batch_tiles
from spdnn.engines.reductions.dead import LONGEST_PASS, pass_length
from spdnn.engines.taskgraph.settings import GRAPH, PIPELINE, RESIDENT, SCHEDULES, STREAM, TaskgraphSettings

LEAST_BUFFERS = 2  # of weights that are streamed, at least: one is computed with while the other is filled
JOINED = 32  # layers after which batches may go on together: by then most rows that die have died
TASKS = 3  # tasks of a batch in each stage, at most (the few others of a batch are not counted)
BATCHES_EACH = 4  # batches for each device, at least, where devices draw them, or wait for each other in a pipeline
MOST_DIVISIONS = 1 << 20  # batches, buffers or devices of a decomposition: a number beyond is a slip


@dataclass(frozen=True)
class MemoryRoom:
    """Bytes that each device has for what `sizes` counts, its own (`device`) or its part of what the process has."""

    sizes: RunSizes
    memory: int
    device: bool = True


@dataclass(frozen=True)
class Decomposition:
    """One way to cut it.

    Attributes:
        inputs: of the whole inference; batch: of each batch but the last.
        stages: (first, last) layers, 0-based, last exclusive: what a buffer of weights holds at a time.
        ranges: (first, last) stages of each device of a pipeline; one where there is no pipeline.
        groups: pipelines, or single devices, that share out the batches.
        buffers: of weights on a device, each for one stage at a time; None: all stages of its range stay.
        slots: buffer slots of a device, each with the features of one batch: what it holds at once.
        drawn: a group takes the next batch when it is through with one; else batches are dealt out one by one.
        joined: the stage from which the batches of a group go on as one, those that leave so few rows that a slot
            holds them together; until then they wait in a pool next to the slots. None: each goes to its end alone.

    Raises:
        InputError: stages or ranges with gaps, or a number below what is allowed.
    """

    schedule: str
    inputs: int
    batch: int
    stages: tuple[tuple[int, int], ...]
    ranges: tuple[tuple[int, int], ...]
    groups: int = 1
    buffers: int | None = None
    slots: int = 1
    drawn: bool = False
    joined: int | None = None

    def __post_init__(self):
        if self.schedule not in SCHEDULES:
            raise InputError(f"schedule {self.schedule[:40]!r} must be one of {', '.join(SCHEDULES)}")
        numbers = (self.inputs, self.batch, self.groups, self.slots)
        if min(numbers) < 1 or (self.buffers is not None and self.buffers < LEAST_BUFFERS):
            raise InputError(
                f"{self.inputs} inputs in batches of {self.batch}, {self.groups} groups, {self.slots} slots: each "
                f"must be 1 or more, and {self.buffers} buffers {LEAST_BUFFERS} or more"
            )
        _check_chain(self.stages, "stages", "layers")
        _check_chain(self.ranges, "ranges", "stages", len(self.stages))
        if self.joined is not None and (len(self.ranges) > 1 or not 0 < self.joined < len(self.stages)):
            raise InputError(
                f"batches joined before stage {self.joined} of {len(self.stages)} and {len(self.ranges)} devices in a "
                "pipeline: it must be a later stage than the first, and there must be no pipeline"
            )

    @property
    def batches(self) -> int:
        return ceil_div(self.inputs, self.batch)

    @property
    def devices(self) -> int:
        return self.groups * len(self.ranges)

    @property
    def layers(self) -> int:
        return self.stages[-1][1]

    @property
    def dynamic(self) -> bool:
        """Whether what a group does next is decided only when it is through with a batch."""
        return self.drawn or self.joined is not None

    @property
    def streamed(self) -> bool:
        return self.buffers is not None

    def device(self, group: int, position: int) -> int:
        """The number of a group's device at a position of its pipeline."""
        return group * len(self.ranges) + position

    def range_of(self, device: int) -> tuple[int, int]:
        """(first, last) stages of that device."""
        return self.ranges[device % len(self.ranges)]

    def buffer_of(self, device: int, stage: int) -> int:
        """Which of a device's buffers holds a stage: always the same, so that launches can be bound once."""
        buffer = stage - self.range_of(device)[0]
        return buffer if self.buffers is None else buffer % self.buffers

    def members(self, batch: int) -> tuple[int, int]:
        """(first, last) inputs of a batch."""
        return batch * self.batch, min(self.inputs, (batch + 1) * self.batch)

    def buffer_bytes(self, sizes: RunSizes, device: int) -> list[int]:
        """Bytes of each buffer of a device: of the largest stage that it ever holds."""
        first, last = self.range_of(device)
        nbytes = [0] * (last - first if self.buffers is None else min(self.buffers, last - first))
        for stage in range(first, last):
            buffer = self.buffer_of(device, stage)
            nbytes[buffer] = max(nbytes[buffer], sum(sizes.weights[slice(*self.stages[stage])]))
        return nbytes

    def memory(self, sizes: RunSizes, device: int) -> int:
        """Bytes on that device: weights, features of its slots, and what it holds anyway."""
        # Weights, features of the slots, and tasks: what the batches make of each is the price of cutting finer.
        stay = None if self.streamed else sizes.stay_bytes
        weights = sum(self.buffer_bytes(sizes, device)) if stay is None else stay
        features = self._bytes_per_input(sizes) * _whole(self.batch, sizes.tile)
        tasks = sizes.task_bytes * TASKS * len(self.stages) * self.batches // self.devices
        return sizes.held_bytes + weights + features + tasks

    def _bytes_per_input(self, sizes: RunSizes) -> int:
        """Bytes for each input of a batch: in every slot, and in the pool, where features need no second buffer."""
        return self.slots * sizes.row_bytes + (ceil_div(sizes.row_bytes, 2) if self.joined is not None else 0)

    def most_memory(self, sizes: RunSizes) -> int:
        """Bytes on the device that needs most."""
        return max(self.memory(sizes, position) for position in range(len(self.ranges)))


def _check_chain(spans: Sequence[tuple[int, int]], what: str, of: str, end: int | None = None) -> None:
    """Raise InputError unless spans follow each other from 0 on, none empty, to `end` unless that is None."""
    starts = [0, *(last for _, last in spans[:-1])]
    sound = spans and all(first == start < last for (first, last), start in zip(spans, starts, strict=True))
    if not sound or (end is not None and spans[-1][1] != end):
        raise InputError(f"{what} {list(spans)[:5]} must follow each other without gaps over all {of}")


def _whole(inputs: int, tile: int) -> int:
    """Inputs in whole tiles."""
    return ceil_div(inputs, tile) * tile


def stages_of(
    weights: Sequence[int], leaving: bool, most_bytes: float = math.inf, most: int = LONGEST_PASS
) -> tuple[tuple[int, int], ...]:
    """All layers in stages of at most `pass_length` and `most` layers and, but for single layers, `most_bytes`."""
    # Greedy: a stage takes layers as long as its pass may be, and its buffer of weights has room for them.
    stages, k = [], 0
    while k < len(weights):
        last, nbytes = k + 1, weights[k]
        while last < min(len(weights), k + min(most, pass_length(k, leaving))) and nbytes + weights[last] <= most_bytes:
            nbytes += weights[last]
            last += 1
        stages.append((k, last))
        k = last
    return tuple(stages)


def ranges_of(costs: Sequence[float], devices: int) -> tuple[tuple[int, int], ...]:
    """The stages, of these costs in any unit, in a range for each device, none empty, the most expensive of which is as
    cheap as it can be; InputError for fewer stages than devices."""
    if devices > len(costs):
        raise InputError(f"{devices} devices in a pipeline of {len(costs)} stages of layers: each must have one")
    # Bisection on the cost of the dearest range: ranges are filled one after the other up to it, and the least that
    # needs no more ranges than devices is the best there is.
    low, high = max(costs), sum(costs)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if len(_ranges(costs, middle, devices)) <= devices else (middle, high)
    return tuple(_ranges(costs, high, devices))


def _ranges(costs: Sequence[float], most: float, devices: int) -> list[tuple[int, int]]:
    """Ranges of at most `most` each, filled one after the other; at least `devices` of them, where stages are left."""
    ranges, first, sum_of_costs = [], 0, 0.0
    for stage, cost in enumerate(costs):
        spare = len(costs) - stage <= devices - 1 - len(ranges)  # as many stages are left as devices without one
        if stage > first and (sum_of_costs + cost > most * (1 + 1e-12) or spare):
            ranges.append((first, stage))
            first, sum_of_costs = stage, 0.0
        sum_of_costs += cost
    return [*ranges, (first, len(costs))]


def cut(
    settings: TaskgraphSettings,
    sizes: RunSizes,
    memory: int | None = None,
    *,
    leaving: bool = True,
    stage_bytes: float = math.inf,
    costs: Sequence[float] | None = None,
    also: MemoryRoom | None = None,
) -> Decomposition:
    """The decomposition of a schedule, with batches as large as the memory allows unless the settings say how many.

    Args:
        settings: names a schedule. Where it has no `pipeline`, that is all devices for `pipeline`, else 1. Where it has
            no `buffers`, all weights stay, but with `stream`, and with `graph` where they do not fit. Batches may
            `join` after JOINED layers, where rows leave and a group has several batches.
        memory: bytes that a device has; None: enough. That of the settings is not read.
        leaving: rows may leave between stages, so stages are short where many do.
        stage_bytes: of weights that a stage has at most, but for single layers.
        costs: of each layer, for ranges of equal cost; None: their bytes.
        also: another room that it must fit.

    Raises:
        InputError: numbers that do not fit each other.
        MemoryTooSmall: not even one tile fits with the weights; the sentence says the least that does.
    """
    schedule, devices, batches, buffers = settings.schedule, settings.devices, settings.batches, settings.buffers
    assert schedule is not None
    pipeline = settings.pipeline or (devices if schedule == PIPELINE else 1)
    _check(settings, pipeline)
    # Rooms: the promise of each device, and what the process has for it; a decomposition has to fit them all.
    costs = sizes.weights if costs is None else costs
    rooms = [MemoryRoom(sizes, memory)] if memory is not None else []
    rooms += [also] if also else []
    tightest = min((room.memory - room.sizes.held_bytes for room in rooms), default=None)

    def decomposed(buffers: int | None, most: float, costs: Sequence[float]) -> Decomposition:
        # Fine stages of a pipeline make ranges of even cost.
        fine = max(1, sizes.layers // (BATCHES_EACH * pipeline)) if pipeline > 1 else LONGEST_PASS
        stages = stages_of(sizes.weights, leaving, most, fine)
        ranges = ranges_of([sum(costs[slice(*stage)]) for stage in stages], pipeline)
        # A device of a pipeline receives the next batch while it computes one, so it has a slot for each.
        slots, groups = LEAST_BUFFERS if pipeline > 1 else 1, devices // pipeline
        drawn = schedule == GRAPH
        # Several batches a device: a pipeline fills and drains, and devices that draw batches end together.
        each = BATCHES_EACH * pipeline if pipeline > 1 else BATCHES_EACH if drawn and groups > 1 else 1
        whole = Decomposition(schedule, sizes.inputs, sizes.tile, stages, ranges, groups, buffers, slots, drawn)
        least = batches or min(groups * each, sizes.tiles)
        alone = _cut_batches(whole, sizes, rooms, least, batches)
        # Joining: after the layers in which most rows die, the batches of a group go on as one; it takes a pool, and so
        # is left out where the memory has no room for it.
        later = next((i for i, (first, _) in enumerate(stages) if first >= JOINED), None)
        if not (settings.join and leaving and later and pipeline == 1 and alone.batches > groups):
            return alone
        try:
            return _cut_batches(replace(whole, joined=later), sizes, rooms, least, batches)
        except MemoryTooSmall:
            return alone

    # Attempts, from what is fastest to what takes least memory: weights that stay, then streamed ones; stages whose
    # buffers take half of the memory, then single layers; ranges of equal cost, then of equal bytes.
    buffer_counts = [buffers or (LEAST_BUFFERS if schedule == STREAM else None)]
    buffer_counts += [LEAST_BUFFERS] if buffer_counts == [None] and schedule == GRAPH else []
    attempts = []
    for buffers in buffer_counts:
        room = stage_bytes if tightest is None or not buffers else max(0, tightest) / (2 * buffers)
        attempts += [(buffers, min(stage_bytes, room), costs)]
        attempts += [(buffers, 0.0, costs)] if buffers else []
        attempts += [(buffers, 0.0, sizes.weights)] if pipeline > 1 else []
    errors = []
    for attempt in attempts:
        try:
            return decomposed(*attempt)
        except MemoryTooSmall as error:
            # Stages that grow with the memory would need more of it then: only the others say what is enough.
            if attempt[1] in (0.0, stage_bytes):
                errors.append(error)
    raise min(errors, key=lambda error: error.least)


def _check(settings: TaskgraphSettings, pipeline: int) -> None:
    schedule, devices, batches, buffers = settings.schedule, settings.devices, settings.batches, settings.buffers
    numbers = {"devices": devices, "devices in a pipeline": pipeline, "batches": batches, "buffers of weights": buffers}
    for what, number in numbers.items():
        if number is not None and number > MOST_DIVISIONS:
            raise InputError(f"{number:,} {what}: there may be 1 to {MOST_DIVISIONS:,}")
    if devices % pipeline:
        raise InputError(f"{devices} devices cannot be shared out to pipelines of {pipeline}")
    if buffers is not None and buffers < LEAST_BUFFERS:
        needed = f"at least {LEAST_BUFFERS} are needed, one to fill while one is read"
        raise InputError(f"{buffers} buffer of weights: {needed}")
    if schedule == RESIDENT and buffers is not None:
        raise InputError(f"{buffers} buffers of weights with the schedule resident, which keeps all: use stream")


def _cut_batches(
    whole: Decomposition, sizes: RunSizes, rooms: Sequence[MemoryRoom], least: int, most: int | None
) -> Decomposition:
    """The same with batches: `least` of them, or as many as the rooms make it; at most `most`, unless None."""
    # Batches of whole tiles; if rounding up makes fewer batches than asked for, their last tiles stay partly empty.
    each = ceil_div(sizes.inputs, least)
    batched = replace(whole, batch=_whole(each, sizes.tile))
    if batched.batches < ceil_div(sizes.inputs, each):
        batched = replace(whole, batch=each)
    tight = next((room for room in rooms if _excess(batched, room) > 0), None)
    if not tight:
        return batched
    if most:
        batches, needed = f"{batched.batches} batches", batched.most_memory(tight.sizes)
    else:
        # Too large: a batch has the tiles that fit, and each group as many batches.
        at_most = ceil_div(batched.batch, sizes.tile)
        cut_to = lambda tiles: replace(whole, batch=tiles * sizes.tile)  # noqa: E731
        excess = lambda tiles: max(_excess(cut_to(tiles), room) for room in rooms)  # noqa: E731
        if tiles := batch_tiles(sizes.tiles, excess, at_most, whole.groups):
            return cut_to(tiles)
        powers = [min(at_most, 1 << power) for power in range(at_most.bit_length() + 1)]
        batches, needed = f"batches of {sizes.tile} inputs", min(cut_to(n).most_memory(tight.sizes) for n in powers)
    buffers = f" and {whole.buffers} buffers of weights" if whole.buffers else ""
    raise MemoryTooSmall(
        f"device memory of {tight.memory:,} bytes is too small for the schedule {whole.schedule} with {batches}"
        f"{buffers}: it needs {needed:,} (--device-memory)",
        needed,
        tight.device,
    )


def _excess(batched: Decomposition, room: MemoryRoom) -> int:
    """Tiles of a batch that do not fit the room, at least; 0 or less where all do."""
    each = room.sizes.tile * batched._bytes_per_input(room.sizes)
    return ceil_div(batched.most_memory(room.sizes) - room.memory, each)
