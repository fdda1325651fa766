"""The machine's limits: what is measured is sound, and what follows from it is exact. Nothing here depends on time."""

import math

import msgspec
import numpy as np
import pytest
from refusals import refuses

from spdnn.core import limits
from spdnn.core.errors import Unavailable
from spdnn.core.features import Inputs
from spdnn.core.limits import LOADS, MEMORY
from spdnn.core.resources import affinity
from spdnn.engines.base import Options
from spdnn.engines.cpu import ceilings as machine
from spdnn.engines.registry import engine
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels import dispatch
from spdnn.kernels.tiles import buffer
from spdnn.runs import measure
from spdnn.runs.records.files import read_result, read_samples, write_result, write_samples
from spdnn.runs.records.result import ResultRecord

LEVELS = [level.name for level in dispatch.levels()]
# Bytes or multiply-adds a second of no core (4 loads of 64 bytes in each cycle at 10 GHz are 2.6e12): work that a
# compiler left out, so that only looking at the clock is left, is above 1e13.
FASTEST = 4e12


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 3])
def test_every_level_is_measured(monkeypatch, level, threads):
    monkeypatch.setenv("SPDNN_ISA", level)
    monkeypatch.setattr(machine, "COPY_THREAD_BYTES", 1 << 22)  # what is measured is sound, however much memory is free
    found = machine.measure(threads, 0.01)
    assert found.instruction_set == level
    assert found.copy_array_bytes == threads << 22
    for name in limits.RATES:
        rates = getattr(found, name)
        assert len(rates) == len(found.copy_rates) > 1
        assert all(0 < rate < FASTEST * threads for rate in rates)
    assert found.load_bytes_per_second == max(found.load_rates)


def test_no_more_is_spent_than_was_asked_for(monkeypatch):
    from spdnn.kernels import _cpu

    asked = []
    for name in ("copy_samples", "load_samples", "multiply_add_samples"):
        monkeypatch.setattr(_cpu, name, lambda *given: asked.append(given[-1]) or [1.0])
    machine.measure(1, 0.2)
    assert sum(asked) == pytest.approx(0.2)


def test_the_copy_really_copies():
    from spdnn.kernels import _cpu

    size = 3 * machine.COPY_UNIT // 4
    for level in LEVELS:
        source, target = buffer(1, size, 1), buffer(1, size, 1)
        target[:] = 7
        _cpu.copy_samples(level, source, target, 1, 0.001)
        assert (target == source).all()
        assert (source == 1).all()


