"""Calls of ours in functions that torch.compile compiles: they run beside its graphs, on real arrays.

Dynamo would trace our Python, and hand its stand-ins of arrays to kernels; torch.compiler.disable prevents that. But
torch is not imported here, so a call asks whether it is traced, and only then finds that function.
"""

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from spdnn.core.errors import InputError

DYNAMO = "torch._dynamo"  # nothing is traced before sys.modules has it, which is the quick question
DISPATCH = "torch.utils._python_dispatch"
PROXIES = "torch.fx.experimental.proxy_tensor"

Arguments = ParamSpec("Arguments")  # one to a line: type checkers take no others
Outcome = TypeVar("Outcome")


def traced() -> bool:
    """Whether Dynamo traces the caller; it answers this question itself."""
    return DYNAMO in sys.modules and sys.modules["torch"].compiler.is_dynamo_compiling()


def outside(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What the function gives, from a traced caller: the graph ends before the call, and another one begins after."""
    from spdnn.core.untraced import call

    return call(function, arguments, named)


def outside_graphs(function: Callable[Arguments, Outcome]) -> Callable[Arguments, Outcome]:
    """`function`, which Dynamo calls and does not trace."""

    @functools.wraps(function)
    def call(*arguments: Arguments.args, **named: Arguments.kwargs) -> Outcome:
        if traced():
            return outside(function, *arguments, **named)
        return function(*arguments, **named)

    return call


def refuse_recorded(what: str) -> None:
    """Raise InputError where torch records what becomes of a tensor: it would keep our result as a constant."""
    if (dispatch := sys.modules.get(DISPATCH)) is None:  # torch is not there in full
        return
    # The quick question comes first: finding the mode that records takes 2 us.
    modes = dispatch.is_in_torch_dispatch_mode()
    recorded = modes and PROXIES in sys.modules and sys.modules[PROXIES].get_proxy_mode()
    if recorded or sys.modules["torch"].jit.is_tracing():
        raise InputError(
            f"{what} is a tensor of a call that torch.jit.trace, make_fx or torch.export records, and torch has no "
            "operator for a compiled model or spdnn.ops; layers of spdnn.torch can be recorded"
        )
