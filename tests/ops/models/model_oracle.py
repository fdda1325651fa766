"""The two models in float64, written as they are defined; no code of spdnn.ops.models or spdnn.ops is used."""

import numpy as np


def dense(mask):
    """bool, of the shape of a Topology: its positions."""
    made = np.zeros(mask.shape, bool)
    made[mask.row_numbers, mask.columns] = True
    return made


def transformer(weights, mask, heads, tokens):
    """Logits (n, vocabulary); mask: bool (n, n), the keys that each query sees."""
    w = {name: np.asarray(array, np.float64) for name, array in weights.items()}

    def norm(x, name):
        centred = x - x.mean(1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-6) * w[f"{name}.weight"] + w[f"{name}.bias"]

    x = w["token.weight"][tokens] + w["position.weight"][: len(tokens)]
    for k in range(sum(name.endswith("query.weight") for name in w)):
        layer = f"layers.{k}"
        y = norm(x, f"{layer}.attention_norm")
        q, key, v = (np.split(y @ w[f"{layer}.{part}.weight"].T, heads, axis=1) for part in ("query", "key", "value"))
        seen = []
        for head in range(heads):
            scores = np.where(mask, q[head] @ key[head].T / np.sqrt(q[head].shape[1]), -np.inf)
            part = np.exp(scores - scores.max(1, keepdims=True))
            seen.append(part / part.sum(1, keepdims=True) @ v[head])
        x = x + np.concatenate(seen, axis=1) @ w[f"{layer}.output.weight"].T
        y = norm(x, f"{layer}.between_norm")
        y = np.maximum(y @ w[f"{layer}.up.weight"].T + w[f"{layer}.up.bias"], 0)
        x = x + y @ w[f"{layer}.down.weight"].T + w[f"{layer}.down.bias"]
    return norm(x, "norm") @ w["logits.weight"].T


def convolved(x, weight, bias, stride, groups=1):
    """relu of a 3 x 3 or 1 x 1 convolution, padded so that stride 1 keeps the size; x (channels, height, width)."""
    outputs, taps = weight.shape[0], weight.shape[2]
    inputs, edge = weight.shape[1], weight.shape[2] // 2
    padded = np.pad(x, ((0, 0), (edge, edge), (edge, edge)))
    height, width = (-(-size // stride) for size in x.shape[1:])
    out = np.zeros((outputs, height, width))
    for o in range(outputs):
        first = o // (outputs // groups) * inputs
        for i in range(inputs):
            for r in range(taps):
                for c in range(taps):
                    part = padded[first + i, r::stride, c::stride][:height, :width]
                    out[o] += weight[o, i, r, c] * part
    return np.maximum(out + bias[:, None, None], 0)


def mobilenet(weights, strides, image):
    """Logits (classes,) of one image (3, height, width); 1 x 1 weights are given pruned."""
    w = {name: np.asarray(array, np.float64) for name, array in weights.items()}
    x = convolved(np.asarray(image, np.float64), w["stem.weight"], w["stem.bias"], 2)
    for k, stride in enumerate(strides):
        name = f"blocks.{k}"
        depthwise, pointwise = w[f"{name}.depthwise.weight"], w[f"{name}.pointwise.weight"]
        x = convolved(x, depthwise[:, None], w[f"{name}.depthwise.bias"], stride, groups=len(depthwise))
        x = np.maximum(np.einsum("oi,ihw->ohw", pointwise, x) + w[f"{name}.pointwise.bias"][:, None, None], 0)
    return w["classifier.weight"] @ x.mean((1, 2)) + w["classifier.bias"]
