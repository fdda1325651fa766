"""What a record's schema leaves free may be anything: a page is made whatever stands there, as if it were not told."""

import copy
import math
import random

import pytest
from pages import KINDS
from records import many, measured, shown, typed
from test_scaling import strong
from test_schedules import several

from spdnn.core.errors import InputError
from spdnn.runs.calibration import costs_of, from_record
from spdnn.runs.schedules import decomposition_of, timeline_of

FREE = (
    ("engine", "notes"), ("reductions", "found"), ("problem", "network"), ("problem", "inputs"), ("program", "notes"),
)  # fmt: skip
ODD = (
    None, "", [], {}, -1, 0, True, 0.5, 1e308, -1e308, 2**62, "<blink>", [None], [[]], {"": {}}, [1, "a"], [1] * 120,
    [[0, 1, 2]], [[0, 1, 1e308]] * 3, [[0, 120, 5, 2**62, 1.0]], "9" * 400,
    [[10**9, "compute", "layer", 0, 0, 1, 0.0, 1.0]], [[0, "compute", "layer", 0, 119, 999, 0.0, 0.001]],
)  # fmt: skip


def parts(value, path=()):
    """The path to each part of a value, four entries of each list at most."""
    entries = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, part in entries:
        yield (*path, key)
        yield from parts(part, (*path, key))


def free(record):
    """The path to each part that a schema leaves free."""
    for one, other in FREE:
        if other in record.get(one, {}):
            yield from parts(record[one][other], (one, other))


def altered(record, path, value):
    """A copy with one part replaced."""
    record = copy.deepcopy(record)
    place = record
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = copy.deepcopy(value)
    return record


def test_whatever_stands_in_free_parts_there_is_a_page():
    choose = random.Random(0)
    records, products, _ = KINDS["all"]()
    found = []
    for record in (*records, *products):
        places = list(free(record))
        for _ in range(8):
            found.append(altered(record, choose.choice(places), choose.choice(ODD)))
    assert "<blink>" not in shown(found, figures=True).source


@pytest.mark.parametrize("record", [measured(many()[0]), strong()[0], several()[0]], ids=["measured", "ranks", "tasks"])
def test_the_models_refuse_in_a_sentence_what_they_cannot_read(record):
    """Every free part of a record, replaced by every odd value: read, taken as not told, or refused."""
    refused = []
    for path in free(record):
        for value in ODD:
            wrong = altered(record, path, value)
            for reader in (from_record, costs_of):
                try:
                    reader(typed(wrong))
                except InputError as error:
                    refused.append(str(error))
            spans = timeline_of(typed(wrong))
            assert spans is None or all(math.isfinite(span.end) for span in spans)
            decomposition_of(typed(wrong))
    assert all(record["case"] in sentence for sentence in refused)