def test_the_compiled_part_refuses_what_does_not_fit():
    from spdnn.kernels import _cpu

    memory, level = buffer(1, machine.COPY_UNIT // 4, 1), LEVELS[0]
    with pytest.raises(ValueError, match="this processor cannot run that level"):
        _cpu.multiply_add_samples("z80", 1, 0.001)
    with pytest.raises(ValueError, match="hold a chunk a thread"):
        _cpu.copy_samples(level, memory, buffer(1, memory.size, 1), 2, 0.001)
    with pytest.raises(ValueError, match="64-byte aligned"):
        _cpu.load_samples(level, memory[1:], 1, 0.001)
    with pytest.raises(ValueError, match="a multiple of 128 floats"):
        _cpu.load_samples(level, memory[:64], 1, 0.001)
    with pytest.raises(ValueError, match="no threads"):
        _cpu.multiply_add_samples(level, 0, 0.001)


@pytest.mark.parametrize(
    ("threads", "seconds", "told"),
    [(0, 0.1, "threads 0"), (10**6, 0.1, "threads 1000000"), (1, 0, "0 seconds"), (1, math.nan, "nan seconds"),
     (1, 61, "61 seconds of measuring: it must be above 0 and at most 60")],
)  # fmt: skip
def test_out_of_range(threads, seconds, told):
    refuses(told, machine.measure, threads, seconds)


@pytest.mark.parametrize(("free", "memory"), [(4_000_000, None), (4_000_000, 1 << 50), (1 << 50, 1_000_000)])
def test_no_more_than_a_part_of_what_is_free_is_taken(monkeypatch, free, memory):
    monkeypatch.setattr(machine, "available_bytes", lambda: free)
    with pytest.raises(Unavailable, match="memory of 1,000,000 bytes is too small to measure the machine"):
        machine.measure(1, 0.01, memory)


def test_what_many_threads_load_is_limited_too(monkeypatch):
    monkeypatch.setattr(
        machine, "caches", lambda: (machine.CacheLevel(1, 1 << 26, 1), machine.CacheLevel(2, 1 << 20, 1))
    )
    with pytest.raises(Unavailable, match="what threads load from their caches needs 268,435,456"):
        machine.measure(8, 0.01, 200 << 20)


def test_arrays_pass_the_caches_of_all_threads(monkeypatch):
    monkeypatch.setattr(machine, "affinity", lambda: set(range(8)))
    last, unit = machine.CacheLevel(3, 1 << 20, 4), machine.COPY_UNIT
    assert machine._copy_bytes(last, 1, 1 << 40, 1) == 2 << 20  # one of the two caches
    assert machine._copy_bytes(last, 8, 1 << 40, 1) == 4 << 20
    assert machine._copy_bytes(last, 8, 1 << 40, 2) == 2 << 20  # another process has as much
    assert machine._copy_bytes(last, 100, 1 << 40, 1) == 100 * unit
    many = machine.CacheLevel(3, 480 << 20, 2)  # as some virtual machines have it
    assert machine._copy_bytes(many, 2, 1 << 40, 1) == 2 * machine.COPY_THREAD_BYTES == 128 << 20
    with pytest.raises(Unavailable, match="two arrays beyond the caches need 8,388,608"):
        machine._copy_bytes(last, 8, (8 << 20) - 1, 1)


def test_caches_are_read_from_sysfs(tmp_path):
    core = tmp_path / f"cpu{min(affinity())}"
    told = [("1", "Data", "48K", "2"), ("1", "Instruction", "32K", "2"), ("3", "Unified", "32M", "0-3,8-11"),
            ("2", "Unified", "1024K", "2,6")]  # fmt: skip
    for number, values in enumerate(told):
        folder = core / f"cache/index{number}"
        folder.mkdir(parents=True)
        for name, value in zip(("level", "type", "size", "shared_cpu_list"), values, strict=True):
            (folder / name).write_text(f"{value}\n")
    (core / "cache/index4").mkdir()  # tells nothing
    expected = (
        machine.CacheLevel(1, 48 << 10, 1),
        machine.CacheLevel(2, 1 << 20, 2),
        machine.CacheLevel(3, 32 << 20, 8),
    )
    assert machine.caches(tmp_path) == expected
    assert machine.caches(tmp_path / "nowhere") == ()


@pytest.mark.parametrize("known", [(), (machine.CacheLevel(1, 32 << 10, 4),)])
def test_machines_that_tell_little_are_measured_too(set_all, known):
    set_all(
        machine, caches=lambda: known, UNKNOWN=(machine.CacheLevel(1, 1 << 14, 1), machine.CacheLevel(2, 1 << 16, 1))
    )
    assert machine.measure(1, 0.01).l2_load_bytes_per_second > 0


MACHINE = limits.Machine("x86_64", [1e10], [8e11], [4e11], [1e11])


@pytest.mark.parametrize(
    ("edges", "moved", "seconds", "binds"),
    [
        (2 * 10**11, None, 1.0, LOADS),
        (2 * 10**11, 0, 1.0, LOADS),
        (2 * 10**11, 10**10, 1.0, LOADS),  # both at once, and of two that are equal the first
        (2 * 10**11, 3 * 10**10, 3.0, MEMORY),
        (0, 0, 0.0, LOADS),
        (0, 10**9, 0.1, MEMORY),
    ],
)
def test_limit(edges, moved, seconds, binds):
    assert limits.limit(MACHINE, edges, moved) == (seconds, binds)


@pytest.mark.parametrize(("edges", "moved"), [(-1, 0), (0, -1)])
def test_negative_work(edges, moved):
    refuses("neither may be negative", limits.limit, MACHINE, edges, moved)


def measured(runner=None, **options):
    runner, network = runner or engine("cpu"), RadixNet(1024, 2)
    inputs = Inputs.from_array(np.random.default_rng(0).random((40, 1024)) < 0.3)
    measured, result = measure.measure(
        runner, measure.LoadedRun(inputs, runner.prepare(network, ()), 0.1, 0.1), Options(**options), 1
    )
    return measured, result


def test_a_measurement_holds_its_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "COPY_THREAD_BYTES", 1 << 22)
    measurement, result = measured(threads=2)
    assert measurement.machine.instruction_set == result.notes["instruction_set"]
    assert measurement.peak_memory_bytes > 0
    write_samples(tmp_path / "samples.json", measurement)
    assert read_samples(tmp_path / "samples.json") == measurement
    assert measurement.result.bytes_moved == result.bytes_moved


def test_no_machine_where_it_is_not_the_limit_or_memory_is_small(monkeypatch, capsys):
    assert measured(engine("reference"))[0].machine is None
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("spdnn.engines.cpu.engine.resident_bytes", lambda: 10**12 - 1_000_000)
    assert measured(memory=10**12)[0].machine is None
    told = capsys.readouterr().err
    assert told.startswith("spdnn: warning: memory of 1,000,000 bytes is too small to measure the machine: two arrays")
    assert told.endswith("; the record will have no limit of this machine\n")
    assert told.count("\n") == 1
    assert measure.ceilings(engine("cpu"), Options(memory=10**12), warn=False) is None
    assert capsys.readouterr().err == ""


def test_an_engine_on_a_device_tells_its_own_ceilings():
    told = []

    class OnDevice(type(engine("reference"))):
        def ceilings(self, options, seconds, together=1):
            told.append((options.threads, options.device, seconds))
            return msgspec.structs.replace(MACHINE, instruction_set="sm_90")

    found = measured(OnDevice(), threads=2, device=1)[0].machine
    assert told == [(2, 1, measure.MACHINE_SECONDS)]
    assert found.on_device
    assert not MACHINE.on_device

    class Scarce(OnDevice):
        def ceilings(self, options, seconds, together=1):
            raise Unavailable("too little memory")

    assert measured(Scarce())[0].machine is None


@pytest.mark.parametrize("moved", [None, 0, 3 * 2**40])
def test_bytes_moved_are_kept(tmp_path, moved):
    result = measured()[1]
    result.bytes_moved = moved
    write_result(tmp_path / "result.npz", result)
    assert read_result(tmp_path / "result.npz").bytes_moved == moved
    assert ResultRecord.of(result).bytes_moved == moved
