"""What rules ask Snakemake for, as far as it needs no run."""

from types import SimpleNamespace

import pytest

from spdnn.pipeline import estimates
from spdnn.pipeline.rules import Rules, launch
from spdnn.pipeline.targets import Targets
from spdnn.problem.request import RunRequest


@pytest.fixture
def case():
    return RunRequest(neurons=1024, layers=120, threads=2)


def test_a_job_that_is_sent_again_gets_more_memory_and_time(case):
    needed = Rules(None, Targets([case]), True, 2).needed(estimates.infer)
    wildcards = SimpleNamespace(case=case.name)
    for name in ("mem_mb", "runtime"):
        first, second, third = (needed[name](wildcards, [], attempt) for attempt in (1, 2, 3))
        assert first > 0
        assert (second, third) == (2 * first, 3 * first), name


def test_nothing_runs_beside_a_clock(case):
    assert [Rules(None, Targets([case]), False, 4).every_core(threads) for threads in (None, 2, 8)] == [4, 4, 8]
    assert [Rules(None, Targets([case]), True, 4).every_core(threads) for threads in (None, 2)] == [4, 2]


def test_srun_is_asked_for_the_devices_of_each_rank():
    def launched(mpi, **more):
        return launch(SimpleNamespace(mpi=mpi, tasks=2, get=({"mpi": mpi} | more).get))

    assert launched("srun --mpi=pmix", slurm_extra="--gpus-per-task=2 --exclusive") == (
        "srun --mpi=pmix --gpus-per-task=2 -n 2 "
    )
    assert launched("srun", slurm_extra="--gpus-per-task=a100:1") == "srun --gpus-per-task=1 -n 2 "
    assert launched("srun --mpi=pmix") == "srun --mpi=pmix -n 2 "
    assert launched("mpiexec", slurm_extra="--gpus-per-task=2") == "mpiexec -n 2 "
    assert launched(None) == ""
