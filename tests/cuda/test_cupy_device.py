"""The device behind CuPy, without a GPU: what is missing, what it does (a stand-in for CuPy does it), and that the CuPy
installed has what is called."""

import subprocess
import sys
from itertools import count
from types import SimpleNamespace

import cupy
import numpy as np
import nvrtc
import pytest
from cupy.cuda import compiler
from recorded_cupy import CompileFault, DriverFault, Function, RuntimeFault
from refusals import refuses

from spdnn.core.errors import MemoryTooSmall, SpdnnError, Unavailable
from spdnn.kernels.cuda import cupy_device
from spdnn.kernels.cuda import driver as nvidia
from spdnn.kernels.cuda.cupy_device import CupyDevice
from spdnn.kernels.cuda.declarations import Kernel, source

PROBE = """
extern "C" __global__ void __launch_bounds__(THREADS) probe(
    const float* __restrict__ values, VALUE* marks, int count, long long places, float bias, unsigned long long bits)
{
}
"""
ARGUMENTS = {"count": 3, "places": 5, "bias": -1, "bits": 2**63}


@pytest.fixture
def probe(tmp_path):
    (tmp_path / "probe.cu").write_text(PROBE)
    return Kernel(str(tmp_path / "probe.cu"), "probe", 64, (("VALUE", "unsigned char"),))


def arguments_on(device):
    return {**ARGUMENTS, "values": device.empty(6, np.float32), "marks": device.empty(6, np.uint8)}


@pytest.fixture
def arguments(device):
    return arguments_on(device)


def test_properties(device, cuda):
    found = device.properties
    assert (found.name, found.capability, found.multiprocessors, found.threads) == ("Made up", 86, 4, 1536)
    assert (found.shared_per_block, found.shared, found.l2_bytes, found.memory_bytes) == (101_376, 102_400, 512, 10_000)
    assert found.software == "CuPy 14.0, CUDA driver 12.9, CUDA runtime 12.8, NVRTC 12.9"
    assert not cuda.entered


def test_scalars_have_the_declared_types_and_arrays_stay_themselves(device, cuda, probe, arguments):
    launch = device.bind(probe, 7, arguments)
    launch()
    assert cuda.launched == []  # nor is it waited for
    device.synchronize()
    ((name, grid, block, values, shared),) = cuda.launched
    assert (name, grid, block, shared) == ("probe", (7,), (64,), 0)
    assert values[0] is arguments["values"]
    assert values[1] is arguments["marks"]
    assert [type(value) for value in values[2:]] == [np.int32, np.int64, np.float32, np.uint64]
    assert list(values[2:]) == [3, 5, -1, 2**63]
    assert cuda.compiled == [(source(probe.file), probe.options, "nvrtc")]
    assert all(isinstance(option, str) for option in probe.options)


def test_a_kernel_is_compiled_once(device, cuda, probe, arguments):
    first, second = device.bind(probe, 1, arguments), device.bind(probe, 2, arguments)
    first(), second(), first()
    device.synchronize()
    assert len(cuda.compiled) == 1
    assert [launch[1] for launch in cuda.launched] == [(1,), (2,), (1,)]


def test_a_kernel_may_have_all_shared_memory_that_it_does_not_have_already(device, cuda, probe, arguments):
    """Two sessions have one function: the smaller need of one must not take away what the other was allowed."""
    device.bind(probe, 1, arguments)
    (function,) = cuda.functions
    assert function.preferred_shared_memory_carveout is None  # as long as it needs none
    for launch in [device.bind(probe, 1, arguments, shared) for shared in (60_000, 1_000, 101_000)]:
        launch()  # which the stand-in refuses where less is allowed
    device.synchronize()
    assert [launch[4] for launch in cuda.launched] == [60_000, 1_000, 101_000]
    assert function.allowed == 101_376 - function.shared_size_bytes
    assert function.preferred_shared_memory_carveout == 100


def test_memory_that_nothing_uses_is_given_back(device, cuda):
    device.trim()
    assert not cuda.kept


