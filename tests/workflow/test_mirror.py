"""What runs leave of the user, the password and the query of a mirror's address: nothing."""

import base64
import contextlib
import functools
import http.server
import os
import threading
from pathlib import Path

import pytest
from test_workflow import PRESET, full, records_of, snakemake

from spdnn.cli import main

pytestmark = pytest.mark.xdist_group("workflow")

ADDRESS, SENT = "http://j%61ne:s%33cret@127.0.0.1:{port}/m?sig=s3cret", b"jane:s3cret"
SECRETS = [b"s%33cret", b"s3cret", base64.b64encode(SENT)]
CHALLENGE = ("challenge", "--neurons", "1024", "--layers", "1", "--count", "10", "--no-cache")


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves a folder as /m, after a user and a password."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        authorization = self.headers.get("Authorization")
        if authorization != f"Basic {base64.b64encode(SENT).decode()}" or self.server.closed:
            self.send_error(401)
            return
        self.path = self.path.removeprefix("/m").removesuffix("?sig=s3cret")
        super().do_GET()


@pytest.fixture
def mirror(mnist_file, monkeypatch):
    """A server with the images behind a password; nothing else can be reached."""
    monkeypatch.delenv("SPDNN_MIRROR", raising=False)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = functools.partial(Handler, directory=mnist_file.parents[1])
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), folder)
    server.closed = False
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def told(*places: Path) -> list[Path]:
    """The files in folders that hold a secret, in their names or their contents."""
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    return [path for path in files if any(secret in bytes(path) + path.read_bytes() for secret in SECRETS)]


@pytest.mark.needs("mnist")
@pytest.mark.parametrize(
    ("mode", "inputs"),
    [
        ("right", "mnist"),
        ("closed", "auto"),
        *(pytest.param(*case, marks=full) for case in (("right", "auto"), ("closed", "mnist"), ("absent", "auto"))),
    ],
)
def test_no_secret_of_a_mirror_is_in_what_a_workflow_leaves(tmp_path, mirror, mode, inputs):
    mirror.closed = mode == "closed"
    address = ADDRESS.format(port=9 if mode == "absent" else mirror.server_port)
    words = [*PRESET, "--verbose", "--printshellcmds", "--config", f"mirror={address}", f"inputs={inputs}"]
    status, text = snakemake(tmp_path, *words, "repeats=1")
    assert (status == 0) == (mode == "right" or inputs == "auto"), text
    (record,) = records_of(tmp_path).values() if status == 0 else [None]
    assert status or record["problem"]["inputs"]["source"] == ("mnist" if mode == "right" else "digits")
    assert mode == "right" or "127.0.0.1" in text  # the sentence on it
    assert not any(secret.decode() in text for secret in SECRETS)
    assert told(tmp_path) == []
    if mode == "right":  # nor does another password make anything anew
        words[4] = words[4].replace("s%33cret", "other")
        again = snakemake(tmp_path, *words, "repeats=1")[1]
        assert "Nothing to be done" in again


@pytest.mark.needs("mnist")
@pytest.mark.parametrize("mode", ["right", "closed", "absent"])
def test_no_secret_of_a_mirror_is_in_what_a_command_leaves(tmp_path, mirror, mode, monkeypatch, capfd):
    mirror.closed = mode == "closed"
    monkeypatch.setenv("SPDNN_MIRROR", ADDRESS.format(port=9 if mode == "absent" else mirror.server_port))
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # before it is tried again
    assert main([*CHALLENGE, "--record", str(tmp_path / "record.json")]) == (mode != "right")
    captured = capfd.readouterr()
    assert ("http://j%61ne:****@127.0.0.1" in captured.err) == (mode != "right")
    assert not any(secret.decode() in captured.out + captured.err for secret in SECRETS)
    with contextlib.suppress(FileNotFoundError):
        assert told(tmp_path, Path(os.environ["SPDNN_DATA"])) == []
