"""What pruning costs and gains: top-1 accuracy, time of a call and memory of two small models, a record of each.

    .venv-torch/bin/python benchmarks/accuracy.py FOLDER    writes FOLDER/accuracy.jsonl, in under 5 minutes

A CNN and a Transformer learn scikit-learn's digits, 1,797 images of 8 x 8: the first 1,257 train, the last 540 are held
out. Each is dense, pruned by magnitude, and pruned and fine-tuned. All layers lose the same part of their weights; the
first and the last stay dense. Outputs are compared with PyTorch's; then spdnn.compile and ONNX Runtime take turns.
"""

import copy
import hashlib
import math
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from msgspec.structs import replace
from onnx import numpy_helper
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune

import spdnn
import spdnn.torch as st
from spdnn.bench.contest import ComparisonSettings, Entrant, Pace, contest, digest
from spdnn.bench.libraries.base import DENSE, OURS, TimedProgram
from spdnn.bench.records import Task, model_problem, operation_records
from spdnn.core.errors import SpdnnError
from spdnn.core.resources import usable_cores
from spdnn.formats import onnx_files
from spdnn.ops.onnx_model import OnnxModel
from spdnn.ops.torch.export import export
from spdnn.runs.measure import time_call
from spdnn.runs.records.files import seal_record, write_operations
from spdnn.runs.records.operation_record import OperationProblem, Verification
from spdnn.runs.records.result import Accuracy

TRAINING = 1257  # images; the rest are held out
SPARSITIES = (0.9, 0.95)
BATCHES = (1, 64)
SECONDS, PACE = 1.0, Pace(5, 30, warm=True, wait_for_idle=True)  # of timing
TURN = 64  # images of a turn of calls, at least; and four calls
HELD, HELD_ROW = 10, 16  # bytes of a nonzero with its position, and of a row (kernels/cpu/onnx_products.cpp)
TOLERANCE = 1e-4  # of the largest output
RULE = f"largest difference from PyTorch's outputs <= {TOLERANCE:g} of the largest output"
STEP, LEARNING_RATE = 32, 1e-3  # images of a step of training
LEAST_WEIGHTS = 16_384  # of a layer that is pruned


class Turn(TimedProgram):
    """Calls of a program on parts of the images, one after the other."""

    def __init__(self, call: Callable, parts: list[np.ndarray], name: str, kind: str, version: str, notes: dict):
        self.call, self.parts, self.name, self.kind, self.version = call, parts, name, kind, version
        self.notes = notes | {"calls": len(parts)}

    def __call__(self, x=None) -> list[np.ndarray]:
        return [self.call(part) for part in self.parts]

    def arrays(self, out: list[np.ndarray]) -> list[np.ndarray]:
        return out


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, *parts: nn.Module):
        super().__init__()
        self.parts = nn.Sequential(*parts)

    def forward(self, x):
        return x + self.parts(x)


