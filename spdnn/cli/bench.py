"""`spdnn bench`: our programs and other libraries on the same problems, verified, in turns on the same threads.

Here are the kernels; calls of a model and sparse products have modules of their own.
"""

import shlex

from spdnn.cli import arguments, bench_model, bench_products
from spdnn.core.errors import InputError, install
from spdnn.runs.load import load_inputs, load_network

WIDTHS = (1024, 4096, 16384, 65536)


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
        type=_widths,
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
    arguments.option(command, "threads", help="number of threads of each library (default: all cores of this process)")
    arguments.option(command, "repeats", default=3, help="number of rounds on a network (default: 3)")
    command.add_argument(
        "--seconds", type=arguments.above_zero, default=10.0, metavar="S",
        help="seconds to measure each width (default: 10)",
    )  # fmt: skip
    command.add_argument(
        "--libraries",
        metavar="LIST",
        default="all",
        help="libraries to compare, joined by commas (default: all installed)",
    )
    command.add_argument("--records", metavar="DIR", help="folder to write the records to, one file each")
    command.set_defaults(run=_compare, reads=("inputs", "mnist"), writes=("records/*.json",))


def _widths(text: str) -> list[int]:
    """Widths joined by commas, or none."""
    return [] if text == "none" else arguments.positives(text)


def _compare(args) -> None:
    from spdnn.bench import compare

    whole = args.neurons is not None
    if whole != (args.layers is not None):
        raise InputError("--neurons and --layers go together: they are the width and the depth of a whole network")
    layers = args.layer_widths if args.layer_widths is not None else [] if whole else list(WIDTHS)
    if not (layers or whole):
        raise InputError("nothing to compare: --layer-widths is none, and there is no --neurons and --layers")
    names = args.libraries if args.libraries == "all" else args.libraries.split(",")
    libraries, absent = compare.find_libraries(names)
    threads, records, refused = arguments.threads(args.threads), [], {}
    command = _command(args, layers, libraries, threads)
    comparison = compare.ComparisonSettings(threads, libraries, args.seconds, command)
    for width in layers:
        group = compare.compare_layers([width], args.count, comparison)
        _print(f"one layer, {width} neurons, {group[0].problem.input_count} inputs", group)
        records += group
    if whole:
        request = arguments.request(args, threads=threads)
        network = load_network(request)
        inputs = load_inputs(request, network.inputs)
        group, refused = compare.compare_networks(request, network, inputs, comparison)
        _print(f"{args.neurons} neurons x {args.layers} layers, {inputs.count} inputs", group)
        records += group
    for name, reason in {**absent, **refused}.items():
        print(f"{name}: {reason}")
    if args.records:
        compare.write_records(args.records, records)


def _command(args, layers: list[int], libraries: list[str], threads: int) -> str:
    """The command that makes these records again."""
    words = ["spdnn", "bench", "kernels", "--layer-widths", ",".join(map(str, layers)) or "none"]
    if args.neurons is not None:
        words += ["--neurons", args.neurons, "--layers", args.layers, "--inputs", args.inputs]
    for name in ("mnist", "count"):
        words += [f"--{name}", getattr(args, name)] if getattr(args, name) else []
    words += ["--threads", threads, "--repeats", args.repeats, "--seconds", f"{args.seconds:g}"]
    return shlex.join(map(str, [*words, "--libraries", ",".join(libraries), "--records", "records"]))


def _print(title: str, records: list) -> None:
    from spdnn.bench.compare import rows

    print(f"{title}; {records[0].threads} threads, {len(records[0].seconds)} rounds")
    print(f"  {'library':<10} {'median s':>10} {'billion edges/s':>16}   {'times as long as ours':<24} verified")
    for row in rows(records):
        times = f"{row.ratio.median:.2f} ({row.ratio.low:.2f} to {row.ratio.high:.2f})"
        print(f"  {row.name:<10} {row.seconds:>10.4f} {row.rate / 1e9:>16.2f}   {times:<24} {row.verdict}", flush=True)
