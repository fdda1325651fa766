"""Which products of a model are ours, by a simulated clock: chains of nodes, each of which takes what it is said to."""

import itertools
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from spdnn.core import turns
from spdnn.core.load import Load
from spdnn.ops import onnx_timing
from spdnn.ops.onnx_timing import TILES, Choice, Models, choose

DENSE = -1  # a node of a chain that is no product


class Clock:
    """Seconds that pass where something is simulated to take them."""

    now = 0.0

    def perf_counter(self):
        return self.now

    def process_time(self):
        return 0.0

    def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(set_all):
    clock = Clock()
    set_all(turns, time=clock)
    set_all(onnx_timing, time=clock, LoadMonitor=lambda: SimpleNamespace(load=lambda: Load(0.0, 0.0)))
    return clock


class Chain:
    """A model that is a chain of nodes, images between them: ours are plain, ONNX Runtime's own in blocks.

    Args:
        nodes: numbers of products, or DENSE.
        ours, theirs: seconds of each product; turn: of changing the layout.
        noise: the largest part by which a run may take longer.
    """

    def __init__(self, clock, nodes, ours, theirs, turn, noise=0.0, tile=TILES[0]):
        self.clock, self.nodes, self.ours, self.theirs, self.turn = clock, nodes, ours, theirs, turn
        self.noise, self.tile, self.random, self.runs = noise, tile, np.random.default_rng(0), 0

    def events(self, tiles):
        """(name, operator, seconds) of each node that runs."""
        blocked = False
        for place, number in enumerate([*self.nodes, None]):
            mine = number is not None and number != DENSE and tiles[number] > 0
            if blocked != (wanted := not mine and number is not None):
                yield f"reorder_{place}", "ReorderInput" if wanted else "ReorderOutput", self.turn
                blocked = wanted
            if mine:
                slower = 1.0 if tiles[number] == self.tile else 1.3
                yield f"product_{number}", "Product", slower * self.ours[number]
            elif number == DENSE:
                yield f"dense_{place}_nchwc", "Conv", 1e-3
            elif number is not None:
                yield f"y_{number}_nchwc_token_7", "Conv", self.theirs[number]

    def seconds(self, tiles):
        return sum(seconds for *_, seconds in self.events(tiles))

    def models(self):
        products = [SimpleNamespace(names={f"product_{k}", f"y_{k}"}, follower="") for k in range(len(self.ours))]
        return Models(self.open, products, [True] * len(products), {}, 1000)

    def open(self, tiles, profile):
        ran = []

        def run(outputs, feed):
            self.runs += 1
            ran.append([(name, kind, int(1e6 * seconds)) for name, kind, seconds in self.events(tiles)])
            self.clock.now += self.seconds(tiles) * (1 + self.noise * self.random.random())

        def end_profiling():
            path, at = f"{profile}.json", itertools.count()
            entries = [
                {"cat": "Node", "name": f"{name}_kernel_time", "ts": next(at), "dur": took, "args": {"op_name": kind}}
                for events in ran
                for name, kind, took in events
            ]
            with open(path, "w") as file:
                json.dump([{"cat": "Session", "name": "model_run", "ts": -1, "dur": 5}, *entries], file)
            return path

        return SimpleNamespace(run=run, end_profiling=end_profiling)

    def best(self):
        """Seconds of the fastest of all sets."""
        return min(self.seconds(tiles) for tiles in itertools.product((0, self.tile), repeat=len(self.ours)))


def test_products_that_gain_by_themselves_and_lose_in_the_model_stay(clock):
    """18 products between dense nodes: each saves 70 us, and two layout changes around it take 80."""
    nodes = [DENSE, *(node for k in range(18) for node in (k, DENSE))]
    chain = Chain(clock, nodes, [30e-6] * 18, [100e-6] * 18, 40e-6)
    choice = choose(chain.models())
    assert choice.tiles == [0] * 18
    assert choice.ratio[0] < 1
    alone = choice.costs[5]
    assert alone == (pytest.approx(110e-6), pytest.approx(100e-6))
    # In a row they share the two changes.
    chain = Chain(clock, [DENSE, *range(18), DENSE], [30e-6] * 18, [100e-6] * 18, 40e-6)
    assert choose(chain.models()).tiles == [TILES[0]] * 18


def test_a_part_of_the_products_is_ours_and_their_fastest_tile(clock):
    nodes = [DENSE, 0, DENSE, 1, 2, 3, 4, DENSE, 5, DENSE]
    chain = Chain(clock, nodes, [90e-6, *[30e-6] * 4, 90e-6], [100e-6] * 6, 40e-6, tile=TILES[1])
    assert choose(chain.models()).tiles == [0, *[TILES[1]] * 4, 0]


