"""`spdnn inputs make`: the inputs of the challenge, by formula."""

from spdnn.cli import arguments


def add(group) -> None:
    group.description = "Make the inputs of the challenge."
    kinds = group.add_subparsers(metavar="ACTION", required=True)
    make = kinds.add_parser(
        "make",
        help="make inputs from MNIST or from bundled digits",
        description="Make binary inputs: exactly the official ones from MNIST, or digits, which need no download.",
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
    make.set_defaults(run=_make, reads=("mnist",), writes=("output",))


def _make(args) -> None:
    from spdnn.formats.inputs import write_inputs
    from spdnn.runs.load import generate_inputs

    inputs = generate_inputs(args.kind, args.neurons, args.mnist)
    inputs = inputs if args.count is None else inputs.first(args.count)
    write_inputs(args.output, inputs)
    print(
        f"{args.output}: {inputs.count} inputs of {inputs.neurons} neurons, {inputs.nonzeros:,} ones stored, "
        f"SHA-256 {inputs.sha256}"
    )
