"""Configuration files: values as people mean them, a key that stands twice refused."""

import json

import pytest
import yaml
from refusals import refuses

from spdnn.runs.workflow.yaml_files import read, read_all


@pytest.fixture
def file(tmp_path, monkeypatch):
    """A function: the path of a file with this text."""
    monkeypatch.chdir(tmp_path)

    def write(text, name="c.yaml"):
        (tmp_path / name).write_text(text)
        return name

    return write


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0100", 100), ("-007", -7), ("08", 8), ("60_000", 60000), ("0x10", 16), ("0o17", 15), ("1:30", "1:30"),
        ("1e9", 1e9), ("1.0e+9", 1e9), (".5", 0.5), ("010.50", 10.5), (".inf", float("inf")), ("2026-1-2", "2026-1-2"),
        ("yes", True), ("Off", False), ("none", "none"), ("null", None), ("", None), ("~", None), ("~/w", "~/w"),
        ("'0100'", "0100"), ("[01, [02]]", [1, [2]]), ("{a: 010}", {"a": 10}), ("w.npz", "w.npz"), ("1.2.3", "1.2.3"),
    ],
)  # fmt: skip
def test_a_value_is_what_a_person_means(file, text, value):
    assert read(file(f"key: {text}\n")) == {"key": value}


def test_presets_are_as_before(root):
    """What PyYAML reads, but for 1.0e9 and the like, which it takes for texts and the configuration for numbers."""
    for path in (root / "config").glob("*.yaml"):
        assert read(path) == yaml.safe_load(path.read_text())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("count: 1\nlayers: 3\ncount: 2\n", "c.yaml: line 3: the key 'count' stands twice, first in line 1"),
        ("cases:\n- {count: 1,\n   count: 1}\n", "c.yaml: line 3: the key 'count' stands twice, first in line 2"),
        ("peers: {a: {b: 1, b: 1}}\n", "c.yaml: line 1: the key 'b' stands twice, first in line 1"),
        ('{"count": 1, "peers": {"a": 1,\n\t"a": 2}}', "c.yaml: the key 'a' stands twice"),
        ("- 1\n", r"c.yaml: \[1\] has no keys; a configuration is lines of KEY: VALUE"),
        ("a: [1\n", "c.yaml: neither YAML nor JSON"),
        ("a: !!int x\n", "c.yaml: neither YAML nor JSON"),
        ("a: " + "[" * 5000, "c.yaml: neither YAML nor JSON"),
        ("a: !!bool maybe\n", "c.yaml: neither YAML nor JSON"),
        ("a: !!python/object/apply:os.system [ls]\n", "c.yaml: neither YAML nor JSON"),
    ],
)
def test_what_is_refused(file, text, sentence):
    refuses(sentence, read, file(text))


def test_anchors_and_merged_keys_are_no_keys_that_stand_twice(file):
    text = "a: &a {x: 1, y: 2}\nb: &b\n  <<: *a\n  x: 3\nc: {<<: *b, y: 4}\nd: {<<: [*a, *b]}\n"
    assert read(file(text))["c"] == {"x": 3, "y": 4}
    assert read(file(text))["b"] == {"x": 3, "y": 2}


def test_files_and_what_is_typed_change_each_other_in_turn(file):
    one, two = file("count: 010\npeers: {count: 1, seconds: 2}\n", "1.yaml"), file(json.dumps({"peers": {"count": 3}}))
    typed = {"count": "0100"}
    assert read_all([one, two], typed) == {"count": "0100", "peers": {"count": 3, "seconds": 2}}
    assert read_all([], typed) == typed


def test_a_template_is_expanded(file):
    assert read(file("__use_yte__: true\n?if True:\n  a: ?1 + 1\n?if False:\n  a: 3\n"))["a"] == 2
