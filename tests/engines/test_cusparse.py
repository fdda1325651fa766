"""What is peculiar to the engine `cusparse`: devices, their memory, blocks, algorithms, and the calls of cuSPARSE.

Its results are compared with the oracle in test_libraries.py, where it is one library of many.
"""

import re
import sys
import types

import numpy as np
import pytest
import stand_in_cupy
from engine_cases import assert_equal, rows
from stand_in_cupy import Memory

from spdnn.api import infer
from spdnn.bench.engines import cusparse
from spdnn.core.errors import InputError, MemoryTooSmall, SpdnnError, Unavailable
from spdnn.core.network import from_matrices
from spdnn.engines import oracle as reference
from spdnn.engines.base import OnDevices, Options
from spdnn.engines.registry import engine
from spdnn.formats.radixnet import RadixNet
from spdnn.kernels.cuda import driver


def opened(network, inputs, **options):
    runner = engine("cusparse")
    return runner.open(runner.prepare(network, runner.offers), inputs, Options(1, **options))


def test_each_session_keeps_to_its_device(gpu):
    assert engine("cusparse").devices() == 2
    network, inputs = RadixNet(1024, 3), rows(20, 1024, kind="bits", density=0.2)
    second, first = opened(network, inputs, device=1), opened(network, inputs)
    assert gpu.used == [1, 1, 0, 0]  # when opened, and in the run that compiles
    second.run()
    first.run()
    assert gpu.used[4:] == [1, 0]
    with pytest.raises(InputError, match="device 2: engine cusparse sees 2 here, counted from 0"):
        opened(network, inputs, device=2)


def test_devices_are_told_apart_by_what_the_driver_calls_them(gpu, monkeypatch):
    monkeypatch.setattr(driver, "identities", lambda: ("one", "other"))
    assert engine("cusparse").device_identities() == ("one", "other")
    assert engine("cuda").device_identities() == ("one", "other")
    assert not isinstance(engine("scipy"), OnDevices)


def test_what_the_notes_tell(gpu):
    notes = opened(RadixNet(1024, 2), rows(3, 1024)).run().notes
    assert notes["device"] == "A stand-in"
    assert notes["algorithm"] in cusparse.ALGORITHMS
    assert {"library", "driver", "layout"} <= notes.keys()


@pytest.fixture
def leave(gpu, set_all):
    """A function that leaves so many bytes free, on a device of which little is reserved: what is told can be compared
    with what is taken."""
    set_all(cusparse, RESERVED=1 << 16, PART_VALUES=1 << 12)
    return lambda free: set_all(Memory, whole=Memory.live + free)


@pytest.mark.parametrize("shape", ["square", "wide and narrow"])
def test_what_is_said_to_fit_fits(leave, random_network, shape):
    widths = [200] * 8 if shape == "square" else [50, 400, 20, 300, 300, 10]
    network = random_network(widths, density=0.1)
    every = rows(3000, widths[0], density=np.linspace(0, 0.3, 3000)[:, None])
    opened(network, rows(1, widths[0]))  # what is imported and compiled is there
    leave(5_000_000)
    with pytest.raises(MemoryTooSmall, match=r"engine cusparse needs .* of 3,000 inputs, and .* are free: ") as error:
        opened(network, every)
    fits = int(re.search(r"([\d,]+) inputs would fit", str(error.value))[1].replace(",", ""))
    assert error.value.least > 5_000_000
    assert 500 < fits < 3000
    got = opened(network, every.first(fits)).run()
    expected = reference.infer(network, every.first(fits))
    np.testing.assert_array_equal(got.alive, expected.alive)
    with pytest.raises(MemoryTooSmall):
        opened(network, every.first(fits + 1))


def test_weights_that_do_not_fit_alone(leave):
    leave(300_000)
    with pytest.raises(MemoryTooSmall, match="the weights alone need") as error:
        opened(RadixNet(1024, 2), rows(1, 1024))
    alone = int(re.search(r"alone need ([\d,]+)", str(error.value))[1].replace(",", ""))
    assert alone >= 8 * RadixNet(1024, 2).edges + cusparse.RESERVED  # an index and a value for each edge


