"""PyTorch modules as ONNX models, which torch.onnx writes."""

import contextlib
import inspect
import itertools
import logging
import random
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.export.dynamic_shapes import ShapesCollection
from torch.utils._pytree import tree_leaves

from spdnn.core import arrays, closeness
from spdnn.core.errors import InputError, SpdnnError, Unavailable, install
from spdnn.core.locks import Lock
from spdnn.core.shown import listed, plural
from spdnn.core.validation import shorten
from spdnn.ops.onnx_trial import alike, rounding_of
from spdnn.ops.torch.copies import copy_module, held_values, random_states_kept, same
from spdnn.ops.torch.dense_layers import fill_sparse
from spdnn.ops.torch.modules import SparseConv2d, SparseLinear

COUNTS, MOST_COMPARED = (1, 2, 3), 16  # numbers of inputs that are compared, and the largest that is drawn besides
WIDEST = 4096  # inputs: a limit of torch's export that lies below is looked at from its other side
HALF = (torch.float16, torch.bfloat16)  # computed in float32
NAMED = 3  # tensors in a sentence
MOST_JUMPS = 0.5  # of the values, that a small difference made large ones of
NORMAL_REACH = 16  # times what a module makes of inputs that are off by rounding
LOGGERS = ("torch", "onnxscript", "onnx_ir")
# Classes of torch that run a module of the user's, which is this part of them.
WRAPPED = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
_exporting = Lock()  # torch.export replaces methods of nn.Module while it runs: one at a time


@dataclass(frozen=True)
class Exported:
    """A module as an ONNX model.

    Attributes:
        path: of the ONNX model, for any number of inputs; name: of the module's class.
        inputs: what the module was exported with, by the order of its arguments.
        calls: inputs, of several counts, and what the module gives for them; call: the copy of it that is called.
        refused: why the module itself cannot be called, by the count of the inputs.
    """

    path: Path
    name: str
    inputs: tuple[Tensor, ...]
    calls: list[tuple[tuple[Tensor, ...], Any]]
    refused: dict[int, str]
    call: Callable[[tuple[Tensor, ...]], Any]

    def compare(self, model: Any) -> str:
        """Compare what a compiled model gives with what the module gives, at each count of inputs. More than rounding
        may lie between them where the module itself gives as much when its inputs are off by rounding, and in less than
        half of the values where one of its operators may make a large difference of a small one.

        Returns:
            a sentence on the counts that were compared.

        Raises:
            InputError: they differ by more than rounding at one of the counts.
        """
        for inputs, expected in self.calls:
            if why := self._difference(model, inputs, expected):
                raise InputError(
                    f"{self.name}: compiled, it {why} with {plural(len(inputs[0]), 'input')}; its forward may hang on "
                    "their number, which a compiled model does not follow; verify=False takes what torch.onnx exports"
                )
        told = f"compared with {self.name} at {listed([str(len(inputs[0])) for inputs, _ in self.calls])} inputs"
        refused = (f"not at {count}, where it ends itself ({why})" for count, why in self.refused.items())
        return "; ".join([told, *refused])

    def _difference(self, model: Any, inputs: tuple[Tensor, ...], expected: Any) -> str | None:
        """In which way a compiled model does not give what the module gives."""
        try:
            actual = model(*inputs)
        except SpdnnError as error:
            return f"cannot be called ({_why(error)})"
        # Outputs within outputs, and mappings, are flattened by the export too; those of tensors alone are as many.
        flat, leaves = list(actual) if isinstance(actual, tuple | list) else [actual], tree_leaves(expected)
        if len(flat) != len(leaves) and all(isinstance(leaf, Tensor) for leaf in leaves):
            return f"gives {plural(len(flat), 'output')}, and itself {len(leaves)},"
        for place, (found, leaf) in enumerate(zip(flat, leaves, strict=False)):
            if not isinstance(leaf, Tensor):
                continue
            one, other = arrays.host(found, self.name), arrays.host(leaf, self.name)
            if one.shape != other.shape:
                return f"gives an output of shape {one.shape}, and itself {other.shape},"
            share = _share_apart(one, other, 0.0)
            if share > (MOST_JUMPS if model.jumps else 0) and _share_apart(
                one, other, self._reach(inputs, place, leaf)
            ):
                return "gives other numbers than itself"
        return None

    def _reach(self, inputs: tuple[Tensor, ...], place: int, fixed: Tensor) -> float:
        """By how much the output at that place, which is `fixed`, may change when inputs are off by rounding."""

        def change(seed: int) -> float:
            generator, nudged = torch.Generator("cpu").manual_seed(seed), []
            for x in inputs:
                if x.is_floating_point():
                    off = torch.rand(x.shape, generator=generator, device="cpu").to(x) - 0.5
                    x = x + 2 * torch.finfo(x.dtype).eps * off * x
                nudged.append(x)
            with contextlib.suppress(Exception):  # of any kind: the module's own code runs
                return float((tree_leaves(self.call(tuple(nudged)))[place].double() - fixed.double()).abs().max())
            return 0.0

        with _usual_modes(inputs):
            *_, second, _ = sorted(map(change, range(5)))  # one may have met a jump
        return NORMAL_REACH * second


