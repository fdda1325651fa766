"""The reduction `dead`: rows of features that became all zero leave, for they stay zero.

They may leave from the layer on after which activation(bias) is 0 everywhere. When it pays is the engine's choice: the
engine `cpu` closes the gaps when the work on dead rows has reached the cost of closing them; on devices rows leave
between passes, whose length depends on the layer alone (`pass_length`).
"""

from collections.abc import Iterable

from spdnn.core import progress
from spdnn.core.network import Network
from spdnn.engines.reductions.base import Reduction

# Layers that features pass without leaving a device's cache: (until layer, layers). Rows leave only between passes, and
# most that die do so early; where nothing leaves, passes only end so that signals are answered.
PASS_LENGTHS = ((8, 1), (16, 2), (32, 4), (64, 8), (128, 16))
LONGEST_PASS = 64


class DeadInputs(Reduction):
    name = "dead"
    label = "dead inputs"
    meaning = "Dead inputs: rows that became all zero are dropped."
    left_out = "inputs that died"

    def prepare(self, network: Network, memory: float) -> tuple[Network, dict]:
        return network, {"layers_that_revive_zeros": reviving(network)}

    def session_note(self, note: dict, depth: int) -> dict:
        return {"rows_may_leave_before_layer": dead_from(note["layers_that_revive_zeros"], depth) + 1}


def reviving(network: Network) -> list[int]:
    """The layers (0-based) after which a row of zeros need not be zeros: those where activation(bias) is not 0.

    No positive bias under a ReLU, no bias at all without an activation: else the layer is one of them. Source: the
    "dead inputs" of every entry to the challenge, here with the condition that they need.
    """
    # activation(bias) is 0 for every output of a layer that keeps zeros, so a dead row is dead after it as well.
    depth = network.depth
    return [k for k in progress.bar(range(depth), "prepare, biases", depth) if not network.header(k).keeps_zero]


def dead_from(layers: Iterable[int], depth: int) -> int:
    """The first layer (0-based) before which a row of zeros may leave a network of `depth` layers, of which `layers`
    revive zeros (`reviving`); `depth` when the last layer is one of them: no row may leave early."""
    # A row that left cannot come back: it must wait for the last layer that could give it values again.
    return 1 + max((k for k in layers if k < depth), default=-1)


def pass_length(k: int, leaving: bool) -> int:
    """Layers that features pass in one go from layer k on; `leaving`: rows may leave between two passes."""
    return next((length for until, length in PASS_LENGTHS if k < until), LONGEST_PASS) if leaving else LONGEST_PASS