def test_memory_that_others_take_meanwhile_is_a_sentence(leave):
    session = opened(RadixNet(1024, 3), rows(20, 1024))
    leave(0)
    with pytest.raises(MemoryTooSmall, match=r"engine cusparse: too little of the device is free \(Out of memory"):
        session.run()


def test_the_machines_memory_holds_no_weights(gpu, monkeypatch):
    monkeypatch.setattr("spdnn.bench.engines.session.resource.getrusage", lambda _: types.SimpleNamespace(ru_maxrss=0))
    network, inputs = RadixNet(1024, 40), rows(3, 1024)
    assert 12 * network.edges > 15_000_000
    opened(network, inputs, memory=1_000_000)
    with pytest.raises(InputError, match="holds the first and the last features and one layer, the rest on the device"):
        opened(network, inputs, memory=700_000)


@pytest.mark.parametrize("values", [1, 64 * 1024, 300 * 1024])
def test_features_in_several_blocks(gpu, set_all, values):
    network, count = RadixNet(1024, 12), 130 if values == 1 else 700
    inputs = rows(count, 1024, kind="bits", density=np.linspace(0, 0.35, count)[:, None])
    one = infer(network, inputs, "cusparse", values=True)
    set_all(cusparse, MOST_VALUES=values, PART_VALUES=50 * 1024)
    got = infer(network, inputs, "cusparse", values=True)
    assert 0 < got.alive.size < count
    assert_equal(got, one)


def test_one_array_where_it_is_allowed():
    assert cusparse.block_inputs(1024) == 65535 * 16
    assert cusparse.block_inputs(16384) >= 60_000
    assert 30_000 < cusparse.block_inputs(65536) < 2**31 // 65536
    assert [(part.start, part.stop) for part in cusparse.parts(np.empty((1 << 23, 5)))] == [(0, 2), (2, 4), (4, 5)]


def tried(gpu, monkeypatch, wrong):
    """The algorithm that is taken when `wrong(number, out)` is called after each product."""

    def product(matrix, features, out, algorithm):
        multiply = stand_in_cupy.product(matrix, features, out, algorithm)
        return lambda: (multiply(), wrong(algorithm, out))

    found = cusparse.modules()._replace(product=product)
    monkeypatch.setattr(cusparse, "modules", lambda: found)
    return opened(RadixNet(1024, 2), rows(3, 1024)).run().notes["algorithm"]


