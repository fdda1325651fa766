"""Small ONNX models, made a node at a time; ONNX Runtime judges them."""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


class Maker:
    """A model whose nodes follow one another; `last` is the name of the latest value."""

    def __init__(self, *shape, seed=0):
        self.random, self.nodes, self.constants, self.shape, self.last = np.random.default_rng(seed), [], [], shape, "x"

    def draw(self, *shape, density=1.0):
        made = self.random.standard_normal(shape) * (self.random.random(shape) < density)
        return made.astype(np.float32)

    def constant(self, array):
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def add(self, kind, *arrays, first=None, name=None, reads=None, **attributes):
        """A node that reads the latest value (or `reads`), then constants; arrays in `first` before it."""
        value = [self.last] if reads is None else list(reads)
        inputs = [self.constant(array) for array in first or ()] + value + [self.constant(array) for array in arrays]
        self.last = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [self.last], name=name or self.last, **attributes))
        return self.last

    def norm(self, size):
        variance = self.random.random(size).astype(np.float32) + np.float32(0.1)
        return self.add("BatchNormalization", *(self.draw(size) for _ in range(3)), variance)

    def save(self, path, opset=17, **options):
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", *self.shape])]
        outputs = [helper.make_empty_tensor_value_info(self.last)]
        graph = helper.make_graph(self.nodes, "made", inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        onnx.save(model, path, **options)
        return path


def outputs(path, x):
    """What ONNX Runtime makes of inputs."""
    import onnxruntime  # once the environment is that of the tests (conftest.py)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def close(ours, theirs, tolerance=1e-5):
    """Whether outputs agree: within a part of the largest, as sums of float32 in another order do."""
    return ours.shape == theirs.shape and np.abs(ours - theirs).max() <= tolerance * max(1, np.abs(theirs).max())


def chain(seed):
    """A random model that is layers of a network alone, in the many ways to write one; and its inputs."""
    random = np.random.default_rng([seed, 1])

    def chance(part):
        return random.random() < part

    widths = random.integers(1, 40, int(random.integers(2, 6))).tolist()
    images = chance(0.3)
    made = Maker(*((1, widths[0], 2) if images else (widths[0],)), seed=seed)
    if images:
        widths[0] *= 2
        made.add("Div", np.float32(3)) if chance(0.5) else made.add("Sub", made.draw(1, 1, 1, 1))
        made.add("Flatten") if chance(0.5) else made.add("Reshape", np.array([0, -1]))
    elif chance(0.3):
        made.add("Sub", made.draw(widths[0]))
        made.add("Mul", made.draw(1, widths[0]))
    for before, after in zip(widths, widths[1:], strict=False):
        weight = made.draw(before, after, density=0.5)
        if chance(0.5):
            turned, bias = int(chance(0.5)), made.draw(*((1, after) if chance(0.3) else (after,)))
            extra = {"alpha": 0.5, "beta": 2.0} if chance(0.3) else {}
            made.add("Gemm", weight.T if turned else weight, *([bias] if chance(0.7) else []), transB=turned, **extra)
        else:
            made.add("MatMul", weight)
            if chance(0.7):
                made.add(
                    "Add", *([] if (front := chance(0.5)) else [made.draw(after)]), first=[made.draw(after)] * front
                )
        if chance(0.3):
            made.norm(after)
        if chance(0.3):
            made.add("Dropout" if chance(0.5) else "Identity")
        if chance(0.7):
            made.add("Relu") if chance(0.5) else made.add("Clip", np.float32(0), np.float32(random.choice([0.5, 6])))
            if chance(0.2) and after != widths[-1]:
                made.norm(after)
    return made, random.standard_normal((int(random.integers(1, 9)), *made.shape)).astype(np.float32)


def convolutional(seed):
    """A random model of images, with branches that are added; and its inputs."""
    random = np.random.default_rng([seed, 2])

    def chance(part):
        return random.random() < part

    def follow(size):
        if chance(0.6):
            made.norm(size)
        if chance(0.7):
            made.add("Relu") if chance(0.5) else made.add("Clip", np.float32(0), np.float32(6))

    def convolve(before, after, kernel, groups=1, density=1.0, **options):
        weight = made.draw(after, before // groups, *kernel, density=density)
        weight /= np.float32(np.sqrt(max(1, weight[0].size * density)))
        made.add("Conv", weight, *([made.draw(after)] if chance(0.5) else []), group=groups, **options)

    channels, side = int(random.choice([1, 3, 4])), [int(size) for size in random.integers(9, 20, 2)]
    made = Maker(channels, *side, seed=seed)
    if chance(0.3):
        made.add("Sub", made.draw(1, channels, 1, 1))
        made.add("Mul", made.draw(channels, 1, 1))
    for _ in range(int(random.integers(1, 5))):
        kind, after, stride = random.random(), int(random.choice([2, 4, 8])), int(random.choice([1, 1, 2]))
        if kind < 0.3:
            convolve(channels, after, (3, 3), pads=[1, 1, 1, 1], strides=[stride, stride])
        elif kind < 0.55:
            convolve(channels, after, (1, 1), density=0.2, strides=[stride, stride])
        elif kind < 0.75:
            after = channels
            convolve(channels, channels, (3, 3), channels, pads=[1, 1, 1, 1], strides=[stride, stride])
        else:
            after = 2 * channels
            convolve(channels, after, (2, 3), channels, pads=[0, 1, 1, 0])
        follow(after)
        if chance(0.4):
            skip = made.last
            convolve(after, after, (1, 1), density=0.2)
            if chance(0.5):
                made.norm(after)
            made.add("Add", reads=[made.last, skip] if chance(0.5) else [skip, made.last])
            follow(after)
        if chance(0.3):
            pool = {"kernel_shape": [2, 2], "pads": [1, 0, 0, 1], "strides": [1, 2]}
            counted = {"count_include_pad": int(chance(0.5))}
            made.add("MaxPool", **pool) if chance(0.5) else made.add("AveragePool", **pool, **counted)
        channels = after
    if chance(0.8):
        made.add("GlobalAveragePool") if chance(0.7) else made.add("GlobalMaxPool")
        made.add("Flatten") if chance(0.5) else made.add("Reshape", np.array([-1, channels]))
        made.add("Gemm", made.draw(channels, 5, density=0.5), made.draw(5))
        if chance(0.5):
            made.add("Softmax", axis=1)
    return made, random.standard_normal((int(random.integers(1, 7)), *made.shape)).astype(np.float32)
