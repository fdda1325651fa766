"""Every kernel at every setting in use compiles for every architecture, without spills, as often on a multiprocessor as
meant; and what is not so is caught."""

import itertools
import re
from dataclasses import replace

import compile_cache
import cupy
import numpy as np
import nvrtc
import pytest
from cupy._core import _carray, _kernel, _scalar, core
from kernel_settings import SETTINGS, Setting

from spdnn.kernels.cuda.declarations import Kernel

VERSIONS = {12: (12, 9), 13: (13,)}
DEFAULT = [(13, 90)]  # the one that is measured on
MATRIX = [
    pytest.param(*pair, marks=() if pair in DEFAULT else pytest.mark.full("architectures")) for pair in nvrtc.MATRIX
]
CROWDED = """
extern "C" __global__ void __launch_bounds__(THREADS) crowded(float* __restrict__ values, int count)
{
    float held[VALUES];
#pragma unroll
    for (int i = 0; i < VALUES; ++i) held[i] = values[i * count + threadIdx.x];
    __syncthreads();
    for (int round = 0; round < count; ++round)
#pragma unroll
        for (int i = 0; i < VALUES; ++i) held[i] = fmaf(held[i], held[(i + 7) % VALUES], values[round]);
#pragma unroll
    for (int i = 0; i < VALUES; ++i) values[i * count + threadIdx.x] = held[i];
}
"""
STACKED = """
extern "C" __global__ void __launch_bounds__(THREADS) stacked(int* __restrict__ values, int count)
{
    __shared__ int places[1000];
    int held[400];
    for (int i = 0; i < 400; ++i) held[i] = 0;
    for (int i = 0; i < count; ++i) held[values[i]] += places[i];
    for (int i = 0; i < count; ++i) values[held[i]] = i;
}
"""
WRONG = """
extern "C" __global__ void __launch_bounds__(THREADS) wrong(float* __restrict__ values, int count)
{
    values[count] = undeclared;
}
"""


def setting(folder, name, text, threads=128, blocks=1, **macros):
    """A kernel that is not in the package."""
    path = folder / f"{name}.cu"
    path.write_text(text)
    return Setting(Kernel(str(path), name, threads, tuple(macros.items())), blocks)


@pytest.mark.parametrize(("toolkit", "arch"), MATRIX)
def test_compiles_as_meant(toolkit, arch):
    done = nvrtc.compiled(toolkit, arch)
    assert done.version[: len(VERSIONS[toolkit])] == VERSIONS[toolkit]
    assert len(done.outcomes) == len(SETTINGS)
    if done.faults():
        pytest.fail("\n".join(done.faults()), pytrace=False)


def test_settings_differ_and_declare_what_they_take():
    assert len({setting.kernel for setting in SETTINGS}) == len(SETTINGS)
    for one in SETTINGS:
        assert one.kernel.parameters
        assert 1 <= one.blocks <= nvrtc.HOLDS[75][0] // one.kernel.threads


CAUGHT = {  # name, text, what is chosen of it, what is found
    "spills": ("crowded", CROWDED, {"VALUES": 150, "threads": 1024}, "spills"),
    "a stack": ("stacked", STACKED, {}, "bytes of stack"),
    "fewer blocks than meant": ("crowded", CROWDED, {"VALUES": 40, "threads": 256, "blocks": 8}, "and 8 were meant"),
    "what does not compile": ("wrong", WRONG, {}, 'identifier "undeclared" is undefined'),
}


@pytest.mark.parametrize("toolkit", nvrtc.TOOLKITS)
def test_what_is_not_as_meant_is_caught_and_nothing_else(toolkit, tmp_path):
    sound = setting(tmp_path, "crowded", CROWDED, VALUES=8, threads=1024)
    wrong = [setting(tmp_path, name, text, **chosen) for name, text, chosen, _ in CAUGHT.values()]
    found = nvrtc.compiled(toolkit, 80, [sound, *wrong])
    whole, *outcomes = found.outcomes
    assert list(whole.faults()) == []
    for outcome, (*_, words) in zip(outcomes, CAUGHT.values(), strict=True):
        assert any(words in fault for fault in outcome.faults())
    spilt, stacked = outcomes[0].resources, outcomes[1].resources
    assert (spilt.registers, stacked.shared) == (64, 4000)
    assert stacked.stack >= 1600
    assert (70 in found.known) == (toolkit == 12)
    assert set(nvrtc.TOOLKITS[toolkit]) <= set(found.known)


@pytest.mark.parametrize("toolkit", nvrtc.TOOLKITS)
def test_the_kernel_that_the_gpu_check_breaks_does_not_compile(gpu, toolkit):
    (outcome,) = nvrtc.compiled(toolkit, 90, [Setting(gpu("correctness").BROKEN)]).outcomes
    assert outcome.resources is None
    assert 'identifier "nothing_of_that_name" is undefined' in outcome.log


HEADERS = {
    12: "nvidia/cuda_runtime/include",
    13: "nvidia/cu13/include",
}  # where the package of the CUDA runtime puts them


class Given(Exception):
    """(source, options) that CuPy would compile."""


