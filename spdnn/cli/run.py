"""`spdnn challenge`, `infer`, `verify`, `engines`: run an inference, verify it, write its record and its outputs."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import BinaryIO

import numpy as np
from msgspec.structs import replace

from spdnn.cli import answers, arguments
from spdnn.cli.inputs import named, opened
from spdnn.common.errors import InputError
from spdnn.common.files import existing, replacing, reserve, together
from spdnn.common.shown import counted
from spdnn.distributed.local import staged
from spdnn.distributed.world import launched, world
from spdnn.engines.base import Options
from spdnn.engines.registry import ENGINES, engine
from spdnn.measure import run as measure
from spdnn.measure.judging import judge, named_truth
from spdnn.measure.record import Measurement, record_of
from spdnn.measure.run import Loaded
from spdnn.problem import challenge
from spdnn.problem.features import Inputs
from spdnn.problem.result import Result
from spdnn.records.run_record import Verdict, busy_part
from spdnn.records.time_to_solution import COMMAND, solution, text
from spdnn.reductions.registry import parse_reductions
from spdnn.verify import verdict as verify

ROWS_BYTES = 1 << 24  # of last rows that are written at a time


def add_challenge(whole) -> None:
    whole.description = "Regenerate a Sparse DNN Graph Challenge problem, run it, verify it, and write the record."
    arguments.option(whole, "neurons", required=True, help="1024, 4096, 16384 or 65536")
    arguments.option(whole, "layers", required=True, help="120, 480 and 1920 are official")
    whole.add_argument(
        "--inputs", default="mnist", metavar="mnist|digits|FILE", help="default: mnist, the official ones"
    )
    arguments.option(whole, "mnist")
    arguments.option(whole, "count", help="inputs (default: all 60000); more repeats them")
    arguments.option(whole, "repeats", default=1, help="timed repeats (default: 1)")
    arguments.option(whole, "repeat-if-busy")
    arguments.option(whole, "seed")
    whole.add_argument("--record", metavar="run.json", help="where to write the record; only a passing run has one")
    whole.add_argument(
        "--no-cache",
        action="store_true",
        help="make inputs and prepared network anew, and keep neither (default: kept in $SPDNN_DATA or ~/.cache/spdnn, "
        "10 GB at most)",
    )
    arguments.add_engine(whole)
    arguments.add_cut(whole)
    whole.set_defaults(run=_challenge, several=True, reads=("inputs", "mnist"), writes=("record",))


def add_infer(infer) -> None:
    infer.description = (
        "Run a network on inputs; write the categories, or set the classes that it says against labels.\n"
        "A record needs a verdict: the output is compared with the official truth where it applies, else\n"
        "with the oracle, or with --truth."
    )
    infer.add_argument(
        "--network", required=True, metavar="net.safetensors", help="a store, or anything `spdnn network import` reads"
    )
    infer.add_argument(
        "--inputs", required=True, metavar="inputs.safetensors", help="a store, .npz, .npy, .mtx or official text"
    )
    infer.add_argument(
        "--categories", metavar="out.txt", help="1-based inputs whose last row has a nonzero sum, one a line"
    )
    infer.add_argument("--values", metavar="out.npy", help="all last rows, float32 (inputs, outputs)")
    infer.add_argument(
        "--top",
        type=arguments.positive,
        metavar="K",
        help="make --values an .npz of the K largest per input: `neurons` (0-based) and `values`",
    )
    infer.add_argument("--record", metavar="run.json", help="verify, and write the record")
    infer.add_argument(
        "--truth", metavar="official:N|oracle|FILE", help="what to verify against (default: official, else oracle)"
    )
    infer.add_argument(
        "--prepared",
        metavar="prepared.safetensors",
        help="the network in its engine's layout, as the workflow prepares it",
    )
    arguments.add_reading(infer)
    arguments.option(infer, "layers", help="the first L layers (default: all)")
    arguments.option(infer, "count", help="the first n inputs; more repeats them")
    infer.add_argument(
        "--stage",
        metavar="FOLDER",
        help="copy the files to a folder on a disk of this node first, and remove the copies at the end; $NAME is "
        "expanded on the node (default: the environment variable SPDNN_STAGE)",
    )
    infer.add_argument("--samples", metavar="samples.json", help="what was measured, before any verdict")
    infer.add_argument("--result", metavar="result.npz", help="survivors, row sums, extremes and hashes")
    arguments.option(infer, "repeats", default=1, help="timed repeats (default: 1)")
    arguments.option(infer, "repeat-if-busy")
    arguments.option(infer, "seed")
    answers.add(infer)
    arguments.add_engine(infer)
    arguments.add_cut(infer)
    infer.set_defaults(
        run=_infer,
        several=True,
        reads=("network", "inputs", "prepared", "truth", "labels", "classes", "reference"),
        writes=("categories", "values", "record", "samples", "result", "json"),
    )


def add_verify(check) -> None:
    check.description = "Compare a list of categories with the official truth or a file: the whole set, not its size."
    check.add_argument("--categories", required=True, metavar="out.txt")
    check.add_argument("--truth", required=True, metavar="official:N|FILE")
    check.set_defaults(run=_verify)


def add_engines(command) -> None:
    command.description = "List the engines: what can run here, and what is missing for the others."
    command.set_defaults(run=_engines)


def _challenge(chosen) -> int:
    from spdnn.cli.cache import Cache
    from spdnn.sources.radixnet import RadixNet

    if chosen.neurons not in challenge.BIAS:
        RadixNet(chosen.neurons, chosen.layers, 0.0)  # refuses a size that no formula has, in words of its own
        raise InputError(
            f"{chosen.neurons} neurons have no official bias; --neurons is 1024, 4096, 16384 or 65536 "
            "(other widths: `spdnn network make radixnet --bias B`, and `spdnn infer` runs what it makes)"
        )
    runner, reductions = world().together(_checked, chosen)
    cache = Cache(not chosen.no_cache)

    def load(shared_inputs: Inputs | None) -> Loaded:
        network, inputs, read = RadixNet(chosen.neurons, chosen.layers), shared_inputs, 0.0
        if shared_inputs is None:
            inputs, read = measure.timed(named, chosen.inputs, chosen.neurons, chosen.count, chosen.mnist, cache)
        make = partial(runner.prepare, network, reductions, chosen.memory)
        prepared, spent = measure.timed(cache.prepared, network, runner.name, reductions, make)
        return Loaded(inputs, prepared, read, spent, read)

    loaded, measurement, result = _measured(chosen, runner, load)
    if result is None:  # rank 0 has it
        return 0
    command = ["spdnn", "challenge", "--neurons", chosen.neurons, "--layers", chosen.layers, "--inputs", chosen.inputs]
    command += ["--mnist", chosen.mnist] if chosen.mnist and chosen.inputs in ("mnist", "digits") else []
    command += ["--count", chosen.count] if chosen.count else []
    command += ["--no-cache"] if chosen.no_cache else []
    command += ["--seed", chosen.seed] if chosen.seed else []
    truth = "official" if _is_official(chosen) else None
    verdict, measurement = _judged(chosen, loaded, measurement, result, truth, cache.taken)
    name = f"radixnet-{chosen.neurons}-{chosen.layers}.{_word(chosen.inputs)}"
    if not (status := _report(chosen, name, measurement, result, verdict, command)) and world().size == 1:
        cache.keep()
    return status


def _is_official(chosen) -> bool:
    """Whether what was asked for is an official problem: then it must be that, to the last bit."""
    return chosen.inputs == "mnist" and chosen.neurons in challenge.WIDTHS and chosen.layers in challenge.DEPTHS


def _infer(chosen) -> int:
    if chosen.top and not chosen.values:
        raise InputError("--top K says what --values holds; give --values out.npz too")
    runner, reductions = world().together(_checked, chosen)
    asked = world().together(answers.Answers, chosen)
    begun = time.perf_counter()
    with staged(world(), chosen.stage, chosen.network, chosen.inputs, chosen.prepared) as files:
        staging = time.perf_counter() - begun
        load = partial(_load, chosen, runner, reductions, files, staging, asked)
        loaded, measurement, result = _measured(chosen, runner, load)
        if result is None:  # rank 0 has it
            return 0
        judged = chosen.record or chosen.truth
        verdict = None
        if judged:
            verdict, measurement = _judged(chosen, loaded, measurement, result, chosen.truth)
    command = ["spdnn", "infer", "--network", chosen.network, "--inputs", chosen.inputs]
    for name in ("prepared", "layers", "count", "truth", "seed"):
        command += [f"--{name}", getattr(chosen, name)] if getattr(chosen, name) else []
    command += arguments.reading_words(chosen)
    name = f"{_word(chosen.network)}-{loaded.prepared.source.depth}.{_word(chosen.inputs)}"
    with together():
        if verdict is None or verdict.passed:
            _write_outputs(chosen, measurement, result)
        status = _report(chosen, name, measurement, result, verdict, command)
        wrong = None if status else asked.judge(result)
    return _failed(wrong) if wrong else status


def _load(
    chosen,
    runner,
    reductions: tuple[str, ...],
    files: list[str | None],
    staging: float,
    asked: answers.Answers,
    shared_inputs: Inputs | None,
) -> Loaded:
    """Inputs, if no `shared_inputs`, and prepared network from `files` (network, inputs, prepared), which took
    `staging` seconds to stage.
    """
    from spdnn.formats.readers import open_network

    network_file, inputs_file, prepared_file = files
    network, opening = measure.timed(
        partial(open_network, **arguments.reading(chosen)), existing(network_file, "network")
    )
    network = network.first(chosen.layers) if chosen.layers and not chosen.prepared else network
    if chosen.top and chosen.top > network.outputs:
        raise InputError(f"the {chosen.top} largest asked for (--top); the last layer has {network.outputs}")
    inputs, read = shared_inputs, 0.0
    if shared_inputs is None:
        inputs, read = measure.timed(opened, inputs_file, network.inputs, chosen.count)
    asked.check(network, inputs)
    reading, read = read, read + staging + opening
    if chosen.truth not in (None, "oracle"):
        named_truth(chosen.truth, inputs.count)
    if not chosen.prepared:
        prepared, spent = measure.timed(runner.prepare, network, reductions, chosen.memory)
        return Loaded(inputs, prepared, read, spent, reading)
    stored = existing(prepared_file, "prepared network")
    (prepared, spent), took = measure.timed(measure.stored, stored, network, chosen.layers)
    if chosen.reductions is not None and prepared.reductions != reductions:
        names = "+".join(prepared.reductions) or "none"
        raise InputError(f"{chosen.prepared}: prepared with reductions {names}, not with {chosen.reductions}")
    return Loaded(inputs, prepared, read + took, spent, reading)


def _checked(chosen) -> tuple:
    """(engine, reductions) of a run."""
    chosen.started = time.perf_counter() - chosen.begun
    runner = engine(chosen.engine)
    arguments.request(chosen, runner)
    if chosen.device is not None and not runner.on_device:
        raise InputError(f"--device {chosen.device}: engine {runner.name} runs on none; those that do: {_on_devices()}")
    if chosen.device is not None and launched() > 1:
        raise InputError(
            f"--device {chosen.device}: several ranks share out the devices that they see; "
            "CUDA_VISIBLE_DEVICES says which these are"
        )
    return runner, parse_reductions(chosen.reductions or "all", runner.offers)


def _on_devices() -> str:
    return ", ".join(name for name in ENGINES if engine(name, usable=False).on_device)


def _measured(
    chosen, runner, load: Callable[[Inputs | None], Loaded]
) -> tuple[Loaded, Measurement | None, Result | None]:
    """Load and run, on as many ranks as were started; rank 0 has the measurement and the result."""
    ranks, request = world(), arguments.request(chosen, runner)
    threads = arguments.threads(chosen.threads, ranks.local_size, warn=ranks.rank == 0)
    if ranks.size == 1:
        loaded = load(None)
        spent = loaded.read_seconds, loaded.prepare_seconds
        options = Options(threads, chosen.memory, _kept(chosen, loaded), chosen.device, request)
        measured, result = measure.measure(
            runner, loaded.prepared, loaded.inputs, options, chosen.repeats, *spent, chosen.repeat_if_busy
        )
        return loaded, Measurement.of(measured), result
    from spdnn.distributed.run import Ranks

    several = Ranks(ranks, runner, chosen.partition, chosen.memory, request)
    loaded = several.load(load)
    kept = ranks.together(lambda: _kept(chosen, loaded) if ranks.rank == 0 else None)
    measured, result = several.measure(
        loaded, several.options(threads, ranks.comm.bcast(kept)), chosen.repeats, chosen.repeat_if_busy
    )
    return loaded, Measurement.of(measured) if measured else None, result


def _kept(chosen, loaded: Loaded) -> bool | np.ndarray:
    """Whose last rows are kept, as Options.values takes it: all for --values, else those drawn for a verdict."""
    if any(getattr(chosen, name, None) for name in ("values", "labels", "reference")):
        return True
    judged = not hasattr(chosen, "result") or chosen.result or chosen.record or chosen.truth
    return measure.drawn(loaded.prepared.source, loaded.inputs, chosen.seed) if judged else False


def _judged(
    chosen, loaded: Loaded, measurement: Measurement, result: Result, truth: str | None, cached: Sequence[str] = ()
) -> tuple[Verdict | None, Measurement]:
    """(verdict, the measurement with its time to solution); no verdict where the oracle would only judge itself.

    Raises:
        InputError: a record was asked for all the same.
    """
    network, inputs = loaded.prepared.source, loaded.inputs
    if chosen.engine == "reference" and (
        truth == "oracle" or (truth is None and not measure.official(network, inputs))
    ):
        if chosen.record:
            raise InputError("the reference engine is the oracle itself, so its verdict proves nothing; give --truth")
        return None, measurement
    verdict, judging = measure.timed(partial(judge, seed=chosen.seed), network, inputs, result, truth)
    samples = measurement.samples
    read, prepare, first = samples.read_seconds[0], samples.prepare_seconds[0], samples.inference_seconds[0]
    spent = solution(
        COMMAND,
        time.perf_counter() - chosen.begun - measurement.aside_seconds,
        cached,
        startup=chosen.started,
        inputs=loaded.inputs_seconds,
        network=read - loaded.inputs_seconds,
        prepare=0.0 if getattr(chosen, "prepared", None) else prepare,
        inference=first,
        verification=judging,
    )
    return verdict, replace(measurement, time_to_solution=spent)


def _word(path: str) -> str:
    """A file's name as the name of a case may contain it."""
    stem = path.rstrip("/").rsplit("/", 1)[-1].split(".")[0][:60]
    return "".join(c if c.isalnum() or c == "-" else "-" for c in stem) or "input"


