"""Engine `reference`: the float64 oracle behind the contract of the engines.

It is for small cases and for comparison; the oracle itself is `spdnn.engines.oracle`.
"""

from spdnn.core.features import Inputs
from spdnn.core.result import Result
from spdnn.engines import oracle
from spdnn.engines.base import STREAMED, Engine, Options, Prepared, RowExchange, Session


class OracleEngine(Engine):
    name = "reference"
    summary = "the specification line by line in SciPy and float64; slow"

    def open(self, prepared: Prepared, inputs: Inputs, options: Options) -> Session:
        return _OracleSession(prepared, inputs, options)


class _OracleSession(Session):
    span = STREAMED

    def __init__(self, prepared: Prepared, inputs: Inputs, options: Options):
        super().__init__(prepared, inputs)
        self.options = options

    def run(self, exchange: RowExchange | None = None) -> Result:
        options = self.options
        return oracle.infer(self.prepared.network, self.inputs, values=options.values, workers=options.threads)
