"""Weights of a model: float32 arrays by name, checked against the shapes that its configuration asks for.

Files are .safetensors or .npz. A matrix is (outputs, inputs), as in torch.nn.Linear. The names are those
of `tensor_shapes` of each model. A convolution may come with its batch norm instead of a bias, which is folded:

    <layer>.weight, <layer>.norm.weight, <layer>.norm.bias, <layer>.norm.mean, <layer>.norm.variance
"""

from collections.abc import Mapping
from os import PathLike

import numpy as np

from spdnn.core import safe_open
from spdnn.core.arrays import copied, freeze
from spdnn.core.errors import InputError
from spdnn.formats.state_dicts import EPSILON
from spdnn.formats.tensors import open_tensors, write_tensors

Shapes = Mapping[str, tuple[int, ...]]
NORM = ("weight", "bias", "mean", "variance")


@safe_open.releasing()
def read(source: Mapping[str, np.ndarray] | str | PathLike, shapes: Shapes) -> dict[str, np.ndarray]:
    """The tensors of a mapping or of a file, batch norms folded, as arrays that nobody can write to.

    Raises:
        InputError: a tensor that is missing, unknown, of another shape, or holds NaN or infinities; no sound file.
    """
    of_mapping = isinstance(source, Mapping)
    where, source = ("weights", source) if of_mapping else (str(source), open_tensors(source))
    tensors = check_tensors(source, shapes, where)
    return {name: copied(array, name) if of_mapping else freeze(array) for name, array in tensors.items()}


def write(path, tensors: Mapping[str, np.ndarray], shapes: Shapes) -> None:
    """Write weights, whole or not at all. Raises as `read` does."""
    write_tensors(path, check_tensors(tensors, shapes))


def check_tensors(tensors: Mapping[str, np.ndarray], shapes: Shapes, where: str = "weights") -> dict[str, np.ndarray]:
    """float32, C-contiguous arrays, in the order of `shapes`; those that are so already are not copied.

    Raises:
        InputError: see `read`; `where` begins the sentence.
    """
    tensors = _fold_norms(tensors, where)
    for name in shapes:
        if name not in tensors:
            raise InputError(f"{where}: there is no tensor {name}; the model needs {len(shapes)} of them")
    for name in tensors:
        if name not in shapes:
            raise InputError(f"{where}: tensor {name!r} is none of the model's")
    return {name: _array(tensors[name], name, shape, where) for name, shape in shapes.items()}


def _array(tensor, name: str, shape: tuple[int, ...], where: str) -> np.ndarray:
    array = np.asarray(tensor)
    if array.shape != shape:
        raise InputError(f"{where}: {name} is {array.shape}; it must be {shape}")
    if array.dtype.kind not in "fiu":
        raise InputError(f"{where}: {name} is of {array.dtype}; it must be of real numbers")
    with np.errstate(over="ignore"):
        result = np.asarray(array, np.float32, order="C")
    if not np.isfinite(result).all():
        raise InputError(f"{where}: {name} holds NaN, an infinity, or a number past float32")
    return result


def _fold_norms(tensors: Mapping[str, np.ndarray], where: str) -> Mapping[str, np.ndarray]:
    """w x, then (y - mean) / sqrt(variance + epsilon) * weight + bias, as one weight and one bias."""
    layers = [name.removesuffix(".norm.variance") for name in tensors if name.endswith(".norm.variance")]
    if not layers:
        return tensors
    result = dict(tensors.items())
    for layer in layers:
        names = [f"{layer}.norm.{part}" for part in NORM]
        if missing := [name for name in (f"{layer}.weight", *names) if name not in result]:
            raise InputError(f"{where}: there is no tensor {missing[0]}, which the batch norm of {layer} needs")
        if f"{layer}.bias" in result:
            raise InputError(f"{where}: {layer} has both a bias and a batch norm; it must have one of them")
        gain, shift, mean, variance = (np.asarray(result.pop(name), np.float64) for name in names)
        weight = np.asarray(result[f"{layer}.weight"], np.float64)
        if any(part.shape != weight.shape[:1] for part in (gain, shift, mean, variance)):
            raise InputError(f"{where}: the batch norm of {layer} must have {weight.shape[0]} numbers in each tensor")
        if not (variance >= 0).all():
            raise InputError(f"{where}: {names[3]} must be at least 0")
        scale = gain / np.sqrt(variance + EPSILON)
        result[f"{layer}.weight"] = weight * scale.reshape(-1, *[1] * (weight.ndim - 1))
        result[f"{layer}.bias"] = shift - mean * scale
    return result
