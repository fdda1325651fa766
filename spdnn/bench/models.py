"""Whole models with sparse arithmetic next to the same models with dense: the records of one model, timed alternately.

The two share all code but the products, so each is the other's check: where their outputs agree and the operations were
verified against float64 (tests/ops/models compares whole models with it), a record may exist. The key `ops` of a
configuration asks for products and models together.
"""

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from spdnn.bench.common import ComparisonSettings, alternate, check_same
from spdnn.bench.product_checks import digest
from spdnn.bench.products import Ceilings, common_fields, compare_products, libraries_here, stay_awake
from spdnn.core.errors import SpdnnError, unknown
from spdnn.core.resources import available_bytes
from spdnn.ops.models.arithmetic import TOLERANCE, difference
from spdnn.ops.problems import problems
from spdnn.runs.records.operation_record import OperationRecord, Program, Verification  # fmt: skip

ARITHMETICS = {"sparse": "ours", "dense": "dense", "stored": "dense"}  # and the kind of program of each in a record
MEMORY_SHARE = 0.7  # of what is free: `stored` keeps the scores of all heads
PRESETS = ("small", "medium", "paper")
IMAGES = 4
LEAST_ROUNDS, MOST_ROUNDS = 2, 50
SEED = 0


class ReadyModel(NamedTuple):
    """A model that is ready to run.

    Attributes:
        model, inputs: the model, and its tokens or images.
        run: an arithmetic's output on the processor, float32.
        about: the part `problem` of its records.
        flops: of an arithmetic.
        memory: of an arithmetic, the bytes that a record has.
        arithmetics: that are compared, the sparse first.
    """

    model: Any
    inputs: np.ndarray
    run: Callable[[str], np.ndarray]
    about: dict
    flops: Callable[[str], int]
    memory: Callable[[str], dict[str, int | None]]
    arithmetics: tuple[str, ...] = ("sparse", "dense")


def check(names: Sequence[str]) -> None:
    """Raise InputError for a name that is no MODEL-PRESET."""
    for name in names:
        model, _, preset = name.partition("-")
        if model not in MODELS or preset not in PRESETS:
            raise unknown("model", name, [f"{model}-{preset}" for model in MODELS for preset in PRESETS])


def compare_configured(settings: dict, command: str, archive: str | None = None) -> list[OperationRecord]:
    """The records that the key `ops` of a configuration asks for: of products, then of whole models.

    Args:
        settings: sets, networks, phases, operations, libraries, seconds, threads, seed, models, as the configuration's
            schema has them.
        archive: of DLMC, or None.

    Raises:
        InputError, Unavailable: see libraries_here, problems, compare_products.
    """
    check(settings["models"])
    libraries, _ = libraries_here(settings["libraries"])
    cases = problems(settings["sets"], settings["phases"], settings["networks"], settings["seed"])
    comparison = ComparisonSettings(settings["threads"], libraries, settings["seconds"], command)
    groups = [*compare_products(cases, settings["operations"], comparison, archive)]
    groups += [compare_model(name, comparison) for name in settings["models"]]
    return [record for group in groups for record in group]


def compare_model(name: str, comparison: ComparisonSettings) -> list[OperationRecord]:
    """The records of a model in each arithmetic, the sparse first, of LEAST_ROUNDS rounds or more.

    Args:
        name: MODEL-PRESET.

    Raises:
        InputError: no such model. SpdnnError: the arithmetics differ, or an output changed while it was timed.
    """
    check([name])
    stay_awake()
    threads = comparison.threads
    model, _, preset = name.partition("-")
    ready = MODELS[model](preset, threads)
    outputs = {arithmetic: ready.run(arithmetic) for arithmetic in ready.arithmetics}
    verified = {arithmetic: digest(out) for arithmetic, out in outputs.items()}
    sparse = outputs.pop("sparse")
    worst, entries = max(_difference(name, sparse, out) for out in outputs.values()), int(sparse.size)
    del outputs, sparse
    samples, digests, load = alternate(
        {arithmetic: (lambda arithmetic=arithmetic: ready.run(arithmetic), digest) for arithmetic in ready.arithmetics},
        (LEAST_ROUNDS, MOST_ROUNDS),
        comparison.seconds,
        wait_for_idle=True,
    )
    shared = common_fields("model", ready.about, comparison, Ceilings(threads).now(), load)
    rule = f"largest difference between arithmetics <= {TOLERANCE:g} of the largest output"
    records = []
    for kind in ready.arithmetics:
        check_same(f"{name}, {kind}", digests[kind], verified[kind])
        verification = Verification(entries, entries, None, rule, worst, verified[kind])
        notes = {"threads_set": f"{threads} of the model"}
        records.append(model_record(name, ready, kind, shared, samples[kind], verification, notes))
    return records


