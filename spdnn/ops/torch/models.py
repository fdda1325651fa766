"""Whole models: sparsify makes the layers sparse that gain by it, restore the same ones again, and fuse folds batch
normalisations into the convolutions before them.
"""

import math
import operator
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.core.numbers import real, whole
from spdnn.ops.torch import dense_layers
from spdnn.ops.torch.copies import copy_inputs, copy_module, random_states_kept, reachable
from spdnn.ops.torch.dense_weight import DenseWeight
from spdnn.ops.torch.modules import SparseConv2d, SparseLinear, SparseWeight, unsuitable

KINDS: dict[type, type] = {nn.Linear: SparseLinear, nn.Conv2d: SparseConv2d}  # exactly these: subclasses mean more
MEASURED_ROUNDS, LEAST_SECONDS = 5, 2e-3  # of measuring: how often both take turns, and how long a turn is at least
# Of an input where no example is given: the height and width of a convolution's, and rows of a Linear layer's.
EXAMPLE_SIDE, EXAMPLE_ROWS = 14, 64
MIN_SIZE = 16_384  # weights
NORMS = {nn.Conv1d: nn.BatchNorm1d, nn.Conv2d: nn.BatchNorm2d, nn.Conv3d: nn.BatchNorm3d, SparseConv2d: nn.BatchNorm2d}

Span = tuple[int, int]

_measured: dict[tuple, tuple[float, float]] = {}


class LayerRow(NamedTuple):
    """A layer: what became of it.

    Attributes:
        name, kind: of the module; shape: (out, in); sparsity: of what it is, or would be.
        replaced: whether it is sparse now; reason: why, or why not.
        dense, sparse: seconds of a call, where they were measured.
    """

    name: str
    kind: str
    shape: tuple[int, int]
    sparsity: float
    replaced: bool
    reason: str
    dense: float | None = None
    sparse: float | None = None


@dataclass(frozen=True)
class _Rules:
    """Which layers become sparse: see `sparsify`; owners: by the id of a parameter, the modules that hold it."""

    sparsity: float | None
    min_size: int
    measure: bool
    owners: Mapping[int, set[nn.Module]]


class Table(tuple[LayerRow, ...]):
    """The rows of all layers that have weights of two dimensions or four; as text, a table."""

    @property
    def replaced(self) -> list[str]:
        """Names of the layers that are sparse now."""
        return [row.name for row in self if row.replaced]

    def __str__(self) -> str:
        head = ("layer", "kind", "out x in", "sparsity", "", "dense ms", "sparse ms", "why")
        lines = [head]
        for row in self:
            times = (f"{1e3 * seconds:.3f}" if seconds is not None else "-" for seconds in (row.dense, row.sparse))
            done = "replaced" if row.replaced else "left"
            size = f"{row.shape[0]} x {row.shape[1]}"
            lines.append((row.name, row.kind, size, f"{row.sparsity:.1%}", done, *times, row.reason))
        widths = [max(len(line[i]) for line in lines) for i in range(len(head) - 1)]
        return "\n".join(
            "  ".join((*(f"{c:<{w}}" for c, w in zip(line, widths, strict=False)), line[-1])) for line in lines
        )


