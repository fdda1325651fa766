"""A CUDA device that is this computer's processor: our kernels, unmodified, compiled by g++ and run by fibers.

shim.hpp says what is modelled. What a kernel does wrong (a barrier that not all threads reach, a shuffle from a lane
that takes no part) is an SpdnnError that names kernel, block and thread. Memory that nobody has written holds 0xFF
bytes: NaN as float. To find races, run a kernel in several orders: 0 takes threads and blocks ascending, 1 descending,
each number from 2 on in a permutation of its own that changes at every barrier. The same numbers order what is on
streams (shim_streams.py), where work is only done when somebody waits.

Accesses out of bounds and misaligned ones are such errors too, in a process that AddressSanitizer's library was loaded
into: `sanitized` starts one.
"""

import ctypes
import os
import shutil
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import compile_cache
import numpy as np
from shim_streams import Node, ShimStreams

from spdnn.core.errors import MemoryTooSmall, SpdnnError
from spdnn.engines.cuda import choice
from spdnn.kernels.cuda import cupy_device, driver
from spdnn.kernels.cuda import declarations as cuda
from spdnn.kernels.cuda.device import Properties

HERE = Path(__file__).parent
COMPILER = os.environ.get("CXX", "g++")
POISON = 0xFF
MOST_THREADS = 1024  # of a block
SANITIZED = os.environ.get("SHIM_SANITIZE") == "1"
# Nothing is contracted, so that every machine gives the same bits; wrapping and aliasing are as on the device.
FLAGS = "-O2 -fPIC -shared -fvisibility=hidden -w -ffp-contract=off -fno-math-errno -fno-strict-aliasing -fwrapv"
FLAGS = [*FLAGS.split(), *os.environ.get("SHIM_FLAGS", "").split()]
# Loops stay loops: a memset out of bounds would be reported by ending the process.
SANITIZER = "-O1 -DSHIM_SANITIZED -fsanitize=address,alignment -fno-sanitize-recover=all"
SANITIZER = [*SANITIZER.split(), "-fno-tree-loop-distribute-patterns", "-fsanitize-sections=shim_variables"]

_libc = ctypes.CDLL(None)
_libc.memalign.restype, _libc.memalign.argtypes = ctypes.c_void_p, [ctypes.c_size_t, ctypes.c_size_t]
_libc.free.restype, _libc.free.argtypes = None, [ctypes.c_void_p]


