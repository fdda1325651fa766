"""What a model takes, and a caller's arrays made to fit it: the same for every compiled model."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from spdnn.core import arrays
from spdnn.core import sparse as sp
from spdnn.core.errors import InputError
from spdnn.core.network import check_sparse
from spdnn.core.shown import plural
from spdnn.core.validation import quote

MOST_NUMBERS = 1 << 26  # that are drawn for an input at most


class ModelInput(NamedTuple):
    """One input.

    Attributes:
        dtype: object: strings; None: of a type that NumPy does not have; such arrays are not converted.
        shape: of each dimension its size, or a name or None where it is free; None: of any number of dimensions.
        tensor: whether it is an array at all; else what is given is passed on as it is.
    """

    name: str
    dtype: np.dtype | None
    shape: tuple[int | str | None, ...] | None
    tensor: bool = True

    @property
    def rest(self) -> tuple[int, ...] | None:
        """The shape of one float32 row, where any number of rows is taken and all else is fixed; else None."""
        shape = self.shape or (0,)
        fixed = isinstance(shape[0], int) or not all(isinstance(size, int) for size in shape[1:])
        return None if fixed or self.dtype != np.float32 else shape[1:]

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise InputError for an array of a shape that is not taken."""
        own = self.shape or shape  # one without dimensions is not looked at by ONNX Runtime
        fits = len(shape) == len(own) and all(
            size == stated for stated, size in zip(own, shape, strict=True) if isinstance(stated, int)
        )
        if not fits:
            sizes = ", ".join("any" if size is None else str(size) for size in own)
            raise InputError(f"{self.name} has shape {shape}; the model takes ({sizes})")

    def fit(self, value: Any) -> Any:
        """`value` as an array of this type and of a shape that is taken.

        Raises:
            InputError: no array, another shape, or numbers that the type does not hold.
        """
        if not self.tensor:
            return value
        if type(value) is not np.ndarray or value.dtype != self.dtype:
            arrays.refuse_gradient(value)
            if sp.issparse(value):
                value = check_sparse(value, f"{self.name} is not a sound sparse matrix").toarray()
            elif self.dtype == object and (names := arrays.column_names(value)):
                parts = zip(names, arrays.columns(value) or (), strict=True)
                texts = [arrays.texts(part, f"{self.name}: the column {quote(name)}") for name, part in parts]
                value = np.stack(texts, axis=1)
            value = arrays.host(value, self.name)
        fitting = self.converted(value)
        self.check(value.shape)
        return fitting

    def column(self, column: Any) -> np.ndarray:
        """A column of a frame, (rows,) or, where this has two dimensions, (rows, 1). Raises InputError as `fit`."""
        array = arrays.texts(column, self.name) if self.dtype == object else arrays.host(column, self.name)
        return array[:, None] if self.shape is not None and len(self.shape) == 2 else array

    def converted(self, array: np.ndarray) -> np.ndarray:
        """Raises InputError: numbers that the type does not hold. Floating-point numbers are rounded."""
        if self.dtype is None or array.dtype == self.dtype:
            return array
        kind, target = array.dtype.kind, self.dtype.kind
        allowed = {"f": "fiub", "i": "iub", "u": "iub", "b": "iu", "O": "UT"}.get(target, "")
        if kind not in allowed:
            raise InputError(
                f"{self.name} is of {array.dtype}; the model takes {'strings' if target == 'O' else self.dtype}"
            )
        if target == "O":
            return array.astype(object)
        with np.errstate(over="ignore"):
            converted = array.astype(self.dtype)
        if target == "f":
            lost = array[np.isfinite(array) & ~np.isfinite(converted)].ravel().tolist()
        else:
            least, most = (0, 1) if target == "b" else (np.iinfo(self.dtype).min, np.iinfo(self.dtype).max)
            lost = (
                [end for end in (int(array.min()), int(array.max())) if not least <= end <= most] if array.size else []
            )
        if lost:
            raise InputError(f"{self.name} holds {lost[0]}, and {self.dtype}, which the model takes, does not")
        return converted


@dataclass(frozen=True)
class Signature:
    """The inputs of a model, in their order; `what` begins the errors of a call that has others."""

    what: str
    inputs: tuple[ModelInput, ...]

    @property
    def names(self) -> list[str]:
        return [each.name for each in self.inputs]

    def arguments(self, x: tuple[Any, ...], named: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """(in order, by name) what a call was given. By name is one mapping of names to arrays, as sessions and
        tokenizers have it, and of several inputs one frame of a column for each."""
        if len(x) != 1 or named or type(x[0]) is np.ndarray:
            return x, named
        (given,) = x
        if isinstance(given, Mapping):  # which an input that is no tensor may take itself
            return ((), dict(given)) if self.inputs[0].tensor or set(given) == set(self.names) else (x, named)
        if len(self.inputs) > 1 and (names := arrays.column_names(given)) is not None:
            inputs = {each.name: each for each in self.inputs}
            columns = zip(names, arrays.columns(given) or (), strict=True)
            return (), {name: inputs[name].column(part) if name in inputs else part for name, part in columns}
        return x, named

    def feed(self, x: Sequence, named: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays by name, in the order of the inputs.

        Args:
            x: in that order; named: by name.

        Raises:
            InputError: others than the model takes.
        """
        feed = dict(zip(self.names, x, strict=False)) | dict(named)
        if len(x) + len(named) != len(self.inputs) or set(feed) != set(self.names):
            shown = ", ".join(self.names[:8]) + " ..." * (len(self.names) > 8)
            raise InputError(f"{self.what}: {plural(len(x) + len(named), 'input')}; it takes {shown}")
        return {each.name: each.fit(feed[each.name]) for each in self.inputs}

    def draw(self, batch: int, unknown: int, seed: int = 0) -> dict[str, np.ndarray] | None:
        """Random numbers of these shapes, zeros where they are whole numbers; None: an input is of no such type, or of
        very many numbers.

        Args:
            batch: of a first dimension that is free; unknown: of any other. A name has one size wherever it occurs.
        """
        sizes = {each.shape[0]: batch for each in self.inputs if each.shape and isinstance(each.shape[0], str)}
        sample, random = {}, np.random.default_rng(seed)
        for name, dtype, shape, tensor in self.inputs:
            if dtype in (None, object) or shape is None or not tensor:
                return None
            free = [batch if place == 0 and size is None else unknown for place, size in enumerate(shape)]
            drawn = [
                size if isinstance(size, int) else sizes.get(size, other)
                for size, other in zip(shape, free, strict=True)
            ]
            if math.prod(drawn) > MOST_NUMBERS:
                return None
            numbers = random.standard_normal(drawn) if dtype.kind == "f" and math.prod(drawn) else np.zeros(drawn)
            sample[name] = numbers.astype(dtype)
        return sample
