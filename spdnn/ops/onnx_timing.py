"""Which products of an ONNX model are ours: the model is timed with none of them, with all, and with promising ones.

1. ONNX Runtime's profile says what each node takes, in the model as it is and in the model with all products ours, once
   for each tile. What surrounds a product in one of the two alone is part of its cost: ONNX Runtime changes the layout
   of images before and after a node that does not know its own, and fuses other nodes with its convolutions.
2. From these costs follow the products that should gain, in groups of neighbours, and a few sets to try: all products,
   those groups, and those groups but for one whose gain or loss is the smallest.
3. The whole models take turns, each alone on the cores, until the difference between the best set and the model as it
   is is larger than its 95 % interval, or neither matters.
"""

import json
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from spdnn.core.fields import Count, Positive, Record, Seconds
from spdnn.core.limits import BUSY
from spdnn.core.load import LoadMonitor
from spdnn.core.resources import CALLS_SHARE, available_bytes
from spdnn.core.shown import plural
from spdnn.core.turns import REST, STEADY, TURN, Timed, take_turns, wait_for_idle
from spdnn.ops.onnx_products import GraphProduct

TILES = (64, 32, 128)  # worth trying; see SETTINGS of cpu.py
ONNX_RUNTIME, OURS = "onnxruntime", "spdnn"
PROFILE, RUNS, PROFILES = 0.15, (3, 50), 3  # seconds of a profile, runs in it, and how often it is made at most
SETS = 5  # of products that are timed, at most
FIRST, LAST = (3, 7), (7, 41)  # rounds: of all sets, and of the best one beside the model as it is
BUDGET = 3.0  # seconds of each of these two, where the least rounds do not take longer
ALIKE = 0.01  # a difference that does not matter


class Choice(Record):
    """The products of a model that are ours, and the times that decided it.

    Attributes:
        tiles: of each product, in the order of `products`; 0: ONNX Runtime runs it.
        costs: seconds of each product in the model, what comes with it included: with our kernel and its best tile, in
            ONNX Runtime; null: it is not in the profile.
        ours, theirs: seconds of the whole model, with the best set of our products and without.
        ratio: theirs / ours, and its 95 % interval.
        rounds: of these two.
        date: of the timing, by the clock of UTC.
        provisional: why the choice is not kept; empty: it is.
    """

    tiles: list[Count]
    costs: list[tuple[Seconds, Seconds] | None]
    ours: Seconds
    theirs: Seconds
    ratio: tuple[float, float, float]
    rounds: Positive
    date: str
    provisional: str = ""

    def of_product(self, number: int) -> str:
        """How a product runs, and its times."""
        tile, cost = self.tiles[number], self.costs[number]
        way = f"{OURS}, tiles of {tile}" if tile else ONNX_RUNTIME
        if cost is None:
            return way
        ours, theirs = (f"{1e3 * seconds:.3f}" for seconds in cost)
        return f"{way}: {ours} ms, in ONNX Runtime {theirs}" if tile else f"{way}: {theirs} ms, by {OURS} {ours}"

    @property
    def of_model(self) -> str:
        """The times of the whole model, and whether the choice lasts."""
        ratio, low, high = self.ratio
        said = (
            f"the whole model: {1e3 * self.ours:.3f} ms, in ONNX Runtime {1e3 * self.theirs:.3f}, {ratio:.3f} times as "
            f"long (95 % interval {low:.3f} to {high:.3f}), timed on {self.date}"
        )
        return f"{said}\nprovisional, not kept: {self.provisional}" if self.provisional else said

    def beside(self, kept: "Choice") -> str:
        """Whether this choice disagrees with one that was kept before."""
        differ = sum(bool(a) != bool(b) for a, b in zip(self.tiles, kept.tiles, strict=True))
        if not differ:
            return f"as in the choice kept on {kept.date}"
        said = f"{differ} of {plural(len(self.tiles), 'product')} {'runs' if differ == 1 else 'run'} elsewhere than in"
        then = "that choice stays" if self.provisional else "the new choice is kept"
        return f"{said} the choice kept on {kept.date}; {then}"


