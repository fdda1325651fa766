"""What a user is told whose argument or file is wrong: one sentence."""

import contextlib
import resource

import pytest

from spdnn.core.errors import InputError


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