def test_bad_launches_are_refused_before_anything_is_compiled(device, cuda, probe, arguments):
    for changed, shared, sentence in (
        ({"count": 2**31}, 0, "count is 2147483648, beyond int32"),
        ({"values": np.zeros(3)}, 0, "values must be a C-contiguous array of float32 on the device, not float64"),
        ({}, 101_377, "101,377 bytes of shared memory; a block of Made up has 101,376"),
    ):
        with pytest.raises(SpdnnError, match=sentence):
            device.bind(probe, 1, {**arguments, **changed}, shared)
    assert cuda.compiled == []


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (CompileFault('kernel.cu(3): error: identifier "y" is undefined\n'), r'not compile:\n.*"y" is undefined$'),
        (
            RuntimeError('Failure finding "libnvrtc.so":\n  no such'),
            r'or loaded: Failure finding "libnvrtc.so": no such$',
        ),
        (
            OSError(28, "No space left on device", "/kernel_cache/x"),
            r"or loaded: .*No space left on device.*kernel_cache",
        ),
    ],
)
def test_why_a_kernel_cannot_be_had_is_told(device, cuda, probe, arguments, fault, told):
    cuda.compile_fault = fault
    with pytest.raises(SpdnnError, match=rf"probe \(.*THREADS=64.*{told}"):
        device.bind(probe, 1, arguments)


@pytest.mark.parametrize("fault", [RuntimeFault, DriverFault])
def test_a_launch_that_fails_is_named(device, cuda, probe, arguments, fault):
    launch = device.bind(probe, 12_345, arguments, 2_000)
    cuda.fault = fault("CUDA_ERROR_INVALID_VALUE: invalid argument")
    named = (
        r"^in a launch up to kernel probe \(.*\), 12,345 blocks of 64 threads, 2,000 bytes of shared memory"
        r" \(SPDNN_CUDA_SYNCHRONIZE=1 names it\): CUDA_ERROR_INVALID_VALUE"
    )
    with pytest.raises(SpdnnError, match=named):
        launch()


def test_shared_memory_that_is_refused_is_named(device, cuda, probe, arguments):
    cuda.fault = DriverFault("CUDA_ERROR_INVALID_VALUE: invalid argument")
    with pytest.raises(SpdnnError, match=r"kernel probe .* 2,000 bytes of shared memory: CUDA_ERROR_INVALID_VALUE"):
        device.bind(probe, 1, arguments, 2_000)


ILLEGAL = "cudaErrorIllegalAddress: an illegal memory access was encountered"


def test_what_fails_later_names_the_last_launch_that_it_can_be_of(device, cuda, probe, arguments):
    calls = device.synchronize, lambda: device.read(arguments["values"]), lambda: device.seconds(lambda: None)
    cuda.fault = RuntimeFault(ILLEGAL)
    with pytest.raises(SpdnnError, match="^a call of CUDA: cudaErrorIllegalAddress"):
        device.synchronize()
    device.bind(probe, 9, arguments)()
    for call in calls:
        cuda.fault = RuntimeFault(ILLEGAL)
        named = r"^a call of CUDA, or in a launch up to kernel probe .* 9 blocks of 64 .* names it\): cudaErrorIllegal"
        with pytest.raises(SpdnnError, match=named):
            call()


def test_launches_are_waited_for_when_asked_and_then_the_one_that_fails_is_named(cuda, probe, monkeypatch):
    monkeypatch.setenv("SPDNN_CUDA_SYNCHRONIZE", "1")
    device = CupyDevice(cuda, 0)
    first, guilty = (device.bind(probe, blocks, arguments_on(device)) for blocks in (9, 10))
    first()
    assert len(cuda.launched) == 1

    def fail(self, grid, *_, **__):
        cuda.fault = RuntimeFault(ILLEGAL)  # the launch itself passes

    monkeypatch.setattr(Function, "__call__", fail)
    with pytest.raises(SpdnnError, match=r"^kernel probe \(.*\), 10 blocks of 64 .* memory: cudaErrorIllegalAddress"):
        guilty()
    cuda.fault = RuntimeFault(ILLEGAL)
    with pytest.raises(SpdnnError, match=r"^a call of CUDA after kernel probe \(.*\), 10 blocks .* memory: cudaError"):
        device.synchronize()
    assert device.properties.software.endswith(", NVRTC 12.9, SPDNN_CUDA_SYNCHRONIZE=1")
    monkeypatch.setenv("SPDNN_CUDA_SYNCHRONIZE", "yes")
    refuses("^SPDNN_CUDA_SYNCHRONIZE=yes: it must be 0 or 1$", CupyDevice, cuda, 0)


