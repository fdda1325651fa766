"""`spdnn network` and `spdnn inputs`: make them by formula, import, export or show a network."""

import json

import numpy as np

from spdnn.cli import arguments
from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.network import Header
from spdnn.core.request import reading

SHOWN_LAYERS = 6  # of the first layers
TEXT = (".tsv", ".tsv.gz")  # how names of official text end


def add(group) -> None:
    group.description = "Make, import, export or show a network."
    kinds = group.add_subparsers(metavar="ACTION", required=True)

    make = kinds.add_parser(
        "make",
        help="make a network by formula",
        description="Write a model file of a RadiX-Net (the official networks, or any 16 * 2^m neurons), or of an\n"
        "unstructured network (8 to 64 random inputs per neuron, normally distributed weights, a bias vector).",
    )
    make.add_argument("kind", choices=["radixnet", "unstructured"])
    arguments.option(make, "neurons", required=True, help="neurons per layer, such as 1024")
    arguments.option(make, "layers", required=True, help="number of layers")
    make.add_argument("--bias", type=float, metavar="B", help="bias of a RadiX-Net (default: the official one of its "
                      "width)")  # fmt: skip
    arguments.option(make, "clip", help="upper bound of the ReLU of a RadiX-Net, or none (default: 32)")
    make.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="random seed (default: the official one, or 0 for an unstructured network)",
    )
    make.add_argument("-o", "--output", required=True, metavar="net.safetensors", help="model file to write")
    make.set_defaults(run=_make, reads=(), writes=("output",))

    read = kinds.add_parser(
        "import",
        help="convert a network to a model file",
        description="Convert a network to a model file. It reads chains of layers in ONNX; state dicts (.safetensors,\n"
        ".npz, .pt) of weights (outputs, inputs); matrices (inputs, outputs) as Matrix Market or .npz, in folders\n"
        "or .txt lists; and official text, in folders or archives (.tsv, .tar.gz).",
    )
    read.add_argument("network", metavar="PATH", help="file or folder to read")
    read.add_argument("-o", "--output", required=True, metavar="net.safetensors", help="model file to write")
    arguments.add_reading(read)
    arguments.option(read, "layers", help="number of layers that the network must have")
    read.set_defaults(run=_import, reads=("network",), writes=("output",))

    write = kinds.add_parser(
        "export",
        help="write a network as official text files",
        description="Write the official text files n{N}-l{k}.tsv. For 1024 neurons, layers 1 to 120 equal the\n"
        "official files byte for byte (SHA-256); other official files were not compared.",
    )
    write.add_argument("network", metavar="net.safetensors", help="model file, or any format that `import` reads")
    write.add_argument("folder", metavar="DIR", help="folder to write to")
    arguments.add_reading(write)
    write.set_defaults(run=_export, reads=("network",), writes=("folder/n*-l*.tsv",))

    info = kinds.add_parser(
        "info",
        help="show a network",
        description="Print the size and source of a network, and widths, nonzeros, bias and activation by layer.",
    )
    info.add_argument("network", metavar="net.safetensors", help="model file, or any format that `import` reads")
    arguments.add_reading(info)
    info.set_defaults(run=_info)


def _make(args) -> None:
    from spdnn.formats.radixnet import RadixNet
    from spdnn.formats.store import write_network
    from spdnn.formats.unstructured import Unstructured

    _check_name(args.output)
    if args.kind == "radixnet":
        seed = challenge.SEED if args.seed is None else args.seed
        clip = {None: challenge.YMAX, "none": None}.get(args.clip, args.clip)
        network = RadixNet(args.neurons, args.layers, args.bias, clip, seed)
    elif args.bias is not None or args.clip is not None:
        raise InputError("--bias and --clip are for a RadiX-Net; an unstructured network takes neither")
    else:
        network = Unstructured(args.neurons, args.layers, args.seed or 0)
    write_network(args.output, network)
    print(f"{args.output}: {network.depth} layers of {network.neurons} neurons, {network.edges:,} edges")


