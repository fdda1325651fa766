"""One layer on dense features: product, bias and activation, with every program's layouts made outside the clock."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from spdnn.bench.common import OURS, ComparisonSettings, alternate, check_same
from spdnn.bench.engines.library import Library
from spdnn.bench.engines.session import upper_bound
from spdnn.bench.libraries.base import DenseLayer, TimedProgram
from spdnn.bench.libraries.ours import OurLayer
from spdnn.bench.product_checks import digest
from spdnn.core import provenance
from spdnn.core.features import Inputs
from spdnn.core.network import MemoryNetwork, Network
from spdnn.core.result import Result, RowStatistics
from spdnn.engines.base import Options
from spdnn.engines.registry import engine
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import tiles as layouts
from spdnn.runs import measure
from spdnn.runs.records.environment import Environment
from spdnn.runs.records.files import record_of
from spdnn.runs.records.result import EngineRecord as EngineNotes
from spdnn.runs.records.result import ProblemRecord, Reductions
from spdnn.runs.records.result import ResultRecord as RecordResult
from spdnn.runs.records.run_record import Measurement, RunRecord
from spdnn.runs.verify import verdict as verify
from spdnn.runs.verify.judging import verdict_key

ONE_LAYER = "one layer, features in the engine's layout"
DEPTH = 20  # of the network that a layer is taken from
FEATURE_BYTES = 1 << 26  # of one layer's features, by default: past every cache
LEAST_ROUNDS = 3
SEED = 0  # of the random features


class LibraryLayer(TimedProgram):
    """A library on one layer; the array of the call before is offered to it again."""

    def __init__(self, library: Library, problem: DenseLayer, threads: int):
        (layer, rows), self.library, self.spare = problem, library, None
        self.notes = library.start(threads)
        upper_bound(layer, float(rows.max()), 0, library.name)
        self.weights, self.features = library.weights(layer), library.features(rows)
        self.edges = library.work(self.features, self.weights, len(rows))

    def __call__(self, x: Any = None) -> Any:
        self.spare = self.library.step(self.features, self.weights, self.spare)
        return self.spare

    def array(self, out: Any) -> np.ndarray:
        return self.library.dense(out)


def compare_layers(widths: Iterable[int], count: int | None, comparison: ComparisonSettings) -> list[RunRecord]:
    """Records of one layer on dense features, ours first, at each width, in LEAST_ROUNDS rounds or more.

    Args:
        widths: of RadiX-Nets; the layer is the first that a permutation reaches.
        count: inputs; by default as many as FEATURE_BYTES hold.

    Raises:
        InputError: a width that the formula does not define.
        SpdnnError: an output is wrong, or changed while it was timed.
    """
    records = []
    for neurons in widths:
        formula = RadixNet(neurons, DEPTH)
        k = formula.block
        network = MemoryNetwork([formula.layer(k)], {**formula.description, "layer": k + 1})
        size = count or max(layouts.TILES[-1], FEATURE_BYTES // (4 * neurons))
        rows = np.random.default_rng(SEED).random((size, neurons), dtype=np.float32)
        inputs = Inputs(rows, description={"source": "random", "seed": SEED, "low": 0.0, "high": 1.0})
        records += _one_width(network, inputs, comparison)
    return records


def _one_width(network: Network, inputs: Inputs, comparison: ComparisonSettings) -> list[RunRecord]:
    """Records of one layer, a network of its own."""
    layer, threads = DenseLayer(network.layer(0), inputs.data), comparison.threads
    truth = verify.oracle(network, inputs)
    programs, spent = {}, {}
    programs[OURS], spent[OURS] = measure.time_call(OurLayer, layer, threads)
    for name in comparison.libraries:
        programs[name], spent[name] = measure.time_call(LibraryLayer, engine(name), layer, threads)
    results, outputs = {}, {}
    for name, program in programs.items():
        rows = program.array(program())
        alive, outputs[name] = np.flatnonzero(rows.any(axis=1)), digest(rows)
        statistics, survivors = RowStatistics.of(rows[alive]), np.array([alive.size])
        results[name] = Result(
            len(rows), rows.shape[1], alive, *statistics, survivors, program.edges, rows[alive], notes=program.notes
        )
    verdicts = {
        name: replace(verify.judge(result, truth), judged=verdict_key(network, inputs, result, outputs[name]))
        for name, result in results.items()
    }
    samples, digests, load = alternate(
        {name: (call, lambda out, call=call: digest(call.array(out))) for name, call in programs.items()},
        (LEAST_ROUNDS, math.inf),
        comparison.seconds,
    )
    peak = measure.peak_memory()  # of all of them, before the machine's arrays
    ceilings, records = measure.ceilings(engine(OURS), Options(threads)), []
    for name, program in programs.items():
        check_same(name, digests[name], outputs[name])
        measurement = Measurement(
            problem=ProblemRecord.of(network, inputs),
            engine=EngineNotes(name, program.notes),
            reductions=Reductions([], {}),
            threads=threads,
            ranks=1,
            memory_limit_bytes=None,
            span=ONE_LAYER,
            read_seconds=[0.0],  # all made by formula, once
            prepare_seconds=[spent[name]],
            inference_seconds=samples[name],
            result=replace(RecordResult.of(results[name]), digest=outputs[name]),
            peak_memory_bytes=peak,
            machine=ceilings if name == OURS else None,
            distribution=None,
            load=load,
            passed_over=[],
            time_to_solution=None,
            environment=Environment(**provenance.environment("")),
        )
        case = f"peers-layer-{network.width}.random-{inputs.count}.{name}.t{threads}"
        records.append(record_of(case, measurement, verdicts[name], comparison.command, comparison.identity))
    return records
