"""Files from elsewhere, checked: from a mirror or the addresses of `config/data.tsv`.

A file is searched for in the folder it is to be in, then in a mirror (a folder or an http(s) address with the
table's paths below it; by default $SPDNN_MIRROR), then at its addresses in order. A download goes to a hidden
`.download` file, locked against other processes and resumed where the server allows it, and gets its final name
only once its size and digest are right; so a folder filled here is itself a mirror. Bytes, time and redirects are
limited by the table: a server that never ends, or sends a byte a second, is given up. A user and a password of an
address go to its own host alone, and no sentence has them.
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
from urllib.parse import unquote_to_bytes, urljoin, urlsplit

from spdnn.core import safe_open
from spdnn.core.errors import InputError, SpdnnError, Unavailable, install
from spdnn.core.files import expand_home, replacing
from spdnn.core.progress import BYTES, Stage
from spdnn.core.safe_open import brief
from spdnn.core.validation import quote
from spdnn.formats.catalog import Source, read_sources

RETRIES, BACKOFF = 3, 1.0
LEAST_ARRIVING = 1 << 16  # bytes that must arrive in the `stall` seconds of a source, unless it ends before
TRANSIENT = (408, 425, 429, 500, 502, 503, 504)
SCHEMES = ("http://", "https://")
FILE = re.compile("file:(?://(?:localhost)?)?(/(?!/).*)", re.IGNORECASE | re.DOTALL)  # of a path here
WITH_USER = re.compile("[^/@]:[^/@]*@")  # in what is no folder: an address that is wrong, so it is not shown
User = tuple[bytes, bytes] | None  # and a password
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # of file systems that cannot lock

# What helps where a file of the table cannot be had, by its name.
INSTEAD = {
    "dlmc": "; give a copy of your own, dlmc.tar.gz or the folder that it unpacks to (--dlmc PATH, or ops: {dlmc: "
    "PATH} in a configuration), or a mirror that has dlmc/dlmc.tar.gz (SPDNN_MIRROR)"
}


def fetch(
    name: str,
    folder: str | os.PathLike,
    mirror: str | os.PathLike | None = None,
    retries: int = RETRIES,
    backoff: float = BACKOFF,
    sources: dict[str, Source] | None = None,
) -> Path:
    """The file `name` of the table, at its path below `folder`; downloaded unless it is there and right.

    Args:
        mirror: to try first, as `find_mirror` takes it.
        retries: how often one address is tried again after a failure that may pass.
        backoff: seconds before the first new try, doubled before each further one.
        sources: the table, by default that of `read_sources`.

    Raises:
        InputError: a name that is not in the table, or a mirror that is none.
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
    mirror = find_mirror(mirror)
    failures, urls, until = [], list(source.urls), time.monotonic() + source.seconds
    # Already there: a file whose digest is right is never fetched again.
    if target.is_file():
        if (fault := source.fault(target)) is None:
            return target
        failures.append(f"{target}: {fault}")
    # Then the mirror, and then the addresses of the table, in order.
    if isinstance(mirror, str):
        address = urlsplit(mirror)  # a query stays behind the path
        urls.insert(0, address._replace(path=f"{address.path.rstrip('/')}/{source.path}").geturl())
    elif mirror:
        if (fault := _copy(source, mirror / source.path, target)) is None:
            return target
        failures.append(f"{mirror / source.path}: {fault}")
    for url in urls:
        if (fault := _fetch_url(source, url, target, retries, backoff, until)) is None:
            return target
        failures.append(f"{url}: {fault}")
    raise SpdnnError(f"{name} could not be fetched; tried {'; '.join(failures)}")


def find_mirror(mirror: str | os.PathLike | None = None) -> Path | str | None:
    """The mirror: a folder as a Path, an http(s) address as a text, or None where there is none.

    Args:
        mirror: a folder, also as file://FOLDER, or an http(s) address; by default $SPDNN_MIRROR; "" for none.

    Raises:
        InputError: another address, or a ~ of no user.
    """
    named = os.fspath(os.environ.get("SPDNN_MIRROR", "") if mirror is None else mirror)
    if not safe_open.URL.match(named):
        if WITH_USER.search(named) and not Path(named).exists():
            raise InputError("mirror: an address with a user and a password begins with http:// or https://")
        return expand_home(named, "mirror") if named else None
    if path := FILE.fullmatch(named):
        return Path(os.fsdecode(unquote_to_bytes(path[1])))
    try:
        address = urlsplit(named)
        sound = address.scheme in ("http", "https") and address.hostname and address.port != 0
    except ValueError:
        sound = False
    if re.search(r"\s", named):  # where it ends is not plain, so it is not shown
        raise InputError("mirror: an address has no blanks, for which %20 stands")
    if sound:
        return named
    raise InputError(f"mirror {quote(named)}: it must be a folder, file:///FOLDER, or begin with http:// or https://")


