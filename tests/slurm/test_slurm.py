"""The workflow through a real Slurm of two nodes: to the report, on ranks, cancelled, killed, preempted; each profile.

The first run is that of the tutorial; the others begin with a copy of its folder.
"""

import re
import signal

import one_host
import pytest
from children import finished

from spdnn.core.validation import builtins
from spdnn.runs.records.files import read_record

pytestmark = [pytest.mark.needs("slurm"), pytest.mark.full("slurm"), pytest.mark.xdist_group("slurm")]

CASE = "radixnet-1024-120.digits-1024-first-{count}.cpu.all.t{threads}{ranks}"
RANKS = ".r2-rebalanced"


def record_of(run, count=3000, threads=2, ranks=""):
    case = CASE.format(count=count, threads=threads, ranks=ranks)
    return builtins(read_record(run.folder / f"results/records/{case}.json"))


def hosts(record):
    return {rank["host"] for rank in record["distribution"]["per_rank"]}


def whole(run):
    """Nothing half-written, nobody's job left."""
    return not run.found("results/**/*.part") and not one_host.output("squeue", "--noheader")


def test_the_tutorial_of_a_cluster_from_nothing_to_the_report(smoke):
    run, text = smoke
    assert "has been submitted with SLURM jobid" in text
    first, alone, shared = record_of(run), record_of(run, threads=1), record_of(run, threads=1, ranks=RANKS)
    assert len(run.found("results/records/*.json")) == 3
    for record in (first, alone, shared):
        assert record["verdict"]["passed"]
        assert 3e8 < record["memory_limit_bytes"] < 12000e6  # it plans with what its job has: less than a node
    assert (alone["ranks"], shared["ranks"]) == (1, 2)
    assert shared["result"]["categories_sha256"] == alone["result"]["categories_sha256"]
    assert "all 2 cases passed verification" in (run.folder / "results/report.html").read_text()
    assert run.near.stat().st_mtime > (run.folder / "results/times/networks").stat().st_mtime  # stores were staged
    assert not list(run.near.iterdir())
    assert whole(run)


def test_stopped_killed_and_preempted(run, smoke):
    """Through the profile slurm, in a partition that loses its jobs to another; ranks by the launcher of MPICH."""
    run = run("slurm", smoke[0])
    run.edit({
        "# slurm_partition: main": "slurm_partition: low",
        "    mpi: \"f'srun": "    # mpi: \"f'srun", "# mpi: \"'mpiexec": "mpi: \"'mpiexec",
    })  # fmt: skip
    partition = ["scontrol", "update", "PartitionName=low"]
    assert finished([*partition, "State=DOWN"])[0] == 0
    run.start("--config", "count=20000", "repeats=400")
    run.wait_for(lambda: "waits and will not start by itself: PartitionDown" in run.text, "the reason")
    assert finished([*partition, "State=UP"])[0] == 0
    run.wait_for(lambda: run.found("results/logs/infer/*-20000.*.log"), "the inference to begin")
    run.signal(signal.SIGINT)
    assert run.end() != 0
    run.wait_for_no_job()  # Snakemake cancelled it
    told = re.findall(r"job (\d+) waits and will not start by itself", run.text)
    assert len(set(told)) == len(told) > 0
    assert not run.found("results/runs/*/*")
    (log,) = run.found("results/logs/infer/*-20000.*.log")
    log.unlink()

    # Snakemake itself dies, and its job is cancelled later.
    run.start("--config", "count=20000", "repeats=400")
    run.wait_for(lambda: run.found("results/logs/infer/*-20000.*.log"), "the inference to begin")
    (job,) = run.running("infer")
    run.kill()
    assert run.end() < 0
    assert run.running("infer") == [job]  # it outlives Snakemake
    assert finished(["scancel", job])[0] == 0
    run.wait_for_no_job()
    assert not run.found("results/runs/*/*")

    # The next one finishes it without a flag. Its first inference is killed: it is sent again, and may hold more. The
    # second one is preempted, and is the same job when it runs again.
    run.start("--config", "count=20000", "repeats=100", "ranks=[1,2]")
    (job,) = run.wait_for(lambda: run.running("infer"), "the inference to run")
    assert finished(["scancel", job])[0] == 0
    run.wait_for(lambda: "Trying to restart job" in run.text, "the job to be sent again")
    (job,) = run.wait_for(lambda: run.running("infer"), "the inference to run again")
    node = one_host.output("squeue", "--noheader", "--format=%N", "--jobs", job).strip()
    assert finished(["sbatch", "--output=/dev/null", f"--nodelist={node}", "--cpus-per-task=2", "--wrap=true"])[0] == 0
    run.wait_for(lambda: f"job {job} was preempted, and is in the queue again" in run.text, "the preempted job")
    assert finished(["scontrol", "update", f"JobId={job}", "StartTime=now"])[0] == 0  # Slurm itself waits two minutes
    assert run.end() == 0, run.text
    assert "was killed while it ran the workflow here; its locks are removed" in run.text
    assert "rule prepare" not in run.text  # what was whole is kept
    record, shared = record_of(run, 20000), record_of(run, 20000, ranks=RANKS)
    assert record["verdict"]["passed"]
    assert record["memory_limit_bytes"] > 1.5 * record_of(smoke[0])["memory_limit_bytes"]
    assert len(hosts(shared)) == 2
    assert shared["result"]["categories_sha256"] == record["result"]["categories_sha256"]
    assert run.found("results/report.html")
    assert whole(run)


