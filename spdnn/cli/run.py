"""`spdnn challenge`, `infer` and `run`: make a request, run it, verify it, write its record and its outputs."""

import os
import time
from functools import partial

from spdnn.cli import arguments, summary
from spdnn.core.errors import InputError, fail
from spdnn.core.files import together
from spdnn.core.request import GENERATED, RunRequest
from spdnn.runs.cache import InputCache
from spdnn.runs.run import Sources, judge, make_record, run
from spdnn.runs.staging import stage_files
from spdnn.runs.world import launched_count, world

OUTPUTS = ("categories", "values", "record", "samples", "result")  # options that name files to write
TASK = ("layers", "inputs", "mnist", "count")
MACHINE = ("engine", "reductions", "threads", "memory", "device", "partition")
CLOCK = ("repeats", "repeat_if_busy", "seed")
RECORD = {"metavar": "run.json", "help": "verify, and write the record if the run passed"}


def add_challenge(command) -> None:
    command.description = (
        "Regenerate a problem of the Sparse DNN Graph Challenge, run it, verify it, and write the record."
    )
    needed = {"required": True}
    deep = {"required": True, "help": "number of layers; 120, 480 and 1920 are official"}
    arguments.add_fields(
        command, RunRequest, ("neurons", *TASK, "source", *CLOCK, "cache", *MACHINE), neurons=needed, layers=deep
    )
    arguments.verify(command)
    command.add_argument("--record", **RECORD)
    arguments.add_settings(command)
    command.set_defaults(run=_challenge, several=True, reads=("inputs", "mnist"), writes=("record",))


def add_infer(command) -> None:
    from spdnn.cli.answers import add as add_answers

    command.description = (
        "Run a network on inputs. Write the outputs, or compare the predicted classes with labels. Before a record is\n"
        "written, the output is compared with the official ground truth where it applies, otherwise with a float64\n"
        "reference (--verify) or with --truth."
    )
    needed = {"required": True}
    inputs = {
        "required": True,
        "help": "file of inputs: .safetensors, .npz, .npy, .mtx, .csv or official text; or mnist, digits, official",
    }
    arguments.add_fields(
        command, RunRequest, ("network", *TASK, "truth", *CLOCK, *MACHINE), network=needed, inputs=inputs
    )
    arguments.verify(command)
    add_answers(command)
    arguments.add_reading(command)
    _add_outputs(command)
    command.add_argument(
        "--prepared",
        metavar="prepared.safetensors",
        help="prepared network (in the layout of its engine) from the workflow",
    )
    arguments.add_settings(command)
    reads = ("network", "inputs", "mnist", "prepared", "truth", "labels", "classes", "reference")
    command.set_defaults(run=_infer, several=True, reads=reads, writes=(*OUTPUTS, "json"))


def add_run(command) -> None:
    command.description = (
        "Run a request: JSON with the fields of `request` in a record (docs/reference/records.md). The options name\n"
        "files that the workflow has made of its network and inputs; they replace those that the request names."
    )
    command.add_argument("request", metavar="REQUEST", help="file of the request, or the JSON itself")
    for name, what in (("network", "network"), ("prepared", "prepared network"), ("inputs", "inputs")):
        command.add_argument(f"--{name}", metavar="FILE", help=f"{what} from an earlier stage of the workflow")
    arguments.option(command, "memory", help="limit on peak memory in bytes, if the request has none")
    command.add_argument(
        "--time-limit",
        type=arguments.above_zero,
        metavar="SECONDS",
        help="begin no repeat but the first that would end after this time; the record then has fewer repeats",
    )
    _add_outputs(command)
    command.set_defaults(run=_run, several=True, reads=("request", "network", "inputs", "prepared"), writes=OUTPUTS)


def _add_outputs(command) -> None:
    command.add_argument(
        "--categories",
        metavar="out.txt",
        help="write the 1-based inputs whose last row has a nonzero sum, one per line",
    )
    command.add_argument("--values", metavar="out.npy", help="write all outputs, float32 (inputs, outputs)")
    command.add_argument(
        "--top",
        type=arguments.positive,
        metavar="K",
        help="write only the K largest outputs of each input to --values, an .npz of `neurons` (0-based) and `values`",
    )
    command.add_argument("--record", **RECORD)
    command.add_argument("--samples", metavar="samples.json", help="write the measurements, before verification")
    command.add_argument(
        "--result", metavar="result.npz", help="write counts of active inputs, row sums, extremes and hashes"
    )
    command.add_argument(
        "--stage",
        metavar="FOLDER",
        help="copy the files to a folder on a local disk first and remove the copies at the end; $NAME is expanded on "
        "the node (default: the environment variable SPDNN_STAGE)",
    )


