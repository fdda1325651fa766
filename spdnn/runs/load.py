"""The network and the inputs that a request names: by formula, from a download, or from files of the user's own; and
prepared networks, from their stores."""

from functools import partial
from pathlib import Path

from spdnn.core.errors import InputError, SpdnnError, nearest
from spdnn.core.features import Inputs
from spdnn.core.files import cache_folder
from spdnn.core.network import Network
from spdnn.core.request import GENERATED, RunRequest, reading
from spdnn.core.safe_open import existing
from spdnn.engines.base import Prepared
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.store import read_prepared
from spdnn.runs.cache import InputCache


def load_network(request: RunRequest, path: str | None = None, whole: bool = False) -> Network:
    """The network of a request, its first layers.

    Args:
        path: where its file is now, a copy or a store made of it; by default where the request says.
        whole: all layers of a file, more than the request may take.

    Raises:
        InputError: no such file, or none that holds a network. SpdnnError: a download failed.
    """
    generated = request.neurons and path is None
    if generated and request.source == "formula":
        return RadixNet(request.neurons, request.layers)
    if generated and request.source == "unstructured":
        from spdnn.formats.unstructured import Unstructured

        return Unstructured(request.neurons, request.layers)
    from spdnn.formats import readers

    if generated:
        from spdnn.formats.fetch import fetch

        archive = fetch(f"network-{request.neurons}", cache_folder())
        network = readers.load_network(archive, layers=None if whole else request.layers)
    else:
        # A copy has the name of the file; a store that was made of it states all of its network.
        known = reading(request) if path is None or Path(path).name == Path(request.network or "").name else {}
        network = readers.load_network(path or request.network, **known)
    return network.first(request.layers) if request.layers and not whole else network


def load_named_inputs(
    name: str,
    neurons: int,
    count: int | None = None,
    mnist: str | None = None,
    cache: InputCache | None = None,
    is_file: bool = False,
) -> Inputs:
    """The inputs that `mnist`, `digits`, `official` or the path of a file names.

    Args:
        neurons: the width of the network's first layer.
        count: the first so many; None: all.
        is_file: it is a path, whatever it is called.

    Raises:
        InputError: no such file, or none that holds inputs of that width. SpdnnError: a download failed.
    """
    if name in GENERATED and not is_file:
        inputs = generate_inputs(name, neurons, mnist, cache)
    else:
        from spdnn.formats.readers import open_inputs

        if not Path(name).exists() and (hint := nearest(str(name), GENERATED)):
            raise InputError(f"{name}: there is no such file of inputs{hint}")
        inputs = open_inputs(name, neurons)
    return inputs if count is None else inputs.first(count)


def generate_inputs(kind: str, neurons: int, mnist: str | None = None, cache: InputCache | None = None) -> Inputs:
    """All inputs of a width: `mnist` or `digits` by formula, or `official`, downloaded.

    Args:
        mnist: the file of MNIST images; by default downloaded.
        cache: gives them where it has them, and keeps them otherwise.

    Raises:
        SpdnnError: a download failed.
    """
    source: Path | None = None
    if kind == "mnist":
        from spdnn.formats.mnist import find_downloaded, mnist_inputs

        source = existing(mnist, "file of MNIST images") if mnist else find_downloaded() or _fetch_mnist()
        make = lambda: mnist_inputs(neurons, source if mnist else _fetch_mnist())  # noqa: E731
    elif kind == "digits":
        from spdnn.formats.digits import digits_inputs

        make = partial(digits_inputs, neurons)
    else:
        from spdnn.formats.fetch import fetch
        from spdnn.formats.readers import open_inputs

        return open_inputs(fetch(f"images-{neurons}", cache_folder()), neurons)
    return cache.inputs(kind, neurons, source, make) if cache else make()


def _fetch_mnist() -> Path:
    """MNIST's training images, checked; downloaded unless they are there."""
    from spdnn.formats.mnist import locate_mnist

    try:
        return locate_mnist()
    except InputError:
        raise
    except SpdnnError as error:
        raise SpdnnError(f"{error}; give its file by --mnist, or take digits, which need no download") from error


def read_store(path: str | Path, network: Network, layers: int | None = None) -> tuple[Prepared, float]:
    """A prepared network from its store, and the seconds that preparing took.

    Args:
        network: what it was prepared of; at least as deep.
        layers: how many of the first to take; None: all that were prepared.

    Raises:
        InputError: no prepared network, one that is not as deep, or one of another network.
    """
    # A stored network could be of any source: its identity must be that of this network, as deep as it goes.
    prepared, info = read_prepared(path)
    source = network.first(prepared.depth)
    if info.get("source") != source.identity():
        raise InputError(f"{path}: this was prepared of another network than this one; prepare it anew")
    whole = Prepared(source, prepared, tuple(info["reductions"]), info["found"])
    return whole.first(layers or prepared.depth), info["prepare_seconds"]


def store_info(prepared: Prepared, seconds: float) -> dict:
    """What a store of a prepared network tells besides its layers; `read_store` reads it."""
    info = {"reductions": list(prepared.reductions), "found": prepared.findings, "prepare_seconds": seconds}
    return {**info, "source": prepared.source.identity()}
