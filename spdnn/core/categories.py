"""Lists of categories, one a line as the challenge's truth: the numbers, from 1, of the surviving inputs."""

import numpy as np

from spdnn.core import files, safe_open
from spdnn.core.errors import InputError
from spdnn.core.validation import WHOLE, quote


def read_categories(path) -> np.ndarray:
    """The categories in a file (gzip or not), in any order; blank lines hold none, and there may be none.

    Returns:
        int64, ascending.

    Raises:
        InputError: `path:line: ...` for what is not a whole number from 1, or is there twice; no such file.
    """
    first: dict[int, int] = {}
    for line, text in safe_open.lines(path):
        if not text:
            continue
        if not WHOLE.fullmatch(text) or int(text) < 1:
            raise InputError(f"{path}:{line}: {quote(text)} is not a category; one is a whole number from 1")
        if int(text) in first:
            raise InputError(f"{path}:{line}: category {int(text)} is given twice, first in line {first[int(text)]}")
        first[int(text)] = line
    return np.array(sorted(first), dtype=np.int64)


def write_categories(path, categories: np.ndarray) -> None:
    """Write categories (int64), a line for each. Raises InputError where they do not ascend from 1 or more."""
    numbers = np.asarray(categories, dtype=np.int64)
    if numbers.ndim != 1 or (numbers.size and numbers[0] < 1) or (np.diff(numbers) < 1).any():
        raise InputError(f"{path}: categories to write must ascend, from 1")
    files.write_text(path, "".join(f"{number}\n" for number in numbers.tolist()))