class Models(NamedTuple):
    """How the models of a trial are made.

    Attributes:
        open: a session with these tiles of its products (0: ONNX Runtime runs it), profiled into a file that begins
            with the second argument; None: not profiled.
        products: those of the model; usual: which are ours where they cannot be timed.
        feed: inputs of a call; nbytes: of the model.
    """

    open: Callable[[Sequence[int], str | None], Any]
    products: Sequence[GraphProduct]
    usual: Sequence[bool]
    feed: Mapping[str, Any]
    nbytes: int

    def call(self, tiles: Sequence[int]) -> Callable[[], Any]:
        session = self.open(tiles, None)
        return lambda: session.run(None, self.feed)


class Event(NamedTuple):
    """A node in a profile: its name, its operator, and the seconds of it in a run of the model."""

    name: str
    kind: str
    seconds: float


def choose(models: Models) -> Choice:
    """The choice for a model with at least one product."""
    watch, rested, best = LoadMonitor(), True, 0
    costs, best_tiles, run_seconds = _costs(models)
    turn = REST + 2 * max(run_seconds, TURN)  # seconds of one, about
    # The sets take turns; the best of them then meets the model as it is.
    sets = [
        [tile if ours else 0 for tile, ours in zip(best_tiles, chosen, strict=True)]
        for chosen in _sets(models, costs, int(BUDGET / (FIRST[0] * turn)))
    ]
    calls = [models.call(tiles) for tiles in sets]
    if len(calls) > 1:
        rounds = min(FIRST[1], max(FIRST[0], int(BUDGET / (turn * len(calls)))))
        first = take_turns(dict(enumerate(calls)), rounds, rounds, lambda timed: True)
        best, rested = min(first.seconds, key=lambda k: min(first.seconds[k])), first.rested
    pair = {OURS: calls[best], ONNX_RUNTIME: models.call([0] * len(models.products))}
    del calls
    end = time.perf_counter() + BUDGET

    least = LAST[0] if 2 * LAST[0] * turn < BUDGET else FIRST[0]

    def enough(timed: Timed) -> bool:
        steady = timed.steady()
        over = steady.over(OURS, ONNX_RUNTIME)
        decided = not over.low <= 1 <= over.high or over.high - over.low < ALIKE
        decided = decided and len(steady.seconds[OURS]) >= least
        return decided or time.perf_counter() > end or watch.load().busy > BUSY

    every = take_turns(pair, least, LAST[1], enough)
    load, rounds, timed = watch.load(), len(every.seconds[OURS]), every.steady()
    unsteady, why = rounds - len(timed.seconds[OURS]), ""
    if load.busy > BUSY:
        why = f"other work took {100 * load.busy:.0f} % of the machine while it was timed"
    elif not (rested and every.rested):
        why = "other threads of this process worked while it was timed"
    elif 2 * unsteady > rounds:
        why = f"in {unsteady} of {rounds} rounds of the timing something slowed the machine"
    timed = timed if timed.seconds[OURS] else every
    over = timed.over(OURS, ONNX_RUNTIME)
    # Other work only ever slows: beside it, the fastest turns say more than the median.
    ratio = min(every.seconds[ONNX_RUNTIME]) / min(every.seconds[OURS]) if why else over.median
    return Choice(
        tiles=sets[best] if ratio > 1 else [0] * len(models.products),
        costs=costs,
        ours=timed.median(OURS),
        theirs=timed.median(ONNX_RUNTIME),
        ratio=(over.median, over.low, over.high),
        rounds=len(timed.seconds[OURS]),
        date=datetime.now(UTC).date().isoformat(),
        provisional=why,
    )


def _costs(models: Models) -> tuple[list[tuple[float, float] | None], list[int], float]:
    """(the costs of each product, as a Choice has them; the best tile of each; seconds of a run)."""
    count = len(models.products)
    none = [0] * count
    plain, run_seconds = profile(models, none)
    # The profiles must be of one state of the machine: the first is made again at the end.
    for _ in range(PROFILES):
        ours = {tile: profile(models, [tile] * count)[0] for tile in TILES}
        before, (plain, run_seconds) = run_seconds, profile(models, none)
        if max(before, run_seconds) <= STEADY * min(before, run_seconds):
            break
    # Names that two products share say nothing of either; a product's own come before that of what follows another.
    names = Counter(name for product in models.products for name in product.names)
    numbers = {product.follower: k for k, product in enumerate(models.products) if product.follower}
    numbers |= {name: k for k, product in enumerate(models.products) for name in product.names}
    numbers = {name: k for name, k in numbers.items() if names[name] <= 1}
    theirs = _cost_by_product(plain, numbers, {event.name for event in ours[TILES[0]]})
    own = {tile: _cost_by_product(events, numbers, {event.name for event in plain}) for tile, events in ours.items()}
    kernels = {tile: {numbers.get(event.name): event.seconds for event in events if event.kind == "Product"}
               for tile, events in ours.items()}  # fmt: skip
    costs: list[tuple[float, float] | None] = []
    best = []
    for k in range(count):
        tile = min(TILES, key=lambda tile: kernels[tile].get(k, 0.0))
        best.append(tile)
        costs.append((own[tile][k], theirs[k]) if k in own[tile] and k in theirs else None)
    return costs, best, run_seconds


