"""Streams of the device behind CuPy, without a GPU: every call that it makes of CuPy, in order, and that the CuPy
installed takes what is given."""

from __future__ import annotations

import cupy
import numpy as np
import pytest
from recorded_cupy import RuntimeFault

from spdnn.errors import MemoryTooSmall, SpdnnError
from spdnn.kernels.cuda import settings
from spdnn.kernels.cuda.cupy_device import CupyDevice


def launch_of(device):
    """Some bound launch."""
    rows, origin, slot_of = (device.empty(4, np.int32) for _ in range(3))
    return device.bind(settings.SLOTS, 1, {"rows": rows, "origin": origin, "slot_of": slot_of})


def test_a_launch_goes_to_the_stream_that_is_current_when_it_is_called(device, cuda):
    launch, second = launch_of(device), device.stream()
    cuda.expected = "stream 1"
    with device.on(second):
        launch()
        with device.on(device.main):
            cuda.expected = "stream"
            launch()
        cuda.expected = "stream 1"
        launch()
        device.fill(device.empty(3, np.int32), 7)
    cuda.expected = "stream"
    launch()
    assert len(cuda.launched) == 4


def test_events_order_streams(device, cuda):
    second, event = device.stream(), device.event()
    del cuda.calls[:]
    device.record(event)
    with device.on(second):
        device.wait(event)
    event.synchronize()
    assert cuda.calls == [
        ("record", "stream"), ("stream 1", "waits for", "event 0"), ("event 0", "synchronize"),
    ]  # fmt: skip
    assert not event.done()
    event.held.status = 0
    assert event.done()
    assert not event.held.timed
    before, after = device.event(timed=True), device.event(timed=True)
    assert device.elapsed(before, after) == 1.5


def test_a_fault_of_the_device_is_not_an_event_that_has_not_come(device):
    """CuPy's Event.done would say so, and who asks until it has come would ask for ever."""
    assert cupy.cuda.runtime.eventQuery(0) not in (0, 600)  # tells faults, and raises none
    event = device.event()
    device.record(event)
    event.held.status = 700
    with pytest.raises(SpdnnError, match="^a call of CUDA: 700$"):
        event.done()


def test_an_event_of_another_device_is_waited_for(cuda):
    one, other = CupyDevice(cuda, 0), CupyDevice(cuda, 1)
    event = one.event()
    other.wait(event)
    assert cuda.calls[-1] == ("stream 1", "waits for", "event 0")


def test_copies_are_of_the_current_stream_and_wait_for_nothing(device, cuda):
    host, array = device.pinned(6, np.float32), device.empty(6, np.float32)
    assert (host.size, host.dtype, host.flags.writeable) == (6, np.float32, True)
    assert device.pinned(0, np.int32).size == 0
    del cuda.calls[:]
    with device.on(device.stream()):
        device.copy_in(array, host)
        device.copy_out(host, array)
    place = host.ctypes.data
    assert cuda.calls == [("memcpyAsync", 4096, place, 24, 1, 78), ("memcpyAsync", place, 4096, 24, 2, 78)]
    device.copy_in(device.empty(0, np.int32), host[:0])
    assert len(cuda.calls) == 2
    with pytest.raises(SpdnnError, match="24 and 12 bytes: arrays are copied whole"):
        device.copy_in(array, host[:3])
    with pytest.raises(SpdnnError, match="24 and 24 bytes"):
        device.copy_in(array, device.pinned(12, np.float32)[::2])


def test_host_memory_that_cannot_be_pinned_is_too_little_memory(device, cuda):
    cuda.fault = RuntimeFault("cudaErrorMemoryAllocation: out of memory", 2)
    with pytest.raises(MemoryTooSmall, match="^4,000 bytes of host memory that devices copy from: .*out of memory$"):
        device.pinned(1000, np.float32)


def test_large_pinned_memory_is_no_larger_than_was_asked_for(device, cuda):
    """CuPy's pool would make of 300 MiB, the weights of a stage, 512."""
    host = device.pinned(3 << 19, np.uint16)
    assert cuda.calls[-1] == ("hostAlloc", 3 << 20, cupy.cuda.runtime.hostAllocPortable)
    assert (host.size, host.flags.writeable) == (3 << 19, True)
    device.pinned(1 << 20, np.uint8)
    assert cuda.calls[-1] == ("alloc_pinned_memory", 1 << 20)
    empty = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(0, cupy.cuda.runtime.hostAllocPortable), 0)
    assert np.frombuffer(empty, np.uint8).size == 0