def _import(args) -> None:
    from spdnn.formats.readers import import_network

    _check_name(args.output)
    network = import_network(args.network, args.output, layers=args.layers, **reading(args))
    sizes = f"{network.inputs} inputs to {network.outputs} outputs, {network.edges:,} edges"
    print(f"{args.output}: {network.depth} layers, {sizes}")


def _export(args) -> None:
    from spdnn.formats.readers import open_network
    from spdnn.formats.text import write_layers

    network = open_network(args.network, **reading(args))
    write_layers(network, args.folder)
    print(f"{args.folder}: {network.depth} files")


def _info(args) -> None:
    from spdnn.formats.readers import open_network

    network = open_network(args.network, **reading(args))
    headers = [network.header(k) for k in range(network.depth)]
    widths = {header.outputs for header in headers} | {network.inputs}
    rows = {
        "layers": network.depth,
        "neurons": network.width
        if len(widths) == 1
        else f"{network.inputs} in, {network.outputs} out, at most {network.width}",
        "edges": f"{network.edges:,}",
        "bytes in memory": f"{network.nbytes:,}",
        "source": json.dumps(network.description, sort_keys=True),
        "identity": network.identity(),
    }
    for name, value in rows.items():
        print(f"{name:<16} {value}")
    for k, header in enumerate(headers, 1):
        if k <= SHOWN_LAYERS or k == len(headers):
            print(f"{f'layer {k}':<16} {_describe(header)}")
        elif k == SHOWN_LAYERS + 1:
            print("...")


def _describe(header: Header) -> str:
    nonzero = 100 * header.edges / header.entries
    bias = f"bias {float(header.bias):g}" if np.ndim(header.bias) == 0 else "a bias for each output"
    return f"{header.inputs} -> {header.outputs}, {nonzero:.3g} % nonzero, {bias}, {header.activation}"


def _check_name(path: str) -> None:
    """Raise InputError unless the name of a model file to write has its ending."""
    if not path.endswith(".safetensors"):
        raise InputError(f"-o {path}: the name of a model file must end with .safetensors")


def add_inputs(group) -> None:
    group.description = "Make the inputs of the challenge."
    kinds = group.add_subparsers(metavar="ACTION", required=True)
    make = kinds.add_parser(
        "make",
        help="make inputs from MNIST or from bundled digits",
        description="Make binary inputs: exactly the official ones from MNIST, or digits, which need no download.\n"
        "They are written as a file of spdnn, or as official text where its name ends with .tsv or .tsv.gz.",
    )
    make.add_argument("kind", choices=["mnist", "digits"])
    arguments.option(make, "neurons", required=True, help="neurons per input: 1024, 4096, 16384 or 65536")
    arguments.option(
        make, "count", help="number of inputs; above 60000 they repeat, for scaling studies (default: 60000)"
    )
    arguments.option(
        make, "mnist", help="file of the MNIST training images, idx or idx.gz (default: SPDNN_MIRROR, then downloaded)"
    )
    make.add_argument("-o", "--output", required=True, metavar="inputs.safetensors", help="file to write")
    make.set_defaults(run=_make_inputs, reads=("mnist",), writes=("output",))


def _make_inputs(args) -> None:
    from spdnn.formats.images import write_images
    from spdnn.formats.inputs import write_inputs
    from spdnn.runs.load import generate_inputs

    if not args.output.endswith((".safetensors", *TEXT)):
        raise InputError(f"-o {args.output}: the name of inputs must end with .safetensors, {' or '.join(TEXT)}")
    inputs = generate_inputs(args.kind, args.neurons, args.mnist)
    inputs = inputs if args.count is None else inputs.first(args.count)
    (write_images if args.output.endswith(TEXT) else write_inputs)(args.output, inputs)
    print(
        f"{args.output}: {inputs.count} inputs of {inputs.neurons} neurons, {inputs.nonzeros:,} ones stored, "
        f"SHA-256 {inputs.sha256}"
    )
