"""What a workflow is to run, in a file. It is written first: a page shows these cases, and those missing."""

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from spdnn.core import safe_open
from spdnn.core.fields import Record, Unique, check_unique
from spdnn.core.files import write_text
from spdnn.core.validation import parse
from spdnn.runs.records.files import as_text


class Cases(Record):
    """Which cases the configuration of a workflow asks for, whether they ran or not.

    Attributes:
        cases: their names, in the order of the configuration.
        configfiles: as they were given, the last one wins; empty for the default.
        command: that started the workflow.
        peers, ops: whether it measures other libraries, and sparse operations.
        decided: sentences on what the configuration left to the machine.
    """

    schema: Literal["spdnn-cases"]
    version: Literal[1]
    cases: Annotated[list[Annotated[str, Meta(min_length=1)]], Unique]
    configfiles: list[str]
    command: str
    peers: bool
    ops: bool
    decided: list[str]

    def __post_init__(self) -> None:
        check_unique("cases", self.cases)


def write_cases(
    path: str | Path,
    cases: Iterable[str],
    configfiles: Iterable[str | Path],
    command: Sequence[str],
    peers: bool = False,
    ops: bool = False,
    decided: Sequence[str] = (),
) -> None:
    """Write a file of Cases to `path`, in a folder that is made where there is none.

    Args:
        configfiles: of the configuration that asks for them, the last one wins; none: the default.
        command: the words that started the workflow.

    Raises:
        InputError: two cases of one name, or a `path` that cannot be written to.
    """
    content = {
        "schema": "spdnn-cases",
        "version": 1,
        "cases": list(cases),
        "configfiles": [str(file) for file in configfiles],
        "command": shlex.join(command),
        "peers": peers,
        "ops": ops,
        "decided": list(decided),
    }
    text = as_text(content, str(path), indent=1)
    parse(Cases, text, str(path), "list of cases")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_text(path, text)


def read_cases(path: str | Path) -> Cases:
    """The content of the file `path`; InputError when it is not sound."""
    return parse(Cases, safe_open.text(path, "list of cases"), str(path), "list of cases")
