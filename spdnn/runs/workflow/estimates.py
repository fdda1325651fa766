"""Upper bounds of the memory and time of a job of the workflow, for a cluster's scheduler.

They come from simple models: a job that asks for too little is killed, one that asks for too much waits a little
longer. Constants were measured (docs/results.md; two cores of an AMD EPYC, Zen 5) and rounded up; times are multiplied
by SLOWER. Of a user's own networks only the sizes of their files are known. A run plans with the memory of its job
(`allowed_bytes`), so an estimate that is too low makes more batches.
"""

import math
from collections.abc import Collection
from typing import NamedTuple

from spdnn.core import challenge
from spdnn.core.request import ORACLE_SPEED, RunRequest
from spdnn.engines.base import Engine
from spdnn.engines.memory import EDGE_BYTES
from spdnn.engines.registry import engine

SNAKEMAKE_BYTES = 400e6  # the two Snakemake processes of a job, besides ours
PROCESS_BYTES = 300e6  # Python, its libraries, the kernels' scratch, what is kept of each of 60,000 inputs
# For each original edge of a RadiX-Net whose neurons were merged (docs/explanation/reductions.md: 6 to 8 times fewer).
MERGED_EDGE_BYTES = 0.7
MERGED = 16  # neurons of a RadiX-Net that become one, and edges that do
LAYER_COPIES = 12  # of the largest layer while it is read, checked, merged and written
ORACLE_BYTES = 1e9  # of the oracle: 64 MiB of features a time, several float64 arrays of them, and the sparse layer

# For each edge and input, at most: on one thread, or on one device (those of GPUs are not measured).
EDGE_SECONDS = {"cpu": 5e-11, "taskgraph": 5e-11, "tiled": 1e-10, "csr": 3e-10, "cuda-csr": 1e-11, "cuda-ell": 1e-11}
EDGE_SECONDS |= dict.fromkeys(("cuda", "cuda-staged", "cuda-persistent", "taskgraph-cuda"), 3e-12)
ANY_EDGE_SECONDS = 1e-9  # other engines
START_SECONDS = 60  # until a job's script begins: two Snakemakes and their imports, from a network file system
READ_SECONDS = 6e-8  # for each edge: a formula made into layers, or a store read and checked
PREPARE_SECONDS = 2e-8  # for each edge: 28 s at 65536 x 1920
# Engines on devices: weights and features are in the device's memory, and the host lays out a few layers at a time.
HOST_BYTES = 2e9  # of this machine's memory, that CUDA, CuPy and the compiler take; not measured here
LAID_OUT_BYTES = 130  # for each edge of a layer: 16 are laid out at once, each in at most 8 bytes (6 measured)
LAYOUT_SECONDS = 1e-8  # for each edge: on one thread, at 65536 neurons
FULL_LAYERS, ALIVE = 10, 4000  # of 60,000 digits on a RadiX-Net: layers until most rows are dead, and rows left by then
SLOWER = 3  # than where the constants were measured

OWN_FILES, OWN_BYTES, OWN_SECONDS = 30, 2e9, 600  # memory for each byte of files, at least; seconds


class JobResources(NamedTuple):
    """What to ask a scheduler for: memory on one node in megabytes (1e6 bytes), time in minutes."""

    megabytes: int
    minutes: int


def prepare(case: RunRequest, cases: Collection[RunRequest], files: int) -> JobResources:
    """Of rule prepare, which reads all layers that the network's file has."""
    if not case.neurons:
        return _own(files)
    _, edges = _sizes(case)
    layers = challenge.MAX_LAYERS if case.source == "formula" else max(case.layers for case in cases if case.neurons)
    weights = _weights(case, edges * layers) if _removes(case, "neurons") else 0  # else layers pass through one by one
    memory = LAYER_COPIES * EDGE_BYTES * edges + weights
    return _need(case.memory or PROCESS_BYTES + memory, (READ_SECONDS + PREPARE_SECONDS) * edges * layers)


