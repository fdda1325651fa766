"""A function that Dynamo does not trace into. It imports torch: only what Dynamo traces imports this module."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch


@torch.compiler.disable
def call(function: Callable[..., Any], arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """What the function gives."""
    return function(*arguments, **named)
