"""`make gpu-check` and benchmarks/cuda_kernels.py on the CPU shim, so that neither waits for a GPU to be tried."""

import argparse
import json
import os
import re
import subprocess
import sys
import time
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from children import finished
from engine_cases import around_sixteen_bits, rows
from stand_in_cupy import Memory, modules

from spdnn.api import infer
from spdnn.cli import main
from spdnn.common.errors import SpdnnError
from spdnn.engines import registry
from spdnn.engines.cuda import ceilings, choice, layers, session
from spdnn.engines.libraries import cusparse
from spdnn.engines.registry import ENGINES
from spdnn.kernels.cuda.sliced import slice_layer
from spdnn.problem import challenge
from spdnn.problem.network import from_matrices
from spdnn.records.files import read_all
from spdnn.records.limits import Machine
from spdnn.reductions.registry import parse_reductions
from spdnn.sources.radixnet import RadixNet

OURS = [name for name in ENGINES if name.startswith("cuda")]


@pytest.fixture(autouse=True)
def few_launches(gpu, monkeypatch, little_measured):
    """Kernels are chosen, and the machine is measured, with as few launches and inputs as can be."""
    few = lambda count, *given, **named: rows(min(count, 100), *given, **named)  # noqa: E731
    monkeypatch.setattr(gpu("correctness"), "rows", few)
    real = ceilings.measure
    monkeypatch.setattr(ceilings, "measure", lambda device, seconds=1.0: real(device, seconds / 100))


@pytest.fixture
def vendor(on_shim, set_all):
    """The shim, and beside it the engine cusparse on NumPy, whose trials are small."""
    set_all(cusparse, modules=modules, TRIAL_NEURONS=40, TRIAL_INPUTS=3)
    registry._load.cache_clear()
    return on_shim()


@pytest.fixture
def runs(gpu, on_shim, tmp_path):
    """A function that makes a Networks of some random inputs instead of MNIST's."""
    networks = gpu("networks")
    inputs = rows(100, 1024, kind="bits", density=np.linspace(0.05, 0.35, 100)[:, None])

    def make(tally=None):
        on_shim()
        made = networks.Networks(
            tally or gpu("tally").Tally(), gpu("check").RunRecords(tmp_path / "all.jsonl").add, None
        )
        made._inputs[1024] = inputs, 0.5
        return made

    return make