def test_algorithms_that_change_their_bits_or_fail_are_left_out(gpu, monkeypatch):
    def wrong(algorithm, out):
        if algorithm == cusparse.ALGORITHMS["CSR_ALG2"]:
            out[0, 0] += np.float32(np.random.default_rng().random())
        if algorithm == cusparse.ALGORITHMS["CSR_ALG1"]:
            raise RuntimeError("CUSPARSE_STATUS_NOT_SUPPORTED")

    assert tried(gpu, monkeypatch, wrong) == "CSR_ALG3"


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the one number here is raised."""
    now = [0.0]
    monkeypatch.setattr(cusparse.time, "perf_counter", lambda: now[0])
    return now


def test_uneven_rows_take_the_algorithm_that_repeats_its_bits(gpu, monkeypatch, clock):
    used = []

    def wrong(algorithm, out):
        used.append(algorithm)
        if algorithm == cusparse.ALGORITHMS["CSR_ALG3"]:
            clock[0] += 1  # slower, and so not the one of even rows

    assert tried(gpu, monkeypatch, wrong) != "CSR_ALG3"
    even = used[-1]
    weights = np.tril(np.ones((3, 3), np.float32))
    infer(from_matrices([weights], last="relu"), rows(4, 3), "cusparse")
    assert [even, used[-1]] == [cusparse.ALGORITHMS["CSR_ALG2"], cusparse.ALGORITHMS["CSR_ALG3"]]


def test_the_fastest_algorithm_is_taken(gpu, monkeypatch, clock):
    took = {"CSR_ALG2": 3, "CSR_ALG3": 2, "CSR_ALG1": 1}

    def wrong(algorithm, out):
        clock[0] += next(took[name] for name, number in cusparse.ALGORITHMS.items() if number == algorithm)

    assert tried(gpu, monkeypatch, wrong) == "CSR_ALG1"


def test_no_algorithm_that_repeats_itself(gpu, monkeypatch):
    def wrong(algorithm, out):
        raise RuntimeError("CUSPARSE_STATUS_NOT_SUPPORTED")

    with pytest.raises(SpdnnError, match="with none of CSR_ALG2, CSR_ALG3, CSR_ALG1 on this device"):
        tried(gpu, monkeypatch, wrong)


def test_cupy_without_the_vendors_library_is_one_sentence(monkeypatch):
    packages = dict.fromkeys(("cupy", "cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs"))
    for name in packages:
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    with pytest.raises(Unavailable, match=r"engine cusparse cannot run here: CuPy does not load cuSPARSE \(cannot"):
        cusparse.modules()


class Bindings:
    """cuSPARSE on addresses: remembers what it was given, and multiplies what the addresses hold."""

    CUSPARSE_OPERATION_NON_TRANSPOSE = 0

    def __init__(self):
        self.made, self.destroyed, self.workspace = {}, [], 48

    def createDnMat(self, rows, columns, leading, place, kind, order):
        assert (leading, kind, order) == (columns, 0, 2)  # float32, row-major
        self.made[len(self.made) + 1] = place
        return len(self.made)

    def dnMatGet(self, made):
        raise AssertionError("not needed")

    def destroyDnMat(self, made):
        self.destroyed.append(made)

    def _check(self, handle, op_a, op_b, alpha, weights, source, beta, target, kind, algorithm):
        assert (handle, op_a, op_b, kind, algorithm) == (7, 0, 0, 0, 6)
        assert (number_at(alpha), number_at(beta)) == (1, 0)
        return weights, self.made[source], self.made[target]

    def spMM_bufferSize(self, *given):
        self._check(*given)
        return self.workspace

    def spMM(self, *given):
        weights, source, target = self._check(*given[:-1])
        assert given[-1].nbytes == self.workspace
        target[...] = weights @ source


def number_at(place):
    import ctypes

    return ctypes.c_float.from_address(place).value


def test_cusparse_is_called_as_its_bindings_take_it(monkeypatch):
    """The order of arguments is that of CuPy 14's bindings, from their own docstrings."""

    class Placed(np.ndarray):
        data = property(lambda self: types.SimpleNamespace(ptr=self))

    class Descriptor:
        def __init__(self, desc, get=None, destroy=None):
            self.desc, self.destroy = desc, destroy

        def __del__(self):
            if self.destroy:
                self.destroy(self.desc)

    bindings = Bindings()
    cupy, cupyx = types.ModuleType("cupy"), types.ModuleType("cupyx")
    cupy.empty = lambda size, dtype: np.empty(size, dtype).view(Placed)
    device = types.SimpleNamespace(get_cusparse_handle=lambda: 7)
    create = types.SimpleNamespace(create=Descriptor)
    cupyx.cusparse = types.SimpleNamespace(BaseDescriptor=Descriptor, SpMatDescriptor=create)
    packages = {"cupy": cupy, "cupy.cuda": types.SimpleNamespace(device=device), "cupyx": cupyx}
    packages |= {f"cupy_backends{part}": types.ModuleType("part") for part in ("", ".cuda")}
    packages["cupy_backends.cuda.libs"] = types.SimpleNamespace(cusparse=bindings)
    for name, module in packages.items():
        monkeypatch.setitem(sys.modules, name, module)
    rng = np.random.default_rng(0)
    matrix, features = rng.random((5, 3), np.float32), rng.random((3, 4), np.float32).view(Placed)
    out = np.full((5, 4), np.nan, np.float32).view(Placed)
    multiply = cusparse.product(matrix, features, out, cusparse.ALGORITHMS["CSR_ALG2"])
    assert np.isnan(out).all()
    for _ in range(2):  # what it needs stays until it is called no more
        out[...] = np.nan
        multiply()
        np.testing.assert_allclose(out.view(np.ndarray), matrix @ features.view(np.ndarray), rtol=1e-6)
        assert bindings.destroyed == []
    del multiply
    assert sorted(bindings.destroyed) == [1, 2]