def sparsify(
    model: nn.Module,
    sparsity: float | None = None,
    *,
    min_size: int = MIN_SIZE,
    exclude: Iterable[str] = (),
    inputs: Any = None,
    measure: bool = True,
    quiet: bool = False,
) -> Table:
    """Replace, in place, the Linear and 1 x 1 Conv2d layers that are faster sparse.

    Both forms of a layer are timed beside each other, once for each shape, sparsity and number of threads. What stays
    dense stays as it was. An optimiser that was made before holds the old parameters: make it anew. Masks and
    parametrizations are part of what a sparse layer is made of (see SparseLinear.from_dense). Layers whose weights are
    sparse tensors of torch are replaced untimed.

    Args:
        sparsity: the part of each layer's weights that becomes zero, the smallest ones, 0 to below 1; None: the layers
            are pruned already, by torch's masks or by zeros.
        min_size: weights that a layer has at least.
        exclude: names of layers that stay, as in named_modules(); `*` stands for anything.
        inputs: an input of the model, or a tuple of several. A copy of the model is run once on copies of them, without
            gradients, so that layers are timed on the shapes that they get; by default on 64 rows, and on one image of
            14 x 14. A model with lazy layers is run itself, which gives them their weights.
        measure: False: every suitable layer is replaced, untimed.
        quiet: do not print the table.

    Raises:
        InputError: no module, a layer that is the whole model, an option out of range, a name in `exclude` that no
            layer has, or, with inputs, a model that cannot be copied.
    """
    sparsity, min_size = _check(model, sparsity, min_size)
    modules = dict(model.named_modules(remove_duplicate=False))
    exclude = [exclude] if isinstance(exclude, str) else list(exclude)
    for pattern in exclude:
        if not any(fnmatchcase(name, pattern) for name in modules):
            raise InputError(f"exclude: the model has no layer {pattern!r}")
    layers = {name: module for name, module in modules.items() if isinstance(module, tuple(KINDS))}
    rules = _Rules(sparsity, min_size, measure, _owners(modules))
    shapes = _shapes(model, layers, inputs) if inputs is not None else {}
    rows, replacements = [], {}
    for name, layer in layers.items():
        excluded = any(fnmatchcase(name, pattern) for pattern in exclude)
        row, sparse = _judge(name, layer, rules, excluded, shapes.get(name), replacements.get(layer))
        rows.append(row)
        if sparse is not None:
            replacements[layer] = sparse
            _put(model, name, sparse)
    table = Table(rows)
    if not quiet:
        print(table)
    return table