def test_the_whole_program(gpu, vendor, monkeypatch, set_all, tmp_path, capsys):
    """Every part but sanitizer, ranks and ops, which have tests of their own; problems are small and repeats few."""
    check, networks, schedules = gpu("check"), gpu("networks"), gpu("device_schedules")
    inputs = rows(64, 1024, kind="bits", density=np.linspace(0.05, 0.35, 64)[:, None])
    wanted = [("cuda", "all"), ("cuda-csr", "none"), ("cuda-staged", "dead,inputs")]
    small = challenge.OfficialProblem(1024, 2)
    set_all(
        networks,
        mnist_inputs=lambda neurons, path: inputs,
        locate_mnist=lambda path: path,
        cases=lambda *given: [networks.Case(small, *case) for case in wanted],
        LADDER_PROBLEM=small,
        REPEATS=dict.fromkeys(networks.REPEATS, 2),
    )
    set_all(check, QUICK_SHAPES=["logits"], QUICK_DEEP=(64, 3, 100))
    monkeypatch.setitem(gpu("correctness").CHOSEN, "1024 neurons", lambda: RadixNet(64, choice.LATER + 1, -0.3))
    set_all(schedules, QUICK_COMPARED=small, DEEP=(64, 12, 100), SOME_SHAPES=["one input"], REDUCTIONS=["dead,inputs"])
    measure = gpu("cuda_kernels").measure
    few = lambda device, machine, widths, samples, size, *rest: measure(device, machine, [1024], 1, 1 << 19, *rest)  # noqa: E731
    monkeypatch.setattr(gpu("cuda_kernels"), "measure", few)
    monkeypatch.setattr(challenge, "WIDTHS", (1024,))
    parts = ",".join(part for part in check.PARTS if part not in ("sanitizer", "ranks", "ops"))
    written = str(tmp_path / "records")
    arguments = ["--parts", parts, "--quick", "--seed", "5", "--results", written, "--mnist", "images"]
    assert check.main(arguments) == 0
    said = capsys.readouterr().out
    assert said.startswith("CPU shim: compute capability 9.0, g++")
    assert "seed 5" in said
    assert "FAIL" not in said
    # Each engine on each kind of inputs, and their digests; exact networks; past float32; batches; counts; choices;
    # memory, compiler.
    correctness = 3 * 7 + 4 * 6 + 5 + 6 + 3 + 1 + 2
    assert set(gpu("correctness").ENGINES) == {*OURS, "cusparse"}
    kernels, scheduled = 1 + 1, 4 * 2 + 1 + 2 * 2 * 4  # the ceilings; every schedule, gaps, runs and their records
    passed = 2 + correctness + kernels + len(wanted) + scheduled
    details, first, scheduled, found, packed = sorted((tmp_path / "records").iterdir())
    kernels, told_before, told = sorted(details.iterdir())
    assert main(["report", str(tmp_path / "records"), "-o", str(tmp_path / "page.html")]) == 0
    assert said.splitlines()[-2].startswith(f"gpu-check pass: {passed} passed, 0 failed, 0 left out")
    assert said.splitlines()[-1] == f"to send back: {packed}"
    assert {(row["gpu"], row["layers"]) for row in json.loads(told_before.read_text())["rows"]} == {
        (gpu, layers) for gpu in ("V100", "A100", "H100", "H200") for layers in challenge.DEPTHS
    }
    with zipfile.ZipFile(packed) as archive:
        assert archive.namelist() == [
            "found.json",
            *(path.name for path in (first, scheduled, found)),
            *(f"{details.name}/{path.name}" for path in (kernels, told_before, told)),
        ]
        told_of = json.loads(archive.read("found.json"))
    assert told_of["device"]["name"] == "CPU shim"
    assert all(f"\n  {one}\n" in said for one in told_of["not_covered"])
    assert [record.case for record in read_all([first])[0]] == ["radixnet-1024-2.mnist-1024.cuda.all"]
    assert (kernels.name, told.name, found.suffix) == ("kernels.json", "taskgraph.json", ".jsonl")
    assert scheduled.name[-16:] == "-schedules.jsonl"
    gaps = json.loads(told.read_text())["launch_gap_seconds"]
    assert set(gaps) == {"launched from Python", "in a graph"}
    records = read_all([scheduled])[0]
    assert len(records) == 8
    for record in records:
        ratios = record.engine.noted["times_graph"]
        assert set(ratios) == {"graph", "stream", "resident", "cuda"}
        assert ratios["graph"] == 1
    assert json.loads(kernels.read_text())["kernels"]
    records = read_all([found])[0]
    names = ("cuda.all", "cuda-csr.none", "cuda-staged.dead+inputs")
    assert [record.case for record in records] == [f"radixnet-1024-2.mnist-1024.{name}" for name in names]
    assert {record.verdict.truth.kind for record in records} == {"oracle"}
    assert {record.machine.instruction_set for record in records} == {"sm_90"}
    assert len({record.result.categories_sha256 for record in records}) == 1
    assert f"run records: {found}\n" in said
    assert said.index(gpu("cuda_kernels").HEAD) < said.rindex(gpu("cuda_kernels").HEAD)  # once more, at the end
    for name in ("cuda all", "cuda-csr none"):
        told = [line for line in said.splitlines() if line.startswith(f"1024-2 {name}")]
        assert "(loads)" in told[0]
    assert told[0].split()[-1] == "csr"


def wrong_slices(layer, **given):
    return slice_layer(replace(layer, values=layer.values * np.float32(1.01)), **given)


