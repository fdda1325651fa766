"""What the kinds of `spdnn bench` share: options, the command in records, the end of the output."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from spdnn.cli import arguments
from spdnn.core.request import option_words


def add_timing(command, threads: str, seconds: float, what: str) -> None:
    """Options --threads and --seconds; `what`: the sentence on the second."""
    arguments.option(command, "threads", help=threads)
    command.add_argument(
        "--seconds", type=arguments.above_zero, default=seconds, metavar="S", help=f"{what} (default: {seconds:g})"
    )


def command_of(kind: str, *words: Any, **options: Any) -> str:
    """The command that makes these records again; an option of several values is there for each, of None not."""
    for name, value in options.items():
        for each in value if isinstance(value, list) else [value]:
            if each is not None:
                words += (f"-{name}", each) if len(name) == 1 else tuple(option_words(name, each))
    return shlex.join(map(str, ["spdnn", "bench", kind, *words]))


def write_operations(path: str | Path | None, records: Sequence) -> None:
    """Write operation records, also those before an interrupt."""
    from spdnn.runs.records import files

    if path is not None and records:
        files.write_operations(path, records)
        print(f"{path}: {len(records)} records")


def print_reasons(reasons: Mapping[str, str]) -> None:
    """Why each of the other libraries has no number."""
    for name, reason in reasons.items():
        print(f"{name}: {reason}")
