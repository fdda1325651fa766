"""How a process ends before its work is done: by a signal, or because the process that it works for is gone.

Python's handlers of signals run between two of its own instructions. A call of compiled code may take minutes, and a
library may swallow what a handler raised; so a thread waits for signals too, and ends the process soon after one.
"""

import contextlib
import os
import re
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TextIO

SIGNAL_GRACE = 0.5  # seconds, after a signal, in which a process may end by itself
STARTER = "SPDNN_ENDS_WITH"  # environment variable: the process (Process) that this one does not outlive
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _Signals:
    """Of the innermost `clean_on_terminate`, and of what is under way in it."""

    def __init__(self):
        self.ended_by: int | None = None  # the signal that is ending this process
        self.reported = self.deferred = self.appeared = False
        self.undo: list[Callable[[], object]] = []


_state = _Signals()


@contextlib.contextmanager
def clean_on_terminate(own: bool = False) -> Iterator[None]:
    """In this block, let SIGTERM and SIGHUP end the process as an error does, so that temporary files are removed.

    The exit status is 128 + the signal's number. A signal that is ignored (nohup) stays so. SIGINT raises
    KeyboardInterrupt as ever, and is remembered like the others for `check_ended`. At the end of the block the handlers
    of before are back.

    Args:
        own: a signal ends the process with the block, and SIGNAL_GRACE seconds after it in any case, whatever compiled
            code it is in. It gets SIGTERM when the process that STARTER names ends.
    """
    global _state

    def ended(number, frame):
        again, _state.ended_by = _state.ended_by is not None, _state.ended_by or number
        if not _state.deferred and not (own and again):  # what removes files is let through
            _tell_and_raise()

    def unraisable_hook(unraisable, default=sys.unraisablehook):
        # Python swallows what is raised in a finalizer, with a traceback; check_ended raises it again.
        if _state.ended_by is None or unraisable.exc_type not in (KeyboardInterrupt, SystemExit):
            default(unraisable)

    before, _state = _state, _Signals()
    hook, sys.unraisablehook = sys.unraisablehook, unraisable_hook
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    handled = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
    try:
        for number in handled:
            signal.signal(number, ended)
        with _enforce_end(handled) if own else contextlib.nullcontext():
            yield
    finally:
        for number, handler in handled.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: it was not Python's
        sys.unraisablehook, _state = hook, before


def check_ended() -> None:
    """Raise again what a signal raised, in case a library swallowed it, as in a finalizer."""
    if _state.ended_by == signal.SIGINT:
        raise KeyboardInterrupt
    if _state.ended_by is not None:
        raise SystemExit(128 + _state.ended_by)


def _tell_and_raise() -> None:
    if _state.ended_by not in (None, signal.SIGINT) and not _state.reported:
        with contextlib.suppress(OSError, RuntimeError):  # it cannot be written to, or is being written to
            print(f"spdnn: {farewell()}", file=sys.stderr)
    check_ended()


def farewell(state: _Signals | None = None) -> str:
    """The sentence of a process that a signal ends; from now on it is told."""
    state = state or _state
    state.reported = True
    word = "interrupted" if state.ended_by == signal.SIGINT else "terminated"
    what = "what has its final name is whole" if state.appeared else "nothing was written under a final name"
    return f"{word}; {what}"


def mark_final() -> None:
    """Tell that something has its final name now."""
    _state.appeared = True


@contextlib.contextmanager
def hold_signals() -> Iterator[None]:
    """In this block, a few system calls at most, no signal raises anything; what came is raised at its end."""
    _state.deferred = True
    try:
        yield
    finally:
        _state.deferred = False
    _tell_and_raise()


def undo(action: Callable[[], object]) -> None:
    """As `undone`, until this process or the block of `clean_on_terminate` ends."""
    _state.undo.append(action)


@contextlib.contextmanager
def undone(action: Callable[[], object]) -> Iterator[None]:
    """In this block, `action` is done when the process is ended without a chance to do it itself: in another thread."""
    undo(action)
    try:
        yield
    finally:
        _state.undo.remove(action)


