"""Engine `reference`: the float64 oracle behind the contract of the engines.

It is for small cases and for comparison; the oracle itself is `spdnn.engines.oracle`.
"""

from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.result import Result
from spdnn.engines import oracle as reference
from spdnn.engines.base import STREAMED, Engine, Options, Prepared, RowExchange, Session


class OracleEngine(Engine):
    name = "reference"
    summary = "the specification line by line in SciPy and float64; slow"

    def missing(self) -> str | None:
        return None

    def prepare(self, network: Network, reductions: tuple[str, ...], memory: int | None = None) -> Prepared:
        return Prepared(network, network, reductions)

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return _OracleSession(prepared, inputs, options)


class _OracleSession(Session):
    span = STREAMED

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared)
        self.network, self.inputs, self.options = prepared.network, inputs, options

    def run(self, exchange: RowExchange | None = None) -> Result:
        return reference.infer(self.network, self.inputs, values=self.options.values, workers=self.options.threads)
