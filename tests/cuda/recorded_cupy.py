"""A stand-in for the module cupy on the shim's streams: what CupyDevice asks for is done only where it waits.

It is called with what the CuPy installed takes, or the call fails. A copy of what has changed since, work on another
stream and results that nobody waited for are seen in numbers. On its clock a kernel takes a millisecond, a fill
ten, a copy none, or what `takes` says. The host takes `calling` for each call; what it asks for begins later than that.
`computing` lets kernels compute, on the shim.
"""

import ctypes
from collections import Counter
from types import SimpleNamespace

import cupy
import numpy as np
import shim_streams
from cupy_signatures import bound, bound_as
from shim import ShimDevice
from shim_streams import Capture, Node, Op, Token

from spdnn.kernels.cuda.cupy_device import CupyDevice

NOT_READY = 600


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


@bound_as(cupy.cuda.Device)
class Device:
    def __init__(self, cuda, ordinal):
        self.cuda, self.ordinal = cuda, ordinal

    def __enter__(self):
        self.cuda.entered.append(self.ordinal)

    def __exit__(self, *_):
        self.cuda.entered.pop()

    def synchronize(self):
        self.cuda.fail()
        self.cuda.node.until(
            lambda: not any(stream.queue for stream in self.cuda.streams if stream.ordinal == self.ordinal)
        )


@bound_as(cupy.cuda.Stream)
class Stream(shim_streams.Stream):
    def __init__(self, cuda, non_blocking):
        assert non_blocking
        super().__init__(cuda.node)
        self.cuda, self.ordinal, self.ptr, self.entered = cuda, cuda.current, len(cuda.streams), 0
        cuda.streams.append(self)

    def __enter__(self):
        self.entered += 1

    def __exit__(self, *_):
        self.entered -= 1

    def synchronize(self):
        self.cuda.fail()
        self.node.waits("the host waits for a stream")
        self.node.until(lambda: not self.queue)

    def wait_event(self, event):
        self.cuda.issue(self, Op(wait=event.token))

    def begin_capture(self):
        self.node.capture = Capture(self)

    def end_capture(self):
        capture, self.node.capture = self.node.capture, None
        self.cuda.fail()
        self.cuda.graphs.append(capture)
        return Graph(self.cuda, capture)


@bound_as(cupy.cuda.Graph)
class Graph:
    def __init__(self, cuda, capture):
        self.cuda, self.capture = cuda, capture

    def upload(self, stream):
        self.cuda.asked["upload of a graph"] += 1

    def launch(self, stream):
        self.cuda.fail()
        self.cuda.asked["graph"] += 1
        self.cuda.call(stream)
        self.capture.replay(self.cuda.node, stream)


@bound_as(cupy.cuda.Event)
class Event:
    def __init__(self, cuda, disable_timing=False):
        self.cuda, self.timed, self.token, self.ptr = cuda, not disable_timing, None, len(cuda.events)
        cuda.events.append(self)

    def record(self, stream):
        self.token = Token(self.cuda.node.capture)
        self.cuda.issue(stream, Op(self.stamp, self.token))

    def stamp(self):
        self.time = self.cuda.now

    @property
    def come(self):
        return self.token is None or self.token.done

    def synchronize(self):
        self.cuda.fail()
        self.cuda.node.until(lambda: self.come)
        self.cuda.host = max(self.cuda.host, self.cuda.now)


@bound_as(cupy.ndarray)
class Array:
    def __init__(self, cuda, held):
        self.cuda, self.held = cuda, held
        self.dtype, self.size, self.nbytes, self.flags = held.dtype, held.size, held.nbytes, held.flags
        self.data = SimpleNamespace(
            ptr=held.ctypes.data,
            device_id=cuda.current,
            memset_async=bound(cupy.cuda.MemoryPointer.memset_async, self.memset),
        )

    def __getitem__(self, key):
        return Array(self.cuda, self.held[key])

    def view(self, dtype):
        return Array(self.cuda, self.held.view(dtype))

    def memset(self, byte, size, stream):
        assert size == self.nbytes

        def fill():
            self.cuda.passes(self.cuda.takes.get("fill", 10))
            self.held.reshape(-1).view(np.uint8).fill(byte)

        self.cuda.issue(stream, Op(fill))

    def set(self, host, stream):
        self.cuda.issue(stream, Op(lambda: np.copyto(self.held, host)))

    def get(self, stream):
        host = np.empty_like(self.held)
        self.cuda.issue(stream, Op(lambda: np.copyto(host, self.held)))
        return host


