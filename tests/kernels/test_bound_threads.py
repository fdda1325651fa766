"""Variables with which OpenMP binds the thread that loads it to one core: what may use more, does."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.needs("cores")
CORES = sorted(os.sched_getaffinity(0))
FIRST = CORES[:1]
VARIABLES = [
    "OMP_PROC_BIND=true", "OMP_PROC_BIND=close", "OMP_PROC_BIND=spread", "OMP_PLACES=cores", "OMP_PLACES=threads",
    f"GOMP_CPU_AFFINITY={' '.join(map(str, CORES))}",
]  # fmt: skip

START = """
import contextlib, os, subprocess, sys, threading, time
from pathlib import Path
import numpy as np
import spdnn
from spdnn import ops
from spdnn.core import provenance, resources

def cores(thread=0): return sorted(os.sched_getaffinity(thread))
def others():
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):  # a thread that has ended since
            if int(task.name) != os.getpid(): yield (task / "comm").read_text(), cores(int(task.name))
NETWORK, X = spdnn.from_matrices([np.eye(64)] * 4, last="none"), np.ones((512, 64), "f")
"""


def prints(code, variable="OMP_PROC_BIND=true", before=(), start=START):
    """What code prints in a process of its own, of which OpenBLAS starts no threads."""
    given = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_P", "GOMP_CPU"))}
    name, _, value = variable.partition("=")
    command = [*before, sys.executable, "-c", f"CORES = {CORES}\n{start}{code}"]
    environment = {**given, "OPENBLAS_NUM_THREADS": "1", name: value}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)


COUNTS = """
model = spdnn.compile(NETWORK)
print([model.threads, resources.usable_cores(), provenance.environment("")["cores"], cores()])
"""


@pytest.mark.parametrize("variable", VARIABLES)
def test_all_cores_count(variable):
    every = [len(CORES)] * 3
    *counts, bound = prints(COUNTS, variable)
    assert counts == every
    assert set(bound) < set(CORES) or variable in ("OMP_PLACES=cores", "OMP_PLACES=threads")


OPENMP = """
model = spdnn.compile(NETWORK)
ops.softmax(ops.SparseMatrix.from_dense(np.ones((500, 500), "f")), threads=len(CORES))
print([model.threads, resources.usable_cores(), [cores(), *(places for _, places in others())]])
"""


@pytest.mark.parametrize("first", ["import sklearn.cluster", "import ctypes; ctypes.CDLL('libgomp.so.1')"])
def test_all_cores_count_where_a_libgomp_was_loaded_before(first):
    """OpenMP's threads are on all of them, too: our copy makes its places of what the first left of the process."""
    *counts, threads = prints(OPENMP, start=first + START)
    assert counts == [len(CORES)] * 2
    assert {core for thread in threads for core in thread} == set(CORES)


@pytest.mark.parametrize("variable", ["OMP_PROC_BIND=true", "A=b"])
def test_one_core_that_a_process_may_use_is_one(variable):
    assert prints(COUNTS, variable, ["taskset", "-c", str(CORES[-1])]) == [1, 1, 1, CORES[-1:]]


def test_places_of_one_core_are_one():
    assert prints(COUNTS, f"GOMP_CPU_AFFINITY={CORES[-1]}") == [1, 1, 1, CORES[-1:]]


HELPERS = """
model, x = spdnn.compile(spdnn.from_matrices([np.eye(1024)] * 4, last="none"), threads=2), np.ones((512, 1024), "f")
def helper(): return next((places for name, places in others() if name == "spdnn helper\\n"), None)
until = time.monotonic() + 60
while time.monotonic() < until and not helper(): model(x)
print([cores(), helper()])
"""


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_helper_of_calls_is_not_on_the_core_of_its_caller_alone(variable):
    bound, helper = prints(HELPERS, variable)
    assert set(helper) <= set(CORES)
    assert set(helper) - set(bound) or set(bound) == set(CORES)


LANES = """
from spdnn.engines.taskgraph.cpu.run import CpuGraphRun
from spdnn.engines.taskgraph.settings import TaskgraphSettings
do, seen = CpuGraphRun.do, {}
def noted(run, task):
    rows = do(run, task)
    seen[threading.current_thread().name] = cores()
    return rows
CpuGraphRun.do = noted
spdnn.infer(NETWORK, X, "taskgraph", threads=2, settings=TaskgraphSettings(devices=2))
first = seen.pop("MainThread")
print([first, list(seen.values())])
"""


@pytest.mark.parametrize("variable", ["OMP_PROC_BIND=true", "OMP_PROC_BIND=spread"])
def test_lanes_of_the_task_graph_run_on_all_cores(variable):
    bound, others = prints(LANES, variable)
    assert bound == FIRST
    assert others
    assert all(lane == CORES for lane in others)


THREADS = """
from spdnn.core.threads import in_order
from spdnn.ops.models.arithmetic import Workers
spdnn.compile(NETWORK)
seen = [*in_order(lambda _: cores(), range(3), 2)]
def work(task, worker):
    ops.softmax(ops.SparseMatrix.from_dense(np.ones((4, 4), "f")), threads=1)  # OpenMP binds a thread that calls it
    seen.append(cores())
with Workers(2) as workers: workers.each(work, range(4))
resources.use_all_cores()  # what a workflow does before its jobs
job = [sys.executable, "-c", "import os; print(len(os.sched_getaffinity(0)))"]
print([seen, int(subprocess.run(job, capture_output=True).stdout)])
"""


def test_other_threads_and_jobs_run_on_all_cores():
    seen, job = prints(THREADS)
    assert seen == [CORES] * 7
    assert job == len(CORES)


FORKED = """
spdnn.compile(NETWORK)
if not (child := os.fork()):
    print([resources.usable_cores(), spdnn.compile(NETWORK).threads], flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""


def test_a_forked_child_counts_all_cores():
    assert prints(FORKED) == [len(CORES)] * 2
