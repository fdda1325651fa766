"""A contest: the order of its steps, and what becomes of a program that is wrong, fails or changes."""

import numpy as np
import pytest
from refusals import refuses

from spdnn.bench import networks
from spdnn.bench.contest import Changed, Pace, contest
from spdnn.bench.libraries.base import TimedProgram
from spdnn.bench.libraries.registry import libraries_here
from spdnn.core.errors import SpdnnError, Unavailable, install
from spdnn.engines.registry import PEERS


class Program(TimedProgram):
    """Tells `events` what it does; fails in the step `fails`, or changes its output there."""

    def __init__(self, name, events, fails=None):
        self.name, self.events, self.fails, self.runs = name, events, fails, 0
        self.do("make")

    def do(self, step):
        self.events.append(f"{step} {self.name}")
        if step == self.fails:
            raise RuntimeError(f"{self.name} cannot {step}")

    def __call__(self, x=None):
        self.do(("verify", "warm", "time")[min(self.runs, 2)])
        self.runs += 1
        return np.full(3, self.fails == "change" and self.runs > 2)

    def imbalance(self):
        return 1.5

    def close(self):
        self.events.append(f"close {self.name}")


def run(pace, tolerated=Exception, **fails):
    events, names = [], {"ours": None, "other": None} | fails

    def judge(name, entrant, out):
        events.append(f"judge {name}")
        if fails.get(name) == "judge":
            raise SpdnnError(f"{name} is wrong")
        return out.sum()

    makers = {name: lambda name=name, at=at: Program(name, events, at) for name, at in names.items()}
    return *contest(makers, judge, pace, 0.0, tolerated), events


def test_programs_are_made_and_verified_before_they_take_turns():
    entrants, refused, load, events = run(Pace(2, 9, warm=True, each=2))
    assert (list(entrants), refused, load.busy >= 0) == (["ours", "other"], {}, True)
    made, verified = ["make ours", "make other"], ["verify ours", "judge ours", "verify other", "judge other"]
    assert events[:6] == made + verified
    turns = [event.split()[1] for event in events[6:-2]]
    assert turns == 2 * (4 * ["ours"] + 4 * ["other"])  # two timed runs, each after one that is not
    assert events[-2:] == ["close other", "close ours"]
    for entrant in entrants.values():
        assert (len(entrant.seconds), entrant.imbalances, entrant.verdict) == (4, 4 * [1.5], 0)


def test_a_program_in_a_process_of_its_own_has_its_own_clocks(monkeypatch):
    """Its seconds are the samples, and its processor seconds are no other work: here they are less than none."""
    monkeypatch.setattr(Program, "own_seconds", 7.0)
    monkeypatch.setattr(Program, "own_processor_seconds", property(lambda self: -1e9 * self.runs))
    entrants, _, load, _ = run(Pace(2, 2))
    assert entrants["other"].seconds == [7.0, 7.0]
    assert load.others in (None, 1.0)


@pytest.mark.parametrize("step", ["make", "verify", "judge", "warm", "time", "change"])
def test_another_library_is_refused_with_its_reason_and_ours_may_not_fail(step):
    pace = Pace(1, 1, warm=True)
    entrants, refused, _, events = run(pace, other=step)
    assert list(entrants) == ["ours"]
    assert refused["other"] in (
        f"other cannot {step}", "other is wrong",
        "engine other gave an output, while it was timed, that is not the one that was verified",
    )  # fmt: skip
    assert "close ours" in events
    for failing in ({"ours": step}, {"other": step, "tolerated": KeyError}):
        with pytest.raises(Changed if step == "change" else (RuntimeError, SpdnnError)):
            run(pace, **failing)


@pytest.mark.parametrize(
    ("find", "kind", "ours", "here", "others", "known"),
    [
        (networks.find_libraries, "engine", "cpu", ["scipy"], PEERS[1:], "scipy, graphblas"),
        (libraries_here, "library", "ours", ["scipy", "blas", "numpy"], ["mkl", "torch", "mkl-dense"], "mkl, torch"),
    ],
)
def test_what_is_installed(find, kind, ours, here, others, known, nothing_installed):
    names, absent = find()
    assert (names, list(absent)) == (here, list(others))
    assert find(["scipy"]) == (["scipy"], {})
    with pytest.raises(Unavailable, match=f"{kind} torch cannot run here: the package torch is not installed"):
        find(["scipy", "torch"])
    refuses(f"library '{ours}' is not known: it must be one of {known}", find, [ours])
    refuses("library 'scipy' is named twice", find, ["scipy", "scipy"])


def test_a_library_asked_for_may_be_absent(nothing_installed):
    here, absent = libraries_here(["torch", "onnxruntime", "scipy"], ["network"], kind=None)
    assert here == ["scipy"]
    assert absent["torch"] == f"the package torch is not installed; {install('torch')} brings it"
    assert absent["onnxruntime"].startswith(f"the package onnx is not installed; {install('onnx')}")
    sentence = "library 'tensorflow' is not known: it must be one of scipy, blas, torch"
    refuses(sentence, libraries_here, ["tensorflow"], ["network"], kind=None)