class Function:
    """A kernel of RawModule and, as its `kernel`, what is launched."""

    shared_size_bytes, allowed, preferred_shared_memory_carveout = 376, 48 << 10, None

    def __init__(self, cuda, name):
        self.cuda, self.name, self.kernel = cuda, name, self

    @property
    def max_dynamic_shared_size_bytes(self):
        return self.allowed

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, size):
        self.cuda.fail()
        self.allowed = size

    def __call__(self, grid, block, values, shared_mem, stream):
        assert shared_mem <= self.allowed
        given = self.name, grid, block, values, shared_mem
        self.cuda.asked["kernel"] += not self.cuda.node.capture
        self.cuda.issue(stream, Op(lambda: self.done(*given)))

    def done(self, *given):
        self.cuda.passes(self.cuda.takes.get(self.name, 1))
        self.cuda.launched.append(given)


def computing(cuda):
    """A CupyDevice on `cuda` whose kernels compute, on the shim."""
    shim = ShimDevice(capability=86, multiprocessors=4, shared_per_block=cuda.told["sharedMemPerBlockOptin"])
    cuda.free = cuda.told["totalGlobalMem"] = 1 << 30

    class Computes(Function):
        def __init__(self, kernel):
            super().__init__(cuda, kernel.name)
            self.described = kernel

        def done(self, name, grid, block, values, shared):
            super().done(name, grid, block, values, shared)
            there = tuple(value.held if isinstance(value, Array) else value for value in values)
            shim._bind(self.described, grid[0], there, shared)()

    device = CupyDevice(cuda, 0)
    device._function = Computes
    return device


def _bind(stand_in, real):
    """The functions of a stand-in's namespace, and of those in it, take only what those of `real` do; the namespace."""
    for name, value in vars(stand_in).items():
        if isinstance(value, SimpleNamespace):
            _bind(value, getattr(real, name))
        elif callable(value) and not isinstance(value, type):
            setattr(stand_in, name, bound(getattr(real, name), value))
    return stand_in


