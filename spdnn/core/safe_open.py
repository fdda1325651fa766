"""The safe_open that files come in by: what may be read at all, how much of it, and any fault as one sentence.

Readers of every format open files here. Bytes, members and sizes are limited before anything is allocated for them, and
so is time: what is left to do is in proportion to the bytes of the file.
"""

import codecs
import contextlib
import gzip
import io
import os
import re
import sys
import traceback
import weakref
import zlib
from collections.abc import Iterator
from pathlib import Path

from spdnn.core.addresses import hide_secrets
from spdnn.core.errors import InputError, SpdnnError

URL = re.compile(r"[a-z][a-z0-9+.-]+:(?=/)", re.IGNORECASE)
GZIP = b"\x1f\x8b"
PIECE = 1 << 20  # bytes unpacked at a time
LARGEST_WHOLE = 1 << 34  # bytes of a file, or a member of an archive, that is read whole
TEXT = 1 << 30  # bytes of a table, a list or records
# Gzip packs zeros a thousand times; text of weights or images, some ten times. What is packed may hold
# SMALL_UNPACKED bytes, and beyond that UNPACKED_RATIO times its own.
UNPACKED_RATIO, SMALL_UNPACKED = 256, 1 << 25
MEMBERS = 1 << 17  # of an archive
LONGEST_REASON = 100  # characters of what a library says


@contextlib.contextmanager
def reading(path) -> Iterator[None]:
    """Tell what the operating system refuses (a name too long, no permission...) as one InputError."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{path}: it cannot be read ({error.strerror or brief(error)})") from error


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


@contextlib.contextmanager
def name_errors(path, sentence: str | None = None) -> Iterator[None]:
    """Let an InputError begin with the file `path` and, if given, a sentence of the reader's: what the file is not."""
    try:
        yield
    except InputError as error:
        said = str(error).removeprefix(f"{path}: ")
        raise InputError(f"{path}: {sentence} ({said})" if sentence else f"{path}: {said}") from error


@contextlib.contextmanager
def keep_open(path, owner) -> Iterator[io.BufferedReader]:
    """The file, open for reading as long as `owner` lives; closed at once when the block fails. Raises as `reading`."""
    with reading(path):
        file = open(path, "rb")  # noqa: SIM115
    weakref.finalize(owner, file.close)
    try:
        yield file
    except BaseException:
        file.close()
        raise


def state(file: str | os.PathLike | int) -> tuple[int, int]:
    """What writing to a file, a path or one that is open, changes: its size and its time.

    Not noticed: who sets the time back, and who writes through a map whose pages were written to before.
    """
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


def check_state(path, file: str | os.PathLike | int, before: tuple[int, int]) -> None:
    """Raise SpdnnError where the state of `file`, at `path`, is not what it was before it was read."""
    with reading(path):
        if state(file) != before:
            raise SpdnnError(f"{path}: this file was changed since it was opened; open it again, or run again")


@contextlib.contextmanager
def releasing() -> Iterator[None]:
    """As a decorator: an error of ours leaves the function without the files that its frames hold open or mapped.

    Who keeps the error (a notebook keeps the last one) keeps its traceback, and that the local variables of the frames.
    """
    handled = sys.exception()  # the caller's: its frames are not ours to clear
    try:
        yield
    except SpdnnError as error:
        cause: BaseException | None = error
        while cause is not None and cause is not handled:
            traceback.clear_frames(cause.__traceback__)
            cause = cause.__context__
        raise


def brief(error: BaseException) -> str:
    """What an error says, in at most LONGEST_REASON printable characters of one line."""
    said = (str(error).strip().splitlines() or [type(error).__name__])[0]
    if isinstance(error, UnicodeDecodeError):
        said = f"it is no text: byte {error.object[error.start]:#04x} at {error.start}"
    return "".join(c if c.isprintable() else "?" for c in hide_secrets(said)[:LONGEST_REASON])


def listing(folder: Path) -> list[Path]:
    """What lies in a folder, in any order, without hidden files: a Mac leaves ._l1.npz beside l1.npz."""
    with reading(folder):
        return [path for path in folder.iterdir() if not path.name.startswith(".")]


def plain_file(path: Path) -> bool:
    """Whether there is a file."""
    with reading(path):
        return path.is_file()


def existing(path: str | os.PathLike, what: str) -> Path:
    """`path` as a Path when it exists, else one sentence that names `what` is missing."""
    try:
        full = Path(path)
    except TypeError as error:
        raise InputError(f"a {type(path).__name__} is no path of a {what}") from error
    try:
        there = full.exists()
    except OSError as error:
        raise InputError(f"{hide_secrets(str(full))[:200]}: {error.strerror}") from error
    if not there:
        check_no_url(path)
        raise InputError(f"{full}: there is no such {what}")
    return full


def check_no_url(path: str | os.PathLike) -> None:
    """Raise InputError where a path that does not exist is a URL; as a Path, it has lost a slash."""
    if URL.match(text := os.fspath(path)):
        file = text.lower().startswith("file:")
        name = text if "://" in text else text.replace(":/", ":///" if file else "://", 1)
        instead = "leave out file://" if file else "download it first"
        raise InputError(f"{hide_secrets(name)[:200]}: this is a URL, and files are named by their paths; {instead}")


