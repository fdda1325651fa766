"""A GPU through CuPy: the device that the CUDA engines open.

CuPy is imported when a device is opened, never to find out whether there is one (`driver`). It compiles kernels with
NVRTC for the architecture of the device, and keeps them in its cache. To the options of a kernel it adds `-ftz=true`
(results below the normal numbers become 0) and `--device-as-default-execution-space`.
"""

import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from spdnn.core.errors import InputError, MemoryTooSmall, SpdnnError, Unavailable
from spdnn.kernels.cuda.cupy_streams import SYNCHRONIZE, CupyStreams, line, synchronizes
from spdnn.kernels.cuda.declarations import Kernel, source
from spdnn.kernels.cuda.device import Properties
from spdnn.kernels.cuda.driver import count, dotted_version, missing

NO_MEMORY = 2  # cudaErrorMemoryAllocation, and CUDA_ERROR_OUT_OF_MEMORY
FORGOTTEN = 13, 75  # from this NVRTC on, it compiles for devices of this compute capability (x 10) and later
_PROMISES: dict[int, tuple[int, int]] = {}  # of each device: who promised last, and the pool's limit before, 0: none
LARGEST_CARVEOUT = 100  # per cent of the memory that the L1 cache and shared memory divide


def open_device(ordinal: int | None = None) -> "CupyDevice":
    """The device of this number (default: the first).

    Raises:
        Unavailable: something is missing, or does not fit this device; the sentence says what.
        InputError: there is no device of this number.
    """
    start, sentence = time.perf_counter(), missing()
    if sentence:
        raise Unavailable(sentence)
    # All that is missing is found out before a device is opened, each as a sentence that says what to do.
    devices = count()
    if not 0 <= (ordinal or 0) < devices:
        raise InputError(f"device {ordinal}: the devices here are numbered 0 to {devices - 1}")
    try:
        import cupy
    except Exception as error:
        raise Unavailable(f"CuPy is installed and cannot be imported: {line(error)}") from error
    try:
        device = CupyDevice(cupy, ordinal or 0)
        compiler = cupy.cuda.nvrtc.getVersion()
    except RuntimeError as error:
        raise Unavailable(f"CuPy cannot open device {ordinal or 0}: {line(error)}") from error
    # A newer NVRTC no longer compiles for old devices, which CuPy finds out at the first kernel only.
    release, least = FORGOTTEN
    if compiler[0] >= release and device.properties.capability < least:
        raise Unavailable(
            f"{device.properties.name} has compute capability {device.properties.capability / 10}, and NVRTC"
            f" {'.'.join(map(str, compiler))} compiles for {least / 10} and later: make setup CUDA=12 (or pip"
            " install cupy-cuda12x for cupy-cuda13x)"
        )
    device.startup_seconds = time.perf_counter() - start
    return device


