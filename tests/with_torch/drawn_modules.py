"""Modules that a seed draws, for fuzz_modules.py: a seed draws the same module each time, in memory of its own."""

import functools
import itertools
import random
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, prune

import spdnn.torch as st

WIDTHS = (1, 3, 8, 17, 32, 40, 64)  # 32 x 32 weights are the least that our kernels compute
MOST = 40  # inputs of a call
WORDS, LENGTH = 11, 5  # of a sequence of whole numbers: their range, their number
ACTIVATIONS = (
    nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU, nn.Sigmoid, nn.ELU, nn.Hardtanh, nn.LeakyReLU, nn.ReLU6, nn.Softplus,
    nn.Dropout, nn.Identity, nn.Hardswish, functools.partial(nn.ReLU, True),
)  # fmt: skip
TAKEN, REFUSED, EITHER = "taken", "refused", "either"
DYNAMIC = {0: torch.export.Dim.DYNAMIC}


@dataclass
class Drawn:
    """A module, and all that its user may hold of it.

    Attributes:
        given: what compile gets: the module, or what torch made of it; module: the one that computes.
        example: as compile takes it; tensors: those of the example, in the order of the arguments.
        kinds: of the inputs, in that order; names: of the arguments, where all forms keep them.
        held: tensors that are no parameters and no buffers.
        expected: whether compile takes the module. EITHER: it hangs on the number of inputs in some way.
        counts: numbers of inputs at which it may compute otherwise.
        pieces: what it is made of, in words.
    """

    given: Any
    module: nn.Module
    example: Any
    tensors: list[Tensor]
    kinds: list[str]
    names: list[str] | None
    dtype: torch.dtype
    held: list[Tensor]
    expected: str
    counts: list[int]
    pieces: list[str] = field(default_factory=list)

    def inputs(self, count: int) -> list[Tensor]:
        """So many inputs, the same at each call."""
        generator = torch.Generator().manual_seed(count)
        return [numbers(kind, count, self.dtype, generator) for kind in self.kinds]


