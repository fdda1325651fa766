"""Accuracy of a classifier's outputs against labels, and their agreement with the outputs of another program.

The class of an input is the output with its largest value, the first of those that are equal. Which inputs survive is
another question (`Result.categories`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.core import arrays
from spdnn.core.closeness import LAYERS_TOLERANCE
from spdnn.core.closeness import worst as worst_excess
from spdnn.core.errors import InputError
from spdnn.core.numbers import real
from spdnn.core.result import Result
from spdnn.core.shown import WithRepr, plural

SUM_APART = 1e-2  # of 1, at most, of probabilities: float16 rounds each
MOST_CLASSES = 10_000  # of a confusion matrix
COMPARED_BYTES = 8 << 20  # of float64 rows that are compared at a time


@dataclass(frozen=True, eq=False, repr=False)
class Scores(WithRepr):
    """Accuracy of outputs against labels.

    Attributes:
        classes: their number: the outputs of a row.
        labels, answers: int64 (inputs,), 0-based: the label of each input, and its predicted class.
        ranks: int64 (inputs,): how many outputs come before that of the label; 0: the predicted class is the label.
    """

    classes: int
    labels: np.ndarray
    answers: np.ndarray
    ranks: np.ndarray

    @property
    def inputs(self) -> int:
        return self.labels.size

    def hits(self, k: int) -> int:
        """Inputs whose label is among their k largest outputs."""
        return int(np.count_nonzero(self.ranks < k))

    @property
    def top1(self) -> float:
        """The fraction of the inputs, 0 to 1, whose largest output is that of the label."""
        return self.hits(1) / self.inputs

    @property
    def top5(self) -> float:
        """The fraction of the inputs, 0 to 1, whose label is among the 5 largest outputs."""
        return self.hits(5) / self.inputs

    @property
    def confusion(self) -> np.ndarray:
        """int64 (classes, classes): inputs by label (row) and predicted class (column).

        Raises:
            InputError: more than MOST_CLASSES classes.
        """
        if self.classes > MOST_CLASSES:
            raise InputError(f"{self.classes} classes; a confusion matrix has at most {MOST_CLASSES:,}")
        pairs = np.bincount(self.labels * self.classes + self.answers, minlength=self.classes**2)
        return pairs.reshape(self.classes, self.classes)

    def _facts(self) -> dict[str, str]:
        return {
            "inputs": plural(self.inputs, "input"),
            "classes": plural(self.classes, "class", "classes"),
            "top1": f"top-1 {100 * self.top1:.4g} %",
            "top5": f"top-5 {100 * self.top5:.4g} %",
        }


@dataclass(frozen=True, repr=False)
class Agreement(WithRepr):
    """How near outputs are to those of a reference; it is true where `passed` is.

    Attributes:
        inputs: that were compared.
        worst: the largest difference, divided by the largest absolute value of the reference.
        tolerance: the largest `worst` that is allowed.
        same: inputs that are of the same class.
        close: inputs of another class, where the reference's two largest values differ by less than the tolerance.
        first: the first input (0-based) of another class that is not close; None where there is none.
    """

    inputs: int
    worst: float
    tolerance: float
    same: int
    close: int
    first: int | None

    @property
    def passed(self) -> bool:
        """Whether no output is too far off, and no class another one, but for those that are close."""
        return self.worst <= self.tolerance and self.first is None

    def __bool__(self) -> bool:
        return self.passed

    @property
    def said(self) -> str:
        """The largest difference, in words."""
        return (
            f"the largest difference is {self.worst:.2g} times the largest value of the reference "
            f"({self.tolerance:g} allowed)"
        )

    def _facts(self) -> dict[str, str]:
        return {
            "passed": f"passed={self.passed}",
            "worst": self.said,
            "same": f"same class for {self.same} of {plural(self.inputs, 'input')}",
        }


def score(outputs: Any, labels: Any) -> Scores:
    """Accuracy of outputs against labels.

    Args:
        outputs: (inputs, classes), finite real numbers, an array of any library, a matrix of them; or a Result that
            kept its values.
        labels: (inputs,), whole numbers from 0 to classes - 1.

    Raises:
        InputError: shapes that do not go together, a label out of range or no whole number, values that are not finite.

    Example:
        >>> import spdnn
        >>> scores = spdnn.score([[0.1, 0.9], [0.8, 0.2], [0.7, 0.3]], labels=[1, 0, 1])
        >>> scores.hits(1), scores.inputs
        (2, 3)
    """
    shape = _shape(outputs)
    labels = check_labels(labels, *shape)
    answers, ranks = np.empty(shape[0], np.int64), np.empty(shape[0], np.int64)
    for part, rows in _blocks(outputs, shape):
        label = labels[part][:, None]
        of_label = np.take_along_axis(rows, label, axis=1)
        answers[part] = rows.argmax(axis=1)
        before = (rows > of_label) | ((rows == of_label) & (np.arange(shape[1]) < label))
        ranks[part] = np.count_nonzero(before, axis=1)
    return Scores(shape[1], labels, answers, ranks)


def agreement(outputs: Any, reference: Any, tolerance: float = LAYERS_TOLERANCE) -> Agreement:
    """Compare outputs with those of a reference, such as another program's.

    Args:
        outputs: as `score` takes them.
        reference: (inputs, classes), finite real numbers.
        tolerance: how far an output may be off, in parts of the reference's largest absolute value.

    Raises:
        InputError: another shape, values that are not finite, or a tolerance that is no number from 0.

    Example:
        >>> import spdnn
        >>> spdnn.agreement([[1.0, 2.0]], [[1.0, 2.001]], tolerance=0.01).passed
        True
    """
    allowed = real(tolerance)
    if allowed is None or not 0 <= allowed < np.inf:
        raise InputError(f"tolerance {tolerance!r}: a number from 0")
    shape, reference = _shape(outputs), check_reference(reference)
    if reference.shape != shape:
        raise InputError(f"the reference has shape {reference.shape}; the outputs have {shape}")
    largest, difference, same, close, first = float(np.abs(reference).max()), 0.0, 0, 0, None
    for part, rows in _blocks(outputs, shape):
        expected = reference[part].astype(np.float64)
        difference = max(difference, worst_excess(rows, expected, 1.0))
        other = np.flatnonzero(rows.argmax(axis=1) != expected.argmax(axis=1))
        same += len(rows) - other.size
        if other.size:  # which takes two outputs
            second, most = np.partition(expected[other], -2, axis=1)[:, -2:].T
            apart = most - second >= allowed * largest
            close += int(np.count_nonzero(~apart))
            if first is None and apart.any():
                first = part.start + int(other[apart.argmax()])
    worst = difference / largest if largest else float(difference and np.inf)
    return Agreement(shape[0], worst, allowed, same, close, first)


def are_probabilities(outputs: Any) -> bool:
    """Whether each row is a softmax's: no value is below 0, and their sum is 1."""
    shape = _shape(outputs)
    return all(
        (rows >= 0).all() and np.allclose(rows.sum(axis=1, dtype=np.float64), 1, atol=SUM_APART)
        for _, rows in _blocks(outputs, shape)
    )


