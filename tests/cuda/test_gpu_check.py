"""`make gpu-check` and benchmarks/cuda_kernels.py on the CPU shim, so that neither waits for a GPU to be tried."""

import argparse
import json
import os
import subprocess
import sys
import time
import zipfile
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from children import executable
from engine_cases import rows
from operation_cases import made_operation
from stand_in_cupy import Memory, modules

from spdnn.api import infer
from spdnn.common.errors import SpdnnError
from spdnn.common.validation import convert
from spdnn.engines import registry
from spdnn.engines.cuda import ceilings, choice, layers, session
from spdnn.engines.libraries import cusparse
from spdnn.engines.registry import ENGINES
from spdnn.kernels.cuda.sliced import slice_layer
from spdnn.ops import cuda as cuda_ops
from spdnn.ops import oracle, problems
from spdnn.peers.libraries.base import DENSE, OURS, SPARSE
from spdnn.problem import challenge
from spdnn.records.files import read_all
from spdnn.records.limits import Machine
from spdnn.records.operation_record import OperationRecord
from spdnn.records.record_files import record_files
from spdnn.reductions.registry import parse_reductions
from spdnn.sources.radixnet import RadixNet
from tests.records.test_run_record import changed

SMALL, DEEPER = challenge.OfficialProblem(1024, 2), challenge.OfficialProblem(1024, 3)
IMAGES = rows(64, 1024, kind="bits", density=np.linspace(0.05, 0.35, 64)[:, None])  # instead of MNIST's
FAST = Machine("sm_90", *[[1e15]] * 4)  # nothing that the shim's clock tells is past it
LAYERS = {shape.layer for shape in problems.read_shapes()}
PRODUCTS = [
    problems.Shape("a", "transformer", "encoder_0_attention_q", 24, 40, 8, None, 2, "random", "", "made up"),
    problems.Shape("a", "resnet-50", "group3_2", 10, 30, 1, None, 1, "random", "", "made up"),
]


@pytest.fixture(autouse=True)
def few_launches(gpu, set_all, little_measured):
    """Kernels are chosen, and products made, with as few launches and inputs as can be."""
    few = lambda count, *given, **named: rows(min(count, 100), *given, **named)  # noqa: E731
    set_all(gpu("correctness"), rows=few)
    set_all(ceilings, measure=lambda device, seconds=1.0: FAST)
    set_all(problems, read_shapes=lambda path=None: PRODUCTS)
    set_all(gpu("operation_checks"), ROWS=24, KEYS=60, LONGEST=50, WIDTHS=(3, 16), DEPTHS=(8,))
    set_all(gpu("device_ops"), SAMPLES=2, TRIES=1)
    libraries = gpu("device_libraries")
    set_all(libraries, programs=lambda device, product: played(libraries, device, product))


@pytest.fixture
def vendor(on_shim, set_all):
    """The shim, and beside it the engine cusparse on NumPy, whose trials are small."""
    set_all(cusparse, modules=modules, TRIAL_NEURONS=40, TRIAL_INPUTS=3)
    registry._load.cache_clear()
    return on_shim()


@pytest.fixture
def tally(gpu):
    """One that says nothing."""
    return gpu("tally").Tally(tell=lambda told: None)


@pytest.fixture
def runs(gpu, on_shim, set_all, tmp_path, tally):
    """A Networks of IMAGES."""
    on_shim()
    networks = gpu("networks")
    set_all(networks, mnist_inputs=lambda neurons, path: IMAGES, locate_mnist=lambda path: path)
    return networks.Networks(tally, gpu("check").RunRecords(tmp_path / "all.jsonl").add, None)


def played(libraries, device, product):
    """cuSPARSE, cuBLAS, and cuBLAS with rounded operands, by the reference."""
    spmm = product.operation == "spmm"
    operands = (product.values, product.first) if spmm else (product.first, product.second)

    def program(name, kind, dtype=np.float32, unit=0.0):
        out = device.empty(int(np.prod(product.shape)), dtype).reshape(product.shape)
        given = product.topology, *(one.astype(dtype) for one in operands)
        work = lambda: np.copyto(out, getattr(oracle, product.operation)(*given), casting="same_kind")  # noqa: E731
        launches = {"one way": lambda: device.issue(work)}
        return libraries.Timed(name, kind, "NumPy", launches, out, device.read, 8, not unit, unit, dtype)

    yield lambda: program("cusparse", SPARSE)
    yield lambda: program("cublas", DENSE)
    yield lambda: program("cublas-half", DENSE, np.float16, 2.0**-11)


