"""What is fuzzed: of each format the reader, seeds to begin from, and what an input that is taken must hold.

An input is judged right when the reader refuses it in one short sentence, or takes it and `check` finds nothing wrong.
"""

import contextlib
import copy
import functools
import gzip
import io
import json
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import onnx_calls
import scipy.sparse as sp
import yaml
from engine_cases import random_network
from onnx_models import chain
from operation_cases import made_imbalance, made_operation

from spdnn import cli
from spdnn.core.categories import read_categories
from spdnn.core.errors import SpdnnError
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.formats import container, inputs, lines, readers, store, tensors
from spdnn.formats.catalog import read_sources
from spdnn.formats.labels import read_labels, read_names
from spdnn.formats.mnist import read_idx
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.torch_files import TorchFile
from spdnn.ops import SparseMatrix
from spdnn.runs.records import files as records
from spdnn.runs.records.files import read_result, read_samples
from spdnn.runs.records.published import read_baselines
from spdnn.runs.verify.judging import judge as make_verdict
from spdnn.runs.workflow import config as configuration
from spdnn.runs.workflow import decisions

ROOT = Path(__file__).resolve().parents[2]
TORCH = ROOT / "tests" / "data" / "pruned.pt"
LONGEST = 200  # characters of a sentence, besides the path
SMALL = 1 << 22  # edges or bytes that a check goes through
HUGE = (1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63))  # that damaged indices may be


class Target(NamedTuple):
    """How a format is fuzzed.

    Attributes:
        file: the name that an input is given; read: its reader.
        seeds: writes sound files into a folder, and gives their paths.
        check: raises AssertionError where what was read cannot be.
        longest: characters of a sentence, besides the path.
        seal: makes digests and checksums of a changed input right again, so that what is behind them is reached.
    """

    file: str
    read: Callable[[Path], Any]
    seeds: Callable[[Path], Iterable[Path]]
    check: Callable[[Any], None] = lambda value: None
    seal: Callable[[bytes], bytes] | None = None
    longest: int = LONGEST


def judge(name: str, data: bytes, folder: Path) -> bool:
    """Whether the reader takes the input. Raises whatever is wrong with its answer."""
    target = TARGETS[name]
    path = folder / target.file
    path.write_bytes(data)
    try:
        target.check(target.read(path))  # what is read late may be refused late
        return True
    except SpdnnError as error:
        said = str(error).replace(str(path), "")
        assert len(said) <= target.longest, f"a sentence of {len(said)} characters: {said[:400]}"
        assert said.isprintable(), f"a sentence with control characters: {said!r}"
        return False


# What was taken.


@contextlib.contextmanager
def _taken() -> Iterator[None]:
    """What was taken must not be refused now."""
    try:
        yield
    except SpdnnError as error:
        raise AssertionError(f"taken, and refused later: {error}") from error


def _network(network) -> None:
    for k in range(min(network.depth, 2)):
        header = network.header(k)
        if header.edges < SMALL:
            layer = network.layer(k)
            with _taken():
                layer.check("fuzz")
            assert (layer.inputs, layer.outputs, layer.edges) == (header.inputs, header.outputs, header.edges)


def _inputs(found: Inputs) -> None:
    assert found.count >= 1
    if found.neurons < SMALL // 4:
        rows = found.dense(np.arange(min(found.count, 3)))
        assert rows.shape[1] == found.neurons
        assert np.isfinite(rows).all()


def _categories(found: np.ndarray) -> None:
    assert found.dtype == np.int64
    assert (np.diff(found) > 0).all()
    assert found.size == 0 or found[0] >= 1


def _labels(found: np.ndarray) -> None:
    assert found.dtype == np.int64
    assert found.ndim == 1


def _names(found: list[str]) -> None:
    assert len(set(found)) == 2
    assert all(name.isprintable() for name in found)


def _record(found) -> None:
    for one in found if isinstance(found, list) else [found]:
        with _taken():
            assert records.check_content(type(one), one, "fuzz") == one


def _result(found) -> None:
    found.check()
    assert len(found.digest) == 64
    _categories(found.categories)


# Readers of files that hold weights alone, and of what is no file of its own.


