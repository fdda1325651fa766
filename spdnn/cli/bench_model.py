"""`spdnn bench model`: latency and throughput of one's own model, beside other libraries with the same model."""

import numpy as np

from spdnn.cli import arguments
from spdnn.cli.bench_shared import add_timing, command_of, run, writer
from spdnn.cli.terminal import show
from spdnn.core.errors import InputError, Unavailable
from spdnn.core.request import READING, reading, word
from spdnn.core.shown import plural

BATCHES = (1, 8, 64, 512)
FILE = "calls.jsonl"


def add(command) -> None:
    command.description = (
        "Time calls of your model on batches of inputs with spdnn.compile and with other libraries. SciPy (sparse),\n"
        "dense BLAS, PyTorch and torch.compile run chains of layers; ONNX Runtime, OpenVINO, MNN and DeepSparse run\n"
        "any ONNX model. OpenVINO runs in its default precision and in float32. Each row says the precision and the\n"
        "error of its program.\n"
        "All outputs are first compared: of a chain with a float64 reference, of another model with ONNX Runtime.\n"
        "Which products of an ONNX model are ours is timed anew, and a choice that was kept and differs is named.\n"
        "Programs take turns on the same threads; a turn is several calls. A time is the mean over a turn. A ratio is\n"
        "the median over turns with its 95 % interval, followed by the ratio of the fastest turns."
    )
    command.add_argument("network", metavar="MODEL", help="ONNX model, or anything that `spdnn network import` reads")
    command.add_argument(
        "--against",
        metavar="LIST",
        help="other libraries: scipy, blas (NumPy's, dense), torch, torch-compile, onnxruntime, openvino, "
        "openvino-f32, mnn and deepsparse, joined by commas (default: all that are installed)",
    )
    command.add_argument(
        "--batches", type=arguments.positives, metavar="LIST",
        help="numbers of inputs per call, joined by commas: the first dimension, where an ONNX model leaves it free "
        "(default: 1,8,64,512; for a model that is no chain 1,8)",
    )  # fmt: skip
    command.add_argument(
        "--inputs",
        metavar="FILE",
        help="file of inputs: .safetensors, .npz, .npy, .mtx, .csv or official text; for a model that is no chain an "
        ".npz with an array for each input (default: random numbers, zeros where a model takes whole numbers; where "
        "it leaves another dimension than the first free, 64)",
    )
    command.add_argument(
        "--zeros",
        type=lambda text: arguments.number(text, float, lambda n: 0 <= n <= 1, "a number from 0 to 1"),
        metavar="P",
        help="fraction of zeros in the random inputs of a chain, 0 to 1 (default: 0)",
    )
    add_timing(
        command, "number of threads of each program (default: all cores)", 5.0,
        "least seconds to measure each batch size, with at least 5 turns per program",
    )  # fmt: skip
    arguments.add_reading(command)
    command.add_argument("-o", "--output", metavar="FOLDER", help=f"folder for the records, {FILE}")
    command.set_defaults(run=_bench, reads=("network", "inputs"), writes=(f"output/{FILE}",))


def _bench(args) -> None:
    from spdnn.bench import calls
    from spdnn.bench.contest import ComparisonSettings
    from spdnn.bench.libraries.registry import libraries_here

    if args.inputs and args.zeros is not None:
        raise InputError("--zeros is for random inputs; --inputs has its own zeros")
    target = arguments.file_in(args.output, FILE)
    libraries, reasons = libraries_here(args.against and args.against.split(","), ["network"], kind=None)
    if args.against and reasons:
        raise Unavailable("--against: " + "; ".join(f"{name}: {reason}" for name, reason in reasons.items()))
    threads = arguments.threads(args.threads)
    case, description = _case(args, threads)
    command = command_of(
        "model", args.network, batches=",".join(map(str, case.batches)), threads=threads,
        against=",".join(libraries) or None, **{name: getattr(args, name) for name in READING}, inputs=args.inputs,
        zeros=args.zeros, seconds=f"{args.seconds:g}", o="records",
    )  # fmt: skip
    title = f"{args.network} ({case.facts}), {plural(threads, 'thread')}, {description}"
    print(f"{title}; all outputs verified against {case.reference}", flush=True)
    comparison = ComparisonSettings(threads, libraries, args.seconds, command)
    run(calls.compare_calls(case, comparison), _print, writer(target), reasons)


def _case(args, threads: int) -> tuple:
    """(the case, its inputs in words)."""
    from spdnn.bench.calls import NetworkCase, OnnxCase, draw_rows
    from spdnn.runs.load import load_named_inputs

    network, name = _chain(args), word(args.network)
    if network is None:
        if args.zeros is not None:
            raise InputError("--zeros is for chains of pruned layers; give another model its inputs with --inputs")
        case = OnnxCase(name, args.network, threads, args.batches, args.inputs)
        return case, f"inputs of {args.inputs}" if args.inputs else "drawn inputs"
    batches, zeros = args.batches or BATCHES, args.zeros or 0.0
    count = max(NetworkCase.inputs, *batches)
    if args.inputs:
        inputs = load_named_inputs(args.inputs, network.inputs, is_file=True)
        rows = inputs.dense(np.arange(min(count, inputs.count)), np.float32)
        description = f"{len(rows)} inputs of {args.inputs}"
    else:
        rows, description = draw_rows(count, network.inputs, zeros), f"drawn inputs, {100 * zeros:g} % of them 0"
    return NetworkCase(name, network, rows, batches), description


def _chain(args):
    """The network to call; None of an ONNX model that is no chain of pruned layers."""
    from spdnn.formats.readers import is_onnx, open_network
    from spdnn.ops.onnx_compile import PRUNED

    settings = reading(args)
    if settings or not is_onnx(args.network):
        return open_network(args.network, **settings)
    try:
        network = open_network(args.network)
    except InputError:  # OnnxCase says what is wrong with a model that is none
        return None
    return network if network.edges <= PRUNED * network.entries else None


def _print(records: list) -> None:
    from spdnn.report.calls import CALLS, calls_of

    show(CALLS, calls_of(records))
    if choice := records[0].program.notes.get("choice"):
        print(choice)
