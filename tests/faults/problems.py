"""Small verified problems, run with the fault that the environment names, if any: a line of JSON for each.

    python problems.py [NAME ...]

Two of the challenge's, and a network whose layers take the other paths: binary inputs that 300 edges an output read,
outputs that read the same inputs, identical neurons, odd numbers of edges, a bias for each neuron, inputs that die or
repeat, and last outputs whose sums are nearly zero. Each line has what a run gives (digest, active inputs after each
layer, edges) and the verdict, as `spdnn infer` makes it; or the error that ended the run.
"""

import json
import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp

TESTS = Path(__file__).resolve().parents[1]
sys.path += [str(TESTS), str(TESTS / "cuda")]

from spdnn.core.errors import SpdnnError  # noqa: E402
from spdnn.core.features import Inputs  # noqa: E402
from spdnn.core.network import IDENTITY, Activation, Layer, MemoryNetwork  # noqa: E402
from spdnn.core.request import RunRequest  # noqa: E402
from spdnn.kernels.caches import UNKNOWN  # noqa: E402
from spdnn.runs import measure, run  # noqa: E402
from spdnn.runs.cache import InputCache  # noqa: E402

INPUTS, ROWS = 600, 400


class Problem(NamedTuple):
    """What of a request differs from its defaults, and the network that takes the place of what it names, if any."""

    request: dict
    own: bool = True
    rows: int = ROWS


PROBLEMS = {
    "official, all": Problem({"neurons": 1024, "layers": 120}, own=False),
    "official, dead": Problem({"neurons": 1024, "layers": 120, "reductions": "dead"}, own=False),
    "own": Problem({}),
    "spgemm": Problem({"engine": "spgemm"}),
    "task graph": Problem({"engine": "taskgraph", "settings": {"devices": 2, "schedule": "pipeline"}}),
    "CUDA": Problem({"engine": "cuda"}, rows=40),
    "two ranks": Problem({"ranks": 2, "threads": 1}),
}


def network() -> MemoryNetwork:
    """See above."""
    rng, clip = np.random.default_rng(7), Activation("relu", 16.0)
    widths = [INPUTS, 512, 512, 384, 256, 100]
    layers = []
    # 300 edges an output of one weight, of which some inputs have all: more than a byte counts.
    reads = np.zeros((INPUTS, 512), np.float32)
    for column in range(512):
        reads[rng.permutation(INPUTS)[:300], column] = 1 / 64
    layers.append(reads)
    # Eight outputs read the same 31 inputs, with weights of their own.
    sets = np.zeros((512, 512), np.float32)
    for start in range(0, 512, 8):
        sets[rng.permutation(512)[:31], start : start + 8] = rng.normal(0.06, 0.2, (31, 8))
    layers.append(sets)
    # Odd numbers of edges, and every fourth neuron is the one before it; some of these have another bias.
    for rows, columns in zip(widths[2:4], widths[3:5], strict=True):
        odd = np.zeros((rows, columns), np.float32)
        for column in range(columns):
            picked = rng.permutation(rows)[: 2 * rng.integers(5, 12) + 1]
            odd[picked, column] = 0.25 if rows == 384 else rng.normal(0.1, 0.3, picked.size)
        odd[:, 3::4] = odd[:, 2::4]
        layers.append(odd)
    # The sums of its outputs are zero but for rounding.
    last = sp.random_array((256, 100), density=0.15, rng=rng, dtype=np.float32).toarray()
    mean = last.sum(axis=1, keepdims=True) / np.maximum(1, (last != 0).sum(axis=1, keepdims=True))
    layers.append(np.where(last, last - mean, 0))
    made = []
    for k, matrix in enumerate(layers):
        bias = -0.3 - 0.3 * rng.random(matrix.shape[1]).astype(np.float32)
        if k in (2, 3):
            bias[3::8] = bias[2::8]
        end = k + 1 == len(layers)
        made.append(Layer.from_matrix(matrix, 0.0 if end else bias, IDENTITY if end else clip))
    return MemoryNetwork(made)


def inputs(rows: int) -> Inputs:
    """Binary rows of which some are zero, some die, some are equal to others, and some are all ones."""
    rng = np.random.default_rng(8)
    bits = rng.random((rows, INPUTS)) < np.linspace(0, 0.3, rows)[:, None]
    for row in range(rows // 2, rows - 1, 5):
        bits[row] = bits[row + 1]
    bits[-8:] = True
    return Inputs.from_array(bits[rng.permutation(rows)])


def outcome(problem: Problem) -> dict | None:
    """What a line says of a problem; None on ranks but the first."""
    values = {"network": "own.safetensors", "inputs": "own.npy"} if problem.own else {}
    request = RunRequest(**{"threads": 2} | values | problem.request)
    sources = run.Sources(network(), inputs(problem.rows)) if problem.own else run.Sources()
    cache = None if problem.own else InputCache()
    try:
        found = run.run(request, sources, cache=cache)
        if found.result is None:
            return None
        verdict, _ = run.judge(found)
    except SpdnnError as error:
        return {"error": str(error)}
    if cache and os.environ.get("SPDNN_FAULT") == "0":
        cache.keep()
    result = found.result
    return {
        "digest": result.digest,
        "sums": [float(result.row_sum.sum()), float(result.row_projection.sum())],
        "survivors": result.survivors.tolist(),
        "edges": result.edges_computed,
        "passed": verdict.passed,
        "reasons": verdict.reasons,
    }


def main(names: list[str]) -> None:
    from shim import ShimDevice, stand_ins

    from spdnn.engines.cpu import batch, schedule
    from spdnn.engines.reductions import inputs as identical

    for module, name, value in stand_ins([ShimDevice()]):
        setattr(module, name, value)
    # Rows are searched for and move, however few they are; nothing here is about time.
    schedule.SEARCH, schedule.SEARCH_ROW, identical.SETTLED = 0, 0, 1.0
    batch.caches = lambda: UNKNOWN  # features are written past a last cache of 64 MB, however large this machine's is
    measure.ceilings = lambda *_, **__: None
    if "two ranks" in names:
        from spdnn.runs.ranks import exchange, gather

        exchange.EXCHANGE = exchange.MOVE = 0
        gather.TRIES, gather.LARGE = 1, 8
    for name in names:
        if (line := outcome(PROBLEMS[name])) is not None:
            print(json.dumps({"problem": name} | line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or [name for name in PROBLEMS if name != "two ranks"])