@contextlib.contextmanager
def _enforce_end(numbers) -> Iterator[None]:
    """After one of these signals, end the process with this block, or SIGNAL_GRACE seconds later by a thread."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=_watch, args=(_state, reader, frozenset(numbers)), daemon=True, name="signals").start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)
        if _state.ended_by is not None:  # all is told and removed; Python's own end may wait for threads
            for stream in (sys.stdout, sys.stderr):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(128 + _state.ended_by)


def _watch(state: _Signals, reader: int, numbers: frozenset[int]) -> None:
    """Until the other end of `reader` is closed: wait for a signal, and end the process some time after it."""
    waiting = select.poll()
    waiting.register(reader, select.POLLIN)
    if (starter := _starter()) is not None:
        waiting.register(starter, select.POLLIN)
    while True:
        ready = [file for file, _ in waiting.poll()]
        if starter in ready:
            waiting.unregister(starter)
            _terminate()
        elif not (came := os.read(reader, 64)):
            break
        elif ending := numbers.intersection(came):
            time.sleep(SIGNAL_GRACE)
            _end(state, min(ending))
    os.close(reader)


def _starter() -> int | None:
    """A file that can be read from once the process that STARTER names has ended; None: there is none to be had."""
    named = parse(os.environ.get(STARTER, ""))
    if named is None or not named.here:
        return None
    file = None
    with contextlib.suppress(AttributeError, OSError):  # it has ended, or the system does not have such files
        file = os.pidfd_open(named.number)
    if named.gone:  # and its number is another's
        _terminate()
    return file


def _terminate() -> None:
    """Send SIGTERM to this process's main thread, whose handler does the rest."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGTERM)


def _end(state: _Signals, number: int) -> None:
    """End the process, with what it would have done by itself."""
    state.ended_by = state.ended_by or number
    for action in reversed(state.undo):
        with contextlib.suppress(Exception):
            action()
    if not state.reported:
        with contextlib.suppress(OSError):
            os.write(2, f"spdnn: {farewell(state)}\n".encode())
    os._exit(128 + number)


def say(text: str, name: str = "stdout") -> None:
    """Print a line on standard output, or on `stderr`; where it cannot be written to, nothing happens.

    It is for what no status depends on. Letters that the stream has not are replaced.
    """
    stream = getattr(sys, name)
    if stream is not None:  # it was closed before this process began
        encoding = stream.encoding or "utf-8"
        with contextlib.suppress(OSError, ValueError):
            print(text.encode(encoding, "replace").decode(encoding), file=stream, flush=True)
        if name == "stdout":
            discard_output(stream)


def discard_output(stream: TextIO) -> None:
    """Point a stream at nothing where it cannot be written to, so that Python does not fail at its end."""
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class Process(NamedTuple):
    """A process, as others can find it; `str` and `parse` are a line of text of it.

    Attributes:
        host: its name; boot: what its system drew when it was started, and the namespace that numbers its processes.
        number: of the process; start: when it began, in ticks of the clock since the boot.
    """

    host: str
    boot: str
    number: int
    start: int

    def __str__(self) -> str:
        return f"{self.host} {self.boot} {self.number} {self.start}"

    @property
    def here(self) -> bool:
        """Whether it is of the system that this process runs under."""
        return (self.host, self.boot) == _system()

    @property
    def gone(self) -> bool:
        """Whether it was of this system, and has ended."""
        return self.here and _start(self.number) != self.start


def parse(text: str) -> Process | None:
    """The process of a line of text; None: the line tells of none."""
    host, boot, number, start, *more = (*text.split(), "", "", "", "")
    whole = all(re.fullmatch(r"[0-9]{1,18}", text) for text in (number, start)) and not any(more)
    return Process(host, boot, int(number), int(start)) if whole else None


def process(number: int | None = None) -> Process | None:
    """The process of that number on this machine, this one by default; None: there is none."""
    number = os.getpid() if number is None else number
    start = _start(number)
    return None if start is None else Process(*_system(), number, start)


def process_seconds() -> float:
    """Seconds since this process was started, to the hundredth."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) - _start("self") / os.sysconf("SC_CLK_TCK")


@cache
def _system() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return socket.gethostname(), f"{boot}-{os.stat('/proc/self/ns/pid').st_ino}"


def _start(number: int | str) -> int | None:
    """When a process began; None: there is none, or it has ended and nobody has asked for its status yet."""
    try:
        # The name of the program is in brackets, and may hold anything.
        state, *fields = Path(f"/proc/{number}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else int(fields[18])
