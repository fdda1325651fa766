"""`make gpu-check` on the CPU shim, so that it does not wait for a GPU to be tried."""

import argparse
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from children import executable
from engine_cases import rows

from spdnn.api import infer
from spdnn.core import challenge
from spdnn.core.errors import SpdnnError
from spdnn.engines.cuda import choice, layers
from spdnn.engines.cuda.buffers import KernelPlan
from spdnn.engines.reductions.registry import parse_reductions
from spdnn.engines.registry import ENGINES
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels.cuda.sliced import slice_layer
from spdnn.ops import cuda as cuda_ops

SMALL = challenge.OfficialProblem(1024, 2)
IMAGES = rows(64, 1024, kind="bits", density=np.linspace(0.05, 0.35, 64)[:, None])  # instead of MNIST's


@pytest.fixture(autouse=True)
def few_launches(gpu, set_all, little_measured):
    """Kernels are chosen, and products made, with as few launches and inputs as can be."""
    few = lambda count, *given, **named: rows(min(count, 100), *given, **named)  # noqa: E731
    set_all(gpu("correctness"), rows=few)
    set_all(gpu("operation_checks"), ROWS=24, KEYS=60, LONGEST=50, WIDTHS=(3, 16), DEPTHS=(8,))


@pytest.fixture
def images(gpu, set_all):
    """The first official network has two layers, and IMAGES in place of MNIST's."""
    set_all(gpu("check"), FIRST=SMALL, mnist_inputs=lambda neurons, path: IMAGES, locate_mnist=lambda path: path)


def wrong_slices(layer, **given):
    return slice_layer(replace(layer, values=layer.values * np.float32(1.01)), **given)


