"""A process ends soon after a signal, or after the process that it works for, and leaves nothing behind.

Which process is meant, and whether it is gone.
"""

import contextlib
import os
import signal
import subprocess
import sys

import pytest
from children import ended, finished, started, until

from spdnn.core import endings, files
from spdnn.core.endings import parse, process

# What never returns and is not Python: a lock that is taken twice.
STUCK = """
import ctypes, os, signal, sys
from spdnn.core.endings import clean_on_terminate, farewell
from spdnn.core.files import replacing, replacing_folder, together
from spdnn.formats.text import stage_folder
from pathlib import Path

libc = ctypes.CDLL(None)
mutex = ctypes.create_string_buffer(256)
libc.pthread_mutex_init(mutex, None)
libc.pthread_mutex_lock(mutex)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
with clean_on_terminate(own=True):
    try:
        with together(), stage_folder(Path("layers"), ["n"]):
            with replacing("whole") as whole:
                whole.write_text("1")
            with replacing("half") as half, replacing_folder("folder") as folder:
                (folder / "x").touch()
                print("begun", flush=True)
                libc.pthread_mutex_lock(mutex)
    except KeyboardInterrupt:  # which came before
        print(f"spdnn: {farewell()}", file=sys.stderr)
        sys.exit(130)
"""


@pytest.fixture
def stuck(tmp_path):
    """A program in compiled code that does not return, with files under temporary names; it works for a shell."""

    def start(**more):
        environment = {**os.environ, **more}
        return started([sys.executable, "-c", STUCK], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       text=True, env=environment)  # fmt: skip

    return start


@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated"), (signal.SIGHUP, "terminated")]
)
def test_a_signal_ends_compiled_code(tmp_path, stuck, number, word):
    with stuck() as process:
        assert process.stdout.readline() == "begun\n"
        assert len(os.listdir(tmp_path)) == 4
        process.send_signal(number)
        status, _, told = ended(process)
    assert (status, told) == (128 + number, f"spdnn: {word}; nothing was written under a final name\n")
    assert not os.listdir(tmp_path)


def test_a_process_ends_with_the_one_that_it_works_for(tmp_path, stuck):
    with started(["sleep", "1000"]) as shell, stuck(**{endings.STARTER: str(process(shell.pid))}) as job:
        assert job.stdout.readline() == "begun\n"
        shell.kill()
        shell.wait()
        assert ended(job)[0] == 128 + signal.SIGTERM
    with stuck(**{endings.STARTER: str(process()._replace(start=1))}) as job:  # it ended before
        assert ended(job)[0] == 128 + signal.SIGTERM
    assert not os.listdir(tmp_path)


def test_a_signal_waits_until_all_outputs_have_their_names(tmp_path, monkeypatch, capsys):
    replace = os.replace

    def stopped(*names):
        signal.raise_signal(signal.SIGTERM)
        replace(*names)

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(SystemExit), endings.clean_on_terminate(), files.together():
        for name in "ab":
            files.write_text(tmp_path / name, name)
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert capsys.readouterr().err == "spdnn: terminated; what has its final name is whole\n"


@pytest.mark.parametrize(("number", "raised"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_that_a_library_swallowed_is_raised_again(number, raised):
    before = signal.getsignal(number)
    with pytest.raises(raised), endings.clean_on_terminate():
        endings.check_ended()
        with contextlib.suppress(BaseException):
            signal.raise_signal(number)
        endings.check_ended()
    endings.check_ended()  # nobody else's run ends
    assert signal.getsignal(number) == before


def test_a_signal_swallowed_by_a_finalizer_is_silent_and_still_ends_the_run():
    code = """
import os, signal
from spdnn.core.endings import check_ended, clean_on_terminate

class Swallows:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)

with clean_on_terminate():
    thing = Swallows()
    del thing
    check_ended()
print("went on")
"""
    told = "spdnn: terminated; nothing was written under a final name\n"
    assert finished([sys.executable, "-c", code]) == (143, "", told)


def test_a_process_is_gone_when_it_has_ended_or_its_number_is_of_another():
    with started([sys.executable, "-c", "input()"], stdin=-1) as child:
        one = process(child.pid)
        assert one.here
        assert not one.gone
        assert one._replace(start=one.start - 1).gone
        child.stdin.close()
        until(lambda: one.gone, "it is known to have ended, also before anybody asks for its status")
    assert process(child.pid) is None
    assert not process(os.getpid()).gone


def test_of_a_process_elsewhere_nothing_is_known():
    for more in ({"host": "elsewhere"}, {"boot": "another"}):
        one = process()._replace(**more, start=1)
        assert not one.here
        assert not one.gone


def test_a_line_of_text_is_a_process_or_none():
    assert parse(str(process())) == process()
    for text in ("", "host boot 1", "host boot one 2", "host boot 1 2 3"):
        assert parse(text) is None


SAYS = """
import sys
from spdnn.core.endings import say
say("1,024 × 120", {name!r})
say("more", {name!r})
open("after", "w").close()
"""


@pytest.mark.parametrize("name", ["stdout", "stderr"])
@pytest.mark.parametrize(
    ("stream", "printed"),
    [
        (">/dev/full", ""),
        (">&-", ""),
        ("| true", ""),
        (">printed", "1,024 × 120\nmore\n"),
        ("PYTHONIOENCODING=ascii", "1,024 ? 120\nmore\n"),
    ],
)
def test_what_no_status_depends_on_is_said_where_it_can_be(tmp_path, name, stream, printed):
    setting, stream = (stream, ">printed") if "=" in stream else ("PYTHONUTF8=1", stream)
    if name == "stderr":
        stream = "2>&1 >/dev/null | true" if stream == "| true" else f"2{stream}"
    # The pipe has no reader any more when something is written to it.
    line = f'{{ sleep 0.2; env {setting} "$0" -c "$1"; echo $? >status; }} {stream}'
    told = finished(["sh", "-c", line, sys.executable, SAYS.format(name=name)], cwd=tmp_path)[2]
    assert told == ""
    assert (tmp_path / "status").read_text() == "0\n"
    assert (tmp_path / "after").exists()
    assert not printed or (tmp_path / "printed").read_text("utf-8") == printed
