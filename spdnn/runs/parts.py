"""Parts of a network, run alone as networks of their own, so that a verdict can compare what a whole run hides.

Where every last value is at the clip, as after the many layers of the challenge's networks, an error before it leaves
no trace. So a few neighbouring layers, the last ones first, are run once more off the clock, by the same engine with
the same reductions and settings, on drawn values that leave most outputs within the bounds. Which layers and values
depends on the network and a seed alone; spdnn/runs/verify/parts.py compares all outputs with the float64 reference.
"""

import sys
import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from spdnn.core.errors import InputError, Unavailable, Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import MemoryNetwork, Network
from spdnn.core.request import ORACLE_SPEED
from spdnn.core.result import PartOutputs, Result, check_sound
from spdnn.engines.base import Engine, Options, Prepared

DEEPEST_PART = 5  # layers; from values in 0..1 the challenge's networks reach the clip after seven
PART_ROWS, LEAST_ROWS = 64, 16  # inputs of a part: the largest tile; fewer, and then fewer layers, of wide networks
PART_EDGES = 2**25  # inputs x edges of a part, at most, where it has more than one layer and LEAST_ROWS inputs
INSIDE = 0.5  # of the outputs, that are within the bounds and neither of them
PARTS_TIME, MOST_CHECKED = 0.03, 16  # of the time to solution, for all parts but the first; parts
LAYER_INPUTS = 30  # that take the reference as long as to read a layer and draw errors for its weights (measured)


class Part(NamedTuple):
    """Layers start .. stop - 1 of a network (0-based), and so many inputs."""

    start: int
    stop: int
    count: int


def draw(network: Network, seed: int, number: int) -> Part:
    """The part of a number (0-based): 0 ends with the network, others anywhere."""
    random = np.random.default_rng([seed, 3, number])
    depth = int(random.integers(1, min(DEEPEST_PART, network.depth) + 1))
    stop = network.depth if number == 0 else int(random.integers(depth, network.depth + 1))
    # The first layers are left out where that is too much work for the reference.
    work = [int(edges) for edges in np.cumsum([network.header(k).edges for k in reversed(range(stop - depth, stop))])]
    while depth > 1 and LEAST_ROWS * work[depth - 1] > PART_EDGES:
        depth -= 1
    return Part(stop - depth, stop, int(np.clip(PART_EDGES // max(1, work[depth - 1]), LEAST_ROWS, PART_ROWS)))


def inputs_of(network: Network, part: Part, seed: int, number: int) -> Inputs:
    """The inputs of a part, from 0 to 1; two are zero, and a quarter is equal to others, so that reductions work."""
    width = network.header(part.start).inputs
    x = np.random.default_rng([seed, 4, number]).random((part.count, width), np.float32)
    x[-(part.count // 4) :] = x[: part.count // 4]
    x[part.count // 2 : part.count // 2 + 2] = 0
    return Inputs.from_array(x)


def network_of(network: Network, part: Part) -> MemoryNetwork:
    """The layers of a part."""
    layers = [network.layer(k) for k in range(part.start, part.stop)]
    return MemoryNetwork(layers, {"source": "part"})  # without one, all is read for a digest


def bounds(network: Network) -> tuple[float, float]:
    """The least and the largest value that the last layer can give; they may be infinite."""
    activation = network.header(network.depth - 1).activation
    return activation.low, activation.high


def inside(rows: np.ndarray, network: Network) -> float:
    """The share of last values (any shape) that are within the bounds, and neither of them."""
    low, high = bounds(network)
    return float(np.mean((rows > low) & (rows < high)))


def saturates(network: Network, result: Result) -> bool:
    """Whether every value of every active input is at the clip, so that the outputs tell little."""
    high = bounds(network)[1]
    return bool(np.isfinite(high) and (result.row_min == high).all())


def run(
    engine: Engine, prepared: Prepared, options: Options, result: Result, seed: int, seconds: float
) -> PartOutputs | None:
    """Outputs of the first part, and of others while PARTS_TIME of `seconds` lasts for running and verifying them.

    None where the result of the whole network does not saturate, or the engine does not run a part, as standard error
    says.

    Args:
        seconds: of the time to solution, so far.
    """
    network = prepared.source
    if not saturates(network, result):
        return None
    begun, spent, made = time.perf_counter(), 0.0, []
    # Another part takes about as long as those so far did.
    while not made or (len(made) < MOST_CHECKED and spent * (1 + 1 / len(made)) <= PARTS_TIME * seconds):
        try:
            part, rows = _run(engine, network, prepared.reductions, options, seed, len(made))
        except (InputError, Unavailable, Unsuitable) as error:
            print(f"spdnn: warning: {error}; no part of the network is compared alone", file=sys.stderr)
            return None
        made.append((part, rows))
        # The reference goes through the edges twice, and draws errors for all weights.
        each = ((2 * part.count + LAYER_INPUTS, k) for part, _ in made for k in range(*part[:2]))
        edges = sum(count * network.header(k).edges for count, k in each)
        spent = time.perf_counter() - begun + edges / ORACLE_SPEED
    return PartOutputs.of(made)


def _run(
    engine: Engine, network: Network, reductions: tuple[str, ...], options: Options, seed: int, number: int
) -> tuple[Part, np.ndarray]:
    """The part of a number, and its outputs, float32 (inputs, outputs)."""
    drawn = draw(network, seed, number)
    # Fewer layers where too many of the outputs are at a bound.
    for start in range(drawn.start, drawn.stop):
        part = drawn._replace(start=start)
        own, inputs = network_of(network, part), inputs_of(network, part, seed, number)
        session = engine.open(engine.prepare(own, reductions, options.memory), inputs, replace(options, values=True))
        result = session.run()
        check_sound(result, own)
        rows = result.all_values()
        if inside(rows, own) >= INSIDE:
            break
    return part, rows