def _write_outputs(chosen, measurement: Measurement, result: Result) -> None:
    from spdnn.formats.categories import write_categories

    if chosen.categories:
        write_categories(chosen.categories, result.categories)
    if chosen.result:
        measure.write_result(chosen.result, result)
    if chosen.samples:
        measure.write_samples(chosen.samples, measurement, result)
    if not chosen.values:
        return
    with replacing(chosen.values) as temporary, open(temporary, "wb") as stream:
        if chosen.top:
            neurons, values = result.top(chosen.top)
            np.savez(stream, neurons=neurons, values=values)
        else:
            _write_rows(stream, result)


def _write_rows(stream: BinaryIO, result: Result) -> None:
    """All last rows as .npy; written and not mapped, so that a full disk is an error and no signal."""
    form = {"descr": "<f4", "fortran_order": False, "shape": (result.inputs, result.outputs)}
    np.lib.format.write_array_header_1_0(stream, form)
    reserve(stream, stream.tell() + 4 * result.inputs * result.outputs)
    step = max(1, ROWS_BYTES // (4 * result.outputs))
    for start in range(0, result.inputs, step):
        stream.write(result.rows(start, min(start + step, result.inputs)).data)


def _report(chosen, name: str, measurement, result: Result, verdict: Verdict | None, command: list) -> int:
    """Write the record of a passing run, print a summary; the exit status."""
    print(f"survivors   {result.categories.size} of {result.inputs} inputs")
    if verdict is None:
        print("verdict     none: not verified (--record or --truth verifies)")
        return 0
    truth = verdict.truth
    against = f"{truth.source}, {truth.checked} of {truth.inputs} inputs compared; {verdict.values.rule}"
    print(f"verdict     {'pass' if verdict.passed else 'FAIL'} ({against})")
    if not verdict.passed:
        return _failed_verdict(verdict)
    if chosen.record:
        _write_record(chosen, name, measurement, result, verdict, command)
    if chosen.memory and measurement.peak_memory_bytes > chosen.memory:
        message = f"{measurement.peak_memory_bytes:,} bytes were held at the peak, more than --memory {chosen.memory:,}"
        print(f"spdnn: warning: {message}: reading files took more than the run", file=sys.stderr)
    if part := busy_part(measurement):
        others = f"other work took {100 * part:.0f} % of its {measurement.load.cores} cores"
        tried = f", in the quietest of {1 + len(measurement.passed_over)} attempts" if measurement.passed_over else ""
        print(f"machine     BUSY: {others}{tried}; times may be longer than on a quiet one (--repeat-if-busy)")
    print(f"solution    {text(measurement.time_to_solution)}")
    seconds, runs = float(np.median(measurement.samples.inference_seconds)), len(measurement.digests)
    rate = challenge.edges_per_second(result.inputs, measurement.problem.edges, seconds)
    print(
        f"inference   {seconds:.4f} s, {f'median of {runs}' if runs > 1 else 'one run'} ({measurement.span}; "
        f"reductions: {_on(measurement)}; {_workers(measurement)})"
    )
    print(
        f"rate        {rate / 1e12:.4f} TeraEdges/s by the challenge's formula; "
        f"{result.edges_computed / seconds / 1e9:.2f} billion edges/s really computed"
    )
    return 0


def _workers(measurement) -> str:
    threads, ranked = counted(measurement.threads, "threads"), measurement.distribution
    if measurement.ranks == 1:
        return threads
    balance = f"imbalance {ranked.imbalance.edges:.3f} in edges; {ranked.told}"
    return f"{measurement.ranks} ranks of {threads}, {ranked.partition}; {balance}"


def _on(measurement) -> str:
    return "+".join(measurement.reductions.requested) or "none"


def _write_record(chosen, name: str, measurement, result: Result, verdict: Verdict, command: list) -> None:
    from spdnn.records.files import write_record
    from spdnn.records.notes import TaskgraphNotes

    command += ["--engine", chosen.engine, "--reductions", chosen.reductions or "all", "--threads", measurement.threads]
    command += ["--memory", chosen.memory] if chosen.memory else []
    command += [] if chosen.device is None else ["--device", chosen.device]
    for option, value in arguments.cutting(chosen).items():
        command += ["--no-join"] if option == "join" else [f"--{option.replace('_', '-')}", value]
    command += ["--repeats", len(measurement.digests), "--record", "run.json"]
    case = f"{name}.{chosen.engine}.{_on(measurement)}.t{measurement.threads}"
    notes = measurement.engine.notes
    if isinstance(notes, TaskgraphNotes):
        case += f".{notes.schedule}-d{notes.devices}"
    if measurement.ranks > 1:
        command = ["mpiexec", "-n", measurement.ranks, *command, "--partition", chosen.partition]
        case += f".r{measurement.ranks}-{chosen.partition}"
    summary = measure.summary(result)
    write_record(chosen.record, record_of(case, measurement, summary, verdict, shlex.join(map(str, command))))


def _failed_verdict(verdict: Verdict) -> int:
    return _failed(f"verdict fail: {'; '.join(verdict.reasons)}")


def _failed(sentence: str) -> int:
    print(f"spdnn: {sentence}", file=sys.stderr)
    return 1


def _verify(chosen) -> int:
    from spdnn.formats.categories import read_categories

    categories = read_categories(existing(chosen.categories, "list of categories"))
    official = chosen.truth.startswith("official:")
    truth = named_truth(chosen.truth, challenge.INPUTS if official else None)
    verdict = verify.judge_categories(categories, truth)
    if not verdict.passed:
        return _failed_verdict(verdict)
    print(f"pass: {verdict.categories} categories, {truth.source}")
    return 0


def _engines(chosen) -> None:
    width = max(map(len, ENGINES))
    for name in ENGINES:
        one = engine(name, usable=False)
        reason = one.missing()
        print(f"{name:<{width}} {'can run' if reason is None else 'cannot run'}   {one.summary}")
        print(f"{'':<{width}} reductions: {', '.join(one.offers) or 'none'}")
        if reason:
            print(f"{'':<{width}} {reason}")
