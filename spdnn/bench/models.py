"""Whole models with sparse arithmetic next to the same models with dense: the records of one model, timed alternately.

The two share all code but the products, so each is the other's check: where their outputs agree and the operations were
verified against float64 (tests/ops/models compares whole models with it), a record may exist. The key `ops` of a
configuration asks for products and models together.
"""

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from spdnn.bench.contest import CONTEST_SEED, ComparisonSettings, Entrant, Pace, contest
from spdnn.bench.libraries.base import TimedProgram
from spdnn.bench.libraries.ours import stay_awake
from spdnn.bench.libraries.registry import check_operations, libraries_here
from spdnn.bench.products import compare_products
from spdnn.bench.records import Task, model_problem, operation_records
from spdnn.core import provenance
from spdnn.core.errors import SpdnnError, unknown
from spdnn.core.resources import COMPARISON_SHARE, available_bytes
from spdnn.ops import dlmc
from spdnn.ops.models.arithmetic import ARITHMETIC_TOLERANCE, difference
from spdnn.ops.problems import ShapeProblem, problems
from spdnn.runs.records.operation_record import OperationProblem, OperationRecord, Verification

ARITHMETICS = {"sparse": "ours", "dense": "dense", "stored": "dense"}  # and the kind of program of each in a record
RULE = f"largest difference between arithmetics <= {ARITHMETIC_TOLERANCE:g} of the largest output"
PRESETS = ("small", "medium", "paper")
IMAGES = 4
PACE = Pace(2, 50, wait_for_idle=True)


