"""What jobs on GPUs ask of Slurm, and what their ranks see of it: GPUs that are only files, through each profile.

No engine runs on one: a `sitecustomize` notes what a rank sees, before the engine ends for want of CuPy. On Slurm 24.11
requests of this form were tried by hand: four ranks of two cores, and two ranks of two GPUs, each got their own.
"""

import re

import pytest
from children import finished
from how_to import BIN, replaced
from through import Run

pytestmark = [pytest.mark.needs("slurm"), pytest.mark.full("slurm"), pytest.mark.xdist_group("slurm")]

PROBE = """
import json, os, sys
if sys.orig_argv[1:4] == ["-m", "spdnn", "run"]:
    request, rank = json.loads(sys.orig_argv[4]), os.environ.get("SLURM_PROCID", "0")
    name = f"{request['engine']} r{request.get('ranks', 1)} t{request['threads']}.{rank}"
    with open(os.path.join(os.environ["PROBED"], name), "w") as stream:
        stream.write(f"{os.environ['SLURMD_NODENAME']}: {os.environ.get('CUDA_VISIBLE_DEVICES')}")
"""
GPUS = ("reductions=none", "threads=1", "partition=static", "engine=cuda")
OTHERS = "cases=[{threads: 2, ranks: 2}, {engine: taskgraph-cuda, ranks: 1, devices: 2}]"
MADE_ANEW = ("runs", "records", "report.html", "figures", "prepared")
OPTION = r"--(?:ntasks|ntasks-per-gpu|gpus|gpus-per-task|cpus-per-task|gres)[= ][\w:]+"


def probed(run: Run, *arguments: str) -> tuple[dict[str, list[str]], list[str]]:
    """({case: what each of its ranks saw}, what sbatch was asked for) of cases on GPUs."""
    (run.folder / "probed").mkdir()
    run.probe = PROBE
    lines = run.folder / "lines"
    replaced(run.folder / "bin", {"sbatch": f'echo "$*" >>"{lines}"; exec /usr/bin/sbatch "$@"'})
    run.start("--retries", "0", *arguments, PROBED=f"{run.folder}/probed")
    assert run.end() != 0
    seen: dict[str, list[str]] = {}
    for path in sorted((run.folder / "probed").iterdir()):
        seen.setdefault(path.name.split(".")[0], []).append(path.read_text())
    asked = [re.findall(OPTION, line) for line in lines.read_text().splitlines()]
    return seen, sorted(" ".join(sorted(words)) for words in asked if any("gpu" in word for word in words))


@pytest.mark.parametrize("profile", ["slurm", "cluster-generic"])
def test_each_rank_has_a_device_of_its_own(run, smoke, profile):
    seen, asked = probed(run(profile, smoke, MADE_ANEW), "--config", *GPUS, "ranks=[2,4]", OTHERS)
    assert seen.pop("cuda r2 t1") in (["n1: 0", "n1: 1"], ["n2: 0", "n2: 1"])
    (several,) = seen.pop("taskgraph-cuda r1 t1")
    assert re.fullmatch("n[12]: [0-3],[0-3]", several)
    assert seen == {"cuda r2 t2": ["n1: 0", "n2: 0"], "cuda r4 t1": ["n1: 0", "n1: 1", "n2: 0", "n2: 1"]}
    assert asked == [
        f"--cpus-per-task={threads} --gpus-per-task={devices} --ntasks={ranks}"
        for threads, devices, ranks in ((1, 1, 2), (1, 1, 4), (1, 2, 1), (2, 1, 2))
    ]


def test_four_ranks_on_one_node_of_a_site_with_a_partition_and_options_of_its_own(run, smoke):
    run = run("slurm", smoke, MADE_ANEW)
    run.edit(
        {
            "# slurm_partition: main": "slurm_partition: big",
            "# slurm_extra: \"'--qos=normal": "slurm_extra: \"'--hint=nomultithread",
        }
    )
    seen, _ = probed(run, "--config", *GPUS, "ranks=4")
    assert seen == {"cuda r4 t1": ["big: 0", "big: 1", "big: 2", "big: 3"]}
    (line,) = (line for line in (run.folder / "lines").read_text().splitlines() if "infer_ranks" in line)
    assert "--gpus-per-task=1 --hint=nomultithread" in line


def test_the_configuration_of_several_gpus_submits_as_it_stands(slurm, root, tmp_path):
    """Every job that it makes, as Slurm judges them, on a node with eight GPUs."""
    arguments = ["--workflow-profile", root / "workflow/profiles/slurm", "--configfile", root / "config/gpus.yaml"]
    arguments += ["--snakefile", root / "Snakefile", "--directory", tmp_path, "--dry-run"]
    status, text, errors = finished([BIN / "snakemake", *arguments])
    assert status == 0, errors
    jobs = set()
    for words in re.findall(r"resources: (.*gpus_per_task=.*)", text + errors):
        job = dict(word.split("=", 1) for word in words.split(", ") if "=" in word)
        jobs.add((job.get("tasks", "1"), job["mem_mb"], job["runtime"], job["slurm_extra"]))
    assert {(tasks, extra) for tasks, _, _, extra in jobs} == {
        *((ranks, "--gpus-per-task=1") for ranks in "1248"), *(("1", f"--gpus-per-task={n}") for n in "248")
    }  # fmt: skip
    for tasks, memory, minutes, extra in jobs:
        asked = [f"--ntasks={tasks}", f"--mem={memory}", f"--time={minutes}", extra, "--partition=big", "--wrap=true"]
        assert finished(["sbatch", "--test-only", *asked])[0] == 0, asked