def test_the_whole_program(gpu, vendor, images, program, monkeypatch, set_all, tmp_path, capsys):
    """Every part, with small problems and few repeats; of other programs there are stand-ins, and no MPI."""
    check, schedules = map(gpu, ("check", "device_schedules"))
    set_all(check, QUICK_SHAPES=["logits"], QUICK_DEEP=(64, 3, 100))
    monkeypatch.setitem(gpu("correctness").CHOSEN, "1024 neurons", lambda: RadixNet(64, choice.LATER + 1, -0.3))
    set_all(schedules, DEEP=(64, 12, 100), SOME_SHAPES=["one input"], REDUCTIONS=["dead,inputs"])
    set_all(gpu("device_ranks"), MPIEXEC=tmp_path / "mpiexec")
    program("compute-sanitizer", f'echo "$@" >> {tmp_path}/given\necho "===== ERROR SUMMARY: 0 errors"')

    assert check.main(["--quick", "--seed", "5", "--mnist", "images"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("CPU shim: compute capability 9.0, g++")
    assert "seed 5" in said
    assert "FAIL" not in said

    # Each engine on each kind of inputs, and their digests; exact networks; past float32; batches; counts; choices;
    # memory, compiler.
    passed = 3 * 7 + 4 * 6 + 5 + 6 + 3 + 1 + 2
    assert set(gpu("correctness").ENGINES) == {*(name for name in ENGINES if name.startswith("cuda")), "cusparse"}
    passed += 2 + len(check.SANITIZED) + 4 * 2 + 2 * 2 * 6  # first; schedules; six operations of each dtype and index
    assert said.splitlines()[-1].startswith(f"gpu-check pass: {passed} passed, 0 failed, 0 left out")
    assert "not run here: 1 rank: mpi4py and the mpiexec of its MPI are not installed next to " in said
    given = (tmp_path / "given").read_text().splitlines()
    assert given[0].startswith("--tool memcheck --report-api-errors no --error-exitcode 77 ")
    assert given[1].startswith("--tool racecheck --error-exitcode 77 ")
    assert {line.split()[1] for line in given} == {"memcheck", "racecheck", "synccheck", "initcheck"}
    for part in ("correctness", "taskgraph", "ops"):
        assert any(f"check.py --parts {part} --quick --sanitized" in line for line in given)


def test_a_wrong_kernel_is_named_and_what_fails_first_ends_it(gpu, vendor, set_all, tally, tmp_path, capsys):
    check, correctness = gpu("check"), gpu("correctness")
    set_all(layers, slice_layer=wrong_slices)
    assert check.main(["--mnist", str(tmp_path / "absent")]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[-2] == "left out, and so not passed: the parts " + ", ".join(check.PARTS[1:])
    assert [line[:11] for line in said if line.startswith("failed: ")][-1] == "failed: 102"
    correctness.run(tally, 0, ["cuda-csr", "cuda-ell"], ["rectangular"], (64, 4, 100), exact=1)
    told = {failure.split(",")[0] for failure in tally.failures}
    assert tally.status == 1
    assert "cuda-ell" in told
    assert "cuda-csr" not in told


def test_without_mnist_it_takes_digits(gpu, on_shim, set_all, capsys):
    def absent(path):
        raise SpdnnError("no address answers")

    on_shim()
    set_all(gpu("check"), locate_mnist=absent, FIRST=SMALL, DIGITS=100)
    assert gpu("check").main(["--parts", "first"]) == 0
    said = capsys.readouterr().out
    assert "not run here: 1024-2: right on digits; the MNIST images cannot be had (--mnist FILE names them)" in said
    assert "gpu-check pass: 1 passed, 0 failed" in said


def test_nothing_that_ran_is_no_pass(gpu):
    tally = gpu("tally").Tally(seconds=0, tell=lambda told: None, probe=lambda: None)
    assert tally.case("one", lambda: 1) is None
    assert (tally.status, tally.left_out) == (1, ["one"])
    tally.seconds = None
    tally.case("two", lambda: {}["x"])
    assert tally.failures[0].startswith("two: KeyError in ")
    assert tally.case("three", lambda: 2) == 2  # a failure that does not stay stops nothing


def test_after_a_fault_that_stays_nothing_runs_and_all_is_listed(gpu, on_shim, set_all, capsys):
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
    assert gpu("check").main(["--quick", "--engines", "cuda-csr", "--parts", "correctness,ranks"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert len(lost) == 1
    assert [line for line in said if line.startswith(("FAIL", "STOP"))] == [
        "FAIL  cuda-csr, exact network 0: cudaErrorIllegalAddress",
        "STOP  the device does nothing any more, and the rest is left out: a call of CUDA: cudaErrorIllegalAddress",
    ]
    assert said[-1].startswith("gpu-check FAIL: 18 passed, 1 failed, ")
    assert said[-2].startswith("left out, and so not passed: cuda-csr, exact network 1; cuda-csr, exact network 2; ")
    assert said[-2].endswith("; 1 rank; a rank that fails ends the run")


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
    correctness, real = gpu("correctness"), KernelPlan.result
    for name in correctness.ONE_LAYER:
        correctness._counts(name, (64, 12, 90), 1)
    for reductions in ("none", "dead"):

        def more(*given, reductions=reductions):
            got, wrong = real(*given), ("dead" if given[0].leaving else "none") == reductions
            return replace(got, edges_computed=got.edges_computed + 32 * wrong)

        set_all(KernelPlan, result=more)
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


def test_schedules_that_differ_from_cuda_are_found(gpu, on_shim, set_all, tally):
    on_shim()
    schedules = gpu("device_schedules")
    set_all(schedules, REDUCTIONS=["dead,inputs"])
    schedules.check(tally, 0, [], (64, 4, 40))
    assert (tally.passed, tally.failures) == (4, [])
    fewer = lambda network, inputs, *given, **named: infer(network, inputs.first(39), *given, **named)  # noqa: E731
    set_all(schedules, infer=fewer)
    schedules.check(tally, 0, [], (64, 4, 40))
    assert (tally.passed, len(tally.failures)) == (4, 4)


def test_a_wrong_operation_fails_the_check(gpu, on_shim, tally, set_all):
    def wrong(self, operation, *arguments, real=cuda_ops.CudaBackend._run):
        real(self, operation, *arguments)
        arguments[-1].reshape(-1)[0] += 1

    set_all(cuda_ops.CudaBackend, _run=wrong)
    gpu("operation_checks").check(tally, on_shim(), 0)
    failed = {failure.split(",")[0] for failure in tally.failures}
    assert failed == {"sddmm", "softmax", "gather", "attention", "depthwise"}  # spmm's launches are bound, each setting


SANITIZERS = {  # what compute-sanitizer does; where the case is told then, and the words of it
    "echo '========= Invalid __global__ write of size 4'; exit 77": ("failures", "correctness: ========= Invalid"),
    "echo '========= Error: Device not supported. Exiting'; exit 1": ("not_here", "Error: Device not supported"),
    "echo 'gpu-check incomplete: 3 passed'; exit 3": ("left_out", "correctness (gpu-check incomplete: 3 passed)"),
    "exec sleep 3000": ("left_out", "stopped after 1"),
}


@pytest.mark.parametrize("script", SANITIZERS)
def test_compute_sanitizer_that_finds_refuses_or_does_not_end(gpu, tally, set_all, program, script):
    check, (place, words) = gpu("check"), SANITIZERS[script]
    set_all(check, SANITIZED=check.SANITIZED[:2])
    program("compute-sanitizer", script)
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


def test_what_runs_under_a_tool_is_not_timed_nor_poisoned(gpu, on_shim, monkeypatch, set_all, capsys):
    """A time is of no use there, and what is poisoned is written. All cases are listed, for there is no time."""
    device, allocators = on_shim(), []
    set_all(gpu("correctness"), POISON=True)
    stand_in = SimpleNamespace(cuda=SimpleNamespace(set_allocator=allocators.append))
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    gpu("check").main(["--parts", "taskgraph,ops", "--sanitized", "--seconds", "0"])
    assert allocators == [None]
    said = capsys.readouterr().out
    for case in ("taskgraph-cuda, stream, rectangular; ", "; spmm, float32, 16-bit indices; "):
        assert case in said
    assert gpu("correctness").Poisoned(SimpleNamespace(empty=device.empty, fill=None)).empty(3, np.uint8).size == 3


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
import check
from spdnn.core.challenge import OfficialProblem

check.FIRST = OfficialProblem(1024, 2)
check.locate_mnist = lambda path: path
density = check.correctness.np.linspace(0.05, 0.35, 64)[:, None]
check.mnist_inputs = lambda neurons, path: check.correctness.rows(64, neurons, kind="bits", density=density)
sys.exit(check.main(["--parts", "first"]))
"""


def test_it_needs_no_compiled_kernels(root, tmp_path):
    """As on a machine whose Python has numpy, scipy, msgspec and CuPy alone."""
    absent = {"spdnn.kernels._cpu", "jsonschema", "pytest", "hypothesis", "pandas", "sklearn", "yaml",
              "mpi4py", "snakemake", "tqdm", "requests", "blake3", "threadpoolctl"}  # fmt: skip
    folders = [str(path) for path in (root, root / "tests", root / "tests/cuda", root / "tests/gpu")]
    code = ALONE.format(absent=absent, folders=folders)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu-check pass: 2 passed" in done.stdout


@pytest.mark.parametrize("wrong", [1.5, np.nan])
def test_an_output_that_nobody_wrote_is_not_near(gpu, wrong):
    expected = np.ones(3, np.float32)
    gpu("operation_checks").near(expected, expected, expected, 8)
    with pytest.raises(AssertionError, match="1 of 3 entries are wrong"):
        gpu("operation_checks").near(np.array([1, wrong, 1], np.float32), expected, expected, 8)
