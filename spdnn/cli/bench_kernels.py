"""`spdnn bench kernels`: other libraries and our kernels on the same problems, timed alternately."""

import shlex

from spdnn.cli import arguments
from spdnn.common.errors import InputError, install
from spdnn.pipeline.load import load_inputs, load_network

WIDTHS = (1024, 4096, 16384, 65536)


def add(command) -> None:
    command.description = (
        "Time our kernels and SciPy, GraphBLAS, MKL, JAX and PyTorch alternately in one process, and verify each.\n"
        "The problems are one layer on dense features for each of --layer-widths and, with --neurons and --layers,\n"
        f"a whole network. {install('peers')} installs the libraries."
    )
    command.add_argument(
        "--layer-widths",
        type=widths,
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
    command.set_defaults(run=_peers, reads=("inputs", "mnist"), writes=("records/*.json",))


def widths(text: str) -> list[int]:
    """Widths joined by commas, or none."""
    if text == "none":
        return []
    return list(dict.fromkeys(arguments.positive(part) for part in text.split(",")))


def _peers(chosen) -> None:
    from spdnn.peers import compare as peers

    whole = chosen.neurons is not None
    if whole != (chosen.layers is not None):
        raise InputError("--neurons and --layers go together: they are the width and the depth of a whole network")
    layers = chosen.layer_widths if chosen.layer_widths is not None else [] if whole else list(WIDTHS)
    if not (layers or whole):
        raise InputError("nothing to compare: --layer-widths is none, and there is no --neurons and --layers")
    names = chosen.libraries if chosen.libraries == "all" else chosen.libraries.split(",")
    libraries, absent = peers.installed(names)
    threads, records, refused = arguments.threads(chosen.threads), [], {}
    command = _command(chosen, layers, libraries, threads)
    comparison = peers.Comparison(threads, libraries, chosen.seconds, command)
    for width in layers:
        measured = peers.compare_layers([width], chosen.count, comparison)
        _print(f"one layer, {width} neurons, {measured[0].problem.input_count} inputs", measured, peers)
        records += measured
    if whole:
        request = arguments.request(chosen, threads=threads)
        network = load_network(request)
        inputs = load_inputs(request, network.inputs)
        measured, refused = peers.compare_networks(request, network, inputs, comparison)
        _print(f"{chosen.neurons} neurons x {chosen.layers} layers, {inputs.count} inputs", measured, peers)
        records += measured
    for name, reason in {**absent, **refused}.items():
        print(f"{name}: {reason}")
    if chosen.records:
        peers.write_records(chosen.records, records)


def _command(chosen, layers: list[int], libraries: list[str], threads: int) -> str:
    """The command that makes these records again."""
    words = ["spdnn", "bench", "kernels", "--layer-widths", ",".join(map(str, layers)) or "none"]
    if chosen.neurons is not None:
        words += ["--neurons", chosen.neurons, "--layers", chosen.layers, "--inputs", chosen.inputs]
    for name in ("mnist", "count"):
        words += [f"--{name}", getattr(chosen, name)] if getattr(chosen, name) else []
    words += ["--threads", threads, "--repeats", chosen.repeats, "--seconds", f"{chosen.seconds:g}"]
    return shlex.join(map(str, [*words, "--libraries", ",".join(libraries), "--records", "records"]))


def _print(title: str, records: list[dict], peers) -> None:
    print(f"{title}; {records[0].threads} threads, {len(records[0].seconds)} rounds")
    print(f"  {'library':<10} {'median s':>10} {'billion edges/s':>16}   {'times as long as ours':<24} verified")
    for row in peers.rows(records):
        times = f"{row.ratio.median:.2f} ({row.ratio.low:.2f} to {row.ratio.high:.2f})"
        print(f"  {row.name:<10} {row.seconds:>10.4f} {row.rate / 1e9:>16.2f}   {times:<24} {row.verdict}", flush=True)