@contextlib.contextmanager
def export(module: nn.Module | ExportedProgram, example: Any = None, several: bool = True) -> Iterator[Exported]:
    """Export a module in inference to ONNX, for any number of inputs; the file is removed at the end.

    A copy of the module is run on copies of the example, and then exported. The module, the example and the random
    states of torch, NumPy and Python stay as they are, and other threads may call the module meanwhile. Under autocast
    it is exported as without.

    Args:
        module: its forward may write into its inputs; it may fill buffers at its first call. Sparse layers of
            spdnn.torch are exported with their weights. What torch.compile, DataParallel or
            DistributedDataParallel made of a module is that module; an ExportedProgram may be one.
        example: a tensor that the module takes, a tuple of several, or a mapping of the names of its arguments to them,
            of two inputs or more; not needed where a Linear layer comes first, or of an ExportedProgram.
        several: call the module also with other numbers of inputs, rows of the example, to compare them.

    Raises:
        InputError: the module cannot be copied or called, its outputs depend on the calls before or on random numbers,
            or torch cannot trace or export it.
        Unavailable: the package onnxscript is missing.
    """
    module, name, example = _unwrapped(module, example)
    if isinstance(module, torch.jit.ScriptModule):
        raise InputError(
            f"{name}: torch.onnx cannot export TorchScript for any number of inputs; give the module of it"
        )
    inputs, names = _inputs(name, module, example)
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise Unavailable(f"{name}: the package onnxscript is missing; {install('torch')} brings it") from error
    with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
        path = Path(folder, "model.onnx")
        with random_states_kept(module, inputs) as restore, _silent(), _usual_modes(inputs):

            def fresh() -> _Call:
                copied = fill_sparse(copy_module(module, "compile exports a copy of a module").eval())
                if any(parameter.dtype in HALF for parameter in copied.parameters()):
                    copied.float()
                return _Call(copied, names)

            copied = (call := fresh()).module
            calls, refused = [(inputs, _called(name, call, fresh, inputs, restore))], {}
            dense = _Call(_dense(copied), names)
            try:
                written, limits = _write(dense, inputs, path)
            except Exception as error:  # of any kind: the module's own code runs
                why = _fixed_count(copied) or _why(_root(error))
                raise InputError(f"{name}: torch.onnx cannot export it for any number of inputs ({why})") from error
            if written:
                raise _refusal(name, written)
            for count in _counts(len(inputs[0]), limits) if several else ():
                rows = _rows(inputs, count)
                restore()
                try:
                    calls.append((rows, dense(rows)))
                except Exception as error:  # of any kind: the module's own code runs
                    refused[count] = _why(error)
        yield Exported(path, name, inputs, calls, refused, dense)


