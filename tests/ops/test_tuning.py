"""The measured choice of a tile: the fastest, once, kept; and never a fault of its file."""

import json
import shutil
from unittest.mock import Mock

import pytest
from refusals import refuses

from spdnn.ops import tuning

SETTINGS = [(64, True), (32, True), (16, False)]
LARGE = tuning.LEAST_OPERATIONS


class Clock:
    """Takes as long for each setting as it is told, and counts."""

    def __init__(self, seconds):
        self.seconds, self.calls = seconds, 0

    def __call__(self, setting):
        self.calls += 1
        return self.seconds[setting]


def choose(clock, key="key", settings=SETTINGS, operations=LARGE):
    return tuning.choose(key, settings, operations, clock)


@pytest.fixture
def clock():
    return Clock(dict(zip(SETTINGS, (3.0, 1.0, 2.0), strict=True)))


def test_the_fastest_is_chosen_and_known_from_then_on(clock, tuned_file):
    assert choose(clock) == (32, True)
    calls = clock.calls
    assert calls == len(SETTINGS) * (1 + tuning.ROUNDS)
    assert choose(clock) == (32, True)
    assert clock.calls == calls
    assert json.loads(tuned_file.read_text())["choices"] == {"key": [32, True]}


def test_the_first_call_of_a_setting_does_not_count():
    """It may compile, and touches cold memory."""
    calls = dict(zip(SETTINGS, map(iter, ((1, 3, 3, 3), (9, 1, 1, 1), (2,) * 4)), strict=True))
    assert choose(lambda setting: float(next(calls[setting]))) == (32, True)


def test_what_was_found_is_read_again(clock, monkeypatch, tuned_file):
    choose(clock)
    calls = clock.calls

    def as_in_another_process(name):
        """The file by a name that was not read yet."""
        monkeypatch.setenv("SPDNN_TUNED", str(shutil.copy(tuned_file, tuned_file.with_name(name))))

    as_in_another_process("read.json")
    assert choose(clock) == (32, True)
    assert clock.calls == calls
    as_in_another_process("forgotten.json")
    monkeypatch.setenv("SPDNN_TUNING", "forget")
    choose(clock)
    assert clock.calls == 2 * calls


def test_another_key_is_another_choice(clock):
    choose(clock)
    other = Clock(dict(zip(SETTINGS, (1.0, 2.0, 3.0), strict=True)))
    assert choose(other, "other") == (64, True)


def test_small_work_takes_the_default(clock):
    assert choose(clock, operations=LARGE - 1) == SETTINGS[0]
    assert choose(clock, settings=SETTINGS[2:]) == SETTINGS[2]
    assert clock.calls == 0


def test_it_can_be_switched_off(clock, monkeypatch):
    monkeypatch.setenv("SPDNN_TUNING", "off")
    assert choose(clock) == SETTINGS[0]
    assert clock.calls == 0
    monkeypatch.setenv("SPDNN_TUNING", "")  # as if it were not set, like the other variables
    assert choose(clock) == (32, True)
    monkeypatch.setenv("SPDNN_TUNING", "perhaps")
    refuses("SPDNN_TUNING='perhaps': it must be on, off or forget", choose, clock)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{",
        "[" * 100_000,
        '{"format": 0, "choices": {"key": [64, true]}}',
        '{"format": 1, "choices": {"key": 7}}',
    ],
)
def test_a_broken_file_holds_nothing(clock, tuned_file, content):
    tuned_file.write_text(content)
    assert choose(clock) == (32, True)
    assert json.loads(tuned_file.read_text())["choices"] == {"key": [32, True]}


def test_what_is_returned_is_a_candidate_whatever_the_file_calls_it(clock, tuned_file):
    tuned_file.write_text('{"format": 1, "choices": {"key": [32.0, 1]}}')
    found = choose(clock)
    assert found == (32, True)
    assert list(map(type, found)) == [int, bool]
    assert clock.calls == 0


def test_choices_of_other_processes_stay_in_the_file(clock, tuned_file):
    choose(clock)
    tuned_file.write_text('{"format": 1, "choices": {"theirs": [16, false]}}')
    choose(clock, "other")
    assert set(json.loads(tuned_file.read_text())["choices"]) == {"key", "other", "theirs"}


@pytest.mark.parametrize("name", ["", __file__ + "/tuned.json"], ids=["no home", "no folder"])
def test_where_nothing_can_be_written_the_choice_lasts_as_long_as_the_process(clock, monkeypatch, name):
    monkeypatch.setenv("SPDNN_TUNED", name)
    for variable in ("SPDNN_DATA", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr("pathlib.Path.home", Mock(side_effect=RuntimeError("no home")))
    for _ in range(2):
        assert choose(clock) == (32, True)
    assert clock.calls == len(SETTINGS) * (1 + tuning.ROUNDS)


def test_classes_of_shapes():
    assert tuning.shape_class(512, 2048, 49, sparsity=0.9) == "512x2048x64@90"
    assert tuning.shape_class(500, 2000, 60, sparsity=0.88) == "512x2048x64@90"
    assert tuning.shape_class(512, 2048, 49, sparsity=0.5) != tuning.shape_class(512, 2048, 49, sparsity=0.9)
