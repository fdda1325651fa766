"""The base of the engines on the compiled CPU kernels, and reading layers ahead of the one in use."""

from collections.abc import Callable, Iterator
from typing import Any

from spdnn.common.threads import in_order
from spdnn.engines.base import Engine, Prepared
from spdnn.kernels import dispatch
from spdnn.problem.network import Network


class CompiledEngine(Engine):
    """An engine on the compiled kernels: it takes layers by output neuron and offers `dead`, `inputs` and `neurons`."""

    offers = ("dead", "inputs", "neurons")
    on_kernels = True
    copies_weights = False

    def missing(self) -> str | None:
        return dispatch.missing()

    def prepare(self, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> Prepared:
        return Prepared.reduced(network, reductions, memory)


def read_ahead(depth: int, read: Callable[[int], Any]) -> Iterator:
    """read(0), read(1), ... read(depth - 1), each in another thread while the one before it is in use."""
    return in_order(read, range(depth), threads=1, ahead=2)
