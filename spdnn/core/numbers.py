"""Numbers of callers, also of NumPy's types and other libraries', as Python's own."""

import numbers
import operator
from typing import Any, TypeVar

import numpy as np

from spdnn.core.errors import InputError
from spdnn.core.validation import quote

Integers = TypeVar("Integers", int, np.ndarray)


def ceil_div(number: Integers, part: Any) -> Integers:
    """number / part rounded up, of an int or an array of integers: how many parts hold the number."""
    return -(-number // part)


def whole(value: Any) -> int | None:
    """An integer of any library as an int; None: it is no integer, or true or false."""
    if type(value) is int:
        return value
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def real(value: Any) -> float | None:
    """A real number of any library as a float; None: it is no number, or true or false, or beyond float64."""
    if type(value) is float:
        return value
    value = plain(value)
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def check_whole(value: Any, what: str) -> int:
    """`value` as an int. Raises InputError, which begins with `what`, for what is no integer."""
    number = whole(value)
    if number is None:
        raise InputError(f"{what} {quote(value)}: it must be a whole number")
    return number


def whole_or_none(value: Any, what: str) -> int | None:
    """As check_whole; of None, None."""
    return None if value is None else check_whole(value, what)


def plain(value: Any) -> Any:
    """A number of NumPy, or an array of no dimensions, as Python has it; all else as it is."""
    return (
        value.item() if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and not value.ndim) else value
    )
