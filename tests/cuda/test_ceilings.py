"""The ceilings of a device: every kernel does its work, and what is measured is sound. Nothing here depends on time."""

import math

import numpy as np
import pytest
from shim import ShimDevice

from spdnn.core import limits
from spdnn.core.errors import InputError, MemoryTooSmall, SpdnnError, Unavailable
from spdnn.engines.cuda import ceilings

BLOCKS = 3


@pytest.fixture(params=[0, 1, 2])
def device(request):
    return ShimDevice(order=request.param, multiprocessors=1)


def sums(device, kernel, each, rounds, shared=0, **given):
    """What a kernel writes: float64 (threads of the grid, each), or (threads,) of one number each."""
    found = device.empty(BLOCKS * ceilings.LOAD_THREADS * each, np.float32)
    device.bind(kernel, BLOCKS, {"sums": found, "rounds": rounds, **given}, shared)()
    return device.read(found).reshape(-1, each).squeeze().astype(np.float64)


@pytest.mark.parametrize("count", [1, 255, 768, 5 * 768 + 1, 10_000])
@pytest.mark.parametrize("rounds", [1, 2])
def test_every_float_is_copied_and_no_more(device, count, rounds):
    values = np.random.default_rng(0).random(4 * count, np.float32)
    target = device.empty(4 * count + 8, np.float32)
    given = {"source": device.upload(values), "target": target, "count": count, "rounds": rounds}
    device.bind(ceilings.COPY, BLOCKS, given)()
    found = device.read(target)
    np.testing.assert_array_equal(found[: 4 * count], values)
    assert (found[4 * count :].view(np.uint8) == 0xFF).all()


@pytest.mark.parametrize("rounds", [1, 3, 130])
def test_loads_of_shared_memory_take_every_line(device, rounds):
    found = sums(device, ceilings.SHARED, 4, rounds, ceilings.SHARED_BYTES)
    lines = np.add.outer(np.arange(ceilings.SHARED_ROWS), np.arange(ceilings.TILE)).sum(axis=0)
    expected = rounds * lines.reshape(8, 4)[np.arange(len(found)) % 8]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("turns", [1, 2, 5])
def test_loads_of_the_second_cache_go_through_the_buffer(device, turns):
    count = turns * BLOCKS * ceilings.LOAD_THREADS
    values = np.random.default_rng(0).integers(0, 100, 4 * count).astype(np.float32)
    found = sums(device, ceilings.SECOND, 4, turns, buffer=device.upload(values), count=count)
    np.testing.assert_array_equal(found.sum(axis=0), ceilings.IN_FLIGHT * values.reshape(-1, 4).sum(axis=0))
    # A thread's places are all of the grid apart, so one that read another's would not have this sum.
    own = values.reshape(turns, -1, 4).sum(axis=0)
    np.testing.assert_array_equal(found, ceilings.IN_FLIGHT * own)


@pytest.mark.parametrize("rounds", [0, 1, 7])
def test_every_multiply_add_is_done(device, rounds):
    chains, steps = np.arange(ceilings.CHAINS), ceilings.STEPS * rounds
    assert (sums(device, ceilings.FMA, 1, rounds, factor=1.0, step=3.0) == (chains + 3 * steps).sum()).all()
    assert (sums(device, ceilings.FMA, 1, rounds, factor=0.0, step=3.0) == (24 if rounds else 28)).all()


def test_a_device_is_measured():
    device = ShimDevice(multiprocessors=1, capability=86, l2_bytes=1 << 18)
    found = ceilings.measure(device, 0.02)
    assert found.instruction_set == "sm_86"
    for name in limits.RATES:
        assert len(getattr(found, name)) == ceilings.WINDOWS
        assert all(0 < rate < 1e13 for rate in getattr(found, name))
    assert all(device.launches[kernel.name] >= 5 for kernel in ceilings.KERNELS)  # checked, found how many, timed


class Clocked(ShimDevice):
    """A device on which a round of anything takes a microsecond, and a launch as long."""

    def bind(self, kernel, blocks, arguments, shared=0, sizes=None):
        launch = super().bind(kernel, blocks, {**arguments, "rounds": min(arguments["rounds"], 8)}, shared, sizes)
        return lambda: (launch(), setattr(self, "clock", 1e-6 * (1 + arguments["rounds"])))

    def seconds(self, work):
        work()
        return self.clock


def test_windows_are_as_long_as_asked_for_and_rates_are_work_over_time():
    device = Clocked(multiprocessors=1, l2_bytes=1 << 18)
    threads = ceilings.LOAD_BLOCKS * ceilings.LOAD_THREADS
    found = ceilings.measure(device, 0.32)  # windows of 10 ms, so of 5,000 rounds at least
    work = {
        "copy_bytes_per_second": 2 * ceilings.COPY_L2 * (1 << 18),
        "load_bytes_per_second": threads * 16 * ceilings.SHARED_ROWS,
        "l2_load_bytes_per_second": threads * 16 * ceilings.IN_FLIGHT,
        "fma_per_second": threads * ceilings.CHAINS * ceilings.STEPS,
    }
    for name, one in work.items():
        assert getattr(found, name) == pytest.approx(one * 1e6, rel=1e-3)
        assert getattr(found, name) < one * 1e6


@pytest.mark.parametrize("seconds", [0, -1, math.nan, 61])
def test_out_of_range(seconds):
    with pytest.raises(InputError, match=r"seconds of measuring: it must be above 0 and at most 60"):
        ceilings.measure(ShimDevice(), seconds)


def test_too_little_memory_is_told():
    with pytest.raises(Unavailable, match="8,000,000 free bytes are too few to measure the device: .* need 33,554,432"):
        ceilings.measure(ShimDevice(memory_bytes=8_000_000))
    assert ceilings._copy_bytes(1 << 20, 1 << 40) == 4 << 20
    assert ceilings._copy_bytes(1 << 20, 10 << 20) == (10 << 20) // 4


def test_memory_that_others_take_meanwhile():
    device = ShimDevice(multiprocessors=1, l2_bytes=1 << 16)

    def upload(values):
        raise MemoryTooSmall("9 bytes were asked for, and 3 are free", 9)

    device.upload = upload
    with pytest.raises(Unavailable, match="too little memory to measure the device: 9 bytes were asked for, and 3"):
        ceilings.measure(device, 0.001)


@pytest.mark.parametrize("kernel", ceilings.KERNELS, ids=[kernel.name for kernel in ceilings.KERNELS])
def test_a_kernel_that_does_not_do_its_work_measures_nothing(kernel):
    """A device on which this kernel is never launched."""

    class Idle(ShimDevice):
        def bind(self, asked, *given, **named):
            launch = super().bind(asked, *given, **named)
            return (lambda: None) if asked == kernel else launch

    device = Idle(multiprocessors=1, l2_bytes=1 << 18)
    with pytest.raises(SpdnnError, match=rf"kernel {kernel.name} \(ceilings.cu; .* so it measures nothing"):
        ceilings.measure(device, 0.001)
