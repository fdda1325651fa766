"""Descriptions of fields do not depend on how a Python keeps docstrings."""

import inspect

from spdnn.core.fields import Record, descriptions


class Base(Record):
    """A base.

    Attributes:
        first: of the base.
    """

    first: int = 0


class Own(Base):
    """What it is.

    Attributes:
        second, third: a sentence
            of two lines.

    Raises:
        ValueError: no field.
    """

    second: int = 0
    third: int = 0


EXPECTED = {"first": "of the base.", "second": "a sentence of two lines.", "third": "a sentence of two lines."}


def test_fields_are_described_whether_or_not_python_dedents_docstrings(monkeypatch):
    assert descriptions(Own) == EXPECTED
    for kind in (Base, Own):  # as Python 3.13 stores them
        monkeypatch.setattr(kind, "__doc__", inspect.cleandoc(kind.__doc__))
    assert descriptions(Own) == EXPECTED
    for kind in (Base, Own):  # as python -OO does
        monkeypatch.setattr(kind, "__doc__", None)
    assert descriptions(Own) == {}
