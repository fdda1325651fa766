"""`make gpu-records` and what it is made of on the CPU shim, so that an hour with a GPU is not spent on mistakes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import yaml
from stand_in_cupy import Memory, modules

from spdnn.bench.engines import cusparse
from spdnn.bench.libraries.base import DENSE, OURS, SPARSE
from spdnn.core import challenge
from spdnn.core.errors import SpdnnError
from spdnn.core.limits import Machine
from spdnn.engines import registry
from spdnn.engines.cuda import ceilings
from spdnn.ops import oracle, problems
from spdnn.ops.models import mobilenet, transformer
from spdnn.runs.records.files import as_text, read_all, seal_record

FAST = Machine("sm_90", *[[1e15]] * 4)  # nothing that the shim's clock tells is past it
LAYERS = {shape.layer for shape in problems.read_shapes()}
PRODUCTS = [
    problems.Shape("a", "transformer", "encoder_0_attention_q", 24, 40, 8, None, 2, "random", "made up"),
    problems.Shape("a", "resnet-50", "group3_2", 10, 30, 1, None, 1, "random", "made up"),
]
TINY = {"small": transformer.TransformerConfig(40, layers=1, heads=2, width=16, between=24, band=8, sparsity=0.8)}
ON_SHIM = Path(__file__).with_name("on_shim")


@pytest.fixture(autouse=True)
def few_launches(gpu, set_all, little_measured, monkeypatch, tmp_path):
    """Programs are chosen, and products made, with as few launches and entries as can be."""
    monkeypatch.setenv("SPDNN_TUNED", str(tmp_path / "tuned.json"))
    set_all(ceilings, measure=lambda device, seconds=1.0: FAST)
    set_all(problems, read_shapes=lambda path=None: PRODUCTS)
    set_all(gpu("gpu_products"), SAMPLES=2, TRIES=1)
    libraries = gpu("gpu_libraries")
    set_all(libraries, programs=lambda device, product: played(libraries, device, product), current_stream=lambda: 0)


@pytest.fixture
def records(gpu, vendor, program, set_all, monkeypatch):
    """The module, on small problems: its commands are processes with two devices of their own, and stand-ins."""
    module = gpu("gpu_records")
    set_all(module, INPUTS="digits", COUNT=60, TWELVE=((1024, 2), (1024, 3)), WITHIN={(1024, 12): 3 << 20})
    set_all(module, ON_RANKS=((1024, 2),), SWEPT=(1024, 12), BATCHES=(1, 2), ABLATED=((1024, 2),), MEGABYTES=1)
    set_all(module.cupy_device, count=lambda: 2)
    set_all(module, SAMPLES=1, arrays=lambda: np, REPEATS=dict.fromkeys(module.REPEATS, 2))
    set_all(gpu("cuda_kernels"), LAUNCHES=10)
    set_all(gpu("gpu_models"), NAMES=("transformer-small", "mobilenet-small"), IMAGES=2, SAMPLES=2)
    set_all(challenge, WIDTHS=(1024,))
    monkeypatch.setitem(transformer.PRESETS, "small", TINY["small"])
    monkeypatch.setitem(mobilenet.PRESETS, "small", mobilenet.MobileNetConfig(width=0.1, size=16, classes=3))
    monkeypatch.setenv("PYTHONPATH", str(ON_SHIM))
    monkeypatch.setenv("SHIM_DEVICES", "2")
    program("ncu", f"cat <<'END'\n{counted(gpu('gpu_profile').METRICS.values())}\nEND")
    return module


def played(libraries, device, product):
    """cuSPARSE, cuBLAS, and cuBLAS with rounded operands, by the reference."""
    if product.operation == "softmax":
        return
    spmm = product.operation == "spmm"
    operands = (product.values, product.first) if spmm else (product.first, product.second)

    def program(name, kind, dtype=np.float32, unit=0.0):
        out = device.empty(int(np.prod(product.shape)), dtype).reshape(product.shape)
        given = product.topology, *(one.astype(dtype) for one in operands)
        work = lambda: np.copyto(out, getattr(oracle, product.operation)(*given), casting="same_kind")  # noqa: E731
        launches = {"one way": lambda: device.issue(work)}
        return libraries.Timed(name, kind, "NumPy", launches, out, device.read, 8, unit, dtype)

    yield lambda: program("cusparse", SPARSE)
    yield lambda: program("cublas", DENSE)
    yield lambda: program("cublas-half", DENSE, np.float16, 2.0**-11)


def counted(metrics):
    """What Nsight Compute prints of nine launches."""
    page = ["program's own line", '"ID","Kernel Name",' + ",".join(f'"{name}"' for name in metrics)]
    page += ['"","",' + ",".join('"unit"' for _ in metrics)]
    page += [f'"{i}","staged_layer",' + ",".join(f'"{640 * (i + 1):,}"' for _ in metrics) for i in range(9)]
    return "\n".join(page)


def files(folder):
    """What each file of a folder holds: how many records of what."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        runs, operations = read_all([path])
        found[path.name] = [record.case for record in (*runs, *operations)]
    return found


