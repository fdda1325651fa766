"""The kernels of a processor that is not here, built by a cross compiler and run by an emulator: beside plain loops."""

import re
import subprocess
import tempfile

import compile_cache
import pytest
from children import finished

pytestmark = [pytest.mark.needs("aarch64"), pytest.mark.full("aarch64")]
LEVEL = ["-DSPDNN_LEVEL=generic", "-DSPDNN_VECTOR_BYTES=16"]
COMPILER = "aarch64-linux-gnu-g++"
FLAGS = ["-std=gnu++17", "-O2", "-fopenmp", "-Wall", "-Wextra", "-Wno-psabi", *LEVEL]


def compiled(root):
    """The program of check.cpp and the kernels, from the cache or compiled now."""
    kernels = root / "spdnn/kernels/cpu"
    parts = ["fused_layers", "spmm", "sddmm", "attention", "depthwise", "resize", "spgemm", "machine"]
    files = [root / "tests/aarch64/check.cpp", *(kernels / f"{part}.cpp" for part in parts)]
    headers = sorted(kernels.glob("*.hpp"))
    sources = [path.read_text() for path in (*files, *headers)]
    version = subprocess.check_output([COMPILER, "--version"], text=True)

    def compile_to(program):
        with tempfile.TemporaryDirectory() as folder:
            objects = [f"{folder}/{file.stem}.o" for file in files]
            running = [
                subprocess.Popen(
                    [COMPILER, *FLAGS, "-I", kernels, "-c", file, "-o", to], stderr=subprocess.PIPE, text=True
                )
                for file, to in zip(files, objects, strict=True)
            ]
            told = [process.communicate()[1] for process in running]
            assert not any(process.returncode for process in running), "".join(told)
            status, _, told = finished([COMPILER, *FLAGS, "-static", *objects, "-o", program])
            assert status == 0, told

    program = compile_cache.entry("aarch64", [version, *FLAGS, *sources], "", compile_to)
    program.chmod(0o755)
    return program


def test_kernels_compute_what_plain_loops_do(root):
    program = compiled(root)
    assert program.read_bytes()[18:20] == b"\xb7\x00"  # ELF's number of the processor
    status, printed, told = finished(["qemu-aarch64", program])
    assert status == 0, printed + told
    assert len(re.findall(r"largest error", printed)) == 24
