"""The files of a network's layers together: a folder, or a tar archive (plain or gzip) that is never unpacked.

A gzip stream can only be read forwards. While it is read, the state of the decompressor is copied every so often, so
that any member can be reached again from the nearest copy: reading members in any order costs memory (some 20
MB), never the disk, and never the whole archive.
"""

import contextlib
import gzip
import io
import re
import tarfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.core.locks import Lock
from spdnn.core.validation import shorten

LONGEST_NAME = 40  # characters of a member's name that a sentence shows
NOTES = (
    tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE,
)  # fmt: skip
MOST_NOTES = 1 << 14  # bytes of a long name, or of other notes on a member
Member = tuple[str, str, Callable[[], bytes]]  # name in the folder or archive, name for messages, reads the content


def natural(name: str) -> list:
    """A sorting key under which l2 comes before l10."""
    parts = re.split(r"([0-9]+)", name)  # text and digits in turn, of which Python makes no number past 4,300
    parts[1::2] = [digits.lstrip("0") for digits in parts[1::2]]
    return [(len(part) if k % 2 else 0, part) for k, part in enumerate(parts)]


def folder_members(folder: Path) -> Iterator[Member]:
    """The files in a folder, in natural order."""
    for path in sorted(safe_open.listing(folder), key=lambda path: natural(path.name)):
        if safe_open.plain_file(path):
            yield path.name, str(path), partial(safe_open.whole, path)


class TarArchive:
    """The files in a .tar or .tar.gz, in the order in which they lie; contents can be read from any thread.

    Raises:
        InputError: also while reading: no tar archive, damaged, cut short, or a member that is not a plain
            file.
    """

    def __init__(self, path: Path):
        self.path = safe_open.check_file(path, "archive")
        self._lock = Lock()
        with self._telling(), safe_open.keep_open(self.path, self) as raw:
            packed = raw.read(2) == safe_open.GZIP
            raw.seek(0)
            self._file, self._state = raw, safe_open.state(raw.fileno())
            size = self._state[0]
            self._most = safe_open.most_unpacked(size) if packed else size
            self._stream = io.BufferedReader(GzipStream(raw, most_bytes=self._most), 1 << 18) if packed else raw
            self._tar = tarfile.open(fileobj=self._stream, mode="r:", tarinfo=_Member)  # noqa: SIM115
            self._tar.next()  # the first member, which opening has read already and would give twice

    def members(self) -> Iterator[Member]:
        """Each file as it is come across; at the end, a check that it is the archive's end."""
        k = 0
        while True:
            with self._lock, self._telling():
                # tarfile keeps the members that it passed; only past them does it read on
                members = self._tar.members
                info = members[k] if k < len(members) else self._tar.next()
                if info is None:
                    self._check_end()
                    return
            with self._telling():
                info.check(self._most)  # once more: further notes may give another size
            k += 1
            if k > safe_open.MEMBERS:
                raise InputError(f"{self.path}: more than {safe_open.MEMBERS:,} members; that is too many to be sound")
            if not info.isdir():
                where = f"{self.path}/{shorten(info.name, LONGEST_NAME)}"
                yield info.name, where, partial(self._content, info, where)

    def _content(self, info: tarfile.TarInfo, where: str) -> bytes:
        if not info.isreg():
            raise InputError(f"{where}: this member is a link or a device; only plain files are read")
        with self._lock, self._telling():
            content = self._tar.extractfile(info).read()
        safe_open.check_state(self.path, self._file.fileno(), self._state)
        if len(content) != info.size:
            raise InputError(f"{where}: the archive is cut short within this member")
        return safe_open.unpack(content, where)

    def _check_end(self) -> None:
        self._stream.seek(self._tar.offset)
        if self._stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise InputError(f"{self.path}: the archive is damaged or cut short after {len(self._tar.members)} members")
        while self._stream.read(1 << 20):  # to the end, where gzip's checksum of it all is
            pass

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        with safe_open.sound(f"{self.path}: this is no sound tar archive"), safe_open.inflating(self.path):
            yield


class _Member(tarfile.TarInfo):
    """A member as its header has it, when tarfile can go on from there: never back, and with little in memory."""

    @classmethod
    def frombuf(cls, buf, encoding, errors):
        member = super().frombuf(buf, encoding, errors)
        member.check()
        return member

    def check(self, most: int = safe_open.LARGEST_WHOLE) -> None:
        """Raise tarfile.ReadError where a size is impossible, or data have holes, which tarfile fills with zeros."""
        if not 0 <= self.size <= (MOST_NOTES if self.type in NOTES else most):
            raise tarfile.ReadError(f"a member of {self.size} bytes")
        if self.type == tarfile.GNUTYPE_SPARSE or self.issparse():
            raise tarfile.ReadError("a member with holes")

    def _proc_gnusparse_10(self, *_):
        raise tarfile.ReadError("a member with holes")  # whose list may be as long as the archive


class GzipStream(io.RawIOBase):
    """The content of a gzip file as a seekable stream.

    Args:
        raw: the gzip file, open.
        most_bytes: of content; beyond is a ValueError. None: any number.
        spacing: bytes of content between two copies of the decompressor's state, to begin with.
        most: copies kept; beyond, every second is dropped and the spacing doubles.
    """

    READ = 1 << 16

    def __init__(self, raw, spacing: int = 1 << 20, most: int = 512, most_bytes: int | None = None):
        self._raw, self._spacing, self._most, self._most_bytes = raw, spacing, most, most_bytes
        self._marks = [(0, 0, zlib.decompressobj(31))]  # (offset in the content, offset in the file, state)
        self._restore(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()

    def readinto(self, buffer) -> int:
        if not self._ready:
            self._ready = memoryview(self._more())
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready, self._at = self._ready[count:], self._at + count
        return count

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset += self._at
        elif whence != io.SEEK_SET:
            raise io.UnsupportedOperation("the end of a gzip stream is not known")
        mark = bisect_right(self._marks, offset, key=lambda mark: mark[0]) - 1
        if offset < self._at or self._marks[mark][0] > self._at + len(self._ready):
            self._restore(mark)
        scratch = bytearray(1 << 18)
        while self._at < offset and self.readinto(memoryview(scratch)[: offset - self._at]):
            pass
        return self._at

    def _restore(self, mark: int) -> None:
        self._at, offset, state = self._marks[mark]
        self._raw.seek(offset)
        self._inflate, self._packed, self._ready = state.copy(), b"", memoryview(b"")

    def _more(self) -> bytes:
        """The next content, some of it at least; none at the end."""
        while True:
            packed = self._packed or self._raw.read(self.READ)
            self._packed = b""
            if self._inflate.eof:
                packed = packed.lstrip(b"\0")  # padding; anything else is one more gzip stream
                if packed:
                    self._inflate = zlib.decompressobj(31)
                elif not self._raw.peek(1):
                    return b""
                else:
                    continue
            if not packed:
                raise EOFError
            try:
                content = self._inflate.decompress(packed)
            except zlib.error as error:
                raise gzip.BadGzipFile(str(error)) from error
            if self._inflate.eof:
                self._packed = self._inflate.unused_data
            elif content:
                self._mark(self._at + len(content))
            if self._most_bytes is not None and self._at + len(content) > self._most_bytes:
                raise ValueError(f"more than {self._most_bytes:,} bytes, too much to be sound")
            if content:
                return content

    def _mark(self, offset: int) -> None:
        if offset < self._marks[-1][0] + self._spacing:
            return
        self._marks.append((offset, self._raw.tell(), self._inflate.copy()))
        if len(self._marks) > self._most:
            del self._marks[1::2]
            self._spacing *= 2
