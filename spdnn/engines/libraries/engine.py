"""The engine around a library: each library has a subclass that names it."""

from spdnn.engines.base import Engine, Options, Prepared, Session
from spdnn.engines.libraries.library import Library
from spdnn.engines.libraries.session import LibrarySession
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network


class LibraryEngine(Engine):
    """The engine around a library; subclasses name it."""

    library: Library

    def __init__(self):
        self.name, self.summary, self.offers = self.library.name, self.library.summary, self.library.offers
        self.on_device = self.library.on_device

    def missing(self) -> str | None:
        return self.library.missing()

    def prepare(self, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> Prepared:
        for k in range(network.depth):
            self.library.check(network.header(k), reductions)
        return Prepared.reduced(network, reductions)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return LibrarySession(self.library, prepared, inputs, options)
