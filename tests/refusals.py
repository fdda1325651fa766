"""What a user is told whose argument or file is wrong: one sentence."""

from __future__ import annotations

import pytest

from spdnn.errors import InputError


def refuses(sentence, call, *arguments, **options):
    """The sentence that `call` raises; it holds the regular expression `sentence`, and is one line."""
    with pytest.raises(InputError, match=sentence) as refused:
        call(*arguments, **options)
    assert "\n" not in str(refused.value)
    return str(refused.value)