@pytest.mark.full("gpu")
def test_the_whole_command_and_a_second_call(records, tmp_path, capsys):
    folder = tmp_path / "records"
    parts = ["--parts", ",".join(records.PARTS)]
    assert records.main(["--results", str(folder), *parts]) == 0, capsys.readouterr().out
    said = capsys.readouterr().out
    found = files(folder)
    assert {name: len(cases) for name, cases in found.items()} == {
        "devices.jsonl": 2, "memory.jsonl": 1, "networks.jsonl": 4 + 8, "schedules.jsonl": 4 * 2,
        "products.jsonl": 2 * (6 + 2) * 3 + 2 + 2 * 2,
    }  # fmt: skip
    assert len(list(folder.rglob("*.json*"))) == 6
    assert (folder / "report.html").stat().st_size > 50_000
    for line in ("networks   4 of 4 in networks.jsonl", "ranks      2 of 2 in devices.jsonl", "profile    1 of 1 in "):
        assert f"\n{line}" in said

    # All of them are sound, of the device, and sayings of no folder of this machine.
    runs, operations = read_all(sorted(folder.glob("*.jsonl")))
    assert {record.environment.gpu for record in (*runs, *operations)} == {"CPU shim", "A stand-in"}
    assert str(tmp_path) not in "".join(path.read_text() for path in folder.glob("*.jsonl"))
    for record in runs:
        assert record.time_to_solution.inference > 0
        assert record.verdict.passed
    (streamed,) = [record for record in runs if "device_memory" in record.request.settings]
    assert max(streamed.engine.noted["memory_bytes"]) <= 3 << 20
    assert 0 <= streamed.engine.noted["copies_hidden"] <= 1
    assert sorted(record.request.device is None for record in runs if record.ranks == 2) == [False, True]
    details = json.loads((folder / records.DETAILS).read_text())
    assert {"kernels 1024", "launch_gap_seconds", "rounded", "profile", "environment", "machine"} <= set(details)
    assert len(details["rounded"]) == 2 * (6 + 2) * 2 + 2
    launches = [(row["neurons"], row["layer"], row["registers"]) for row in details["profile"]]
    assert (len(launches), launches[:2]) == (9, [(1024, 6, 640), (1024, 9, 1280)])

    # Nothing is made twice; what is missing is made.
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*.json*")}
    assert records.main(["--results", str(folder), *parts]) == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*.json*")} == before
    assert "\nnetworks   4 of 4 in networks.jsonl; 4 of them made before\n" in capsys.readouterr().out
    lines = (folder / "networks.jsonl").read_text().splitlines(keepends=True)
    (folder / "networks.jsonl").write_text("".join(lines[1:]))
    assert records.main(["--results", str(folder), "--parts", "networks"]) == 0
    assert sorted(files(folder)["networks.jsonl"]) == sorted(found["networks.jsonl"])


SHORT = {  # of each part: what its cases are limited to, and how many records are kept
    "networks": ({"TWELVE": ((1024, 2),)}, 2),
    "memory": ({}, 1),
    "ranks": ({}, 2),
    "schedules": ({"BATCHES": (2,), "SCHEDULES": ("graph",)}, 1),
    "products": ({}, 2 * 2 * 3 + 2),
    "models": ({}, 4),
    "ablation": ({"LADDER": (("cusparse", "none"), ("cuda-staged", "dead"))}, 2),
    "kernels": ({}, 0),
    "profile": ({}, 0),
}


