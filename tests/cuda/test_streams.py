"""Streams, events, copies and graphs of the CUDA shim, in every order. That some order shows where an event is missing:
test_taskgraph_cuda.py."""

import numpy as np
import pytest
from shim import ShimDevice

from spdnn.core.errors import SpdnnError
from spdnn.kernels.cuda import copies
from spdnn.kernels.cuda.copies import Copies

ORDERS = range(12)


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_is_done_before_somebody_waits_and_no_more_than_must_be(order):
    device = ShimDevice(order)
    array, host = device.upload(np.zeros(3, np.int32)), device.pinned_array(3, np.int32)
    host[:] = 1, 2, 3
    later, event = device.stream(), device.event()
    assert event.done()
    device.copy_in(array, host)
    device.record(event)
    with device.on(later):
        device.fill(array, 0xFF)
    assert (array[0] == 0) == (order != 0)
    with device.on(later):
        assert device.read(array)[0] in ((-1,) if order == 1 else (-1, 1))
    event.synchronize()
    assert event.done()


@pytest.mark.parametrize("order", ORDERS)
def test_copies_go_on_beside_the_host_from_few_buffers(set_all, order):
    set_all(copies, PINNED_BUFFERS=2, BUFFER_BYTES=100)
    device = ShimDevice(order)
    uploads, small = Copies(device), device.empty(5, np.uint8)
    pinned = len(device.node.memory)
    sizes, reused = (0, 1, 25, 26, 77), np.empty(77, np.float32)
    given = [np.random.default_rng(size).random(size, np.float32) for size in sizes]
    arrays = []
    for host in given:
        reused[: host.size] = host
        arrays.append(uploads.upload(reused[: host.size]))
        reused[:] = -1
        if order and host.size == 1:
            assert np.isnan(arrays[-1]).all()  # nobody has waited
    uploads.copy(small, np.arange(5, dtype=np.uint8))
    seconds = uploads.finish()
    assert uploads.finish() == seconds > 0
    for array, host in zip(arrays, given, strict=True):
        np.testing.assert_array_equal(array, host)
    assert small.tolist() == [0, 1, 2, 3, 4]
    assert len(device.node.memory) == pinned == 2
    assert not device.main.queue


def forked(device, second, array, other):
    """A graph on two streams: both fill, the first goes on."""
    events = [device.event() for _ in range(2)]

    def work():
        device.fill(array, 1)
        device.record(events[0])
        with device.on(second):
            device.wait(events[0])
            device.fill(other, 2)
            device.record(events[1])
        device.wait(events[1])
        device.fill(array[:1], 5)

    return device.capture(work)


@pytest.mark.parametrize("order", ORDERS)
def test_a_graph_is_done_as_often_as_it_is_launched_and_not_before(order):
    device = ShimDevice(order)
    array, other = device.empty(3, np.uint8), device.empty(3, np.uint8)
    replay = forked(device, device.stream(), array, other)
    assert list(device.read(array)) == [0xFF] * 3
    for _ in range(2):
        device.fill(array, 9), device.fill(other, 9)
        replay()
        assert list(device.read(array)) == [5, 1, 1]
        assert list(device.read(other)) == [2, 2, 2]
    assert len(device.node.streams) == 2  # those of a launch go with it
    third = device.stream()
    with device.on(third):
        replay()
        assert list(device.read(other)) == [2, 2, 2]


def test_what_cuda_refuses_in_a_capture_is_refused():
    device = ShimDevice(0)
    second, outside, array = device.stream(), device.event(), device.empty(3, np.uint8)
    device.record(outside)
    inside = device.event()

    def elsewhere(work, joined=False):
        def inner():
            device.record(inside)
            with device.on(second):
                work()
                device.record(inside)
            if joined:
                device.wait(inside)

        return inner

    def unjoined():
        device.wait(inside)
        device.fill(array, 0)

    for work, sentence in (
        (lambda: device.read(array), "the host waits for a stream while a graph is captured"),
        (lambda: device.synchronize(), "the host waits for a device while"),
        (lambda: outside.synchronize(), "the host waits for an event while"),
        (lambda: device.empty(1, np.uint8), "memory is taken while a graph is captured"),
        (lambda: device.wait(outside), "waits for an event that was recorded outside of it"),
        (elsewhere(lambda: device.fill(array, 0)), "a stream that takes no part in the graph"),
        (elsewhere(unjoined), "a stream of the graph that is captured is not waited for at its end"),
    ):
        with pytest.raises(SpdnnError, match=sentence):
            device.capture(work)
    device.capture(elsewhere(unjoined, joined=True))()
    with pytest.raises(SpdnnError, match="recorded in a captured graph is waited for outside"):
        device.wait(inside)


def test_a_copy_from_memory_that_is_not_pinned_is_refused():
    device = ShimDevice()
    array, held = device.empty(3, np.int32), device.pinned_array(9, np.int32)
    device.copy_in(array, held[3:6])
    with pytest.raises(AssertionError, match="not pinned"):
        device.copy_in(array, np.zeros(3, np.int32))