def restore(model: nn.Module, state: Mapping[str, Any]) -> nn.Module:
    """Load a state_dict of a sparsified model into a dense one of the same architecture: the same layers become sparse.

    Nothing is measured, so that a file means the same model on every machine. Returns `model`, changed in place.

    Raises:
        InputError: a sparse layer of the state that has no layer, or another kind or shape, in the model.
        RuntimeError: torch's, of what is missing or left over.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    replacements: dict[nn.Module, nn.Module] = {}
    for name in sorted(key.removesuffix(".columns") for key in state if key.endswith(".columns")):
        if f"{name}.values" not in state or f"{name}.offsets" not in state:
            continue
        layer = modules.get(name)
        if isinstance(layer, tuple(KINDS.values())):
            continue
        if _kind(layer) is None or (isinstance(layer, nn.Conv2d) and unsuitable(layer)):
            there = "no such layer" if layer is None else f"a {type(layer).__name__} there"
            raise InputError(f"the state has a sparse layer {name!r}, and the model has {there}")
        rows = len(state[f"{name}.offsets"]) - 1
        if rows != (outputs := dense_layers.size(layer)[0]):
            raise InputError(f"the state's layer {name!r} has {rows} outputs, and the model's {outputs}")
        if layer not in replacements:  # one layer may have several names
            replacements[layer] = _kind(layer).from_dense(layer, 0.0)
        _put(model, name, replacements[layer])
    model.load_state_dict(state)
    return model


def _check(model: Any, sparsity: Any, min_size: Any) -> tuple[float | None, int]:
    """(sparsity, min_size) as numbers of Python; raises InputError as sparsify."""
    if not isinstance(model, nn.Module):
        raise InputError(f"model is a {type(model).__name__}; it must be a torch.nn.Module")
    if kind := _kind(model):
        raise InputError(
            f"the model is one layer, which cannot be replaced in place; {kind.__name__}.from_dense makes a sparse one"
        )
    part, least = real(sparsity), whole(min_size)
    if sparsity is not None and (part is None or not 0 <= part < 1):
        raise InputError(f"sparsity {sparsity!r}: it must be a number from 0 to below 1, or None")
    if least is None or least < 0:
        raise InputError(f"min_size {min_size!r}: it must be a whole number from 0")
    return part, least


def _owners(modules: Mapping[str, nn.Module]) -> dict[int, set[nn.Module]]:
    """By the id of a parameter, the modules that hold it."""
    owners: dict[int, set[nn.Module]] = {}
    for module in modules.values():
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), set()).add(module)
    return owners


def _judge(
    name: str, layer: nn.Module, rules: _Rules, excluded: bool, shape: tuple | None, replacement: nn.Module | None
) -> tuple[LayerRow, nn.Module | None]:
    """The row of a layer, and what replaces it."""

    def row(replaced: bool, reason: str, sparsity: float = 0.0, *times: float) -> LayerRow:
        return LayerRow(name, type(layer).__name__, dense_layers.size(layer), sparsity, replaced, reason, *times)

    if replacement is not None:
        return row(True, "the same layer under another name", replacement.sparsity), replacement
    reason = "excluded" if excluded else _reason(layer, rules)
    if reason:
        return row(False, reason), None
    try:
        sparse = _kind(layer).from_dense(layer, rules.sparsity)
    except InputError as error:
        return row(False, str(error)), None
    zeros = sparse.sparsity
    if not zeros:
        return row(False, "no weight is zero or masked; give a sparsity"), None
    if dense_layers.is_sparse(layer):
        return row(True, "its weight was a sparse tensor of torch; not measured", zeros), sparse
    if not rules.measure:
        return row(True, "not measured", zeros), sparse
    times = dense_time, sparse_time = _times(layer, sparse, shape)
    ratio = dense_time / sparse_time
    if ratio <= 1:
        return row(False, f"dense is {1 / ratio:.2f} times as fast", zeros, *times), None
    return row(True, f"{ratio:.2f} times as fast", zeros, *times), sparse


def _kind(layer: Any) -> Any:
    """The sparse kind of a layer; None where it has none."""
    return KINDS.get(parametrize.type_before_parametrizations(layer))


def _reason(layer: nn.Module, rules: _Rules) -> str | None:
    """Why a layer cannot be replaced; None: it can."""
    if dense_layers.is_lazy(layer):
        return f"a {type(layer).__name__} has no weights before its first call; call the model once"
    if _kind(layer) is None:
        return f"a {type(layer).__name__} may mean more than its base class"
    if isinstance(layer, nn.Conv2d) and (why := unsuitable(layer)):
        return why
    if (weights := math.prod(dense_layers.size(layer))) < max(rules.min_size, 1):
        return f"{weights:,} weights; min_size is {rules.min_size:,}"
    others = {owner for parameter in layer.parameters() for owner in rules.owners[id(parameter)]} - {*layer.modules()}
    if others:
        return f"its parameters are shared with a {type(next(iter(others))).__name__}"
    if layer.training and dense_layers.is_normalised(layer):
        return "training would lose its parametrization, such as weight_norm; call eval() first"
    return dense_layers.unknown(layer)


def _shapes(model: nn.Module, names: Iterable[str], inputs: Any) -> dict[str, tuple]:
    """By the name of a layer, (shape, whether it is channels last) of what it is given first."""
    shapes: dict[nn.Module, tuple] = {}

    def note(layer: nn.Module, given: tuple) -> None:
        if given and isinstance(given[0], Tensor):
            last = given[0].dim() == 4 and given[0].is_contiguous(memory_format=torch.channels_last)
            shapes.setdefault(layer, (tuple(given[0].shape), last and not given[0].is_contiguous()))

    if any(nn.parameter.is_lazy(parameter) for parameter in model.parameters()):
        training = {module: module.training for module in model.modules()}
        try:
            _call(model.eval(), inputs)  # which gives its layers their weights
        finally:
            for part, mode in training.items():
                part.training = mode
    with random_states_kept(model, inputs):
        copied = copy_module(model, "sparsify runs a copy of the model on inputs").eval()
        dense_layers.fill_sparse(copied)
        layers = {name: copied.get_submodule(name) for name in names}
        for layer in {*layers.values()}:
            layer.register_forward_pre_hook(note)
        _call(copied, inputs)
    return {name: shapes[layer] for name, layer in layers.items() if layer in shapes}


@torch.no_grad()
def _call(model: nn.Module, inputs: Any) -> None:
    """Run a model on copies of inputs."""
    copied = copy_inputs(inputs)
    model(*copied) if isinstance(copied, tuple) else model(copied)


def _times(dense: nn.Module, sparse: nn.Module, shape: tuple | None) -> tuple[float, float]:
    """Seconds of a call of both, the best of some turns; measured once for what is alike."""
    if shape is None:
        linear = isinstance(dense, nn.Linear)
        shape = ((EXAMPLE_ROWS, sparse.width) if linear else (1, sparse.width, EXAMPLE_SIDE, EXAMPLE_SIDE)), False
    values, threads = sparse.values, torch.get_num_threads()
    stride = getattr(sparse, "stride", None)
    key = (type(sparse), sparse.rows, round(20 * sparse.sparsity), stride, *shape, values.dtype, values.device, threads)
    if key not in _measured:
        random = torch.Generator(values.device).manual_seed(0)
        x = torch.randn(shape[0], dtype=values.dtype, device=values.device, generator=random)
        x = x.to(memory_format=torch.channels_last) if shape[1] else x
        attributes = dict(vars(dense))
        with torch.no_grad():
            _measured[key] = _beside(lambda: dense(x), lambda: sparse(x), values.is_cuda)
        vars(dense).update(attributes)  # a mask computes the weight again at each call, without gradients here
    return _measured[key]


def _beside(first: Callable[[], Any], other: Callable[[], Any], wait: bool) -> tuple[float, float]:
    def seconds(call: Callable[[], Any], times: int) -> float:
        began = time.perf_counter()
        for _ in range(times):
            call()
        if wait:
            torch.cuda.synchronize()
        return (time.perf_counter() - began) / times

    best, counts = [], []
    for call in (first, other):
        seconds(call, 1)  # settings are found, buffers made
        best.append(seconds(call, 1))
        counts.append(max(1, min(100, round(LEAST_SECONDS / best[-1]))))
    for _ in range(MEASURED_ROUNDS):
        for k, call in enumerate((first, other)):
            best[k] = min(best[k], seconds(call, counts[k]))
    return best[0], best[1]


def _put(model: nn.Module, name: str, layer: nn.Module) -> None:
    *path, last = name.split(".")
    parents = [model.get_submodule(".".join(path[:depth])) for depth in range(len(path) + 1)]
    parent = parents[-1]
    setattr(parent, last, layer)
    for above in parents:
        if isinstance(above, nn.TransformerEncoder):
            above.use_nested_tensor = False  # which its first layer, where that is dense, makes of padded inputs
    if isinstance(parent, nn.TransformerEncoderLayer):
        parent.activation_relu_or_gelu = 0  # its fast path in evaluation reads dense weights


class _Tracer(fx.Tracer):
    """Layers of ours are leaves, as those of torch are. Parameters that a forward reads are themselves."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, SparseWeight) or super().is_leaf_module(m, module_qualified_name)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val


