"""PyTorch modules as ONNX models, which torch.onnx writes."""

import contextlib
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
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export.dynamic_shapes import ShapesCollection

from spdnn.core import arrays
from spdnn.core.errors import InputError, SpdnnError, Unavailable, install
from spdnn.core.locks import Lock
from spdnn.core.shown import listed, plural
from spdnn.core.validation import shorten
from spdnn.ops.onnx_trial import alike
from spdnn.ops.torch.copies import copy_module, held_values, random_states_kept, same
from spdnn.ops.torch.dense_layers import fill_sparse
from spdnn.ops.torch.modules import SparseConv2d, SparseLinear

COUNTS, MOST = (1, 2, 3), 16  # numbers of inputs that are compared, and the largest that is drawn besides
WIDEST = 4096  # inputs: a limit of torch's export that lies below is looked at from its other side
HALF = (torch.float16, torch.bfloat16)  # computed in float32
NAMED = 3  # tensors in a sentence
_exporting = Lock()  # torch.export replaces methods of nn.Module while it runs: one at a time


@dataclass(frozen=True)
class Exported:
    """A module as an ONNX model.

    Attributes:
        path: of the ONNX model, for any number of inputs; name: of the module's class.
        inputs: what the module was exported with.
        calls: inputs, of several counts, and what the module gives for them.
        refused: why the module itself cannot be called, by the count of the inputs.
    """

    path: Path
    name: str
    inputs: tuple[Tensor, ...]
    calls: list[tuple[tuple[Tensor, ...], Any]]
    refused: dict[int, str]

    def compare(self, model: Any) -> str:
        """Compare what a compiled model gives with what the module gives, at each count of inputs; where a small
        difference may become a large one in it, only shapes.

        Returns:
            a sentence on the counts that were compared.

        Raises:
            InputError: they differ by more than rounding at one of the counts.
        """
        for inputs, expected in self.calls:
            if why := _difference(self.name, model, inputs, expected):
                raise InputError(
                    f"{self.name}: compiled, it {why} with {plural(len(inputs[0]), 'input')}; its forward may hang on "
                    "their number, which a compiled model does not follow; verify=False takes what torch.onnx exports"
                )
        told = f"compared with {self.name} at {listed([str(len(inputs[0])) for inputs, _ in self.calls])} inputs"
        refused = (f"not at {count}, where it ends itself ({why})" for count, why in self.refused.items())
        return "; ".join([told, *refused])


@contextlib.contextmanager
def export(module: nn.Module, example: Any = None, several: bool = True) -> Iterator[Exported]:
    """Export a module in inference to ONNX, for any number of inputs; the file is removed at the end.

    A copy of the module is run on copies of the example, and then exported. The module, the example and the random
    states of torch, NumPy and Python stay as they are, and other threads may call the module meanwhile.

    Args:
        module: its forward may write into its inputs; it may fill buffers at its first call. Sparse layers of
            spdnn.torch are exported with their weights.
        example: a tensor that the module takes, or a tuple of several, of two inputs or more; not needed where a Linear
            layer comes first.
        several: call the module also with other numbers of inputs, rows of the example, to compare them.

    Raises:
        InputError: the module cannot be copied or called, its outputs depend on the calls before or on random numbers,
            or torch cannot trace or export it.
        Unavailable: the package onnxscript is missing.
    """
    name = type(module).__name__
    inputs = _inputs(name, module, example)
    try:
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise Unavailable(f"{name}: the package onnxscript is missing; {install('torch')} brings it") from error
    with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
        path = Path(folder, "model.onnx")
        with random_states_kept(module, inputs) as restore, _silent(), torch.inference_mode(False), torch.no_grad():
            copied = fill_sparse(copy_module(module, "compile exports a copy of a module").eval())
            if any(parameter.dtype in HALF for parameter in copied.parameters()):
                copied.float()
            calls, refused = [(inputs, _called(name, copied, inputs, restore))], {}
            dense = _dense(copied)
            try:
                written, limits = _write(dense, inputs, path)
            except Exception as error:  # of any kind: the module's own code runs
                why = _why(error.__cause__ or error)
                raise InputError(f"{name}: torch.onnx cannot export it for any number of inputs ({why})") from error
            if written:
                raise _refusal(name, written)
            for count in _counts(len(inputs[0]), limits) if several else ():
                rows = _rows(inputs, count)
                restore()
                try:
                    calls.append((rows, dense(*(tensor.clone() for tensor in rows))))
                except Exception as error:  # of any kind: the module's own code runs
                    refused[count] = _why(error)
        yield Exported(path, name, inputs, calls, refused)


def _counts(shown: int, limits: Iterable[int]) -> list[int]:
    """The numbers of inputs to compare besides that of the example: few, one that is drawn, and those at `limits`."""
    drawn = random.Random().randint(max(COUNTS) + 1, MOST)  # of its own state: the user's stays
    return sorted({*COUNTS, drawn, *limits} - {shown})