@pytest.fixture
def cupys_own(monkeypatch):
    """A function that makes CuPy's own source and options for an operation on an array and three scalars, as the engine
    cusparse has one. CuPy is asked, and stopped before it asks for a device."""

    def given(source, options, *_, **__):
        raise Given(source, options)

    monkeypatch.delenv("CUDA_PATH", raising=False)  # a toolkit of this machine, whose headers may be of another CUDA
    monkeypatch.setattr(cupy.cuda.compiler, "_compile_module_with_cache", given)

    def make(operation, preamble=""):
        scalars = "float32 bias, float32 low, float32 high"
        kernel = cupy.ElementwiseKernel(scalars, "float32 out", operation, "some", preamble=preamble)
        array, indexer, scalar = 1, 2, 3  # kinds of arguments
        kinds = (
            *[(scalar, _scalar.CScalar, np.dtype(np.float32), 0)] * 3,
            (array, cupy.ndarray, np.dtype(np.float32), 1),
            (indexer, _carray.Indexer, None, 1),
        )
        infos = tuple(_kernel._ArgInfo(*kind, True, True) for kind in kinds)
        text = _kernel._get_elementwise_kernel_code(
            infos, _kernel._TypeMap(()), kernel.params, kernel.operation, kernel.name, kernel.preamble
        )
        with pytest.raises(Given) as asked:
            core.compile_with_cache(text)
        return asked.value.args

    return make


CUPYS = {  # of elementwise kernels, and of reductions, which take headers of CCCL that know half numbers
    "elementwise": ("out = min(max(out + bias, low), high)", ""),
    "reduction": ("out = high", "#include <cub/block/block_reduce.cuh>\n#include <cuda_fp16.h>\n"),
}


@pytest.mark.parametrize(
    ("kind", "toolkit"),
    [pytest.param(*one, marks=pytest.mark.full("architectures") if one[1] != 13 else ())
     for one in itertools.product(CUPYS, nvrtc.TOOLKITS)],
)  # fmt: skip
def test_cupys_own_kernels_compile_with_the_headers_of_the_lock(cupys_own, root, toolkit, kind):
    """CUDA 13 has a package for more headers, nvidia-cuda-crt, which envs/cuda13.txt lacks: they are not needed."""
    source, options = cupys_own(*CUPYS[kind])
    assert "CArray<float, 1, 1, 1> _raw_out" in source
    here, there = (str(nvrtc.FOLDERS[one] / HEADERS[one]) for one in (12, toolkit))
    folders = [option[2:] for option in options if option.startswith("-I")]
    assert [folder for folder in folders if "/cupy/" not in folder] == [here]
    given = [option.replace(here, there) for option in options] + ["-arch=sm_90", *nvrtc.CUPY_ADDS]
    without = [option for option in given if option != f"-I{there}"]
    found, missing = nvrtc._answer(toolkit, [(source, given), (source, without)])["logs"]
    assert found[0], found[1]
    assert missing[0] == (kind == "elementwise"), "they are what makes the difference"
    package = f"nvidia-cuda-runtime{'-cu12' * (toolkit == 12)}"
    names = f"cuda{toolkit}", {12: "test", 13: "nvrtc13"}[toolkit]
    locks = [(root / f"envs/{name}.txt").read_text() for name in names]
    assert len({re.search(f"^{package}==\\S+", lock, re.M)[0] for lock in locks}) == 1


def test_a_log_without_the_kernel_is_an_error():
    with pytest.raises(ValueError, match="says nothing of"):
        nvrtc.resources(Kernel("none.cu", "absent", 32), 80, "ptxas info    : 0 bytes gmem")


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "blocks"),
    [  # by the CUDA Occupancy Calculator's rules, worked out by hand
        (80, 256, 32, 8),
        (80, 256, 33, 6),  # 40 registers a thread: 1280 a warp, 12 warps a partition, 48 of 8
        (80, 1024, 64, 1),
        (80, 1024, 65, 0),
        (80, 32, 16, 32),
        (75, 256, 32, 4),
        (89, 32, 16, 24),
        (80, 96, 168, 4),  # 5376 a warp: 3 warps a partition, 12 of 3
        (120, 512, 40, 3),
    ],
)
def test_blocks_of_a_multiprocessor(arch, threads, registers, blocks):
    assert nvrtc.Resources(Kernel("none.cu", "some", threads), arch, registers, 0, 0, 0).blocks == blocks


def test_an_outcome_is_kept_for_all_that_it_depends_on(tmp_path, set_all):
    asked = []

    def answer(toolkit, jobs):
        asked.extend(jobs)
        return {"version": [toolkit, 0], "architectures": [80], "logs": [[False, "log"]] * len(jobs)}

    set_all(nvrtc, _answer=answer)
    set_all(compile_cache, FOLDER=tmp_path)
    kernel = setting(tmp_path, "crowded", CROWDED, VALUES=4).kernel
    other = replace(kernel, macros=(("VALUES", 5),))
    edited = setting(tmp_path, "edited", CROWDED + " ", VALUES=4).kernel
    for toolkit, arch, one in ((12, 80, kernel), (12, 90, kernel), (13, 80, kernel), (12, 80, other), (12, 80, edited)):
        for _ in range(2):
            (outcome,) = nvrtc.compiled(toolkit, arch, [Setting(one)]).outcomes
            assert outcome.log == "log"
    assert len(asked) == 5
    set_all(nvrtc, _toolkit=lambda toolkit: "another")
    nvrtc.compiled(12, 80, [Setting(kernel)])
    assert len(asked) == 6