class _DownloadError(Exception):
    """A download that failed; `again`: it may work at another time."""

    def __init__(self, why: str, again: bool):
        super().__init__(why)
        self.again = again


def _copy(source: Source, origin: Path, target: Path) -> str | None:
    """Copy from a mirror folder; why it failed, or None."""
    if not origin.is_file():
        return "there is no such file"
    if (size := origin.stat().st_size) > source.most:
        return f"{size:,} bytes, more than {source.most:,}"
    try:
        with replacing(target) as temporary:
            shutil.copyfile(origin, temporary)
            if fault := source.fault(temporary):
                raise _DownloadError(fault, False)
    except _DownloadError as bad:
        return str(bad)
    return None


def _fetch_url(source: Source, url: str, target: Path, retries: int, backoff: float, until: float) -> str | None:
    """Download from one address, again while that may help; why it failed, or None."""
    try:
        url, user = _split_user(url)
    except ValueError as error:
        return brief(error)
    # Its name has a digest of the address: what one server left is never continued from another.
    part = target.with_name(f".{target.name}.{hashlib.sha256(url.encode()).hexdigest()[:8]}.download")
    for attempt in range(retries + 1):
        # Wait longer each time, but not past the end.
        if attempt:
            time.sleep(max(0, min(backoff * 2 ** (attempt - 1), until - time.monotonic())))
        if time.monotonic() >= until:
            return f"not done within {source.seconds:g} s"
        try:
            with _lock(part) as stream:
                if target.is_file() and source.fault(target) is None:  # another process was faster
                    os.unlink(stream.name)
                else:
                    _download(source, url, user, stream, until)
                    os.replace(stream.name, target)
                return None
        except _DownloadError as bad:
            why = str(bad)
            if not bad.again:
                break
        except OSError as error:
            raise SpdnnError(f"{target}: {error.strerror or error}, so nothing was written") from error
    return why if attempt == 0 else f"{why} (tried {attempt + 1} times)"


@contextlib.contextmanager
def _lock(part: Path) -> Iterator:
    """`part`, opened for appending and locked; a file of one's own where locks are unknown.

    After an error it stays for another try when there is something in it, and it is no one's own file.
    """
    with _open_locked(part) as stream:
        try:
            yield stream
        except BaseException:
            if stream.name != str(part) or os.fstat(stream.fileno()).st_size == 0:
                os.unlink(stream.name)
            raise


def _open_locked(part: Path):
    while True:
        stream = open(str(part), "a+b")  # noqa: SIM115 - the caller closes it
        # The file that was locked must still be the one of that name: its last owner may have renamed it.
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


def _download(source: Source, url: str, user: User, stream, until: float) -> None:
    """Bring `stream` to the whole, right file, from where it ends.

    Raises:
        _DownloadError: it is not. What may be continued stays in `stream`; what is wrong is removed from it.
    """
    # Continue where an earlier download ended, unless it is longer than the file can be.
    have = stream.seek(0, os.SEEK_END)
    if have > source.most:
        have = stream.truncate(0)
    if source.size is None or have < source.size:
        _receive(source, url, user, stream, have, until)
    # On the disk before the digest is taken: the name must never stand for less.
    stream.flush()
    os.fsync(stream.fileno())
    if fault := source.fault(Path(stream.name)):
        stream.truncate(0)
        raise _DownloadError(fault, again=have > 0)


