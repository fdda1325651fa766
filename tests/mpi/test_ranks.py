"""Inference on several ranks: the same as on one, whatever the engine, the partition and the number of ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from launched import Launched

from spdnn.features import Inputs
from spdnn.formats.inputs import write_inputs
from spdnn.formats.store import write_network
from spdnn.records import read_record
from spdnn.sources.radixnet import RadixNet

COMPARE = Path(__file__).with_name("compare.py")
SPDNN = (sys.executable, "-m", "spdnn")


def same(mpiexec, ranks, *engines):
    """Run the comparisons; (how many, rows that moved, rows merged across ranks)."""
    status, out, told = mpiexec(ranks, sys.executable, COMPARE, *engines)
    assert status == 0, told
    words = out.replace(",", "").split()
    assert words[0] == "same", out
    return int(words[1]), int(words[2]), int(words[5])


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
def test_our_engines_give_the_same_bits(mpiexec, ranks):
    compared, moved, merged = same(mpiexec, ranks, "cpu", "spgemm")
    assert compared == 2 * 8 * 3 * 3  # engines, problems, reductions, partitions
    assert moved > 100
    assert merged > 10


@pytest.mark.parametrize("option", ["--collide", "--batches"])
def test_equal_hashes_and_several_batches_change_nothing(mpiexec, option):
    compared, moved, _ = same(mpiexec, 3, option, "cpu", "spgemm")
    assert compared == 2 * 8 * 3 * 3
    assert moved > 100


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_rungs_of_the_ladder_and_the_oracle_too(mpiexec, ranks):
    compared, moved, _ = same(mpiexec, ranks, "tiled", "csr", "reference", "scipy")
    assert compared == 8 * 3 * (3 + 1 + 1 + 2)
    assert moved > 50


@pytest.mark.needs("graphblas")
@pytest.mark.needs("mkl")
@pytest.mark.needs("jax")
def test_other_libraries_too(mpiexec):
    compared, moved, _ = same(mpiexec, 3, "graphblas", "mkl", "jax")
    assert compared > 60
    assert moved > 50


@pytest.fixture(scope="module")
def problem(tmp_path_factory):
    """(folder with net.h5 and in.h5, the outputs of one process)."""
    from spdnn.cli import main

    folder = tmp_path_factory.mktemp("problem")
    rng = np.random.default_rng(3)
    bits = (rng.random((90, 1024)) < np.linspace(0.1, 0.4, 90)[:, None]).astype(np.float32)
    write_inputs(folder / "in.h5", Inputs.from_array(bits))
    write_network(folder / "net.h5", RadixNet(1024, 30), formula_ok=True)
    files = [f"--{name}={folder}/one.{name}" for name in ("categories", "values")]
    assert main(["infer", f"--network={folder}/net.h5", f"--inputs={folder}/in.h5", "--threads=1", *files]) == 0
    return folder


@pytest.mark.parametrize("ranks", range(1, 9))
def test_the_command_writes_what_one_process_writes(mpiexec, problem, tmp_path, ranks):
    files = [f"--{name}={tmp_path}/{name}" for name in ("categories", "values", "record")]
    where = [f"--network={problem}/net.h5", f"--inputs={problem}/in.h5"]
    status, out, told = mpiexec(ranks, *SPDNN, "infer", *where, "--threads=1", "--repeats=2", *files)
    assert status == 0, told
    assert out.count("categories ") == 1
    for name in ("categories", "values"):
        assert (tmp_path / name).read_bytes() == (problem / f"one.{name}").read_bytes()
    record = read_record(tmp_path / "record")
    assert record["ranks"] == ranks
    assert ("distribution" in record) == (ranks > 1)
    if ranks > 1:
        assert record["distribution"]["weights"] == "one copy a node"
        assert record["environment"]["command"].startswith(f"mpiexec -n {ranks} spdnn infer ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["categories", "record", "values"]


@pytest.mark.parametrize(
    ("ranks", "cut"),
    [(2, ["--schedule=stream", "--devices=2"]), (3, ["--schedule=pipeline", "--devices=2", "--buffers=2"]),
     (2, ["--schedule=graph", "--batches=9"])],
)  # fmt: skip
def test_ranks_that_cut_their_part_write_the_same(mpiexec, problem, tmp_path, ranks, cut):
    files = [f"--{name}={tmp_path}/{name}" for name in ("categories", "values", "record")]
    where = [f"--network={problem}/net.h5", f"--inputs={problem}/in.h5", "--engine=taskgraph", *cut]
    status, _, told = mpiexec(ranks, *SPDNN, "infer", *where, "--threads=2", *files)
    assert status == 0, told
    for name in ("categories", "values"):
        assert (tmp_path / name).read_bytes() == (problem / f"one.{name}").read_bytes()
    record = read_record(tmp_path / "record")
    notes = record["engine"]["notes"]
    streamed = notes["buffers"] is not None
    assert record["distribution"]["weights"] == ("streamed by each rank" if streamed else "one copy a node")
    assert [one.replace(" ", "=") for one in cut if one.split("=")[1] not in record["environment"]["command"]] == []
    assert f"--schedule={notes['schedule']}" in cut


def test_weights_that_do_not_fit_the_node_are_streamed_by_each_rank(mpiexec, tmp_path):
    rng = np.random.default_rng(3)
    bits = (rng.random((70, 4096)) < np.linspace(0.1, 0.4, 70)[:, None]).astype(np.float32)
    write_inputs(tmp_path / "in.h5", Inputs.from_array(bits))
    write_network(tmp_path / "net.h5", RadixNet(4096, 480), formula_ok=True)
    command = [*SPDNN, "infer", "--network", tmp_path / "net.h5", "--inputs", tmp_path / "in.h5", "--threads", "1"]
    command += ["--reductions", "dead", "--memory", "230MB", "--categories", tmp_path / "out.txt"]
    found = {}
    for ranks in (1, 2):
        status, _, told = mpiexec(ranks, *command, "--samples", tmp_path / "s.json")
        assert status == 0, told
        found[ranks] = (tmp_path / "out.txt").read_text()
    assert found[1] == found[2] != ""
    measurement = json.loads((tmp_path / "s.json").read_text())["measurement"]
    assert measurement["distribution"]["weights"] == "streamed by each rank"
    assert measurement["span"] == "layer loop, weights streamed"
    assert measurement["peak_memory_bytes"] < 230e6


def test_rank_0_alone_tells_how_far_it_is(mpiexec, problem, tmp_path):
    where = [f"--network={problem}/net.h5", f"--inputs={problem}/in.h5", f"--categories={tmp_path}/categories"]
    given = [*SPDNN, "infer", *where, "--threads=1", "--partition=static"]
    status, quiet, told = mpiexec(3, *given)
    assert (status, "inference" in told) == (0, False)
    status, out, told = mpiexec(3, *given, SPDNN_PROGRESS="lines=0")
    assert (status, out) == (0, quiet)
    assert (tmp_path / "categories").read_bytes() == (problem / "one.categories").read_bytes()
    lines = [line for line in told.splitlines() if line.startswith("inference")]
    assert all(line.startswith("inference on rank 0 of 3: ") for line in lines)
    assert lines[0].endswith(": layer 0 of 30, 30 of 30 inputs left")
    assert sum("done in" in line for line in lines) == 1
    status, out, told = mpiexec(3, *given, SPDNN_PROGRESS="on")
    assert (status, out) == (1, "")
    assert told.count("SPDNN_PROGRESS='on': it must be off, bar, lines") == 1


def test_two_nodes_have_a_leader_each(problem, tmp_path):
    command = [*SPDNN, "infer", "--network", problem / "net.h5", "--inputs", problem / "in.h5", "--threads", "1"]
    command += ["--record", tmp_path / "run.json"]
    there = ["-env", "SLURMD_NODENAME", "b", *command]
    status, _, told = Launched(2, "-env", "SLURMD_NODENAME", "a", *command, ":", "-n", "3", *there).finish()
    assert status == 0, told
    told = read_record(tmp_path / "run.json")["distribution"]
    assert told["nodes"] == 2
    assert [(one["host"], one["local_rank"]) for one in told["per_rank"]] == [
        ("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2),
    ]  # fmt: skip
    leaders = [one["local_rank"] == 0 for one in told["per_rank"]]
    assert [one["prepare_seconds"] > 0 for one in told["per_rank"]] == leaders


def test_stores_are_staged_once_a_node_and_the_copies_are_gone_at_the_end(mpiexec, problem, tmp_path):
    (tmp_path / "near").mkdir()
    (tmp_path / "program.py").write_text(
        "import sys, os\n"
        "from spdnn.formats import store, inputs\n"
        "for module, name in ((store, '_read'), (inputs, 'read_inputs')):\n"
        "    def told(path, read=getattr(module, name)):\n"
        "        print('read', os.environ['PMI_RANK'], path)\n"
        "        return read(path)\n"
        "    setattr(module, name, told)\n"
        "from spdnn.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    command = [sys.executable, tmp_path / "program.py", "infer", "--network", problem / "net.h5", "--inputs"]
    command += [problem / "in.h5", "--threads", "1", "--categories", tmp_path / "categories"]
    status, out, told = mpiexec(2, *command, "--stage", "$NEAR/near", NEAR=str(tmp_path))
    assert status == 0, told
    read = [line.split() for line in out.splitlines() if line.startswith("read")]
    assert [(rank, Path(path).name) for _, rank, path in read] == [("0", "net.h5"), ("0", "in.h5")]
    assert all(Path(path).parents[2] == tmp_path / "near" for _, _, path in read)
    assert (tmp_path / "categories").read_bytes() == (problem / "one.categories").read_bytes()
    assert not list((tmp_path / "near").iterdir())
    status, _, told = mpiexec(2, *command, "--stage", tmp_path / "far")
    assert status == 1
    assert told.count("far: not a folder to write to") == 1


@pytest.mark.needs("mnist")
@pytest.mark.parametrize("reductions", ["dead", "all"])
@pytest.mark.parametrize("ranks", [4, 8])
def test_an_adversarial_order_is_balanced_from_the_first_exchange_on(
    mpiexec, mnist_file, tmp_path_factory, ranks, reductions
):
    """1024 x 120, the official inputs sorted by their ones. Edges are counted, not timed: the same in every run."""
    folder = sorted_inputs(tmp_path_factory, mnist_file)
    found = {}
    for partition in ("static", "cyclic", "rebalanced"):
        samples = folder / f"{partition}.{ranks}.{reductions}.json"
        status, _, told = mpiexec(
            ranks, *SPDNN, "infer", "--network", folder / "net.h5", "--inputs", folder / "sorted.h5", "--threads", "1",
            "--partition", partition, "--reductions", reductions, "--samples", samples,
        )  # fmt: skip
        assert status == 0, told
        found[partition] = json.loads(samples.read_text())["measurement"]["distribution"]
    told = found["rebalanced"]
    assert told["exchanges"], told["told"]
    assert told["imbalance"]["edges_from_exchange"] < 1.05
    assert found["static"]["imbalance"]["edges"] > 2.5
    assert found["static"]["imbalance"]["edges_from_exchange"] is None
    assert not found["cyclic"]["exchanges"]


def sorted_inputs(factory, mnist_file):
    folder = factory.getbasetemp() / "sorted-by-ones"
    if not folder.exists():
        from spdnn.sources.mnist import mnist_inputs

        folder.mkdir()
        inputs = mnist_inputs(1024, mnist_file)
        order = np.argsort(np.bitwise_count(inputs.data).sum(axis=1, dtype=np.int64), kind="stable")
        write_inputs(folder / "sorted.h5", Inputs(inputs.data[order], 1024))
        write_network(folder / "net.h5", RadixNet(1024, 120), formula_ok=True)
    return folder


def test_an_exchange_that_does_not_pay_is_not_made_and_the_record_says_so(mpiexec, problem, tmp_path):
    where = ["--network", problem / "net.h5", "--inputs", problem / "in.h5"]
    status, _, told = mpiexec(2, *SPDNN, "infer", *where, "--threads", "1", "--record", tmp_path / "run.json")
    assert status == 0, told
    told = read_record(tmp_path / "run.json")["distribution"]
    assert told["exchanges"] == []
    assert "was not above its cost" in told["told"]
    assert told["imbalance"]["edges_from_exchange"] is None


def test_weights_are_in_memory_once_a_node(mpiexec, problem, tmp_path):
    """What four ranks hold together, shared memory counted once, against what two hold: the weights do not double."""
    write_network(tmp_path / "deep.h5", RadixNet(1024, 960))
    weights, held = RadixNet(1024, 960).nbytes, {}
    for ranks in (2, 4):
        where = ["--network", tmp_path / "deep.h5", "--inputs", problem / "in.h5", "--reductions", "dead"]
        status, _, told = mpiexec(
            ranks, *SPDNN, "infer", *where, "--threads", "1", "--samples", tmp_path / "s.json", "--partition", "static"
        )
        assert status == 0, told
        told = json.loads((tmp_path / "s.json").read_text())["measurement"]["distribution"]
        held[ranks] = [one["proportional_memory_bytes"] for one in told["per_rank"]]
        assert weights < told["shared_bytes"] < 1.1 * weights + (1 << 20)
    apart = min(held[4]) - weights // 4  # of a rank: Python, its libraries, its features
    assert sum(held[4]) - sum(held[2]) < 2 * apart + weights // 2
