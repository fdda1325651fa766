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
words = sys.orig_argv[2:]  # after `python -P`
if words[:3] == ["-m", "spdnn", "challenge"]:
    with open(os.path.join(os.environ["PROBED"], f"check.{os.environ['SLURM_PROCID']}"), "w") as stream:
        stream.write(f"{os.environ['SLURMD_NODENAME']}: {os.environ.get('CUDA_VISIBLE_DEVICES')}")
    os._exit(0)
if words[:3] == ["-m", "spdnn", "run"]:
    request, rank = json.loads(words[3]), os.environ.get("SLURM_PROCID", "0")
    name = f"{request['engine']} r{request.get('ranks', 1)} t{request['threads']}.{rank}"
    with open(os.path.join(os.environ["PROBED"], name), "w") as stream:
        stream.write(f"{os.environ['SLURMD_NODENAME']}: {os.environ.get('CUDA_VISIBLE_DEVICES')}")
"""
GPUS = ("reductions=none", "threads=1", "partition=static", "engine=cuda")
OPTION = r"(?:--(?:ntasks|nodes|ntasks-per-gpu|gpus|gpus-per-task|cpus-per-task|gres|qos)[= ]|-C )[\w:']+"


def probed(run: Run, *arguments: str) -> tuple[dict[str, list[str]], list[str]]:
    """({case: what each of its ranks saw}, what sbatch was asked for) of cases on GPUs."""
    (run.folder / "probed").mkdir()
    run.probe = PROBE
    lines = run.folder / "lines"
    programs = {name: f'echo "{name} $*" >>"{lines}"; exec /usr/bin/{name} "$@"' for name in ("sbatch", "srun")}
    replaced(run.folder / "bin", programs)
    run.start("--retries", "0", *arguments, PROBED=f"{run.folder}/probed")
    assert run.end() != 0
    seen: dict[str, list[str]] = {}
    for path in sorted((run.folder / "probed").iterdir()):
        seen.setdefault(path.name.split(".")[0], []).append(path.read_text())
    assert seen, run.text
    asked = [
        re.findall(OPTION, line)
        for line in lines.read_text().splitlines()
        if line[:6] == "sbatch" and "check_devices" not in line
    ]
    return seen, sorted(" ".join(sorted(words)) for words in asked if any("gpu" in word for word in words))


def test_each_rank_has_a_device_of_its_own(run, smoke):
    """On two nodes; then on one of a site with options of its own, through commands of its own."""
    cases = [*GPUS, "ranks=4", "cases=[{threads: 2, ranks: 2}, {engine: taskgraph-cuda, ranks: 1, devices: 2}]"]
    two = run("slurm", smoke[0], "prepared")
    seen, asked = probed(two, "--config", *cases)
    (several,), check = seen.pop("taskgraph-cuda r1 t1"), seen.pop("check")
    assert re.fullmatch("n[12]: [0-3],[0-3]", several)
    assert len(check) == 2  # of `cuda` on two ranks, and, as rank 0 of its own, of `taskgraph-cuda`
    assert seen == {"cuda r2 t2": ["n1: 0", "n2: 0"], "cuda r4 t1": ["n1: 0", "n1: 1", "n2: 0", "n2: 1"]}
    assert asked == [
        f"--cpus-per-task={threads} --gpus-per-task={devices} {nodes}--ntasks={ranks}"
        for threads, devices, nodes, ranks in ((1, 1, "", 4), (1, 2, "--nodes=1 ", 1), (2, 1, "", 2))
    ]

    one = run("cluster-generic", two, "bin", "probed", "lines")
    one.edit({"slurm_extra: \"''\"": "slurm_extra: \"'--partition=big --hint=nomultithread'\""})
    seen, again = probed(one, "--config", *cases)
    devices = {case: ", ".join(told).replace(", big: ", ",") for case, told in seen.items()}
    assert {case: len({*told.split(",")}) for case, told in devices.items()} == {
        "cuda r2 t2": 2, "cuda r4 t1": 4, "taskgraph-cuda r1 t1": 2,
    }  # fmt: skip
    assert all(re.fullmatch("big: [0-7](,[0-7])+", told) for told in devices.values())
    assert again == [line.replace("--nodes=1 ", "") for line in asked]
    assert "--hint=nomultithread" in (one.folder / "lines").read_text()


EXAMPLES = (
    "qos: n",
    "slurm_extra: \"'--exclusive'\"",
    "gpu_partition:",
    "gpu_type:",
    "devices_per_node:",
)  # as comments


def test_every_example_of_the_profile_on_two_nodes_of_four_devices(run, smoke):
    """The page GPUs on a cluster: the jobs of two nodes as it shows them, and the check that comes before."""
    eight = run("slurm", smoke[0], "prepared")
    eight.edit({f"# {name}": f"{name}" for name in EXAMPLES})
    eight.edit({"  mem_mb: 2000": "  constraint: fast\n  mem_mb: 2000"})
    cases = [*GPUS, "ranks=8", "cases=[{ranks: 1}]"]
    seen, asked = probed(eight, "--config", *cases)
    assert seen.pop("cuda r8 t1", eight.text) == [f"g{node}: {number}" for node in (1, 2) for number in range(4)]
    assert {*seen} == {"cuda r1 t1", "check"}
    assert len(seen["check"]) == 2
    common = "--cpus-per-task=1 --gpus-per-task=a100:1"
    assert asked == sorted(
        f"{common} --nodes={nodes} --ntasks={ranks} --qos=normal -C fast" for nodes, ranks in ((1, 1), (2, 8))
    )
    lines = (eight.folder / "lines").read_text()
    launched = "srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task=1 --gpus-per-task=1 -n"
    assert all(f"{launched} {ranks} " in lines for ranks in (2, 8))
    assert len(re.findall("^sbatch.* -p '?gpu.* --exclusive", lines, re.MULTILINE)) == 3  # and the check

    refused = run("slurm", smoke[0], "prepared")
    refused.start("--retries", "0", "--config", *GPUS, "ranks=2")
    assert refused.end() != 0
    assert "engine cuda cannot run here: NVIDIA's driver" in refused.text
    assert "rule infer" not in refused.text
