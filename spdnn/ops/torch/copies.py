"""Copies of modules and random states: what is run or traced is a copy, and the caller's module stays as it is."""

import contextlib
import copy
import copyreg
import functools
import numbers
import random
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from spdnn.core.errors import InputError
from spdnn.core.validation import shorten

PARTS = ("_parameters", "_buffers", "_modules")  # attributes of a module that hold what its user calls attributes
BOOKKEEPING = {*vars(nn.Module())}  # those, hooks and flags
LEAVES = (Tensor, np.ndarray, numbers.Number, str)  # values that hold no others
CAPTURED = (nn.Module, Tensor, dict, list, set, functools.partial, types.FunctionType, types.MethodType)


class _Part(NamedTuple):
    """A module of the tree, and its copy, which has no attributes yet; state: a snapshot of the attributes.

    Where a class copies itself in its own way, both are None.
    """

    name: str
    module: nn.Module
    copy: nn.Module | None
    state: dict[str, Any] | None


def copy_module(module: nn.Module, purpose: str) -> nn.Module:
    """A deep copy of a module, which shares no tensor with it; other threads may call the module meanwhile.

    Tensors that autograd computed (the weight of torch's old weight_norm, of pruning masks) are copied as constants.
    Functions in attributes and hooks that refer to the module refer to the copy afterwards.

    Args:
        purpose: why a copy is made, as the sentence of an error ends.

    Raises:
        InputError: an attribute cannot be copied; the sentence names it.
    """
    copying = _Copying(type(module).__name__, purpose, {}, {})
    parts = [copying.part(name, part) for name, part in module.named_modules()]
    memo = copying.memo
    memo |= {id(part.module): part.copy for part in parts if part.copy is not None}
    # deepcopy refuses tensors that autograd computed and sparse parameters, and leaves functions, with what they refer
    # to, as they are.
    functions, alive = [], []
    for _, value in reachable([part.module if part.state is None else part.state for part in parts], {*memo}):
        if isinstance(value, Tensor) and not value.is_leaf:
            memo[id(value)] = value.detach().clone()
        elif isinstance(value, nn.Parameter) and value.layout != torch.strided:
            memo[id(value)] = nn.Parameter(value.detach().clone(), value.requires_grad)
        elif isinstance(value, types.FunctionType) and value.__closure__:
            memo[id(value)] = _with_empty_cells(value)
            functions.append(value)
        elif isinstance(value, types.ModuleType):  # a module of Python, as self.F = torch.nn.functional
            memo[id(value)] = value
        else:
            continue
        alive.append(value)  # no other object gets its id meanwhile
    copying.start.update(memo)
    # Inner modules come first, so that what cannot be copied has its full name.
    for part in reversed(parts):
        label = part.name and part.name + "."
        if part.copy is None or part.state is None:
            copying.copied(part.module, part.name)
            continue
        state = part.state.items()
        part.copy.__setstate__(
            {key: copying.copied(value, part.name if key in PARTS else label + key) for key, value in state}
        )
    for function in functions:
        for cell, other in zip(function.__closure__, memo[id(function)].__closure__, strict=True):
            for value in _contents(cell):
                other.cell_contents = _captured(value, memo)
    return copy.deepcopy(module, memo)


