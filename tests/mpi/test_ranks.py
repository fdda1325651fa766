"""Inference on several ranks: the same as on one, whatever the engine, the partition and the number of ranks."""

import json
import os
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from children import ended
from how_to import write_engine
from launched import COMMANDS, SPDNN, launched, mpiexec

from spdnn.cli import main
from spdnn.core.features import Inputs
from spdnn.core.validation import builtins
from spdnn.formats.inputs import write_inputs
from spdnn.formats.mnist import mnist_inputs
from spdnn.formats.radixnet import RadixNet
from spdnn.formats.store import write_network
from spdnn.runs.records.files import read_record, read_samples

pytestmark = pytest.mark.xdist_group("ranks")
full = pytest.mark.full("ranks")


def wrote_the_same(folder, problem):
    """Categories and values in the folder are those of one process."""
    for name, alone in (("categories", "one.categories"), ("values.npy", "one.npy")):
        assert (folder / name).read_bytes() == (problem / alone).read_bytes()


def stores(folder, network=None):
    return ["--network", str(network or folder / "net.safetensors"), "--inputs", str(folder / "in.safetensors")]


COMPARE = Path(__file__).with_name("compare.py")
COVERED = 8 + 3 + 4  # of compare.py, with all reductions that an engine offers; with others
OTHERS = 3


def same(ranks, *given):
    """Run the comparisons; of each line: (how many, rows that moved, rows merged across ranks)."""
    status, out, told = mpiexec(ranks, sys.executable, COMPARE, *given)
    assert status == 0, told
    assert all(line.startswith("same ") for line in out.splitlines()), out
    return [tuple(map(int, re.findall(r"\d+", line))) for line in out.splitlines()]


@pytest.mark.parametrize(("ranks", "engines"), [(3, ["cpu", "spgemm"]), pytest.param(8, ["cpu"], marks=full)])
def test_our_engines_give_the_same_bits(ranks, engines):
    ((compared, moved, merged),) = same(ranks, *engines)
    assert compared == len(engines) * (COVERED + 2 * OTHERS)
    assert moved > 50
    assert merged > 10


def test_equal_hashes_several_batches_the_ladder_and_the_oracle_too():
    *hard, ladder = same(2, "--hard cpu spgemm , --only=sorted,revived tiled csr reference scipy")
    assert len(hard) == 2
    for compared, moved, _ in hard:
        assert compared > 8
        assert moved > 10
    assert min(ladder[:2]) > 20