def infer(case: RunRequest, cases: Collection[RunRequest], files: int, together: int | None = None) -> JobResources:
    """Of rules infer and infer_ranks: all repeats of a case; memory for so many ranks on a node (default: all)."""
    if not case.neurons:
        return _own(files)
    # On a device: features and weights are there, and the host has the inputs, and lays out a few layers at a time.
    count, edges = _sizes(case)
    ranks, on_device, inputs = together or case.ranks, _engine(case).on_device, count * case.neurons / 8
    seconds = READ_SECONDS * edges * case.layers
    run_seconds = EDGE_SECONDS.get(case.engine, ANY_EDGE_SECONDS) * _work(case, edges, count) / case.ranks
    if on_device:
        memory = ranks * (PROCESS_BYTES + HOST_BYTES + LAID_OUT_BYTES * edges) + inputs
        seconds += LAYOUT_SECONDS * edges * case.layers / _merged(case)
    else:
        features = 2 * 4 * count * case.neurons / _merged(case) * ranks / case.ranks
        memory = ranks * (PROCESS_BYTES + LAYER_COPIES * EDGE_BYTES * edges) + _weights(case, edges * case.layers)
        memory += features + (1 + bool(case.ranks > 1)) * inputs
        run_seconds /= case.threads or 1
    return _need(case.memory or memory, seconds + (case.repeats + 1) * run_seconds)


def _work(case: RunRequest, edges: int, count: int) -> float:
    """Edges x inputs that a run computes, with so many edges in a layer."""
    rows = count * case.layers
    if _removes(case, "dead") and _is_radixnet(case):
        rows = min(rows, FULL_LAYERS * count + case.layers * ALIVE * math.ceil(count / challenge.INPUTS))
    return rows * edges / _merged(case)


def verify(case: RunRequest, cases: Collection[RunRequest], files: int) -> JobResources:
    """Of rule verify: the official truth, or the oracle within the edges that the configuration allows it."""
    if not case.neurons:
        return _own(files)
    count, edges = _sizes(case)
    memory = PROCESS_BYTES + ORACLE_BYTES + count * case.neurons / 8 + LAYER_COPIES * EDGE_BYTES * edges
    oracle = min(case.oracle_edges, edges * case.layers * count)
    return _need(memory, 2 * READ_SECONDS * edges * case.layers + oracle / ORACLE_SPEED)


def devices(case: RunRequest) -> int:
    """GPUs that each rank of a case needs."""
    return int(case.settings.get("devices", 1)) if _engine(case).on_device else 0


def allowed_bytes(megabytes: int) -> int:
    """Bytes that the run of a job with so many megabytes may hold: what Snakemake leaves of them."""
    return max(int(megabytes * 1e6 - SNAKEMAKE_BYTES), 1)


def time_limit(minutes: int) -> int:
    """Seconds that the run of a job with so many minutes has: what the start of its script leaves of them."""
    return max(60 * minutes - START_SECONDS, 1)


def _sizes(case: RunRequest) -> tuple[int, int]:
    """(inputs, edges of a layer) of a case with a built-in network."""
    return case.count or challenge.INPUTS, challenge.NONZEROS_PER_NEURON * case.neurons


def _own(files: int) -> JobResources:
    """For networks of one's own: from the bytes of the files that the job reads."""
    return _need(max(OWN_BYTES, OWN_FILES * files), OWN_SECONDS)


def _removes(case: RunRequest, reduction: str) -> bool:
    return case.reductions == "all" or reduction in case.reductions.split(",")


def _is_radixnet(case: RunRequest) -> bool:
    """Whether the network is a RadiX-Net, made or downloaded, in which most inputs die early."""
    return case.network is None and case.source != "unstructured"


def _merged(case: RunRequest) -> int:
    """Neurons that become one: 1 where identical ones are not merged, or there are none."""
    return MERGED if "neurons" in _engine(case).offers and _is_radixnet(case) and _removes(case, "neurons") else 1


def _engine(case: RunRequest) -> Engine:
    return engine(case.engine, usable=False)


def _weights(case: RunRequest, edges: int) -> float:
    return edges * (MERGED_EDGE_BYTES if _merged(case) > 1 else EDGE_BYTES)


def _need(memory: float, seconds: float) -> JobResources:
    """Rounded up, Snakemake's own memory and the start included."""
    minutes = math.ceil((START_SECONDS + SLOWER * seconds) / 60)
    return JobResources(100 * math.ceil((memory + SNAKEMAKE_BYTES) / 1e8), minutes + 1)