class ShimDevice(ShimStreams):
    """This computer as a CUDA device.

    Args:
        order: of threads and blocks, and of work on streams; by default the environment variable SHIM_ORDER, or 0.
        capability, multiprocessors, shared_per_block, l2_bytes: what it pretends to be; memory_bytes: that can be taken
            at most.
        workers: blocks in flight; by default as many as there are processors, and one where shared memory is sanitized.
        node: that it is a device of; by default one of its own, whose `order` is this one.

    Attributes:
        launches: how often each kernel was launched, by its name.
        most: bytes of memory that were in use at once.
    """

    def __init__(
        self,
        order: int | None = None,
        capability: int = 90,
        multiprocessors: int = 4,
        shared_per_block: int = 227 * 1024,
        l2_bytes: int = 4 << 20,
        memory_bytes: int = 4 << 30,
        workers: int | None = None,
        node: Node | None = None,
    ):
        self.order = int(os.environ.get("SHIM_ORDER", "0")) if order is None else order
        super().__init__(node or Node(self.order))
        self.workers = 1 if SANITIZED else workers or os.cpu_count() or 1
        self.launches: Counter[str] = Counter()
        self.used = self.most = 0
        self.limit = memory_bytes
        self.properties = Properties(
            name="CPU shim",
            capability=capability,
            multiprocessors=multiprocessors,
            threads=2048,
            shared_per_block=shared_per_block,
            shared=shared_per_block + 1024,
            l2_bytes=l2_bytes,
            memory_bytes=memory_bytes,
            software=_version(),
        )

    def upload(self, host):
        array = self.empty(host.size, host.dtype).reshape(host.shape)
        array[...] = host
        self.finish()
        return array

    def empty(self, size, dtype):
        self.waits("memory is taken")
        dtype = np.dtype(dtype)
        raw = np.asarray(_Block(self, size * dtype.itemsize))
        raw[:] = POISON
        return raw.view(dtype)

    def fill(self, array, byte):
        self.issue(lambda: array.reshape(-1).view(np.uint8).fill(byte))

    def read(self, array):
        self.finish()
        return array.copy()

    def address(self, array):
        return array.ctypes.data

    def trim(self):
        pass

    def free_bytes(self):
        return max(0, self.limit - self.used)

    def held_bytes(self):
        return self.used

    def lead(self):
        return self.empty(1, np.uint8)  # the host is never ahead

    def promise(self, nbytes):
        self.limit = min(nbytes, self.properties.memory_bytes)

    def _bind(self, kernel, blocks, values, shared):
        if not 1 <= kernel.threads <= MOST_THREADS:
            raise SpdnnError(f"kernel {kernel}: {kernel.threads} threads; a block has 1 to {MOST_THREADS}")
        workers = min(self.workers, blocks)
        copies = [_library(kernel, self.properties.capability, worker=worker) for worker in range(workers)]
        fixed = 0 if SANITIZED else _shared_variables(copies[0])
        if shared + fixed > self.properties.shared_per_block:
            raise SpdnnError(
                f"kernel {kernel}: {shared:,} bytes of dynamic and {fixed:,} of static shared memory; a block of"
                f" {self.properties.name} has {self.properties.shared_per_block:,}"
            )
        entries = [function for copy in copies for function in (copy.shim_entry, copy.shim_shared)]
        code = (ctypes.c_void_p * len(entries))(*[ctypes.cast(entry, ctypes.c_void_p).value for entry in entries])
        addresses = [np.uintp(self.address(value)) if isinstance(value, np.ndarray) else value for value in values]
        cells = [np.array([value]) for value in addresses]
        arguments = (ctypes.c_void_p * len(cells))(*[cell.ctypes.data for cell in cells])
        error = ctypes.create_string_buffer(1000)

        def run(alive=(values, cells, copies)):
            serial = self.launches.total()
            self.launches[kernel.name] += 1
            given = (code, workers, arguments, blocks, kernel.threads, shared, self.order, serial)
            if _runtime().shim_run(*given, error, len(error)):
                raise SpdnnError(f"kernel {kernel}: {error.value.decode()}")

        return lambda: self.issue(run)


class _Block:
    """Memory of exactly so many bytes of the C library, for NumPy's allocator hides the ends of small arrays."""

    def __init__(self, device: ShimDevice, size: int):
        self.address = None
        if size > device.free_bytes():
            raise MemoryTooSmall(
                f"{size:,} bytes of device memory were asked for, and {device.free_bytes():,} of"
                f" {device.limit:,} are free",
                device.used + size,
            )
        self.device, self.size = device, size
        self.address = _libc.memalign(16, max(size, 1))  # as little aligned as loads may need
        if not self.address:
            raise MemoryError
        device.used += size
        device.most = max(device.most, device.used)
        self.__array_interface__ = {"shape": (size,), "typestr": "|u1", "data": (self.address, False), "version": 3}

    def __del__(self):
        if self.address:
            _libc.free(self.address)
            self.device.used -= self.size


def stand_ins(devices: list[ShimDevice]) -> list[tuple]:
    """(module, name, value) of all that has to be set for every CUDA engine to run on these devices. Kernels are chosen
    by as few launches as can be: their times mean nothing here."""
    return [
        (cupy_device, "missing", lambda: None),
        (cupy_device, "count", lambda: len(devices)),
        (cupy_device, "open_device", lambda ordinal=None: devices[(ordinal or 0) % len(devices)]),
        (driver, "identities", lambda: tuple(f"shim {number}" for number in range(len(devices)))),
        (choice, "WARM", 0),
        (choice, "SAMPLES", 1),
    ]


def sanitized(*selection: str) -> subprocess.CompletedProcess:
    """Run pytest with these arguments where accesses out of bounds are found; its exit status, stdout and stderr."""
    # libstdc++ too: AddressSanitizer looks for what throws exceptions when it starts, before Python loads any C++.
    find = [[COMPILER, f"-print-file-name={name}"] for name in ("libasan.so", "libstdc++.so")]
    libraries = [subprocess.check_output(command, text=True).strip() for command in find]
    options = "detect_leaks=0:detect_stack_use_after_return=0:allocator_may_return_null=1"
    return pytest_again(*selection, LD_PRELOAD=" ".join(libraries), ASAN_OPTIONS=options, SHIM_SANITIZE="1")


