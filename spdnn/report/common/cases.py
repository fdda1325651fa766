"""Which cases a workflow was to run. The list is written before anything runs, so a page can tell what is missing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

from spdnn.common.validation import check_schema
from spdnn.records.run_record import read_json, write_json

SCHEMA, VERSION = "spdnn-cases", 1


def write_cases(
    path: str | Path, cases: Iterable[str], configfiles: Iterable[str | Path], command: Sequence[str]
) -> None:
    """Write the names of `cases` to `path`, in a folder that is made where there is none.

    Args:
        configfiles: of the configuration that asks for them, the last one wins; none: the default.
        command: the words that started the workflow.

    Raises:
        InputError: two cases of one name, or a `path` that cannot be written to.
    """
    content = {
        "schema": SCHEMA,
        "version": VERSION,
        "cases": list(cases),
        "configfiles": [str(file) for file in configfiles],
        "command": shlex.join(command),
    }
    check_schema("cases.json", content, str(path))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)


def read_cases(path: str | Path) -> list[str]:
    """The names in the file `path`, in the order of the configuration; InputError when it is not sound."""
    content = read_json(path, "list of cases")
    check_schema("cases.json", content, str(path))
    return content["cases"]
