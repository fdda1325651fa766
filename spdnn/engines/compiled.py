"""What engines on the compiled CPU kernels share: their base class, reading layers ahead, the error of an overflow."""

from collections.abc import Callable, Iterator
from typing import Any

from spdnn.core.limits import Machine
from spdnn.core.network import Network
from spdnn.core.threads import in_order
from spdnn.engines.base import Options, Prepared, SharesWeights
from spdnn.engines.memory import resident_bytes
from spdnn.kernels import dispatch


class CompiledEngine(SharesWeights):
    """An engine on the compiled kernels: it takes layers by output neuron and offers `dead`, `inputs` and `neurons`."""

    offers = ("dead", "inputs", "neurons")

    def missing(self) -> str | None:
        return dispatch.missing()

    def prepare(self, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> Prepared:
        return Prepared.reduce(network, reductions, memory)

    def ceilings(self, options: Options, seconds: float, together: int = 1) -> Machine | None:
        from spdnn.engines.cpu import ceilings

        memory = None if options.memory is None else max(0, options.memory - resident_bytes())
        return ceilings.measure(options.threads, seconds, memory, together)


def read_ahead(depth: int, read: Callable[[int], Any]) -> Iterator:
    """read(0), read(1), ... read(depth - 1), each in another thread while the one before it is in use."""
    return in_order(read, range(depth), threads=1, ahead=2)