def test_an_engine_of_your_own_moves_and_merges_rows(tmp_path, monkeypatch):
    write_engine(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    ((compared, moved, merged),) = same(3, "--only=sorted,twins", "toy")
    assert compared == 8
    assert min(moved, merged) > 10


@full
def test_every_partition_with_every_reduction():
    assert same(2, "--every", "cpu", "spgemm")[0][0] == 2 * 8 * 3 * 3


NEEDED = ("graphblas", "mkl", "jax")


@full
@pytest.mark.parametrize(
    ("ranks", "only", "engines", "least"),
    [
        (4, "sorted,few_inputs,twins", ("tiled", "csr", "reference", "scipy"), (21, 21)),
        pytest.param(3, "sorted,few_inputs,revived", NEEDED, (20, 31), marks=[*map(pytest.mark.needs, NEEDED)]),
    ],
)
def test_the_ladder_the_oracle_and_other_libraries_too(ranks, only, engines, least):
    ((compared, moved, _),) = same(ranks, f"--only={only}", *engines)
    assert compared >= least[0]
    assert moved >= least[1]


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """(folder with net.safetensors and in.safetensors, the outputs of one process)."""
    folder = tmp_path_factory.mktemp("problem")
    rng = np.random.default_rng(3)
    bits = (rng.random((90, 1024)) < np.linspace(0.1, 0.4, 90)[:, None]).astype(np.float32)
    write_inputs(folder / "in.safetensors", Inputs.from_array(bits))
    write_network(folder / "net.safetensors", RadixNet(1024, 30), formula_ok=True)
    files = [f"--categories={folder}/one.categories", f"--values={folder}/one.npy"]
    assert main(["infer", *stores(folder), "--threads=1", *files]) == 0
    return folder


@pytest.mark.parametrize("ranks", [pytest.param(ranks, marks=full) for ranks in (1, 3, 8)])
def test_the_command_writes_what_one_process_writes(problem, tmp_path, ranks):
    files = [f"--categories={tmp_path}/categories", f"--values={tmp_path}/values.npy", f"--record={tmp_path}/record"]
    where = stores(problem)
    status, out, told = mpiexec(ranks, *SPDNN, "infer", *where, "--threads=1", "--repeats=2", *files)
    assert status == 0, told
    assert out.count("active      ") == 1
    wrote_the_same(tmp_path, problem)
    record = read_record(tmp_path / "record")
    assert (record.ranks, record.distribution is not None) == (ranks, ranks > 1)
    assert record.environment.command.startswith(f"mpiexec -n {ranks} spdnn infer ") == (ranks > 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["categories", "record", "values.npy"]


@full
@pytest.mark.parametrize(
    ("ranks", "cut"), [(2, ["--schedule=stream", "--devices=2"]), (3, ["--schedule=graph", "--batches=9"])]
)
def test_ranks_that_cut_their_part_write_the_same(problem, tmp_path, ranks, cut):
    files = [f"--categories={tmp_path}/categories", f"--values={tmp_path}/values.npy", f"--record={tmp_path}/record"]
    where = [*stores(problem), "--engine=taskgraph", *cut]
    status, _, told = mpiexec(ranks, *SPDNN, "infer", *where, "--threads=2", *files)
    assert status == 0, told
    wrote_the_same(tmp_path, problem)
    record = builtins(read_record(tmp_path / "record"))
    notes = record["engine"]["notes"]
    streamed = notes["buffers"] is not None
    assert record["distribution"]["weights"] == ("streamed by each rank" if streamed else "one copy a node")
    assert [one.replace(" ", "=") for one in cut if one.split("=")[1] not in record["environment"]["command"]] == []
    assert f"--schedule={notes['schedule']}" in cut


def test_weights_that_do_not_fit_the_node_are_streamed_by_each_rank(tmp_path):
    rng = np.random.default_rng(3)
    bits = (rng.random((70, 4096)) < np.linspace(0.1, 0.4, 70)[:, None]).astype(np.float32)
    write_inputs(tmp_path / "in.safetensors", Inputs.from_array(bits))
    write_network(tmp_path / "net.safetensors", RadixNet(4096, 480), formula_ok=True)
    command = ["infer", *stores(tmp_path), "--threads=1", "--reductions=dead", f"--categories={tmp_path}/out.txt"]
    status, _, told = mpiexec(2, *SPDNN, *command, "--memory=230MB", "--samples", tmp_path / "s.json")
    assert status == 0, told
    found = (tmp_path / "out.txt").read_text()
    assert main(command) == 0
    assert found == (tmp_path / "out.txt").read_text() != ""
    measurement = json.loads((tmp_path / "s.json").read_text())
    assert measurement["distribution"]["weights"] == "streamed by each rank"
    assert measurement["span"] == "layer loop, weights streamed"
    assert measurement["peak_memory_bytes"] < 230e6


# Runs of two ranks, one after the other, into folders of their names; the last fails.
RUNS = """
import os, sys
from unittest import mock
from spdnn.cli import main
from spdnn.runs.ranks import run, shared
from spdnn.formats import inputs, store

def noted(read):
    def note(path):
        with open("read", "a") as stream:
            stream.write(f"{os.environ['PMI_RANK']} {path}\\n")
        return read(path)
    return note

def infer(folder, *words):
    outputs = f"--categories={folder}/categories --values={folder}/values.npy --record={folder}/record"
    status = main(["infer", *sys.argv[1:], "--threads=1", *outputs.split(), *words])
    return status and sys.exit(status)

with mock.patch.object(store, "_read", noted(store._read)):
    with mock.patch.object(inputs, "read_inputs", noted(inputs.read_inputs)):
        infer("staged", "--stage=$NEAR/near")
infer("cut", "--engine=taskgraph", "--schedule=pipeline", "--devices=2", "--buffers=2", "--threads=2")
with mock.patch.object(run, "room", lambda: 0), mock.patch.object(shared, "room", lambda: 0):
    infer("copies")
os.environ["TQDM_MININTERVAL"] = "0"
infer("told", "--partition=static")
del os.environ["TQDM_MININTERVAL"]
infer("cut", "--stage=far")
"""


def test_two_ranks_write_what_one_process_writes(problem, tmp_path, monkeypatch):
    """Stores staged once a node, a part cut by each rank, copies of weights where windows have no room, progress."""
    monkeypatch.chdir(tmp_path)
    folders = ("copies", "cut", "staged", "told")
    for name in (*folders, "near"):
        (tmp_path / name).mkdir()
    (tmp_path / "runs.py").write_text(RUNS)
    status, out, told = mpiexec(2, sys.executable, "runs.py", *stores(problem), NEAR=str(tmp_path))
    assert status == 1, told
    assert told.count("far: not a folder to write to") == 1
    assert out.count("active      ") == len(folders)
    records = {name: builtins(read_record(tmp_path / name / "record")) for name in folders}
    for name in folders:
        wrote_the_same(tmp_path / name, problem)
        assert len(list((tmp_path / name).iterdir())) == 3
        assert records[name]["environment"]["command"].startswith("mpiexec -n 2 spdnn infer ")

    read = [line.split() for line in (tmp_path / "read").read_text().splitlines()]
    assert [(rank, Path(path).name) for rank, path in read] == [("0", "net.safetensors"), ("0", "in.safetensors")]
    assert all(Path(path).parents[2] == tmp_path / "near" for _, path in read)
    assert not list((tmp_path / "near").iterdir())

    weights = {name: record["distribution"]["weights"] for name, record in records.items()}
    assert weights["copies"] == "a copy a rank"
    assert records["copies"]["distribution"]["shared_bytes"] == 0
    assert {weights["staged"], weights["told"]} == {"one copy a node"}
    notes, command = records["cut"]["engine"]["notes"], records["cut"]["environment"]["command"]
    assert weights["cut"] == ("streamed by each rank" if notes["buffers"] is not None else "one copy a node")
    assert notes["schedule"] == "pipeline"
    assert all(setting in command for setting in ("--schedule pipeline", "--devices 2", "--buffers 2"))

    lines = [line for line in told.splitlines() if line.startswith("inference")]
    assert all(line.startswith("inference on rank 0 of 2: ") for line in lines)
    assert sum(" 30/30 [" in line for line in lines) == 1


def test_two_nodes_have_a_leader_each(problem, tmp_path):
    command = [*SPDNN, "infer", *stores(problem), "--threads=1", "--repeats=2", f"--categories={tmp_path}/categories"]
    command += [f"--values={tmp_path}/values.npy", f"--record={tmp_path}/run.json"]
    there = ["-env", "SLURMD_NODENAME", "b", *command]
    with launched(1, "-env", "SLURMD_NODENAME", "a", *command, ":", "-n", "2", *there) as process:
        status, out, told = ended(process)
    assert status == 0, told
    assert out.count("active      ") == 1
    wrote_the_same(tmp_path, problem)
    record = read_record(tmp_path / "run.json")
    told = record.distribution
    assert (record.ranks, told.nodes) == (3, 2)
    assert [one.host for one in told.per_rank] == ["a", "b", "b"]
    assert not told.exchanges  # none pays here, and the record says so
    assert told.told.startswith("no rows were exchanged: ")
    assert {one.edges_from_exchange for one in told.per_rank} == {None}


@pytest.fixture
def sorted_inputs(tmp_path_factory, mnist_file):
    """A folder with the network 1024 x 120 and the official inputs, sorted by their ones; made once.

    All 60,000, so that a tile more or less is a small part of what each of 8 ranks computes, whatever the tile.
    """
    folder = tmp_path_factory.getbasetemp() / "sorted-by-ones"
    if not folder.exists():
        folder.mkdir()
        data = mnist_inputs(1024, mnist_file).data
        order = np.argsort(np.bitwise_count(data).sum(axis=1, dtype=np.int64), kind="stable")
        write_inputs(folder / "sorted.safetensors", Inputs(data[order], 1024))
        write_network(folder / "net.safetensors", RadixNet(1024, 120), formula_ok=True)
    return folder


@pytest.mark.needs("mnist")
@pytest.mark.parametrize(
    ("ranks", "reductions"), [(3, "all"), pytest.param(4, "dead", marks=full), pytest.param(8, "all", marks=full)]
)
def test_an_adversarial_order_is_balanced_from_the_first_exchange_on(sorted_inputs, ranks, reductions):
    """Edges are counted, not timed: the same in every run."""
    samples = {name: sorted_inputs / f"{name}.{ranks}.{reductions}.json" for name in ("static", "rebalanced")}
    where = [f"--network={sorted_inputs}/net.safetensors", f"--inputs={sorted_inputs}/sorted.safetensors"]
    where += ["--threads=1", f"--reductions={reductions}"]
    runs = [["infer", *where, f"--partition={name}", f"--samples={path}"] for name, path in samples.items()]
    status, _, told = mpiexec(ranks, sys.executable, "-c", COMMANDS, *map(json.dumps, runs))
    assert status == 0, told
    found = {name: read_samples(path).distribution for name, path in samples.items()}
    told = found["rebalanced"]
    assert told.exchanges, told.told
    assert told.imbalance.edges_from_exchange < 1.05
    assert found["static"].imbalance.edges > min(2, 0.5 * ranks)  # so the order is adversarial
    assert found["static"].imbalance.edges_from_exchange is None


def test_weights_are_in_memory_once_a_node(problem, tmp_path):
    """What three ranks hold together, shared memory counted once, against what two hold: no weights are added."""
    write_network(tmp_path / "deep.safetensors", RadixNet(1024, 480), formula_ok=True)
    weights, held = RadixNet(1024, 480).nbytes, {}
    for ranks in (2, 3):
        where = [*stores(problem, tmp_path / "deep.safetensors"), "--reductions", "dead"]
        status, _, told = mpiexec(
            ranks, *SPDNN, "infer", *where, "--threads", "1", "--samples", tmp_path / "s.json", "--partition", "static"
        )
        assert status == 0, told
        told = json.loads((tmp_path / "s.json").read_text())["distribution"]
        held[ranks] = [one["proportional_memory_bytes"] for one in told["per_rank"]]
        assert weights < told["shared_bytes"] < 1.1 * weights + (1 << 20)
    apart = min(held[3]) - weights // 3  # of a rank: Python, its libraries, its features
    assert sum(held[3]) - sum(held[2]) < apart + weights // 4


BOUND = """
import os, sys
{first}
from spdnn.cli import main
from spdnn.core.resources import usable_cores
from spdnn.runs.world import world
status = main(sys.argv[1:])
sys.stdout.write(f"cores {{world().rank}} {{sorted(os.sched_getaffinity(0))}} {{usable_cores()}}\\n")
sys.exit(status)
"""


@pytest.mark.needs("cores")
@pytest.mark.parametrize("variable", ["OMP_PROC_BIND", "OMP_PLACES"])
def test_ranks_that_openmp_would_bind_alike_have_cores_of_their_own(problem, tmp_path, variable):
    value = {"OMP_PROC_BIND": "true", "OMP_PLACES": "threads"}[variable]
    command = ["infer", *stores(problem), f"--categories={tmp_path}/categories", f"--record={tmp_path}/run.json"]
    status, out, told = mpiexec(2, sys.executable, "-c", BOUND.format(first=""), *command, **{variable: value})
    assert status == 0, told
    assert "warning" not in told
    assert (tmp_path / "categories").read_bytes() == (problem / "one.categories").read_bytes()
    lines = sorted(re.findall(r"^cores (\d) \[([\d, ]+)\] (\d+)$", out, re.MULTILINE))
    assert [rank for rank, *_ in lines] == ["0", "1"]
    cores = [{*map(int, numbers.split(", "))} for _, numbers, _ in lines]
    assert not cores[0] & cores[1]
    record, every = read_record(tmp_path / "run.json"), len(os.sched_getaffinity(0))
    assert record.environment.cores == every
    assert record.threads == int(lines[0][2]) == every // 2


@pytest.mark.needs("cores")
def test_ranks_that_openmp_has_bound_alike_already(problem):
    first = "import ctypes; ctypes.CDLL('libgomp.so.1')"
    command = [sys.executable, "-c", BOUND.format(first=first), "infer", *stores(problem)]
    status, _, told = mpiexec(2, *command, OMP_PROC_BIND="true")
    assert status == 1
    assert told.count("spdnn: ") == 1
    assert "spdnn: OMP_PROC_BIND would bind all ranks of a node to the same cores, for OpenMP (libgomp) was " in told