def pytest_again(*selection: str, **environment: str) -> subprocess.CompletedProcess:
    """Run pytest with these arguments in a process of its own that has these environment variables."""
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-m", "", *selection]
    return subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def _library(kernel: cuda.Kernel, capability: int = 90, worker: int = 0) -> ctypes.CDLL:
    """The compiled kernel, for one of the OS threads, each of which has its own shared variables."""
    source = cuda.source(kernel.file)
    arch = f"-D__CUDA_ARCH__={10 * capability}" if "__CUDA_ARCH__" in source else ""
    defines = "".join(f"#define {name} {value}\n" for name, value in kernel.defines.items())
    return _loaded(Path(kernel.file).name, kernel.name, defines, source, str(kernel), arch, worker)


@cache
def _loaded(file: str, name: str, defines: str, source: str, kernel: str, arch: str, worker: int) -> ctypes.CDLL:
    # Macros come after the header, so that theirs are not its names. In the namespace shared variables of templates are
    # local, as their section must be.
    text = f'#include "shim.hpp"\n{defines}namespace {{\n#line 1 "{file}"\n{source}\n}}\n'
    text += f'extern "C" SHIM_EXPORT void shim_entry(void** arguments) {{ shim_call({name}, arguments); }}\n'
    _runtime()
    flags = [f"-std={cuda.STANDARD}", "-DSPDNN_SHIM", *arch.split(), *FLAGS, *_fma(), *(SANITIZER if SANITIZED else [])]
    path = _compiled(text, flags, f"kernel {kernel}")
    # A file loaded twice has its variables once, so each thread has a copy of its own.
    copy = compile_cache.entry("shim", [path.stem, str(worker)], ".so", lambda target: shutil.copyfile(path, target))
    return ctypes.CDLL(str(copy))


def _shared_variables(library: ctypes.CDLL) -> int:
    """Bytes of a kernel's static shared memory; guarded variables take more, so not to be asked of a sanitized one."""
    begin, end = ctypes.c_void_p(), ctypes.c_void_p()
    library.shim_shared(ctypes.byref(begin), ctypes.byref(end))
    return (end.value or 0) - (begin.value or 0)


@cache
def _runtime() -> ctypes.CDLL:
    """shim.cpp, whose names all kernels find. It is never sanitized; it calls AddressSanitizer where that is loaded."""
    path = _compiled((HERE / "shim.cpp").read_text(), [f"-std={cuda.STANDARD}", *FLAGS, "-pthread"], "shim.cpp")
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    pointer, number, wide = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
    library.shim_run.argtypes = [pointer, number, pointer, wide, number, wide, number, ctypes.c_uint64]
    library.shim_run.argtypes += [ctypes.c_char_p, ctypes.c_size_t]
    return library


def _compiled(text: str, flags: list[str], what: str) -> Path:
    """The shared library of `text`, from the cache or compiled now.

    Raises:
        SpdnnError: it does not compile; the compiler's log is in the sentence.
    """

    def compile_to(target: Path) -> None:
        command = [COMPILER, *flags, f"-I{HERE}", "-x", "c++", "-", "-o", str(target)]
        # Without AddressSanitizer's library, which a compiler of its own would be slow with.
        environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        done = subprocess.run(command, input=text, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SpdnnError(f"{what} does not compile:\n{done.stderr}")

    sources = [text, (HERE / "shim.hpp").read_text(), _version(), *flags]
    return compile_cache.entry("shim", sources, ".so", compile_to)


@cache
def _version() -> str:
    return subprocess.check_output([COMPILER, "--version"], text=True).splitlines()[0]


@cache
def _fma() -> list[str]:
    """The flag that makes fmaf one instruction, where this processor has it; elsewhere the library's is called."""
    try:
        return ["-mfma"] if " fma " in Path("/proc/cpuinfo").read_text() else []
    except OSError:
        return []
