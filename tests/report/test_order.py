"""The page and its figures are the same bytes for the same records, in whatever order they are read."""

import random

import pytest
import test_limits
import test_schedules
from pages import ladder, peers
from test_operations import products
from test_reductions import ALL, alive, plain
from test_reductions import run as reduced
from test_report import shown
from test_scaling import strong, weak
from test_times import OVERLAP, on_gpu, timed


def everything():
    """Records of every section, some of them alike but for a part."""
    found = [reduced(names) for names in ((), ("dead",), ("dead", "inputs"), ALL)]
    found += [reduced(rows=alive(), looks=0, case="unlooked"), plain(), plain("none", reduced=False), *ladder()]
    found += [*strong(), *weak(1, 2, 4), *test_schedules.several(), timed(OVERLAP, 50, 2), on_gpu(), *peers()]
    found += [*test_limits.several(), *(test_limits.run("same", seconds) for seconds in ((0.25,), (0.5,)))]
    return [*found, *products(0.7), *products(0.9, layer="other")]


@pytest.mark.full("many")
def test_the_same_records_give_the_same_bytes_in_any_order():
    records = everything()
    first = shown(records, figures=True).source
    random.Random(0).shuffle(records)
    assert shown(records, figures=True).source == first