class Attention(nn.Module):
    """Self-attention of several heads."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x):
        parts = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for project in (self.query, self.key, self.value)
        )
        return self.output(F.scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2))


class Patches(nn.Module):
    """An image of 8 x 8 as a sequence of 8 patches, its rows, each of them at its position."""

    def __init__(self, width: int):
        super().__init__()
        self.pixels, self.position = nn.Linear(8, width), nn.Parameter(0.02 * torch.randn(8, width))

    def forward(self, x):
        return self.pixels(x.squeeze(1)) + self.position


class Mean(nn.Module):
    """Over the positions."""

    def forward(self, x):
        return x.mean(1)


def cnn() -> nn.Module:
    """Four convolutions of 3 x 3, of 64 to 256 channels."""

    def convolution(inputs: int, outputs: int) -> tuple[nn.Module, ...]:
        return nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()

    parts = [*convolution(1, 64), *convolution(64, 128), nn.MaxPool2d(2), *convolution(128, 128)]
    return nn.Sequential(*parts, *convolution(128, 256), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10))


def transformer(width: int = 256, layers: int = 2) -> nn.Module:
    """Encoder layers, normalised before each part, with GELU."""
    parts: list[nn.Module] = [Patches(width)]
    for _ in range(layers):
        wide = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        parts += [Residual(nn.LayerNorm(width), Attention(width, 4)), Residual(nn.LayerNorm(width), *wide)]
    return nn.Sequential(*parts, nn.LayerNorm(width), Mean(), nn.Linear(width, 10))


MODELS: dict[str, tuple[Callable[[], nn.Module], int, int]] = {  # and the epochs of training and of fine-tuning
    "digits-cnn": (cnn, 4, 3),
    "digits-transformer": (transformer, 20, 10),
}


def fit(model: nn.Module, x: torch.Tensor, labels: torch.Tensor, epochs: int) -> None:
    """Adam; the learning rate falls to zero."""
    torch.manual_seed(0)
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    steps = epochs * (len(x) // STEP)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    model.train()
    for _ in range(epochs):
        for picks in torch.randperm(len(x)).split(STEP)[: len(x) // STEP]:
            optimiser.zero_grad()
            F.cross_entropy(model(x[picks]), labels[picks]).backward()
            optimiser.step()
            schedule.step()
    model.eval()


def pruned(model: nn.Module, sparsity: float) -> nn.Module:
    """A copy with masks on convolutions and sparse layers in place of Linear."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and module.weight.numel() >= LEAST_WEIGHTS:
            prune.l1_unstructured(module, "weight", sparsity)
    st.sparsify(model, min_size=LEAST_WEIGHTS, measure=False, quiet=True)
    return model.eval()


def variants(name: str, x: torch.Tensor, labels: torch.Tensor):
    """Yield (what it is, the model) of a network that is trained here."""
    make, epochs, more = MODELS[name]
    torch.manual_seed(0)
    dense = make()
    fit(dense, x, labels, epochs)
    yield "dense", dense
    for sparsity in SPARSITIES:
        pruned_model = pruned(dense, sparsity)
        yield f"pruned {100 * sparsity:g}", pruned_model
        fit(pruned_model, x, labels, more)
        yield f"fine-tuned {100 * sparsity:g}", pruned_model


