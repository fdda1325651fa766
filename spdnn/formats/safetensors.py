"""Networks in .safetensors: `<prefix>.weight` (outputs, inputs) as in torch.nn.Linear, `<prefix>.bias`.

The layers are in the natural order of their prefixes (fc2 before fc10); weights that are zero are no edges.
The file is mapped, so only one dense layer is in memory at a time.
"""

from spdnn.common.errors import InputError
from spdnn.formats.archive import natural
from spdnn.formats.checks import check_widths
from spdnn.formats.tensors import Safetensors
from spdnn.problem.network import Layer, layer_activations


def read_layers(
    path, bias: float | None = None, clip: float | None = None, layers: int | None = None, last: str = "relu"
) -> list[Layer]:
    """The layers of a file.

    Args:
        bias: of every layer when no layer has a bias tensor; by default, 0 where there is none.
        layers: how many of the first layers to read; all by default, or when there are fewer.
        clip, last: see network.layer_activations.

    Raises:
        InputError: not a sound .safetensors file; a tensor that is neither a weight matrix nor its bias, or
            of another type than float16, bfloat16, float32 and float64; NaN, infinite, or too large for
            float32; a bias though the file has its own; shapes that do not fit.
    """
    tensors = Safetensors(path)
    prefixes = sorted((name[: -len("weight")] for name in tensors if _is(name, "weight")), key=natural)
    used = {prefix + part for prefix in prefixes for part in ("weight", "bias")}
    if unused := sorted(set(tensors) - used, key=natural):
        raise InputError(f"{path}: tensor {unused[0]!r} is no weight of a layer, nor the bias of one; all must be")
    if not prefixes:
        raise InputError(f"{path}: no tensor in it is named '<prefix>.weight'; each layer needs one")
    if bias is not None and (own := [prefix for prefix in prefixes if prefix + "bias" in tensors]):
        raise InputError(f"{path}: bias {bias} given, but the file has biases of its own ({own[0]}bias)")
    layers_read, prefixes = [], prefixes[:layers]
    for prefix, activation in zip(prefixes, layer_activations(len(prefixes), clip, last), strict=True):
        weight = tensors[prefix + "weight"]
        if weight.ndim != 2:
            raise InputError(f"{path}: {prefix}weight has {weight.ndim} dimensions; a layer's weight is a matrix")
        check_widths(f"{path}: {prefix}weight", *weight.shape, entries=weight.size)
        own = 0.0 if bias is None else bias
        if prefix + "bias" in tensors:
            own = tensors[prefix + "bias"]
            if own.shape != weight.shape[:1]:
                raise InputError(f"{path}: {prefix}bias is {own.shape}; it must be {weight.shape[:1]}, as the outputs")
        layers_read.append(Layer.from_matrix(weight.T, own, activation, f"{path}: {prefix}weight"))
    return layers_read


def _is(name: str, part: str) -> bool:
    return name == part or name.endswith("." + part)
