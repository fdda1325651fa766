"""The part `ops` of `make gpu-check` on the CPU shim, the vendor's libraries played by NumPy."""

import json
from dataclasses import replace

import numpy as np
import pytest
from operation_cases import made_operation
from shim import ShimDevice

from spdnn.common.errors import SpdnnError
from spdnn.common.validation import builtins, convert
from spdnn.ops import cuda, problems
from spdnn.peers.libraries.base import DENSE, OURS, SPARSE
from spdnn.records.files import read_all
from spdnn.records.limits import Machine
from spdnn.records.operation_record import OperationRecord
from tests.records.test_run_record import changed

SHAPES = [
    problems.Shape("a", "transformer", "some_layer", 24, 40, 8, None, 2, "random", "", "made up"),
    problems.Shape("a", "resnet-50", "last", 10, 30, 1, None, 1, "random", "", "made up"),
]


@pytest.fixture
def ops(gpu, monkeypatch, set_all, little_measured):
    """device_ops with libraries that NumPy plays, a device that was measured, and small problems and checks."""
    made, libraries, checks = gpu("device_ops"), gpu("device_libraries"), gpu("operation_checks")
    rate = 1e15  # so that nothing that the shim's clock tells is past it
    measured = Machine("sm_90", *[[rate]] * 4)
    monkeypatch.setattr(made.ceilings, "measure", lambda device, seconds: measured)
    monkeypatch.setattr(libraries, "programs", lambda device, product: played(libraries, device, product))
    monkeypatch.setattr(problems, "read_shapes", lambda path=None: SHAPES)
    set_all(checks, ROWS=24, KEYS=60, LONGEST=50, WIDTHS=(3, 16), DEPTHS=(8,))
    set_all(made, SAMPLES=2, TRIES=1, QUICK_LAYERS=("some_layer", "last"))
    return made


def played(libraries, device, product):
    """cuSPARSE by rows and cuBLAS with rounded operands, on NumPy."""
    topology = product.topology
    matrix = np.zeros(topology.shape, np.float32)
    matrix[topology.row_numbers, topology.columns] = product.values

    def program(name, kind, dtype, rounded, unit):
        out = device.empty(int(np.prod(product.shape)), dtype).reshape(product.shape)

        def launch():
            def work():
                first, weights = product.first.astype(rounded), matrix.astype(rounded)
                if product.operation == "spmm":
                    out[...] = weights.astype(np.float64) @ first
                else:
                    whole = first.astype(np.float64) @ product.second.astype(rounded).T
                    out[...] = whole[topology.row_numbers, topology.columns]

            device.issue(work)

        return libraries.Timed(name, kind, "NumPy", {"one way": launch}, out, device.read, 8, not unit, unit, dtype)

    yield lambda: program("cusparse", SPARSE, np.float32, np.float32, 0.0)
    yield lambda: program("cublas", DENSE, np.float32, np.float32, 0.0)
    yield lambda: program("cublas-half", DENSE, np.float16, np.float16, 2.0**-11)


def test_the_part_is_whole_and_its_records_are_sound(ops, gpu, on_shim, tmp_path, capsys):
    on_shim()
    assert gpu("check").main(["--parts", "ops", "--seed", "3", "--results", str(tmp_path)]) == 0
    said, products = capsys.readouterr().out, 2 * 2 + 2  # shapes: spmm at two sparsities, sddmm at one
    passed = 2 * 2 * 6 + 1 + products  # operations of each dtype and index, the ceilings
    assert f"gpu-check pass: {passed} passed, 0 failed, 0 left out" in said
    table = said[said.rindex(ops.HEAD) :].splitlines()
    assert table[5 * products + 1].startswith("spmm at 90 %: times ours, geometric mean: ours 1.00, ")
    details, found, _ = sorted(tmp_path.iterdir(), key=lambda path: path.suffix)
    told = details / "ops.json"
    assert found.name[-10:] == "-ops.jsonl"
    told = json.loads(told.read_text())
    assert set(told["times_ours"]) == {"spmm at 90 %", "spmm at 80 %", "sddmm at 90 %"}
    for means in told["times_ours"].values():
        assert means["ours"] == 1
        assert set(means) == {"ours", "ours-half", "cusparse", "cublas", "cublas-half"}
    assert all(one["share_of_peak"] > 0 for one in told["products"])
    assert f"operation records: {found}\n" in said
    found = builtins(read_all([found])[1])
    assert len(found) == 3 * products  # those whose operands are rounded have none
    assert {record["program"]["name"] for record in found} == {"ours", "cusparse", "cublas"}
    assert {record["environment"]["gpu"] for record in found} == {"CPU shim"}
    assert all(record["program"]["notes"]["chosen"] for record in found)