class _Call(NamedTuple):
    """A module, and the names of the arguments that are given by name, which come last."""

    module: nn.Module
    names: tuple[str, ...]

    def split(self, inputs: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Inputs as (those by place, those by name)."""
        places = len(inputs) - len(self.names)
        return inputs[:places], dict(zip(self.names, inputs[places:], strict=True))

    def __call__(self, inputs: tuple[Tensor, ...]) -> Any:
        """What the module gives for clones of inputs, into which it may write."""
        places, named = self.split(tuple(tensor.clone() for tensor in inputs))
        return self.module(*places, **named)


def _unwrapped(module: Any, example: Any) -> tuple[nn.Module, str, Any]:
    """(the module that is exported, the name of its class, the example)."""
    if isinstance(module, ExportedProgram):
        places, named = module.example_inputs or ((), {})
        if example is None and all(isinstance(given, Tensor) for given in (*places, *named.values())):
            example = named if named and not places else places
        return module.module(), type(module).__name__, example
    # What runs the module of a user on several devices, or compiles it, has none of its own numbers.
    while isinstance(inner := getattr(module, WRAPPED.get(type(module).__name__, ""), None), nn.Module):
        module = inner
    return module, type(module).__name__, example


def _fixed_count(module: nn.Module) -> str | None:
    """That a module of torch.export takes one number of inputs alone, if it does."""
    for node in module.graph.nodes if isinstance(module, fx.GraphModule) else ():
        shown = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(shown, Tensor) and shown.dim() and type(shown.shape[0]) is int:
            return (
                f"torch.export made it for {plural(shown.shape[0], 'input')} alone, and with "
                "dynamic_shapes=({0: torch.export.Dim.DYNAMIC},) makes it for any"
            )
    return None


@contextlib.contextmanager
def _usual_modes(inputs: Iterable[Tensor]) -> Iterator[None]:
    """Without inference mode, gradients and autocast, in which the caller may be."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.no_grad())
        for kind in {"cpu", *(tensor.device.type for tensor in inputs)}:
            stack.enter_context(torch.autocast(kind, enabled=False))
        yield


def _counts(shown: int, limits: Iterable[int]) -> list[int]:
    """The numbers of inputs to compare besides that of the example: few, one that is drawn, and those at `limits`."""
    drawn = random.Random().choice([*{*range(max(COUNTS) + 1, MOST_COMPARED + 1)} - {shown}])  # the user's state stays
    return sorted({*COUNTS, drawn, *limits} - {shown})


def _rows(inputs: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    """So many rows of each input, the first ones, and then drawn ones; another length than the first's is no count."""
    whole = len(inputs[0])
    generator, more = torch.Generator("cpu").manual_seed(count), max(0, count - whole)
    drawn = torch.randint(whole, (more,), generator=generator, device="cpu")
    chosen = torch.cat([torch.arange(min(count, whole), device="cpu"), drawn])
    return tuple(tensor[chosen.to(tensor.device)] if len(tensor) == whole else tensor for tensor in inputs)


def _share_apart(one: np.ndarray, other: np.ndarray, reach: float) -> float:
    """The part of all values that differ by more than rounding, and than `reach`; whole numbers by anything."""
    if not other.size:
        return 0.0
    allowed = np.maximum(rounding_of(other), reach) if other.dtype.kind == "f" else 0
    return float(np.mean(~(closeness.excess(one, other, allowed, nan=True) <= 1)))


def _write(call: _Call, inputs: tuple[Tensor, ...], path: Path) -> tuple[dict[str, Any], set[int]]:
    """Write the ONNX model.

    Returns:
        by their names, the buffers into which a call writes; the numbers of inputs just outside of what the path that
        torch traced holds for.
    """
    sizes = ShapesCollection()
    for argument in inputs:
        sizes[argument][0] = torch.export.Dim.DYNAMIC
    places, named = call.split(inputs)
    shapes = sizes.dynamic_shapes(call.module, places, named)
    options = {"kwargs": named, "dynamo": True, "dynamic_shapes": shapes, "verbose": False}
    with _exporting, _in_this_thread(), _unprinted(), _plain_attention():
        program = torch.onnx.export(call.module, places, **options)
        _rename_inputs(program.model.graph)
        program.save(str(path), external_data=True)
    traced, buffers = program.exported_program, dict(call.module.named_buffers())
    ends = (((span.lower, -1), (span.upper, 1)) for span in traced.range_constraints.values())
    # A bound is a number of SymPy, and may be infinite.
    limits = {int(bound) + step for pair in ends for bound, step in pair if getattr(bound, "is_Integer", False)}
    written = {name: buffers.get(name) for name in traced.graph_signature.buffers_to_mutate.values()}
    return written, {count for count in limits if 0 < count <= WIDEST}


def _rename_inputs(graph: Any) -> None:
    """Inputs get the names of their arguments again, which torch.onnx gives to outputs that are inputs."""
    names = {value.name for node in graph for value in node.outputs}
    for value in graph.outputs:
        node = value.producer()
        if node is not None and node.op_type == "Identity" and node.inputs[0].name == f"{value.name}_orig":
            argument, taken = value.name, names | {value.name for value in graph.inputs}
            value.name = next(name for n in itertools.count() if (name := f"{argument}_{n}") not in taken)
            names.add(value.name)
            node.inputs[0].name = argument


@contextlib.contextmanager
def _in_this_thread() -> Iterator[None]:
    """While torch exports, it notes each call of a custom operator in one place for all threads, where calls of other
    threads collide (KeyError: 'custom'): only this thread's are noted."""
    from torch._dynamo import eval_frame

    here, notes = threading.get_ident(), getattr(eval_frame, "fx_traceback", None)

    def annotate(annotations: dict[str, Any]) -> Any:
        return notes.annotate(annotations) if threading.get_ident() == here else contextlib.nullcontext()

    if notes is None:  # another version of torch
        yield
        return
    eval_frame.fx_traceback = types.SimpleNamespace(**{**vars(notes), "annotate": annotate})
    try:
        yield
    finally:
        eval_frame.fx_traceback = notes


@contextlib.contextmanager
def _unprinted() -> Iterator[None]:
    """Without the graph that torch.export prints to standard error where it fails."""
    from torch.export import _trace

    vars(_trace)["print"] = lambda *words, **options: None
    try:
        yield
    finally:
        vars(_trace).pop("print", None)


@contextlib.contextmanager
def _plain_attention() -> Iterator[None]:
    """Without torch's fused operators of attention and encoder layers, of which ONNX has none."""
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what the exporters log: packages that are missing, and what failed, which the exception says too."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _inputs(name: str, module: nn.Module, example: Any) -> tuple[tuple[Tensor, ...], tuple[str, ...]]:
    """(The example as copies, in float32 where it is in half precision, or random numbers; the names of those that are
    given by name, which come last)."""
    if any(nn.parameter.is_lazy(tensor) for tensor in itertools.chain(module.parameters(), module.buffers())):
        raise InputError(f"{name}: a lazy layer has no weights before its first call; call the module once")
    if example is None:
        linear = nn.Linear | SparseLinear  # whose parametrizations, such as weight_norm, are modules in it
        leaves = (one for one in module.modules() if isinstance(one, linear) or not list(one.children()))
        first = next((leave for leave in leaves if not isinstance(leave, nn.Identity | nn.Dropout)), None)
        if not isinstance(first, linear):
            raise InputError(
                f"{name}: its first layer is no Linear: give an input of it (example=), two of them or more"
            )
        generator = torch.Generator("cpu").manual_seed(0)
        drawn = torch.randn(2, first.in_features, generator=generator, device="cpu")
        example = drawn.to(next(first.parameters()))
    several, names = tuple(example) if isinstance(example, tuple | list) else (example,), ()
    if isinstance(example, Mapping):
        try:
            bound = inspect.signature(module.forward).bind(**example)
        except TypeError as error:
            raise InputError(f"example: {name} takes other arguments ({_why(error)})") from error
        several, names = (*bound.args, *bound.kwargs.values()), tuple(bound.kwargs)
    if not several or not all(isinstance(tensor, Tensor) and tensor.dim() and len(tensor) > 1 for tensor in several):
        raise InputError(
            "example: a tensor of two inputs or more, as the module takes them, a tuple of such, or a mapping of names"
        )
    copies = (tensor.detach().clone() for tensor in several)
    return tuple(tensor.float() if tensor.dtype in HALF else tensor for tensor in copies), names


def _called(
    name: str, module: _Call, fresh: Callable[[], _Call], inputs: tuple[Tensor, ...], restore: Callable[[], None]
) -> Any:  # fmt: skip
    """The module's outputs, after calls that fill what its first call fills.

    Args:
        fresh: makes another copy, which was not called yet.

    Raises:
        InputError: it cannot be called; its state or its outputs depend on the calls before.
    """

    def call(again: bool = True, module: _Call = module) -> Any:
        if again:
            restore()  # so that a module that draws numbers draws the same ones
        try:
            return module(inputs)
        except Exception as error:  # of any kind: the module's own code runs
            raise InputError(f"{name}: it cannot be called with the example ({_why(error)})") from error

    before, first, states = held_values(module.module), held_values(call()), [held_values(module.module)]
    # Between two calls on the same inputs, one on others: a state that follows the inputs differs afterwards.
    _call_with_others(module, inputs)
    states.append(held_values(module.module))
    outputs = call()
    again, after = held_values(outputs), held_values(module.module)
    drawn = held_values(call(again=False))
    # What the second call left differs in a record of the latest input, which is a state only where outputs show it.
    kept = _changed(states[0], after)
    if any(isinstance(value, Tensor | np.ndarray) for value in kept.values()):
        raise _refusal(name, kept)
    if not all(_alike(name, value, again.get(key)) for key, value in first.items()):
        raise _refusal(name, _changed(states[1], after) | kept)
    if not all(_alike(name, value, drawn.get(key)) for key, value in again.items()):
        # With the same random numbers twice: what differs then is a state that comes back after some calls.
        one, there = held_values(call()), held_values(module.module)
        other, after = held_values(call()), held_values(module.module)
        if not all(_alike(name, value, other.get(key)) for key, value in one.items()):
            raise _refusal(name, _changed(there, after))
        raise InputError(
            f"{name}: its outputs hang on random numbers that each call draws, and a compiled model draws none; draw "
            "none in inference, as nn.Dropout does after eval()"
        )
    # What the first call fills may be of its inputs: another copy, whose first inputs are others, tells.
    if filled := _changed(before, states[0]):
        _call_with_others(other_copy := fresh(), inputs)
        others = held_values(call(module=other_copy))
        if not all(_alike(name, value, others.get(key)) for key, value in again.items()):
            raise _refusal(name, filled, "its first call fills")
    return outputs


def _call_with_others(module: _Call, inputs: tuple[Tensor, ...]) -> None:
    """Call it with other numbers and another order, or the other order alone; a module may refuse both, and on a GPU
    numbers that are out of range would end its context."""
    for factor in (2, 1):
        others = [tensor.flip(0) for tensor in inputs]
        with contextlib.suppress(Exception):  # of any kind: the module's own code runs
            module(tuple(each * factor if each.is_cpu and each.is_floating_point() else each for each in others))
            break


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**before, **after}.items() if not same(before.get(key), after.get(key))}


