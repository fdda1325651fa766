"""On which stream a call works: torch's, where torch's tensors come; stand-ins tell what was entered, in what order."""

import contextlib
import sys
import types

import pytest

from spdnn import ops
from spdnn.ops import backends


@pytest.fixture
def entered(monkeypatch):
    """What is entered, as a list; `entered.pointer` is of torch's current stream."""
    found = types.SimpleNamespace(inside=[], pointer=0)

    @contextlib.contextmanager
    def inside(*what):
        found.inside.append(what)
        try:
            yield
        finally:
            found.inside.remove(what)

    cuda = types.SimpleNamespace(
        Device=lambda ordinal: inside("device", ordinal),
        Stream=types.SimpleNamespace(
            null=inside("null"), from_external=lambda stream: inside("stream", *stream.__cuda_stream__())
        ),
    )
    current = lambda device: types.SimpleNamespace(cuda_stream=found.pointer + device.index)  # noqa: E731
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(cuda=cuda))
    torch = types.SimpleNamespace(cuda=types.SimpleNamespace(current_stream=current))
    monkeypatch.setitem(sys.modules, "torch", torch)
    return found


def tensor(ordinal, on_gpu=True):
    made = type("Tensor", (), {"__module__": "torch"})()
    made.is_cuda, made.device = on_gpu, types.SimpleNamespace(index=ordinal)
    return made


def test_a_call_works_on_the_stream_of_its_first_tensor(entered):
    entered.pointer = 70
    work = backends.on_callers_stream(lambda *arguments, **named: list(entered.inside))
    assert work(1, tensor(2), tensor(3)) == [("device", 2), ("stream", 0, 72)]
    assert work(1, out=tensor(1)) == [("device", 1), ("stream", 0, 71)]
    assert entered.inside == []


def test_a_cupy_that_knows_no_protocol_of_streams_takes_the_pointer(entered):
    cuda = backends.cupy().cuda
    del cuda.Stream.from_external
    cuda.ExternalStream = lambda pointer, ordinal: contextlib.nullcontext(entered.inside.append((pointer, ordinal)))
    entered.pointer = 70
    assert backends.on_callers_stream(lambda _: entered.inside.pop())(tensor(2)) == (72, 2)


def test_the_default_stream_of_torch_is_that_of_cupy_and_nothing_is_entered_without_tensors_on_a_gpu(entered):
    work = backends.on_callers_stream(lambda *arguments, **named: list(entered.inside))
    assert work(tensor(0)) == [("device", 0), ("null",)]
    assert work(1, "torch", tensor(0, on_gpu=False), key=None) == []


def test_an_error_leaves_the_stream(entered):
    def fail(_):
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        backends.on_callers_stream(fail)(tensor(0))
    assert entered.inside == []


def test_every_public_operation_does():
    for name in ops.__all__:
        if name.islower():
            assert getattr(ops, name).__wrapped__.__name__ == name
