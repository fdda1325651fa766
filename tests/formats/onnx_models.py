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


def operator(kind, opset, seed):
    """A random model of one operator, with any of the attributes and inputs that some opset has; and its inputs.

    What the opset has not, or means otherwise, is made too: ONNX Runtime tells which of them are models.
    """
    random = np.random.default_rng([seed, opset, len(kind), *kind.encode()])
    image = kind in ("Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool") or random.random() < 0.4
    shape = (2, 5, 4) if image else ((3, 4) if random.random() < 0.3 else (4,))
    made = Maker(*shape, seed=seed)

    def any_of(*values):
        return values[int(random.integers(len(values)))]

    def some(**values):
        """Attributes: each with a chance of a half one of its values."""
        return {name: any_of(*several) for name, several in values.items() if random.random() < 0.5}

    last, rank = shape[-1], len(shape) + 1
    axes = [*range(-rank, rank)]
    window = {"strides": [[1, 1], [2, 1]], "pads": [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 0, 2]],
              "auto_pad": ["NOTSET", "VALID", "SAME_UPPER"], "dilations": [[1, 1], [2, 1]]}  # fmt: skip
    old = (opset < 18) != (random.random() < 0.2)  # what became inputs later is an attribute
    if kind == "Gemm":
        weight, bias = made.draw(last, 3), any_of(made.draw(3), made.draw(1, 3), made.draw(1), made.draw(3, 1), None)
        given = some(transA=[0, 0, 1], transB=[0, 1], alpha=[0.5, 2.0], beta=[0.0, 3.0])
        made.add(kind, weight.T if given.get("transB") else weight, *([] if bias is None else [bias]), **given)
    elif kind == "MatMul":
        made.add(kind, any_of(made.draw(last, 3), made.draw(last), made.draw(1, last, 3)))
    elif kind == "Conv":
        groups, size = any_of(1, 2), any_of([3, 2], [1, 1], [2, 2])
        window["kernel_shape"] = [size]
        made.add(kind, made.draw(4, 2 // groups, *size), *any_of([made.draw(4)], []), group=groups, **some(**window))
    elif kind in ("MaxPool", "AveragePool"):
        window |= {"ceil_mode": [0, 0, 1]} if opset > 9 else {}
        window |= {"count_include_pad": [0, 1]} if kind == "AveragePool" else {}
        if opset < (10 if kind == "MaxPool" else 19):
            window.pop("dilations")
        made.add(kind, kernel_shape=any_of([2, 2], [3, 2], [1, 1]), **some(**window))
    elif kind == "BatchNormalization":
        size, options = any_of(shape[0], last), some(epsilon=[0.5], momentum=[0.1])
        later = some(training_mode=[0, 0, 1]) if opset > 13 else {}
        options |= some(spatial=[1, 1, 0]) if opset < 9 else later
        parts = [made.draw(size) for _ in range(3)]
        made.add(kind, *parts, made.random.random(size).astype(np.float32), **options)
    elif kind == "Clip":
        old, low, high = (
            (opset < 11) != (random.random() < 0.1),
            any_of(0.0, 0.0, -1.0, None),
            any_of(0.5, 6.0, -0.5, None),
        )
        limits = {"min": low, "max": high}
        if old:
            made.add(kind, **{name: one for name, one in limits.items() if one is not None})
        else:
            names = ["" if limit is None else made.constant(np.float32(limit)) for limit in limits.values()]
            made.add(kind, reads=[made.last, *names])
    elif kind == "Flatten":
        made.add(kind, **some(axis=[-rank, *axes, rank]))
    elif kind == "Reshape":
        whole = int(np.prod(shape))
        first, second = any_of(0, 0, -1, 1, 3, whole), any_of(-1, -1, 0, whole, 2, last)
        flat = [first, second] if random.random() < 0.8 else any_of([first, 2, second], [first])
        made.add(kind, np.array(flat), **(some(allowzero=[0, 1]) if opset > 13 else {}))
    elif kind == "computed Reshape":
        made.add("Shape", reads=["x"], **(some(start=[0, 1], end=[1, 2, -1]) if opset > 14 else {}))
        single = random.random() < 0.3
        if random.random() < 0.5:
            place = any_of(0, 0, 0, 1, -1)
            made.add("Gather", np.array(place if single else any_of([place], [place], [0, 1])), axis=0)
            if single:
                made.add("Unsqueeze", axes=[0]) if opset < 13 else made.add("Unsqueeze", np.array([0]))
        else:
            ends = {"starts": [any_of(0, 0, 0, 1)], "ends": [any_of(1, 1, 2, 100)]}
            made.add("Slice", **ends) if opset < 10 else made.add("Slice", *map(np.array, ends.values()))
        made.add("Cast", to=any_of(6, 7)) if random.random() < 0.3 else None
        made.add("Cast", to=7)
        made.add("Concat", np.array(any_of([-1], [-1], [8], [2, -1], [int(np.prod(shape))])), axis=0)
        made.add("Reshape", reads=["x", made.last])
    elif kind == "Dropout":
        flag = [np.float32(0.5), np.array(any_of(True, False, False))]
        made.add(kind, **some(ratio=[0.5])) if opset < 12 else made.add(kind, *any_of([], flag[:1], flag))
    elif kind == "Cast":
        made.add(kind, to=any_of(1, 1, 1, 10, 11, 6, 9))
        made.add(kind, to=1)
    elif kind == "Cast of a constant":
        weight = any_of(3.0, 300.0) * made.draw(last, 3)
        made.nodes.append(
            helper.make_node("Cast", [made.constant(weight)], ["whole"], to=any_of(1, 10, 11, 3, 2, 6, 7, 9))
        )
        made.nodes.append(helper.make_node("Cast", ["whole"], ["weight"], to=1))
        made.add("MatMul", reads=[made.last, "weight"])
    elif kind in ("Add", "Sub", "Mul", "Div"):
        several = [made.draw(), made.draw(last), made.draw(1, last), made.draw(*shape), made.draw(1, 1, 1, 1, 1)]
        several += [made.draw(shape[0], 1, 1), made.draw(1, shape[0], 1, 1), made.draw(3, 1)]
        constant, options = any_of(*several), some(axis=[1], broadcast=[1]) if random.random() < 0.2 else {}
        front = random.random() < 0.3
        made.add(kind, *([] if front else [constant]), first=[constant] * front, **options)
        made.add(kind, reads=[made.last, any_of("x", made.last)]) if random.random() < 0.2 else None
    elif kind == "ReduceMean":
        over, options = any_of([2, 3], [-1, -2], [1], [], None), some(keepdims=[0, 1])
        options |= some(noop_with_empty_axes=[0, 1]) if opset > 17 else {}
        if old:
            made.add(kind, **options, **({"axes": over} if over else {}))
        else:
            made.add(kind, *([] if over is None else [np.array(over, np.int64)]), **options)
    elif kind in ("Softmax", "LogSoftmax"):
        made.add(kind, **some(axis=axes))
    else:
        made.add(kind)
    if random.random() < 0.3 or kind in ("Identity", "Dropout", "Cast"):
        made.add(any_of("Softmax", "Relu"))
    return made, random.standard_normal((3, *shape)).astype(np.float32)


OPERATORS = (
    "Gemm", "MatMul", "Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "BatchNormalization",
    "Clip", "Relu", "Flatten", "Reshape", "computed Reshape", "Dropout", "Identity", "Cast", "Cast of a constant",
    "Add", "Sub", "Mul", "Div", "ReduceMean", "Softmax", "LogSoftmax",
)  # fmt: skip