def test_what_fails_first_ends_it(gpu, vendor, monkeypatch, tmp_path, capsys):
    check = gpu("check")
    monkeypatch.setattr(layers, "slice_layer", wrong_slices)
    assert check.main(["--mnist", str(tmp_path / "absent"), "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-3] == "left out, and so not passed: the parts " + ", ".join(check.PARTS[1:])
    assert [line[:11] for line in said if line.startswith("failed: ")][-1] == "failed: 102"


def test_without_mnist_it_takes_digits(gpu, on_shim, set_all, tmp_path, capsys):
    def absent(path):
        raise SpdnnError("no address answers")

    check = gpu("check")
    set_all(gpu("networks"), locate_mnist=absent, LADDER_PROBLEM=challenge.OfficialProblem(1024, 2))
    on_shim()
    assert check.main(["--parts", "first", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "not run here: 1024-2 cuda all: the MNIST images cannot be had (--mnist FILE names them)" in said
    assert "gpu-check pass: 2 passed, 0 failed" in said
    assert check.main(["--parts", "first", "--results", str(tmp_path), "--mnist", "nowhere"]) == 1


@pytest.mark.parametrize(("cupy", "status"), [(0, 5), (1, 1)])
def test_a_set_up_that_fails_does_not_stop_the_check(root, tmp_path, cupy, status):
    """Its run on the GPU may be what fails, and the check says why; without CuPy nothing can be checked."""
    (tmp_path / "bin").mkdir()
    executable(tmp_path / "bin/python", f'case "$1" in -c) exit {cupy} ;; *check.py) exit 5 ;; esac')
    executable(tmp_path / "make", "exit 2")
    environment = {**os.environ, "MAKE": str(tmp_path / "make"), "VENV": str(tmp_path)}
    assert finished(["sh", root / "tests/gpu/run.sh"], env=environment)[0] == status


def test_a_wrong_kernel_fails_and_the_others_pass(gpu, on_shim, monkeypatch):
    on_shim()
    monkeypatch.setattr(layers, "slice_layer", wrong_slices)
    correctness, tally = gpu("correctness"), gpu("tally").Tally()
    correctness.run(tally, 0, ["cuda-csr", "cuda-ell"], ["rectangular"], (64, 4, 100), exact=1)
    assert tally.status == 1
    told = [failure.split(",")[0] for failure in tally.failures]
    assert "cuda-ell" in told
    assert "cuda-csr" not in told


CHANGED = {  # engine, what its bits change with, and what is said of it; the library's may change with columns
    "our bits with dead rows": ("cuda-csr", "reductions", "^dead: other bits than without it$"),
    "the library's bits with repeats": ("cusparse", "repeats", "^none: 4 outputs of three repeats and a run before"),
    "the library's bits with columns": ("cusparse", "reductions", None),
}


@pytest.mark.parametrize("case", CHANGED)
def test_bits_that_change_are_found(gpu, vendor, set_all, case):
    correctness, (name, wrong, sentence), told = gpu("correctness"), CHANGED[case], []

    def changed(got, reductions):
        told.append(got)
        change = sorted(parse_reductions(reductions)) if wrong == "reductions" else len(told)
        return SimpleNamespace(digest=f"{got.digest} {change}", survivors=got.survivors)

    def same(name, network, inputs, reductions, real=correctness.assert_same):
        got, expected = real(name, network, inputs, reductions=reductions)
        return changed(got, reductions), expected

    def opened(name, network, inputs, reductions, real=correctness.opened):
        session = real(name, network, inputs, reductions)
        return SimpleNamespace(run=lambda: changed(session.run(), reductions))

    set_all(correctness, assert_same=same, opened=opened)
    given = name, correctness.RadixNet(64, 4, -0.3), rows(40, 64, kind="bits", density=0.3)
    with pytest.raises(AssertionError, match=sentence) if sentence else nullcontext():
        assert correctness._agrees(*given) == {}


@pytest.mark.parametrize("reductions", ["none", "dead"])
def test_wrong_counts_are_found(gpu, on_shim, monkeypatch, reductions):
    def more(*given, real=session.result):
        got = real(*given)
        wrong = ("dead" if given[0].leaving else "none") == reductions
        return replace(got, edges_computed=got.edges_computed + 32 * wrong)

    on_shim(multiprocessors=1)
    correctness = gpu("correctness")
    for name in correctness.ONE_LAYER:
        correctness._counts(name, (64, 12, 90), 1)
    monkeypatch.setattr(session, "result", more)
    with pytest.raises(AssertionError, match=f"{reductions}: .* the host counts"):
        correctness._counts("cuda-staged", (64, 12, 90), 1)


@pytest.mark.parametrize("name", ["cuda-csr", "cuda-ell", "cuda-staged", "cuda-persistent"])
def test_places_that_do_not_fit_are_found(gpu, on_shim, name):
    """A kernel writes what is beyond so many features to the begin, as one that counts in 32 bits does."""
    correctness, device = gpu("correctness"), on_shim(multiprocessors=1)
    correctness._large(name, 64, 2**15)

    def bind(kernel, blocks, arguments, *given, real=device.bind):
        launch = real(kernel, blocks, arguments, *given)

        def work():
            launch()
            if kernel.name in ("csr_layer", "ell_layer", "staged_layer", "persistent_layers"):
                device.issue(lambda: arguments["target"][2**15 :].fill(0))  # in a graph, too

        return work

    device.bind = bind
    with pytest.raises(AssertionError, match="other inputs are active|copies of the rows differ"):
        correctness._large(name, 64, 2**15)
    device.limit = 1 << 18
    with pytest.raises(gpu("tally").NotHere, match="bytes are needed"):
        correctness._large(name, 64, 2**15)


WIDE = 65_600  # neurons, more than indices of 16 bits can tell apart


@pytest.mark.parametrize(("width", "early"), [(64, True), (64, False), (WIDE, True)])
def test_a_kernel_that_is_timed_and_not_taken_is_compared(gpu, on_shim, monkeypatch, width, early):
    """ELL computes wrongly on many rows or on few, and is the slowest."""
    correctness, taken = gpu("correctness"), []
    first, last, _ = around_sixteen_bits(WIDE)
    deep = (
        from_matrices([first, last, *[np.eye(2)] * choice.LATER, last.T, last], last="relu") if width == WIDE else None
    )
    network = deep or RadixNet(64, choice.LATER + 1, -0.3)
    on_shim(multiprocessors=1)
    correctness._chosen(network)

    def slow(device, laid, source, target, count, times, real=choice.several_layers):
        launch = real(device, laid, source, target, count, times)
        taken.append((laid.kind, laid.arrays["indices"].dtype.itemsize))
        wrong = laid.kind == "ell" and laid.inputs == width and (count > 1) == early

        def work():
            launch()
            if laid.kind == "ell":
                time.sleep(0.05)
            target[:1] *= 1 + wrong

        return work

    monkeypatch.setattr(choice, "several_layers", slow)
    with pytest.raises(AssertionError, match="other bits than [a-z]+: ell"):
        correctness._chosen(network)
    assert ("ell", 4 if width == WIDE else 2) in taken


def test_a_wrong_result_has_no_record(gpu, runs, tmp_path, monkeypatch):
    half = lambda layer, **given: slice_layer(replace(layer, values=layer.values * np.float32(0.5)), **given)  # noqa: E731
    monkeypatch.setattr(layers, "slice_layer", half)
    networks, made = gpu("networks"), runs()
    made.run([networks.Case(challenge.OfficialProblem(1024, 3), "cuda-ell", "none")])
    assert made.tally.status == 1
    assert "categories of the ground truth are missing" in made.tally.failures[0]
    assert not list(tmp_path.iterdir())


def test_a_deeper_network_follows_one_that_was_kept(gpu, runs):
    networks, made = gpu("networks"), runs()
    for depth in (2, 3):
        made.run([networks.Case(challenge.OfficialProblem(1024, depth), "cuda", "all")])
    assert (made.tally.passed, made.tally.failures) == (2, [])


def test_cases_are_the_twelve_and_the_ladder(gpu, root):
    networks = gpu("networks")
    found = networks.cases()
    for reductions in ("all", "dead"):
        problems = [case.problem for case in found if (case.engine, case.reductions) == ("cuda", reductions)]
        assert sorted(problems, key=challenge.PROBLEMS.index) == list(challenge.PROBLEMS)
    none = [case.problem.name for case in found if (case.engine, case.reductions) == ("cuda", "none")]
    assert "1024-1920" in none
    assert "65536-1920" not in none
    preset = yaml.safe_load((root / "config/ladder-cuda.yaml").read_text())
    rungs = [(rung["engine"], rung["reductions"]) for rung in preset["ladder"]]
    assert [*networks.LADDER, ("cuda", "all")] == rungs
    assert [preset["neurons"], preset["layers"]] == [
        [networks.LADDER_PROBLEM.neurons],
        [networks.LADDER_PROBLEM.layers],
    ]
    assert set(networks.REPEATS) == {case.reductions for case in found}
    assert {case.problem.layers for case in networks.cases(quick=True)} == {120}


def test_what_there_is_no_time_for_is_left_out_and_not_passed(gpu, runs, capsys):
    networks, tally = gpu("networks"), gpu("tally").Tally(seconds=1000)
    made = runs(tally)
    made.opening = 1.0  # seconds for each edge
    made.run(
        [
            networks.Case(challenge.OfficialProblem(1024, 2), "cuda", "all"),
            networks.Case(challenge.OfficialProblem(1024, 2), "cuda", "none"),
        ]
    )
    assert (tally.passed, tally.left_out) == (1, ["1024-2 cuda none"])
    assert gpu("check").finish(tally, [["a table"], []]) == 3
    said = capsys.readouterr().out.splitlines()
    assert said[-2] == "left out, and so not passed: 1024-2 cuda none"
    assert said[-1].startswith("gpu-check incomplete: 1 passed, 0 failed, 1 left out")
    assert "a table" in said


def test_nothing_that_ran_is_no_pass(gpu):
    said, probed = [], []
    tally = gpu("tally").Tally(seconds=0, tell=said.append, probe=lambda: probed.append(1))
    assert tally.case("one", lambda: 1) is None
    assert tally.status == 1
    tally.seconds = None

    def stopped(error):
        raise error

    here, short = gpu("tally").NotHere("not installed"), gpu("tally").TooLittleTime("stopped after 5 s")
    for error in (here, short, KeyError("x")):
        tally.case("two", lambda error=error: stopped(error))
    assert tally.not_here == ["two: not installed"]
    assert tally.left_out == ["one", "two (stopped after 5 s)"]
    assert tally.failures[0].startswith("two: KeyError in ")
    assert [line[:5] for line in said] == ["not r", "FAIL "]
    assert probed == [1]
    assert tally.case("three", lambda: 2) == 2  # a failure that does not stay stops nothing


def test_after_a_fault_that_stays_nothing_runs_and_all_is_listed(gpu, on_shim, monkeypatch, capsys, tmp_path):
    """As after an illegal access on a GPU: every call of the process fails from then on."""
    device, check = on_shim(), gpu("check")
    lost = []

    def broken(network, *_, **__):
        lost.append("cudaErrorIllegalAddress")
        raise SpdnnError(lost[0])

    def synchronize():
        if lost:
            raise SpdnnError("a call of CUDA:\n cudaErrorIllegalAddress")

    device.synchronize = synchronize
    monkeypatch.setattr(gpu("correctness"), "_exact", broken)
    arguments = ["--quick", "--engines", "cuda-csr", "--results", str(tmp_path)]
    arguments += ["--parts", "correctness,kernels,ranks"]
    assert check.main(arguments) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(lost) == 1
    assert [line for line in said if line.startswith(("FAIL", "STOP"))] == [
        "FAIL  cuda-csr, exact network 0: cudaErrorIllegalAddress",
        "STOP  the device does nothing any more, and the rest is left out: a call of CUDA: cudaErrorIllegalAddress",
    ]
    assert said[-2].startswith("gpu-check FAIL: 18 passed, 1 failed, ")
    assert said[-3].startswith("left out, and so not passed: cuda-csr, exact network 1; cuda-csr, exact network 2; ")
    assert said[-3].endswith("; kernels at 16384; 1 rank; a rank that fails ends the run")


@pytest.fixture
def machine():
    return Machine("sm_90", [1e12], [1e13], [5e12], [1e13])


def test_the_benchmark_verifies_times_and_compares_kernels(gpu, vendor, tmp_path, capsys):
    path = tmp_path / "kernels.json"
    arguments = ["--neurons", "1024", "--samples", "2", "--megabytes", "1", "--json", str(path)]
    assert gpu("cuda_kernels").main(arguments) == 0
    content = json.loads(path.read_text())
    assert content["device"]["name"] == "CPU shim"
    assert content["machine"]["instruction_set"] == "sm_90"
    loads, found = max(content["machine"]["load_rates"]), content["kernels"]
    names = ["cusparse", "csr", "ell", "staged", "persistent", "persistent x4"]
    assert [(row["layer"], row["kernel"]) for row in found] == [
        (what, one) for what in ("plain", "merged") for one in names
    ]
    assert [(row["inputs"], row["outputs"]) for row in found[::6]] == [(1024, 1024), (64, 64)]
    for row in found:
        assert len(row["samples_seconds"]) == 2
        assert row["span"] == "kernel only"
        assert row["count"] == min(challenge.INPUTS, 2**18 // row["inputs"]) // 32 * 32
        assert row["edges_per_second"] == row["edges"] * row["count"] / row["median_seconds"]
        assert row["gather_share"] == pytest.approx(row["edges_per_second"] * 4 / loads)
    assert found[0]["times_cusparse"] == 1
    assert found[3]["times_cusparse"] == found[0]["median_seconds"] / found[3]["median_seconds"]
    said = capsys.readouterr().out.splitlines()
    assert "gathers/s from shared memory (the ceiling)" in said[0]
    assert len(said) == 2 + len(found)


def test_nothing_but_launches_of_the_library_is_in_its_time(gpu, vendor, monkeypatch):
    kernels, done, found = gpu("cuda_kernels"), [], modules()
    library = registry.engine("cusparse")

    def product(*given):
        done.append("bind")
        multiply = found.product(*given)
        return lambda: (done.append("product"), multiply())

    stream = SimpleNamespace(synchronize=lambda: done.append("wait"))
    found.array.cuda.get_current_stream = lambda: stream
    monkeypatch.setattr(Memory, "take", lambda array, real=Memory.take: (done.append("memory"), real(array)))
    monkeypatch.setattr(cusparse, "modules", lambda: found._replace(product=product))
    layer = kernels.layers(1024)["merged"]
    name, launch, verify, times = kernels.vendors(vendor, kernels.Features(layer, 96), None)
    assert {"bind", "product", "wait", "memory"} == set(done)
    activation = library._activation
    library._activation = lambda *given: (done.append("activation"), activation(*given))
    done.clear()
    vendor.seconds(launch)
    assert done == ["product", "activation"]
    verify()
    library._activation = lambda *given: None
    with pytest.raises(AssertionError):
        verify()
    assert (name, times) == ("cusparse", 1)


@pytest.mark.parametrize("wrong", ["before", "after"])
def test_a_kernel_that_computes_wrongly_has_no_number(gpu, on_shim, machine, monkeypatch, wrong):
    device, kernels = on_shim(), gpu("cuda_kernels")
    checks = []

    def check(self, found, times=1, exact=True, real=kernels.Features.check):
        last = (found.shape[0] - 1, found.shape[1] - 1, 31)
        if exact:
            checks.append(times)
        if not exact or len(checks) == (1 if wrong == "before" else 2):  # cuSPARSE may change bits
            found[last] = np.nextafter(found[last], 0)  # one bit of one value of a tile that repeats another
        real(self, found, times, exact)

    monkeypatch.setattr(kernels.Features, "check", check)
    with pytest.raises(AssertionError, match="1 of 8 tiles differ"):
        kernels.measure(device, machine, [1024], 1, 1 << 20, tell=lambda line: None)
    assert len(checks) == (1 if wrong == "before" else 2)


def executable(path, text):
    """A shell script at this path."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


PYTHON = """
case "$*" in
    *show*cupy-cuda{there}x) exit 0 ;;
    *show*) exit 1 ;;
    *) echo "$@" >> {log} ;;
esac
"""


@pytest.mark.parametrize(
    ("asked", "driver", "devices", "there", "wanted"),
    [
        ("auto", "13.0", "9.0", None, 13),
        ("auto", "13.1", "8.0\n7.0\n10.0", None, 12),
        ("auto", "13.0", "10.0\n7.5", None, 13),
        ("auto", "13.0", "7.0", 13, 12),
        ("auto", "13.0", "9.0", 13, 13),
        ("auto", "13.0", "9.0", 12, 12),
        ("auto", "12.9", "9.0", None, 12),
        ("auto", "12.9", "9.0", 13, 12),
        ("auto", "13.0", 'Field "compute_cap" is not a valid field to query.', None, 13),
        ("13", "12.9", "9.0", 12, 13),
        ("12", None, None, None, 12),
    ],
)
def test_setup_gets_the_cupy_for_driver_and_device(root, tmp_path, asked, driver, devices, there, wanted):
    """A V100's last driver is for CUDA 13, whose compiler has no V100."""
    log = tmp_path / "log"
    executable(tmp_path / "python", PYTHON.format(there=there, log=log))
    executable(tmp_path / "spdnn", f'echo "$@" >> {log}')
    told = f"case \"$*\" in *compute_cap*) echo '{devices}' ;; *) echo 'CUDA Version: {driver} |' ;; esac"
    executable(tmp_path / "nvidia-smi", told if driver else "exit 9")
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", root / "envs/cuda.sh", tmp_path, asked], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    *before, installed, ran = [*log.read_text().splitlines(), *([] if driver else [None])]
    assert f"--require-hashes -r envs/cuda{wanted}.txt" in installed
    other = 25 - wanted
    assert before == ([f"-m pip uninstall --yes --quiet cupy-cuda{other}x"] if there == other else [])
    assert ran == ("challenge --engine cuda --neurons 1024 --layers 1 --inputs digits" if driver else None)


@pytest.mark.parametrize(
    ("asked", "smi", "sentence"),
    [
        ("11", "exit 9", "CUDA=11: it must be 12, 13 or auto"),
        ("auto", "exit 9", "CUDA=auto needs an NVIDIA GPU with its driver, "),
        ("auto", "echo '| CUDA Version: 11.0 |'", "the driver here is for CUDA 11, "),
    ],
)
def test_setup_refuses(root, tmp_path, asked, smi, sentence):
    executable(tmp_path / "nvidia-smi", smi)
    status, out, told = finished(
        ["sh", root / "envs/cuda.sh", tmp_path, asked], env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    )
    assert (status, out) == (1, "")
    assert re.fullmatch(f"spdnn: {re.escape(sentence)}.*\n", told)


def test_the_promise_is_kept_and_the_overlap_told(gpu, runs):
    schedules, made, kept = gpu("device_schedules"), runs(), []
    problem = challenge.OfficialProblem(1024, 12)
    found = schedules.promised(made, kept.append, problem, 3 << 20)
    assert made.tally.failures == []
    assert found["device_memory_bytes"] == 3 << 20
    assert max(found["memory_bytes"]) <= 3 << 20
    assert set(found["busy_seconds"]["0"]) == {"compute", "copy-weights"}
    assert found["times_busiest_lane"] > 0
    (record,) = kept
    assert record.case.startswith("radixnet-1024-12.mnist-1024.taskgraph-cuda.dead.stream-d1")
    assert record.environment.command.endswith("--schedule stream --device-memory 3145728 --record run.json")


def test_gaps_are_between_launches_like_those_of_layers(gpu, on_shim):
    """With three arguments, as before, a launch from Python seemed shorter."""
    device, bound = on_shim(), []

    def bind(kernel, *given, real=device.bind):
        bound.append(kernel)
        return real(kernel, *given)

    device.bind = bind
    assert set(gpu("device_schedules").gaps(device, launches=3)) == {"launched from Python", "in a graph"}
    assert [17 <= len(kernel.parameters) <= 22 for kernel in bound] == [True]


def test_a_schedule_that_gives_other_bits_fails(gpu, on_shim, monkeypatch):
    schedules, tally, real = gpu("device_schedules"), gpu("tally").Tally(tell=lambda told: None), infer
    on_shim()

    def fewer(network, inputs, *given, **named):
        return real(network, inputs.first(inputs.count - 1), *given, **named)

    monkeypatch.setattr(schedules, "infer", fewer)
    schedules.check(tally, 0, [], (64, 4, 40))
    assert tally.passed == 0
    assert tally.failures


SANITIZERS = {  # cases that passed; where else they are told, and the words of it
    "echo '========= ERROR SUMMARY: 0 errors'": (None, ""),
    "echo '========= Invalid __global__ write of size 4'; exit 77": ("failures", "correctness: ========= Invalid"),
    "echo '========= Error: Device not supported. Exiting'; exit 1": ("not_here", "Error: Device not supported"),
    "echo 'gpu-check incomplete: 3 passed'; exit 3": ("left_out", "correctness (gpu-check incomplete: 3 passed)"),
    "exec sleep 3000": ("left_out", "stopped after 1"),
}


@pytest.mark.parametrize("script", SANITIZERS)
def test_compute_sanitizer(gpu, tmp_path, monkeypatch, script):
    check, tally = gpu("check"), gpu("tally").Tally()
    executable(tmp_path / "compute-sanitizer", f'echo "$@" >> {tmp_path}/given\n{script}')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sleeps, runs = "sleep" in script, len(check.SANITIZED)
    seconds = runs * (0.5 if sleeps else 100)
    check.check_sanitized(tally, argparse.Namespace(device=None, parts="sanitizer", seconds=seconds), least=0.5)
    place, words = SANITIZERS[script]
    assert tally.passed == (0 if place else runs)
    for name in ("failures", "not_here", "left_out"):
        assert len(getattr(tally, name)) == (runs if name == place else 0)
    assert place is None or words in getattr(tally, place)[0]
    if sleeps:  # it may have been stopped before it told what it was given
        return
    given = (tmp_path / "given").read_text().splitlines()
    assert given[0].startswith("--tool memcheck --report-api-errors no --error-exitcode 77 ")
    assert given[1].startswith("--tool racecheck --error-exitcode 77 ")
    for part in ("correctness", "taskgraph", "ops"):
        assert any(f"check.py --parts {part} --quick --sanitized" in line for line in given)
    assert {line.split()[1] for line in given} == {"memcheck", "racecheck", "synccheck", "initcheck"}


def test_compute_sanitizer_takes_a_quarter_of_the_time_beside_other_parts(gpu, tmp_path, monkeypatch):
    check, tally = gpu("check"), gpu("tally").Tally()
    executable(tmp_path / "compute-sanitizer", "sleep 0.5; echo '========= ERROR SUMMARY: 0 errors'")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    check.check_sanitized(tally, argparse.Namespace(device=None, parts="first,sanitizer", seconds=8.0), least=1.0)
    assert 1 <= tally.passed <= 3
    assert len(tally.left_out) == len(check.SANITIZED) - tally.passed


def test_without_compute_sanitizer_it_is_not_run(gpu, tmp_path, monkeypatch):
    check, tally = gpu("check"), gpu("tally").Tally()
    monkeypatch.setenv("PATH", str(tmp_path))
    check.check_sanitized(tally, argparse.Namespace(device=None, parts="sanitizer", seconds=100))
    assert (tally.passed, tally.not_here) == (0, ["compute-sanitizer is not installed"])


def test_what_runs_under_a_tool_is_not_timed_nor_poisoned(gpu, on_shim, monkeypatch, tmp_path, capsys):
    """A record is of no use there, and what is poisoned is written. All cases are listed, for there is no time."""
    check, allocators = gpu("check"), []
    device = on_shim()
    monkeypatch.setattr(gpu("correctness"), "POISON", True)
    stand_in = SimpleNamespace(cuda=SimpleNamespace(set_allocator=allocators.append))
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    check.main(["--parts", "taskgraph,ops", "--sanitized", "--seconds", "0", "--results", str(tmp_path)])
    assert allocators == [None]
    said = capsys.readouterr().out
    assert "taskgraph-cuda, stream, rectangular; " in said
    assert "; spmm, float32, 16-bit indices; " in said
    assert "gaps between launches" not in said
    assert "ceilings of the operations" not in said
    kept = gpu("correctness").Poisoned(SimpleNamespace(empty=device.empty, fill=None)).empty(3, np.uint8)
    assert kept.size == 3


ALONE = """
import sys
from pathlib import Path

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent} or name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.path[:0] = {folders}
from shim import ShimDevice, stand_ins

for stand_in in stand_ins([ShimDevice()]):
    setattr(*stand_in)
import numpy as np
import check, correctness, networks
from spdnn.problem.challenge import OfficialProblem
from tally import Tally

tally = Tally()
networks.REPEATS = dict.fromkeys(networks.REPEATS, 2)
correctness.run(tally, 1, ["cuda"], ["one input"], (64, 3, 100), exact=1, chosen=(), large={{}})
found = check.RunRecords(Path({out}) / "all.jsonl")
runs = networks.Networks(tally, found.add, None)
runs._inputs[1024] = correctness.rows(64, 1024, kind="bits", density=np.linspace(0.05, 0.35, 64)[:, None]), 0.5
runs.run([networks.Case(OfficialProblem(1024, 2), "cuda", "all")])
sys.exit(check.finish(tally, [[*runs.rows, *found.finish()]]))
"""


def test_it_needs_no_compiled_kernels(root, tmp_path):
    """As on a machine whose Python has numpy, scipy, msgspec and CuPy alone."""
    absent = {"spdnn.kernels._cpu", "jsonschema", "pytest", "hypothesis", "pandas", "sklearn", "yaml",
              "mpi4py", "snakemake", "tqdm", "requests", "blake3", "threadpoolctl", "jinja2"}  # fmt: skip
    (tmp_path / "out").mkdir()
    folders = [str(path) for path in (root, root / "tests/cuda", root / "tests/gpu")]
    code = ALONE.format(absent=absent, folders=folders, out=repr(str(tmp_path / "out")))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu-check pass" in done.stdout
    assert "all.jsonl" in done.stdout
    (record,) = read_all([tmp_path / "out/all.jsonl"])[0]  # sound all the same
    assert record.verdict.passed
