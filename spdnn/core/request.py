"""What is asked of a run, as one typed value: the command, the configuration, the API and records all hold it.

Each field is declared once, here or in the settings of an engine. The command's options, the keys of the configuration,
the reference pages, the name of a case and the command that repeats a run are made from these declarations.
"""

import hashlib
import json
from pathlib import PurePath
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from spdnn.core import challenge
from spdnn.core.errors import InputError
from spdnn.core.numbers import plain
from spdnn.core.threads import MAX_THREADS
from spdnn.core.validation import builtins, convert

LARGEST_COUNT = 10**9  # of layers, inputs and other things of a request: a number beyond is a slip
# Edges that the reference goes through in a second, on one core. A power of two: seconds become the same edges again.
ORACLE_SPEED = 2.0**29
ORACLE_EDGES = 1e9  # some 2 seconds
ALL_EDGES = 1e30  # more than any run has
GENERATED = ("mnist", "digits", "official")  # inputs that have no file of the user's own
KINDS = {"formula": "radixnet", "official": "official", "unstructured": "unstructured"}  # as files name networks
READING = ("last", "bias", "clip", "rows", "epsilon")  # what must be known of a file of weights alone
FILE_FIELDS = ("network", *READING, "truth")  # of a network that is a file
CHALLENGE_FIELDS = ("neurons", "source", "cache")  # of a network of the challenge

Path = Annotated[str, Meta(min_length=1, max_length=4096, extra={"metavar": "FILE"})]
Truth = Annotated[str, Meta(min_length=1, max_length=4096, extra={"metavar": "official:N|oracle|FILE"})]
Count = Annotated[int, Meta(ge=1, le=LARGEST_COUNT)]
Natural = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
Bytes = Annotated[int, Meta(ge=1, le=10**18, extra={"unit": "bytes"})]
Names = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]*(,[a-z][a-z0-9-]*)*$(?!\n)", extra={"metavar": "LIST"})]
Word = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9_-]*$(?!\n)", extra={"metavar": "NAME"})]


class RunRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A run as it was asked for. A field that is None is left to the run, and the record says what was taken.

    Attributes:
        network: model file or folder, in any format that `spdnn network import` reads.
        neurons: neurons per layer of a challenge network: 1024, 4096, 16384 or 65536.
        layers: number of layers to run, from the first; 120, 480 and 1920 are official (default: all of a file).
        source: source of a challenge network: formula (regenerated, exact), official (downloaded, up to 16 GB each) or
            unstructured (random weights).
        last: activation of the last layer of a file that does not state it; the other layers have ReLU. For an ONNX
            model, none removes a softmax at the end.
        bias: one bias for all layers, or one for each layer joined by commas (default: the file's own; by width for
            official text; otherwise 0).
        clip: upper bound of the ReLU, or none (default: 32 for official text, otherwise none).
        rows: meaning of the rows of a weight matrix (default: outputs in a PyTorch state dict, otherwise inputs;
            required where matrices fit both ways).
        epsilon: epsilon of the BatchNorms of a PyTorch state dict, which does not hold it (default: 1e-5).
        inputs: mnist (official, by formula), digits (bundled with scikit-learn), official (downloaded), or a file:
            .safetensors, .npz, .npy, .mtx, .csv or official text.
        mnist: file of the MNIST training images, idx or idx.gz (default: downloaded).
        count: number of inputs, from the first; a number above the file's repeats them (default: all).
        engine: one of the engines that `spdnn info` lists.
        settings: settings of the engine, by name.
        reductions: exact reductions to apply: all that the engine offers, none, or names joined by commas.
        threads: number of threads on each rank (default: all cores that the process may use, divided among the ranks of
            the node).
        memory: limit on the peak resident memory of the run in bytes, such as 8GiB on the command line; it excludes
            verification and covers all ranks of a node (default: most of the free memory).
        device: GPU to use, counted from 0 among those that CUDA_VISIBLE_DEVICES shows; with several devices, the first
            of them; several ranks all use it, one memory between them (default: 0, and a GPU for each rank).
        ranks: number of MPI ranks; 1 runs without MPI.
        partition: assignment of inputs to the ranks of `mpiexec -n R spdnn ...`: static (contiguous parts), cyclic, or
            rebalanced (static at first; rows then move to ranks that have fewer, when that pays).
        repeats: number of timed repeats.
        repeat_if_busy: number of times to measure again while other work takes over 10 % of the machine.
        seed: seed that selects, before the run, the inputs whose every value is compared with the reference.
        oracle_edges: largest number of edges that the float64 reference computes, where there is no official ground
            truth; above it, a sample of the inputs is compared.
        truth: ground truth to verify against: official:N, oracle (the float64 reference), or a file of categories
            (default: official where it applies, otherwise the reference).
        cache: keep inputs in $SPDNN_DATA, by default in the user's caches (10 GB at most), and reuse them; without,
            make them anew and keep none.

    Raises:
        InputError: no network, or fields that exclude each other.
    """

    network: Path | None = None
    neurons: Count | None = None
    layers: Count | None = None
    source: Literal["formula", "official", "unstructured"] = "formula"
    last: Literal["relu", "none"] | None = None
    bias: float | Annotated[list[float], Meta(min_length=1)] | None = None
    clip: Annotated[float, Meta(gt=0, extra={"metavar": "Y|none"})] | Literal["none"] | None = None
    rows: Literal["inputs", "outputs"] | None = None
    epsilon: Annotated[float, Meta(ge=0, le=1)] | None = None
    inputs: Annotated[str, Meta(min_length=1, max_length=4096, extra={"metavar": "mnist|digits|official|FILE"})] = (
        "mnist"
    )
    mnist: Path | None = None
    count: Count | None = None
    engine: Word = "cpu"
    settings: dict[str, bool | int | str] = {}
    reductions: Names = "all"
    threads: Annotated[int, Meta(ge=1, le=MAX_THREADS)] | None = None
    memory: Bytes | None = None
    device: Natural | None = None
    ranks: Annotated[int, Meta(ge=1, le=65536)] = 1
    partition: Literal["static", "cyclic", "rebalanced"] = "rebalanced"
    repeats: Annotated[int, Meta(ge=1, le=10**6)] = 1
    repeat_if_busy: Annotated[int, Meta(ge=0, le=100)] = 0
    seed: Natural = 0
    oracle_edges: Annotated[float, Meta(gt=0, extra={"metavar": "EDGES"})] = ORACLE_EDGES
    truth: Truth | None = None
    cache: bool = True

    def __post_init__(self):
        for name in self.__struct_fields__:
            force_setattr(self, name, _plain(getattr(self, name)))
        if (self.network is None) == (self.neurons is None):
            raise InputError("a run needs a network file, or the neurons of a network of the challenge, and not both")
        kind, absent = "a network file", CHALLENGE_FIELDS
        if self.network is None:
            kind, absent = "a network of the challenge", FILE_FIELDS
        for name in absent:
            if getattr(self, name) != DEFAULTS[name]:
                raise InputError(f"{name} {getattr(self, name)!r} does not go with {kind}")
        if self.neurons is None:
            return
        if self.layers is None:
            raise InputError("layers: a network of the challenge needs them; 120, 480 and 1920 are official")
        if self.neurons not in challenge.BIAS:
            raise InputError(
                f"{self.neurons} neurons have no official bias; they must be 1024, 4096, 16384 or 65536 "
                "(other widths: `spdnn network make radixnet --bias B`, and `spdnn infer` runs what it makes)"
            )

    @classmethod
    def of(cls, values: dict[str, Any], where: str = "request") -> "RunRequest":
        """The request of these values; of one that is not allowed an InputError, which begins with `where`, if any."""
        try:
            return convert(cls, _plain(values), where)
        except InputError as error:
            raise InputError(str(error).removeprefix(": ")) from error

    @property
    def truth_file(self) -> str | None:
        """The file of categories to verify against, if there is one."""
        return None if self.truth in (None, "oracle") or self.truth.startswith("official:") else self.truth

    @property
    def values(self) -> dict[str, Any]:
        """The fields that differ from their defaults, fit for JSON."""
        return {name: value for name, value in builtins(self).items() if value != DEFAULTS[name]}

    @property
    def official(self) -> bool:
        """Whether it is one of the twelve with its inputs: then the official ground truth must judge it."""
        sizes = self.neurons in challenge.WIDTHS and self.layers in challenge.DEPTHS
        return sizes and self.source != "unstructured" and self.inputs in ("mnist", "official")

    @property
    def network_name(self) -> str:
        """How files and cases name the network; different networks have different names."""
        if self.network is None:
            return f"{KINDS[self.source]}-{self.neurons}"
        return f"{word(self.network)}-{_digest({name: getattr(self, name) for name in FILE_FIELDS[:-1]})}"

    @property
    def prepared_name(self) -> str:
        """How files name the prepared network; depths share it."""
        return f"{self.network_name}.{self.engine}.{self.reductions.replace(',', '+')}"

    @property
    def inputs_name(self) -> str:
        """How files and cases name all inputs; different inputs have different names."""
        if self.inputs in GENERATED:
            return f"{self.inputs}-{self.neurons or self.network_name}"
        return f"{word(self.inputs)}-{_digest(self.inputs)}"

    @property
    def name(self) -> str:
        """How files and the report name the case; different requests have different names."""
        network = self.network_name + (f"-{self.layers}" if self.layers else "")
        inputs = self.inputs_name + (f"-first-{self.count}" if self.count else "")
        parts = [network, inputs, self.engine, self.reductions.replace(",", "+")]
        parts += [f"t{self.threads}"] if self.threads else []
        parts += [f"r{self.ranks}-{self.partition}"] if self.ranks > 1 else []
        settings = dict(self.settings)
        if "schedule" in settings or "devices" in settings:
            parts.append(f"{settings.pop('schedule', 'auto')}-d{settings.pop('devices', 1)}")
        named = ("network", "neurons", "layers", "source", "last", "bias", "clip", "rows", "epsilon", "inputs", "count",
                 "engine", "reductions", "threads", "ranks", "repeats")  # fmt: skip
        rest = {name: value for name, value in self.values.items() if name not in named} | {"settings": settings}
        if self.ranks > 1:
            rest.pop("partition", None)
        rest = {name: value for name, value in rest.items() if value != {}}
        return ".".join(parts + ([_digest(rest)] if rest else []))

    def command(self, record: str = "run.json") -> list[str]:
        """The words of the command that runs this request and writes its record."""
        words = ["spdnn", "infer" if self.network is not None else "challenge"]
        values = self.values
        values |= values.pop("settings", {})
        for name, value in values.items():
            if name == "oracle_edges":
                words += ["--verify", "all" if value == ALL_EDGES else str(value / ORACLE_SPEED)]
            elif name != "ranks":
                words += option_words(name, value)
        words += ["--record", record]
        return ["mpiexec", "-n", str(self.ranks), *words] if self.ranks > 1 else words


DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(RunRequest)} | {"settings": {}}


def _plain(value: Any) -> Any:
    """Values fit for JSON, with numbers of Python's in place of NumPy's."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, list | tuple) else plain(value)


def option_words(name: str, value: Any) -> list[str]:
    """An option of a command line with its value."""
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [option if value else f"--no-{option[2:]}"]
    text = ",".join(map(repr, value)) if isinstance(value, list) else str(value)
    return [f"{option}={text}"] if text.startswith("-") else [option, text]


def reading(values: Any) -> dict[str, Any]:
    """What the attributes of READING that are not None say of a file of weights, as open_network takes it."""
    said = {name: value for name in READING if (value := getattr(values, name)) is not None}
    return said | ({"clip": None} if said.get("clip") == "none" else {})


def word(path: str) -> str:
    """A file's name as the name of a case or network in records may contain it."""
    stem = PurePath(path).name.split(".")[0][:60]
    return "".join(sign if sign.isascii() and sign.isalnum() else "-" for sign in stem).strip("-") or "file"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]  # any name of a file
