"""`spdnn bench`: our programs and other libraries on the same problems, verified, in turns on the same threads.

Here are the kernels; calls of a model and sparse products have modules of their own.
"""

from functools import partial

from spdnn.cli import arguments, bench_model, bench_products
from spdnn.cli.bench_shared import add_timing, command_of, run
from spdnn.cli.terminal import show
from spdnn.core.challenge import WIDTHS
from spdnn.core.errors import InputError, install
from spdnn.core.shown import plural


def add(group) -> None:
    group.description = (
        "Compare spdnn with other libraries: calls of your model, products of your matrix, kernels of networks, or\n"
        "problem sets of sparse operations. Outputs are verified first; programs then take turns."
    )
    kinds = group.add_subparsers(metavar="WHAT", required=True)
    bench_model.add(kinds.add_parser("model", help="calls of your own model, ONNX or a chain of layers"))
    bench_products.add_matrices(kinds)
    _add_kernels(kinds.add_parser("kernels", help="one layer or a whole network of the challenge"))
    bench_products.add_sets(kinds.add_parser("sets", help="problem sets of SpMM and SDDMM, and whole models"))


def _add_kernels(command) -> None:
    command.description = (
        "Time our kernels and SciPy, GraphBLAS, MKL, JAX and PyTorch alternately in one process, and verify each.\n"
        "The problems are one layer on dense features for each of --layer-widths and, with --neurons and --layers,\n"
        f"a whole network. {install('peers')} installs the libraries."
    )
    command.add_argument(
        "--layer-widths",
        type=lambda text: [] if text == "none" else arguments.positives(text),
        metavar="LIST",
        help="widths of the single layers, joined by commas, or none "
        f"(default: {','.join(map(str, WIDTHS))}; none with --neurons)",
    )
    arguments.option(command, "neurons", help="neurons per layer of the whole network")
    arguments.option(command, "layers", help="number of layers of the whole network")
    command.add_argument(
        "--inputs", default="digits", metavar="mnist|digits|FILE", help="inputs of the whole network (default: digits)"
    )
    arguments.option(command, "mnist")
    arguments.option(
        command, "count", help="number of inputs (default: 64 MiB of features for a layer; all for a network)"
    )
    add_timing(
        command, "number of threads of each library (default: all cores of this process)", 10.0,
        "seconds to measure each width",
    )  # fmt: skip
    arguments.option(command, "repeats", default=3, help="number of rounds on a network (default: 3)")
    command.add_argument(
        "--libraries",
        metavar="LIST",
        default="all",
        help="libraries to compare, joined by commas (default: all installed)",
    )
    command.add_argument("--records", metavar="DIR", help="folder to write the records to, one file each")
    command.set_defaults(run=_compare, reads=("inputs", "mnist"), writes=("records/*.json",))


def _compare(args) -> None:
    from spdnn.bench import networks

    whole = args.neurons is not None
    if whole != (args.layers is not None):
        raise InputError("--neurons and --layers go together: they are the width and the depth of a whole network")
    widths = args.layer_widths if args.layer_widths is not None else [] if whole else list(WIDTHS)
    if not (widths or whole):
        raise InputError("nothing to compare: --layer-widths is none, and there is no --neurons and --layers")
    names = args.libraries if args.libraries == "all" else args.libraries.split(",")
    libraries, reasons = networks.find_libraries(names)
    threads = args.threads = arguments.threads(args.threads)
    settings = {
        "widths": widths, "count": args.count, "seconds": args.seconds, "libraries": libraries, "threads": threads,
        "network": arguments.request(args).values if whole else None,
    }  # fmt: skip
    command = command_of(
        "kernels", layer_widths=",".join(map(str, widths)) or "none", neurons=args.neurons, layers=args.layers,
        inputs=args.inputs if whole else None, mnist=args.mnist, count=args.count, threads=threads,
        repeats=args.repeats, seconds=f"{args.seconds:g}", libraries=",".join(libraries), records="records",
    )  # fmt: skip
    write = partial(networks.write_records, args.records) if args.records else lambda records: None
    run(networks.compare(settings, command), _print, write, reasons)


def _print(records: list) -> None:
    """The table of a problem, of which ours is the first."""
    from spdnn.report.common.run_rows import RunRow
    from spdnn.report.peers import PEERS, Peer

    problem = records[0].problem
    title = f"{problem.neurons} neurons x {problem.layers} layers, {problem.input_count} inputs"
    if records[0].request is None:
        title = f"one layer, {problem.neurons} neurons, {problem.input_count} inputs"
    rounds = plural(len(records[0].seconds), "round")
    print(f"{title}; {plural(records[0].threads, 'thread')}, {rounds}; every output verified")
    runs = [RunRow(record) for record in records]
    show(PEERS, [Peer(run, runs[0]) for run in runs])
