"""The table of downloads, `config/data.tsv` or the one that SPDNN_SOURCES names: where each file is, and its digest."""

import hashlib
import os
import re
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from spdnn.core import safe_open
from spdnn.core.config_tables import table
from spdnn.core.errors import InputError
from spdnn.core.files import expand_home
from spdnn.core.safe_open import existing
from spdnn.core.validation import quote

COLUMNS = (
    "name", "urls", "algorithm", "digest", "digest_of", "bytes", "at_most", "seconds", "stall", "redirects", "path",
    "note",
)  # fmt: skip
VARIABLE = "SPDNN_SOURCES"  # environment variable: a table in place of config/data.tsv
DIGITS = {"sha256": 64, "md5": 32, "none": 0}  # hexadecimal digits of each digest


@dataclass(frozen=True)
class Source:
    """One row of the table, whose columns are separated by tabs.

    Attributes:
        urls: one or more, in the table separated by spaces.
        algorithm, digest: "sha256", "md5" or "none", and the hexadecimal digest ("" for none).
        digest_of: "file", or "content": what a .gz holds, so that any compression of it is accepted.
        size: bytes of the file, or None when they are unknown or may differ; in the table `bytes`.
        most: bytes that it has at most, in the table `at_most`, where `bytes` are empty; else `size`.
        seconds, stall: that all attempts together may take, and in which at least fetch.LEAST bytes must arrive.
        redirects: that are followed from one address.
        path: below a mirror or a folder of downloads.
    """

    name: str
    urls: tuple[str, ...]
    algorithm: str
    digest: str
    digest_of: str
    size: int | None
    most: int
    seconds: float
    stall: float
    redirects: int
    path: str
    note: str

    def fault(self, file: Path) -> str | None:
        """Why `file` is not this file, or None when it is."""
        size = file.stat().st_size
        if self.size is not None and size != self.size:
            return f"{size:,} bytes, not {self.size:,}"
        if size > self.most:
            return f"{size:,} bytes, more than {self.most:,}"
        if self.algorithm == "none":
            return None
        unpacked = self.digest_of == "content"
        try:
            with safe_open.open_file(file, any_name=True) if unpacked else open(file, "rb") as stream:
                new = partial(hashlib.new, self.algorithm, usedforsecurity=False)
                digest = hashlib.file_digest(stream, new).hexdigest()
        except InputError as error:
            return f"broken gzip data ({str(error).removeprefix(f'{file}: ')})"
        return None if digest == self.digest else f"{self.algorithm} {digest}, not {self.digest}"


def read_sources(path: str | os.PathLike | None = None) -> dict[str, Source]:
    """The table of downloads, by name; by default the file that SPDNN_SOURCES names, else `config/data.tsv`.

    Raises:
        InputError: no such file, or a row that breaks a rule; the sentence has the file and the line.
    """
    if path is None and (named := os.environ.get(VARIABLE)):
        path = expand_home(named, VARIABLE)
    file = table("data.tsv") if path is None else existing(path, "table of downloads")
    lines = safe_open.text(file, "table of downloads", "UTF-8").splitlines()
    if not lines or tuple(lines[0].split("\t")) != COLUMNS:
        raise InputError(f"{file}, line 1: the columns must be {', '.join(COLUMNS)}, separated by tabs")
    sources: dict[str, Source] = {}
    for number, line in enumerate(lines[1:], start=2):
        try:
            source = _source(line.split("\t"))
            if source.name in sources:
                raise ValueError(f"{quote(source.name)} is there twice")
        except ValueError as error:
            raise InputError(f"{file}, line {number}: {error}") from None
        sources[source.name] = source
    return sources


def _source(cells: list[str]) -> Source:
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{len(cells)} columns, not {len(COLUMNS)} separated by tabs")
    name, urls, algorithm, digest, digest_of, size, most, *limits, path, note = (cell.strip() for cell in cells)
    if not name:
        raise ValueError("the name is empty")
    if not urls or not all(re.match(r"https?://[^/]", url) for url in urls.split()):
        raise ValueError(f"urls {quote(urls)} must be one or more addresses that begin with http:// or https://")
    if algorithm not in DIGITS:
        raise ValueError(f"algorithm {quote(algorithm)} must be one of {', '.join(DIGITS)}")
    if not re.fullmatch(f"[0-9a-f]{{{DIGITS[algorithm]}}}", digest):
        raise ValueError(f"digest {quote(digest)} must have {DIGITS[algorithm]} digits 0-9a-f for {algorithm}")
    if digest_of not in ("file", "content"):
        raise ValueError(f"digest_of {quote(digest_of)} must be file or content")
    if size and not re.fullmatch("[1-9][0-9]{0,17}", size):
        raise ValueError(f"bytes {quote(size)} must be a positive whole number, or empty")
    if bool(size) == bool(most) or (most and not re.fullmatch("[1-9][0-9]{0,17}", most)):
        raise ValueError(f"at_most {quote(most)} must be a positive whole number, just where bytes are empty")
    for column, limit in zip(("seconds", "stall", "redirects"), limits, strict=True):
        if not re.fullmatch("[1-9][0-9]{0,8}", limit):
            raise ValueError(f"{column} {quote(limit)} must be a positive whole number")
    if not path or PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise ValueError(f"path {quote(path)} must be relative and must not leave its folder")
    nbytes, limits = int(size) if size else None, map(int, limits)
    return Source(
        name, tuple(urls.split()), algorithm, digest, digest_of, nbytes, int(size or most), *limits, path, note
    )