def numbers(kind: str, count: int, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """So many inputs of a kind: a name, and the sizes of one input."""
    name, *sizes = kind.split()
    shape = count, *map(int, sizes)
    if name in ("tokens", "ids"):
        return torch.randint(0, WORDS, shape, generator=generator, dtype=torch.int64 if name == "ids" else torch.int32)
    drawn = torch.randn(shape, generator=generator)
    return drawn > 0 if name == "mask" else drawn.to(dtype)


class Apply(nn.Module):
    """What a function makes of an input."""

    def __init__(self, does):
        super().__init__()
        self.does = does

    def forward(self, x):
        return self.does(x)


class Add(nn.Module):
    """A residual connection, by a layer of its own where widths differ."""

    def __init__(self, inner, project=None):
        super().__init__()
        self.inner, self.project = inner, project

    def forward(self, x):
        return self.inner(x) + (x if self.project is None else self.project(x))


class Attends(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0] + x


class Holds(nn.Module):
    """Scales its input by a tensor that it holds in one of many ways."""

    def __init__(self, way, tensor):
        super().__init__()
        self.way = way
        if way in ("buffer", "passing buffer"):
            self.register_buffer("scale", tensor, persistent=way == "buffer")
        elif way == "closure":
            self.scale = lambda x: x * tensor
        elif way == "default":
            self.scale = lambda x, scale=tensor: x * scale
        elif way == "partial":
            self.scale = functools.partial(torch.mul, tensor)
        else:
            self.scale = {
                "attribute": tensor, "list": [None, tensor], "mapping": {"a": (tensor,)},
                "object": SimpleNamespace(value=tensor),
            }[way]  # fmt: skip

    def forward(self, x):
        if self.way == "list":
            return x * self.scale[1]
        if self.way == "mapping":
            return x * self.scale["a"][0]
        if self.way == "object":
            return x * self.scale.value
        return x * self.scale if isinstance(self.scale, Tensor) else self.scale(x)


HOLDS = ("attribute", "buffer", "passing buffer", "list", "mapping", "object", "closure", "default", "partial")


class Forward(nn.Module):
    """Encoders of each input, a head, and what `does` makes of (itself, what the head gives, inputs)."""

    def __init__(self, encoders, join, head, does, last):
        super().__init__()
        self.encoders, self.join, self.head = nn.ModuleList(encoders), join, head
        self.does, self.last = does, last

    def run(self, *inputs):
        encoded = [encoder(x) for encoder, x in zip(self.encoders, inputs, strict=True)]
        return self.last(self.does(self, self.head(self.join(encoded)), inputs[0]), inputs[0])


class One(Forward):
    def forward(self, x):
        return self.run(x)


class Two(Forward):
    def forward(self, x, y):
        return self.run(x, y)


class Three(Forward):
    def forward(self, x, y, *, z):
        return self.run(x, y, z)


def refuses_few(self, y, x, few):
    if len(x) <= few:
        raise ValueError(f"more than {few}\nare needed")
    return y


def running(self, y, x):
    self.mean = torch.lerp(self.mean, y.mean(), 0.5)
    return y - self.mean


def remembers(self, y, x):
    self.seen.append(y.detach().mean())
    return y * len(self.seen)


def keeps_the_first(self, y, x):
    if self.first is None:
        self.first = y.detach().flatten(1).mean(0, keepdim=True)
    return y + self.first.abs().sum()


def counts_calls(self, y, x):
    self.calls += 1
    return y + self.calls


def writes_buffer(self, y, x):
    self.steps.add_(1)
    return y * self.steps


# By what they do: states and random numbers, which compile refuses; the attributes that they need.
STATES = {
    "a running mean": (running, lambda: {"mean": torch.zeros(())}),
    "the first batch": (keeps_the_first, lambda: {"first": None}),
    "a history": (remembers, lambda: {"seen": []}),
    "a number of calls": (counts_calls, lambda: {"calls": 0}),
    "a buffer that grows": (writes_buffer, lambda: {"steps": torch.zeros(())}),
    "an iterator": (lambda self, y, x: y + next(self.ticks), lambda: {"ticks": itertools.count()}),
    "torch.rand": (lambda self, y, x: y + torch.rand(len(y), 1), dict),
    "torch.randn_like": (lambda self, y, x: y + torch.randn_like(y), dict),
    "dropout": (lambda self, y, x: F.dropout(y + 1, 0.5, training=True), dict),
    "random.random": (lambda self, y, x: y + random.random(), dict),
    "numpy.random": (lambda self, y, x: y + float(np.random.rand()), dict),  # noqa: NPY002
    "a branch on numbers": (lambda self, y, x: y + 1 if float(y.sum()) > 0 else y - 1, dict),
    "numbers of Python": (lambda self, y, x: y + sum(y.flatten().tolist()), dict),
}
# Of a number of inputs n: what hangs on it, so that compile refuses it or follows it.
HANGS = {
    "above": lambda n: lambda self, y, x: y if len(x) <= n else y * 2 + 1,
    "below": lambda n: lambda self, y, x: y if x.shape[0] > n else y[:1] - 3,
    "longer": lambda n: lambda self, y, x: y if x.size(0) < n else y[1:],
    "odd": lambda n: lambda self, y, x: y if len(x) % 2 == 0 else -y - 1,
    "one": lambda n: lambda self, y, x: y * 2 if len(x) == 1 else y,
    "chunks": lambda n: lambda self, y, x: torch.cat([part - part.mean(0) for part in y.split(3)]),
    "pairs": lambda n: lambda self, y, x: y.view(len(x) // 2, -1),
    "squeezed": lambda n: lambda self, y, x: y.squeeze(0),
    "a list": lambda n: lambda self, y, x: torch.stack([row * 2 for row in y]),
    "few refused": lambda n: functools.partial(refuses_few, few=n % 4),
}
# What follows the number of inputs in ways that an ONNX model follows too.
PLAIN = {
    "nothing": lambda self, y, x: y,
    "a mean": lambda self, y, x: y - y.mean(0, keepdim=True) / 2,
    "a softmax of columns": lambda self, y, x: y.softmax(0) * 3,
    "a running sum": lambda self, y, x: y.cumsum(0),
    "the number": lambda self, y, x: y / len(x),
    "places": lambda self, y, x: y + torch.arange(len(x))[:, None] / 10,
    "a mask of the input": lambda self, y, x: torch.where(x.flatten(1)[:, :1] > 0, y, -y),
    "reversed": lambda self, y, x: y.flip(0),
    "products of rows": lambda self, y, x: y @ y.T,
    "a record": lambda self, y, x: setattr(self, "latest", y) or y,
    "ones": lambda self, y, x: torch.cat([y, torch.ones(len(x), 1, dtype=y.dtype)], 1),
    "gradients off": torch.no_grad()(lambda self, y, x: y.detach().relu()),
}


def two(y, x):
    return y, y.flatten(1).sum(1)


def mapping(y, x):
    return {"last": y, "more": (y[..., :1], [y.abs()])}


LASTS = {"one": lambda y, x: y, "two": two, "a mapping": mapping, "its input": lambda y, x: (y, x),
         "twice": lambda y, x: [y, y]}  # fmt: skip


class Draw:
    """What a module is drawn with: random numbers of its own, and notes of what was drawn."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        torch.manual_seed(seed)
        self.dtype = self.random.choices([torch.float32, torch.float64, torch.float16], [8, 1, 1])[0]
        self.held: list[Tensor] = []
        self.pieces: list[str] = []
        self.sparse = False

    def chance(self, part: float) -> bool:
        return self.random.random() < part

    def one(self, choices: Any) -> Any:
        return self.random.choice([*choices])

    def noted(self, piece: str) -> str:
        self.pieces.append(piece)
        return piece

    # Layers over features, which come last, (..., width).

    def linear(self, before: int, after: int) -> nn.Module:
        layer = nn.Linear(before, after, bias=self.chance(0.8))
        kind = self.one(
            ["dense", "zeros", "zeros", "mask", "weight_norm", "old weight_norm", "spectral_norm", "sparse"]
        )
        if (self.dtype == torch.float16 and "norm" in kind) or (self.dtype == torch.float64 and kind == "sparse"):
            kind = "zeros"  # norms are of no half precision, and our layers of no float64
        self.noted(f"linear of {kind} {before} x {after}")
        if kind in ("zeros", "weight_norm", "old weight_norm"):
            self.thin(layer.weight)
        if kind == "mask":
            prune.random_unstructured(layer, "weight", 0.9)
        elif kind == "weight_norm":
            layer = parametrizations.weight_norm(layer)
        elif kind == "old weight_norm":
            layer = nn.utils.weight_norm(layer)
        elif kind == "spectral_norm":
            layer = parametrizations.spectral_norm(layer)
        elif kind == "sparse":
            self.sparse = True
            layer = st.SparseLinear.from_dense(layer, 0.9)
        return layer

    def thin(self, weight: Tensor) -> None:
        """Nine of ten weights become zero; of a row one stays at least, since norms divide by it."""
        with torch.no_grad():
            kept = torch.rand_like(weight) < 0.1
            kept.flatten(1)[:, 0] = True
            weight.mul_(kept)

    def activation(self) -> nn.Module:
        made = self.one(ACTIVATIONS)()
        self.noted(type(made).__name__)
        return made

    def holds(self, width: int) -> nn.Module:
        """A layer that scales features."""
        return self.scaled(torch.rand(width) + 0.5)

    def scaled(self, tensor: Tensor) -> nn.Module:
        way = self.noted(self.one([*HOLDS, "hook", "view", "computed"]))
        tensor = tensor.to(self.dtype)
        if way == "view":
            tensor = torch.stack([tensor, tensor])[1]
        elif way == "computed":
            tensor = tensor.requires_grad_() * 2
        self.held.append(tensor)
        if way == "hook":
            layer = nn.Identity()
            layer.register_forward_hook(lambda module, given, y: y * tensor)
            return layer
        return Holds({"view": "attribute", "computed": "list"}.get(way, way), tensor)

    def norm(self, width: int, flat: bool) -> nn.Module:
        if not flat or self.chance(0.5):
            self.noted("LayerNorm")
            return nn.LayerNorm(width)
        return self.batch_norm(nn.BatchNorm1d(width))

    def batch_norm(self, layer: nn.Module) -> nn.Module:
        self.noted(type(layer).__name__)
        with torch.no_grad():
            for tensor in (layer.running_mean, layer.running_var, layer.weight, layer.bias):
                tensor.copy_(torch.rand_like(tensor) + 0.5)
        return layer

    def chain(self, before: int, after: int | None = None, flat: bool = True, most: int = 2) -> tuple[nn.Module, int]:
        """(layers over features, their last width)."""
        layers, width = [], before
        for _ in range(self.random.randint(1, most)):
            size = self.one(WIDTHS)
            layer = self.linear(width, size)
            if self.chance(0.2):
                self.noted("residual")
                layer = Add(layer, None if width == size else self.linear(width, size))
            layers += [layer, self.activation()]
            width = size
            layers += [self.norm(width, flat)] if self.chance(0.3) else []
            layers += [self.holds(width)] if self.chance(0.25) else []
            if self.chance(0.1):
                self.noted("shared")
                layers += [shared := self.linear(width, width), nn.Tanh(), shared]
        if after is not None:
            layers.append(self.linear(width, after))
        return nn.Sequential(*layers), after or width

    def convolutions(self, channels: int) -> tuple[nn.Module, int]:
        """(layers over images, the width of what they give)."""
        layers = []
        for _ in range(self.random.randint(1, 2)):
            size, kind = self.one([4, 8, 32]), self.one(["1 x 1", "3 x 3", "depthwise", "sparse"])
            if self.dtype == torch.float64 and kind == "sparse":
                kind = "1 x 1"
            self.noted(f"convolution {kind} {channels} to {size}")
            if kind == "depthwise":
                layers.append(nn.Conv2d(channels, channels * 2, 3, padding=1, groups=channels))
                size = channels * 2
            else:
                side = 3 if kind == "3 x 3" else 1
                options = {"stride": self.one([1, 2])} | ({"padding": self.one([0, 1, "same"])} if side == 3 else {})
                options |= {"stride": 1} if options.get("padding") in ("same", 0) else {}
                layer = nn.Conv2d(channels, size, side, bias=self.chance(0.7), **options)
                if self.chance(0.6):
                    self.thin(layer.weight)
                if kind == "sparse":
                    self.sparse = True
                    layer = st.SparseConv2d.from_dense(layer, 0.8)
                layers.append(layer)
            channels = size
            layers += [self.batch_norm(nn.BatchNorm2d(channels))] if self.chance(0.4) else []
            layers.append(self.activation())
            layers += [self.scaled(torch.rand(channels, 1, 1) + 0.5)] if self.chance(0.2) else []
        if self.chance(0.5):
            layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        else:
            layers += [Apply(lambda x: x.amax((2, 3)))]
        return nn.Sequential(*layers), channels

    def sequence(self, width: int) -> tuple[nn.Module, int]:
        """(layers over sequences (inputs, length, width), which give one row for each, its width)."""
        layers = []
        for _ in range(self.random.choice([1, 1, 2])):
            kind, heads = self.one(["attention", "encoder", "chain"]), self.one([1, 4])
            if kind != "chain":
                self.noted(f"{kind} of {heads} heads")
            if kind == "attention":
                layers.append(Attends(width, heads))
            elif kind == "encoder":
                options = {"norm_first": self.chance(0.5), "activation": self.one(["relu", "gelu"])}
                layer = nn.TransformerEncoderLayer(width, heads, 48, batch_first=True, **options)
                self.thin(layer.linear1.weight)
                layers.append(layer)
            else:
                chain, width = self.chain(width, 32, flat=False, most=1)
                layers.append(chain)
        pool = self.one([lambda x: x.mean(1), lambda x: x[:, 0], lambda x: x.flatten(1)[:, :32], lambda x: x.amax(1)])
        return nn.Sequential(*layers, Apply(pool)), 32

    def encoder(self, kind: str) -> tuple[nn.Module, int]:
        """(what makes features of an input, their width)."""
        name, *sizes = kind.split()
        if name == "images":
            return self.convolutions(int(sizes[0]))
        if name in ("tokens", "ids"):
            self.noted("embedding")
            layers, width = self.sequence(32)
            return nn.Sequential(nn.Embedding(WORDS, 32, padding_idx=self.one([None, 0])), *layers), width
        if name == "sequence":
            return self.sequence(32)
        if name == "mask":
            # Two of them may not share memory: each has a type of its own.
            dtype = torch.float32 if self.dtype == torch.float16 else self.dtype
            return nn.Sequential(Apply(lambda x: x.to(dtype)), self.linear(int(sizes[0]), 8)), 8
        return self.chain(int(sizes[0]))

    def kind(self) -> str:
        """An input's kind, and the sizes of one."""
        name = self.random.choices(
            ["features", "images", "tokens", "ids", "sequence", "mask"], [6, 3, 1, 1, 2, 0.5]
        )[0]  # fmt: skip
        sizes = {
            "features": self.one(WIDTHS), "images": f"{self.one([3, 8])} 6 7", "mask": 8,
            "sequence": f"{LENGTH} 32",
        }  # fmt: skip
        return self.noted(f"{name} {sizes.get(name, LENGTH)}")


def draw(seed: int) -> Drawn:
    """The module of a seed."""
    made = Draw(seed)
    expected = made.random.choices([TAKEN, REFUSED, EITHER], [6, 2, 2])[0]
    chain = expected == TAKEN and made.chance(0.35)
    kinds = [made.kind() for _ in range(1 if chain else made.random.choices([1, 2, 3], [5, 3, 1])[0])]
    pairs = [made.encoder(kind) for kind in kinds]
    encoders, counts, names = [encoder for encoder, _ in pairs], [], None
    if made.chance(0.1) and kinds[0].split()[0] in ("features", "images", "sequence"):
        made.noted("writes into its input")
        encoders[0] = nn.Sequential(Apply(lambda x: x.mul_(0.5).add_(1)), encoders[0])
    if chain:
        head, _ = made.chain(pairs[0][1], most=1)
        module: nn.Module = nn.Sequential(*encoders[0], *head) if made.chance(0.5) else nn.Sequential(encoders[0], head)
    else:
        module, counts = _forward(made, expected, encoders, [width for _, width in pairs])
        names = [*"xyz"[: len(kinds)]]
    module = module.to(made.dtype)
    if made.dtype != torch.float32:
        made.noted(str(made.dtype))
    module.train(made.chance(0.5))
    tensors = _example(made, kinds)
    given = _given(made, module, tensors, expected)
    example = _shown(made, module, tensors, names)
    names = names if given is module else None
    return Drawn(given, module, example, tensors, kinds, names, made.dtype, made.held, expected, counts, made.pieces)


def _forward(made: Draw, expected: str, encoders: list, widths: list[int]) -> tuple[nn.Module, list[int]]:
    """(A module with a forward of its own, numbers of inputs at which it may compute otherwise)."""
    if len(encoders) > 1 and made.chance(0.5):
        head, _ = made.chain(sum(widths), most=1)
        join = functools.partial(torch.cat, dim=1)
    else:
        pairs = zip(encoders, widths, strict=True)
        encoders = [nn.Sequential(encoder, made.linear(width, 32)) for encoder, width in pairs]
        head, _ = made.chain(32, most=1)
        join = made.one(
            [lambda parts: functools.reduce(torch.add, parts), lambda parts: functools.reduce(torch.mul, parts)]
        )
    counts, attributes = [], {}
    if expected == REFUSED:
        does, attributes = STATES[made.noted(made.one(STATES))]
        attributes = attributes()
    elif expected == EITHER:
        count = made.random.randint(1, MOST - 1)
        does = HANGS[made.noted(made.one(HANGS))](count)
        made.noted(f"at {count} inputs")
        counts = [count, count + 1]
    else:
        does = PLAIN[made.noted(made.one(PLAIN))]
    gives = made.one(LASTS) if expected == TAKEN else "one"
    made.noted(f"gives {gives}")
    module = {1: One, 2: Two, 3: Three}[len(encoders)](encoders, join, head, does, LASTS[gives])
    for name, value in attributes.items():
        if isinstance(value, Tensor) and made.chance(0.5):
            module.register_buffer(name, value)
        else:
            setattr(module, name, value)
    return module, counts


def _example(made: Draw, kinds: list[str]) -> list[Tensor]:
    """Tensors of an example, some of which lie in memory in other ways."""
    count, generator = made.random.randint(2, 6), torch.Generator().manual_seed(made.random.randrange(2**32))
    tensors = [numbers(kind, count, made.dtype, generator) for kind in kinds]
    way = made.one(["plain", "plain", "strided", "gradients", "inference mode"])
    if way == "strided":
        tensors = [torch.stack([tensor, tensor], -1)[..., 0] for tensor in tensors]
    elif way == "gradients":
        tensors = [tensor.requires_grad_(tensor.is_floating_point()) for tensor in tensors]
    elif way == "inference mode":
        with torch.inference_mode():
            tensors = [tensor.clone() for tensor in tensors]
    made.noted(f"example of {count}, {way}")
    return tensors


def _given(made: Draw, module: nn.Module, tensors: list[Tensor], expected: str) -> Any:
    """The module, or what torch makes of it."""
    form = made.random.choices(["plain", "compiled", "compiles itself", "parallel", "program", "graph", "traced"],
                               [8, 1, 1, 1, 1, 1, 1])[0]  # fmt: skip
    by_place = not isinstance(module, Three)
    writes = "writes into its input" in made.pieces
    half = made.dtype == torch.float16
    if form in ("program", "graph") and (half or made.sparse or expected != TAKEN or not by_place or writes):
        form = "plain"  # torch.export keeps custom operators and types of numbers, and bakes in what hangs on calls
    if form == "traced" and (made.sparse or not isinstance(module, nn.Sequential)):
        form = "plain"  # torch.fx traces no forward that looks at its input's shape
    made.noted(form)
    if form == "compiled":
        return torch.compile(module, backend="eager")
    if form == "compiles itself":
        module.compile(backend="eager")
    elif form == "parallel":
        return nn.DataParallel(module)
    elif form == "traced":
        return fx.symbolic_trace(module)
    elif form in ("program", "graph"):
        shown = tuple(tensor.detach().clone() for tensor in tensors)
        try:
            with torch.no_grad():
                program = torch.export.export(module.eval(), shown, dynamic_shapes=(DYNAMIC,) * len(shown))
        except Exception:  # of many types: torch exports it for one number of inputs alone
            made.noted("plain")
            return module
        return program if form == "program" else program.module()
    return module


def _shown(made: Draw, module: nn.Module, tensors: list[Tensor], names: list[str] | None) -> Any:
    """The example as compile gets it."""
    if isinstance(module, Three) or (names and made.chance(0.3)):
        made.noted("example by names")
        return dict(made.random.sample([*zip(names, tensors, strict=True)], len(names)))
    if len(tensors) == 1 and made.chance(0.7):
        return tensors[0]
    return made.one([tuple, list])(tensors)
