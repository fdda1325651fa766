"""Streams of the device behind CuPy, without a GPU: what is done on which, and in which order."""

import gc

import cupy
import numpy as np
import pytest
from recorded_cupy import RuntimeFault

from spdnn.core.errors import MemoryTooSmall, SpdnnError
from spdnn.kernels.cuda import settings
from spdnn.kernels.cuda.copies import Copies
from spdnn.kernels.cuda.cupy_device import CupyDevice


def launch_of(device):
    """Some bound launch."""
    rows, origin, index_of = (device.empty(4, np.int32) for _ in range(3))
    return device.bind(settings.ROW_INDEX, 1, {"rows": rows, "origin": origin, "index_of": index_of})


def test_work_goes_to_the_stream_that_is_current_when_it_is_asked_for(device, cuda):
    launch, second, array = launch_of(device), device.stream(), device.empty(3, np.uint8)
    with device.on(second):
        launch()
        with device.on(device.main):
            launch()
        device.fill(array, 7)
    launch()
    assert [len(stream.queue) for stream in (device.main, second)] == [2, 2]
    with device.on(second):
        assert (device.read(array) == 7).all()
    assert len(cuda.launched) == 1
    device.synchronize()
    assert len(cuda.launched) == 3


def test_events_order_streams(device):
    second, event, array = device.stream(), device.event(), device.empty(3, np.uint8)
    assert event.done()
    device.fill(array, 7)
    device.record(event)
    device.fill(array, 8)
    assert not event.done()
    with device.on(second):
        device.wait(event)
        assert (device.read(array) == 7).all()
    assert event.done()
    device.record(event)
    event.synchronize()
    assert (array.held == 8).all()
    assert not event.cupy_event.timed
    before, after = device.event(timed=True), device.event(timed=True)
    device.record(before), device.fill(array, 0), device.record(after)
    device.synchronize()
    assert device.elapsed(before, after) == 0.01


def test_a_fault_of_the_device_is_not_an_event_that_has_not_come(device, cuda):
    """CuPy's Event.done would say so, and who asks until it has come would ask for ever."""
    assert cupy.cuda.runtime.eventQuery(0) not in (0, 600)  # tells faults, and raises none
    event = device.event()
    device.record(event)
    cuda.broken = 700
    with pytest.raises(SpdnnError, match="^a call of CUDA: 700$"):
        event.done()


def test_an_event_of_another_device_is_waited_for(cuda):
    one, other = CupyDevice(cuda, 0), CupyDevice(cuda, 1)
    event, array = one.event(), one.empty(3, np.uint8)
    one.fill(array, 7)
    one.record(event)
    other.wait(event)
    other.synchronize()
    assert (array.held == 7).all()


def test_copies_are_of_the_current_stream_and_wait_for_nothing(device):
    host, array = device.pinned_array(6, np.float32), device.empty(6, np.float32)
    assert (host.size, host.dtype, host.flags.writeable) == (6, np.float32, True)
    assert device.pinned_array(0, np.int32).size == 0
    second = device.stream()
    with device.on(second):
        device.copy_in(array, host)
        host[:] = range(6)
        device.main.synchronize()
        assert np.isnan(array.held).all()
        second.synchronize()
        assert (array.held == range(6)).all()
        host[:] = 0
        device.copy_out(host, array)
        assert (host == 0).all()
        second.synchronize()
        assert (host == range(6)).all()
    device.copy_in(device.empty(0, np.int32), host[:0])
    with pytest.raises(SpdnnError, match="24 and 12 bytes: arrays are copied whole"):
        device.copy_in(array, host[:3])
    with pytest.raises(SpdnnError, match="24 and 24 bytes"):
        device.copy_in(array, device.pinned_array(12, np.float32)[::2])


def test_uploads_are_on_a_stream_of_their_own_and_timed_there(device, cuda):
    uploads, host = Copies(device), np.arange(3, dtype=np.float32)
    arrays = [uploads.upload(host), uploads.upload(host[:0])]
    host[:] = 0
    device.main.synchronize()
    assert np.isnan(arrays[0].held).all()
    cuda.takes["copy"] = 3
    assert uploads.finish() == 0.003
    assert (arrays[0].held == range(3)).all()


def test_host_memory_that_cannot_be_pinned_is_too_little_memory(device, cuda):
    cuda.fault = RuntimeFault("cudaErrorMemoryAllocation: out of memory", 2)
    with pytest.raises(MemoryTooSmall, match="^4,000 bytes of host memory that devices copy from: .*out of memory$"):
        device.pinned_array(1000, np.float32)


