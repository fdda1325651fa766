"""A stand-in for the module cupy that records every call that CupyDevice makes of it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np


class Fault(RuntimeError):
    def __init__(self, told, status=1):
        super().__init__(told)
        self.status = status


class RuntimeFault(Fault):
    def __init__(self, told, status=None):  # CuPy's own takes a status, and tells what it means
        super().__init__(told, told if status is None and isinstance(told, int) else status or 1)


class DriverFault(Fault):
    pass


class CompileFault(Exception):
    pass


class OutOfMemory(MemoryError):
    pass


class Stream:
    """Also stands for a device: both are entered."""

    def __init__(self, cuda, name, ptr=0):
        self.cuda, self.name, self.ptr, self.entered = cuda, name, ptr, 0

    def __enter__(self):
        self.entered += 1
        return self

    def __exit__(self, *_):
        self.entered -= 1

    def use(self):
        self.cuda.calls.append((self.name, "use"))

    def synchronize(self):
        self.cuda.calls.append((self.name, "synchronize"))
        self.cuda.fail()

    def wait_event(self, event):
        self.cuda.calls.append((self.name, "waits for", event.name))
        self.cuda.fail()

    def begin_capture(self):
        self.cuda.calls.append((self.name, "begin_capture"))

    def end_capture(self):
        self.cuda.calls.append((self.name, "end_capture"))
        self.cuda.fail()
        return Graph(self.cuda)


class Graph:
    def __init__(self, cuda):
        self.cuda = cuda

    def launch(self, stream):
        self.cuda.calls.append(("graph", "launch", stream.name))
        self.cuda.fail()


class Event:
    def __init__(self, cuda, timed):
        self.cuda, self.timed, self.name = cuda, timed, f"event {len(cuda.events)}"
        self.ptr, self.status = len(cuda.events), 600  # cudaErrorNotReady
        cuda.events.append(self)

    def record(self, stream):
        self.cuda.calls.append(("record", stream.name))

    def synchronize(self):
        self.cuda.calls.append((self.name, "synchronize"))
        self.cuda.fail()


class Array:
    def __init__(self, cuda, shape, dtype):
        self.cuda, self.held = cuda, np.empty(shape, dtype)
        self.dtype, self.size, self.nbytes, self.flags = dtype, self.held.size, self.held.nbytes, self.held.flags
        self.data = SimpleNamespace(ptr=4096, memset_async=self.memset)  # two arrays are never told apart by it

    def memset(self, byte, size, stream):
        assert (size, stream.name) == (self.nbytes, self.cuda.expected)
        self.held.view(np.uint8)[...] = byte

    def set(self, host, stream):
        assert stream.name == self.cuda.expected
        self.cuda.calls.append(("set", host.shape))
        self.held[...] = host

    def get(self, stream):
        assert stream.name == self.cuda.expected
        self.cuda.fail()
        return self.held.copy()


class Function:
    """A kernel of RawModule and, as its `kernel`, what is launched."""

    shared_size_bytes = 376

    def __init__(self, cuda, name):
        self.__dict__.update(cuda=cuda, name=name, kernel=self)

    def __setattr__(self, name, value):
        self.cuda.calls.append((name, value))
        self.cuda.fail()

    def __call__(self, grid, block, values, shared_mem, stream):
        assert stream.name == self.cuda.expected
        assert self.cuda.device.entered
        self.cuda.fail()
        self.cuda.launched.append((self.name, grid, block, values, shared_mem))


class Cuda:
    """Stands in for the module cupy; `fault` is raised once, by the next call that can fail.

    Attributes:
        expected: the name of the stream that calls are to be given.
    """

    __version__ = "14.0"

    def __init__(self):
        self.calls, self.launched, self.compiled = [], [], []
        self.fault = self.compile_fault = None
        self.free, self.limit, self.pool = 10_000, 0, True
        self.nvrtc = 12, 9
        self.device, self.streams, self.events, self.expected = Stream(self, "device"), [], [], "stream"
        self.peers, self.enabled = True, False
        told = {"name": b"Made up", "major": 8, "minor": 6, "multiProcessorCount": 4, "l2CacheSize": 512}
        told |= {"maxThreadsPerMultiProcessor": 1536, "sharedMemPerBlockOptin": 101_376, "totalGlobalMem": 10_000}
        told |= {"sharedMemPerMultiprocessor": 102_400}
        self.told = told
        self.cuda = SimpleNamespace(
            Device=lambda ordinal: self.device,
            Stream=self.make_stream,
            Event=lambda disable_timing=False: Event(self, not disable_timing),
            get_elapsed_time=self.elapsed,
            alloc_pinned_memory=self.alloc_pinned,
            PinnedMemory=self.pin,
            PinnedMemoryPointer=lambda memory, offset: memory,
            runtime=SimpleNamespace(
                CUDARuntimeError=RuntimeFault,
                getDeviceProperties=lambda ordinal: told,
                memGetInfo=lambda: (self.free, 10_000),
                eventQuery=lambda event: self.events[event].status,
                hostAllocPortable=1,
                memcpyHostToDevice=1,
                memcpyDeviceToHost=2,
                memcpyDeviceToDevice=3,
                memcpyAsync=lambda *given: self.call("memcpyAsync", *given),
                memcpyPeerAsync=lambda *given: self.call("memcpyPeerAsync", *given),
                deviceCanAccessPeer=lambda device, peer: device != peer and self.peers,
                deviceEnablePeerAccess=self.enable,
                driverGetVersion=lambda: 12_090,
                runtimeGetVersion=lambda: 12_080,
            ),
            driver=SimpleNamespace(CUDADriverError=DriverFault),
            memory=SimpleNamespace(OutOfMemoryError=OutOfMemory),
            compiler=SimpleNamespace(CompileException=CompileFault),
            nvrtc=SimpleNamespace(getVersion=lambda: self.nvrtc),
        )

    def fail(self):
        fault, self.fault = self.fault, None
        if fault:
            raise fault

    def make_stream(self, non_blocking):
        assert non_blocking
        number = len(self.streams)
        self.streams.append(Stream(self, "stream" if not number else f"stream {number}", 77 + number))
        return self.streams[-1]

    @property
    def stream(self):
        return self.streams[0]

    def elapsed(self, before, after):
        assert before.timed
        assert after.timed
        return 1500.0

    def alloc_pinned(self, size):
        self.calls.append(("alloc_pinned_memory", size))
        self.fail()
        return bytearray(size + 100)  # CuPy gives more, in units of its own

    def pin(self, size, flags):
        self.call("hostAlloc", size, flags)
        return bytearray(size)

    def call(self, *given):
        assert self.device.entered
        self.calls.append(given)
        self.fail()

    def enable(self, peer):
        self.call("deviceEnablePeerAccess", peer)
        if self.enabled:
            raise RuntimeFault("cudaErrorPeerAccessAlreadyEnabled: already", 704)
        self.enabled = True

    def get_default_memory_pool(self):
        emptied = lambda: self.calls.append(("pool", "free_all_blocks"))  # noqa: E731
        told = {
            "set_limit": lambda size: setattr(self, "limit", size),
            "used_bytes": lambda: 700,
            "free_bytes": lambda: 24,
            "get_limit": lambda: self.limit,
        }
        return SimpleNamespace(**told, free_all_blocks=emptied)

    def get_default_pinned_memory_pool(self):
        return SimpleNamespace(free_all_blocks=lambda: self.calls.append(("pinned pool", "free_all_blocks")))

    def empty(self, shape, dtype):
        assert self.device.entered
        assert next(one for one in self.streams if one.name == self.expected).entered
        self.fail()
        array = Array(self, shape, np.dtype(dtype))
        if array.nbytes > self.free:
            raise OutOfMemory("Out of memory") if self.pool else RuntimeFault("cudaErrorMemoryAllocation", 2)
        return array

    def RawModule(self, code, options, backend):
        if self.compile_fault:
            raise self.compile_fault
        self.compiled.append((code, options, backend))
        return SimpleNamespace(get_function=lambda name: Function(self, name))
