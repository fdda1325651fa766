"""`spdnn inputs make`: the inputs of the challenge, by formula."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from spdnn.cli import arguments
from spdnn.common.errors import InputError, SpdnnError
from spdnn.common.files import existing
from spdnn.problem.features import Inputs

if TYPE_CHECKING:
    from spdnn.cli.cache import Cache


def add(group) -> None:
    group.description = "Inputs, made by formula."
    kinds = group.add_subparsers(metavar="ACTION", required=True)
    make = kinds.add_parser(
        "make",
        help="make inputs from MNIST or from bundled digits",
        description="Make binary inputs: the official ones from MNIST, exactly, or digits that need no download.",
    )
    make.add_argument("kind", choices=["mnist", "digits"])
    arguments.option(make, "neurons", required=True, help="1024, 4096, 16384 or 65536")
    arguments.option(make, "count", help="how many (default: 60000); more than 60000 repeats them, for scaling studies")
    arguments.option(
        make, "mnist", help="the MNIST training images, idx or idx.gz (default: SPDNN_MIRROR, then downloaded)"
    )
    make.add_argument("-o", "--output", required=True, metavar="inputs.safetensors")
    make.set_defaults(run=_make, reads=("mnist",), writes=("output",))


def generated(kind: str, neurons: int, count: int | None, mnist: str | None, cache: "Cache | None" = None) -> Inputs:
    """The inputs named `mnist` or `digits` for that width, from `cache` if it has them; `count` of them (None: all)."""
    if kind == "mnist":
        from spdnn.sources.mnist import downloaded_mnist, mnist_inputs

        source = existing(mnist, "file of MNIST images") if mnist else downloaded_mnist() or _fetched()
        make = lambda: mnist_inputs(neurons, source if mnist else _fetched())  # noqa: E731
    else:
        from spdnn.sources.digits import digits_inputs

        source, make = None, partial(digits_inputs, neurons)
    whole = cache.inputs(kind, neurons, source, make) if cache else make()
    return whole if count is None else whole.counted(count)


def _fetched() -> Path:
    """MNIST's training images, checked; downloaded unless they are there."""
    from spdnn.sources.mnist import locate_mnist

    try:
        return locate_mnist()
    except InputError:
        raise
    except SpdnnError as error:
        raise SpdnnError(f"{error}; give its file by --mnist, or take digits, which need no download") from error


def opened(path: str, neurons: int, count: int | None) -> Inputs:
    """The inputs in a file; `count` of them (None: all).

    Raises:
        InputError: no such file, or none that holds inputs of that width.
    """
    from spdnn.formats.readers import open_inputs

    inputs = open_inputs(existing(path, "file of inputs (`spdnn inputs make` makes mnist and digits)"), neurons)
    return inputs if count is None else inputs.counted(count)


def named(name: str, neurons: int, count: int | None, mnist: str | None, cache: "Cache | None" = None) -> Inputs:
    """The inputs that the option --inputs names, mnist, digits or a file; raises as `generated` and `opened`."""
    if name in ("mnist", "digits"):
        return generated(name, neurons, count, mnist, cache)
    return opened(name, neurons, count)


def _make(chosen) -> None:
    from spdnn.formats.inputs import write_inputs

    inputs = generated(chosen.kind, chosen.neurons, chosen.count, chosen.mnist)
    write_inputs(chosen.output, inputs)
    print(
        f"{chosen.output}: {inputs.count} inputs of {inputs.neurons} neurons, {inputs.nonzeros:,} ones stored, "
        f"SHA-256 {inputs.sha256}"
    )