def compared(
    name: str, kind: str, module: nn.Module, x: np.ndarray, labels: np.ndarray, comparison: ComparisonSettings
):
    """The records of a model in spdnn and in ONNX Runtime, for each number of images of a call."""
    with torch.inference_mode():
        right = module(torch.from_numpy(x)).numpy()
    threads = comparison.threads
    with export(module, torch.from_numpy(x[:2])) as exported:
        path = exported.path
        session, spent = time_call(
            onnx_files.session, str(path), lambda options: setattr(options, "intra_op_num_threads", threads)
        )
        (taken,) = (argument.name for argument in session.get_inputs())
        whole = [numpy_helper.to_array(array) for array in onnx_files.OnnxGraph.read(path).model.graph.initializer]
        whole = [array for array in whole if array.dtype == np.float32]
        size = sum(each.nbytes for each in whole)
        for batch in BATCHES:
            model, compiling = time_call(partial(spdnn.compile, path, threads=threads, example=x[:batch]))
            parts = np.split(x[: max(TURN, 4 * batch)], max(TURN // batch, 4))
            turns = {
                "ours": Turn(
                    model, parts, "ours", OURS, f"spdnn {spdnn.__version__}",
                    {"threads_set": f"{threads} of the model", "layout": "spdnn.compile", "products": model.explain()},
                ),
                "onnxruntime": Turn(
                    lambda x: session.run(None, {taken: x})[0], parts, "onnxruntime", DENSE,
                    f"ONNX Runtime {onnxruntime.__version__}",
                    {"threads_set": f"intra_op_num_threads = {threads}", "layout": "dense, the same model"},
                ),
            }  # fmt: skip
            outputs = {label: turn.call(x) for label, turn in turns.items()}

            def judge(label: str, entrant: Entrant, out: list[np.ndarray], outputs: dict = outputs) -> Verification:
                return verification(f"{name}, {kind}, {label}", outputs[label], right)

            makers = {label: (lambda turn=turn: turn) for label, turn in turns.items()}
            entrants, _, load = contest(makers, judge, PACE, comparison.seconds)
            for label, entrant in entrants.items():
                entrant.program.threads_used = threads
                entrant.program.matrix_bytes = size - (saved(model) if label == "ours" else 0)
                entrant.prepare_seconds = compiling if label == "ours" else spent
                entrant.seconds = [seconds / len(parts) for seconds in entrant.seconds]
            problem = about(name, kind, whole, batch)
            done, operands = batch * problem.nonzeros, 4 * batch * (x[0].size + right.shape[1])
            task = Task("network", f"network.{name}.{kind}.b{batch}", problem, (done, done), operands)
            records = operation_records(task, comparison, entrants.values(), load)
            for label, record in zip(entrants, records, strict=True):
                yield seal_record(replace(record, accuracy=accuracy(outputs[label], labels)), record.case)
            model.close()


def verification(what: str, out: np.ndarray, right: np.ndarray) -> Verification:
    """Raises SpdnnError: the outputs are not PyTorch's."""
    error = float(np.abs(out - right).max() / np.abs(right).max()) / TOLERANCE
    if not error <= 1:
        raise SpdnnError(f"{what}: the outputs differ from PyTorch's by {error:.3g} times what rounding explains")
    return Verification(out.size, out.size, None, RULE, error, digest(out))


def saved(model: OnnxModel) -> int:
    """Bytes of the dense weights of the products that spdnn computes, less those of their nonzeros and positions."""
    ours = [product.matrix for product in model.ours]
    return sum(4 * math.prod(matrix.shape) - HELD * matrix.nnz - HELD_ROW * matrix.shape[0] for matrix in ours)


def accuracy(outputs: np.ndarray, labels: np.ndarray) -> Accuracy:
    scores = spdnn.score(outputs, labels)
    return Accuracy(hashlib.sha256(labels.tobytes()).hexdigest(), scores.hits(1), scores.confusion.tolist())


def about(name: str, kind: str, whole: list[np.ndarray], batch: int) -> OperationProblem:
    """The part `problem` of a record: all weights in a row."""
    content = hashlib.sha256()
    for array in whole:
        content.update(np.ascontiguousarray(array))
    nonzeros, entries = int(sum(map(np.count_nonzero, whole))), sum(array.size for array in whole)
    return model_problem(name, kind, entries, nonzeros, content.hexdigest(), origin="generated", batch_columns=batch)


def main(folder: str) -> None:
    threads = usable_cores()
    torch.set_num_threads(threads)
    digits = load_digits()
    images, labels = digits.images[:, None].astype(np.float32) / 16, digits.target.astype(np.int64)
    x, y = torch.from_numpy(images[:TRAINING]), torch.from_numpy(labels[:TRAINING])
    records = []
    for name in MODELS:
        for kind, module in variants(name, x, y):
            comparison = ComparisonSettings(threads, ["onnxruntime"], SECONDS, "python benchmarks/accuracy.py .")
            for record in compared(name, kind, module, images[TRAINING:], labels[TRAINING:], comparison):
                records.append(record)
                summary = f"top-1 {record.accuracy.top1} of {len(labels) - TRAINING}, {record.matrix_bytes:,} bytes"
                print(f"{record.case:<60} {1e3 * statistics.median(record.seconds):8.3f} ms, {summary}", flush=True)
    Path(folder).mkdir(parents=True, exist_ok=True)
    write_operations(Path(folder, "accuracy.jsonl"), records)


if __name__ == "__main__":
    main(*sys.argv[1:])
