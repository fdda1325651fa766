"""The frame of every script of the workflow: its standard error is the rule's log, its errors are one sentence."""

import contextlib
import os
import sys
from collections.abc import Iterator

from spdnn.core.endings import clean_on_terminate, farewell
from spdnn.core.errors import SpdnnError
from spdnn.core.resources import is_out_of_memory, out_of_memory


@contextlib.contextmanager
def log_errors(log: str) -> Iterator[None]:
    """Send standard error to the file `log`; end the process with status 1 and one sentence on an SpdnnError.

    The sentence goes to the log and to the terminal, and progress (spdnn/core/progress.py) to the log.
    """
    if sys.stderr is None:  # it was closed before this process began
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False)
    sys.stderr.flush()
    terminal = os.fdopen(os.dup(2), "w", errors="backslashreplace")  # as standard error
    with (
        clean_on_terminate(own=True),
        open(log, "w", encoding="utf-8", errors="backslashreplace", buffering=1) as stream,
    ):
        os.dup2(stream.fileno(), 2)
        try:
            yield
        except SpdnnError as error:
            print(f"spdnn: {error}", file=stream)
            print(f"spdnn: {error}", file=terminal, flush=True)
            raise SystemExit(1) from None
        except KeyboardInterrupt:
            print(f"spdnn: {farewell()}", file=stream)
            raise SystemExit(130) from None
        except (OSError, MemoryError, RuntimeError, ImportError) as error:
            no_memory = is_out_of_memory(error)
            print(f"spdnn: {out_of_memory() if no_memory else error}", file=terminal, flush=True)
            raise
        finally:
            sys.stderr.flush()
