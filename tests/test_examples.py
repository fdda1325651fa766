"""The examples in the docstrings of public names run and print what they show; the main names have one."""

import doctest
import types

import pytest

import spdnn
import spdnn.ops
from spdnn.core.provenance import PACKAGE

PUBLIC = {"spdnn": spdnn} | {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (spdnn, spdnn.ops)
    for name in module.__all__
    if name != "__version__"
}
# What other calls return or take: their examples are in those calls.
WITHOUT = {"Agreement", "Network", "Result", "Scores", "SpdnnError", "models"}
LONGEST = 8  # lines


def faults(name: str, value: object) -> list[str]:
    """What is wrong with the examples of a public name, in sentences; each runs with nothing imported before."""
    examples = doctest.DocTestParser().get_doctest(value.__doc__ or "", {}, name, None, 0)
    if not examples.examples:
        return [] if name.split(".")[-1] in WITHOUT else [f"{name} has no example"]
    lines = sum(len((example.source + example.want).splitlines()) for example in examples.examples)
    told = [f"{name}: an example of {lines} lines"] if lines > LONGEST else []
    doctest.DocTestRunner().run(examples, out=told.append)
    return told


@pytest.mark.parametrize("name", PUBLIC)
def test_an_example_does_what_it_shows(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results").symlink_to(PACKAGE.parent / "results")
    assert faults(name, PUBLIC[name]) == []


def test_wrong_and_missing_examples_are_found():
    assert faults("spdnn.x", types.SimpleNamespace(__doc__=None)) == ["spdnn.x has no example"]
    (told,) = faults("spdnn.x", types.SimpleNamespace(__doc__=">>> 1 + 1\n3"))
    assert "Got:\n    2" in told
    assert "9 lines" in faults("spdnn.x", types.SimpleNamespace(__doc__=">>> 1\n1\n" * 4 + ">>> None"))[0]


def test_dir_shows_public_names_alone():
    assert dir(spdnn) == spdnn.__all__