def _challenge(args) -> int:
    request = world().together(arguments.request, args, launched_count())
    cache = InputCache() if request.cache else None
    outcome = run(request, cache=cache, begun=args.begun)
    if outcome.result is None:  # rank 0 has it
        return 0
    status = _finish(args, outcome, *judge(outcome))
    if not status and cache and world().size == 1:
        cache.keep()
    return status


def _infer(args) -> int:
    request = world().together(arguments.request, args, launched_count())
    judged = bool(args.record or request.truth or args.oracle_edges)
    inputs = None if request.inputs in GENERATED else request.inputs
    return _from_files(args, request, Sources(request.network, inputs, args.prepared), judged)


def _run(args) -> int:
    from spdnn.core import safe_open
    from spdnn.core.validation import parse

    def read() -> RunRequest:
        inline = args.request.startswith("{") and not os.path.exists(args.request[:255])
        text = args.request if inline else safe_open.text(args.request, "request")
        request = parse(RunRequest, text, "request" if inline else args.request, "request")
        arguments.check_files(args, request)
        return request

    if args.record and (args.network or args.inputs or args.prepared):
        raise InputError("--record is for the files that the request names, not for others (--network, --inputs)")
    request = world().together(read)
    return _from_files(args, request, Sources(args.network, args.inputs, args.prepared), bool(args.record))


def _from_files(args, request: RunRequest, sources: Sources, judged: bool) -> int:
    """Run a request whose network and inputs are in files; with --stage, copies on a disk of the node."""
    if args.top and not args.values:
        raise InputError("--top K selects what --values writes; give --values out.npz too")
    if args.values and not args.values.endswith(".npz" if args.top else ".npy"):
        allowed = ".npz where --top is given" if args.top else ".npy; --top K writes .npz"
        raise InputError(f"--values {args.values}: the name must end with {allowed}")
    answer = None
    if hasattr(args, "labels"):
        from spdnn.cli.answers import Answers

        answer = world().together(Answers, args)
    keep = True if args.values or (answer and answer.needed) else False if judged or args.result else None
    begun = time.perf_counter()
    with stage_files(world(), args.stage, sources.network, sources.inputs, sources.prepared) as files:
        sources = Sources(*files, time.perf_counter() - begun, partial(_check, args, answer))
        limits = {"memory": getattr(args, "memory", None), "seconds": getattr(args, "time_limit", None)}
        outcome = run(request, sources, keep, begun=args.begun, **limits)
        if outcome.result is None:  # rank 0 has it
            return 0
        verdict, measurement = judge(outcome) if judged else (None, outcome.measurement)
    with together():
        if verdict is None or verdict.passed:
            summary.write_outputs(args, measurement, outcome.result)
        status = _finish(args, outcome, verdict, measurement, answer)
        wrong = answer.judge(outcome.result) if answer and not status else None
    return fail(wrong) if wrong else status


def _check(args, answer, network, inputs) -> None:
    if args.top and args.top > network.outputs:
        raise InputError(f"the {args.top} largest asked for (--top); the last layer has {network.outputs}")
    if answer:
        answer.check(network, inputs)


def _finish(args, outcome, verdict, measurement, answer=None) -> int:
    """Write the record of a passing run, print a summary; the exit status."""
    request, result = outcome.request, outcome.result
    if verdict is None and args.record:
        raise InputError("the engine `reference` is the float64 reference and cannot verify itself; give --truth")
    if verdict is not None and verdict.passed and args.record:
        from spdnn.runs.records.files import write_record

        accuracy = answer.accuracy(result) if answer else None
        write_record(args.record, make_record(request, measurement, verdict, accuracy=accuracy))
    summary.show(request, measurement, result, verdict)
    return 0 if verdict is None or verdict.passed else fail(f"verification failed: {'; '.join(verdict.reasons)}")
