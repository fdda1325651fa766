"""Streams, events, copies and graphs of the CUDA shim, as unkind as CUDA allows.

What is asked for on a stream is queued. Only where the host waits is it done, in one of the orders that streams and
events allow, and no more of it than must be: so a copy whose source the host changes too early, a buffer that is
written before its last reader, a result that is read before it is there, changes what comes out. `Node.order` chooses:
0 does everything at once, in the order of issue; 1 goes on with the stream that was made last, whenever it can; each
even number from 2 on draws at every step, each odd one gives every stream a priority.

A capture keeps what it is given, and refuses what CUDA would: waits on the host, memory taken, streams that do not take
part, or that nobody waits for at the end. Its launch puts copies of its streams beside the others.
"""

import time
import weakref
from collections import deque
from contextlib import contextmanager

import numpy as np

from spdnn.core.errors import SpdnnError
from spdnn.kernels.cuda.device import Device, Event


class Token:
    """One recording of an event."""

    def __init__(self, capture=None):
        self.done, self.time, self.capture = False, None, capture

    def come(self):
        self.done, self.time = True, time.perf_counter()


class Op:
    """Something on a stream: `work`, or to record or to wait for a Token."""

    def __init__(self, work=None, record=None, wait=None):
        self.work, self.record, self.wait = work, record, wait

    @property
    def ready(self):
        return self.wait is None or self.wait.done

    def run(self):
        if self.work:
            self.work()
        if self.record:
            self.record.come()


class Stream:
    def __init__(self, node):
        self.node, self.queue, self.priority = node, deque(), node.random.random()
        node.streams.append(self)


class Node:
    """The computer that devices are in: all streams, and who goes on.

    Attributes:
        peers: whether devices reach the memory of each other.
    """

    def __init__(self, order=0, peers=True):
        self.order, self.peers, self.random = order, peers, np.random.default_rng(order)
        self.streams, self.capture, self.memory = [], None, []

    def issue(self, stream, op):
        if self.capture:
            self.capture.take(stream, op)
            return
        stream.queue.append(op)
        if self.order == 0:
            self.until(lambda: not stream.queue)

    def until(self, come):
        """Go on until `come()`; no stream waits for ever, for what is waited for was recorded before."""
        while not come():
            assert self.step(), "streams wait for each other"

    def step(self):
        """Do one thing; whether there was one that could be done."""
        ready = [stream for stream in self.streams if stream.queue and stream.queue[0].ready]
        if not ready:
            return False
        if self.order % 2 == 0:
            stream = ready[self.random.integers(len(ready))]
        else:
            stream = ready[-1] if self.order == 1 else max(ready, key=lambda one: one.priority)
        stream.queue.popleft().run()
        return True

    def waits(self, what):
        if self.capture:
            raise SpdnnError(f"{what} while a graph is captured")

    def is_pinned(self, host):
        return any(np.may_share_memory(host, one()) for one in self.memory if one() is not None)


class Capture:
    """What was asked for between the begin and the end of a capture, in order: (stream, Op)."""

    def __init__(self, origin):
        self.origin, self.ops, self.streams = origin, [], [origin]

    def take(self, stream, op):
        if op.wait and op.wait.capture is not self:
            raise SpdnnError("a graph that is captured waits for an event that was recorded outside of it")
        if stream not in self.streams:
            if not op.wait:
                raise SpdnnError("work on a stream that takes no part in the graph that is captured")
            self.streams.append(stream)
        self.ops.append((stream, op))

    def check_joined(self):
        """All streams must have been waited for, as CUDA wants it."""
        last, recorded, reached = {}, {}, [set() for _ in self.ops]
        for i, (stream, op) in enumerate(self.ops):
            before = [place for place in (last.get(stream), recorded.get(op.wait)) if place is not None]
            reached[i] = {i}.union(*(reached[place] for place in before))
            last[stream] = i
            recorded |= {op.record: i} if op.record else {}
        end = reached[last[self.origin]] if self.origin in last else set()
        if any(place not in end for place in last.values()):
            raise SpdnnError("a stream of the graph that is captured is not waited for at its end")

    def replay(self, node, stream):
        """Queue it: on `stream`, and on streams of its own beside it."""
        begin = Token()
        node.issue(stream, Op(record=begin))
        streams = {one: stream if one is self.origin else Stream(node) for one in self.streams}
        tokens, ends = {}, []
        for one in self.streams[1:]:
            node.issue(streams[one], Op(wait=begin))
        for one, op in self.ops:
            record = tokens.setdefault(op.record, Token()) if op.record else None
            node.issue(streams[one], Op(op.work, record, tokens[op.wait] if op.wait else None))
        for one in self.streams[1:]:
            ends.append(Token())
            node.issue(streams[one], Op(lambda one=one: node.streams.remove(streams[one]), ends[-1]))
        for end in ends:
            node.issue(stream, Op(wait=end))