def wrong_slices(layer, **given):
    return slice_layer(replace(layer, values=layer.values * np.float32(1.01)), **given)


def counted(metrics):
    """What Nsight Compute prints of nine launches."""
    page = ["program's own line", '"ID","Kernel Name",' + ",".join(f'"{name}"' for name in metrics)]
    page += ['"","",' + ",".join('"unit"' for _ in metrics)]
    page += [f'"{i}","staged_layer",' + ",".join(f'"{640 * (i + 1):,}"' for _ in metrics) for i in range(9)]
    return "\n".join(page)


def test_the_whole_program(gpu, vendor, monkeypatch, set_all, tmp_path, capsys):
    """Every part, with small problems and few repeats; of other programs there are stand-ins, and no MPI."""
    check, networks, schedules, kernels = map(gpu, ("check", "networks", "device_schedules", "cuda_kernels"))
    # The network of the first part is kept, and not deep enough for that of part networks.
    wanted = [(DEEPER, "cuda", "all"), (SMALL, "cuda-csr", "none"), (SMALL, "cuda-staged", "dead,inputs")]
    set_all(networks, mnist_inputs=lambda neurons, path: IMAGES, locate_mnist=lambda path: path, LADDER_PROBLEM=SMALL)
    set_all(networks, cases=lambda *given: [networks.Case(*case) for case in wanted])
    set_all(networks, REPEATS=dict.fromkeys(networks.REPEATS, 2))
    set_all(check, QUICK_SHAPES=["logits"], QUICK_DEEP=(64, 3, 100))
    monkeypatch.setitem(gpu("correctness").CHOSEN, "1024 neurons", lambda: RadixNet(64, choice.LATER + 1, -0.3))
    set_all(schedules, QUICK_COMPARED=SMALL, DEEP=(64, 12, 100), SOME_SHAPES=["one input"], REDUCTIONS=["dead,inputs"])
    few = lambda device, machine, widths, samples, size, *rest, real=kernels.measure: real(  # noqa: E731
        device, machine, [1024], 1, 1 << 19, *rest
    )
    set_all(kernels, measure=few)
    set_all(schedules, gaps=lambda device, real=schedules.gaps: real(device, 10))
    set_all(challenge, WIDTHS=(1024,))
    set_all(gpu("device_ranks"), MPIEXEC=tmp_path / "mpiexec")
    (tmp_path / "bin").mkdir()
    executable(
        tmp_path / "bin/compute-sanitizer", f'echo "$@" >> {tmp_path}/given\necho "===== ERROR SUMMARY: 0 errors"'
    )
    executable(tmp_path / "bin/ncu", f"cat <<'END'\n{counted(gpu('profiling').METRICS.values())}\nEND")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")

    folder = tmp_path / "records"
    assert check.main(["--quick", "--profile", "--seed", "5", "--results", str(folder), "--mnist", "images"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("CPU shim: compute capability 9.0, g++")
    assert "seed 5" in said
    assert "FAIL" not in said

    # Each engine on each kind of inputs, and their digests; exact networks; past float32; batches; counts; choices;
    # memory, compiler.
    passed = 3 * 7 + 4 * 6 + 5 + 6 + 3 + 1 + 2
    assert set(gpu("correctness").ENGINES) == {*(name for name in ENGINES if name.startswith("cuda")), "cusparse"}
    passed += 2 + (1 + 1) + len(check.SANITIZED) + len(wanted)  # first; the ceilings and one width
    passed += 4 * 2 + 1 + 2 * 2 * 4  # every schedule, gaps, runs and their records
    products = 2 * 2  # of each dtype and index: six operations; quick: spmm and sddmm of each shape
    passed += 2 * 2 * 6 + 1 + products + 1  # the ceilings; the profile
    details, first, ops, scheduled, found, packed = sorted(folder.iterdir())
    assert said.splitlines()[-2].startswith(f"gpu-check pass: {passed} passed, 0 failed, 0 left out")
    assert said.splitlines()[-1] == f"to send back: {packed}"
    assert "not run here: 1 rank: mpi4py and the mpiexec of its MPI are not installed next to " in said
    assert record_files(folder).records == [first, ops, scheduled, found]  # what `spdnn report FOLDER` reads

    # Records, and what no report reads; all are in one file.
    cases = [record.case for record in read_all([first, found])[0]]
    names = ("2.mnist-1024.cuda.all", "3.mnist-1024.cuda.all", "2.mnist-1024.cuda-csr.none")
    assert cases == [f"radixnet-1024-{name}" for name in (*names, "2.mnist-1024.cuda-staged.dead+inputs")]
    records = read_all([first, found])[0]
    assert {(record.verdict.truth.kind, record.machine.instruction_set) for record in records} == {("oracle", "sm_90")}
    assert len({record.result.categories_sha256 for record in records if record.problem.layers == 2}) == 1
    records = read_all([scheduled])[0]
    assert len(records) == 8
    for record in records:
        assert set(record.engine.noted["times_graph"]) == {"graph", "stream", "resident", "cuda"}
        assert record.engine.noted["times_graph"]["graph"] == 1
    records = read_all([ops])[1]
    assert len(records) == 3 * products  # those whose operands are rounded have none
    assert {record.program.name for record in records} == {"ours", "cusparse", "cublas"}
    assert all(record.program.notes["chosen"] for record in records)
    told = {path.stem: json.loads(path.read_text()) for path in details.iterdir()}
    assert set(told) == {"kernels", "ops", "profile", "taskgraph"}
    assert told["kernels"]["kernels"]
    assert set(told["taskgraph"]["launch_gap_seconds"]) == {"launched from Python", "in a graph"}
    for means in told["ops"]["times_ours"].values():
        assert set(means) == {"ours", "ours-half", "cusparse", "cublas", "cublas-half"}
        assert means["ours"] == 1
    launches = [(row["neurons"], row["layer"], row["registers"]) for row in told["profile"]["launches"]]
    assert (len(launches), launches[:3]) == (9, [(1024, 6, 640), (1024, 9, 1280), (1024, 11, 1920)])
    with zipfile.ZipFile(packed) as archive:
        whole = [path.name for path in (first, ops, scheduled, found)]
        assert archive.namelist() == ["found.json", *whole, *(f"{details.name}/{name}.json" for name in sorted(told))]
        content = json.loads(archive.read("found.json"))
    assert content["device"]["name"] == "CPU shim"
    assert all(f"\n  {one}\n" in said for one in content["not_covered"])

    # Tables, and once more at the end.
    assert said.index(kernels.HEAD) < said.rindex(kernels.HEAD)
    assert all(f"\n{head}\n" in said for head in (networks.HEAD, gpu("device_ops").HEAD, gpu("profiling").HEAD))
    (line, _) = [line for line in said.splitlines() if "1024-2 cuda-csr none" in line]
    assert "(loads)" in line
    assert line.split()[-1] == "csr"
    assert "spmm at 90 %: times ours, geometric mean: ours 1.00, " in said

    given = (tmp_path / "given").read_text().splitlines()
    assert given[0].startswith("--tool memcheck --report-api-errors no --error-exitcode 77 ")
    assert given[1].startswith("--tool racecheck --error-exitcode 77 ")
    assert {line.split()[1] for line in given} == {"memcheck", "racecheck", "synccheck", "initcheck"}
    for part in ("correctness", "taskgraph", "ops"):
        assert any(f"check.py --parts {part} --quick --sanitized" in line for line in given)


def test_a_wrong_kernel_is_named_and_what_fails_first_ends_it(gpu, vendor, set_all, tally, tmp_path, capsys):
    check, correctness = gpu("check"), gpu("correctness")
    set_all(layers, slice_layer=wrong_slices)
    assert check.main(["--mnist", str(tmp_path / "absent"), "--results", str(tmp_path)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-3] == "left out, and so not passed: the parts " + ", ".join(check.PARTS[1:])
    assert [line[:11] for line in said if line.startswith("failed: ")][-1] == "failed: 102"
    correctness.run(tally, 0, ["cuda-csr", "cuda-ell"], ["rectangular"], (64, 4, 100), exact=1)
    told = {failure.split(",")[0] for failure in tally.failures}
    assert tally.status == 1
    assert "cuda-ell" in told
    assert "cuda-csr" not in told


def test_without_mnist_it_takes_digits(gpu, on_shim, set_all, tmp_path, capsys):
    def absent(path):
        raise SpdnnError("no address answers")

    on_shim()
    set_all(gpu("networks"), locate_mnist=absent, LADDER_PROBLEM=SMALL)
    assert gpu("check").main(["--parts", "first", "--results", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "not run here: 1024-2 cuda all: the MNIST images cannot be had (--mnist FILE names them)" in said
    assert "gpu-check pass: 2 passed, 0 failed" in said


def test_cases_are_the_twelve_and_the_ladder(gpu, root):
    networks = gpu("networks")
    found = networks.cases()
    for reductions in ("all", "dead"):
        listed = [case.problem for case in found if (case.engine, case.reductions) == ("cuda", reductions)]
        assert sorted(listed, key=challenge.PROBLEMS.index) == list(challenge.PROBLEMS)
    none = [case.problem.name for case in found if (case.engine, case.reductions) == ("cuda", "none")]
    assert ("1024-1920" in none, "65536-1920" in none) == (True, False)
    preset = yaml.safe_load((root / "config/ladder-cuda.yaml").read_text())
    assert [*networks.LADDER, ("cuda", "all")] == [(rung["engine"], rung["reductions"]) for rung in preset["ladder"]]
    problem = networks.LADDER_PROBLEM
    assert (preset["neurons"], preset["layers"]) == ([problem.neurons], [problem.layers])
    assert set(networks.REPEATS) == {case.reductions for case in found}
    assert {case.problem.layers for case in networks.cases(quick=True)} == {120}
    assert set(gpu("device_ops").QUICK_LAYERS) <= LAYERS


def test_what_there_is_no_time_for_is_left_out_and_not_passed(gpu, runs, tally, capsys):
    networks = gpu("networks")
    tally.seconds, runs.opening = 1000, 1.0  # seconds for each edge
    runs.run([networks.Case(SMALL, "cuda", reductions) for reductions in ("all", "none")])
    assert gpu("check").finish(tally, [["a table"], []]) == 3
    said = capsys.readouterr().out.splitlines()
    assert said[-2] == "left out, and so not passed: 1024-2 cuda none"
    assert said[-1].startswith("gpu-check incomplete: 1 passed, 0 failed, 1 left out")
    assert "a table" in said


def test_nothing_that_ran_is_no_pass(gpu):
    tally = gpu("tally").Tally(seconds=0, tell=lambda told: None, probe=lambda: None)
    assert tally.case("one", lambda: 1) is None
    assert (tally.status, tally.left_out) == (1, ["one"])
    tally.seconds = None
    tally.case("two", lambda: {}["x"])
    assert tally.failures[0].startswith("two: KeyError in ")
    assert tally.case("three", lambda: 2) == 2  # a failure that does not stay stops nothing


def test_after_a_fault_that_stays_nothing_runs_and_all_is_listed(gpu, on_shim, set_all, capsys, tmp_path):
    """As after an illegal access on a GPU: every call of the process fails from then on."""
    device, lost = on_shim(), []

    def broken(network, *_, **__):
        lost.append("cudaErrorIllegalAddress")
        raise SpdnnError(lost[0])

    def synchronize():
        if lost:
            raise SpdnnError("a call of CUDA:\n cudaErrorIllegalAddress")

    device.synchronize = synchronize
    set_all(gpu("correctness"), _exact=broken)
    arguments = ["--quick", "--engines", "cuda-csr", "--results", str(tmp_path)]
    assert gpu("check").main([*arguments, "--parts", "correctness,kernels,ranks"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(lost) == 1
    assert [line for line in said if line.startswith(("FAIL", "STOP"))] == [
        "FAIL  cuda-csr, exact network 0: cudaErrorIllegalAddress",
        "STOP  the device does nothing any more, and the rest is left out: a call of CUDA: cudaErrorIllegalAddress",
    ]
    assert said[-2].startswith("gpu-check FAIL: 18 passed, 1 failed, ")
    assert said[-3].startswith("left out, and so not passed: cuda-csr, exact network 1; cuda-csr, exact network 2; ")
    assert said[-3].endswith("; kernels at 16384; 1 rank; a rank that fails ends the run")


@pytest.mark.parametrize(
    ("name", "wrong", "sentence"),
    [
        ("cuda-csr", "reductions", "^dead: other bits than without it$"),
        ("cusparse", "repeats", "^none: 4 outputs of three repeats and a run before"),
        ("cusparse", "reductions", None),  # it may take another kernel for other columns
    ],
)
def test_bits_that_change_are_found(gpu, vendor, set_all, name, wrong, sentence):
    correctness, told = gpu("correctness"), []

    def changed_with(got, reductions):
        told.append(got)
        change = sorted(parse_reductions(reductions)) if wrong == "reductions" else len(told)
        return SimpleNamespace(digest=f"{got.digest} {change}", survivors=got.survivors)

    def same(name, network, inputs, reductions, real=correctness.assert_same):
        got, expected = real(name, network, inputs, reductions=reductions)
        return changed_with(got, reductions), expected

    def opened(name, network, inputs, reductions, real=correctness.opened):
        made = real(name, network, inputs, reductions)
        return SimpleNamespace(run=lambda: changed_with(made.run(), reductions))

    set_all(correctness, assert_same=same, opened=opened)
    with pytest.raises(AssertionError, match=sentence) if sentence else nullcontext():
        correctness._agrees(name, RadixNet(64, 4, -0.3), rows(40, 64, kind="bits", density=0.3))


def test_wrong_counts_are_found(gpu, on_shim, set_all):
    on_shim(multiprocessors=1)
    correctness, real = gpu("correctness"), session.result
    for name in correctness.ONE_LAYER:
        correctness._counts(name, (64, 12, 90), 1)
    for reductions in ("none", "dead"):

        def more(*given, reductions=reductions):
            got, wrong = real(*given), ("dead" if given[0].leaving else "none") == reductions
            return replace(got, edges_computed=got.edges_computed + 32 * wrong)

        set_all(session, result=more)
        with pytest.raises(AssertionError, match=f"{reductions}: .* the host counts"):
            correctness._counts("cuda-staged", (64, 12, 90), 1)


def test_places_that_do_not_fit_are_found(gpu, on_shim):
    """A kernel writes what is beyond so many features to the begin, as one that counts in 32 bits does."""
    correctness, device = gpu("correctness"), on_shim(multiprocessors=1)
    for name in correctness.LARGEST:
        correctness._large(name, 64, 2**15)

    def bind(kernel, blocks, arguments, *given, real=device.bind):
        launch = real(kernel, blocks, arguments, *given)

        def work():
            launch()
            if kernel.name == "staged_layer":
                device.issue(lambda: arguments["target"][2**15 :].fill(0))  # in a graph, too

        return work

    device.bind = bind
    with pytest.raises(AssertionError, match="other inputs are active|copies of the rows differ"):
        correctness._large("cuda-staged", 64, 2**15)
    device.limit = 1 << 18
    with pytest.raises(gpu("tally").NotHere, match="bytes are needed"):
        correctness._large("cuda-staged", 64, 2**15)


def test_a_kernel_that_is_timed_and_not_taken_is_compared(gpu, on_shim, set_all):
    """ELL computes wrongly on few rows, and is the slowest."""
    on_shim(multiprocessors=1)

    def slow(device, laid, source, target, count, times, real=choice.several_layers):
        launch = real(device, laid, source, target, count, times)

        def work():
            launch()
            if laid.kind == "ell":
                time.sleep(0.05)
                target[:1] *= 1 + (count == 1)

        return work

    set_all(choice, several_layers=slow)
    with pytest.raises(AssertionError, match="other bits than [a-z]+: ell"):
        gpu("correctness")._chosen(RadixNet(64, choice.LATER + 1, -0.3))


def test_what_is_wrong_has_no_record(gpu, runs, tally, set_all, tmp_path):
    half = lambda layer, **given: slice_layer(replace(layer, values=layer.values * np.float32(0.5)), **given)  # noqa: E731
    set_all(layers, slice_layer=half)
    runs.run([gpu("networks").Case(DEEPER, "cuda-ell", "none")])
    assert tally.status == 1
    assert "categories of the ground truth are missing" in tally.failures[0]
    made = changed(made_operation() | {"case": "made up"}, "verification.worst", 2.0)
    with pytest.raises(SpdnnError, match="made up"):
        gpu("check").OperationRecords(tmp_path / "all-ops.jsonl").add(convert(OperationRecord, made, "r"))
    assert not list(tmp_path.iterdir())


def test_schedules_give_the_bits_of_cuda_within_what_was_promised(gpu, runs, tally, set_all):
    schedules, kept = gpu("device_schedules"), []
    found = schedules.promised(runs, kept.append, challenge.OfficialProblem(1024, 12), 3 << 20)
    assert tally.failures == []
    assert max(found["memory_bytes"]) <= found["device_memory_bytes"] == 3 << 20
    assert set(found["busy_seconds"]["0"]) == {"compute", "copy-weights"}
    assert found["times_busiest_lane"] > 0
    assert kept[0].environment.command.endswith("--schedule stream --device-memory 3145728 --record run.json")
    with pytest.raises(AssertionError, match="6 bytes on a device, 5 promised"):
        schedules.kept([4, 6], 5)
    fewer = lambda network, inputs, *given, **named: infer(network, inputs.first(39), *given, **named)  # noqa: E731
    set_all(schedules, infer=fewer)
    passed = tally.passed
    schedules.check(tally, 0, [], (64, 4, 40))
    assert tally.passed == passed
    assert tally.failures


@pytest.mark.parametrize("wrong", ["ours", "cusparse"])
def test_a_wrong_program_is_a_failure_and_has_no_record(gpu, on_shim, tally, tmp_path, set_all, wrong):
    ops, found = gpu("device_ops"), []
    module, name = {"ours": (ops, "ours"), "cusparse": (gpu("device_libraries"), "programs")}[wrong]
    real = getattr(module, name)

    def doubled(device, product, *given):
        return real(device, replace(product, values=2 * product.values, first=2 * product.first), *given)

    set_all(module, **{name: doubled})
    ops.run(tally, on_shim(), 3, found.append, str(tmp_path / "all"), False)
    assert tally.status == 1
    assert any(f"program {wrong} gave a wrong output" in failure for failure in tally.failures)
    assert wrong not in {record.program.name for record in found}


def test_a_library_that_is_not_there_is_told_once(gpu, on_shim, tally, set_all, tmp_path):
    def absent():
        raise ImportError("libcublas is not\nthere")

    set_all(gpu("device_libraries"), programs=lambda device, product: [absent])
    gpu("device_ops").run(tally, on_shim(), 3, lambda record: None, str(tmp_path / "all"), True)
    assert tally.failures == []
    assert tally.not_here == [f"{name} beside a library: libcublas is not there" for name in ("spmm", "sddmm")]


def test_a_wrong_operation_fails_the_check(gpu, on_shim, tally, set_all):
    def wrong(self, operation, *arguments, real=cuda_ops.CudaBackend._run):
        real(self, operation, *arguments)
        arguments[-1].reshape(-1)[0] += 1

    set_all(cuda_ops.CudaBackend, _run=wrong)
    gpu("operation_checks").check(tally, on_shim(), 0)
    failed = {failure.split(",")[0] for failure in tally.failures}
    assert failed == {"sddmm", "softmax", "gather", "attention", "depthwise"}  # spmm's launches are bound, each setting


def test_bits_that_change_are_not_chosen(gpu, on_shim):
    device, libraries, ops = on_shim(), gpu("device_libraries"), gpu("device_ops")
    out = device.upload(np.zeros(4, np.float32))
    moving = lambda: device.issue(lambda: out.__setitem__(0, out[0] + 1))  # noqa: E731
    still = lambda: device.issue(lambda: out.fill(7))  # noqa: E731
    one = libraries.Timed("one", SPARSE, "", {"moving": moving, "still": still}, out, device.read, 0)
    assert ops.chosen(device, one, device.lead()) is still
    assert one.notes["chosen"] == "still"
    for kind, error in ((SPARSE, gpu("tally").NotHere), (OURS, AssertionError)):  # no fault of ours, and one
        with pytest.raises(error, match="gives other bits each time"):
            ops.chosen(device, replace(one, kind=kind, launches={"moving": moving}), device.lead())


def test_the_benchmark_compares_kernels(gpu, vendor, tmp_path, capsys):
    path = tmp_path / "kernels.json"
    arguments = ["--neurons", "1024", "--samples", "2", "--megabytes", "1", "--json", str(path)]
    assert gpu("cuda_kernels").main(arguments) == 0
    content = json.loads(path.read_text())
    loads, found = max(content["machine"]["load_rates"]), content["kernels"]
    names = ["cusparse", "csr", "ell", "staged", "persistent", "persistent x4"]
    assert [(row["layer"], row["kernel"]) for row in found] == [
        (what, one) for what in ("plain", "merged") for one in names
    ]
    assert [(row["inputs"], row["outputs"]) for row in found[::6]] == [(1024, 1024), (64, 64)]
    for row in found:
        assert len(row["samples_seconds"]) == 2
        assert row["count"] == min(challenge.INPUTS, 2**18 // row["inputs"]) // 32 * 32
        assert row["edges_per_second"] == row["edges"] * row["count"] / row["median_seconds"]
        assert row["gather_share"] == pytest.approx(row["edges_per_second"] * 4 / loads)
    assert found[3]["times_cusparse"] == found[0]["median_seconds"] / found[3]["median_seconds"]
    assert len(capsys.readouterr().out.splitlines()) == 2 + len(found)


def test_nothing_but_launches_of_the_library_is_in_its_time(gpu, vendor, set_all):
    kernels, done, found = gpu("cuda_kernels"), [], modules()
    library = registry.engine("cusparse")

    def product(*given):
        done.append("bind")
        multiply = found.product(*given)
        return lambda: (done.append("product"), multiply())

    stream = SimpleNamespace(synchronize=lambda: done.append("wait"))
    found.array.cuda.get_current_stream = lambda: stream
    set_all(Memory, take=lambda array, real=Memory.take: (done.append("memory"), real(array)))
    set_all(cusparse, modules=lambda: found._replace(product=product))
    name, launch, verify, times = kernels.vendors(vendor, kernels.Features(kernels.layers(1024)["merged"], 96), None)
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


@pytest.mark.parametrize("checked", [1, 2])
def test_a_kernel_that_computes_wrongly_has_no_number(gpu, on_shim, set_all, checked):
    """Before it is timed, or after."""
    device, kernels, checks = on_shim(), gpu("cuda_kernels"), []

    def check(self, found, times=1, exact=True, real=kernels.Features.check):
        checks.extend([self] * exact)  # cuSPARSE, where an earlier test loaded it, may change bits
        if exact and checks.count(self) == checked:
            last = (found.shape[0] - 1, found.shape[1] - 1, 31)
            found[last] = np.nextafter(found[last], 0)  # one bit of one value of a tile that repeats another
        real(self, found, times, exact)

    set_all(kernels.Features, check=check)
    set_all(kernels, ours=lambda *given, real=kernels.ours: islice(real(*given), 1))
    with pytest.raises(AssertionError, match="1 of 8 tiles differ"):
        kernels.measure(device, FAST, [1024], 1, 1 << 20, tell=lambda line: None)
    assert len(checks) == checked


SANITIZERS = {  # what compute-sanitizer does; where the case is told then, and the words of it
    "echo '========= Invalid __global__ write of size 4'; exit 77": ("failures", "correctness: ========= Invalid"),
    "echo '========= Error: Device not supported. Exiting'; exit 1": ("not_here", "Error: Device not supported"),
    "echo 'gpu-check incomplete: 3 passed'; exit 3": ("left_out", "correctness (gpu-check incomplete: 3 passed)"),
    "exec sleep 3000": ("left_out", "stopped after 1"),
}


@pytest.mark.parametrize("script", SANITIZERS)
def test_compute_sanitizer_that_finds_refuses_or_does_not_end(gpu, tally, set_all, tmp_path, monkeypatch, script):
    check, (place, words) = gpu("check"), SANITIZERS[script]
    set_all(check, SANITIZED=check.SANITIZED[:2])
    executable(tmp_path / "compute-sanitizer", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    seconds = 1 if "sleep" in script else 100
    check.check_sanitized(tally, argparse.Namespace(device=None, parts="sanitizer", seconds=seconds), least=0.5)
    assert (len(getattr(tally, place)), tally.passed) == (2, 0)
    assert words in getattr(tally, place)[0]


def test_compute_sanitizer_takes_a_quarter_of_the_time_beside_other_parts(gpu, tally, tmp_path, monkeypatch):
    check = gpu("check")
    monkeypatch.setenv("PATH", str(tmp_path))
    check.check_sanitized(tally, argparse.Namespace(device=None, parts="sanitizer", seconds=400))
    assert (tally.passed, tally.not_here) == (0, ["compute-sanitizer is not installed"])
    executable(tmp_path / "compute-sanitizer", "exit 0")
    for parts, passed in (("first,sanitizer", 0), ("sanitizer", len(check.SANITIZED))):
        check.check_sanitized(tally, argparse.Namespace(device=None, parts=parts, seconds=400), least=101)
        assert tally.passed == passed
    assert len(tally.left_out) == len(check.SANITIZED)


def test_what_runs_under_a_tool_is_not_timed_nor_poisoned(gpu, on_shim, monkeypatch, set_all, tmp_path, capsys):
    """A record is of no use there, and what is poisoned is written. All cases are listed, for there is no time."""
    device, allocators = on_shim(), []
    set_all(gpu("correctness"), POISON=True)
    stand_in = SimpleNamespace(cuda=SimpleNamespace(set_allocator=allocators.append))
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    gpu("check").main(["--parts", "taskgraph,ops", "--sanitized", "--seconds", "0", "--results", str(tmp_path)])
    assert allocators == [None]
    said = capsys.readouterr().out
    for case in ("taskgraph-cuda, stream, rectangular; ", "; spmm, float32, 16-bit indices; "):
        assert case in said
    for case in ("gaps between launches", "ceilings of the operations"):
        assert case not in said
    assert gpu("correctness").Poisoned(SimpleNamespace(empty=device.empty, fill=None)).empty(3, np.uint8).size == 3


@pytest.mark.parametrize(
    ("script", "why"), [("echo '==ERROR== ERR_NVGPUCTRPERM'", "ERR_NVGPUCTRPERM"), ("exit 3", "exit status 3")]
)
def test_where_nsight_compute_refuses(gpu, on_shim, tmp_path, monkeypatch, script, why):
    executable(tmp_path / "ncu", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(gpu("tally").NotHere, match=why):
        gpu("profiling").profile(None)
    device = on_shim()
    gpu("profiling").launch(device, (1024,), 2)
    assert device.launches == {"staged_layer": 3}


ALONE = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {absent} or name.split(".")[0] in {absent}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
sys.path[:0] = {folders}
from shim import ShimDevice, stand_ins

for stand_in in stand_ins([ShimDevice()]):
    setattr(*stand_in)
import check, networks
from spdnn.problem.challenge import OfficialProblem

networks.LADDER_PROBLEM = OfficialProblem(1024, 2)
networks.locate_mnist = lambda path: path
density = check.correctness.np.linspace(0.05, 0.35, 64)[:, None]
networks.mnist_inputs = lambda neurons, path: check.correctness.rows(64, neurons, kind="bits", density=density)
sys.exit(check.main(["--parts", "first", "--results", {out}]))
"""


def test_it_needs_no_compiled_kernels(root, tmp_path):
    """As on a machine whose Python has numpy, scipy, msgspec and CuPy alone."""
    absent = {"spdnn.kernels._cpu", "jsonschema", "pytest", "hypothesis", "pandas", "sklearn", "yaml",
              "mpi4py", "snakemake", "tqdm", "requests", "blake3", "threadpoolctl", "jinja2"}  # fmt: skip
    folders = [str(path) for path in (root, root / "tests", root / "tests/cuda", root / "tests/gpu")]
    code = ALONE.format(absent=absent, folders=folders, out=repr(str(tmp_path)))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu-check pass: 2 passed" in done.stdout
    (record,) = read_all(list(tmp_path.glob("*-first.jsonl")))[0]  # sound all the same
    assert record.verdict.passed


@pytest.mark.parametrize("wrong", [1.5, np.nan])
def test_an_output_that_nobody_wrote_is_not_near(gpu, wrong):
    expected = np.ones(3, np.float32)
    gpu("operation_checks").near(expected, expected, expected, 8)
    with pytest.raises(AssertionError, match="1 of 3 entries are wrong"):
        gpu("operation_checks").near(np.array([1, wrong, 1], np.float32), expected, expected, 8)
