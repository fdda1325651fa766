"""The steps of a model as every reader gives them, and the network that they make."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from spdnn.core import sparse as sp
from spdnn.core.errors import InputError
from spdnn.core.network import IDENTITY, Activation, Layer, MemoryNetwork, check_chain, digest_of_layers  # fmt: skip
from spdnn.core.validation import shorten

CANCELLING = 16  # a shift, in units of the scale that follows, from which on it stays a layer: more bits would cancel
LONGEST_PROBLEMS = 400  # characters of a sentence that lists problems


class Step(NamedTuple):
    """A layer of a model, or a part of one: what it does to the value that it reads, then the activation.

    Attributes:
        name: of the layer, for messages.
        kind: 'linear' (weight (outputs, inputs), bias), 'scale' ((x - center) * weight + bias, each of the features or
            one number), 'activation', 'flatten', or another, which no network has.
        center: of a scale.
    """

    name: str
    kind: str
    weight: Any = None
    bias: Any = 0.0
    activation: Activation = IDENTITY
    center: Any = 0.0


class UnsupportedStep(Exception):
    """What a part of a model does that no Step says; it ends a sentence that begins with the part's name."""


def check_told(path, shapes: Sequence[tuple[int, int]], rows: str | None) -> None:
    """Raise InputError where nothing tells what the rows of matrices are: not stated, and they chain both ways."""
    both = all(a[1] == b[0] and a[0] == b[1] for a, b in pairwise(shapes))
    if rows is None and both and (len(shapes) > 1 or shapes[0][0] == shapes[0][1]):
        raise InputError(
            f"{path}: its weights fit both ways: state what a row of them is, --rows inputs, or --rows outputs "
            "as torch has it (in Python rows='outputs')"
        )


def joined(problems: Sequence[str]) -> str:
    """The first problems, for one sentence, and how many more there are."""
    short = [shorten(problem, 100) for problem in problems]
    shown = [problem for k, problem in enumerate(short) if sum(map(len, short[: k + 1])) <= LONGEST_PROBLEMS]
    return "; ".join(shown) + (f"; and {len(short) - len(shown)} more" if len(shown) < len(short) else "")


def vector(array: np.ndarray, size: int) -> np.ndarray:
    """A constant that meets rows or features: one number, or one of each of `size` channels. Raises UnsupportedStep."""
    if array.size == 1:
        return array.reshape(())
    if array.size != size or array.shape[-1] != size:
        raise UnsupportedStep(f": a constant of shape {str(array.shape)[:40]}")
    return array.ravel()


def channels(constant: np.ndarray, shape: tuple | None) -> np.ndarray:
    """float64: a constant that is added to a value, or multiplies it, as a scale has it.

    Args:
        shape: of the value for one input, None where a size is not known; None: not known at all.

    Raises:
        UnsupportedStep: it is no number for each channel, or the value becomes larger, or may.
    """
    if shape is not None:
        said = f": a constant of shape {str(constant.shape)[:40]}"
        if constant.ndim > len(shape) + 1:
            raise UnsupportedStep(said)
        if constant.size > 1 and len(shape) == 3:  # (channels, 1, 1), perhaps with a 1 before
            if constant.shape[-2:] != (1, 1) or constant.ndim not in (3, 4) or constant.shape[:-3] not in ((), (1,)):
                raise UnsupportedStep(said)
            constant = constant.reshape(-1)
        # Where the width is free, values of width 1 would be widened.
        if constant.size > 1 and shape[0 if len(shape) == 3 else -1] != constant.size:
            raise UnsupportedStep(said)
    return vector(constant, constant.size).astype(np.float64)


