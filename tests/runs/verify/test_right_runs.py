"""Right runs of random networks are refused in none: their verification passes, and their records are sound."""

import numpy as np
import pytest
import scipy.sparse as sp

from spdnn.core.errors import InputError, Unsuitable
from spdnn.core.features import Inputs
from spdnn.core.network import from_matrices
from spdnn.core.request import RunRequest
from spdnn.engines.registry import engine
from spdnn.runs.measure import LoadedRun
from spdnn.runs.run import RunOutcome, Sources, judge, make_record, run

CHOICES = [
    {"engine": name, "settings": settings}
    for name, settings in (
        ("cpu", {}), ("cpu", {}), ("tiled", {}), ("csr", {}), ("spgemm", {}), ("scipy", {}), ("taskgraph", {}),
        ("taskgraph", {"schedule": "stream"}), ("taskgraph", {"schedule": "pipeline", "devices": 2}),
        ("taskgraph", {"schedule": "graph", "devices": 2}),
    )
]  # fmt: skip


def random_problem(random):
    """A network and inputs; in some, sums are zero in exact arithmetic, values cancel or are as small as they can."""
    widths = [int(width) for width in random.choice([1, 3, 5, 16, 64, 150], size=random.integers(2, 12))]
    kind = random.choice(["drawn", "positive", "ties", "centred", "tiny", "large"])
    density, matrices, biases = random.choice([0.05, 0.3, 1.0]), [], []
    for k, (inputs, outputs) in enumerate(zip(widths, widths[1:], strict=False)):
        weights = random.normal(size=(inputs, outputs)) * (random.random((inputs, outputs)) < density)
        weights /= max(1.0, inputs * density) ** 0.5
        if kind == "positive":
            weights = abs(weights)
        elif kind == "ties":  # as the official networks: all weights equal, and a bias that sums of them may meet
            weights = 0.25 * (weights != 0)
        elif kind == "centred" and k == len(widths) - 2:
            weights -= weights.mean(axis=1, keepdims=True)
        elif kind in ("tiny", "large") and k == 0:
            weights *= 1e-41 if kind == "tiny" else 1e20
        matrices.append(sp.csc_array(weights.astype(np.float32)))
        bias = random.choice([0.0, -0.05, 0.1, -0.3]) if kind not in ("tiny", "large") else 0.0
        biases.append(bias if random.random() < 0.7 else bias * random.random(outputs))
    last, clip = random.choice(["relu", "none"]), random.choice([None, 1.0, 32.0])
    network = from_matrices(matrices, biases, clip, last=str(last))
    count = int(random.choice([1, 7, 70, 300]))
    x = (random.random((count, widths[0])) < random.random((count, 1))).astype(np.float32)
    if random.random() < 0.5 and kind != "ties":
        x *= random.normal(size=x.shape).astype(np.float32)
    x[:: int(random.integers(2, 9))] = x[0]  # identical inputs
    return network, Inputs.from_array(sp.csr_array(x) if random.random() < 0.3 else x)


def recorded(random):
    """The record of a random run; None where the engine cannot run the network."""
    network, inputs = random_problem(random)
    choice = CHOICES[random.integers(len(CHOICES))]
    offers = engine(choice["engine"], usable=False).offers
    reductions = random.choice(["all", "none", *offers])
    # Some are compared on a sample, whose active inputs the engine counts once more.
    budget = float(random.choice([1e9, 1e9, 1.0]))
    request = RunRequest(
        network="n", inputs="x", threads=2, reductions=str(reductions), oracle_edges=budget, truth="oracle", **choice
    )
    try:
        outcome = run(request, Sources(network, inputs))
    except Unsuitable:
        return None
    except InputError:
        if request.settings.get("schedule") == "pipeline":  # of more devices than layers
            return None
        raise
    assert isinstance(outcome, RunOutcome)
    assert isinstance(outcome.loaded, LoadedRun)
    verdict, measurement = judge(outcome)
    assert verdict.passed, (request.engine, choice, reductions, verdict.reasons)
    return make_record(request, measurement, verdict)


PARTS = [0, *(pytest.param(part, marks=pytest.mark.full("networks")) for part in range(1, 26))]


@pytest.mark.parametrize("part", PARTS)
def test_random_networks(monkeypatch, part):
    """Eighty in each part; sixty in the first, by default."""
    monkeypatch.setattr("spdnn.runs.measure.MACHINE_SECONDS", 0.001)
    monkeypatch.setattr("spdnn.engines.cpu.ceilings.COPY_THREAD_BYTES", 1 << 18)
    random = np.random.default_rng(part)
    records = [recorded(random) for _ in range(80 if part else 60)]
    made = [record for record in records if record is not None]
    assert len(made) > 0.9 * len(records)
    assert all(record.result.counted and record.verdict.survivors for record in made)
    assert any(record.verdict.truth.seed is not None for record in made)
