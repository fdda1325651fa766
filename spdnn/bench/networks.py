"""A whole network, each program through the contract of the engines, timed alternately."""

from msgspec.structs import replace

from spdnn.bench.common import OURS, ComparisonSettings, alternate, check_same
from spdnn.core.errors import Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.request import RunRequest
from spdnn.engines.base import Options
from spdnn.engines.registry import engine
from spdnn.runs import measure
from spdnn.runs.records.files import record_of
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.run import open_session
from spdnn.runs.verify import verdict as verify
from spdnn.runs.verify.judging import truth_for, verdict_key
from spdnn.runs.verify.official import draw_kept

REDUCTIONS = ("all", "dead")  # of our own engine: all that it offers, which the ratios are to, and what peers have too


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
    asked = lambda engine, reductions: replace(request, engine=engine, reductions=reductions)  # noqa: E731
    requests = {OURS if reductions == REDUCTIONS[0] else f"{OURS}-{reductions}": asked(OURS, reductions)
                for reductions in REDUCTIONS}  # fmt: skip
    requests |= {library: asked(library, "all") for library in comparison.libraries}
    kept, refused, ready = draw_kept(network, inputs), {}, {}
    for key, wanted in requests.items():
        try:
            ready[key] = open_session(wanted, network, inputs, kept)
        except Unsuitable as error:
            if wanted.engine == OURS:
                raise
            refused[key] = str(error)
    results = {key: session.run() for key, (session, _) in ready.items()}
    truth = truth_for(network, inputs, results[OURS])
    verdicts = {
        key: replace(verify.judge(result, truth), judged=verdict_key(network, inputs, result))
        for key, result in results.items()
    }
    samples, digests, load = alternate(
        {key: (session.run, lambda result: result.digest) for key, (session, _) in ready.items()},
        (request.repeats, request.repeats),
    )
    measured = {}
    options = Options(comparison.threads, values=kept)
    for key, (session, loaded) in ready.items():
        check_same(key, digests[key], results[key].digest)
        seconds = measure.Samples([loaded.read_seconds], [loaded.prepare_seconds], samples[key])
        run = measure.measurement_of(
            requests[key].engine, loaded.prepared, inputs, options, session.findings, session.span, results[key],
            seconds,
        )  # fmt: skip
        measured[key] = replace(run, load=load)
    # The machine last: its arrays would count as memory of the runs.
    ceilings = {key: measure.ceilings(engine(requests[key].engine), options) for key in ready}
    records = [
        record_of(
            f"peers-{requests[key].name}", replace(measurement, machine=ceilings[key]), verdicts[key],
            comparison.command, comparison.identity, requests[key],
        )
        for key, measurement in measured.items()
    ]  # fmt: skip
    return records, refused
