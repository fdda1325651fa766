"""What a user is told whose argument or file is wrong: one sentence."""

import contextlib
import re
import resource

import pytest

from spdnn.cli import main
from spdnn.core.errors import InputError


def spdnn(*arguments) -> int:
    """The exit status of the command with these words."""
    return main([*map(str, arguments)])


def refused(capsys, *arguments, status=1, silent=True) -> str:
    """The one sentence with which the command ends; `silent`: it has printed nothing else."""
    capsys.readouterr()
    assert spdnn(*arguments) == status
    captured = capsys.readouterr()
    assert not (silent and captured.out)
    assert re.fullmatch(r"spdnn: [^\n]*\n", captured.err)
    return captured.err.removeprefix("spdnn: ").rstrip("\n")


def misused(capsys, *arguments) -> str:
    """What the command says of arguments that are wrong."""
    with pytest.raises(SystemExit, match="^2$"):
        spdnn(*arguments)
    return capsys.readouterr().err


def refuses(sentence, call, *arguments, **options):
    """The sentence that `call` raises; it holds the regular expression `sentence`, and is one line."""
    with pytest.raises(InputError, match=sentence) as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@contextlib.contextmanager
def small_disk(size):
    """While it lasts, no file of this process can grow beyond `size` bytes (pytest's own output neither)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
