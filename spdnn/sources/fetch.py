"""Files from elsewhere, checked: from a mirror or the addresses of `config/data.tsv`.

A file is searched for in the folder it is to be in, then in a mirror (a folder or an http(s) address with the
table's paths below it; by default $SPDNN_MIRROR), then at its addresses in order. A download goes to a hidden
`.download` file, locked against other processes and resumed where the server allows it, and gets its final name
only once its size and digest are right; so a folder filled here is itself a mirror.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from spdnn.common.errors import InputError, SpdnnError, Unavailable
from spdnn.common.files import replacing
from spdnn.common.progress import BYTES, Stage
from spdnn.sources.catalog import CHUNK, Source, read_sources

RETRIES, TIMEOUT, BACKOFF = 3, 30.0, 1.0
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of file systems that cannot lock


def cache_folder() -> Path:
    """Where downloads are kept by default: $SPDNN_DATA, or ~/.cache/spdnn."""
    folder = os.environ.get("SPDNN_DATA")
    return Path(folder) if folder else Path.home() / ".cache" / "spdnn"


def fetch(
    name: str,
    folder: str | os.PathLike,
    mirror: str | os.PathLike | None = None,
    retries: int = RETRIES,
    timeout: float = TIMEOUT,
    backoff: float = BACKOFF,
    sources: dict[str, Source] | None = None,
) -> Path:
    """The file `name` of the table, at its path below `folder`; downloaded unless it is there and right.

    Args:
        mirror: a folder or an http(s) address to try first; by default $SPDNN_MIRROR; "" for none.
        retries: how often one address is tried again after a failure that may pass.
        timeout: seconds to wait for a connection, and for each piece of an answer.
        backoff: seconds before the first new try, doubled before each further one.
        sources: the table, by default that of `read_sources`.

    Raises:
        InputError: a name that is not in the table.
        SpdnnError: no source gave the right file; the sentence lists the sources and why each failed.
    """
    sources = read_sources() if sources is None else sources
    if name not in sources:
        raise InputError(f"{name!r} is not in the table of downloads; it has {', '.join(sources)}")
    source = sources[name]
    target = Path(folder) / source.path
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpdnnError(f"{target.parent}: this folder cannot be made ({error.strerror})") from error
    mirror = os.environ.get("SPDNN_MIRROR", "") if mirror is None else os.fspath(mirror)
    failures, urls = [], list(source.urls)
    if target.is_file():
        if (fault := source.fault(target)) is None:
            return target
        failures.append(f"{target}: {fault}")
    if re.match("https?://", mirror):
        urls.insert(0, f"{mirror.rstrip('/')}/{source.path}")
    elif mirror:
        if (fault := _copy(source, Path(mirror) / source.path, target)) is None:
            return target
        failures.append(f"{Path(mirror) / source.path}: {fault}")
    for url in urls:
        if (fault := _fetch_url(source, url, target, retries, timeout, backoff)) is None:
            return target
        failures.append(f"{url}: {fault}")
    raise SpdnnError(f"{name} could not be fetched; tried {'; '.join(failures)}")


class _Bad(Exception):
    """A download that failed; `again` tells whether it may work at another time."""

    def __init__(self, why: str, again: bool):
        super().__init__(why)
        self.again = again


def _copy(source: Source, origin: Path, target: Path) -> str | None:
    """Copy from a mirror folder; why it failed, or None."""
    if not origin.is_file():
        return "there is no such file"
    try:
        with replacing(target) as temporary:
            shutil.copyfile(origin, temporary)
            if fault := source.fault(temporary):
                raise _Bad(fault, False)
    except _Bad as bad:
        return str(bad)
    return None


def _fetch_url(source: Source, url: str, target: Path, retries: int, timeout: float, backoff: float) -> str | None:
    """Download from one address, again while that may help; why it failed, or None."""
    part = target.with_name(f".{target.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.download")
    for attempt in range(retries + 1):
        if attempt:
            time.sleep(backoff * 2 ** (attempt - 1))
        try:
            with _locked(part) as stream:
                if target.is_file() and source.fault(target) is None:  # another process was faster
                    os.unlink(stream.name)
                    return None
                _download(source, url, stream, timeout)
                os.replace(stream.name, target)
                return None
        except _Bad as bad:
            why = str(bad)
            if not bad.again:
                break
        except OSError as error:
            raise SpdnnError(f"{target}: {error.strerror or error}, so nothing was written") from error
    return why if attempt == 0 else f"{why} (tried {attempt + 1} times)"


@contextlib.contextmanager
def _locked(part: Path) -> Iterator:
    """`part`, opened for appending and locked; a file of one's own where locks are unknown.

    After an error it stays for another try when there is something in it, and it is no one's own file.
    """
    stream = _open_locked(part)
    try:
        yield stream
    except BaseException:
        if stream.name != str(part) or os.fstat(stream.fileno()).st_size == 0:
            os.unlink(stream.name)
        raise
    finally:
        stream.close()


def _open_locked(part: Path):
    while True:
        stream = open(str(part), "a+b")  # noqa: SIM115 - the caller closes it
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(stream.fileno()), part.stat()):
                return stream
        except FileNotFoundError:
            pass
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            stream.close()
            return open(f"{part}.{os.getpid()}.{time.time_ns()}", "a+b")
        stream.close()  # whoever had the lock renamed or removed that file


def _download(source: Source, url: str, stream, timeout: float) -> None:
    """Bring `stream` to the whole, right file, from where it ends.

    Raises:
        _Bad: it is not. What may be continued stays in `stream`; what is wrong is removed from it.
    """
    have = stream.seek(0, os.SEEK_END)
    if source.size is not None and have > source.size:
        have = stream.truncate(0)
    if source.size is None or have < source.size:
        _receive(source, url, stream, have, timeout)
    stream.flush()
    os.fsync(stream.fileno())
    if fault := source.fault(Path(stream.name)):
        stream.truncate(0)
        raise _Bad(fault, again=have > 0)


def _receive(source: Source, url: str, stream, have: int, timeout: float) -> None:
    """Append to `stream`, which has `have` bytes, the rest from `url`; or all of it, where it must be."""
    try:
        import requests
        import urllib3
    except ImportError:
        raise Unavailable("downloads need requests; install spdnn[full], or set SPDNN_MIRROR") from None
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with requests.get(url, headers=headers, stream=True, timeout=(timeout, timeout)) as answer:
            _receive_body(source, answer, stream, _start(answer, stream, have))
    except (requests.Timeout, urllib3.exceptions.TimeoutError):
        raise _Bad(f"no answer within {timeout:g} s", again=True) from None
    except (requests.ConnectionError, urllib3.exceptions.HTTPError) as error:
        reason = re.search(r"\[(?:Errno|SSL)[^\]]*\] ?[^'\")]*", str(error))
        why = f"no connection ({reason.group()})" if reason else "the connection broke off"
        raise _Bad(why, again=True) from None
    except requests.RequestException as error:
        raise _Bad(str(error), again=False) from None


def _start(answer, stream, have: int) -> int:
    """The bytes of `stream` that the answer continues; the rest is removed."""
    status = answer.status_code
    if status == 206:
        if re.match(rf"bytes {have}-", answer.headers.get("Content-Range", "")):
            return have
        stream.truncate(0)
        raise _Bad("the server continued at another place than asked", again=True)
    if status == 416 and have:
        stream.truncate(0)
        raise _Bad("the server has no more than what was left of an earlier download", again=True)
    if status != 200:
        raise _Bad(f"the server answered {status} {answer.reason}", again=status in TRANSIENT)
    stream.truncate(0)
    return 0


def _receive_body(source: Source, answer, stream, have: int) -> None:
    length = answer.headers.get("Content-Length")
    total = have + int(length) if length and length.isdigit() else source.size
    if source.size is not None and total != source.size:
        stream.truncate(0)
        raise _Bad(f"the server has {total:,} bytes, not {source.size:,}", again=False)
    with Stage(f"fetch {source.name}", total, BYTES, have) as stage:
        for chunk in answer.raw.stream(CHUNK, decode_content=False):
            stream.write(chunk)
            have += len(chunk)
            stage.advance(len(chunk))
            if source.size is not None and have > source.size:
                stream.truncate(0)
                raise _Bad(f"more than {source.size:,} bytes", again=False)
    if total is not None and have < total:
        raise _Bad(f"broke off after {have:,} of {total:,} bytes", again=True)