class CupyDevice(CupyStreams):
    """A GPU. Its arrays are CuPy's, from CuPy's pool of memory; its streams do not wait for the default stream."""

    def __init__(self, cupy: Any, ordinal: int):
        """`cupy`: the module; the devices are numbered from 0."""
        super().__init__(cupy, ordinal)
        self._pool = cupy.get_default_memory_pool()
        self._functions: dict[Kernel, Any] = {}
        self._flushed = None
        self.properties = _properties(cupy, ordinal)
        _end_promise(self._pool, self._device, ordinal)

    def promise(self, nbytes: int) -> None:
        """As Device.promise; of all that CuPy takes on this GPU, until this object is gone or another one is made."""
        with self._working(), self._current():
            before = _PROMISES[self.ordinal][1] if self.ordinal in _PROMISES else self._pool.get_limit()
            _PROMISES[self.ordinal] = id(self), before
            self._pool.set_limit(size=int(nbytes))
        weakref.finalize(self, _end_promise, self._pool, self._device, self.ordinal, id(self)).atexit = False

    def upload(self, host: np.ndarray) -> Any:
        host = np.ascontiguousarray(host)
        array = self._array(host.shape, host.dtype)
        with self._working(), self._current():
            array.set(host, stream=self._stream)
            self._stream.synchronize()  # the caller may change `host` now, even where it is pinned
        return array

    def empty(self, size: int, dtype: Any) -> Any:
        return self._array((int(size),), np.dtype(dtype))

    def _array(self, shape: tuple[int, ...], dtype: np.dtype) -> Any:
        with self._working(), self._current(), self._enough(int(np.prod(shape, dtype=object)) * dtype.itemsize):
            return self._cupy.empty(shape, dtype=dtype)

    def fill(self, array: Any, byte: int) -> None:
        with self._working(), self._current():
            array.data.memset_async(byte, array.nbytes, self._stream)

    def read(self, array: Any) -> np.ndarray:
        with self._working(), self._current():
            host = array.get(stream=self._stream)
            self._stream.synchronize()
        return host

    def address(self, array: Any) -> int:
        return int(array.data.ptr)

    def holds(self, array: Any) -> bool:
        return getattr(array.data, "device_id", self.ordinal) == self.ordinal  # NumPy's are on no device

    def free_bytes(self) -> int:
        """Of the device, and no more than CuPy was allowed (CUPY_GPU_MEMORY_LIMIT). What CuPy's pool keeps is given
        back first; the rest of blocks of which a part is in use counts as taken, for nothing large may fit there."""
        with self._working(), self._current():
            # Blocks that the pool keeps are no free memory of CUDA's, and could serve smaller arrays alone.
            self._pool.free_all_blocks()
            free, limit = self._cupy.cuda.runtime.memGetInfo()[0], self._pool.get_limit()
            return max(0, min(free, limit - self._pool.total_bytes())) if limit else free

    def held_bytes(self) -> int:
        with self._current():
            return self._pool.total_bytes()

    def trim(self) -> None:
        with self._working(), self._current():
            self._pool.free_all_blocks()
            self._cupy.get_default_pinned_memory_pool().free_all_blocks()

    def flush(self) -> None:
        """Write twice as many bytes as the second-level cache has, so that what comes next finds nothing in it."""
        if self._flushed is None:
            self._flushed = self.empty(2 * self.properties.l2_bytes, np.uint8)
        self.fill(self._flushed, 0)

    def _bind(self, kernel: Kernel, blocks: int, values: tuple, shared: int) -> Callable[[], None]:
        launch = f"kernel {kernel}, {blocks:,} blocks of {kernel.threads} threads, {shared:,} bytes of shared memory"
        start, function = time.perf_counter(), self._function(kernel)
        if shared:
            # Opting in: a kernel gets 48 KB of shared memory unless it is allowed more. CuPy gives every session the
            # same function, so each allows it what any other may have been allowed.
            with self._working(launch), self._current():
                most = self.properties.shared_per_block - function.shared_size_bytes
                function.max_dynamic_shared_size_bytes = most
                function.preferred_shared_memory_carveout = LARGEST_CARVEOUT
        # What a launch needs is looked up now, for a run calls it thousands of times.
        with self._current():
            compiled = function.kernel
        self.startup_seconds += time.perf_counter() - start
        device, faults, grid, block = self._device, self._faults, (blocks,), (kernel.threads,)

        def call() -> None:
            self._last = launch
            try:
                with device:
                    compiled(grid, block, values, shared_mem=shared, stream=self._stream)
            except faults as error:
                raise SpdnnError(f"{self._up_to(launch)}: {line(error)}") from error

        if not self.one_by_one:
            return call

        # One by one: the launch ends when it is done, so that a fault names the kernel that it is of.
        def waiting() -> None:
            call()
            with self._working(launch):
                self._stream.synchronize()

        return waiting

    def _function(self, kernel: Kernel) -> Any:
        """The kernel, compiled.

        Raises:
            SpdnnError: it does not compile, with the compiler's log; or the compiler cannot be loaded.
        """
        # Compiled once for each setting of its macros; CuPy keeps the binaries on disk, by source and options.
        if kernel not in self._functions:
            try:
                with self._current():
                    module = self._cupy.RawModule(code=source(kernel.file), options=kernel.options, backend="nvrtc")
                    self._functions[kernel] = module.get_function(kernel.name)
            except self._cupy.cuda.compiler.CompileException as error:
                raise SpdnnError(f"kernel {kernel} does not compile:\n{str(error).strip()}") from error
            except (RuntimeError, OSError) as error:  # NVRTC, the headers, the driver, or the folder of CuPy's cache
                raise SpdnnError(f"kernel {kernel} cannot be compiled or loaded: {line(error)}") from error
        return self._functions[kernel]

    @contextmanager
    def _enough(self, nbytes: int) -> Iterator[None]:
        """Too little memory in here is MemoryTooSmall. CuPy's pool has an error of its own for it; without the pool,
        it is one of CUDA's, identified by its number alone."""
        try:
            yield
        except (self._cupy.cuda.memory.OutOfMemoryError, *self._faults) as error:
            if isinstance(error, self._faults) and getattr(error, "status", None) != NO_MEMORY:
                raise
            free, taken = self.free_bytes(), self._pool.used_bytes()
            raise MemoryTooSmall(
                f"{nbytes:,} bytes were asked for on {self.properties.name}, and {free:,} are free besides the"
                f" {taken:,} in use",
                taken + nbytes,
            ) from error


def _end_promise(pool: Any, device: Any, ordinal: int, owner: int | None = None) -> None:
    """Give the pool of a device the limit that it had before a promise, of this owner or of any."""
    if ordinal in _PROMISES and owner in (None, _PROMISES[ordinal][0]):
        with device:
            pool.set_limit(size=_PROMISES.pop(ordinal)[1])


def _properties(cupy: Any, ordinal: int) -> Properties:
    cuda = cupy.cuda
    # What times depend on besides the device goes into the record; with one launch at a time they are others.
    software = [
        f"CuPy {cupy.__version__}",
        f"CUDA driver {dotted_version(cuda.runtime.driverGetVersion())}",
        f"CUDA runtime {dotted_version(cuda.runtime.runtimeGetVersion())}",
        f"NVRTC {'.'.join(map(str, cuda.nvrtc.getVersion()))}",
        *([f"{SYNCHRONIZE}=1"] if synchronizes() else []),
    ]
    attributes = cuda.runtime.getDeviceProperties(ordinal)
    return Properties(
        name=attributes["name"].decode(),
        capability=10 * attributes["major"] + attributes["minor"],
        multiprocessors=attributes["multiProcessorCount"],
        threads=attributes["maxThreadsPerMultiProcessor"],
        shared_per_block=attributes["sharedMemPerBlockOptin"],
        shared=attributes["sharedMemPerMultiprocessor"],
        l2_bytes=attributes["l2CacheSize"],
        memory_bytes=attributes["totalGlobalMem"],
        software=", ".join(software),
    )
