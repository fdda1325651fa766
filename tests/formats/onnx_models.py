"""Small ONNX models, made a node at a time; ONNX Runtime judges them."""

import numpy as np
import onnx
import onnxruntime
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
