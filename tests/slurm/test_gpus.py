"""What jobs on GPUs ask of Slurm, and what their ranks see of it: GPUs that are only files, through each profile.

No engine runs on one: a `sitecustomize` notes what a rank sees, before the engine ends for want of CuPy. On Slurm 24.11
requests of this form were tried by hand: four ranks of two cores, and two ranks of two GPUs, each got their own.
"""

import re

import pytest
from how_to import replaced
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


def test_each_rank_has_a_device_of_its_own(run, smoke):
    """On two nodes; then on one of a site with options of its own, through commands of its own."""
    cases = [*GPUS, "ranks=4", "cases=[{threads: 2, ranks: 2}, {engine: taskgraph-cuda, ranks: 1, devices: 2}]"]
    two = run("slurm", smoke[0], "prepared")
    seen, asked = probed(two, "--config", *cases)
    (several,) = seen.pop("taskgraph-cuda r1 t1")
    assert re.fullmatch("n[12]: [0-3],[0-3]", several)
    assert seen == {"cuda r2 t2": ["n1: 0", "n2: 0"], "cuda r4 t1": ["n1: 0", "n1: 1", "n2: 0", "n2: 1"]}
    assert asked == [
        f"--cpus-per-task={threads} --gpus-per-task={devices} --ntasks={ranks}"
        for threads, devices, ranks in ((1, 1, 4), (1, 2, 1), (2, 1, 2))
    ]

    one = run("cluster-generic", two, "bin", "probed", "lines")
    one.edit({"slurm_extra: \"''\"": "slurm_extra: \"'--partition=big --hint=nomultithread'\""})
    seen, again = probed(one, "--config", *cases)
    devices = {case: ", ".join(told).replace(", big: ", ",") for case, told in seen.items()}
    assert {case: len({*told.split(",")}) for case, told in devices.items()} == {
        "cuda r2 t2": 2, "cuda r4 t1": 4, "taskgraph-cuda r1 t1": 2,
    }  # fmt: skip
    assert all(re.fullmatch("big: [0-7](,[0-7])+", told) for told in devices.values())
    assert again == asked
    assert "--hint=nomultithread" in (one.folder / "lines").read_text()