@pytest.mark.parametrize("part", SHORT)
def test_a_short_form_of_each_part(records, gpu, set_all, tmp_path, capsys, part):
    limits, count = SHORT[part]
    set_all(records, page=lambda folder, tally: None, **limits)
    set_all(gpu("gpu_products"), OPERATIONS={"spmm": (80,), "sddmm": (90,), "softmax": (90,)})
    set_all(problems, read_shapes=lambda path=None: PRODUCTS[: 2 if part == "products" else 1])
    assert set(SHORT) == set(records.PARTS)
    assert records.main(["--results", str(tmp_path / "all"), "--parts", part]) == 0, capsys.readouterr().out
    assert sum(map(len, files(tmp_path / "all").values())) == count
    assert (tmp_path / "all" / records.PARTS[part]).is_file()


def test_what_there_is_no_time_for_is_left_out_and_made_later(records, set_all, tmp_path, capsys):
    set_all(records, page=lambda folder, tally: None, START=30.0)
    given = ["--results", str(tmp_path), "--parts", "networks,ranks"]
    assert records.main([*given, "--seconds", "20"]) == 3
    said = capsys.readouterr().out
    assert "networks   0 of 4 in networks.jsonl; left out for want of time: 1024-2 cuda all; " in said
    assert not list(tmp_path.glob("*.jsonl"))
    set_all(records, START=0.001)
    set_all(records, child=stopped)
    assert records.main([*given, "--seconds", "20"]) == 3  # a command that does not end in time
    assert "1024-2 cuda all (stopped after " in capsys.readouterr().out
    set_all(records, HANGS=0.5)
    assert records.main([*given, "--seconds", "20"]) == 1  # or not at all
    assert "failed: 1024-2 cuda all: no end: stopped after 1 s" in capsys.readouterr().out


def test_a_run_without_a_time_to_solution_is_made_again(records, set_all, tmp_path, capsys):
    set_all(records, page=lambda folder, tally: None, TWELVE=((1024, 2),))
    given = ["--results", str(tmp_path / "all"), "--parts", "networks"]
    assert records.main(given) == 0
    path = tmp_path / "all/networks.jsonl"
    first, second = read_all([path])[0]
    old = msgspec.structs.replace(first, time_to_solution=None)
    path.write_text(as_text(second, "") + as_text(seal_record(old, ""), ""))
    assert records.main(given) == 0
    assert "networks   2 of 2 in networks.jsonl; 1 of them made before" in capsys.readouterr().out
    assert all(record.time_to_solution for record in read_all([path])[0])


def test_a_product_is_made_again_where_sputnik_comes_later(records, tmp_path, monkeypatch, set_all, gpu):
    set_all(gpu("gpu_products"), OPERATIONS={"spmm": (80,)})
    set_all(records, page=lambda folder, tally: None)
    given = ["--results", str(tmp_path / "all"), "--parts", "products"]
    assert records.main(given) == 0
    before = (tmp_path / "all/products.jsonl").read_text()
    monkeypatch.setenv("SPDNN_SPUTNIK", "libsputnik.so")
    assert records.main(given) == 0
    after = (tmp_path / "all/products.jsonl").read_text()
    assert after != before
    assert len(after.splitlines()) == len(before.splitlines())


def test_the_error_of_a_program_is_what_it_said_of_itself(gpu):
    last = gpu("tally").last_line
    done = subprocess.CompletedProcess([], 9, "BAD TERMINATION\nsee the FAQ", "spdnn: the reason\nProxy went away")
    assert last(done) == "spdnn: the reason"
    assert last(subprocess.CompletedProcess([], 9, "a\nb", "")) == "b"


def stopped(words, seconds, folder):
    raise sys.modules["tally"].TooLittleTime(f"stopped after {seconds:.0f} s")


def test_what_fails_or_is_not_here_has_no_record(records, set_all, tmp_path, capsys, monkeypatch):
    set_all(records, page=lambda folder, tally: None, MPIEXEC=tmp_path / "mpiexec")
    failed = subprocess.CompletedProcess([], 1, "", "spdnn: verification failed: other categories")
    set_all(records, child=lambda *given: failed)
    assert records.main(["--results", str(tmp_path / "one"), "--parts", "networks,ranks"]) == 1
    said = capsys.readouterr().out
    assert "networks   0 of 4 in networks.jsonl; failed: 1024-2 cuda all: spdnn: verification failed: other" in said
    assert "ranks      0 of 2 in devices.jsonl; not here: mpi4py and the mpiexec of its MPI are not installed" in said
    assert not list((tmp_path / "one").glob("*"))
    set_all(records, INPUTS="mnist", find_downloaded=lambda: None)
    monkeypatch.setenv("SPDNN_MIRROR", str(tmp_path))
    assert records.main(["--results", str(tmp_path / "one"), "--parts", "networks"]) == 0
    assert "not here: there are no MNIST images here (--mnist FILE names them) (4 of them)" in capsys.readouterr().out


