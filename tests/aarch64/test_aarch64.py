"""The kernels of a processor that is not here, built by a cross compiler and run by an emulator: beside plain loops."""

import re
import subprocess

import pytest
from children import finished

pytestmark = [pytest.mark.needs("aarch64"), pytest.mark.full("aarch64")]
LEVEL = ["-DSPDNN_LEVEL=generic", "-DSPDNN_VECTOR_BYTES=16"]
FLAGS = ["-std=gnu++17", "-O2", "-fopenmp", "-Wall", "-Wextra", "-Wno-psabi", *LEVEL]


def test_kernels_compute_what_plain_loops_do(root, tmp_path):
    sources, compiler = (
        root / "spdnn/kernels/cpu",
        ["aarch64-linux-gnu-g++", *FLAGS, "-I", str(root / "spdnn/kernels/cpu")],
    )
    parts = ["fused_layers", "spmm", "sddmm", "attention", "depthwise", "resize", "spgemm", "machine"]
    files = [root / "tests/aarch64/check.cpp", *(sources / f"{part}.cpp" for part in parts)]
    running = [
        subprocess.Popen([*compiler, "-c", file, "-o", tmp_path / f"{file.stem}.o"], stderr=subprocess.PIPE, text=True)
        for file in files
    ]
    told = [process.communicate()[1] for process in running]
    assert not any(process.returncode for process in running), "".join(told)
    program, objects = tmp_path / "check", [tmp_path / f"{file.stem}.o" for file in files]
    status, _, told = finished([*compiler, "-static", *objects, "-o", program])
    assert status == 0, told
    assert program.read_bytes()[18:20] == b"\xb7\x00"  # ELF's number of the processor
    status, printed, told = finished(["qemu-aarch64", program])
    assert status == 0, printed + told
    assert len(re.findall(r"largest error", printed)) == 24