def test_an_upload_is_done_before_the_host_array_can_change(device):
    host = np.arange(12, dtype=np.float32).reshape(3, 4)
    given, array = host.T.copy(), device.upload(host.T)
    host[...] = 0
    np.testing.assert_array_equal(device.read(array), given)
    assert array.flags.c_contiguous
    assert device.address(array) == array.held.ctypes.data


def test_fill_and_flush(device):
    array = device.empty(5, np.int32)
    device.fill(array, 254)
    np.testing.assert_array_equal(device.read(array), np.full(5, -0x01010102, np.int32))
    device.flush()
    device.flush()
    assert device._flushed.nbytes == 2 * 512
    assert (device.read(device._flushed) == 0).all()


def test_arrays_without_elements_pass(device, cuda, probe, arguments):
    none = device.upload(np.zeros((0, 4), np.float32))
    assert none.size == 0
    device.fill(none, 0)
    device.bind(probe, 1, {**arguments, "values": none})()
    device.synchronize()
    assert cuda.launched[0][3][0] is none
    assert device.read(none).size == 0


def test_seconds_are_those_of_the_work(device, probe, arguments):
    """On the stand-in's clock a launch takes a millisecond, and a fill ten."""
    launch = device.bind(probe, 9, arguments)
    device.fill(arguments["values"], 0)
    assert device.seconds(lambda: (launch(), launch())) == 0.002


def test_a_launch_is_timed_behind_work_that_takes_longer_than_the_host(device, cuda, probe, arguments):
    launch, lead = device.bind(probe, 9, arguments), device.lead()
    assert lead.nbytes == 10_000 // 4  # of what is free
    assert device.seconds_ahead(launch, lead) == 0.001
    assert len(cuda.launched) == 2
    assert cuda.now > 2 + 10


def test_it_holds_its_own_arrays(device):
    array = device.empty(1, np.float32)
    assert device.holds(array)
    array.data.device_id = 1
    assert not device.holds(array)
    array.data.device_id = device.ordinal
    assert device.holds(array)
    assert device.holds(np.zeros(1))


@pytest.mark.parametrize("pool", [True, False])
def test_too_little_memory_says_how_much(device, cuda, pool):
    """CuPy's pool has an error for it; without one (gpu-check --sanitized) it is CUDA's own."""
    cuda.pool = pool
    with pytest.raises(MemoryTooSmall, match=r"^40,000 bytes were asked for on Made up, and 10,000 are free") as caught:
        device.empty(10_000, np.float32)
    assert caught.value.least == 40_700
    with pytest.raises(MemoryTooSmall, match="80,000 bytes"):
        device.upload(np.zeros(10_000))


def test_another_fault_of_an_allocation_is_no_want_of_memory(device, cuda):
    cuda.fault = RuntimeFault("cudaErrorIllegalAddress: an illegal memory access was encountered", 700)
    with pytest.raises(SpdnnError, match="cudaErrorIllegalAddress") as caught:
        device.empty(1, np.uint8)
    assert not isinstance(caught.value, MemoryTooSmall)


def test_free_memory_is_no_more_than_cupy_was_allowed(device, cuda):
    assert device.free_bytes() == 10_000
    assert "pool" not in cuda.kept
    cuda.limit = 1_000
    assert device.free_bytes() == 1_000 - 724


class Driver:
    """Stands in for the driver's library."""

    def __init__(self, init=0, devices=1, version=13_000, uuids=None):
        self.uuids = uuids
        self.cuInit = lambda flags: init
        self.cuDeviceGetCount = lambda pointer: self.answer(pointer, devices)
        self.cuDriverGetVersion = lambda pointer: self.answer(pointer, version)

    @staticmethod
    def answer(pointer, value):
        pointer._obj.value = value
        return 0

    def cuDeviceGet(self, pointer, number):
        return self.answer(pointer, 10 + number)  # a handle is no number

    def cuDeviceGetUuid_v2(self, found, device):
        if self.uuids is None:
            return 101
        found[:] = self.uuids[device.value - 10]
        return 0