def reachable(value: Any, seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """(name, value) of all that a module, a container or an object holds, itself first.

    Names are those of attributes: `encoder.cache[0]`. Hooks of a module are not followed.
    """
    todo, seen, alive = [("", value)], set() if seen is None else seen, []
    while todo:
        name, value = todo.pop()
        if isinstance(value, LEAVES):
            yield name, value
        elif id(value) not in seen:
            seen.add(id(value))
            alive.append(value)  # no other object gets its id meanwhile
            yield name, value
            todo += reversed([*_members(value, name)])


def copy_inputs(inputs: Any) -> Any:
    """A copy of tensors in any container, without gradients."""
    memo = {id(value): value.detach().clone() for _, value in reachable([inputs]) if isinstance(value, Tensor)}
    return copy.deepcopy(inputs, memo)


def held_values(value: Any) -> dict[str, Any]:
    """By name, copies of the tensors, arrays, numbers and texts that a module or outputs hold."""
    found = {name: each for name, each in reachable(value) if isinstance(each, LEAVES)}
    return {name: copy_inputs(each) for name, each in found.items()}


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same to the bit, NaN among them."""
    if type(one) is not type(other):
        return False
    if not isinstance(one, Tensor | np.ndarray):
        return bool(one == other or (one != one and other != other))
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if isinstance(one, Tensor) and one.layout != torch.strided:
        one, other = one.to_dense(), other.to_dense()
    return bool(((one == other) | ((one != one) & (other != other))).all())


@contextlib.contextmanager
def random_states_kept(*values: Any) -> Iterator[Callable[[], None]]:
    """Random states of torch (of the processor and the devices of tensors in `values`), NumPy and Python are afterwards
    what they were; gives a function that makes them so at once."""
    devices = {value.device for _, value in reachable(values) if isinstance(value, Tensor)}
    backends = [(torch.get_device_module(device), device) for device in devices if device.type in ("cuda", "xpu")]
    processor, python, legacy = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    states = [(backend.set_rng_state, backend.get_rng_state(device), device) for backend, device in backends]

    def restore() -> None:
        torch.set_rng_state(processor)
        random.setstate(python)
        np.random.set_state(legacy)  # noqa: NPY002
        for set_state, state, device in states:
            set_state(state, device)

    try:
        yield restore
    finally:
        restore()


@dataclass(frozen=True)
class _Copying:
    """The copies that copy_module made so far; start: those with which it began."""

    kind: str
    purpose: str
    memo: dict[int, Any]
    start: dict[int, Any]

    def part(self, name: str, module: nn.Module) -> _Part:
        if hasattr(module, "__deepcopy__"):
            return _Part(name, module, None, None)
        try:
            make, arguments, *rest = module.__reduce_ex__(4)
        except Exception as error:  # of the module's own code, any
            raise self.refusal(name, error) from error
        state, *items = rest or [None]
        if make is not copyreg.__newobj__ or not isinstance(state, dict) or any(items):
            return _Part(name, module, None, None)
        return _Part(name, module, make(*arguments), dict(state))

    def copied(self, value: Any, name: str) -> Any:
        try:
            return copy.deepcopy(value, self.memo)
        except Exception as error:  # of the value's own code, any
            for inner, member in _members(value, name):
                try:
                    copy.deepcopy(member, dict(self.start))  # the memo has halves of copies now
                except Exception:
                    raise self.refusal(inner, error) from error
            raise self.refusal(name, error) from error

    def refusal(self, name: str, error: Exception) -> InputError:
        subject, why = f"its attribute {name}" if name else "it", shorten(str(error), 150) or type(error).__name__
        return InputError(f"{self.kind}: {subject} cannot be copied ({why}), and {self.purpose}")


def _with_empty_cells(function: types.FunctionType) -> types.FunctionType:
    cells = tuple(types.CellType() for _ in function.__closure__ or ())
    twin = types.FunctionType(function.__code__, function.__globals__, function.__name__, function.__defaults__, cells)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__dict__.update(vars(function))
    return twin


def _contents(cell: types.CellType) -> Iterator[Any]:
    with contextlib.suppress(ValueError):  # the cell of a variable that has no value yet
        yield cell.cell_contents


def _captured(value: Any, memo: dict[int, Any]) -> Any:
    """A copy of what may hold the module; a lock, or an object of another library, stays itself."""
    if isinstance(value, CAPTURED):
        with contextlib.suppress(Exception):
            return copy.deepcopy(value, memo)
    return value


def _members(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(name, value) of what a value holds."""
    if isinstance(value, nn.Module):
        attributes = dict(vars(value))
        parts = [attributes.get(part, {}) for part in PARTS]
        own = {key: each for key, each in attributes.items() if key not in BOOKKEEPING}
        for held in (own, *parts):
            yield from ((f"{name}.{key}".lstrip("."), each) for key, each in list(held.items()))
    elif isinstance(value, dict):
        yield from ((f"{name}[{key!r}]" if name else str(key), each) for key, each in list(value.items()))
    elif isinstance(value, list | tuple | set):
        yield from ((f"{name}[{place}]", each) for place, each in enumerate(value))
    elif isinstance(value, functools.partial):
        yield from ((name, each) for each in (value.func, value.args, value.keywords))
    elif isinstance(value, types.MethodType):
        yield name, value.__self__
    elif isinstance(value, types.FunctionType):
        contents = (each for cell in value.__closure__ or () for each in _contents(cell))
        yield from ((name, each) for each in contents if isinstance(each, CAPTURED))
    elif not isinstance(value, type | types.ModuleType) and not type(value).__module__.startswith("torch."):
        yield from ((f"{name}.{key}", each) for key, each in list(getattr(value, "__dict__", {}).items()))
