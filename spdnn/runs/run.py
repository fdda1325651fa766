"""A run, from its request to its record: load, prepare, time, judge, record, on one rank or several.

This is the only place where these steps follow one another. The command, the workflow, a repeated record and the
comparison with other libraries call `run`, or its steps by name.
"""

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from msgspec.structs import replace

from spdnn.core.errors import InputError
from spdnn.core.features import Inputs
from spdnn.core.network import Network
from spdnn.core.request import RunRequest
from spdnn.core.resources import usable_cores
from spdnn.core.result import Result
from spdnn.core.threads import threads
from spdnn.engines.base import Engine, Options, Session
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine, names, settings_of
from spdnn.runs import measure
from spdnn.runs.cache import InputCache
from spdnn.runs.load import load_named_inputs, load_network, read_store
from spdnn.runs.measure import LoadedRun
from spdnn.runs.records.files import record_of
from spdnn.runs.records.result import Accuracy
from spdnn.runs.records.run_record import Measurement, RunRecord
from spdnn.runs.records.samples import TimeToSolution
from spdnn.runs.records.verdict import Verdict
from spdnn.runs.verify import judging
from spdnn.runs.verify.official import draw_kept, official_problem
from spdnn.runs.world import launched_count, world


@dataclass(frozen=True)
class Sources:
    """What a run reads in place of what its request names; all None: the request alone says.

    Attributes:
        network, inputs: files that were made of the request's, or the objects themselves.
        prepared: a file with the prepared network.
        seconds: that the caller spent on getting the files.
        check: refuses a network and inputs before anything runs.
    """

    network: str | Network | None = None
    inputs: str | Inputs | None = None
    prepared: str | None = None
    seconds: float = 0.0
    check: Callable[[Network, Inputs], None] | None = None


@dataclass(frozen=True)
class RunOutcome:
    """What a run left. On ranks but the first, measurement and result are None.

    Attributes:
        startup_seconds: before anything was read, where the caller said when it began.
    """

    request: RunRequest
    loaded: LoadedRun
    measurement: Measurement | None
    result: Result | None
    begun: float | None = None
    startup_seconds: float = 0.0
    cache: InputCache | None = None


def check_request(request: RunRequest) -> tuple[Engine, tuple[str, ...], Any]:
    """(engine, names of the reductions, settings of the engine) of a request.

    Raises:
        InputError: what no run could have. Unavailable: the engine cannot run here.
    """
    runner = engine(request.engine)
    settings = settings_of(request.engine, request.settings)
    if request.device is not None and not runner.on_device:
        others = ", ".join(name for name in names() if engine(name, usable=False).on_device)
        raise InputError(f"--device {request.device}: engine {runner.name} runs on none; those that do: {others}")
    if request.ranks != launched_count():
        raise InputError(
            f"{request.ranks} ranks were asked for and {launched_count()} started; start as many, with the launcher of "
            "the MPI that mpi4py uses (mpiexec -n, or the resource mpi of infer_ranks)"
        )
    return runner, parse_reductions(request.reductions, runner.offers), settings


def run(
    request: RunRequest,
    sources: Sources = Sources(),
    keep: bool | None = False,
    cache: InputCache | None = None,
    memory: int | None = None,
    begun: float | None = None,
    seconds: float | None = None,
) -> RunOutcome:
    """Run a request on as many ranks as it asks for, which all call this.

    Args:
        keep: True: all last rows are kept; False: those that a verdict needs; None: none.
        cache: of inputs of earlier runs.
        memory: bytes at the peak, where the request names none.
        begun: time.perf_counter() at the start of the process, for the time to solution.
        seconds: from `begun` on; no repeat but the first is begun that would end after them.

    Raises:
        InputError: a request that cannot be run. Unavailable: the engine cannot run here.
        SpdnnError: repeats gave different outputs, or a sum passed the range of float32.
    """
    # Work before this call counts as startup in the time to solution, and against the time limit.
    ranks = world()
    startup = 0.0 if begun is None else time.perf_counter() - begun
    until = None if seconds is None else time.perf_counter() - startup + seconds
    # All ranks check, so that a refusal ends all of them with the same sentence.
    runner, reductions, settings = ranks.together(check_request, request)
    memory = request.memory or memory
    # On several ranks only one of each node calls it, with the inputs left to share.
    load = partial(_load, request, sources, runner, reductions, memory, cache)
    workers = threads(request.threads, ranks.sharing, warn=ranks.rank == 0)

    def kept(loaded: LoadedRun) -> bool | np.ndarray:
        """Whose last rows are kept."""
        return draw_kept(loaded.prepared.source, loaded.inputs, request.seed) if keep is False else bool(keep)

    seed = None if keep is None or request.engine == "reference" else request.seed
    # One rank measures itself; several share inputs and weights within a node first.
    if ranks.size == 1:
        loaded = load(None)
        options = Options(workers, memory, kept(loaded), request.device, settings)
        sampled = partial(sample, request, loaded) if keep is not None else lambda result: None
        measurement, result = measure.measure(
            runner, loaded, options, request.repeats, request.repeat_if_busy, until, sampled, seed
        )
    else:
        from spdnn.runs.ranks.run import Ranks

        several = Ranks(ranks, runner, request.partition, memory, settings, request.device)
        loaded = several.load(load)
        values = ranks.together(lambda: kept(loaded) if ranks.rank == 0 else None)
        options = several.options(workers, ranks.comm.bcast(values))
        measurement, result = several.measure(loaded, options, request.repeats, request.repeat_if_busy, until, seed)
    return RunOutcome(request, loaded, measurement, result, begun, startup, cache)


