"""The operations' backend on the CPU shim: where launches go, what stays on the device, how settings are found; and the
public functions on it."""

import gc
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest
from cuda_ops_cases import FLOAT, SHAPES, random_values
from refusals import refuses
from shim import ShimDevice

from spdnn import ops
from spdnn.core.errors import Unavailable
from spdnn.ops import cuda, operations, oracle, tuning
from spdnn.ops.cuda import CudaBackend


@pytest.fixture(autouse=True)
def no_choices_kept(monkeypatch, little_measured, tmp_path):
    """Settings are found anew in each test, and none is left in the user's cache."""
    monkeypatch.setenv("SPDNN_TUNED", str(tmp_path / "tuned.json"))


@pytest.fixture
def all_timed(set_all):
    """Settings are timed for products of any size."""
    set_all(tuning, LEAST_OPERATIONS=1)


def product(backend, where, width=64):
    """Arguments of spmm."""
    values = backend.device.upload(random_values((1, where.nnz), FLOAT))
    b = backend.device.upload(random_values((1, where.shape[1], width), FLOAT))
    return where, values, b, None, -np.inf, np.inf, backend.empty((1, where.rows, width), FLOAT)


def test_launches_go_to_the_callers_stream():
    """Of another order than 0, the shim queues what streams are given until somebody waits."""
    device = ShimDevice(order=1)
    streams = [device.stream(), device.stream()]
    here = [0]
    backend = CudaBackend(device, lambda: streams[here[0]])
    arguments = product(backend, SHAPES["11 x 55"](16))
    launch = backend.bind("spmm", *arguments)
    assert [len(stream.queue) for stream in streams] == [0, 0]
    for here[0] in (0, 1, 0):
        launch()
    assert [len(stream.queue) for stream in streams] == [2, 1]
    assert not device.main.queue
    backend.spmm(*arguments)
    assert [len(stream.queue) for stream in streams] == [3, 1]
    device.synchronize()
    np.testing.assert_allclose(
        arguments[-1][0], oracle.spmm(arguments[0], arguments[1], arguments[2])[0], rtol=1e-3, atol=1e-4
    )


def test_a_topology_is_placed_once_and_given_back_with_it():
    device = ShimDevice()
    backend = CudaBackend(device)
    where = SHAPES["ragged"](16)
    arguments = product(backend, where)
    before = device.used
    backend.spmm(*arguments)
    placed = device.used
    assert placed > before
    backend.spmm(*arguments)
    backend.softmax(where, arguments[1], 1.0, arguments[1])
    assert device.used == placed
    del where, arguments
    gc.collect()
    assert not backend._placed
    assert device.used < placed


def test_what_another_stream_may_read_is_given_back_later():
    """CuPy's pool gives memory out again in the order of the stream where it was taken."""
    device = ShimDevice(order=1)
    streams = [device.stream(), device.stream()]
    here = [0]
    backend = CudaBackend(device, lambda: streams[here[0]])
    where, *given = product(backend, SHAPES["ragged"](16))
    backend.spmm(where, *given)
    here[0] = 1
    backend.spmm(where, *given)  # which still waits when the topology goes
    del where
    gc.collect()
    assert not backend._placed
    assert len(backend._late) == 1
    other = SHAPES["11 x 55"](16)
    values = device.upload(random_values((1, other.nnz), FLOAT))
    backend.softmax(other, values, 1.0, values)
    assert not backend._late


def test_nothing_is_placed_or_timed_while_the_stream_is_captured(all_timed):
    device = ShimDevice()
    stream, captured, timed = device.stream(), [False], []
    stream.is_capturing = lambda: captured[0]
    device.elapsed = lambda before, after: timed.append(None) or 1 / len(timed)
    backend = CudaBackend(device, lambda: stream)
    arguments = product(backend, SHAPES["ragged"](16))
    captured[0] = True
    refuses("call the operation once before the capture begins", backend.spmm, *arguments)
    captured[0] = False
    backend.softmax(arguments[0], arguments[1], 1.0, arguments[1])
    captured[0] = True
    backend.spmm(*arguments)
    assert backend.notes["setting"] == backend.candidates("spmm", *arguments)[0]
    assert not timed
    refuses("captured, where no memory can be taken: give the result with out=", backend.empty, (1, 2), np.float32)
    captured[0] = False
    backend.spmm(*arguments)
    assert backend.notes["setting"] == backend.candidates("spmm", *arguments)[-1]
    assert timed


def test_what_a_thread_placed_goes_with_its_backend():
    device, where = ShimDevice(), SHAPES["ragged"](16)

    def run():
        backend = CudaBackend(device)
        backend.spmm(*product(backend, where))

    run()
    gc.collect()
    used = device.used
    run()
    gc.collect()
    assert device.used == used


def test_an_array_of_another_device_is_refused():
    backend = CudaBackend(ShimDevice())
    arguments = product(backend, SHAPES["ragged"](16))
    backend.device.holds = lambda array: array is not arguments[2]
    refuses("spmm: an array is on another GPU than CuPy's current one", backend.spmm, *arguments)