def check_labels(labels: Any, inputs: int, classes: int, where: str = "the labels") -> np.ndarray:
    """int64 (inputs,): labels of so many inputs, 0 to classes - 1.

    Raises:
        InputError: another number of them, one out of range, or what is no whole number; the sentence begins with
            `where`.
    """
    array = arrays.host(labels, where)
    if array.ndim == 2 and 1 in array.shape:
        array = array.reshape(-1)
    if array.ndim != 1:
        raise InputError(f"{where}: of shape {array.shape}; one whole number for each input is needed")
    if array.size != inputs:
        raise InputError(f"{where}: {array.size} labels for {inputs} inputs")
    whole = array.dtype.kind in "iu" or (array.dtype.kind == "f" and bool(np.equal(np.trunc(array), array).all()))
    if not whole:
        raise InputError(f"{where}: of {array.dtype}; labels are whole numbers, from 0 to {classes - 1}")
    outside = (array < 0) | (array >= classes)
    if outside.any():
        at = int(outside.argmax())
        from_one = "; are they counted from 1?" if array.min() >= 1 and array.max() == classes else ""
        raise InputError(
            f"{where}: label {array[at]} of input {at} (counted from 0) is out of range; "
            f"{plural(classes, 'class', 'classes')} are 0 to {classes - 1}{from_one}"
        )
    return array.astype(np.int64)


def check_reference(reference: Any, where: str = "the reference") -> np.ndarray:
    """A matrix of finite real numbers; InputError, which begins with `where`, for anything else."""
    array = arrays.host(reference, where)
    if array.ndim != 2 or array.dtype.kind not in "fiub" or not array.size:
        raise InputError(f"{where}: {array.dtype} of shape {array.shape}; it is real numbers (inputs, outputs)")
    if not np.isfinite(array).all():
        raise InputError(f"{where}: a value is NaN or infinite")
    return array


def _shape(outputs: Any) -> tuple[int, int]:
    if isinstance(outputs, Result):
        return outputs.inputs, outputs.outputs
    return check_reference(outputs, "the outputs").shape


def _blocks(outputs: Any, shape: tuple[int, int]) -> Iterator[tuple[slice, np.ndarray]]:
    """Rows of the outputs, each with its place."""
    array = None if isinstance(outputs, Result) else arrays.host(outputs, "the outputs")
    step = max(1, COMPARED_BYTES // (8 * shape[1]))
    for start in range(0, shape[0], step):
        part = slice(start, min(start + step, shape[0]))
        yield part, outputs.rows(part.start, part.stop) if array is None else array[part]