def _calls(path: Path) -> None:
    """A graph that is grown from a seed, and calls of it."""
    with mock.patch.dict(os.environ, SPDNN_TUNING="off"):
        onnx_calls.judge(int.from_bytes(path.read_bytes()[:6], "little"), path.parent)


def _matrices(path: Path):
    return readers.open_network(path, last="none", rows="inputs")


def _state_dict(path: Path):
    return readers.open_network(path, last="none")


def _lines(path: Path) -> None:
    """The compiled parser takes only what the strict one takes, and as it does."""
    data = path.read_bytes()
    form = lines.LineFormat("row", "column", 300, 70_000, "value" if data[:1] < b"@" else None, data[1:2] < b"@")
    fast = lines._fast(data[2:], form)
    if fast is not None:
        strict = lines._slow(data[2:], str(path), form, 1)
        assert all(np.array_equal(*both) for both in zip(fast, strict, strict=True))
    lines.parse(data[2:], str(path), form)


def _command(path: Path) -> None:
    words = path.read_bytes().decode("utf-8", "surrogateescape").split("\n")
    with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
        try:
            _parser(words[0] if words[0] in cli.COMMANDS else "").parse_args(words)
        except SystemExit as end:
            if end.code not in (0, 2):
                raise


@functools.cache
def _parser(command: str):
    return cli.parser([command])


def _configured(path: Path) -> None:
    try:
        content = yaml.load(path.read_bytes(), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError, TypeError, AttributeError):
        return  # Snakemake's to tell
    if isinstance(content, dict):
        schema = ROOT / "workflow" / "schemas" / "config.schema.yaml"
        checked = configuration.check(decisions.own_cases(_defaults(), content), schema)
        configuration.requests(checked, decisions.Decisions(cores=2))


@functools.cache
def _defaults() -> dict:
    return yaml.safe_load((ROOT / "config" / "config.yaml").read_text())


