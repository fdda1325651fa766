"""What rules ask Snakemake for, as far as it needs no run."""

from types import SimpleNamespace

import pytest
from msgspec.structs import replace
from refusals import refuses

from spdnn.core.request import RunRequest
from spdnn.runs.workflow import estimates
from spdnn.runs.workflow.rules import Rules, launch
from spdnn.runs.workflow.targets import Targets


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


def of_site(cases, default=None, of_ranks=None):
    settings = SimpleNamespace(overwrite_resources={"infer_ranks": of_ranks or {}}, default_resources=default)
    return Rules(SimpleNamespace(resource_settings=settings), Targets(cases), True, 2)


def test_nodes_follow_from_ranks_and_the_devices_of_a_node(case):
    case = replace(case, engine="cuda", ranks=6)
    both = replace(case, engine="taskgraph-cuda", ranks=3, settings={"devices": 3})
    asked = [
        of_site([case], *given) for given in ((), ({"devices_per_node": 4},), ({"devices_per_node": 4}, {"nodes": 3}))
    ]
    assert [rules.nodes(case) for rules in asked] == [None, 2, 3]
    assert [rules.together(case) for rules in asked] == [6, 4, 2]  # of two nodes, one may have four
    assert (asked[1].nodes(both), asked[1].together(both)) == (3, 1)
    assert asked[1].nodes(replace(case, engine="cpu")) is None


@pytest.mark.parametrize("value", ["four", "2.5", 0, "'4'"])
def test_a_number_of_a_site_that_is_none_is_refused(case, value):
    site = of_site([case], {"devices_per_node": value})
    refuses("profile: devices_per_node: .* must be a whole number from 1", site.check_site)


def test_the_check_of_devices_asks_for_no_more_than_a_case(case):
    case = replace(case, engine="taskgraph-cuda")
    wide, several = replace(case, settings={"devices": 4}), replace(case, ranks=4)
    assert of_site([wide, several]).checked("taskgraph-cuda") == (2, 1)
    assert of_site([wide]).checked("taskgraph-cuda") == (1, 4)
