"""Inference on several ranks: the same as on one, whatever the engine, the partition and the number of ranks."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from children import ended
from launched import SPDNN, launched, mpiexec

from spdnn.cli import main
from spdnn.common.validation import builtins
from spdnn.pipeline.measure.record import read_samples
from spdnn.problem.features import Inputs
from spdnn.records.files import read_record
from spdnn.sources.formats.inputs import write_inputs
from spdnn.sources.formats.store import write_network
from spdnn.sources.mnist import mnist_inputs
from spdnn.sources.radixnet import RadixNet

pytestmark = pytest.mark.xdist_group("ranks")
full = pytest.mark.full("ranks")


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


def test_equal_hashes_and_several_batches_change_nothing():
    lines = same(2, "--hard", "cpu", "spgemm")
    assert len(lines) == 2
    for compared, moved, _ in lines:
        assert compared > 8
        assert moved > 10


@full
def test_every_partition_with_every_reduction():
    assert same(2, "--every", "cpu", "spgemm")[0][0] == 2 * 8 * 3 * 3


@pytest.mark.parametrize(
    ("ranks", "only"), [(2, "sorted,revived"), pytest.param(4, "sorted,few inputs,twins", marks=full)]
)
def test_the_rungs_of_the_ladder_and_the_oracle_too(ranks, only):
    ((compared, moved, _),) = same(ranks, f"--only={only}", "tiled", "csr", "reference", "scipy")
    assert compared > 20
    assert moved > 20


@full
@pytest.mark.needs("graphblas")
@pytest.mark.needs("mkl")
@pytest.mark.needs("jax")
def test_other_libraries_too():
    ((compared, moved, _),) = same(3, "--only=sorted,few inputs,revived", "graphblas", "mkl", "jax")
    assert compared >= 20
    assert moved > 30


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """(folder with net.safetensors and in.safetensors, the outputs of one process)."""
    folder = tmp_path_factory.mktemp("problem")
    rng = np.random.default_rng(3)
    bits = (rng.random((90, 1024)) < np.linspace(0.1, 0.4, 90)[:, None]).astype(np.float32)
    write_inputs(folder / "in.safetensors", Inputs.from_array(bits))
    write_network(folder / "net.safetensors", RadixNet(1024, 30), formula_ok=True)
    files = [f"--categories={folder}/one.categories", f"--values={folder}/one.npy"]
    assert (
        main(
            ["infer", f"--network={folder}/net.safetensors", f"--inputs={folder}/in.safetensors", "--threads=1", *files]
        )
        == 0
    )
    return folder


@pytest.mark.parametrize("ranks", [1, 3, *(pytest.param(ranks, marks=full) for ranks in (2, 8))])
def test_the_command_writes_what_one_process_writes(problem, tmp_path, ranks):
    files = [f"--categories={tmp_path}/categories", f"--values={tmp_path}/values.npy", f"--record={tmp_path}/record"]
    where = stores(problem)
    status, out, told = mpiexec(ranks, *SPDNN, "infer", *where, "--threads=1", "--repeats=2", *files)
    assert status == 0, told
    assert out.count("active      ") == 1
    for name, alone in (("categories", "one.categories"), ("values.npy", "one.npy")):
        assert (tmp_path / name).read_bytes() == (problem / alone).read_bytes()
    record = builtins(read_record(tmp_path / "record"))
    assert record["ranks"] == ranks
    assert (record["distribution"] is not None) == (ranks > 1)
    if ranks > 1:
        told = record["distribution"]
        assert told["weights"] == "one copy a node"
        assert told["exchanges"] == []  # none pays here, and the record says so
        assert told["told"].startswith("no rows were exchanged: ")
        assert {one["edges_from_exchange"] for one in told["per_rank"]} == {None}
        assert record["environment"]["command"].startswith(f"mpiexec -n {ranks} spdnn infer ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["categories", "record", "values.npy"]


@pytest.mark.parametrize(
    ("ranks", "cut"),
    [(2, ["--schedule=pipeline", "--devices=2", "--buffers=2"]),
     pytest.param(2, ["--schedule=stream", "--devices=2"], marks=full),
     pytest.param(3, ["--schedule=graph", "--batches=9"], marks=full)],
)  # fmt: skip
def test_ranks_that_cut_their_part_write_the_same(problem, tmp_path, ranks, cut):
    files = [f"--categories={tmp_path}/categories", f"--values={tmp_path}/values.npy", f"--record={tmp_path}/record"]
    where = [*stores(problem), "--engine=taskgraph", *cut]
    status, _, told = mpiexec(ranks, *SPDNN, "infer", *where, "--threads=2", *files)
    assert status == 0, told
    for name, alone in (("categories", "one.categories"), ("values.npy", "one.npy")):
        assert (tmp_path / name).read_bytes() == (problem / alone).read_bytes()
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
    command = [*SPDNN, "infer", *stores(tmp_path), "--threads", "1"]
    command += ["--reductions", "dead", "--memory", "230MB", "--categories", tmp_path / "out.txt"]
    found = {}
    for ranks in (1, 2):
        status, _, told = mpiexec(ranks, *command, "--samples", tmp_path / "s.json")
        assert status == 0, told
        found[ranks] = (tmp_path / "out.txt").read_text()
    assert found[1] == found[2] != ""
    measurement = json.loads((tmp_path / "s.json").read_text())
    assert measurement["distribution"]["weights"] == "streamed by each rank"
    assert measurement["span"] == "layer loop, weights streamed"
    assert measurement["peak_memory_bytes"] < 230e6


def test_rank_0_alone_tells_how_far_it_is(problem, tmp_path):
    where = [
        f"--network={problem}/net.safetensors",
        f"--inputs={problem}/in.safetensors",
        f"--categories={tmp_path}/categories",
    ]
    given = [*SPDNN, "infer", *where, "--threads=1", "--partition=static"]
    status, _, told = mpiexec(2, *given, SPDNN_PROGRESS="lines=0")
    assert status == 0
    assert (tmp_path / "categories").read_bytes() == (problem / "one.categories").read_bytes()
    lines = [line for line in told.splitlines() if line.startswith("inference")]
    assert all(line.startswith("inference on rank 0 of 2: ") for line in lines)
    assert lines[0].endswith(": layer 0 of 30, 45 of 45 inputs left")
    assert sum("done in" in line for line in lines) == 1
    status, out, told = mpiexec(2, *given, SPDNN_PROGRESS="on")
    assert (status, out) == (1, "")
    assert told.count("SPDNN_PROGRESS='on': it must be off, bar, lines") == 1


def test_two_nodes_have_a_leader_each(problem, tmp_path):
    command = [*SPDNN, "infer", *stores(problem), "--threads", "1"]
    command += ["--record", tmp_path / "run.json"]
    there = ["-env", "SLURMD_NODENAME", "b", *command]
    with launched(1, "-env", "SLURMD_NODENAME", "a", *command, ":", "-n", "2", *there) as process:
        status, _, told = ended(process)
    assert status == 0, told
    told = read_record(tmp_path / "run.json").distribution
    assert told.nodes == 2
    assert [one.host for one in told.per_rank] == ["a", "b", "b"]


def test_stores_are_staged_once_a_node_and_the_copies_are_gone_at_the_end(problem, tmp_path):
    (tmp_path / "near").mkdir()
    (tmp_path / "program.py").write_text(
        "import sys, os\n"
        "from spdnn.sources.formats.readers import store, inputs\n"
        "for module, name in ((store, '_read'), (inputs, 'read_inputs')):\n"
        "    def told(path, read=getattr(module, name)):\n"
        "        print('read', os.environ['PMI_RANK'], path)\n"
        "        return read(path)\n"
        "    setattr(module, name, told)\n"
        "from spdnn.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, tmp_path / "program.py", "infer", "--network", problem / "net.safetensors", "--inputs"]
    command += [problem / "in.safetensors", "--threads", "1", "--categories", tmp_path / "categories"]
    status, out, told = mpiexec(2, *command, "--stage", "$NEAR/near", NEAR=str(tmp_path))
    assert status == 0, told
    read = [line.split() for line in out.splitlines() if line.startswith("read")]
    assert [(rank, Path(path).name) for _, rank, path in read] == [("0", "net.safetensors"), ("0", "in.safetensors")]
    assert all(Path(path).parents[2] == tmp_path / "near" for _, _, path in read)
    assert (tmp_path / "categories").read_bytes() == (problem / "one.categories").read_bytes()
    assert not list((tmp_path / "near").iterdir())
    status, _, told = mpiexec(2, *command, "--stage", tmp_path / "far")
    assert status == 1
    assert told.count("far: not a folder to write to") == 1


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
    found = {}
    for partition in ("static", "rebalanced"):
        samples = sorted_inputs / f"{partition}.{ranks}.{reductions}.json"
        status, _, told = mpiexec(
            ranks, *SPDNN, "infer", "--network", sorted_inputs / "net.safetensors", "--inputs",
            sorted_inputs / "sorted.safetensors", "--threads", "1", "--partition", partition,
            "--reductions", reductions, "--samples", samples,
        )  # fmt: skip
        assert status == 0, told
        found[partition] = read_samples(samples).distribution
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