class _Reads(TorchFunctionMode):
    """Notes the memory of the tensors whose numbers functions of torch are given, or whose attributes alone."""

    def __init__(self):
        super().__init__()
        self.numbers: set[Span] = set()
        self.attributes: set[Span] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        notes = self.attributes if getattr(func, "__name__", "") == "__get__" else self.numbers
        notes.update(_spans(tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))


def _spans(values: Iterable[Any]) -> Iterator[Span]:
    """(first byte, last byte) of the memory of plain tensors."""
    with torch._C.DisableTorchFunction():
        for value in values:
            value = value.source if isinstance(value, DenseWeight) else value
            if type(value) in (Tensor, nn.Parameter) and value.layout == torch.strided and value.numel():
                last = sum((count - 1) * stride for count, stride in zip(value.shape, value.stride(), strict=True))
                start = value.data_ptr()
                yield start, start + value.element_size() * (last + 1)


def fuse(model: nn.Module) -> list[str]:
    """Fold each batch normalisation into the convolution whose output it alone takes, in place.

    Its place is taken by nn.Identity. What the model computes stays the same, but for rounding; how a BatchNorm learns
    is gone, so this is for a model that is trained. Left as they are: a normalisation without running statistics, and
    layers that are called twice, have hooks (torch's pruning masks: take them away with torch.nn.utils.prune.remove,
    or by sparsify), or whose parameters or statistics are also held or read by something else.

    Args:
        model: in mode eval. Its forward must be one that torch.fx can trace: no branch that hangs on values.

    Returns:
        the names of the normalisations that were folded.

    Raises:
        InputError: a model in training, or one that cannot be copied or traced.
    """
    if model.training:
        raise InputError("the model is in training, where a BatchNorm takes the batch's statistics; call eval() first")
    traced = copy_module(model, "fuse traces a copy of the model")  # in which a forward may leave stand-ins for tensors
    try:
        with random_states_kept(model), _Reads() as reads:
            graph = _Tracer().trace(traced)
    except Exception as error:  # of the model's own code, any
        raise InputError(f"the model cannot be traced by torch.fx ({safe_open.brief(error)})") from error
    held = [*_spans(value for _, value in reachable(model))]  # by modules, attributes and views
    constants = (node.target for node in graph.nodes if node.op == "get_attr")
    read = reads.numbers.union(_spans(operator.attrgetter(name)(traced) for name in constants))
    modules, copies = dict(model.named_modules()), dict(traced.named_modules())
    calls = Counter(id(modules[node.target]) for node in graph.nodes if node.op == "call_module")

    def alone(name: str, read: Iterable[Span]) -> bool:
        """Whether a change of the module is one of this place alone, and its weights are what it computes with."""
        module = modules[name]
        changed = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
        if changed or hasattr(module, "parametrizations") or calls[id(module)] != 1:
            return False
        return _most(module, held) <= 1 and not _most(copies[name], read)

    names = []
    for node in graph.nodes:
        before = node.args[0] if node.op == "call_module" and node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        norm, layer = modules[node.target], modules[before.target]
        pair = type(norm) is NORMS.get(type(layer)) and norm.running_mean is not None and not norm.training
        if pair and alone(node.target, read | reads.attributes) and alone(before.target, read):
            _fold(layer, norm)
            model.set_submodule(node.target, nn.Identity())
            names.append(node.target)
    return names


def _most(module: nn.Module, spans: Iterable[Span]) -> int:
    """How many spans overlap a parameter or buffer of a module, at most."""
    own = _spans([*module.parameters(recurse=False), *module.buffers(recurse=False)])
    return max((sum(first < end and start < last for first, last in spans) for start, end in own), default=0)


@torch.no_grad()
def _fold(layer: nn.Module, norm: nn.Module) -> None:
    weights = layer.values if isinstance(layer, SparseWeight) else layer.weight
    scale = torch.rsqrt(norm.running_var.double() + norm.eps)
    scale = scale if norm.weight is None else scale * norm.weight
    shift = -norm.running_mean * scale
    shift = shift if norm.bias is None else shift + norm.bias
    if layer.bias is not None:
        shift += layer.bias * scale
        layer.bias.copy_(shift)
    else:
        layer.bias = nn.Parameter(shift.to(weights.dtype), weights.requires_grad)
    # A weight is multiplied by the scale of its output.
    if isinstance(layer, SparseWeight):
        scale = scale.repeat_interleave(layer.offsets.diff())
    else:
        scale = scale.view(-1, *[1] * (weights.dim() - 1))
    weights.copy_(weights * scale)
