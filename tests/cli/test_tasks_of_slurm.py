"""Commands in the tasks of an `srun` that started no MPI: each would take itself for the only one."""

import os
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from children import finished

INFER = "infer --network w.npz --inputs x.npy --last none --rows inputs --threads 1"
JOB = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "2", "SLURM_PROCID": "0", "SLURM_LOCALID": "0"}  # as in a batch script
STEP = {**JOB, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2"}
API = "import spdnn; spdnn.infer(spdnn.open_network('w.npz', last='none', rows='inputs'), [[1.0] * 4])"


@pytest.fixture
def command(tmp_path):
    """A function that runs Python with these words in the environment of a job, in a folder with a network."""
    sp.save_npz(tmp_path / "w.npz", sp.eye_array(4).tocsr())
    np.save(tmp_path / "x.npy", np.ones((2, 4), np.float32))
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "PMI", "OMPI_"))}

    def run(variables, *words):
        return finished([sys.executable, *words], cwd=tmp_path, env=own | variables)

    return run


@pytest.mark.parametrize("rank", ["0", "1"])
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (f"{INFER} --values out.npy --record out.json", "`srun --mpi=pmi2 -n 2 spdnn ...` or `mpiexec -n 2 spdnn"),
        ("challenge --neurons 1024 --layers 1 --inputs digits", "`srun --mpi=pmi2 -n 2 spdnn ...` or `mpiexec -n 2"),
        ("run {}", "`srun --mpi=pmi2 -n 2 spdnn ...` or `mpiexec -n 2 spdnn ...`"),
        ("network import w.npz -o out.safetensors --last none --rows inputs", "this command takes one, `srun -n 1`"),
    ],
)
def test_tasks_that_do_not_know_of_each_other_write_nothing(command, tmp_path, words, sentence, rank):
    status, out, told = command(STEP | {"SLURM_PROCID": rank}, "-m", "spdnn", *words.split())
    assert (status, out) == (1, "")
    assert told.startswith("spdnn: srun started 2 tasks without MPI, ") if rank == "0" else not told
    assert sentence in told or rank == "1"
    assert len(told.splitlines()) == (rank == "0")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    "variables",
    [
        JOB,
        {**JOB, "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "SLURM_NTASKS": "8"},
        {**STEP, "SLURM_STEP_NUM_TASKS": "1"},
        {**STEP, "SLURM_PTY_PORT": "34889"},
        {**STEP, "PMI_SIZE": "1", "PMI_RANK": "0"},
        {name: value for name, value in STEP.items() if name != "SLURM_PROCID"},
    ],
    ids=["a batch script", "a shell of salloc", "a step of one task", "a shell on a terminal", "mpiexec", "no task"],
)
def test_one_process_of_a_job_runs(command, tmp_path, variables):
    status, _, told = command(variables, "-m", "spdnn", *INFER.split(), "--categories", "out.txt")
    assert status == 0, told
    assert (tmp_path / "out.txt").read_text() == "1\n2\n"


@pytest.mark.parametrize(
    "words", [("-m", "spdnn", "network", "info", "w.npz", "--last", "none", "--rows", "inputs"), ("-c", API)]
)
def test_what_writes_nothing_and_a_program_of_ones_own_run_in_every_task(command, words):
    status, _, told = command(STEP, *words)
    assert status == 0, told