def test_settings_are_timed_once_for_a_class_of_shapes(monkeypatch, all_timed):
    device = ShimDevice()
    timed = []

    def elapsed(before, after):
        timed.append(None)
        return 1.0 if len(timed) % count != 2 else 0.5  # the second of them is the fastest

    device.elapsed = elapsed
    backend = CudaBackend(device)
    arguments = product(backend, SHAPES["ragged"](16))
    settings = backend.candidates("spmm", *arguments)
    count = len(settings)
    backend.spmm(*arguments)
    assert len(timed) == (1 + tuning.ROUNDS) * count
    assert backend.notes == {"operation": "spmm", "kernel": backend.notes["kernel"], "setting": settings[1]}
    assert f"LANES={settings[1][0]}, VECTOR=4" in backend.notes["kernel"]
    CudaBackend(device).spmm(*arguments)
    assert len(timed) == (1 + tuning.ROUNDS) * count
    monkeypatch.setattr(cuda, "source", lambda file: "other kernels")
    CudaBackend(device).spmm(*arguments)
    assert len(timed) == 2 * (1 + tuning.ROUNDS) * count
    assert backend.seconds(backend.bind("spmm", *arguments, setting=settings[-1])) >= 0


def test_small_work_takes_the_usual_setting():
    backend = CudaBackend(ShimDevice())
    arguments = product(backend, SHAPES["11 x 55"](16))
    backend.spmm(*arguments)
    assert backend.notes["setting"] == backend.candidates("spmm", *arguments)[0]


def test_current_is_one_for_each_device_and_thread(on_shim, monkeypatch):
    devices = [ShimDevice(), ShimDevice()]
    on_shim(devices)
    number, stream = [1], object()
    cupy = SimpleNamespace(
        cuda=SimpleNamespace(Device=lambda: SimpleNamespace(id=number[0]), get_current_stream=lambda: stream)
    )
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(cuda, "_here", threading.local())
    first = cuda.current()
    assert first.device is devices[1]
    assert first._stream() is stream
    assert cuda.current() is first
    found = []
    other = threading.Thread(target=lambda: found.append(cuda.current()))
    other.start()
    other.join()
    assert found[0] is not first
    number[0] = 0
    assert cuda.current().device is devices[0]


def test_without_cupy_it_is_unavailable(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Unavailable, match="CuPy"):
        cuda.current()


@pytest.fixture
def on_device(monkeypatch):
    """The public functions run here, whose arrays are NumPy's."""
    device = ShimDevice()
    run = CudaBackend(device)
    monkeypatch.setattr(operations, "backend", lambda *given: run)
    return run


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_the_public_functions_run_on_it(on_device, dtype):
    where, tolerance = SHAPES["ragged"](16), 1e-4 if dtype == np.float32 else 3e-2
    A = ops.SparseMatrix(where, random_values((2, where.nnz), dtype))
    b, q, k, v = (random_values(shape, dtype) for shape in ((140, 24), (22, 16), (140, 16), (140, 8)))
    bias = random_values(22, np.float32)

    def same(got, expected):
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance)
        return got

    spread = np.broadcast_to(b, (2, *b.shape))
    same(ops.spmm(A, b, bias, "relu"), oracle.spmm(where, A.values, spread, bias, 0))
    assert on_device.notes["operation"] == "spmm"
    scores = ops.sddmm(where, q, k, 0.25)
    same(scores.values, oracle.sddmm(where, q, k, 0.25))
    same(ops.softmax(scores).values, oracle.softmax(where, scores.values))
    turned = ops.transpose(A)
    np.testing.assert_array_equal(turned.values, A.values[:, where.transposed[1]])
    expected = same(ops.attention(where, q, k, v), oracle.attention(where, q, k, v, 0.25))
    assert on_device.notes["operation"] == "attention"
    same(ops.attention(where, q, k, v, fused=False), expected)
    x, weights = random_values((1, 4, 5, 6), dtype), random_values((4, 3, 3), dtype)
    same(ops.depthwise_conv(x, weights, bias[:4], stride=2), oracle.depthwise_conv(x, weights, bias[:4], stride=2))
    placed = np.ascontiguousarray(np.moveaxis(x, 1, -1))
    same(ops.depthwise_conv(placed, weights, layout="NHWC"), np.moveaxis(oracle.depthwise_conv(x, weights), 1, -1))
    assert on_device.notes["operation"] == "depthwise"
    given = b.copy()
    one = ops.SparseMatrix(where, A.values[0])
    found = ops.spmm_gradients(one, given, random_values((22, 24), dtype))
    same(found[0].values, oracle.sddmm(where, random_values((22, 24), dtype), b))


def test_nan_is_not_looked_for_and_stays(on_device):
    where = SHAPES["11 x 55"](16)
    b = random_values((55, 4), np.float32)
    b[where.columns[0]] = np.nan
    got = ops.spmm(ops.SparseMatrix(where, random_values(where.nnz, np.float32)), b)
    assert np.isnan(got[where.row_numbers[0]]).all()