def _receive(source: Source, url: str, user: User, stream, have: int, until: float) -> None:
    """Append to `stream`, which has `have` bytes, the rest from `url`; or all of it, where it must be."""
    try:
        import requests
        import urllib3
    except ImportError:
        raise Unavailable(f"downloads need requests; {install('full')}, or set SPDNN_MIRROR") from None
    # As stored, not compressed on the way: the range and the size count bytes of the file.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with requests.Session() as session, _answer(session, source, url, user, headers) as answer:
            _receive_body(source, answer, stream, _start(answer, stream, have), until)
    # What may pass is tried again; an address or an answer that is wrong stays so.
    except (requests.Timeout, urllib3.exceptions.TimeoutError):
        raise _DownloadError(f"no answer within {source.stall:g} s", again=True) from None
    except (requests.ConnectionError, urllib3.exceptions.HTTPError) as error:
        reason = re.search(r"\[(?:Errno|SSL)[^\]]*\] ?[^'\")]*", str(error))
        why = f"no connection ({reason.group()})" if reason else "the connection broke off"
        raise _DownloadError(why, again=True) from None
    except (requests.RequestException, ValueError) as error:
        raise _DownloadError(brief(error), again=False) from None


def _split_user(url: str) -> tuple[str, User]:
    """(an address without its user and password, these two as a server expects them).

    Requests would send nothing of a user without a password, and take none beyond Latin-1.
    """
    address = urlsplit(url)
    user, at, host = address.netloc.rpartition("@")
    name, _, password = user.partition(":")
    words = (unquote_to_bytes(name), unquote_to_bytes(password)) if at else None
    return address._replace(netloc=host).geturl(), words


def _answer(session, source: Source, url: str, user: User, headers: dict):
    """The answer at an address, after as many redirects as the source allows; `user` goes to its host alone."""
    session.get_redirect_target = lambda answer: None  # else requests reads the whole body first, however long it is
    for _ in range(source.redirects + 1):
        answer = session.get(url, headers=headers, auth=user, stream=True, timeout=source.stall)
        if not answer.is_redirect:
            return answer
        answer.close()
        before = url
        url, own = _split_user(urljoin(before, answer.headers["Location"]))
        if not url.startswith(SCHEMES):
            raise _DownloadError(f"a redirect to {quote(url)}, which is no address of the web", again=False)
        user = own or (None if session.should_strip_auth(before, url) else user)
    raise _DownloadError(f"more than {source.redirects} redirects", again=False)


def _start(answer, stream, have: int) -> int:
    """The bytes of `stream` that the answer continues; the rest is removed."""
    status = answer.status_code
    if status == 206 and re.match(rf"bytes {have}-", answer.headers.get("Content-Range", "")):
        return have
    if status not in (200, 206) and not (status == 416 and have):
        raise _DownloadError(f"the server answered {status} {answer.reason}", again=status in TRANSIENT)
    stream.truncate(0)
    if status == 206:
        raise _DownloadError("the server continued at another place than asked", again=True)
    if status == 416:
        raise _DownloadError("the server has no more than what was left of an earlier download", again=True)
    return 0


def _receive_body(source: Source, answer, stream, have: int, until: float) -> None:
    # A wrong size is refused before anything is received.
    length = answer.headers.get("Content-Length", "")
    total = have + int(length) if re.fullmatch("[0-9]{1,18}", length) else source.size
    if source.size is not None and total != source.size:
        stream.truncate(0)
        raise _DownloadError(f"the server has {total:,} bytes, not {source.size:,}", again=False)
    if total is not None and total > source.most:
        stream.truncate(0)
        raise _DownloadError(f"the server has {total:,} bytes; at most {source.most:,} are taken", again=False)
    with Stage(f"fetch {source.name}", total, BYTES, have) as stage:
        # The stated length may be wrong, so what arrives is counted, too; and a server may send a byte a second.
        before, since = have, time.monotonic()
        while chunk := answer.raw.read1(LEAST_ARRIVING, decode_content=False):
            stream.write(chunk)
            have += len(chunk)
            stage.advance(len(chunk))
            if have > source.most:
                stream.truncate(0)
                raise _DownloadError(f"more than {source.most:,} bytes", again=False)
            if (now := time.monotonic()) >= until:
                raise _DownloadError(f"not done within {source.seconds:g} s", again=True)
            if now - since >= source.stall:
                if have - before < LEAST_ARRIVING:
                    raise _DownloadError(f"less than {LEAST_ARRIVING:,} bytes within {source.stall:g} s", again=True)
                before, since = have, now
    if total is not None and have < total:
        raise _DownloadError(f"broke off after {have:,} of {total:,} bytes", again=True)
