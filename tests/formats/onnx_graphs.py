"""Random ONNX graphs of the parts of models: convolutions, attention, branches, normalisation, tables, resizing,
quantised parts; most of their products are pruned."""

import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx_models import Maker

from spdnn.ops.onnx_products import LEAST_WEIGHTS


def graph(seed, path):
    """(path, inputs by name, products that are pruned) of a model that is written there."""
    random = np.random.default_rng([seed, 3])
    made = Maker(seed=seed)
    kind = ("images", "tokens", "tables")[seed % 3]
    count, ours, feed = int(random.integers(1, 4)), 0, {}

    def chance(part):
        return random.random() < part

    def any_of(*values):
        return values[int(random.integers(len(values)))]

    def weight(*shape):
        """Pruned, more often than not."""
        nonlocal ours
        few = chance(0.7)
        ours += few and int(np.prod(shape)) >= LEAST_WEIGHTS
        array = np.zeros(shape, np.float32)
        picks = random.permutation(array.size)[: array.size // 10 if few else array.size]
        array.reshape(-1)[picks] = made.draw(picks.size) / np.sqrt(max(1, picks.size / shape[-1]))
        return array

    def activation():
        name = any_of("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "Softplus", None)
        if name:
            made.add(name)

    def branch(change):
        """x + change(x), or one beside the other."""
        before = made.last
        change()
        made.add(any_of("Add", "Mul", "Sub"), reads=[before, made.last])

    if kind == "images":
        channels, side = 16, int(random.integers(8, 15))
        made.shape = (channels, side, side)
        feed["x"] = made.draw(count, *made.shape)
        for _ in range(int(random.integers(1, 5))):
            step = random.random()
            if step < 0.5:
                size = any_of(1, 3)

                def block(size=size):
                    made.add("Conv", weight(64, channels, size, size), made.draw(64), pads=[size // 2] * 4)
                    activation()
                    made.add("Conv", weight(channels, 64, 1, 1))

                branch(block)
            elif step < 0.65:
                made.norm(channels)
            elif step < 0.8:
                made.add("MaxPool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1])
            elif step < 0.9:
                made.nodes.append(helper.make_node("Resize", [made.last, "", made.constant(np.float32([1, 1, 2, 2]))],
                                                   ["bigger" + str(len(made.nodes))], mode="nearest"))  # fmt: skip
                made.last = made.nodes[-1].output[0]
            else:
                made.add("ConvTranspose", made.draw(channels, channels, 2, 2), strides=[1, 1], pads=[0, 1, 1, 0])
            activation()
        made.add("ReduceMean", axes=[2, 3], keepdims=0) if chance(0.5) else made.add("Flatten")
    elif kind == "tokens":
        width, tokens, heads = 32, int(random.integers(3, 9)), 4
        made.shape = (tokens,)
        ids = random.integers(0, 50, (count, tokens))
        feed["x"] = ids
        table = made.constant(made.draw(50, width))
        made.nodes.append(helper.make_node("Gather", [table, "x"], ["embedded"]))
        made.last = "embedded"

        def linear(before, after):
            made.add("MatMul", weight(before, after))
            if chance(0.7):
                made.add("Add", made.draw(after))

        def attention():
            before, parts = made.last, []
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]):
                made.last = before
                linear(width, width)
                made.add("Reshape", np.array([0, 0, heads, width // heads]))
                parts.append(made.add("Transpose", perm=perm))
            made.add("MatMul", reads=parts[:2])
            made.add("Softmax", axis=-1)
            made.add("MatMul", reads=[made.last, parts[2]])
            made.add("Transpose", perm=[0, 2, 1, 3])
            made.add("Reshape", np.array([0, 0, width]))
            linear(width, width)

        for _ in range(int(random.integers(1, 4))):
            branch(attention) if chance(0.6) else branch(lambda: (linear(width, 64), activation(), linear(64, width)))
            if chance(0.7):
                made.add("LayerNormalization", made.draw(width), made.draw(width), axis=-1)
    else:
        width = 40
        made.shape = (width,)
        feed["x"] = made.draw(count, width)
        for _ in range(int(random.integers(1, 5))):
            step = random.random()
            if step < 0.5:
                turned, after = int(chance(0.5)), int(any_of(30, 40, 64))
                shape, given = (after, width) if turned else (width, after), {"alpha": any_of(1.0, 0.5)}
                made.add("Gemm", weight(*shape), made.draw(after), transB=turned, **given)
                width = after
            elif step < 0.65:
                made.add("QuantizeLinear", np.float32(0.05), np.uint8(128))
                made.add("DequantizeLinear", np.float32(0.05), np.uint8(128))
            elif step < 0.8:
                mask = (made.random.random((width, width)) < 0.1).astype(np.float32)
                both = [made.constant(made.draw(width, width)), made.constant(mask)]
                made.nodes.append(helper.make_node("Mul", both, [f"w{len(made.nodes)}"]))
                made.add("MatMul", reads=[made.last, made.nodes[-1].output[0]])
                ours += mask.size >= LEAST_WEIGHTS
            else:
                branch(activation)
            activation()
    made.save(path)
    if kind == "tokens":
        model = onnx.load(path)
        model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
        onnx.save(model, path)
    return path, feed, ours