def test_what_it_needs_is_said_at_once(records, set_all, tmp_path, capsys):
    assert records.main(["--mnist", str(tmp_path / "absent"), "--results", str(tmp_path / "all")]) == 1
    assert "gpu-records: " in capsys.readouterr().err
    set_all(records.dispatch, missing=lambda: "the compiled kernels cannot be loaded")
    assert records.main(["--results", str(tmp_path / "all")]) == 1
    assert "gpu-records: the compiled kernels cannot be loaded, or pip install" in capsys.readouterr().err
    assert not (tmp_path / "all").exists()


def test_a_machine_without_a_device_is_told_so(root):
    done = subprocess.run(
        [sys.executable, root / "benchmarks/gpu_records.py"], capture_output=True, text=True, check=False,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert done.stderr.startswith("gpu-records: ")


def test_the_cases_and_how_long_they_take(gpu, on_shim, root, set_all, tmp_path):
    records = gpu("gpu_records")
    set_all(records.cupy_device, count=lambda: 8)
    on_shim()
    set_all(records.cupy_device, count=lambda: 8)
    bench = records.Bench(None, 0, gpu("tally").Tally(), "train.gz", tmp_path, None)
    cases = {part: list(getattr(bench, part)()) for part in records.DEFAULT}
    assert [len(cases[part]) for part in ("networks", "memory", "ranks", "schedules")] == [24, 5, 12, 20]
    assert len({case.key for part in cases.values() for case in part}) == sum(map(len, cases.values()))
    assert {case.name for case in cases["networks"]} == {
        f"{problem.name} cuda {kind}" for problem in challenge.PROBLEMS for kind in ("all", "dead")
    }
    preset = yaml.safe_load((root / "config/ladder-cuda.yaml").read_text())
    assert [*records.LADDER, ("cuda", "all")] == [(rung["engine"], rung["reductions"]) for rung in preset["ladder"]]
    alone = sum(case.seconds for part in cases.values() for case in part if "ranks" not in case.name.split(", ")[-1])
    assert alone < 1350  # seconds, by the times of the first records


@pytest.mark.parametrize("wrong", ["ours", "cusparse"])
def test_a_wrong_program_is_a_failure_and_has_no_record(gpu, on_shim, tally, set_all, wrong):
    products = gpu("gpu_products")
    module, name = {"ours": (products, "ours"), "cusparse": (gpu("gpu_libraries"), "programs")}[wrong]
    real = getattr(module, name)

    def doubled(device, product, *given):
        return real(device, replace(product, values=2 * product.values, first=2 * product.first), *given)

    set_all(module, **{name: doubled})
    (problem, _) = problems.problems({"a": (80,)})
    work = lambda: products.compare(on_shim(), "spmm", problem, FAST, "", tally)  # noqa: E731
    if wrong == "ours":
        with pytest.raises(SpdnnError, match="program ours gave a wrong output"):
            work()
    else:
        assert [record.program.name for record in work().records] == ["ours"]
        assert any("program cusparse gave a wrong output" in failure for failure in tally.failures)


def test_a_library_that_is_not_there_is_told_once(gpu, on_shim, tally, set_all):
    def absent():
        raise ImportError("libcublas is not\nthere")

    set_all(gpu("gpu_libraries"), programs=lambda device, product: [absent])
    for problem in problems.problems({"a": (80,)}):
        gpu("gpu_products").compare(on_shim(), "spmm", problem, FAST, "", tally)
    assert (tally.failures, tally.not_here) == ([], ["spmm beside a library: libcublas is not there"])


def test_bits_that_change_are_not_chosen(gpu, on_shim):
    device, libraries, ops = on_shim(), gpu("gpu_libraries"), gpu("gpu_products")
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


@pytest.mark.parametrize(
    ("script", "why"), [("echo '==ERROR== ERR_NVGPUCTRPERM'", "ERR_NVGPUCTRPERM"), ("exit 3", "exit status 3")]
)
def test_where_nsight_compute_refuses(gpu, on_shim, program, script, why):
    program("ncu", script)
    with pytest.raises(gpu("tally").NotHere, match=why):
        gpu("gpu_profile").profile(None)
    device = on_shim()
    gpu("gpu_profile").launch(device, (1024,), 2)
    assert device.launches == {"staged_layer": 3}


SPUTNIK = """
#include <cmath>
struct CUstream_st; typedef CUstream_st* cudaStream_t; enum cudaError_t { success };
namespace sputnik {
cudaError_t CudaSpmm(int m, int k, int n, int nonzeros, const int* __restrict__ order, const float* __restrict__ values,
                     const int* __restrict__ offsets, const int* __restrict__ columns, const float* __restrict__ b,
                     float* __restrict__ out, cudaStream_t) {
  if (offsets[m] != nonzeros) return cudaError_t(1);
  for (int r = 0; r < m; ++r)
    for (int j = 0, i = order[r]; j < n; ++j) {
      double sum = 0;
      for (int e = offsets[i]; e < offsets[i + 1]; ++e)
        sum += columns[e] < k ? double(values[e]) * b[columns[e] * n + j] : NAN;
      out[i * n + j] = float(sum);
    }
  return success;
}
cudaError_t CudaSddmm(int m, int k, int n, int nonzeros, const int* __restrict__ order, const int* __restrict__ offsets,
                      const int* __restrict__ columns, const float* __restrict__ q, const float* __restrict__ keys,
                      float* __restrict__ out, cudaStream_t) {
  if (offsets[m] != nonzeros) return cudaError_t(1);
  for (int r = 0; r < m; ++r)
    for (int i = order[r], e = offsets[i]; e < offsets[i + 1]; ++e) {
      double sum = 0;
      for (int c = 0; c < k; ++c) sum += columns[e] < n ? double(q[i * k + c]) * keys[columns[e] * k + c] : NAN;
      out[e] = float(sum);
    }
  return success;
}
cudaError_t SparseSoftmax(int m, int n, int nonzeros, const float* __restrict__ values, const int* __restrict__ order,
                          const int* __restrict__ offsets, const int* __restrict__ columns, float* __restrict__ out,
                          cudaStream_t) {
  if (offsets[m] != nonzeros) return cudaError_t(1);
  for (int r = 0; r < m; ++r) {
    double sum = 0;
    int i = order[r];
    for (int e = offsets[i]; e < offsets[i + 1]; ++e) sum += columns[e] < n ? std::exp(double(values[e])) : NAN;
    for (int e = offsets[i]; e < offsets[i + 1]; ++e) out[e] = float(std::exp(double(values[e])) / sum);
  }
  return success;
}
}
"""


@pytest.mark.parametrize("operation", ["spmm", "sddmm", "softmax"])
def test_sputnik_is_called_by_the_names_that_a_compiler_gives_its_functions(
    gpu, on_shim, set_all, tally, monkeypatch, tmp_path, operation
):
    """A library of the declarations that Sputnik's headers have, which computes on the processor."""
    libraries, device = gpu("gpu_libraries"), on_shim()
    set_all(libraries, programs=lambda device, product: [lambda: libraries.sputnik(device, product)])
    (problem, _) = problems.problems({"a": (80,)})
    compare = lambda: gpu("gpu_products").compare(device, operation, problem, FAST, "", tally)  # noqa: E731
    assert [record.program.name for record in compare().records] == ["ours"]
    assert tally.not_here == [f"{operation} encoder_0_attention_q: Sputnik: SPDNN_SPUTNIK names no libsputnik.so"]
    (tmp_path / "sputnik.cpp").write_text(SPUTNIK)
    library = str(tmp_path / "libsputnik.so")
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "sputnik.cpp"], check=True)
    monkeypatch.setenv("SPDNN_SPUTNIK", library)
    _, sputnik = compare().records
    assert tally.failures == []
    assert (sputnik.program.name, sputnik.program.version) == ("sputnik", "libsputnik.so")
    assert sputnik.case.endswith(".sputnik.cuda")
    monkeypatch.setenv("SPDNN_SPUTNIK", libraries.__file__)
    compare()
    assert "invalid ELF header" in tally.not_here[-1]