@pytest.mark.parametrize("seed", range(12))
def test_no_choice_is_slower_than_all_or_none_and_few_than_the_best(clock, seed):
    random = np.random.default_rng(seed)
    nodes, products = [], 0
    while products < 9:
        nodes.append(DENSE if random.random() < 0.4 else (products := products + 1) - 1)
    times = random.uniform(20e-6, 200e-6, (2, 9))
    chain = Chain(clock, nodes, *times, 30e-6, noise=0.02)
    taken = chain.seconds(choose(chain.models()).tiles)
    assert taken <= 1.005 * min(chain.seconds([0] * 9), chain.seconds([TILES[0]] * 9))
    assert taken <= 1.03 * chain.best()


def test_rounds_end_when_the_interval_decides(clock):
    clear = choose(Chain(clock, [0], [50e-6], [100e-6], 0.0, noise=0.1).models())
    assert clear.rounds == onnx_timing.LAST[0]
    close = choose(Chain(clock, [0], [100e-6], [100e-6], 0.0, noise=0.9).models())
    assert close.rounds > clear.rounds
    assert clear.ratio[1] > 1.5


def test_what_is_slow_is_timed_a_few_times(clock):
    chain = Chain(clock, [0, DENSE, 1], [2.0, 5.0], [4.0, 4.0], 0.1)
    assert choose(chain.models()).tiles == [TILES[0], 0]
    assert chain.runs < 50


def test_products_that_no_profile_has_are_ours_as_usual(clock):
    chain = Chain(clock, [0, 1], [50e-6] * 2, [100e-6] * 2, 0.0)
    models = chain.models()
    models.products[1].names = {"another"}
    choice = choose(models)
    assert choice.tiles == [TILES[0]] * 2
    assert choice.costs[1] is None
    assert choice.of_product(1) == f"spdnn, tiles of {TILES[0]}"
    assert choose(models._replace(usual=[True, False])).costs[1] is None
    for product in models.products:  # nor does a name that two products share
        product.names = {"product_0", "y_0"}
    assert choose(models).costs == [None, None]


def test_busy_machines_and_threads_that_never_sleep_make_a_choice_provisional(clock, set_all, monkeypatch):
    chain = Chain(clock, [0], [50e-6], [100e-6], 0.0)
    assert choose(chain.models()).provisional == ""
    monkeypatch.setattr(Clock, "process_time", lambda self: self.now)
    choice = choose(chain.models())
    assert choice.provisional == "other threads of this process worked while it was timed"
    set_all(onnx_timing, LoadMonitor=lambda: SimpleNamespace(load=lambda: Load(0.4, 0.0)))
    choice = choose(chain.models())
    assert "other work took 40 % of the machine" in choice.provisional
    assert choice.of_model.endswith("\nprovisional, not kept: " + choice.provisional)


def test_rounds_that_something_slows_do_not_count(clock, monkeypatch):
    """In some rounds one program is slowed more than the other, as on two threads of one core."""
    slow = iter([True, True, False] * 1000)
    real = turns._turn

    def turn(call):
        if len(order) % 2 == 0:
            order.append(next(slow))
        else:
            order.append(order[-1])
        return real(call) * ((2.3, 1.7)[len(order) % 2] if order[-1] else 1.0)

    order = []
    monkeypatch.setattr(turns, "_turn", turn)
    chain = Chain(clock, [0], [90e-6], [100e-6], 0.0)
    choice = choose(chain.models())
    assert choice.tiles == [TILES[0]]
    assert choice.ratio == (pytest.approx(1.111, abs=0.01),) * 3
    assert re.fullmatch(r"in \d+ of \d+ rounds of the timing something slowed the machine", choice.provisional)
    assert choice.rounds >= onnx_timing.LAST[0]
    slow = iter([False, True, False] * 1000)
    assert choose(chain.models()).provisional == ""


def test_choices_are_explained_and_compared():
    choice = Choice([64, 0], [(1e-3, 2e-3), (3e-3, 1e-3)], 0.004, 0.005, (1.25, 1.2, 1.3), 7, "2026-11-30")
    assert choice.of_product(0) == "spdnn, tiles of 64: 1.000 ms, in ONNX Runtime 2.000"
    assert choice.of_product(1) == "onnxruntime: 1.000 ms, by spdnn 3.000"
    assert choice.of_model == (
        "the whole model: 4.000 ms, in ONNX Runtime 5.000, 1.250 times as long (95 % interval 1.200 to 1.300), "
        "timed on 2026-11-30"
    )
    assert choice.beside(choice) == "as in the choice kept on 2026-11-30"
    tiles, other = [32, 64], "1 of 2 products runs elsewhere than in the choice kept on 2026-11-30; "
    kept = Choice(tiles, *(getattr(choice, name) for name in Choice.__struct_fields__[1:]))
    assert choice.beside(kept) == other + "the new choice is kept"
    busy = Choice(*(getattr(choice, name) for name in Choice.__struct_fields__[:-1]), "busy")
    assert busy.beside(kept) == other + "that choice stays"
