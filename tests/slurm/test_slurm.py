"""The workflow through a real Slurm of two nodes: to the report, on ranks, cancelled, killed, failing; each profile.

The first run makes networks, inputs and prepared networks; the others begin with a copy of them.
"""

import signal

import numpy as np
import one_host
import pytest
from children import finished
from how_to import BIN, checkout, follow, script
from through import OFTEN, SECONDS

from spdnn.common.validation import builtins
from spdnn.problem.result import RowStatistics
from spdnn.records.files import read_record

pytestmark = [pytest.mark.needs("slurm"), pytest.mark.full("slurm"), pytest.mark.xdist_group("slurm")]

CASE = "radixnet-1024-120.digits-1024-first-{count}.cpu.all.t2{ranks}"
RANKS = ".r2-rebalanced"


def record_of(run, count=3000, ranks=""):
    return builtins(read_record(run.folder / "results/records" / f"{CASE.format(count=count, ranks=ranks)}.json"))


def whole(run):
    """Nothing half-written, nobody's job left."""
    return not run.found("results/**/*.part") and not one_host.output("squeue", "--noheader")


def test_from_nothing_to_the_report(smoke):
    assert "has been submitted with SLURM jobid" in smoke.text
    page = (smoke.folder / "results/report.html").read_text()
    for ranks in ("", RANKS):
        record = record_of(smoke, ranks=ranks)
        assert record["verdict"]["passed"]
        assert CASE.format(count=3000, ranks=ranks) in page
    assert whole(smoke)


def test_ranks_ran_on_two_nodes_and_agree_with_one(smoke):
    record, alone = record_of(smoke, ranks=RANKS), record_of(smoke)
    assert record["ranks"] == 2
    assert len({rank["host"] for rank in record["distribution"]["per_rank"]}) == 2
    assert record["result"]["categories_sha256"] == alone["result"]["categories_sha256"]


def test_stores_were_staged_and_the_copies_are_gone(smoke):
    assert smoke.near.stat().st_mtime > (smoke.folder / "results/networks").stat().st_mtime
    assert not list(smoke.near.iterdir())


def test_a_job_plans_with_the_memory_that_it_was_given(smoke):
    for ranks in ("", RANKS):
        limit = record_of(smoke, ranks=ranks)["memory_limit_bytes"]
        assert 3e8 < limit < 12000e6  # less than a node has


@pytest.mark.parametrize("profile", ["slurm", "cluster-generic"])
def test_interrupted_and_started_again(run, smoke, profile):
    run = run(profile, source=smoke, but=("runs", "records", "report.html", "figures"))
    run.start("--config", "count=20000", "repeats=400")
    run.wait_for(lambda: run.found("results/logs/infer/*-20000.*.log"), "the inference to begin")
    run.signal(signal.SIGINT)
    assert run.end() != 0
    run.wait_for_no_job()  # Snakemake cancelled it
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

    # The next one finishes it without a flag. Its first inference is killed: it is sent again, and may hold more.
    run.start("--config", "count=20000", "repeats=1")
    (job,) = run.wait_for(lambda: run.running("infer"), "the inference to run")
    assert finished(["scancel", job])[0] == 0
    assert run.end() == 0, run.text
    assert "was killed while it ran the workflow here; its locks are removed" in run.text
    assert "Trying to restart job" in run.text
    assert "rule prepare" not in run.text  # what was whole is kept
    record = record_of(run, 20000)
    assert record["verdict"]["passed"]
    assert record["memory_limit_bytes"] > 1.5 * record_of(smoke)["memory_limit_bytes"]
    assert run.found("results/report.html")
    assert whole(run)


def test_a_failed_verdict_ends_red_without_record(run, smoke):
    run = run(source=smoke, but=("records", "report.html", "figures", "verdict.json"))
    (result,) = run.found(f"results/runs/{CASE.format(count=3000, ranks='')}/result.npz")
    with np.load(result) as stored:
        parts = dict(stored)
    kept = parts["valued"] != parts["alive"][-1]
    parts["valued"], parts["values"] = parts["valued"][kept], parts["values"][kept]
    for name in ("alive", *RowStatistics._fields):
        parts[name] = parts[name][:-1]
    np.savez(result, **parts)
    run.start("--rerun-triggers", "mtime", "--retries", "0")
    assert run.end() != 0
    logs = "".join(path.read_text() for path in run.found("results/logs/benchmark/*.log"))
    assert "verification failed (1 categories of the ground truth are missing" in logs
    assert not run.found("results/records/*.json")
    assert "1 categories of the ground truth are missing" in (run.folder / "results/report.html").read_text()
    assert not run.found("results/figures")