def test_large_pinned_memory_is_no_larger_than_was_asked_for(device, cuda):
    """CuPy's pool would make of 300 MiB, the weights of a stage, 512."""
    host = device.pinned_array(3 << 19, np.uint16)
    assert cuda.pinned == host.nbytes == 3 << 20
    assert host.flags.writeable
    assert device.pinned_array(3 << 18, np.uint8).nbytes == 3 << 18
    assert cuda.pinned == 4 << 20  # the pool's
    empty = cupy.cuda.PinnedMemoryPointer(cupy.cuda.PinnedMemory(0, cupy.cuda.runtime.hostAllocPortable), 0)
    assert np.frombuffer(empty, np.uint8).size == 0


def test_moves_are_on_the_stream_of_the_device_that_gets(cuda):
    one, other = CupyDevice(cuda, 0), CupyDevice(cuda, 1)
    source, target, last = one.upload(np.arange(5)), other.empty(5, np.int64), other.empty(5, np.int64)
    other.move(target, one, source)
    other.move(last, other, target)
    one.synchronize()
    assert (target.held == -1).all()
    np.testing.assert_array_equal(other.read(last), range(5))


def test_devices_reach_each_other_where_they_can(cuda):
    one, other = CupyDevice(cuda, 0), CupyDevice(cuda, 1)
    assert one.reach(other)
    assert cuda.enabled == {(0, 1)}
    assert one.reach(other)  # another session has done so already
    cuda.peers = False
    assert not one.reach(other)
    assert one.reach(CupyDevice(cuda, 0))  # the same GPU, of which CUDA says that it is no peer of its own
    assert cuda.enabled == {(0, 1)}
    cuda.peers = True
    cuda.fault = RuntimeFault("cudaErrorTooManyPeers", 711)
    with pytest.raises(SpdnnError, match="TooManyPeers"):
        one.reach(other)


def test_a_graph_is_captured_once_and_launched_on_the_current_stream(device, cuda):
    launch, second, array = launch_of(device), device.stream(), device.empty(3, np.uint8)
    events = [device.event() for _ in range(2)]

    def work():
        launch()
        device.record(events[0])
        with device.on(second):
            device.wait(events[0])
            device.fill(array, 7)
            device.record(events[1])
        device.wait(events[1])

    replay = device.capture(work)
    device.synchronize()
    assert not cuda.launched
    assert cuda.asked == {"upload of a graph": 1, "kernel": 0}
    for stream in (device.main, second):
        device.fill(array, 0)
        device.main.synchronize()
        with device.on(stream):
            replay()
            assert stream.queue
            assert (device.read(array) == 7).all()
    assert len(cuda.launched) == 2


def test_a_capture_that_fails_is_ended_and_told(device, cuda):
    def broken():
        raise SpdnnError("this went wrong")

    with pytest.raises(SpdnnError, match="^this went wrong$"):
        device.capture(broken)
    assert cuda.node.capture is None
    cuda.fault = RuntimeFault("cudaErrorStreamCaptureUnjoined: a stream was not joined")
    with pytest.raises(SpdnnError, match="^a graph that is captured: cudaErrorStreamCaptureUnjoined"):
        device.capture(lambda: None)
    replay = device.capture(lambda: None)
    cuda.fault = RuntimeFault("cudaErrorIllegalAddress")
    with pytest.raises(SpdnnError, match="^a graph's launch: cudaErrorIllegalAddress"):
        replay()


def test_nothing_is_collected_during_a_capture(device, cuda):
    """Pinned memory that is collected frees memory of CUDA, which can spoil the capture that is under way."""
    found = []

    class Pinned:
        def __init__(self):
            self.itself = self

        def __del__(self):
            found.append(cuda.node.capture is not None)

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        device.capture(lambda: [Pinned() for _ in range(50)] and None)
        gc.collect()
    finally:
        gc.set_threshold(*before)
    assert len(found) == 50
    assert not any(found)
    assert gc.isenabled()


def test_nothing_is_captured_where_each_launch_is_waited_for(cuda, monkeypatch):
    monkeypatch.setenv("SPDNN_CUDA_SYNCHRONIZE", "1")
    device = CupyDevice(cuda, 0)
    launch = launch_of(device)
    replay = device.capture(launch)
    assert device.one_by_one
    for count in (1, 2):
        replay()
        assert len(cuda.launched) == count
    assert cuda.asked == {"kernel": 2}


def test_the_host_waits_for_all_streams(device, cuda):
    for wait in (device.synchronize, device.idle):
        array = device.empty(3, np.uint8)
        with device.on(device.stream()):
            device.fill(array, 7)
        wait()
        assert (array.held == 7).all()


def test_a_promise_is_the_limit_of_the_pool(device, cuda):
    device.promise(5000)
    assert cuda.limit == 5000
    assert device.free_bytes() == 5000 - 724  # what is left of a block in use is none
    device.promise(4000)
    CupyDevice(cuda, 1)
    assert cuda.limit == 4000
    another = CupyDevice(cuda, 0)  # opened again
    assert cuda.limit == 0
    device.promise(3000)
    another.promise(2000)
    del device
    gc.collect()
    assert cuda.limit == 2000
    del another
    gc.collect()
    assert cuda.limit == 0
