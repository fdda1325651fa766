"""Whether a run record can be believed: what can be repeated without running it, and which evidence it lacks.

Reading a record (spdnn/records/files.py) checks its fields, claims and seal. Here is what takes tables of this package,
and words for what a record does not tell. Nothing here runs a text of the record or opens a file that it names.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from spdnn.common.errors import InputError
from spdnn.problem import challenge
from spdnn.records.run_record import RunRecord
from spdnn.verify import verdict as verify


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


def missing(record: RunRecord) -> Iterator[str]:
    """What a record lacks that one made by this version has, or could have: a phrase for each."""
    verdict, values = record.verdict, record.verdict.values
    if not record.seal:
        yield "no checksum: an edit would not be seen"
    if verdict.truth.kind == "file":
        yield "categories were compared with a file alone, and no values"
    elif verdict.truth.kind == "oracle" and values.checked and not values.every:
        yield "no last row was compared value by value"
    if not record.machine:
        yield "the machine was not measured, so only what no machine can do limits its times"