def _load(
    request: RunRequest,
    sources: Sources,
    runner: Engine,
    reductions: tuple[str, ...],
    memory: int | None,
    cache: InputCache | None,
    shared_inputs: Inputs | None,
) -> LoadedRun:
    """Inputs, unless a rank of this node shares them, and the prepared network, with the seconds that each took."""
    # Network: what was prepared may be deeper than the request, so its source is opened whole.
    network, opening = sources.network, 0.0
    if not isinstance(network, Network):
        network, opening = measure.time_call(load_network, request, network, sources.prepared is not None)
    # Inputs: they need the width of the network, which is why they come second.
    inputs, spent = shared_inputs or sources.inputs, 0.0
    if not isinstance(inputs, Inputs):
        named = request.inputs if inputs is None else inputs, network.inputs, request.count, request.mnist, cache
        inputs, spent = measure.time_call(load_named_inputs, *named, inputs is not None)
    # Refusals come before preparing, which may take minutes.
    if sources.check:
        sources.check(network, inputs)
    if request.truth not in (None, "oracle"):
        judging.load_truth(request.truth, inputs.count)
    # Prepare here, or take what an earlier stage stored with the seconds that it took there.
    if sources.prepared is None:
        prepared, seconds = measure.time_call(runner.prepare, network, reductions, memory)
    else:
        (prepared, seconds), stored = measure.time_call(read_store, sources.prepared, network, request.layers)
        opening += stored
        if prepared.reductions != reductions:
            names = "+".join(prepared.reductions) or "none"
            raise InputError(f"{sources.prepared}: prepared with reductions {names}, not with {request.reductions}")
    return LoadedRun(inputs, prepared, sources.seconds + opening + spent, seconds, spent)


def open_session(
    request: RunRequest, network: Network, inputs: Inputs, kept: np.ndarray | bool
) -> tuple[Session, LoadedRun]:
    """A session that is ready to run a request on one rank, and what it was made of; Unsuitable where the engine
    cannot run this network.
    """
    runner, reductions, settings = check_request(request)
    prepared, spent = measure.time_call(runner.prepare, network, reductions, request.memory)
    options = Options(request.threads or usable_cores(), request.memory, kept, request.device, settings)
    session, read = measure.time_call(runner.open, prepared, inputs, options)
    return session, LoadedRun(inputs, prepared, read, spent)


def sample(request: RunRequest, loaded: LoadedRun, result: Result) -> np.ndarray | None:
    """The inputs that the reference will judge alone; None where it judges all, or something else judges."""
    official = request.truth is None and official_problem(loaded.prepared.source, loaded.inputs)
    if official or request.truth not in (None, "oracle") or request.engine == "reference":
        return None
    return judging.sample(loaded.prepared.source, result, request.oracle_edges, request.seed)


def judge(run: RunOutcome, telling: bool = False) -> tuple[Verdict | None, Measurement]:
    """(verdict on the result of a run, its measurement with the time to solution).

    No verdict where the reference would judge itself.
    """
    request, measurement = run.request, run.measurement
    network, inputs = run.loaded.prepared.source, run.loaded.inputs
    # A reference that is compared with itself proves nothing.
    if request.engine == "reference" and (
        request.truth == "oracle" or (request.truth is None and not official_problem(network, inputs))
    ):
        return None, measurement
    edges = run.loaded.prepared.edges
    verdict, spent = measure.time_call(verdict_on, request, network, inputs, run.result, telling, edges)
    if run.begun is None:
        return verdict, measurement
    # From the start of the process to the verdict, less repeats and measuring of the machine, which nobody needs for a
    # result.
    total = TimeToSolution.of_parts(
        "command",
        time.perf_counter() - run.begun - measurement.excluded_seconds,
        measurement.excluded_seconds,
        run.cache.taken if run.cache else (),
        startup=run.startup_seconds + measurement.startup_seconds,
        inputs=run.loaded.inputs_seconds,
        network=measurement.read_seconds[0] - run.loaded.inputs_seconds - measurement.startup_seconds,
        prepare=measurement.prepare_seconds[0],
        inference=measurement.inference_seconds[0],
        verification=spent + measurement.verification_seconds,
    )
    return verdict, replace(measurement, time_to_solution=total)


def verdict_on(
    request: RunRequest, network: Network, inputs: Inputs, result: Result, telling: bool = False,
    layer_edges: np.ndarray | None = None,
) -> Verdict:  # fmt: skip
    """The verdict on a result of a request, as `judging.judge`, against the ground truth that the request names."""
    truth = "official" if request.truth is None and request.official else request.truth
    return judging.judge(network, inputs, result, truth, request.oracle_edges, request.seed, telling, layer_edges)


def make_record(
    request: RunRequest,
    measurement: Measurement,
    verdict: Verdict,
    configuration: str | None = None,
    accuracy: Accuracy | None = None,
) -> RunRecord:
    """The record of a run that passed, as `record_of`, with what it raises."""
    command = shlex.join(request.command())
    stated = RunRequest.of(request.values)  # a file leaves out what is at its default
    return record_of(request.name, measurement, verdict, command, None, stated, configuration, accuracy)