def test_the_launcher_of_mpich_finds_the_nodes_of_the_job(run, smoke):
    run = run(source=smoke, but=("runs", "records", "report.html", "figures"))
    run.edit({"    mpi: \"f'srun": "    # mpi: \"f'srun", "# mpi: \"'mpiexec": "mpi: \"'mpiexec"})
    run.start("--retries", "0", "--config", "count=1000", "ranks=2", "repeats=1")
    assert run.end() == 0, run.text
    assert len({rank["host"] for rank in record_of(run, 1000, RANKS)["distribution"]["per_rank"]}) == 2


def test_a_job_that_waits_for_ever_is_reported_and_a_preempted_one_runs_again(run, smoke):
    run = run(source=smoke, but=("runs", "records", "report.html", "figures"))
    run.edit({"# slurm_partition: main": "slurm_partition: low"})
    partition = ["scontrol", "update", "PartitionName=low"]
    assert finished([*partition, "State=DOWN"])[0] == 0
    run.start("--retries", "0", "--config", "count=20000", "repeats=100")
    run.wait_for(lambda: "waits and will not start by itself: PartitionDown" in run.text, "the reason")
    assert finished([*partition, "State=UP"])[0] == 0
    (job,) = run.wait_for(lambda: run.running("infer"), "the inference to run")
    node = one_host.output("squeue", "--noheader", "--format=%N", "--jobs", job).strip()
    assert finished(["sbatch", "--output=/dev/null", f"--nodelist={node}", "--cpus-per-task=2", "--wrap=true"])[0] == 0
    run.wait_for(lambda: f"job {job} was preempted, and is in the queue again" in run.text, "the preempted job")
    assert finished(["scontrol", "update", f"JobId={job}", "StartTime=now"])[0] == 0  # Slurm itself waits two minutes
    assert run.end() == 0, run.text
    assert run.text.count("will not start by itself") == 1
    assert record_of(run, 20000)["verdict"]["passed"]


def test_submit_commands_of_ones_own(run, smoke):
    run = run("cluster-generic", source=smoke, but=("runs", "records", "report.html", "figures"))
    # Once for the one that is cancelled; again, for Slurm's pmi2 now and then loses a message of ranks that start.
    run.start("--retries", "3", "--config", "count=1000", "ranks=2")
    (job,) = run.wait_for(lambda: run.running("infer_ranks"), "the ranks to run")
    assert finished(["scancel", job])[0] == 0  # told by the script status, and sent again
    assert run.end() == 0, run.text
    assert "Trying to restart job" in run.text
    assert len({rank["host"] for rank in record_of(run, 1000, RANKS)["distribution"]["per_rank"]}) == 2
    assert run.found("results/report.html")


@pytest.mark.parametrize(
    ("command", "status"), [("true", "success"), ("false", "failed"), ("exec sleep 600", "running"), (None, "failed")]
)
def test_the_status_script(slurm, root, tmp_path, command, status):
    job = "999999"
    if command:
        waits = [] if status == "running" else ["--wait"]
        job = finished(["sbatch", *waits, "--parsable", "--output", tmp_path / "log", "--wrap", command])[1].strip()
    script = root / "workflow/profiles/cluster-generic/status"
    try:
        assert finished([script, job]) == (0, f"{status}\n", "")
    finally:
        one_host.cancel_all()


def test_the_tutorial_of_a_cluster(slurm, tmp_path, monkeypatch):
    """Every block of it, in a checkout without results; Slurm is asked more often than a cluster may be."""
    folder = checkout(tmp_path / "checkout")
    (tmp_path / "sitecustomize.py").write_text(OFTEN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", str(BIN), prepend=":")
    printed = follow(script("tutorials/cluster", activated=True), folder, SECONDS)
    assert "has been submitted with SLURM jobid" in printed
    assert len(list(folder.glob("results/records/*.json"))) == 3  # two of one rank, with two threads and with one
    assert "all 2 cases passed verification" in (folder / "results/report.html").read_text()