def fuse_steps(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps with scales and activations in the layer that they follow, where that gives the same."""
    previous = None
    for step in steps:
        if previous is not None:
            fused = _fuse(previous, step)
            if fused is None:
                yield previous
            step = fused or step
        previous = step
    if previous is not None:
        yield previous


def _fuse(step: Step, two: Step) -> Step | None:
    if step.activation != IDENTITY:
        return None
    if two.kind == "activation":
        return step._replace(activation=two.activation)
    if two.kind != "scale" or step.kind not in ("linear", "scale"):
        return None
    sizes = {np.size(part) for part in (two.center, two.weight, two.bias, step.center, step.bias)}
    sizes |= {np.size(step.weight)} if step.kind == "scale" else {1}
    if not sizes <= {1, max(sizes) if step.kind == "scale" else len(step.weight)}:
        return None
    factor = np.asarray(two.weight, np.float64)
    if step.kind != "scale":
        weight = step.weight
        if (factor != 1).any():  # each output's weights times its factor, in float64
            of_outputs = factor.reshape(-1, *[1] if factor.size > 1 else ())
            weight = _representable(np.asarray(weight, np.float64) * of_outputs, weight, step.name)
        bias = (np.asarray(step.bias, np.float64) - two.center) * factor + two.bias
        return step._replace(weight=weight, bias=bias, activation=two.activation)
    # What is subtracted stays apart from what multiplies: (x - 1e6) * 3 is not x * 3 - 3e6 in float32.
    if np.any(two.center):
        return None
    if not np.any(step.bias):
        return step._replace(weight=step.weight * factor, bias=two.bias, activation=two.activation)
    if np.any(step.center) or np.any(np.asarray(step.weight) != 1):
        return None
    return step._replace(center=-np.asarray(step.bias), weight=factor, bias=two.bias, activation=two.activation)


def _representable(scaled: np.ndarray, weight: Any, where: str) -> np.ndarray:
    """The scaled weights. Raises InputError where one becomes too small for float32, and its products would be lost."""
    if np.any((np.abs(scaled) < np.finfo(np.float32).tiny) & (np.asarray(weight) != 0)):
        raise InputError(f"{where}: scales make a weight smaller than float32 can hold (below 1.2e-38)")
    return scaled


@np.errstate(all="ignore")  # what is not finite is refused in the layer that has it
def network_of(path, steps: Iterable[Step], source: str, layers: int | None = None) -> MemoryNetwork:
    """The network of a chain of linear steps, each of which becomes a layer as it comes.

    Flattening changes no row. Scales go into weights and biases in float64, where that is as exact in float32:

    * After a layer or between two they meet sums, which are rounded at their own size already. What a scale moves them
      by is no larger than they and its result are, so the bound of a layer stays: n + 2 roundings (2^-24) of all that
      its n products and its bias add up to. A shift that is far from 0 beside what it leaves stays a layer, for there
      these sums cancel.
    * Inputs are exact. What is added to them or subtracted stays a layer of its own, with weights of 1 if it comes
      first, so that x - mean is rounded once. A factor alone goes into weights, each of which is rounded once.

    Args:
        source: of the description; layers: how many of the first ones to take.

    Raises:
        InputError: other steps, all of them named; widths that do not chain; weights or biases that are not finite;
            fewer than `layers`.
    """
    if layers is not None and layers < 1:
        raise InputError(f"{layers} layers asked for; a network has at least 1")
    chain: list[Layer] = []
    unfit: list[str] = []
    before: list[Step] = []
    for step in fuse_steps(steps):
        if step.kind == "linear":
            chain += _layers(path, step, before, not chain)
            before = []
        elif step.kind == "scale" and step.activation == IDENTITY:
            before.append(step)
        elif step.kind != "flatten" or step.activation != IDENTITY:
            unfit.append(f"{step.name!r} ({step.kind})")
        if layers is not None and len(chain) >= layers:
            chain = chain[:layers]
            break
    else:
        unfit += [f"{earlier.name!r} (no layer follows it)" for earlier in before]
    if unfit:
        raise InputError(f"{path}: not all of it is layers of a network: {joined(unfit)}")
    if not chain:
        raise InputError(f"{path}: it has no layer")
    if layers is not None and len(chain) < layers:
        raise InputError(f"{path}: {layers} layers asked for; it has {len(chain)}")
    check_chain([layer.header for layer in chain], str(path))
    digest = digest_of_layers(layer.sha256() for layer in chain)
    return MemoryNetwork(chain, {"source": source, "path": path.name, "sha256": digest})


def _layers(path, step: Step, before: Sequence[Step], first: bool) -> list[Layer]:
    """The layer of a linear step, and those of the scales before it that stay layers, where it is the first."""
    weight, bias, where = step.weight, step.bias, f"{path}: {step.name}"
    parts = []  # factors and shifts, in order
    for earlier in before:
        for numbers in (earlier.center, earlier.weight, earlier.bias):
            if np.size(numbers) not in (1, weight.shape[1]):
                raise InputError(f"{where} takes {weight.shape[1]} inputs, and {earlier.name!r} gives another number")
        pairs = ((1.0, -np.asarray(earlier.center)), (earlier.weight, earlier.bias))
        parts += [tuple(np.broadcast_to(np.ravel(part), weight.shape[1]) for part in pair) for pair in pairs]
    parts = [(factor, shift) for factor, shift in parts if np.any(shift) or np.any(factor != 1)]
    shifts = [part for earlier in before for part in (np.asarray(earlier.center) * earlier.weight, earlier.bias)]
    far = any(np.max(np.abs(shift), initial=0) > CANCELLING for shift in shifts)
    chain = []
    while (first or far) and parts and (len(parts) > 1 or np.any(parts[0][1])):
        factor, shift = parts.pop(0)
        chain.append(Layer.from_matrix(sp.diags_array(factor), shift, IDENTITY, f"{path}: {before[0].name}"))
    for factor, shift in reversed(parts):
        bias = np.asarray(bias, np.float64) + weight @ shift
        weight = _representable(np.asarray(weight, np.float64) * factor, weight, where)
    bias = bias if np.ndim(bias) == 0 or np.size(bias) > 1 or weight.shape[0] == 1 else np.asarray(bias).ravel()[0]
    return [*chain, Layer.from_matrix(weight.T, bias, step.activation, where)]