class ShimEvent(Event):
    def __init__(self, device, timed):
        self.device, self.node, self.timed, self.token = device, device.node, timed, None

    def done(self):
        self.node.waits("the host asks for an event")
        if self.token and not self.token.done:
            self.node.step()  # time passes
        return self.token is None or self.token.done

    def synchronize(self):
        self.node.waits("the host waits for an event")
        self.node.until(lambda: self.token is None or self.token.done)


class ShimStreams(Device):
    """The part of ShimDevice that knows of streams."""

    def __init__(self, node):
        self.node, self.main = node, Stream(node)
        self.current, self.streams = self.main, [self.main]

    def issue(self, work):
        self.node.issue(self.current, Op(work))

    def waits(self, what):
        self.node.waits(what)

    def finish(self):
        """Wait for the current stream."""
        self.waits("the host waits for a stream")
        self.node.until(lambda: not self.current.queue)

    def stream(self):
        self.streams.append(Stream(self.node))
        return self.streams[-1]

    @contextmanager
    def on(self, stream):
        assert stream in self.streams
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def event(self, timed=False):
        return ShimEvent(self, timed)

    def record(self, event):
        assert event.device is self
        event.token = Token(self.node.capture)
        self.node.issue(self.current, Op(record=event.token))

    def wait(self, event):
        assert event.node is self.node
        if event.token is None:
            return
        if event.token.capture is not self.node.capture and not self.node.capture:
            raise SpdnnError("an event that was recorded in a captured graph is waited for outside of it")
        self.node.issue(self.current, Op(wait=event.token))

    def elapsed(self, before, after):
        for event in (before, after):
            assert event.timed
            assert event.device is self
            assert event.token.done, "an event that has not come has no time"
        return after.token.time - before.token.time

    def pinned_array(self, size, dtype):
        whole = np.full(int(size) * np.dtype(dtype).itemsize, 0xFF, np.uint8)
        self.node.memory = [one for one in self.node.memory if one() is not None] + [weakref.ref(whole)]
        return whole.view(dtype)

    def copy_in(self, array, host):
        self._copy(array, host, host)

    def copy_out(self, host, array):
        self._copy(host, array, host)

    def _copy(self, target, source, host):
        assert self.node.is_pinned(host), "the host's memory is not pinned: the copy would be waited for"
        self._transfer(target, source)

    def _transfer(self, target, source):
        assert target.nbytes == source.nbytes
        assert target.flags.c_contiguous
        assert source.flags.c_contiguous
        self.issue(lambda: np.copyto(target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8)))

    def reach(self, other):
        assert other.node is self.node
        return self.node.peers

    def move(self, array, other, source):
        assert other.node is self.node
        self._transfer(array, source)

    def _capture(self, work):
        self.waits("a graph is captured")
        capture = self.node.capture = Capture(self.current)
        try:
            work()
        finally:
            self.node.capture = None
        capture.check_joined()
        for _, op in capture.ops:
            if op.record:
                op.record.capture = "ended"  # and not the capture, which would keep itself and its memory

        def replay():
            self.waits("a graph is launched")
            capture.replay(self.node, self.current)

        return replay

    def synchronize(self):
        self.waits("the host waits for a device")
        self.node.until(lambda: not any(stream.queue for stream in self.streams))

    def seconds(self, work):
        start = time.perf_counter()
        work()
        self.finish()
        return time.perf_counter() - start
