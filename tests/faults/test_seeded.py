"""Each seeded fault is found by its test; no run that it changes passes verification, but for a few with reasons."""

import pytest
import seeded

MOST_BLIND = 2


@pytest.mark.full("faults")
@pytest.mark.needs("mnist")
@pytest.mark.parametrize("fault", seeded.faults(), ids=lambda fault: fault.name)
def test_a_fault_is_found(fault):
    outcome = seeded.outcome(fault)
    assert outcome.found, outcome.told
    assert bool(outcome.blind) == bool(fault.blind), outcome.problems
    assert seeded.row(fault, outcome) + "\n" in seeded.PAGE.read_text(), "python tests/faults/run.py --write"


def test_the_table_is_of_these_sources():
    names = [fault.name for fault in seeded.faults()]
    assert len(set(names)) == len(names) >= 40
    seeded.compiled_sources()
    for fault in seeded.faults():
        fault.at((seeded.ROOT / fault.file).read_text())
        assert fault.new != fault.old
    assert len([fault for fault in seeded.faults() if fault.blind]) <= MOST_BLIND


def test_the_page_has_them_all():
    text = seeded.PAGE.read_text()
    rows = text[text.index(seeded.BEGIN) + len(seeded.BEGIN) : text.index(seeded.END)].splitlines()
    expected = [seeded.row(fault, None) for fault in seeded.faults()]
    assert [one.rpartition(" | ")[0] + " |" for one in rows] == expected, "python tests/faults/run.py --write"
