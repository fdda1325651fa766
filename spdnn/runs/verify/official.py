"""Which official problem a run is; where it is none, which last rows it keeps, so that a verdict can compare values."""

from functools import lru_cache

import numpy as np

from spdnn.core import challenge, progress
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.formats.radixnet import RadixNet

KEPT_BYTES = 16 << 20  # of values that a run keeps


def official_problem(network: Network, inputs: Inputs) -> challenge.OfficialProblem | None:
    """The official problem that network and inputs are, recognised by their data, or None.

    Any number of the official inputs counts, from the first on: the truth then covers just those.
    """
    if network.width not in challenge.WIDTHS or network.depth not in challenge.DEPTHS:
        return None
    candidate = challenge.problem(network.width, network.depth)
    return None if not_official(network, inputs, candidate) else candidate


def not_official(network: Network, inputs: Inputs, problem: challenge.OfficialProblem) -> str | None:
    """What of a network and inputs of its sizes is not that official problem's, in words; None: nothing."""
    expected = challenge.INPUT_SHA256[problem.neurons]
    # All of them are known by their digest; fewer, when they were cut here from inputs of that digest.
    part = inputs.count <= inputs.base < challenge.INPUTS and inputs.cut_from == expected
    if inputs.sha256 != expected and not part:
        return f"the inputs' SHA-256 is {inputs.sha256[:16]}..., not {expected[:16]}..."
    different = _different_layer(network, problem)
    return f"layer {different} is not the official one" if different else None


@lru_cache(maxsize=1)
def _different_layer(network: Network, problem: challenge.OfficialProblem) -> int | None:
    """The first layer (from 1) that is not the official network's; None: each is, as its arrays say."""
    formula = RadixNet(problem.neurons, problem.layers)
    if isinstance(network, RadixNet):
        return None if network.description == formula.description else 1
    # A description could claim anything: only the arrays show that a network from files is official.
    for k in progress.bar(range(problem.layers), "compare with the official network", problem.layers):
        layer, official = network.layer(k), formula.layer(k)
        sizes = (layer.inputs, layer.outputs, layer.edges, layer.activation) == (
            official.inputs, official.outputs, official.edges, official.activation
        )  # fmt: skip
        parts = [(getattr(layer, name), getattr(official, name)) for name in ("offsets", "indices", "values", "bias")]
        if not sizes or not all((array == other).all() for array, other in parts):
            return k + 1
    return None


def draw(count: int, outputs: int, seed: int) -> np.ndarray:
    """int64: the inputs (0-based, of `count`) whose last rows a run keeps, in the order in which they are drawn.

    They depend on the seed alone, never on a result, and their values take at most KEPT_BYTES.
    """
    most = max(1, KEPT_BYTES // (4 * outputs))
    return np.random.default_rng([seed, 1]).choice(count, min(count, most), replace=False)


def draw_kept(network: Network, inputs: Inputs, seed: int = 0) -> bool | np.ndarray:
    """The inputs whose last rows a run keeps for its verdict, as Options.values takes them.

    None (False) where the official truth will judge: it says every value of every survivor.
    """
    return False if official_problem(network, inputs) else np.sort(draw(inputs.count, network.outputs, seed))
