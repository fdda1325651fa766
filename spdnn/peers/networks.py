"""A whole network, each program through the contract of the engines."""

from dataclasses import dataclass

from msgspec.structs import replace

from spdnn.common.errors import Unsuitable
from spdnn.engines.base import Options, Prepared, Session
from spdnn.engines.registry import engine
from spdnn.measure import run as measure
from spdnn.measure.judging import judged, truth_for
from spdnn.measure.record import Measurement
from spdnn.peers.common import OURS, Comparison, alternated, check_same, judged_record
from spdnn.problem.features import Inputs
from spdnn.problem.network import Network
from spdnn.records.run_record import RunRecord
from spdnn.reductions.registry import parse_reductions
from spdnn.verify import verdict as verify

REDUCTIONS = ("all", "dead")  # of our own engine: all that it offers, which the ratios are to, and what peers have too


@dataclass
class _Runner:
    """An engine that is ready to run a whole network."""

    engine: str
    prepared: Prepared
    session: Session
    read_seconds: float
    prepare_seconds: float


def compare_networks(
    network: Network, inputs: Inputs, comparison: Comparison, repeats: int, name: str
) -> tuple[list[RunRecord], dict[str, str]]:
    """Records of a whole network in our engine, with each of REDUCTIONS, and in each library with all that it offers.

    Args:
        repeats: rounds in which each runs once, after a first run that is verified and not timed; they replace those
            of the comparison's seconds.
        name: of network and inputs, as cases are named.

    Returns:
        the records, ours first; and a sentence for each library that cannot run this network.

    Raises:
        InputError: inputs that do not fit, or too little memory. SpdnnError: see compare_layers.
    """
    options = Options(comparison.threads, values=measure.drawn(network, inputs))
    refused, runners = {}, {}
    for reductions in REDUCTIONS:
        label = OURS if reductions == REDUCTIONS[0] else f"{OURS}-{reductions}"
        runners[label] = _opened(OURS, reductions, network, inputs, options)
    for library in comparison.libraries:
        try:
            runners[library] = _opened(library, "all", network, inputs, options)
        except Unsuitable as error:
            refused[library] = str(error)
    results = {key: runner.session.run() for key, runner in runners.items()}
    truth = truth_for(network, inputs, results[OURS])
    verdicts = {
        key: replace(verify.judge(result, truth), judged=judged(network, inputs, result))
        for key, result in results.items()
    }
    samples, digests, load = alternated(
        {key: (runner.session.run, lambda result: result.digest) for key, runner in runners.items()},
        lambda rounds: rounds < repeats,
    )
    measured = []
    for key, runner in runners.items():
        check_same(key, digests[key], results[key].digest)
        spent = measure.samples([runner.read_seconds], [runner.prepare_seconds], samples[key])
        session, result = runner.session, results[key]
        reduced = session.findings, session.span
        measured_run = measure.measured(
            runner.engine, runner.prepared, inputs, options, *reduced, result, spent, digests[key]
        )
        case = f"peers-{name}.{key}.t{options.threads}"
        measured.append((case, Measurement.of(measured_run | {"load": load}), results[key], verdicts[key]))
    # The machine last: its arrays would count as memory of the runs.
    ceilings = {label: measure.ceilings(engine(runner.engine), options) for label, runner in runners.items()}
    records = [
        judged_record(case, replace(measurement, machine=ceilings[label]), result, verdict, comparison)
        for label, (case, measurement, result, verdict) in zip(runners, measured, strict=True)
    ]
    return records, refused


def _opened(name: str, reductions: str, network: Network, inputs: Inputs, options: Options) -> _Runner:
    runner = engine(name)
    prepared, spent = measure.timed(
        runner.prepare, network, parse_reductions(reductions, runner.offers), options.memory
    )
    session, read = measure.timed(runner.open, prepared, inputs, options)
    return _Runner(name, prepared, session, read, spent)