def _refusal(name: str, changed: Mapping[str, Any], what: str = "each call changes its") -> InputError:
    """The sentence for a module that has a state: tensors of it, or else numbers, by their names."""
    tensors = [key for key, value in changed.items() if isinstance(value, Tensor | np.ndarray)]
    names = listed(tensors or [*changed], NAMED)
    why = f"{what} {names}" if names else "a call depends on earlier ones"
    return InputError(
        f"{name}: {why}, and a compiled model has no state; take it as an input and return it as an output, or leave "
        "it alone in inference"
    )


def _root(error: BaseException) -> BaseException:
    """The exception that it began with."""
    return _root(error.__cause__) if error.__cause__ else error


def _why(error: BaseException) -> str:
    return shorten(str(error), 150) or type(error).__name__


def _alike(name: str, one: Any, other: Any) -> bool:
    """Whether two outputs are the same but for rounding; what is no tensor is not compared."""
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return isinstance(one, Tensor) == isinstance(other, Tensor)
    return alike(arrays.host(one, name), arrays.host(other, name))


def _dense(module: nn.Module) -> nn.Module:
    """The module, in which dense layers take the place of sparse ones; of a sparse layer, a dense one."""
    whole = nn.ModuleList([module])
    named = dict(whole.named_modules(remove_duplicate=False))
    sparse = {name: layer for name, layer in named.items() if isinstance(layer, SparseLinear | SparseConv2d)}
    dense = {layer: layer.to_dense() for layer in sparse.values()}
    for name, layer in sparse.items():
        whole.set_submodule(name, dense[layer])
    return whole[0]