def _rows(inputs: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    """So many rows of each input, the first ones, and then drawn ones; another length than the first's is no count."""
    whole = len(inputs[0])
    drawn = torch.randint(whole, (max(0, count - whole),), generator=torch.Generator().manual_seed(count))
    chosen = torch.cat([torch.arange(min(count, whole)), drawn])
    return tuple(tensor[chosen.to(tensor.device)] if len(tensor) == whole else tensor for tensor in inputs)


def _difference(name: str, model: Any, inputs: tuple[Tensor, ...], expected: Any) -> str | None:
    """In which way a compiled model does not give what the module gives."""
    try:
        actual = model(*inputs)
    except SpdnnError as error:
        return f"cannot be called ({_why(error)})"
    pairs = [(actual, expected)] if isinstance(expected, Tensor) else list(zip(actual, expected, strict=False))
    # Outputs within outputs are flattened by the export; those of plain tensors are as many.
    plain = not isinstance(expected, Tensor) and all(isinstance(part, Tensor) for part in expected)
    if plain and len(actual) != len(expected):
        return f"gives {len(actual)} outputs, and itself {len(expected)},"
    for one, other in pairs:
        if isinstance(other, Tensor):
            one, other = arrays.host(one, name), arrays.host(other, name)
            if one.shape != other.shape:
                return f"gives an output of shape {one.shape}, and itself {other.shape},"
            if not model.jumps and not alike(one, other):
                return "gives other numbers than itself"
    return None


def _write(module: nn.Module, inputs: tuple[Tensor, ...], path: Path) -> tuple[dict[str, Any], set[int]]:
    """Write the ONNX model.

    Returns:
        by their names, the buffers into which a call writes; the numbers of inputs just outside of what the path that
        torch traced holds for.
    """
    sizes = ShapesCollection()
    for argument in inputs:
        sizes[argument][0] = torch.export.Dim.DYNAMIC
    shapes = sizes.dynamic_shapes(module, inputs)
    with _exporting, _in_this_thread():
        program = torch.onnx.export(module, inputs, str(path), dynamo=True, dynamic_shapes=shapes, verbose=False)
    traced, buffers = program.exported_program, dict(module.named_buffers())
    ends = (((span.lower, -1), (span.upper, 1)) for span in traced.range_constraints.values())
    # A bound is a number of SymPy, and may be infinite.
    limits = {int(bound) + step for pair in ends for bound, step in pair if getattr(bound, "is_Integer", False)}
    written = {name: buffers.get(name) for name in traced.graph_signature.buffers_to_mutate.values()}
    return written, {count for count in limits if 0 < count <= WIDEST}


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
def _silent() -> Iterator[None]:
    """Without what torch logs: packages that are missing, and what failed, which the exception says too."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _inputs(name: str, module: nn.Module, example: Any) -> tuple[Tensor, ...]:
    """The example as a tuple of copies, in float32 where it is in half precision; or random numbers."""
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
        drawn = torch.randn(2, first.in_features, generator=torch.Generator().manual_seed(0))
        example = drawn.to(next(first.parameters()))
    several = tuple(example) if isinstance(example, tuple | list) else (example,)
    if not several or not all(isinstance(tensor, Tensor) and tensor.dim() and len(tensor) > 1 for tensor in several):
        raise InputError("example: a tensor of two inputs or more, as the module takes them, or a tuple of such")
    copies = (tensor.detach().clone() for tensor in several)
    return tuple(tensor.float() if tensor.dtype in HALF else tensor for tensor in copies)


def _called(name: str, module: nn.Module, inputs: tuple[Tensor, ...], restore: Callable[[], None]) -> Any:
    """The module's outputs, after calls that fill what its first call fills.

    Raises:
        InputError: it cannot be called; its state or its outputs depend on the calls before.
    """

    def call(again: bool = True) -> Any:
        if again:
            restore()  # so that a module that draws numbers draws the same ones
        try:
            return module(*(tensor.clone() for tensor in inputs))  # into which it may write
        except Exception as error:  # of any kind: the module's own code runs
            raise InputError(f"{name}: it cannot be called with the example ({_why(error)})") from error

    first, states = held_values(call()), [held_values(module)]
    # Between two calls on the same inputs, one on others: a state that follows the inputs differs afterwards. A module
    # may refuse larger numbers, or another order; on a GPU, numbers that are out of range would end its context.
    for factor in (2, 1):
        others = [tensor.flip(0) for tensor in inputs]
        with contextlib.suppress(Exception):
            module(*(other * factor if other.is_cpu and other.is_floating_point() else other for other in others))
            break
    states.append(held_values(module))
    outputs = call()
    again, after = held_values(outputs), held_values(module)
    drawn = held_values(call(again=False))
    # What the second call left differs in a record of the latest input, which is a state only where outputs show it.
    kept = _changed(states[0], after)
    if any(isinstance(value, Tensor | np.ndarray) for value in kept.values()):
        raise _refusal(name, kept)
    if not all(_alike(name, value, again.get(key)) for key, value in first.items()):
        raise _refusal(name, _changed(states[1], after) | kept)
    if not all(_alike(name, value, drawn.get(key)) for key, value in again.items()):
        # With the same random numbers twice: what differs then is a state that comes back after some calls.
        one, there = held_values(call()), held_values(module)
        other, after = held_values(call()), held_values(module)
        if not all(_alike(name, value, other.get(key)) for key, value in one.items()):
            raise _refusal(name, _changed(there, after))
        raise InputError(
            f"{name}: its outputs hang on random numbers that each call draws, and a compiled model draws none; draw "
            "none in inference, as nn.Dropout does after eval()"
        )
    return outputs


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in {**before, **after}.items() if not same(before.get(key), after.get(key))}


def _refusal(name: str, changed: Mapping[str, Any]) -> InputError:
    """The sentence for a module that has a state: tensors of it, or else numbers, by their names."""
    tensors = [key for key, value in changed.items() if isinstance(value, Tensor | np.ndarray)]
    names = listed(tensors or [*changed], NAMED)
    why = f"each call changes its {names}" if names else "a call depends on earlier ones"
    return InputError(
        f"{name}: {why}, and a compiled model has no state; take it as an input and return it as an output, or leave "
        "it alone in inference"
    )


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