class ReadyModel(NamedTuple):
    """A model that is ready to run.

    Attributes:
        model, inputs: the model, and its tokens or images.
        run: an arithmetic's output on the processor, float32.
        problem: of its records.
        flops: of an arithmetic.
        operand_bytes: as a record has them; attention_bytes: of an arithmetic.
        arithmetics: that are compared, the sparse first.
    """

    model: Any
    inputs: np.ndarray
    run: Callable[[str], np.ndarray]
    problem: OperationProblem
    flops: Callable[[str], int]
    operand_bytes: int
    attention_bytes: Callable[[str], int] | None = None
    arithmetics: tuple[str, ...] = ("sparse", "dense")

    def task(self, name: str) -> Task:
        """What both arithmetics of a model of this name do: a product with zeros is no less work than one without."""
        sparse, dense = (self.flops(arithmetic) // 2 for arithmetic in ("sparse", "dense"))
        return Task("model", f"model.{name}", self.problem, (sparse, max(sparse, dense)), self.operand_bytes)


class ModelRun(TimedProgram):
    """A whole model in one arithmetic; `notes`: of its records, besides the arithmetic."""

    def __init__(self, ready: ReadyModel, arithmetic: str, threads: int, notes: dict):
        self.name, self.kind, self.ready, self.threads_used = arithmetic, ARITHMETICS[arithmetic], ready, threads
        self.version = provenance.environment("")["versions"].get("spdnn", "of a checkout")
        self.notes = notes | {"arithmetic": arithmetic}
        self.matrix_bytes = int(ready.model.weight_bytes(arithmetic))
        if ready.attention_bytes:
            self.attention_bytes = int(ready.attention_bytes(arithmetic))

    def __call__(self, x: Any = None) -> np.ndarray:
        return self.ready.run(self.name)


def check(names: Sequence[str]) -> None:
    """Raise InputError for a name that is no MODEL-PRESET."""
    for name in names:
        model, _, preset = name.partition("-")
        if model not in MODELS or preset not in PRESETS:
            raise unknown("model", name, [f"{model}-{preset}" for model in MODELS for preset in PRESETS])


def products_of(settings: dict, copy: str | None = None) -> tuple[int, Iterable[ShapeProblem]]:
    """(how many, the problems of sparse products) that the key `ops` of a configuration asks for.

    Args:
        settings: sets, networks, phases, operations, libraries, seconds, threads, seed, models, as the configuration's
            schema has them; and `sample`, where there is a copy.
        copy: of DLMC, whose matrices, read one after the other, are the problems of set a; None: they are drawn.

    Raises:
        InputError: a name in them that is not known, or see `problems`, `dlmc.Sample`.
    """
    check_operations(settings["operations"])
    cases = problems(settings["sets"], settings["phases"], settings["networks"], settings["seed"])
    check(settings["models"])
    if copy is None or "a" not in settings["sets"]:
        return len(cases), cases
    count = settings.get("sample", dlmc.SAMPLE)
    sample = dlmc.Sample(copy, count, settings["seed"], settings["sets"]["a"], settings["networks"])
    others = [case for case in cases if case.shape.set != "a"]
    phases = settings["phases"]
    return len(sample.names) * len(phases) + len(others), itertools.chain(sample.problems(phases), others)


def compare(
    settings: dict, command: str, cases: Iterable[ShapeProblem]
) -> Iterator[tuple[list[OperationRecord], dict[str, str]]]:
    """Yield (the records of a problem, no refusals) as the key `ops` of a configuration asks: products, then models.

    Args:
        settings, cases: see products_of.

    Raises:
        InputError, Unavailable: see libraries_here, compare_products.
    """
    libraries, _ = libraries_here(settings["libraries"])
    comparison = ComparisonSettings(settings["threads"], libraries, settings["seconds"], command)
    for records in compare_products(cases, settings["operations"], comparison):
        yield records, {}
    for name in settings["models"]:
        yield compare_model(name, comparison), {}


def compare_model(name: str, comparison: ComparisonSettings) -> list[OperationRecord]:
    """The records of a model in each arithmetic, the sparse first.

    Args:
        name: MODEL-PRESET.

    Raises:
        InputError: no such model. SpdnnError: the arithmetics differ, or an output changed while it was timed.
    """
    check([name])
    stay_awake()
    model, _, preset = name.partition("-")
    ready, sparse = MODELS[model](preset, comparison.threads), []

    def judge(_: str, entrant: Entrant, out: np.ndarray) -> float:
        if not sparse:
            sparse.append(out)
        apart = difference(sparse[0], out) / ARITHMETIC_TOLERANCE
        if not apart <= 1:
            raise SpdnnError(
                f"model {name}: sparse and dense arithmetic differ by {apart:.3g} times what rounding explains"
            )
        return apart

    notes = {"threads_set": f"{comparison.threads} of the model"}
    makers = {
        f"{name}, {arithmetic}": partial(ModelRun, ready, arithmetic, comparison.threads, notes)
        for arithmetic in ready.arithmetics
    }
    entrants, _, load = contest(makers, judge, PACE, comparison.seconds)
    entries, worst = sparse[0].size, max(entrant.verdict for entrant in entrants.values())
    for entrant in entrants.values():
        entrant.prepare_seconds = 0.0  # all are one model
        entrant.verdict = Verification(entries, entries, None, RULE, worst, entrant.digest)
    return operation_records(ready.task(name), comparison, entrants.values(), load)


def _transformer(preset: str, threads: int, images: int = IMAGES) -> ReadyModel:
    from spdnn.ops.models.transformer import PRESETS as configurations
    from spdnn.ops.models.transformer import Transformer

    config = configurations[preset]
    model = Transformer(config, CONTEST_SEED)
    tokens = np.random.default_rng(CONTEST_SEED).integers(0, config.vocabulary, config.sequence)
    operands = 4 * config.sequence * (7 * config.width + config.vocabulary)
    room = COMPARISON_SHARE * (available_bytes() or 0)
    problem = _problem(
        config, "transformer", f"{preset} {config.sequence} tokens", config.sequence, model.mask.nnz,
        rows=config.sequence, batch_columns=config.depth, batch=config.heads,
    )  # fmt: skip
    return ReadyModel(
        model,
        tokens,
        lambda arithmetic: model.prefill(tokens, arithmetic, threads),
        problem,
        model.flops,
        operands,
        model.attention_bytes,
        ("sparse", "dense", *(["stored"] if model.attention_bytes("stored") <= room else [])),
    )


def _mobilenet(preset: str, threads: int, images: int = IMAGES) -> ReadyModel:
    from spdnn.ops.models.mobilenet import PRESETS as configurations
    from spdnn.ops.models.mobilenet import MobileNet

    config = configurations[preset]
    model = MobileNet(config, CONTEST_SEED)
    shape = images, 3, config.size, config.size
    x = np.random.default_rng(CONTEST_SEED).standard_normal(shape, dtype=np.float32)
    sparse = [layer for layer in model.pointwise if hasattr(layer, "nnz")]
    entries, nonzeros = sum(layer.shape[0] * layer.shape[1] for layer in sparse), sum(layer.nnz for layer in sparse)
    operands = 4 * images * max(config.channels) * (config.size // 2) ** 2
    return ReadyModel(
        model,
        x,
        lambda arithmetic: model.images(x, arithmetic, threads),
        _problem(config, "mobilenet", f"{preset} width {config.width:g}", entries, nonzeros, batch_columns=images),
        lambda arithmetic: images * model.flops(arithmetic),
        operands,
    )


MODELS = {"transformer": _transformer, "mobilenet": _mobilenet}


def _problem(config: Any, *sizes: Any, **others: Any) -> OperationProblem:
    """The part `problem` of a model's records; of a Transformer, the mask, of MobileNet all pruned weights in a row."""
    content = hashlib.sha256(repr(config).encode()).hexdigest()
    return model_problem(*sizes, content, set="models", origin="generated", seed=CONTEST_SEED, **others)