@pytest.fixture
def driver(monkeypatch, cuda):
    """A function that puts a driver there, or takes it away (None), beside a CuPy that is installed: `cuda`."""
    monkeypatch.setitem(sys.modules, "cupy", cuda)
    monkeypatch.setattr(nvidia.importlib.util, "find_spec", lambda name: name)
    monkeypatch.setattr(nvidia, "_cupy_cuda", lambda: 12)

    def put(found):
        def load(name):
            assert name == "libcuda.so.1"
            if found is None:
                raise OSError
            return found

        monkeypatch.setattr(nvidia.ctypes, "CDLL", load)

    return put


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        (None, "NVIDIA's driver is not installed here (libcuda.so.1 is not found)"),
        (Driver(init=100), "NVIDIA's driver sees no device here"),
        (Driver(devices=0), "NVIDIA's driver sees no device here"),
        (Driver(init=803), "NVIDIA's driver does not start (cuInit gives error 803)"),
        (Driver(version=11_080), "NVIDIA's driver is for CUDA 11.8, and the CuPy installed needs one for CUDA 12"),
        (Driver(), None),
    ],
)
def test_what_is_missing_is_one_sentence(driver, found, sentence):
    driver(found)
    assert cupy_device.missing() == sentence
    assert cupy_device.count() == (0 if sentence else 1)
    if sentence:
        with pytest.raises(Unavailable) as caught:
            cupy_device.open_device()
        assert str(caught.value) == sentence


def test_devices_are_known_by_their_uuids(driver):
    driver(Driver(devices=2, uuids=[bytes(range(16)), b"\xff" * 16]))
    assert nvidia.identities() == ("00010203-0405-0607-0809-0a0b0c0d0e0f", "ffffffff-ffff-ffff-ffff-ffffffffffff")
    driver(Driver())
    with pytest.raises(Unavailable, match=r"^NVIDIA's driver does not say which device 0 is \(error 101\)$"):
        nvidia.identities()
    driver(None)
    assert nvidia.identities() == ()


def test_cupy_that_is_not_installed_is_the_first_thing_missing(driver, nothing_installed):
    driver(None)
    sentence = f"the package cupy is not installed; {nvidia.BRINGS}"
    assert cupy_device.missing() == sentence
    assert cupy_device.count() == 0


def test_opening_and_compiling_are_seconds_of_startup(driver, monkeypatch, cuda, probe):
    driver(Driver())
    clock = count()
    monkeypatch.setattr(cupy_device, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    opened = cupy_device.open_device()
    assert opened.startup_seconds == 1
    launch = opened.bind(probe, 7, arguments_on(opened))
    assert opened.startup_seconds == 2
    launch()
    assert opened.startup_seconds == 2


def test_devices_are_opened_by_number(driver, cuda):
    driver(Driver(devices=2))
    assert cupy_device.count() == 2
    for given, used in ((None, 0), (1, 1)):
        opened = cupy_device.open_device(given)
        assert (opened.ordinal, opened.main.ordinal) == (used, used)
        assert not cuda.entered  # the caller's current device stays
    for ordinal in (2, -1):
        refuses(f"device {ordinal}: the devices here are numbered 0 to 1", cupy_device.open_device, ordinal)


def test_cupy_that_cannot_use_the_driver_is_one_sentence(driver, monkeypatch, cuda):
    driver(Driver())

    def refuse(ordinal):
        raise RuntimeFault("cudaErrorInsufficientDriver:\n too old")

    cuda.cuda.Device = refuse
    with pytest.raises(Unavailable, match="^CuPy cannot open device 0: cudaErrorInsufficientDriver: too old$"):
        cupy_device.open_device()
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(Unavailable, match="^CuPy is installed and cannot be imported: "):
        cupy_device.open_device()


@pytest.mark.parametrize(
    ("capability", "nvrtc", "refused"),
    [((7, 0), (13, 0), True), ((7, 2), (14, 1), True), ((7, 0), (12, 9), False), ((7, 5), (13, 0), False)],
)
def test_a_device_that_the_compiler_has_forgotten_is_one_sentence(driver, cuda, capability, nvrtc, refused):
    driver(Driver())
    cuda.told["major"], cuda.told["minor"] = capability
    cuda.nvrtc = nvrtc
    if not refused:
        assert cupy_device.open_device().properties.capability == 10 * capability[0] + capability[1]
        return
    with pytest.raises(Unavailable) as caught:
        cupy_device.open_device()
    assert str(caught.value) == (
        f"Made up has compute capability {capability[0]}.{capability[1]}, and NVRTC {nvrtc[0]}.{nvrtc[1]} compiles for"
        " 7.5 and later: make setup CUDA=12 (or pip install cupy-cuda12x for cupy-cuda13x)"
    )


def test_the_wheel_of_cupy_tells_which_driver_it_needs():
    assert nvidia._cupy_cuda() == 12  # that of envs/test.txt


def test_asking_does_not_import_cupy():
    asked = "import sys; from spdnn.kernels.cuda import cupy_device as c; c.missing(); print('cupy' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", asked], text=True).strip() == "False"


