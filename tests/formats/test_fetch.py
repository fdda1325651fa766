"""Downloads from a server on this machine that serves well, badly, slowly or not at all; mirrors; archives."""

import base64
import contextlib
import gzip
import hashlib
import multiprocessing
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from refusals import refuses

from spdnn.core.errors import SpdnnError, Unavailable
from spdnn.formats.catalog import Source
from spdnn.formats.fetch import fetch

BODY = bytes(range(256)) * 4000
SHA256 = hashlib.sha256(BODY).hexdigest()
HALF = len(BODY) // 2
HOSTILE = ("endless", "promises", "drips", "round", "away")
DEADLINE = 300  # seconds, of what takes none unless something is wrong


class Server(ThreadingHTTPServer):
    """Serves BODY at any path; `plan` has the behaviours of the next answers, the last one for all further.

    right, no-range (ignores Range), truncated (half of what is promised), corrupt, longer, slow (no answer),
    stalls (half, then silence), wrong-range, a status, or an address to go to. Hostile ones: endless (no length, no
    end), promises (a length beyond all bounds), drips (a byte at a time), round (a redirect to itself), away (a
    redirect to a file).
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.plan, self.asked, self.users = ["right"], [], []
        self.body, self.stop = BODY, threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def hostile(self, kind):
        self.send_response(302 if kind in ("round", "away") else 200)
        if kind in ("round", "away"):
            self.send_header("Location", "/again" if kind == "round" else "file:///etc/passwd")
        if kind == "promises":
            self.send_header("Content-Length", "9" * 18)
        self.end_headers()
        piece, pause = {
            "endless": (bytes(1 << 16), 0),
            "promises": (b"?", 0.01),
            "drips": (b"?", 0.01),
            "round": (bytes(1 << 16), 0),
            "away": (b"", DEADLINE),
        }[kind]
        while not self.server.stop.wait(pause):
            self.wfile.write(piece)

    def do_GET(self):
        server, asked = self.server, self.headers.get("Range")
        server.asked.append((self.path, asked))
        server.users.append(self.headers.get("Authorization"))
        kind = server.plan.pop(0) if len(server.plan) > 1 else server.plan[0]
        if kind == "slow":
            server.stop.wait(DEADLINE)
            return
        if kind.isdigit():
            self.send_error(int(kind))
            return
        if ":" in kind:
            self.send_response(302)
            self.send_header("Location", kind)
            self.end_headers()
            return
        if kind in HOSTILE:
            with contextlib.suppress(ConnectionError):
                self.hostile(kind)
            return
        body, start = server.body, 0
        if kind == "corrupt":
            body = body[:100] + b"?" + body[101:]
        if kind == "longer":
            body += b"?"
        if asked and kind != "no-range":
            start = int(re.fullmatch(r"bytes=(\d+)-", asked).group(1))
            if start >= len(body):
                self.send_error(416)
                return
            shown = start + 7 if kind == "wrong-range" else start
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {shown}-{len(body) - 1}/{len(body)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        half = kind in ("truncated", "stalls")
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[start : start + (len(body) - start) // 2] if half else body[start:])
            self.wfile.flush()
        if kind == "stalls":
            server.stop.wait(DEADLINE)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.delenv("SPDNN_MIRROR", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    found = Server()
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.stop.set()
    found.shutdown()
    found.server_close()
    thread.join()


def source(*urls, **changes) -> dict[str, Source]:
    row = {"algorithm": "sha256", "digest": SHA256, "digest_of": "file", "size": len(BODY), "path": "sub/file.bin"}
    row |= {"most": 2 * len(BODY), "seconds": DEADLINE, "stall": DEADLINE, "redirects": 2}
    return {"it": Source(name="it", urls=urls, note="", **(row | changes))}


def get(sources, folder, **options):
    return fetch("it", folder, **({"retries": 2, "backoff": 0.01, "sources": sources} | options))


def parts(folder):
    return [path for path in (folder / "sub").iterdir() if path.suffix == ".download"]


def test_a_right_file_is_downloaded_once(server, tmp_path):
    found = get(source(f"{server.url}/a"), tmp_path)
    assert found == tmp_path / "sub" / "file.bin"
    assert found.read_bytes() == BODY
    assert get(source(f"{server.url}/a"), tmp_path) == found
    assert server.asked == [("/a", None)]
    assert [path.name for path in found.parent.iterdir()] == ["file.bin"]


def test_a_wrong_file_that_is_there_is_replaced(server, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin").write_bytes(BODY[:-1] + b"?")
    assert get(source(f"{server.url}/a"), tmp_path).read_bytes() == BODY


def test_without_size_or_digest(server, tmp_path):
    for number, changes in enumerate(({"size": None}, {"algorithm": "none", "digest": ""})):
        assert get(source(f"{server.url}/a", **changes), tmp_path / str(number)).read_bytes() == BODY


@pytest.mark.parametrize(
    ("plan", "begins"),
    [
        (["truncated", "truncated", "right"], [None, HALF, HALF + HALF // 2]),
        (["truncated", "no-range"], [None, HALF]),  # it cannot continue, and starts again
        (["truncated", "wrong-range", "right"], [None, HALF, None]),
    ],
)
def test_a_truncated_download_is_continued_where_the_server_can(plan, begins, server, tmp_path):
    server.plan = plan
    assert get(source(f"{server.url}/a"), tmp_path).read_bytes() == BODY
    assert [asked for _, asked in server.asked] == [begin and f"bytes={begin}-" for begin in begins]


def test_an_interrupted_download_is_continued_by_the_next_call(server, tmp_path):
    server.plan = ["truncated"]
    with pytest.raises(SpdnnError, match="broke off.*tried 2 times"):
        get(source(f"{server.url}/a"), tmp_path, retries=1)
    assert not (tmp_path / "sub" / "file.bin").exists()
    assert len(parts(tmp_path)) == 1
    server.plan, server.asked[:] = ["right"], []
    assert get(source(f"{server.url}/a"), tmp_path).read_bytes() == BODY
    assert server.asked == [("/a", f"bytes={HALF + HALF // 2}-")]
    assert not parts(tmp_path)


@pytest.mark.parametrize("size", [len(BODY), None])
@pytest.mark.parametrize(
    "left", [BODY + b"more", b"?" * HALF, b"?" * len(BODY), BODY], ids=["longer", "half", "wrong", "whole"]
)
def test_what_an_earlier_download_left_is_not_trusted(left, size, server, tmp_path):
    server.plan = ["truncated"]
    with pytest.raises(SpdnnError):
        get(source(f"{server.url}/a", size=size), tmp_path, retries=0)
    parts(tmp_path)[0].write_bytes(left)
    server.plan = ["right"]
    assert get(source(f"{server.url}/a", size=size), tmp_path).read_bytes() == BODY


@pytest.mark.parametrize("status", ["500", "503", "429"])
def test_a_fault_that_passes_is_tried_again(status, server, tmp_path):
    server.plan = [status, "right"]
    assert get(source(f"{server.url}/a"), tmp_path).read_bytes() == BODY
    assert len(server.asked) == 2


@pytest.mark.parametrize(
    ("kind", "asked", "says"),
    [
        ("404", 1, "answered 404"),
        ("403", 1, "answered 403"),
        ("500", 3, "answered 500.*tried 3 times"),
        ("corrupt", 1, f"not {SHA256}"),
        ("longer", 1, r"1,024,001 bytes, not 1,024,000"),
        ("truncated", 3, "broke off.*tried 3 times"),
    ],
)
def test_failures_say_why_and_leave_nothing(kind, asked, says, server, tmp_path):
    server.plan = [kind]
    with pytest.raises(SpdnnError, match=says) as caught:
        get(source(f"{server.url}/a"), tmp_path)
    assert f"{server.url}/a" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(server.asked) == asked
    assert not (tmp_path / "sub" / "file.bin").exists()
    assert bool(parts(tmp_path)) == (kind == "truncated")


@pytest.mark.parametrize("kind", ["slow", "stalls"])
def test_a_silent_server_is_given_up(kind, server, tmp_path):
    server.plan = [kind]
    with pytest.raises(SpdnnError, match=r"(no answer|less than 65,536 bytes) within 0\.2 s"):
        get(source(f"{server.url}/a", stall=0.2), tmp_path, retries=1)
    assert not (tmp_path / "sub" / "file.bin").exists()


@pytest.mark.parametrize(
    ("kind", "limits", "says"),
    [
        ("endless", {}, "more than 2,048,000 bytes$"),
        ("promises", {}, "999,999,999,999,999,999 bytes; at most 2,048,000 are taken$"),
        ("drips", {"stall": 0.2}, r"less than 65,536 bytes within 0\.2 s$"),
        ("drips", {"seconds": 0.2}, r"not done within 0\.2 s$"),
        ("round", {}, "more than 2 redirects$"),
        ("away", {}, "a redirect to 'file:///etc/passwd', which is no address of the web$"),
    ],
)
def test_a_hostile_server_is_given_up_and_what_was_there_stays(kind, limits, says, server, tmp_path):
    server.plan = [kind]
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "file.bin").write_bytes(b"of before")
    limits |= {"size": None, "algorithm": "none", "digest": "", "most": 2 * len(BODY)}
    before = source(f"{server.url}/a", **limits | {"algorithm": "sha256", "digest": SHA256})
    begun = time.monotonic()
    for sources in (before, source(f"{server.url}/a", **limits | {"path": "sub/new.bin"})):
        with pytest.raises(SpdnnError, match=says) as caught:
            get(sources, tmp_path, retries=0)
        assert "\n" not in str(caught.value)
    assert time.monotonic() - begun < DEADLINE / 2
    assert (tmp_path / "sub" / "file.bin").read_bytes() == b"of before"
    assert not (tmp_path / "sub" / "new.bin").exists()


def test_all_attempts_together_have_a_deadline(server, tmp_path):
    server.plan = ["500"]
    with pytest.raises(SpdnnError, match=r"not done within 0\.2 s$"):
        get(source(f"{server.url}/a", seconds=0.2), tmp_path, retries=99, backoff=0.01)


def test_a_mirror_folder_is_not_copied_beyond_what_the_table_allows(tmp_path):
    mirror = tmp_path / "mirror"
    (mirror / "sub").mkdir(parents=True)
    with open(mirror / "sub" / "file.bin", "wb") as stream:
        stream.truncate(1 << 40)  # without taking any room
    with pytest.raises(SpdnnError, match="1,099,511,627,776 bytes, more than 2,048,000"):
        get(source(size=None), tmp_path, mirror=mirror)


def test_a_closed_port_and_every_place_is_listed(server, tmp_path):
    closed = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    closed.server_close()
    server.plan = ["404"]
    urls = [f"http://127.0.0.1:{closed.server_port}/a", f"{server.url}/b"]
    with pytest.raises(SpdnnError, match="refused") as caught:
        get(source(*urls), tmp_path, mirror=tmp_path / "mirror", retries=0)
    places = [str(tmp_path / "mirror" / "sub" / "file.bin"), *urls]
    assert [caught.value.args[0].index(place) for place in places] == sorted(
        caught.value.args[0].index(place) for place in places
    )
    assert "it could not be fetched" in str(caught.value)


def test_the_next_address_is_tried(server, tmp_path):
    server.plan = ["corrupt", "404", "right"]
    urls = [f"{server.url}/{name}" for name in "abc"]
    assert get(source(*urls), tmp_path).read_bytes() == BODY
    assert [path for path, _ in server.asked] == ["/a", "/b", "/c"]


def test_content_may_be_compressed_in_any_way(server, tmp_path):
    row = {"digest_of": "content", "size": None}
    for number, body in enumerate((gzip.compress(BODY, 1), gzip.compress(BODY, 9, mtime=5), BODY)):
        server.body = body
        found = get(source(f"{server.url}/a", **row), tmp_path / str(number))
        assert found.read_bytes() == body
    for number, body in enumerate((gzip.compress(BODY[:-1]), gzip.compress(BODY)[:-9], b"\x1f\x8bjunk" * 9)):
        server.body = body
        with pytest.raises(SpdnnError, match="sha256|broken gzip"):
            get(source(f"{server.url}/a", **row), tmp_path / f"bad{number}")


def test_a_mirror_folder_comes_first(server, tmp_path, monkeypatch):
    mirror = tmp_path / "mirror"
    (mirror / "sub").mkdir(parents=True)
    (mirror / "sub" / "file.bin").write_bytes(BODY)
    assert get(source(f"{server.url}/a"), tmp_path / "1", mirror=mirror).read_bytes() == BODY
    monkeypatch.setenv("SPDNN_MIRROR", str(mirror))
    assert get(source(f"{server.url}/a"), tmp_path / "2").read_bytes() == BODY
    assert not server.asked
    get(source(f"{server.url}/a"), tmp_path / "3", mirror="")
    assert len(server.asked) == 1


def test_a_mirror_address_comes_first(server, tmp_path, monkeypatch):
    monkeypatch.setenv("SPDNN_MIRROR", f"{server.url}/mirror/")
    assert get(source(f"{server.url}/a"), tmp_path).read_bytes() == BODY
    assert server.asked == [("/mirror/sub/file.bin", None)]


@pytest.mark.parametrize(
    ("user", "sent"),
    [("jane:s3cret", "jane:s3cret"), ("s3cret", "s3cret:"), ("j%40:s%2F%3A%C3%BC", "j@:s/:ü"), ("jü:s3€", "jü:s3€")],
)
def test_a_user_and_a_password_go_to_the_mirror_alone_and_into_no_sentence(server, tmp_path, user, sent):
    authorization = f"Basic {base64.b64encode(sent.encode()).decode()}"
    mirror = f"http://{user}@127.0.0.1:{server.server_port}/m/?sig=s3cret"
    get(source(), tmp_path / "1", mirror=mirror)
    assert server.asked == [("/m/sub/file.bin?sig=s3cret", None)]
    # A redirect to its own host keeps them, one to another (here: another port of it) loses them for good.
    own, other = server.url, Server()
    threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.01}).start()
    try:
        other.plan = [f"{own}/back"]
        server.plan = [f"{own}/here", f"{other.url}/there", "right"]
        get(source(redirects=3), tmp_path / "2", mirror=mirror)
    finally:
        other.shutdown()
        other.server_close()
    assert (server.users, other.users) == ([authorization] * 3 + [None], [None])
    server.plan = ["401", f"ftp://jane:s3cret@host/{'x' * 99}"]
    for why in ("the server answered 401", "a redirect to 'ftp://"):
        with pytest.raises(SpdnnError, match=why) as caught:
            get(source(), tmp_path / "3", mirror=mirror)
        assert not any(secret in str(caught.value) for secret in ("s3", "%2F"))


@pytest.mark.parametrize("address", ["file://{}", "file:{}", "FILE://localhost{}"])
def test_a_mirror_folder_may_be_named_as_a_file_address(tmp_path, monkeypatch, address):
    for name, written in (("mirror", "mirror"), ("a b#c?%ü", "a%20b%23c%3F%25%C3%BC"), ("d e#f", "d e#f")):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file.bin").write_bytes(BODY)
        monkeypatch.setenv("SPDNN_MIRROR", address.format(tmp_path / written))
        assert get(source(), tmp_path / "to" / name).read_bytes() == BODY


@pytest.mark.parametrize(
    "name",
    ["ftp://jane:s3cret@host/m", "http://", "s3://bucket", "file://host/m", "file://", "http://jane:s3/cret@host/m"],
)
def test_another_address_is_no_mirror(tmp_path, name):
    said = refuses(
        "mirror '.*': it must be a folder, file:///FOLDER, or begin with http", get, source(), tmp_path, mirror=name
    )
    assert not any(part in said for part in ("s3cret", "s3/cret"))
    for wrong in ("http:jane:s3cret@host/m", "//jane:s3cret@host/m", "jane:s3cret@host/m"):
        assert "s3" not in refuses("^mirror: an address with a user and", get, source(), tmp_path, mirror=wrong)
    assert "s3" not in refuses("an address has no blanks", get, source(), tmp_path, mirror="http://jane:a s3cret@host")


def test_a_bad_mirror_is_passed_over(server, tmp_path):
    mirror = tmp_path / "mirror"
    (mirror / "sub").mkdir(parents=True)
    (mirror / "sub" / "file.bin").write_bytes(b"other")
    assert get(source(f"{server.url}/a"), tmp_path, mirror=mirror).read_bytes() == BODY
    server.plan = ["404"]
    with pytest.raises(SpdnnError, match=r"5 bytes, not 1,024,000.*answered 404"):
        get(source(f"{server.url}/a"), tmp_path / "2", mirror=mirror)
    assert list((tmp_path / "2" / "sub").iterdir()) == []


def test_names_and_places_that_cannot_be(tmp_path):
    refuses("'other' is not in the table", fetch, "other", tmp_path, sources=source())
    (tmp_path / "file").write_text("")
    with pytest.raises(SpdnnError, match="cannot be made"):
        get(source(), tmp_path / "file")
    with pytest.raises(SpdnnError, match=r"tried http://\[a/b: Invalid IPv6 URL"):
        get(source("http://[a/b"), tmp_path, mirror="")


def test_without_requests(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "requests", None)
    with pytest.raises(Unavailable, match="requests"):
        get(source("http://127.0.0.1:9/a"), tmp_path, mirror="")


def test_file_systems_without_locks(server, tmp_path, monkeypatch):
    def unknown(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", unknown)
    assert get(source(f"{server.url}/a"), tmp_path).read_bytes() == BODY
    server.plan = ["truncated"]
    with pytest.raises(SpdnnError, match="broke off"):
        get(source(f"{server.url}/a"), tmp_path / "2", retries=0)


def _fetch_apart(url, folder, queue):
    queue.put(get(source(url), folder).read_bytes() == BODY)


def test_processes_at_once_do_not_disturb_each_other(server, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    queue = spawn.Queue()
    workers = [spawn.Process(target=_fetch_apart, args=(f"{server.url}/a", tmp_path, queue)) for _ in range(2)]
    try:
        for worker in workers:
            worker.start()
        assert [queue.get(timeout=DEADLINE) for _ in workers] == [True] * len(workers)
    finally:
        for worker in workers:
            if worker.pid:
                worker.kill()
                worker.join()
    assert [path.name for path in (tmp_path / "sub").iterdir()] == ["file.bin"]
    assert len(server.asked) == 1
