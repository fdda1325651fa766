"""The stages of the workflow, each from files to files: what a rule's script calls."""

import math
from pathlib import Path

from msgspec.structs import replace

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.core.request import RunRequest
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine
from spdnn.formats.inputs import read_inputs
from spdnn.formats.readers import open_network
from spdnn.formats.store import write_prepared
from spdnn.runs import run
from spdnn.runs.load import store_info
from spdnn.runs.measure import time_call
from spdnn.runs.records.files import read_result, read_samples, read_verdict, write_record, write_verdict
from spdnn.runs.records.samples import TimeToSolution


def prepare(name: str, reductions: str, memory: int | None, network: str | Path, output: str | Path) -> None:
    """Search for reductions and write the network in the layout of an engine, which need not be able to run here.

    Args:
        name: of the engine; reductions: as a request has them.
        memory: bytes at the peak.
        network: a store of all its layers.
    """
    runner = engine(name, usable=False)
    names = parse_reductions(reductions, runner.offers)
    prepared, seconds = time_call(runner.prepare, open_network(network), names, memory)
    write_prepared(output, prepared.network, store_info(prepared, seconds), durable=False)  # it is removed in a minute


def verify(
    request: RunRequest, result: str | Path, network: str | Path, inputs: str | Path, output: str | Path
) -> None:
    """Judge the result of a request and write the verdict."""
    rows = read_inputs(inputs)
    rows = rows if request.count is None else rows.first(request.count)
    whole = open_network(network)
    # The presets must be worth running; in unstructured networks all inputs survive, and values are what tells.
    telling = request.network is None and request.source != "unstructured"
    source = whole.first(request.layers) if request.layers else whole
    write_verdict(output, run.verdict_on(request, source, rows, read_result(result), telling))


def benchmark(
    request: RunRequest,
    samples: str | Path,
    verdict: str | Path,
    stages: dict[str, str | Path],
    configuration: str,
    output: str | Path,
) -> None:
    """Join samples, verdict and the times of the stages into the record of a run.

    Args:
        stages: the files of the times of inputs, network, prepare, infer and verify.
        configuration: the workflow's configuration files by name.

    Raises:
        SpdnnError: the verdict did not pass.
    """
    measurement = read_samples(samples)
    seconds = {name: stage_seconds(path) for name, path in stages.items()}
    excluded, first = measurement.excluded_seconds, measurement.inference_seconds[0]
    running = seconds.pop("infer") - excluded
    # What a run takes besides its first inference is its start, and opening the stores.
    again = measurement.verification_seconds
    startup = max(0.0, running - first - again)
    parts = {"verification": seconds.pop("verify") + again, "inference": first, "startup": startup, **seconds}
    whole = TimeToSolution.of_parts("workflow", sum(parts.values()), excluded, **parts)
    measurement = replace(measurement, time_to_solution=whole)
    write_record(output, run.make_record(request, measurement, read_verdict(verdict), configuration))


def stage_seconds(path: str | Path) -> float:
    """Seconds that a job took, from the file of Snakemake's directive `benchmark`; InputError where it is none."""
    try:
        with safe_open.name_errors(path, "not a job's time"):
            head, first = safe_open.text(path, "file", "UTF-8").splitlines()[:2]
        seconds = float(dict(zip(head.split("\t"), first.split("\t"), strict=True))["s"])
        if math.isfinite(seconds) and seconds >= 0:
            return seconds
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"{path}: not a job's time as Snakemake writes it ({safe_open.brief(error)})") from error
    raise InputError(f"{path}: a job of {seconds} s")