def profile(models: Models, tiles: Sequence[int]) -> tuple[list[Event], float]:
    """(the nodes of a model in the order in which they run, seconds of a run), by ONNX Runtime's profiler.

    Args:
        tiles: of its products; 0: ONNX Runtime runs it.
    """
    with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
        session = models.open(tiles, str(Path(folder, "profile")))
        wait_for_idle()
        least, most = RUNS
        session.run(None, models.feed)
        taken: list[float] = []
        begun = time.perf_counter()
        while len(taken) < least or (len(taken) < most and time.perf_counter() - begun < PROFILE):
            before = time.perf_counter()
            session.run(None, models.feed)
            taken.append(time.perf_counter() - before)
        entries = json.loads(Path(session.end_profiling()).read_bytes())
    times: dict[tuple[str, str], list[float]] = {}
    for entry in sorted(entries, key=lambda entry: entry["ts"]):
        if entry.get("cat") == "Node" and entry["name"].endswith("_kernel_time"):
            key = entry["name"].removesuffix("_kernel_time"), entry["args"]["op_name"]
            times.setdefault(key, []).append(1e-6 * entry["dur"])
    runs = 1 + len(taken)  # a node of a loop runs several times in one
    events = [Event(*key, statistics.median(each) * len(each) / runs) for key, each in times.items()]
    return events, statistics.median(taken)


def _cost_by_product(events: Sequence[Event], numbers: Mapping[str, int], common: set[str]) -> dict[int, float]:
    """Seconds of each product that a profile has, by its number, with those of what is in this profile alone.

    Args:
        events: in the order in which they run.
        numbers: of products, by what a profile may call them.
        common: names of nodes of the other profile.
    """
    costs: dict[int, float] = {}
    last, waiting = None, 0.0
    for event in events:
        number = numbers.get(re.sub(r"(_nchwc)?(_token_\d+)?$", "", event.name.removeprefix("fused ")))
        reorders = event.kind in ("ReorderInput", "ReorderOutput")
        if number is not None:
            costs[number] = costs.get(number, 0.0) + event.seconds + waiting
            last, waiting = number, 0.0
        elif event.name in common and not reorders:
            continue
        # To plain images: for the product that follows. All else comes of the one before.
        elif event.kind == "ReorderOutput" or last is None:
            waiting += event.seconds
        else:
            costs[last] += event.seconds
    if last is not None:
        costs[last] += waiting
    return costs


def _sets(models: Models, costs: Sequence[tuple[float, float] | None], most: int) -> list[tuple[bool, ...]]:
    """The sets of products that are worth a timing, at least one and none empty: whether each product is ours.

    Args:
        most: sets for which there is time.
    """
    gains = [None if cost is None else cost[1] - cost[0] for cost in costs]
    promising = tuple(gain > 0 if gain is not None else usual for gain, usual in zip(gains, models.usual, strict=True))
    # Neighbours that are promising, or are not, are a group; those that are least sure are tried both ways.
    groups = [[*group] for _, group in groupby(range(len(promising)), key=promising.__getitem__)]
    groups.sort(key=lambda group: abs(sum(gains[k] or 0.0 for k in group)))
    turned = [tuple(ours != (k in group) for k, ours in enumerate(promising)) for group in groups]
    sets = dict.fromkeys((promising, (True,) * len(promising), *turned))
    # Each is a session with weights of its own, beside the model as it is.
    free = available_bytes()
    room = SETS if free is None else int(CALLS_SHARE * free / max(1, models.nbytes)) - 1
    return [each for each in sets if any(each)][: max(1, min(SETS, most, room))]