def model_record(
    name: str,
    ready: ReadyModel,
    arithmetic: str,
    shared: dict,
    seconds: list[float],
    verification: Verification,
    notes: dict,
) -> OperationRecord:
    """The record of a model in one arithmetic; `shared`: as products.common_fields gives it."""
    useful, threads = ready.flops("sparse"), shared["threads"]
    version = shared["environment"].versions.get("spdnn", "of a checkout")
    where = "cuda" if shared["environment"].gpu else f"t{threads}"
    return OperationRecord(
        **shared,
        case=f"model.{name}.{arithmetic}.{where}",
        program=Program(arithmetic, ARITHMETICS[arithmetic], version, threads, notes | {"arithmetic": arithmetic}),
        prepare_seconds=[0.0],
        seconds=seconds,
        useful_operations=useful,
        multiply_adds=max(ready.flops(arithmetic), useful) // 2,
        **ready.memory(arithmetic),
        verification=verification,
        thread_imbalance=None,
        nonzero_imbalance=None,
    )


def _difference(name: str, first: np.ndarray, second: np.ndarray) -> float:
    """Of two outputs, in parts of what is tolerated. Raises SpdnnError beyond it."""
    apart = difference(first, second) / TOLERANCE
    if not apart <= 1:
        raise SpdnnError(
            f"model {name}: sparse and dense arithmetic differ by {apart:.3g} times what rounding explains"
        )
    return apart


def _transformer(preset: str, threads: int, images: int = IMAGES) -> ReadyModel:
    from spdnn.ops.models.transformer import PRESETS as configurations
    from spdnn.ops.models.transformer import Transformer

    config = configurations[preset]
    model = Transformer(config, SEED)
    tokens = np.random.default_rng(SEED).integers(0, config.vocabulary, config.sequence)
    operands = 4 * config.sequence * (7 * config.width + config.vocabulary)
    room = MEMORY_SHARE * (available_bytes() or 0)
    nonzeros, sizes = model.mask.nnz, (config.sequence, config.sequence, config.depth, config.heads)
    return ReadyModel(
        model,
        tokens,
        lambda arithmetic: model.prefill(tokens, arithmetic, threads),
        _about("transformer", f"{preset} {config.sequence} tokens", sizes, nonzeros, repr(config)),
        model.flops,
        lambda arithmetic: _bytes(model.weight_bytes(arithmetic), operands, int(model.attention_bytes(arithmetic))),
        ("sparse", "dense", *(["stored"] if model.attention_bytes("stored") <= room else [])),
    )


def _mobilenet(preset: str, threads: int, images: int = IMAGES) -> ReadyModel:
    from spdnn.ops.models.mobilenet import PRESETS as configurations
    from spdnn.ops.models.mobilenet import MobileNet

    config = configurations[preset]
    model = MobileNet(config, SEED)
    shape = images, 3, config.size, config.size
    x = np.random.default_rng(SEED).standard_normal(shape, dtype=np.float32)
    sparse = [layer for layer in model.pointwise if hasattr(layer, "nnz")]
    entries, nonzeros = sum(layer.shape[0] * layer.shape[1] for layer in sparse), sum(layer.nnz for layer in sparse)
    operands = 4 * images * max(config.channels) * (config.size // 2) ** 2
    return ReadyModel(
        model,
        x,
        lambda arithmetic: model.images(x, arithmetic, threads),
        _about("mobilenet", f"{preset} width {config.width:g}", (1, entries, images, 1), nonzeros, repr(config)),
        lambda arithmetic: images * model.flops(arithmetic),
        lambda arithmetic: _bytes(model.weight_bytes(arithmetic), operands, None),
    )


def _bytes(weights: int, operands: int, attention: int | None) -> dict[str, int | None]:
    return {"matrix_bytes": int(weights), "operand_bytes": operands, "attention_bytes": attention}


MODELS = {"transformer": _transformer, "mobilenet": _mobilenet}


def _about(network: str, layer: str, sizes: tuple[int, ...], nonzeros: int, text: str) -> dict[str, Any]:
    """The part `problem` of a model's records; of a Transformer, the mask, of MobileNet all pruned weights in a row."""
    rows, columns, width, batch = sizes
    return {
        "set": "models", "network": network, "layer": layer, "rows": rows, "columns": columns, "batch_columns": width,
        "batch": batch, "nonzeros": nonzeros, "phase": "inference", "repeats": 1, "origin": "generated",
        "topology_sha256": hashlib.sha256(text.encode()).hexdigest(), "seed": SEED,
        "index_bits": 16 if columns <= 1 << 16 else 32,
    }  # fmt: skip