def test_submit_status_and_cancel_commands_of_ones_own(run, smoke, root):
    run = run("cluster-generic", smoke[0])

    def status(job):
        return finished([root / "workflow/profiles/cluster-generic/status", job])

    run.start("--config", "count=20000", "repeats=400", "ranks=2")
    run.wait_for(lambda: run.found("results/logs/infer_ranks/*-20000.*.log"), "the inference to begin")
    (job,) = run.running("infer_ranks")
    assert status(job) == (0, "running\n", "")
    run.signal(signal.SIGINT)
    assert run.end() != 0
    run.wait_for_no_job()
    assert not run.found("results/runs/*/*")
    assert status(job) == status("999999") == (0, "failed\n", "")

    # Once for the one that is cancelled; again, for Slurm's pmi2 now and then loses a message of ranks that start.
    run.start("--retries", "3", "--config", "count=1000", "ranks=2")
    (job,) = run.wait_for(lambda: run.running("infer_ranks"), "the ranks to run")
    assert finished(["scancel", job])[0] == 0  # told by the script status, and sent again
    assert run.end() == 0, run.text
    assert "Trying to restart job" in run.text
    last = re.findall(r"external jobid '(\d+)'", run.text)[-1]
    assert status(last) == (0, "success\n", "")
    record = record_of(run, 1000, ranks=RANKS)
    assert len(hosts(record)) == 2
    assert record["memory_limit_bytes"] > 1.5 * record_of(smoke[0], 3000, 1, RANKS)["memory_limit_bytes"]
    assert run.found("results/report.html")
    assert whole(run)


def test_tasks_that_srun_starts_without_mpi_write_nothing(slurm, tmp_path):
    """MpiDefault is none here. A terminal is of one task alone, and tasks with MPI are ranks."""
    challenge = "spdnn challenge --neurons 1024 --layers 1 --inputs digits --count 20 --threads 1 --record"
    for start, status in (("srun -n 2", 1), ("srun -n 1", 0), ("srun --mpi=pmi2 -n 2", 0), ("srun -n 2 --pty", 0)):
        record = tmp_path / f"{len(start)}.json"
        code, _, told = finished(["script", "-qefc", f"{start} {challenge} {record}", "/dev/null"], cwd=tmp_path)
        assert (code, record.exists()) == (status, not status), told
