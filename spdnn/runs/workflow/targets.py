"""The cases of a workflow, and the files that they need: names, patterns of names, and where each file comes from."""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.files import sha256, write_text
from spdnn.core.request import RunRequest, reading
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import engine

KNOWN = Path(".snakemake/spdnn-contents.json")  # {file: [status, digest]}; to read 16 GB takes 18 s at every start
MNIST = "results/data/mnist/train-images-idx3-ubyte.gz"  # where it is downloaded to


class Targets:
    """The files of these requests. `wildcards` are Snakemake's, of a rule.

    Attributes:
        cases: the requests by name.
        networks, inputs: those whose network, or inputs, are a file of the user's own, by the name of its store.
    """

    def __init__(self, requests: Collection[RunRequest]):
        self.cases = {request.name: request for request in requests}
        self.networks = {request.network_name: request for request in requests if request.network}
        self.inputs = {request.inputs_name: request for request in self.networks.values()}

    def check(self, elsewhere: bool) -> None:
        """Refuse files that are not there, engines that cannot run here and reductions that they do not offer.

        Args:
            elsewhere: runs are on nodes of a cluster, so that this one needs no GPU; but it needs CuPy, for nodes have
                the same environment.

        Raises:
            InputError, Unavailable: the sentence names the engine.
        """
        for case in self.cases.values():
            for path in (case.network, case.network and case.inputs, case.mnist, case.truth_file):
                if path and not os.path.exists(path):
                    raise InputError(f"config: {path}: there is no such file")
            known = engine(case.engine, usable=False)
            runner = known if elsewhere and known.on_device else engine(case.engine)
            if runner.on_device:
                from spdnn.kernels.cuda.driver import missing_package

                if sentence := missing_package():
                    raise Unavailable(f"engine {case.engine}: {sentence}")
            parse_reductions(case.reductions, runner.offers)

    def case(self, wildcards) -> RunRequest:
        """The case of a rule; of a prepared network one that runs it, for all of them agree on what is prepared."""
        if hasattr(wildcards, "case"):
            return self.cases[wildcards.case]
        return self.of_prepared(wildcards.prepared)

    def of_prepared(self, name: str) -> RunRequest:
        """A case that runs a prepared network."""
        return next(case for case in self.cases.values() if case.prepared_name == name)

    def threads(self, cores: int) -> int:
        """The most threads that a case has, on all its ranks; `cores` where it leaves them open."""
        return max(((case.threads or cores) * case.ranks for case in self.cases.values()), default=0)

    def network_source(self, wildcards) -> str:
        """The file or folder that a network is imported from."""
        own = self.networks.get(wildcards.network)
        return own.network if own else f"results/data/dnn/{wildcards.network.replace('official-', 'neuron')}.tar.gz"

    def inputs_source(self, wildcards) -> str:
        """The file that inputs are imported from."""
        own, name = self.inputs.get(wildcards.inputs), wildcards.inputs.replace("official-", "sparse-images-")
        return own.inputs if own else f"results/data/mnist/{name}.tsv.gz"

    def mnist(self) -> str:
        """The file of MNIST images; two of them in one configuration would be two inputs of one name."""
        named = {case.mnist or MNIST for case in self.cases.values()}
        if len(named) > 1:
            raise InputError(f"config: mnist: {len(named)} files of MNIST images in one configuration; name one")
        return named.pop() if named else MNIST

    def reading(self, wildcards) -> dict:
        """What import_network must know of a network besides its file: of an official archive, how many layers to read,
        those of the deepest case.
        """
        if own := self.networks.get(wildcards.network):
            return reading(own)
        return {"layers": max(case.layers for case in self.cases.values() if case.network_name == wildcards.network)}

    def depth_to_store(self, name: str) -> int | None:
        """Layers of a network that is made: the deepest case of an unstructured one; None: a formula covers all."""
        if not name.startswith("unstructured-"):
            return None
        return max(case.layers for case in self.cases.values() if case.network_name == name)


def configfiles(paths: Iterable[str | Path]) -> list[str]:
    """Configuration files as a command in the current folder names them."""
    here = Path.cwd()
    return [str(path.relative_to(here) if path.is_relative_to(here) else path) for path in map(Path, paths)]


def one_of(names: Collection[str]) -> str:
    """A pattern that matches these names and nothing else."""
    return "|".join(map(re.escape, sorted(names))) or "(?!)"


def stores(targets: Targets, *kinds: str) -> dict:
    """The stores of a case, of kinds network, prepared and inputs, as the inputs of a rule."""

    def store(kind: str):
        folder = {"network": "networks"}.get(kind, kind)
        return lambda wildcards: f"results/{folder}/{getattr(targets.case(wildcards), f'{kind}_name')}.safetensors"

    return {kind: store(kind) for kind in kinds}


def content(paths: Iterable[str | Path | None]) -> str:
    """SHA-256 over the names and the contents of these files; one that cannot be read is left to its reader.

    A file is read again where its status changed, in which the time of its last change can be set by no program.
    """
    try:
        known = json.loads(KNOWN.read_text("utf-8"))
    except (OSError, ValueError):
        known = {}
    before, digest = dict(known), hashlib.sha256()
    with contextlib.suppress(SpdnnError):  # a list of layers that is not sound
        for path in sorted(str(path) for path in paths if path):
            with contextlib.suppress(OSError):
                status = os.stat(path)
                stamp = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
                if path not in known or known[path][0] != stamp:
                    known[path] = [stamp, sha256(path)]
                digest.update(f"{os.path.basename(path)!a} {known[path][1]}\n".encode())
    if known != before:
        with contextlib.suppress(SpdnnError):  # it is read again the next time
            write_text(KNOWN, json.dumps(known))
    return digest.hexdigest()
