"""The checks of all formats before they read: that a path can be opened, and that a width is not absurd."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from spdnn.common.errors import InputError, SpdnnError
from spdnn.problem import challenge


@contextlib.contextmanager
def reading(path) -> Iterator[None]:
    """Tell what the operating system refuses (a name too long, no permission...) as one InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror or error})") from error


@contextlib.contextmanager
def sound(what: str) -> Iterator[None]:
    """Tell whatever a library stumbles over in the bytes of a file as one InputError: `what` (the file) and why.

    Damaged bytes raise nearly anything: a SyntaxError where a header is Python, a LZMAError, a UnicodeError. Errors of
    ours pass as they are.
    """
    try:
        yield
    except SpdnnError:
        raise
    except Exception as error:
        raise InputError(f"{what} ({brief(error)})") from error


def brief(error: BaseException) -> str:
    """What an error says, in at most 160 printable characters of one line."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return "".join(c if c.isprintable() else "?" for c in said[:160])


def listing(folder: Path) -> list[Path]:
    """All that lies in a folder, in any order."""
    with reading(folder):
        return list(folder.iterdir())


def plain_file(path: Path) -> bool:
    """Whether there is a file."""
    with reading(path):
        return path.is_file()


def check_widths(where, *widths: int) -> None:
    """InputError, beginning with `where`, for rows or columns beyond challenge.MAX_WIDTH, before they take memory."""
    if max(widths, default=0) > challenge.MAX_WIDTH:
        raise InputError(f"{where}: a size of {max(widths)}; at most {challenge.MAX_WIDTH} neurons are possible here")
