"""The base of the classes of records, and types of values with the limits that a file must keep."""

import inspect
import re
from typing import Annotated

from msgspec import Meta, Struct

from spdnn.core.validation import END, LARGEST_INTEGER

Claim = tuple[bool, str]  # (whether it holds, what is wrong if it does not)

Count = Annotated[int, Meta(ge=0, le=LARGEST_INTEGER)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)]
Whole = Annotated[int, Meta(ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]
Seconds = Annotated[float, Meta(ge=0, le=1e12)]
Samples = Annotated[list[Seconds], Meta(min_length=1)]
Part = Annotated[float, Meta(ge=0, le=1)]
Work = Annotated[float, Meta(ge=0, le=1e30)]
Rate = Annotated[float, Meta(gt=0, le=1e30)]
Rates = Annotated[list[Rate], Meta(min_length=1)]
Digest = Annotated[str, Meta(pattern=f"^(?!0{{64}})[0-9a-f]{{64}}${END}")]  # one of zeros is of nothing
Identity = Annotated[str, Meta(pattern=f"^[0-9a-f]{{16}}${END}")]
Time = Annotated[str, Meta(pattern=f"^[0-9]{{4}}-[0-9][0-9]-[0-9][0-9]T[0-9][0-9]:[0-9][0-9]:[0-9][0-9]Z${END}")]
Name = Annotated[str, Meta(pattern=f"^[A-Za-z0-9][A-Za-z0-9_. -]{{0,79}}${END}")]
Word = Annotated[str, Meta(pattern=f"^[a-z][a-z0-9-]{{0,39}}${END}")]
Case = Annotated[str, Meta(min_length=1, max_length=200)]
Label = Annotated[str, Meta(min_length=1, max_length=60)]
First = Annotated[list[Positive], Meta(max_length=10)]
Unique = Meta(extra_json_schema={"uniqueItems": True})


class Record(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a record. Its docstring describes each field, with its unit, under "Attributes:"."""


def column(name: str | None = None) -> Meta:
    """Makes a field a column of the table of records (CSV), under its own name unless another is given."""
    return Meta(extra={"column": name})


def docstring(kind: type) -> str:
    """The docstring of a class without the indentation of its body, which Python keeps up to 3.12; empty: none."""
    return inspect.cleandoc(kind.__doc__ or "")


def descriptions(kind: type) -> dict[str, str]:
    """The description of each field in the docstrings of a class and its bases; none under `python -OO`."""
    descriptions: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        text = docstring(base).partition("Attributes:\n")[2].partition("\n\n")[0]
        for names, description in re.findall(r"^ {4}([\w, ]+): (.+(?:\n {8,}.+)*)", text, re.MULTILINE):
            descriptions |= dict.fromkeys(names.split(", "), re.sub(r"\s+", " ", description))
    return descriptions


def check_unique(name: str, entries: list) -> None:
    """Raise ValueError where an entry of the list `name` is there twice."""
    if len(set(entries)) != len(entries):
        raise ValueError(f"{name}: an entry is given twice")