def check_file(path, what: str = "file") -> Path:
    """`path` of a plain file, a `what`; else an InputError, for what is no file (a pipe, a device) may never end."""
    path = existing(path, what)
    if path.is_dir():
        raise InputError(f"{path}: this is a folder, not a {what}")
    if not plain_file(path):
        raise InputError(f"{path}: this is not a plain file")
    return path


def beginning(path) -> bytes:
    """The first bytes of a plain file, behind a byte order mark. Raises InputError when they cannot be read."""
    with reading(path), open(check_file(path), "rb") as file:
        return file.read(64).removeprefix(codecs.BOM_UTF8)


def most_unpacked(size: int) -> int:
    """The bytes that `size` packed bytes may hold."""
    return max(SMALL_UNPACKED, UNPACKED_RATIO * size)


@contextlib.contextmanager
def inflating(where) -> Iterator[None]:
    """Tell what is wrong with gzip data, or with reading it, as one InputError that begins with `where`."""
    with reading(where):
        try:
            yield
        except EOFError as error:
            raise InputError(f"{where}: the gzip data is cut short; the file is truncated") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise InputError(f"{where}: the gzip data is damaged ({brief(error)})") from error


class LimitedStream(io.RawIOBase):
    """A stream of which at most so many bytes are read; what goes beyond is an InputError.

    Args:
        stream: open for reading.
        most: bytes.
        where: begins the sentence.
    """

    def __init__(self, stream, most: int, where):
        self._stream, self._left, self._most, self._where = stream, most, most, where

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        content = self._stream.read(min(len(buffer), PIECE, self._left + 1))
        self._left -= len(content)
        if self._left < 0:
            raise InputError(f"{self._where}: it holds more than {self._most:,} bytes, too much to be sound")
        buffer[: len(content)] = content
        return len(content)


@contextlib.contextmanager
def open_file(path, most: int | None = None, any_name: bool = False) -> Iterator[io.BufferedIOBase]:
    """The bytes of a file, unpacked when it is gzip; what goes wrong while reading becomes one sentence.

    Args:
        most: bytes that it may hold; None: any number, unless it is packed (`most_unpacked`).
        any_name: a file that is not packed may have the name of one that is.

    Raises:
        InputError: no such file, no file, unreadable, too long, or gzip data that is damaged or cut short.
    """
    path = check_file(path)
    with inflating(path), open(path, "rb") as raw:
        packed, size = raw.read(2) == GZIP, os.fstat(raw.fileno()).st_size
        raw.seek(0)
        if path.suffix.lower() in (".gz", ".tgz") and not packed and not any_name:
            raise InputError(f"{path}: this is not gzip data, whatever its name says")
        if not packed:
            if most is not None and size > most:
                raise InputError(f"{path}: it has {size:,} bytes; at most {most:,} are read")
            yield raw
            return
        limit = most_unpacked(size) if most is None else min(most, most_unpacked(size))
        yield io.BufferedReader(LimitedStream(gzip.GzipFile(fileobj=raw), limit, path), 1 << 18)


def whole(path, most: int = LARGEST_WHOLE, any_name: bool = False) -> bytes:
    """All bytes of a file, unpacked when it is gzip; at most so many. Arguments and errors as of `opened`."""
    with open_file(path, most, any_name) as stream:
        if not isinstance(stream.raw, io.FileIO):
            return _read_rest(stream)
        stream.raw.seek(0)  # past the buffer, which would join its bytes and the rest in a copy
        return stream.raw.readall()


def text(path, what: str, form: str = "JSON") -> str:
    """The text of a file that should be a `what` of that form, as `decoded` has it; it is never packed.

    Raises:
        InputError: no such file, no plain file, too long, or no text.
    """
    path = existing(path, what)
    with name_errors(path, sentence := f"it is not a {what} in {form}"):
        if (size := check_file(path).stat().st_size) > TEXT:
            raise InputError(f"{size:,} bytes, more than {TEXT:,}")
    with sound(f"{path}: {sentence}"):
        return decode(path.read_bytes(), "strict")


def decode(content: bytes, errors: str = "replace") -> str:
    """Text that is UTF-8, or UTF-16 where it begins with that byte order mark; without the mark.

    Args:
        errors: what becomes of bytes that are no text, as bytes.decode takes it.
    """
    utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return content.decode("utf-16" if utf16 else "utf-8-sig", errors)


def lines(path) -> Iterator[tuple[int, str]]:
    """(number from 1, text without blanks at its ends) of each line of a file, gzip or not.

    Raises InputError as `whole`, and for a file that is no text.
    """
    content = decode(whole(path, TEXT))
    if "\0" in content:
        raise InputError(f"{path}: this is no text file: it holds zero bytes")
    for number, line in enumerate(content.splitlines(), 1):
        yield number, line.strip()


def unpack(content: bytes, where: str) -> bytes:
    """`content`, unpacked when it is gzip; InputError when that is damaged, cut short or holds too much."""
    if not content.startswith(GZIP):
        return content
    with inflating(where), gzip.GzipFile(fileobj=io.BytesIO(content)) as stream:
        return _read_rest(LimitedStream(stream, most_unpacked(len(content)), where))


def _read_rest(stream) -> bytes:
    """What is left of a stream; a reader that is asked for all at once would allocate that first."""
    return b"".join(iter(lambda: stream.read(PIECE), b""))
