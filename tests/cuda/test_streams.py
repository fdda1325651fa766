"""Streams, events, copies and graphs of the CUDA shim: in every order they give one result where events are right, and
where one is missing some order shows it."""

import numpy as np
import pytest
from shim import ShimDevice

from spdnn.core.errors import SpdnnError
from spdnn.kernels.cuda import copies, settings
from spdnn.kernels.cuda.copies import Copies

ORDERS = range(12)


class Pipe:
    """Numbers pass from pinned memory through two buffers of a device: a copy on one stream, a kernel on another, and
    back. The kernel is `words`, which makes a number of each bit."""

    def __init__(self, order, missing=None):
        self.device, self.missing = ShimDevice(order), missing
        device = self.device
        self.copying, self.back = device.stream(), device.stream()
        self.host = [device.pinned_array(4, np.uint8) for _ in range(2)]
        self.buffers = [device.empty(4, np.uint8) for _ in range(2)]
        self.found = [device.empty(32, np.uint32) for _ in range(2)]
        self.told = device.pinned_array(32 * 10, np.uint32).reshape(10, 32)
        given = {"stored": device.upload(np.zeros(1, np.int32)), "batch": device.upload(np.array([0, 1], np.int32))}
        self.launches = [
            device.bind(settings.WORDS, 1, {"bits": buffer, "words": found, "neurons": 32, **given})
            for buffer, found in zip(self.buffers, self.found, strict=True)
        ]
        self.events = {(name, i): device.event() for name in ("copied", "read", "computed", "told") for i in range(2)}

    def wait(self, name, place):
        if name != self.missing:
            self.device.wait(self.events[name, place])

    def step(self, i):
        device, place = self.device, i % 2
        if self.missing != "host":
            self.events["copied", place].synchronize()
        self.host[place][:] = GIVEN[i]
        with device.on(self.copying):
            self.wait("read", place)
            device.copy_in(self.buffers[place], self.host[place])
            device.record(self.events["copied", place])
        self.wait("copied", place)
        self.wait("told", place)
        self.launches[place]()
        device.record(self.events["read", place])
        device.record(self.events["computed", place])
        with device.on(self.back):
            self.wait("computed", place)
            device.copy_out(self.told[i], self.found[place])
            device.record(self.events["told", place])

    def run(self):
        for i in range(10):
            self.step(i)
        self.device.synchronize()
        return self.told.copy()


GIVEN = np.random.default_rng(0).integers(0, 256, (10, 4), np.uint8)
EXPECTED = np.unpackbits(GIVEN, axis=1)


@pytest.mark.parametrize("order", ORDERS)
def test_every_order_gives_what_events_ask_for(order):
    np.testing.assert_array_equal(Pipe(order).run(), EXPECTED)


@pytest.mark.parametrize("missing", ["host", "read", "copied", "computed", "told"])
def test_a_missing_event_is_found(missing):
    """Whichever it is, some order shows it; the order of issue shows none, as a device may not for years."""
    wrong = [order for order in ORDERS if not np.array_equal(Pipe(order, missing).run(), EXPECTED)]
    assert 0 not in wrong
    assert wrong


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
    set_all(copies, BUFFERS=2, BUFFER_BYTES=100)
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