@bound_as(cupy)
class Cuda:
    """Stands in for the module cupy; `fault` is raised once, by the next call that can fail.

    Attributes:
        launched: what kernels were given, once they have run; broken: what events are told to be, if not 0.
        asked: how often Python launched a kernel or a graph, or uploaded one; graphs: what was captured.
        entered: the devices that are; the thread's own is the first.
    """

    __version__ = "14.0"

    def __init__(self):
        self.node, self.now, self.host, self.calling, self.takes = Node(order=1), 0, 0, 0, {}
        self.launched, self.compiled, self.functions, self.arrays = [], [], [], []
        self.streams, self.events, self.entered, self.graphs, self.asked = [], [], [], [], Counter()
        self.fault = self.compile_fault = None
        self.free, self.limit, self.pool, self.broken = 10_000, 0, True, 0
        self.kept, self.pinned = {"pool", "pinned pool"}, 0
        self.nvrtc = 12, 9
        self.peers, self.enabled = True, set()
        told = {"name": b"Made up", "major": 8, "minor": 6, "multiProcessorCount": 4, "l2CacheSize": 512}
        told |= {"maxThreadsPerMultiProcessor": 1536, "sharedMemPerBlockOptin": 101_376, "totalGlobalMem": 10_000}
        told |= {"sharedMemPerMultiprocessor": 102_400}
        self.told = told
        self.cuda = SimpleNamespace(
            Device=lambda ordinal: Device(self, ordinal),
            Stream=lambda non_blocking: Stream(self, non_blocking),
            Event=lambda disable_timing=False: Event(self, disable_timing),
            get_elapsed_time=self.elapsed,
            alloc_pinned_memory=lambda size: self.pin(1 << max(9, size - 1).bit_length()),  # in units of its own
            PinnedMemory=lambda size, flags: self.pin(size),
            PinnedMemoryPointer=lambda memory, offset: memory,
            runtime=SimpleNamespace(
                CUDARuntimeError=RuntimeFault,
                getDeviceProperties=lambda ordinal: told,
                memGetInfo=lambda: (self.free, 10_000),
                eventQuery=lambda event: self.broken or (0 if self.events[event].come else NOT_READY),
                hostAllocPortable=1,
                memcpyHostToDevice=1,
                memcpyDeviceToHost=2,
                memcpyDeviceToDevice=3,
                memcpyAsync=self.copy_bytes,
                memcpyPeerAsync=self.copy_to_peer,
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
        _bind(self.cuda, cupy.cuda)

    @property
    def current(self):
        """The number of the device that CuPy uses."""
        return self.entered[-1] if self.entered else 0

    def fail(self):
        fault, self.fault = self.fault, None
        if fault:
            raise fault

    def passes(self, milliseconds):
        self.now += milliseconds

    def issue(self, stream, op):
        assert self.entered[-1] == stream.ordinal
        self.fail()
        self.call(stream)
        self.node.issue(stream, op)

    def call(self, stream):
        """The host asks for something: its time passes, and the stream comes to it then or later."""
        self.host += self.calling
        if self.calling and not self.node.capture:
            self.node.issue(stream, Op(lambda at=self.host: self.passes(max(0, at - self.now))))

    def elapsed(self, before, after):
        assert before.timed
        assert after.timed
        return after.time - before.time

    def pin(self, size):
        assert self.entered
        self.fail()
        self.pinned += size
        return bytearray(size)

    def holder(self, address):
        """The device that has this memory; None: it is the host's."""
        found = (array for array in self.arrays if array.data.ptr <= address < array.data.ptr + array.nbytes)
        return next((one.data.device_id for one in found), None)

    def copy_bytes(self, target, source, size, kind, stream):
        stream = self.streams[stream]
        here = stream.ordinal
        assert (self.holder(target), self.holder(source)) == ((here, None), (None, here), (here, here))[kind - 1]

        def work():
            self.passes(self.takes.get("copy", 0))
            ctypes.memmove(target, source, size)

        self.issue(stream, Op(work))

    def copy_to_peer(self, target, target_device, source, source_device, size, stream):
        assert (self.holder(target), self.holder(source)) == (target_device, source_device)
        self.issue(self.streams[stream], Op(lambda: ctypes.memmove(target, source, size)))

    def enable(self, peer):
        self.fail()
        assert self.entered
        if (self.current, peer) in self.enabled:
            raise RuntimeFault("cudaErrorPeerAccessAlreadyEnabled: already", 704)
        self.enabled.add((self.current, peer))

    def get_default_memory_pool(self):
        return _bind(
            SimpleNamespace(
                set_limit=lambda size: setattr(self, "limit", size),
                used_bytes=lambda: 700,
                total_bytes=lambda: 724 + 300 * ("pool" in self.kept),  # 24 are the rest of a block in use
                get_limit=lambda: self.limit,
                free_all_blocks=lambda: self.kept.discard("pool"),
            ),
            cupy.cuda.MemoryPool,
        )

    def get_default_pinned_memory_pool(self):
        pool = SimpleNamespace(free_all_blocks=lambda: self.kept.discard("pinned pool"))
        return _bind(pool, cupy.cuda.PinnedMemoryPool)

    def empty(self, shape, dtype):
        assert any(stream.entered and stream.ordinal == self.entered[-1] for stream in self.streams)
        self.fail()
        nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if nbytes > self.free:
            raise OutOfMemory("Out of memory") if self.pool else RuntimeFault("cudaErrorMemoryAllocation", 2)
        held = np.empty(shape, dtype)
        held.reshape(-1).view(np.uint8).fill(0xFF)
        self.arrays.append(Array(self, held))
        return self.arrays[-1]

    def RawModule(self, code, options, backend):
        if self.compile_fault:
            raise self.compile_fault
        self.compiled.append((code, options, backend))
        return SimpleNamespace(get_function=bound(cupy.RawModule.get_function, self.get_function))

    def get_function(self, name):
        self.functions.append(Function(self, name))
        return self.functions[-1]