def test_a_library_that_is_not_there_is_told_once(ops, gpu, on_shim, monkeypatch, tmp_path):
    def absent(device, product):
        def make():
            raise ImportError("libcublas is not\nthere")

        yield make

    monkeypatch.setattr(gpu("device_libraries"), "programs", absent)
    tally = gpu("tally").Tally(tell=lambda told: None)
    ops.run(tally, on_shim(), 3, lambda record: None, str(tmp_path / "all"), True)
    assert tally.failures == []
    assert tally.not_here == [f"{name} beside a library: libcublas is not there" for name in ("spmm", "sddmm")]


def test_quick_takes_few_layers(gpu):
    ops = gpu("device_ops")
    chosen = list(ops.chosen_problems(True))
    assert {operation for operation, _ in chosen} == {"spmm", "sddmm"}
    assert {problem.shape.layer for _, problem in chosen} == set(ops.QUICK_LAYERS)
    assert {problem.sparsity for _, problem in chosen} == {90}
    assert len(list(ops.chosen_problems(False))) == 25 * 3


@pytest.mark.parametrize("wrong", ["ours", "cusparse"])
def test_a_wrong_program_is_a_failure_and_has_no_record(ops, gpu, on_shim, tmp_path, monkeypatch, wrong):
    device, tally = on_shim(), gpu("tally").Tally(tell=lambda told: None)
    module, name = {"ours": (ops, "ours"), "cusparse": (gpu("device_libraries"), "programs")}[wrong]
    real = getattr(module, name)

    def doubled(device, product, *given):
        return real(device, replace(product, values=2 * product.values, first=2 * product.first), *given)

    monkeypatch.setattr(module, name, doubled)
    found = []
    ops.run(tally, device, 3, found.append, str(tmp_path / "all"), False)
    assert tally.status == 1
    assert any(f"program {wrong} gave a wrong output" in failure for failure in tally.failures)
    assert wrong not in {record.program.name for record in found}


def test_a_kernel_that_is_wrong_fails_the_check(ops, gpu, monkeypatch):
    tally = gpu("tally").Tally(tell=lambda told: None)
    real = cuda.CudaBackend._run

    def wrong(self, operation, *arguments):
        real(self, operation, *arguments)
        arguments[-1].reshape(-1)[0] += 1

    monkeypatch.setattr(cuda.CudaBackend, "_run", wrong)
    gpu("operation_checks").check(tally, ShimDevice(), 0)
    failed = {failure.split(",")[0] for failure in tally.failures}
    assert failed == {"sddmm", "softmax", "gather", "attention", "depthwise"}  # spmm's launches are bound, each setting


def test_bits_that_change_are_not_chosen(ops, gpu, on_shim):
    device, libraries = on_shim(), gpu("device_libraries")
    out = device.upload(np.zeros(4, np.float32))

    def moving():
        device.issue(lambda: out.__setitem__(0, out[0] + 1))

    def still():
        device.issue(lambda: out.fill(7))

    one = libraries.Timed("one", SPARSE, "", {"moving": moving, "still": still}, out, device.read, 0)
    assert ops.chosen(device, one, device.lead()) is still
    assert one.notes["chosen"] == "still"
    for kind, error in ((SPARSE, gpu("tally").NotHere), (OURS, AssertionError)):  # no fault of ours, and one
        with pytest.raises(error, match="gives other bits each time"):
            ops.chosen(device, replace(one, kind=kind, launches={"moving": moving}), device.lead())


def test_records_that_are_not_sound_are_refused(ops, gpu, tmp_path):
    store = gpu("check").OperationRecords(tmp_path / "all-ops.jsonl")
    made = changed(made_operation() | {"case": "made up"}, "verification.worst", 2.0)
    with pytest.raises(SpdnnError, match="made up"):
        store.add(convert(OperationRecord, made, "r"))
    assert not list(tmp_path.iterdir())
