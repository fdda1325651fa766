"""What the kinds of `spdnn bench` share: options, the command in records, the order of the output."""

import shlex
import sys
from collections.abc import Callable, Iterable
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


def run(
    groups: Iterable[tuple[list, dict[str, str]]],
    show: Callable[[list], None] | None,
    write: Callable[[list], None],
    reasons: dict[str, str],
    conclude: Callable[[list], None] | None = None,
) -> None:
    """Compare problem after problem; print and write all records also after an interrupt.

    Args:
        groups: (the records of a problem, why other libraries have none).
        show, conclude: print the records of a problem as it ends, and all of them.
        reasons: why libraries take no part; they are printed last.
    """
    records = []
    try:
        for group, refused in groups:
            records += group
            reasons = reasons | refused
            if show:
                show(group)
                sys.stdout.flush()
    finally:
        if records:
            write(records)
            if conclude:
                conclude(records)
    for name, reason in reasons.items():
        print(f"{name}: {reason}")


def writer(path: str | Path | None) -> Callable[[list], None]:
    """Writes operation records to the file `path`, if there is one."""

    def write(records: list) -> None:
        from spdnn.runs.records.files import write_operations

        if path is not None:
            write_operations(path, records)
            print(f"{path}: {len(records)} records")

    return write
