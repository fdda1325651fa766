"""Other libraries and our engine in the same run: one layer on dense features, and a whole network.

Of a layer, every program's layouts are made outside the clock; in a network, every program follows the contract of the
engines (spdnn/engines/base.py). The key `peers` of a configuration asks for both.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import replace

from spdnn.bench.contest import CONTEST_SEED, ComparisonSettings, Entrant, Pace, contest, usable
from spdnn.bench.engines.library import Library
from spdnn.bench.engines.session import upper_bound
from spdnn.bench.libraries.base import TimedProgram
from spdnn.bench.libraries.ours import OurLayer
from spdnn.core import provenance
from spdnn.core.errors import Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.files import together
from spdnn.core.network import Layer, MemoryNetwork, Network
from spdnn.core.request import RunRequest
from spdnn.core.result import LayerWork, Result, RowStatistics
from spdnn.engines.base import Options, Prepared
from spdnn.engines.registry import PEERS, engine
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import tiles as layouts
from spdnn.runs import measure
from spdnn.runs.load import load_named_inputs, load_network
from spdnn.runs.records.environment import Environment
from spdnn.runs.records.files import record_of, write_record
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.run import open_session
from spdnn.runs.verify import verdict as verify
from spdnn.runs.verify.judging import truth_for, verdict_key, verdict_of
from spdnn.runs.verify.official import draw_kept

OURS = "cpu"
REDUCTIONS = ("all", "dead")  # of our own engine: all that it offers, which the ratios are to, and what peers have too
ONE_LAYER = "one layer, features in the engine's layout"
DEPTH = 20  # of the network that a layer is taken from
FEATURE_BYTES = 1 << 26  # of one layer's features, by default: past every cache
LAYER_PACE = Pace(3, math.inf)


class LibraryLayer(TimedProgram):
    """A library on one layer, as OurLayer; the array of the call before is offered to it again."""

    def __init__(self, library: Library, layer: Layer, rows: np.ndarray, threads: int):
        self.library, self.spare, self.sparse = library, None, library.sparse
        self.notes = library.start(threads)
        upper_bound(layer, float(rows.max()), 0, library.name)
        self.weights, self.features = library.weights(layer), library.features(rows)
        self.edges = library.work(self.features, self.weights, len(rows))

    def __call__(self, x: Any = None) -> Any:
        self.spare = self.library.step(self.features, self.weights, self.spare)
        return self.spare

    def array(self, out: Any) -> np.ndarray:
        return self.library.dense(out)


class NetworkRun(TimedProgram):
    """A session of an engine on a whole network, as its request has it; `digest` is that of the result."""

    def __init__(self, request: RunRequest, network: Network, inputs: Inputs, kept: bool | np.ndarray):
        self.request = request
        self.session, self.loaded = open_session(request, network, inputs, kept)

    def __call__(self, x: Any = None) -> Result:
        return self.session.run()

    def digest(self, out: Result) -> str:
        return out.digest


def find_libraries(names: str | Sequence[str] = "all") -> tuple[list[str], dict[str, str]]:
    """(the peers to run, why each of the others cannot run here) of `names`, 'all' and 'auto' for those that are
    installed. Raises as contest.usable.
    """
    offered = {name: engine(name, usable=False).missing for name in PEERS}
    return usable(None if names in ("all", "auto") else names, offered, "engine")


def compare(
    settings: dict, command: str, inputs: Inputs | None = None
) -> Iterator[tuple[list[RunRecord], dict[str, str]]]:
    """Yield (the records of a problem, why a library has none), as the key `peers` of a configuration asks for them.

    Args:
        settings: widths, count, seconds, network, libraries, threads, as the configuration's schema has them.
        command: that makes the records again.
        inputs: of the network, where they are at hand; its count is applied here.

    Raises:
        InputError, Unavailable: see find_libraries, compare_layers and compare_networks.
    """
    libraries, _ = find_libraries(settings["libraries"])
    comparison = ComparisonSettings(settings["threads"], libraries, settings["seconds"], command)
    for records in compare_layers(settings["widths"], settings["count"], comparison):
        yield records, {}
    if whole := settings["network"]:
        request = RunRequest.of(
            {key: value for key, value in whole.items() if value is not None} | {"threads": settings["threads"]}
        )
        network = load_network(request)
        if inputs is None:
            inputs = load_named_inputs(request.inputs, network.inputs, request.count, request.mnist)
        elif request.count is not None:
            inputs = inputs.first(request.count)
        yield compare_networks(request, network, inputs, comparison)


def compare_layers(
    widths: Iterable[int], count: int | None, comparison: ComparisonSettings
) -> Iterator[list[RunRecord]]:
    """Yield the records of one layer on dense features, ours first, at each width.

    Args:
        widths: of RadiX-Nets; the layer is the first that a permutation reaches.
        count: inputs; by default as many as FEATURE_BYTES hold.

    Raises:
        InputError: a width that the formula does not define.
        SpdnnError: an output is wrong, or changed while it was timed.
    """
    for neurons in widths:
        formula = RadixNet(neurons, DEPTH)
        k = formula.block
        network = MemoryNetwork([formula.layer(k)], {**formula.description, "layer": k + 1})
        size = count or max(layouts.TILES[-1], FEATURE_BYTES // (4 * neurons))
        rows = np.random.default_rng(CONTEST_SEED).random((size, neurons), dtype=np.float32)
        inputs = Inputs(rows, description={"source": "random", "seed": CONTEST_SEED, "low": 0.0, "high": 1.0}).owned()
        yield _compare_layer(network, inputs, comparison)


def _compare_layer(network: Network, inputs: Inputs, comparison: ComparisonSettings) -> list[RunRecord]:
    """Records of one layer, a network of its own."""
    problem, threads = (network.layer(0), inputs.data), comparison.threads
    truth, results = verify.oracle(network, inputs), {}

    def judge(name: str, entrant: Entrant, out: Any) -> verify.Verdict:
        rows, program = entrant.program.array(out), entrant.program
        alive = np.flatnonzero(rows.any(axis=1))
        layer = np.array([[len(rows)], [network.edges], [program.edges]])
        results[name] = Result(
            len(rows), rows.shape[1], alive, *RowStatistics.of(rows[alive]), np.array([alive.size]), program.edges,
            rows[alive], notes=program.notes, counts=LayerWork(*layer, program.sparse),
        )  # fmt: skip
        judged = verdict_key(network, inputs, results[name], entrant.digest)
        return replace(verdict_of(network, results[name], truth), judged=judged)

    makers = {OURS: partial(OurLayer, *problem, threads)}
    makers |= {name: partial(LibraryLayer, engine(name), *problem, threads) for name in comparison.libraries}
    entrants, _, load = contest(makers, judge, LAYER_PACE, comparison.seconds)
    measured = {}
    for name, entrant in entrants.items():
        samples = measure.Samples([0.0], [entrant.prepare_seconds], entrant.seconds)  # read: made by formula, once
        whole = measure.measurement_of(
            name, Prepared(network, network), inputs, Options(threads), {}, ONE_LAYER, results[name], samples
        )
        result, where = replace(whole.result, digest=entrant.digest), Environment(**provenance.environment(""))
        measured[name] = replace(whole, load=load, result=result, environment=where)
    # The machine last: its arrays would count as memory of the programs.
    measured[OURS] = replace(measured[OURS], machine=measure.ceilings(engine(OURS), Options(threads)))
    case = f"peers-layer-{network.width}.random-{inputs.count}"
    return [
        record_of(
            f"{case}.{name}.t{threads}", whole, entrants[name].verdict, comparison.command, comparison.identity
        )
        for name, whole in measured.items()
    ]  # fmt: skip


def compare_networks(
    request: RunRequest, network: Network, inputs: Inputs, comparison: ComparisonSettings
) -> tuple[list[RunRecord], dict[str, str]]:
    """Records of a whole network in our engine, with each of REDUCTIONS, and in each library with all that it offers.

    Args:
        request: of our engine; in each of its repeats every program runs once, after a first run that is verified and
            not timed.
        network, inputs: those of the request.

    Returns:
        the records, ours first; and a sentence for each library that cannot run this network.

    Raises:
        InputError: inputs that do not fit, or too little memory. SpdnnError: see compare_layers.
    """
    programs = {OURS if reductions == REDUCTIONS[0] else f"{OURS}-{reductions}": (OURS, reductions)
                for reductions in REDUCTIONS}  # fmt: skip
    programs |= {library: (library, "all") for library in comparison.libraries}
    kept, results, truths = draw_kept(network, inputs), {}, []

    def judge(name: str, entrant: Entrant, result: Result) -> verify.Verdict:
        results[name] = result
        if not truths:  # ours comes first, and tells which inputs a sample is drawn from
            truths.append(truth_for(network, inputs, result))
        edges = entrant.program.loaded.prepared.edges
        return replace(verdict_of(network, result, truths[0], edges), judged=verdict_key(network, inputs, result))

    makers = {
        name: partial(NetworkRun, replace(request, engine=its_engine, reductions=reductions), network, inputs, kept)
        for name, (its_engine, reductions) in programs.items()
    }
    pace = Pace(request.repeats, request.repeats)
    entrants, refused, load = contest(makers, judge, pace, tolerated=Unsuitable)
    options, measured = Options(comparison.threads, values=kept), {}
    for name, entrant in entrants.items():
        run = entrant.program
        loaded, session = run.loaded, run.session
        samples = measure.Samples([loaded.read_seconds], [loaded.prepare_seconds], entrant.seconds)
        whole = measure.measurement_of(
            run.request.engine, loaded.prepared, inputs, options, session.findings, session.span, results[name], samples
        )
        measured[name] = replace(whole, load=load)
    # The machine last: its arrays would count as memory of the runs.
    records = []
    for name, whole in measured.items():
        asked, verdict = entrants[name].program.request, entrants[name].verdict
        whole = replace(whole, machine=measure.ceilings(engine(asked.engine), options))
        case = f"peers-{asked.name}"
        records.append(record_of(case, whole, verdict, comparison.command, comparison.identity, asked))
    return records, refused


def label(record: RunRecord) -> str:
    """The engine, and of our own the reductions where it did not run with all of them."""
    name, requested = record.engine.name, record.reductions.requested
    whole = name != OURS or not requested or len(requested) == len(engine(name).offers)
    return name if whole else f"{name}, {'+'.join(requested)}"


def write_records(folder: str | Path, records: Iterable[RunRecord]) -> None:
    """Write each record to `folder` (made when it is absent) as CASE.json, all of them or none."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    with together():
        for record in records:
            write_record(Path(folder) / f"{record.case}.json", record)