def test_moves_between_devices_name_both(cuda):
    one, other = CupyDevice(cuda, 0), CupyDevice(cuda, 1)
    target, source = other.empty, one.empty
    cuda.expected = "stream"
    source = source(5, np.int32)
    cuda.expected = "stream 1"
    target = target(5, np.int32)
    other.move(target, one, source)
    assert cuda.calls[-1] == ("memcpyPeerAsync", 4096, 1, 4096, 0, 20, 78)
    other.move(target, other, source)
    assert cuda.calls[-1] == ("memcpyAsync", 4096, 4096, 20, 3, 78)


def test_devices_reach_each_other_where_they_can(cuda):
    one, other = CupyDevice(cuda, 0), CupyDevice(cuda, 1)
    assert one.reach(other)
    assert cuda.calls[-1] == ("deviceEnablePeerAccess", 1)
    assert one.reach(other)  # another session has done so already
    cuda.peers = False
    del cuda.calls[:]
    assert not one.reach(other)
    assert one.reach(CupyDevice(cuda, 0))  # the same GPU, of which CUDA says that it is no peer of its own
    assert ("deviceEnablePeerAccess", 0) not in cuda.calls
    cuda.peers = True
    cuda.fault = RuntimeFault("cudaErrorTooManyPeers", 711)
    with pytest.raises(SpdnnError, match="TooManyPeers"):
        one.reach(other)


def test_a_graph_is_captured_once_and_launched_on_the_current_stream(device, cuda):
    launch, second, events = launch_of(device), device.stream(), [device.event() for _ in range(2)]
    del cuda.calls[:]

    def work():
        launch()
        device.record(events[0])
        with device.on(second):
            device.wait(events[0])
            device.record(events[1])
        device.wait(events[1])

    replay = device.capture(work)
    captured = list(cuda.calls)
    assert captured == [
        ("stream", "begin_capture"), ("record", "stream"), ("stream 1", "waits for", "event 0"),
        ("record", "stream 1"), ("stream", "waits for", "event 1"), ("stream", "end_capture"),
    ]  # fmt: skip
    replay()
    with device.on(second):
        replay()
    assert cuda.calls[len(captured) :] == [("graph", "launch", "stream"), ("graph", "launch", "stream 1")]
    assert len(cuda.launched) == 1


def test_a_capture_that_fails_is_ended_and_told(device, cuda):
    def broken():
        raise SpdnnError("this went wrong")

    with pytest.raises(SpdnnError, match="^this went wrong$"):
        device.capture(broken)
    assert cuda.calls[-1] == ("stream", "end_capture")
    cuda.fault = RuntimeFault("cudaErrorStreamCaptureUnjoined: a stream was not joined")
    with pytest.raises(SpdnnError, match="^a graph that is captured: cudaErrorStreamCaptureUnjoined"):
        device.capture(lambda: None)
    replay = device.capture(lambda: None)
    cuda.fault = RuntimeFault("cudaErrorIllegalAddress")
    with pytest.raises(SpdnnError, match="^a graph's launch: cudaErrorIllegalAddress"):
        replay()


def test_launches_in_a_capture_are_not_waited_for(cuda, monkeypatch):
    monkeypatch.setenv("SPDNN_CUDA_SYNCHRONIZE", "1")
    device = CupyDevice(cuda, 0)
    launch = launch_of(device)
    del cuda.calls[:]
    device.capture(launch)
    assert ("stream", "synchronize") not in cuda.calls
    launch()
    assert ("stream", "synchronize") in cuda.calls


def test_all_streams_are_waited_for(device, cuda):
    device.stream()
    device.synchronize()
    assert cuda.calls[-2:] == [("stream", "synchronize"), ("stream 1", "synchronize")]


def test_a_promise_is_the_limit_of_the_pool(device, cuda):
    device.promise(5000)
    assert cuda.limit == 5000
    assert device.free_bytes() == 5000 - 700
    device.promise(4000)
    CupyDevice(cuda, 1)
    assert cuda.limit == 4000
    CupyDevice(cuda, 0)  # opened again
    assert cuda.limit == 0


def test_cupy_takes_what_is_given():
    """By the signatures that it tells; CUDA itself is not there to be called."""
    runtime = cupy.cuda.runtime
    for function, taken in {
        runtime.memcpyAsync: "dst, intptr_t src, size_t size, int kind, intptr_t stream",
        runtime.memcpyPeerAsync: "dst, int dstDevice, intptr_t src, int srcDevice, size_t size, intptr_t stream",
        runtime.deviceCanAccessPeer: "int device, int peerDevice",
        runtime.deviceEnablePeerAccess: "int peerDevice",
        cupy.cuda.Stream.wait_event: "event",
        cupy.cuda.Stream.begin_capture: "mode=None",
        cupy.cuda.Graph.launch: "stream=None",
        cupy.cuda.MemoryPool.set_limit: "size=None",
        cupy.cuda.alloc_pinned_memory: "size_t size",
    }.items():
        assert taken in function.__doc__.splitlines()[0], function
    assert "disable_timing (bool)" in cupy.cuda.Event.__doc__
