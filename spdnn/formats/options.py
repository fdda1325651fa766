"""What a user must state of a file of weights alone (matrices, a state dict), which says nothing of activations.

A file of a whole model (ONNX, a store) says it all, and nothing can be stated.
"""

from typing import Any, Final, NamedTuple

from spdnn.core.errors import InputError
from spdnn.core.network import Activation, layer_activations

INPUTS, OUTPUTS = "inputs", "outputs"
USUAL: Final = "usual"  # a clip of 32 for the challenge's text form, none for the other formats


class LastUnknown(InputError):
    """Weights whose last activation is not stated."""


class ReadOptions(NamedTuple):
    """What a user states of the network in a file: arguments of readers.open_network; by default nothing."""

    bias: Any = None
    clip: Any = USUAL
    last: str | None = None
    rows: str | None = None
    layers: int | None = None
    neurons: int | None = None
    epsilon: float | None = None

    def activations(self, path, depth: int) -> list[Activation]:
        """Of each layer. Raises LastUnknown: the last one is not stated."""
        if self.last is None:
            raise LastUnknown(
                f"{path}: it does not say what follows its last layer; the others have ReLU: state --last relu or "
                "--last none (in Python spdnn.open_network(path, last='none'), in a workflow last: none)"
            )
        return layer_activations(depth, None if self.clip == USUAL else self.clip, self.last)

    def refuse_epsilon(self, path) -> None:
        """Raise InputError where an epsilon is stated, of a network that has no BatchNorm."""
        if self.epsilon is not None:
            raise InputError(f"{path}: epsilon {self.epsilon!r} given, but the file has no BatchNorm of a state dict")

    def biases(self, path, depth: int) -> list:
        """Of each layer; None where none is stated. Raises InputError: another number of biases than of layers."""
        if not isinstance(self.bias, (list, tuple)):
            return [self.bias] * depth
        if len(self.bias) != depth:
            raise InputError(f"{path}: {len(self.bias)} biases for {depth} layers; give one for all or one for each")
        return list(self.bias)


def check_rows(rows: str | None) -> None:
    if rows not in (None, INPUTS, OUTPUTS):
        raise InputError(f"rows {rows!r} of a weight matrix: they are 'inputs' or 'outputs'")
