"""What can be repeated of a run record without running it: the official categories, from the tables of this package.

Reading a record (runs/records/files.py) checks its fields, claims and seal. Nothing here runs a text of the record or
opens a file that it names.
"""

from functools import lru_cache

import numpy as np

from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.verify import verdict as verify


def check(record: RunRecord, where: str) -> None:
    """Raise InputError, in a sentence that starts with `where`, unless an official record has the official categories.

    Reading asks that of records with all inputs; here the truth of any number of them is made from its table.
    """
    problem, result = record.problem, record.result
    if problem.official is None:
        return
    count, sha256 = _truth(problem.neurons, problem.input_count)
    if (result.categories, result.categories_sha256) != (count, sha256):
        raise InputError(
            f"{where}: result.categories_sha256: {result.categories} categories of {problem.input_count} inputs are "
            f"not the {count} of the official ground truth"
        )


@lru_cache(maxsize=64)
def _truth(neurons: int, count: int) -> tuple[int, str]:
    """(number, digest) of the official categories of the first `count` inputs."""
    categories = verify.official(neurons, count).categories
    return int(categories.size), challenge.categories_sha256(np.asarray(categories))