def _damaged(path: Path) -> None:
    """A SciPy array whose parts are what the bytes say, through every function that takes one."""
    data = path.read_bytes()
    if len(data) < 8:
        return
    numbers = [HUGE[one - 124] if one > 123 else one for one in np.frombuffer(data[8:], np.int8).tolist()]
    kind, *sizes = data[:8]
    cut = [numbers[: sizes[0] % 16], numbers[16 : 16 + sizes[1] % 24], numbers[40 : 40 + sizes[2] % 24]]
    shape = (sizes[3] % 9, sizes[4] % 9)
    first, second = (np.array(part, np.int64 if sizes[5] % 2 else object).astype(np.int64) for part in cut[:2])
    values = np.array(cut[2], np.float32)
    form = ("csr", "csc", "bsr", "coo", "dia", "lil")[kind % 6]
    matrix = sp.csr_array((max(shape[0], 1), max(shape[1], 1)), dtype=np.float32).asformat(form)
    if form in ("csr", "csc", "bsr"):
        matrix.indptr, matrix.indices = first, second
        matrix.data = values if form != "bsr" else values[: values.size // 2 * 2].reshape(-1, 1 + sizes[6] % 2, 1)
    elif form == "coo":
        matrix.coords, matrix.data = (first, second), values
    elif form == "dia":
        matrix.offsets = first
        matrix.data = values[: values.size // 2 * 2].reshape(2, -1) if sizes[6] % 2 else values.reshape(1, -1)
    else:
        for row in range(min(len(matrix.rows), len(cut[0]))):
            matrix.rows[row] = cut[1][row : row + abs(cut[0][row]) % 3]
            matrix.data[row] = cut[2][row : row + sizes[6] % 3]
    refused = 0
    for reader in (lambda one: _network(from_matrices([one], last="relu")), Inputs.from_array, SparseMatrix.from_scipy):
        try:
            reader(copy.deepcopy(matrix))
        except SpdnnError as error:
            refused, last = refused + 1, error
    if refused == 3:
        raise last


# Seeds.


@functools.cache
def _run(folder: Path) -> dict[str, Path]:
    """The files of a small run, by kind."""
    network, rows = folder / "net.safetensors", folder / "x.safetensors"
    made, data = random_network([12, 9, 12], density=0.4), Inputs.from_array(np.eye(6, 12, dtype=np.float32))
    store.write_network(network, made)
    inputs.write_inputs(rows, data)
    out = {name: folder / f"seed.{name}" for name in ("categories.txt", "result.npz", "samples.json", "record.json")}
    words = ["infer", "--network", network, "--inputs", rows, "--threads", "1", "--repeats", "2"]
    for option, name in zip(("categories", "result", "samples", "record"), out, strict=True):
        words += [f"--{option}", out[name]]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert cli.main(list(map(str, words))) == 0
    verdict = make_verdict(made, data, read_result(out["result.npz"]), "oracle")
    records.write_verdict(folder / "verdict.json", verdict)
    return {**out, "verdict.json": folder / "verdict.json", "network": network, "inputs": rows}


def _of_run(*names: str) -> Callable[[Path], list[Path]]:
    return lambda folder: [_run(folder)[name] for name in names]


def _texts(*texts: str | bytes) -> Callable[[Path], list[Path]]:
    def write(folder: Path) -> list[Path]:
        paths = [folder / f"text{k}" for k in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode() if isinstance(text, str) else text)
        return paths

    return write


def _tables(*names: str) -> Callable[[Path], list[Path]]:
    return lambda folder: [ROOT / name for name in names]


MTX = "%%MatrixMarket matrix "
LAYER = "".join(f"{i}\t{j}\t0.0625\n" for j in (1, 2, 7, 32) for i in (1, 5, 32))


def _tar(folder: Path, mode: str = "w") -> list[Path]:
    paths = []
    for form in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        paths.append(folder / f"{form}.tar")
        with tarfile.open(paths[-1], mode, format=form) as archive:
            for k, name in enumerate(("n32-l1.tsv", f"{'d' * (40, 60, 120)[form]}/n32-l2.tsv"), 1):
                member = tarfile.TarInfo(name)
                member.size, member.pax_headers = len(LAYER), {"comment": f"layer {k}"} if form == 2 else {}
                archive.addfile(member, io.BytesIO(LAYER.encode()))
    return paths


def _npz(folder: Path) -> list[Path]:
    matrix, paths = sp.random_array((5, 4), density=0.4, rng=np.random.default_rng(0), dtype=np.float32), []
    for form in ("csr", "csc", "coo", "bsr", "dia"):
        for packed in (False, True):
            paths.append(folder / f"{form}{packed}.npz")
            sp.save_npz(paths[-1], matrix.asformat(form), packed)
    np.savez(folder / "dense.npz", np.eye(3, dtype=np.float32))
    return [*paths, folder / "dense.npz"]


def _npy(folder: Path) -> list[Path]:
    paths = []
    for k, array in enumerate((np.eye(4, dtype=np.float16), np.arange(12).reshape(3, 4), np.ones((2, 3), "?"))):
        paths.append(folder / f"{k}.npy")
        np.save(paths[-1], array)
    return paths


def _named(folder: Path) -> list[Path]:
    np.savez(folder / "named.npz", **{name: TorchFile(TORCH)[name] for name in TorchFile(TORCH)})
    return [folder / "named.npz"]


def _onnx(folder: Path) -> list[Path]:
    return [chain(seed)[0].save(folder / f"{seed}.onnx") for seed in range(6)]


def _tensors(folder: Path) -> list[Path]:
    arrays = {"fc1.weight": np.eye(4, 3, dtype=np.float32), "fc1.bias": np.ones(4), "fc2.weight": np.ones((2, 4))}
    tensors.write_tensors(folder / "a.safetensors", arrays)
    return [folder / "a.safetensors"]


def _stores(folder: Path) -> list[Path]:
    paths = [folder / "formula.safetensors", folder / "uneven.safetensors"]
    store.write_network(paths[0], RadixNet(32, 3, -0.3), formula_ok=True)
    store.write_network(paths[1], random_network([5, 3, 4], density=0.5, bias="vector"))
    return [*paths, _run(folder)["network"]]


def _input_stores(folder: Path) -> list[Path]:
    paths = [folder / "dense.safetensors", folder / "csr.safetensors"]
    made = np.arange(12, dtype=np.float32).reshape(3, 4)
    for path, array in zip(paths, (made, sp.csr_array(made)), strict=True):
        inputs.write_inputs(path, Inputs.from_array(array))
    return [*paths, _run(folder)["inputs"]]


def _operations(folder: Path) -> list[Path]:
    made = [made_operation(), made_operation("mkl", operation="sddmm"), made_operation(imbalance=made_imbalance())]
    records.write_operations(folder / "all.jsonl", made)
    return [folder / "all.jsonl"]


def _images(folder: Path) -> list[Path]:
    content = np.arange(2 * 28 * 28, dtype=np.uint32).astype(np.uint8).tobytes()
    raw = (0x803).to_bytes(4, "big") + b"".join(n.to_bytes(4, "big") for n in (2, 28, 28)) + content
    return _texts(raw, gzip.compress(raw))(folder)


# Seals.


def _seal_tar(data: bytes) -> bytes:
    content = bytearray(data)
    for start in range(0, len(content) - 511, 512):
        if content[start + 257 : start + 262] == b"ustar":
            block = content[start : start + 512]
            content[start + 148 : start + 156] = b"%06o\0 " % (sum(block[:148]) + 8 * 32 + sum(block[156:]))
    return bytes(content)


def _seal_zip(data: bytes) -> bytes:
    """Checksums of members that are not packed."""
    content, entry = bytearray(data), data.find(b"PK\x01\x02")
    while 0 <= entry <= len(data) - 46:
        size = int.from_bytes(content[entry + 24 : entry + 28], "little")
        header = int.from_bytes(content[entry + 42 : entry + 46], "little")
        lengths = (int.from_bytes(content[header + at : header + at + 2], "little") for at in (26, 28))
        begin = header + 30 + sum(lengths)
        if content[entry + 10 : entry + 12] == b"\0\0" and begin + size <= len(data):
            crc = zlib.crc32(content[begin : begin + size]).to_bytes(4, "little")
            content[entry + 16 : entry + 20] = content[header + 14 : header + 18] = crc
        entry = data.find(b"PK\x01\x02", entry + 4)
    return bytes(content)


def _seal_store(data: bytes) -> bytes:
    """The digests of a store: of the record, of layers' bytes, of inputs; unchanged where it is no such file."""
    path = Path(os.environ["SPDNN_FUZZ_FOLDER"]) / "seal.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(Exception):
        stored = container.Tensors(path)
        record = json.loads(stored.metadata[container.KEY])
        arrays = {name: stored[name].copy() for name in stored}
        if record["format"] == inputs.FORMAT and "data" in arrays:
            record["sha256"] = Inputs(arrays["data"], record["neurons"]).sha256
        if "blake3" in arrays:
            for k, (start, size) in enumerate(zip(arrays["start"], arrays["size"], strict=True)):
                digest = container.blake3(arrays["data"][start : start + size])
                arrays["blake3"][k] = np.frombuffer(bytes.fromhex(digest), np.uint8)
            record["sha256"] = store.digest_of_layers(row.tobytes().hex() for row in arrays["sha256"])
        with container.creating(path, record, durable=False) as writer:
            for name, array in arrays.items():
                writer.write(name, array)
        return path.read_bytes()
    return data


COMMANDS = (
    "infer\n--network\na.safetensors\n--inputs\nx.npz\n--memory\n8GiB\n--threads\n2\n--schedule\nauto",
    "challenge\n--neurons\n1024\n--layers\n120\n--inputs\ndigits\n--count\n100\n--seed\n3",
    "network\nmake\nradixnet\n--neurons\n64\n--layers\n3\n-o\na.json", "plan\n--devices\n4\n--memory\n1.5e3k",
    "peers\n--neurons\n1024", "ops\nbench\n-o\nfolder", "compare\na\nb", "verify\na.txt\n--truth\nofficial:1024",
    "report\nresults", "machine\n--threads\n1", "inputs\nmake\ndigits\n--neurons\n1024\n-o\na.npz", "--help",
)  # fmt: skip

TARGETS = {
    "text lines": Target("a.tsv", _lines, _texts("!!" + LAYER, "!A1 2 3e-5\n7 7 .5\n", "AA3 4\r\n\r\n 5 6\n")),
    "text layer": Target("n32-l1.tsv", lambda path: readers.open_network(path.parent, -0.1), _texts(LAYER), _network),
    "tar": Target("a.tar", lambda path: readers.open_network(path, -0.1), _tar, _network, _seal_tar),
    "tar.gz": Target("a.tar.gz", lambda path: readers.open_network(path, -0.1), lambda f: _tar(f, "w:gz"), _network),
    "images": Target(
        "sparse-images-70.tsv", readers.open_inputs, _texts("1\t1\t1\n2\t70\t0.5\n", "3\t3\t1\n9\t4\t1\n"), _inputs
    ),
    "Matrix Market": Target(
        "a.mtx",
        _matrices,
        _texts(
            MTX + "coordinate real general\n% note\n3 4 2\n1 1 0.5\n3 4 -2e-3\n",
            MTX + "coordinate pattern symmetric\n3 3 2\n1 1\n3 2\n",
            MTX + "coordinate integer skew-symmetric\n3 3 1\n3 2 7\n",
            MTX + "array real general\n2 2\n1\n2\n3\n4\n",
            MTX + "array real symmetric\n2 2\n1\n2\n3\n",
        ),
        _network,
    ),
    "npz": Target("a.npz", _matrices, _npz, _network, _seal_zip),
    "state dict in npz": Target("a.npz", _state_dict, _named, _network, _seal_zip, longest=600),
    "state dict in pt": Target("a.pt", _state_dict, _tables("tests/data/pruned.pt"), _network, _seal_zip, longest=600),
    "ONNX": Target("a.onnx", readers.open_network, _onnx, _network, longest=600),
    "ONNX calls": Target("a.seed", _calls, _texts(*(bytes([k]) for k in range(6)))),
    "npy": Target("a.npy", readers.open_inputs, _npy, _inputs),
    "inputs in CSV": Target("a.csv", readers.open_inputs, _texts("a,b\n1,0\n", "0.5,-2e-3\n\n1, 7\n"), _inputs),
    "smtx": Target("a.smtx", SparseMatrix.from_smtx, _texts("2, 3, 2\n0 1 2\n0 2\n", "1, 1, 0\n0 0\n\n")),
    "safetensors": Target("a.safetensors", _state_dict, _tensors, _network, longest=600),
    "network store": Target("a.safetensors", readers.open_network, _stores, _network, _seal_store, longest=600),
    "input store": Target("a.safetensors", readers.open_inputs, _input_stores, _inputs, _seal_store),
    "SciPy arrays": Target("a.bin", _damaged, _texts(*(bytes([k, 4, 3, 3, 3, 3, 1, 1, *range(60)]) for k in range(6)))),
    "labels": Target("a.csv", read_labels, _texts("label\n1\n0\n", "3\n-1\n\n7\n"), _labels),
    "labels in npy": Target("a.npy", read_labels, _npy),
    "class names": Target("a.txt", lambda path: read_names(path, 2), _texts("cat\ndog\n", "a b\nc"), _names),
    "categories": Target("a.tsv", read_categories, _of_run("categories.txt"), _categories),
    "result": Target("a.npz", read_result, _of_run("result.npz"), _result, _seal_zip),
    "samples": Target("a.json", read_samples, _of_run("samples.json")),
    "verdict": Target("a.json", records.read_verdict, _of_run("verdict.json"), _record),
    "run record": Target("a.json", records.read_record, _of_run("record.json"), _record),
    "operation records": Target("a.jsonl", lambda path: records.read_all([path])[1], _operations, _record),
    "MNIST": Target("a.idx", lambda path: read_idx(path, None), _images),
    "downloads": Target("a.tsv", read_sources, _tables("config/data.tsv")),
    "baselines": Target("a.csv", read_baselines, _tables("config/baselines.csv"), longest=300),
    "configuration": Target(
        "a.yaml", _configured, _tables("config/smoke.yaml", "config/ladder.yaml", "config/weak.yaml"), longest=600
    ),  # which lists the keys that there are
    "command line": Target("a.txt", _command, _texts(*COMMANDS)),
}  # fmt: skip