def test_cupy_has_what_is_called():
    """The attributes; what is called, and with what, the stand-in looks up in the CuPy installed at each call."""
    for owner, names in {
        cupy: "__version__",
        cupy.cuda.Device: "__enter__ __exit__",
        cupy.cuda.Stream: "is_capturing from_external __enter__ __exit__",
        cupy.cuda.Stream.null: "ptr",
        cupy.cuda.runtime: "memcpyHostToDevice memcpyDeviceToHost memcpyDeviceToDevice",
        cupy.cuda.memory: "OutOfMemoryError",
        cupy.cuda.compiler: "CompileException",
        cupy.RawKernel: "kernel max_dynamic_shared_size_bytes preferred_shared_memory_carveout shared_size_bytes",
        cupy.cuda.MemoryPointer: "ptr device_id",
        cupy.ndarray: "data nbytes size dtype flags",
    }.items():
        for name in names.split():
            assert hasattr(owner, name), f"{owner} has no {name}"
    assert issubclass(cupy.cuda.runtime.CUDARuntimeError, RuntimeError)
    assert issubclass(cupy.cuda.driver.CUDADriverError, RuntimeError)
    fault = cupy.cuda.runtime.CUDARuntimeError(cupy_device.NO_MEMORY)
    assert (fault.status, str(fault).split(":")[0]) == (cupy_device.NO_MEMORY, "cudaErrorMemoryAllocation")
    cupy.RawModule(code="", options=("-std=c++17",), backend="nvrtc")


@pytest.mark.parametrize(("named", "wrong"), [({"shared_mem": 0, "stream": None}, False), ({"shared": 0}, True)])
def test_cupy_launches_with_these_arguments(named, wrong):
    """An empty function is refused by CUDA, or for want of it; a wrong argument by Python."""
    function = cupy.cuda.Function
    empty = function.__new__(function)
    stream = SimpleNamespace(ptr=0)
    with pytest.raises(TypeError if wrong else RuntimeError):
        empty((1,), (1,), (np.int32(1),), **{**named, **({} if wrong else {"stream": stream})})


def test_the_compile_matrix_has_the_options_that_cupy_adds(monkeypatch, set_all, probe):
    seen = []

    class Program(compiler._NVRTCProgram):
        def compile(self, options=(), log_stream=None):
            if self.src:
                seen.append(options)
                raise CompileFault
            return super().compile(options, log_stream)

    arch_option = lambda arch: (f"-arch=sm_{arch}", "cubin")  # noqa: E731
    set_all(compiler, _NVRTCProgram=Program, _get_arch_for_options_for_nvrtc=arch_option)
    monkeypatch.setenv("CUPY_CACHE_IN_MEMORY", "1")
    with pytest.raises(CompileFault):
        compiler._compile_module_with_cache(source(probe.file), probe.options, arch="80")
    assert sorted(seen[0]) == sorted((*probe.options, "-arch=sm_80", *nvrtc.CUPY_ADDS))
