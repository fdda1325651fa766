"""The CUDA shim does what CUDA documents, and finds what is wrong with kernels that are wrong."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import shim

from spdnn.common.errors import MemoryTooSmall, SpdnnError
from spdnn.kernels.cuda import declarations as cuda

FULL = "0xffffffffu"
NAN = np.float32(np.nan)


@pytest.fixture
def define(tmp_path, monkeypatch):
    """A function that makes a kernel `run` of its parameters and its body; `before` stands before it in the file."""
    monkeypatch.setattr(cuda, "FOLDER", tmp_path)

    def make(parameters, body, threads=32, before="", macros=()):
        head = f'extern "C" __global__ void __launch_bounds__(THREADS) run({parameters})'
        (tmp_path / "test.cu").write_text(f"{before}\n{head}\n{{\n{body}\n}}\n")
        forget()
        return cuda.Kernel("test.cu", "run", threads, macros)

    def forget():
        cuda.source.cache_clear()
        cuda._parameters.cache_clear()

    yield make
    forget()


@pytest.fixture
def run(define):
    """A function that launches such a kernel and returns its arrays, by name."""

    def launch(parameters, body, arrays, blocks=1, shared=0, order=0, workers=None, numbers=(), **kernel):
        device = shim.ShimDevice(order, workers=workers)
        held = {name: device.upload(np.array(array)) for name, array in arrays.items()}
        device.bind(define(parameters, body, **kernel), blocks, {**held, **dict(numbers)}, shared)()
        return {name: device.read(array) for name, array in held.items()}

    return launch


def refused(run, sentence, parameters, body, arrays=None, **launch):
    """The launch fails with a sentence that begins with the kernel's name and goes on so."""
    with pytest.raises(SpdnnError, match=rf"^kernel run \(test.cu; THREADS=\d+\): {re.escape(sentence)}$"):
        run(parameters, body, arrays or {"out": np.zeros(128, np.float32)}, **launch)


# The lane that each shuffle reads, as the CUDA programming guide has it; segments of `width` lanes begin at `low`.
SHUFFLES = {
    "__shfl_sync": lambda lane, by, low, width: low + by % width,
    "__shfl_xor_sync": lambda lane, by, low, width: lane ^ by if lane ^ by < low + width else lane,
}


@pytest.mark.parametrize("kind", ["float", "unsigned int", "long long", "double"])
def test_shuffles(run, kind):
    dtype = cuda.TYPES[kind]
    values = (np.arange(64) * 2**20 + 3).astype(dtype)
    calls = (f"out[at + {i}] = {name}({FULL}, values[t], b % 32, 1 << b / 32);" for i, name in enumerate(SHUFFLES))
    body = f"const int t = threadIdx.x, b = blockIdx.x, at = 2 * (b * 64 + t);{' '.join(calls)}"
    parameters = f"const {kind}* __restrict__ values, {kind}* out"
    arrays = {"values": values, "out": np.zeros(6 * 32 * 64 * 2, dtype)}
    out = run(parameters, body, arrays, blocks=6 * 32, threads=64)["out"].reshape(6, 32, 64, 2)
    for power, by, thread in np.ndindex(out.shape[:3]):
        lane, width = thread % 32, 1 << power
        sources = [read(lane, by, lane // width * width, width) for read in SHUFFLES.values()]
        assert (out[power, by, thread] == values[[thread - lane + source for source in sources]]).all(), (
            width,
            by,
            thread,
        )


def test_votes_of_the_lanes_in_a_mask(run):
    body = """
        const int t = threadIdx.x;
        const unsigned int mask = t % 4 == 1 ? 0x22222222u : 0xddddddddu;
        if (t % 4 == 1) {
            ballot[t] = __ballot_sync(mask, t < 16), all[t] = __all_sync(mask, 7);
        } else {
            ballot[t] = __ballot_sync(mask, t > 2), all[t] = __all_sync(mask, t < 31);
        }"""
    arrays = {"ballot": np.zeros(32, np.uint32), "all": np.zeros(32, np.int32)}
    for order in range(4):
        out = run("unsigned int* ballot, int* all", body, arrays, order=order)
        some = np.arange(32) % 4 == 1
        assert set(out["ballot"][some]) == {0x2222}
        assert set(out["ballot"][~some]) == {0xDDDDDDDD & ~0b111}
        assert (out["all"] == some).all()


@pytest.mark.parametrize("order", range(5))
def test_syncwarp_orders_the_lanes_of_its_mask(run, order):
    body = """
        __shared__ int held[32];
        const int t = threadIdx.x, half = t / 16 * 16;
        for (int round = 0; round < 5; ++round) {
            held[t] = t + round;
            if (half) __syncwarp(0xffff0000u); else __syncwarp(0x0000ffffu);
            out[round * 32 + t] = held[half + (t + 1) % 16];
            __syncwarp();
        }"""
    out = run("int* out", body, {"out": np.zeros(160, np.int32)}, order=order)["out"].reshape(5, 32)
    lanes = np.arange(32)
    assert (out == (lanes // 16 * 16 + (lanes + 1) % 16) + np.arange(5)[:, None]).all()


def test_integers(run):
    words = np.concatenate([[0, 1, 2**31, 2**32 - 1], np.random.default_rng(1).integers(0, 2**32, 60)])
    body = """
        const unsigned int t = threadIdx.x, word = words[t], other = words[t ^ 1];
        out[2 * t] = __popc(word), out[2 * t + 1] = __byte_perm(word, other, word >> 7);"""
    arrays = {"words": words.astype(np.uint32), "out": np.zeros((64, 2), np.uint32)}
    found = run("const unsigned int* words, unsigned int* out", body, arrays, threads=64)["out"]
    for place, word in enumerate(map(int, words)):
        both = (word | int(words[place ^ 1]) << 32).to_bytes(8, "little")
        moved = int.from_bytes(bytes(both[word >> 7 >> 4 * i & 7] for i in range(4)), "little")
        assert list(found[place]) == [word.bit_count(), moved]


def test_floats_round_once_and_are_not_contracted(run):
    rng = np.random.default_rng(2)
    a, b, c = rng.normal(size=(3, 64)).astype(np.float32)
    c[:32] = -(a * b)[:32]  # what is left is the error of the product, which only a fused multiply-add gives
    body = """
        const int t = threadIdx.x;
        fused[t] = fmaf(a[t], b[t], c[t]), plain[t] = a[t] * b[t] + c[t];
        atomicAdd(differ, plain[t] != __fadd_rn(__fmul_rn(a[t], b[t]), c[t]));"""
    arrays = {"a": a, "b": b, "c": c, "fused": a, "plain": a, "differ": np.zeros(1, np.int32)}
    parameters = "const float* a, const float* b, const float* c, float* fused, float* plain, int* differ"
    out = run(parameters, body, arrays, threads=64)
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    assert list(out["fused"]) == [np.float32(float(value)) for value in exact]
    assert (out["plain"] == a * b + c).all()
    assert out["differ"] == [0]
    assert np.count_nonzero(out["fused"] != out["plain"]) > 20


def test_minima_maxima_and_bits(run):
    body = """
        out[0] = min(nan, 1.f), out[1] = max(1.f, nan), out[2] = fminf(nan, -2.f), out[3] = fmaxf(3.f, nan);
        out[4] = min(-1, 2), out[5] = max(-1, 1u) == 0xffffffffu, out[6] = min(5ll, 4ll), out[7] = max(2.5, 1.f);
        out[8] = __uint_as_float(__float_as_uint(0.f) ^ 0x80000000u), out[9] = __double_as_longlong(-2.) >> 62;"""
    out = run("float* out, float nan", body, {"out": np.zeros(10, np.float32)}, threads=1, numbers={"nan": NAN})["out"]
    assert list(out) == [1, 1, -2, 3, -1, 1, 4, 2.5, 0, -1]
    assert math.copysign(1, out[8]) == -1


@pytest.mark.parametrize("kind", ["int", "unsigned long long"])
def test_atomics_over_blocks(run, kind):
    dtype = cuda.TYPES[kind]
    body = """
        const unsigned int i = blockIdx.x * THREADS + threadIdx.x;
        tickets[atomicAdd(out, 1)] = i;
        atomicMin(out + 1, 7 + (i ^ 5)), atomicOr(out + 2, 1 << i % 31);
        KIND seen = out[3], old;
        while ((old = atomicCAS(out + 3, seen, seen + 2)) != seen) seen = old;"""
    count = 64 * 100
    arrays = {"out": np.array([0, 1000, 0, 0], dtype), "tickets": np.full(count, -1, np.int32)}
    macros = (("KIND", kind),)
    found = run("KIND* out, int* tickets", body, arrays, blocks=100, threads=64, macros=macros, workers=4)
    assert sorted(found["tickets"]) == list(range(count))
    assert list(found["out"]) == [count, 7, 2**31 - 1, 2 * count]


SCAN = """
    DYNAMIC_SHARED(int, all);
    __shared__ int warps[THREADS / 32];
    const int t = threadIdx.x, lane = t % 32;
    int sum = values[blockIdx.x * THREADS + t];
    for (int by = 1; by < 32; by *= 2) {
        const int other = __shfl_sync(0xffffffffu, sum, lane - by);
        if (lane >= by) sum += other;
    }
    if (lane == 31) warps[t / 32] = sum;
    __syncthreads();
    for (int warp = 0; warp < t / 32; ++warp) sum += warps[warp];
    all[t] = sum;
    __syncthreads();
    out[blockIdx.x * THREADS + t] = all[THREADS - 1 - t];"""


@pytest.mark.parametrize("order", [0, 2])
@pytest.mark.parametrize("threads", [32, 1024])
def test_a_scan_through_dynamic_and_static_shared_memory(run, order, threads):
    values = np.random.default_rng(4).integers(-9, 9, (20, threads)).astype(np.int32)
    arrays = {"values": values, "out": values}
    launch = {"blocks": 20, "threads": threads, "shared": 4 * threads, "order": order}
    out = run("const int* values, int* out", SCAN, arrays, **launch)["out"]
    assert (out == values.cumsum(axis=1)[:, ::-1]).all()


def test_shared_variables_of_templates_and_of_kernels_of_the_same_name(run):
    before = """template <int N> __device__ __noinline__ int last(int value) {
            __shared__ int held[N];
            if (threadIdx.x < N) held[threadIdx.x] = value;
            __syncthreads();
            return held[N - 1];
        }"""
    for factor in (1, 10):
        body = "const int t = threadIdx.x; out[t] = last<4>(t * T) + last<7>(t * T);"
        out = run("int* out", body, {"out": np.zeros(32, np.int32)}, before=before, macros=(("T", factor),))["out"]
        assert set(out) == {9 * factor}


# What thread t reads of its neighbour that writes at the same time.
RACE = """
    __shared__ int held[THREADS];
    held[threadIdx.x] = 1;
    BARRIER;
    out[threadIdx.x] = held[(threadIdx.x + 1) % THREADS];"""


def test_a_race_shows_as_a_difference_between_orders(run):
    def outcome(order, barrier):
        arrays = {"out": np.zeros(64, np.int32)}
        return tuple(run("int* out", RACE, arrays, threads=64, order=order, macros=(("BARRIER", barrier),))["out"])

    def last_block(order):
        arrays = {"out": np.zeros(1, np.int32)}
        return int(run("int* out", "out[0] = blockIdx.x;", arrays, blocks=50, order=order, workers=1)["out"][0])

    assert len({outcome(order, "") for order in range(4)}) == 4
    assert len({outcome(order, "__syncthreads()") for order in range(4)}) == 1
    assert len({last_block(order) for order in range(4)}) == 4


def test_what_nobody_wrote_is_not_a_number(run):
    body = """
        DYNAMIC_SHARED(float, dynamic);
        __shared__ float fixed[8];
        __shared__ double wide;
        const int t = threadIdx.x;
        out[blockIdx.x * 10 + t] = t < 8 ? fixed[t] + dynamic[t] : t < 9 ? float(wide) : dynamic[t];
        __syncthreads();
        if (t < 8) fixed[t] = 0;
        dynamic[t] = wide = 0;"""
    out = run("float* out", body, {"out": np.zeros(60, np.float32)}, blocks=6, threads=10, shared=40, workers=1)["out"]
    assert np.isnan(out).all()
    assert np.isnan(shim.ShimDevice().empty(5, np.float32)).all()


def test_a_barrier_that_not_all_threads_reach(run):
    exited = "block 0: thread 0 waits at __syncthreads, thread 70 has exited, and none can go on"
    refused(run, exited, "float* out", "if (threadIdx.x != 70) __syncthreads();", threads=128)
    block = "block 2: thread 3 waits at __syncthreads, thread 0 has exited, and none can go on"
    refused(run, block, "float* out", "if (blockIdx.x != 2 || threadIdx.x == 3) __syncthreads();", blocks=5, order=1)


def test_warp_primitives_that_not_all_lanes_reach(run):
    exited = "block 0: thread 32 waits at __shfl_sync (mask 0xffffffff), thread 37 has exited, and none can go on"
    body = f"if (threadIdx.x != 37) out[threadIdx.x] = __shfl_sync({FULL}, 1.f, 0);"
    refused(run, exited, "float* out", body, threads=64)
    barrier = "block 0: thread 0 waits at __ballot_sync (mask 0x00000003), thread 1 waits at __syncthreads"
    body = "if (threadIdx.x == 0) __ballot_sync(3u, 1); else __syncthreads();"
    refused(run, f"{barrier}, and none can go on", "float* out", body, threads=2)
    masks = "block 0: thread 0 waits at __all_sync (mask 0x00000003), thread 1 waits at __all_sync (mask 0x00000007)"
    body = "__all_sync(threadIdx.x ? 7u : 3u, 1);"
    refused(run, f"{masks}, and none can go on", "float* out", body, threads=3)


def test_lanes_that_take_no_part_cannot_be_read(run):
    sentence = "block 0: thread {} reads lane {} in {}, which is not among the lanes {} that take part"
    body = "if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffu, 1.f, threadIdx.x + 1);"
    refused(run, sentence.format(15, 16, "__shfl_sync", "0x0000ffff"), "float* out", body)
    body = f"out[threadIdx.x] = __shfl_xor_sync({FULL}, 1.f, 16);"
    refused(run, sentence.format(32, 16, "__shfl_xor_sync", "0x0000ffff"), "float* out", body, threads=48)


def test_arguments_of_warp_primitives(run):
    own = "block 0: thread 5 calls __syncwarp with the mask 0x0000001f, which lacks its own lane 5"
    refused(run, own, "float* out", "__syncwarp(0x1fu);")
    width = "block 0: thread 0 calls __shfl_sync with the width 12; it must be 1, 2, 4, 8, 16 or 32"
    refused(run, width, "float* out", f"out[threadIdx.x] = __shfl_sync({FULL}, 1.f, 0, 12);")


def test_a_device_goes_on_after_an_error(define):
    device = shim.ShimDevice()
    out = device.upload(np.zeros(64, np.float32))
    body = "if (stop && threadIdx.x == stop) return; __syncthreads(); out[threadIdx.x] += 1;"
    kernel = define("float* out, int stop", body, threads=64)
    for stop in (0, 9, 0):
        launch = device.bind(kernel, 3 if stop else 1, {"out": out, "stop": stop})
        if stop:
            with pytest.raises(SpdnnError, match="thread 9 has exited"):
                launch()
        else:
            launch()
    assert (device.read(out) == 2).all()
    assert device.launches == {"run": 3}


def test_memory_is_limited_and_comes_back(define):
    device = shim.ShimDevice(memory_bytes=1000)
    held = device.upload(np.zeros((10, 5), np.float32))
    assert held.shape == (10, 5)
    assert held.flags.c_contiguous
    assert device.free_bytes() == 800
    with pytest.raises(MemoryTooSmall, match="^804 bytes of device memory were asked for, and 800 of 1,000 are free$"):
        device.empty(201, np.float32)
    view = held[3:]
    del held
    assert device.free_bytes() == 800, "a view of the array is left"
    del view
    assert device.empty(250, np.float32).size == 250


def test_a_kernel_that_does_not_compile_shows_the_log(define):
    with pytest.raises(
        SpdnnError, match=r"(?s)^kernel run \(test.cu; THREADS=32\) does not compile:.*test.cu:5.*nonsense"
    ):
        shim.ShimDevice().bind(define("float* out", "\nnonsense;"), 1, {"out": np.zeros(1, np.float32)})
    variable = define("int* out", "out[0] = kept;", before="__device__ int kept;")
    with pytest.raises(SpdnnError, match="(?s)does not compile:.*applies only to functions"):
        shim.ShimDevice().bind(variable, 1, {"out": np.zeros(1, np.int32)})
    with pytest.raises(SpdnnError, match="2048 threads; a block has 1 to 1024"):
        shim.ShimDevice().bind(define("float* out", "", threads=2048), 1, {"out": np.zeros(1, np.float32)})


WRONG = {  # body, and what is found
    "read": (
        "out[threadIdx.x] = in[threadIdx.x + 1];",
        "thread 31 reads 4 bytes at byte 128 of an array, which has 128",
    ),
    "write": ("out[int(threadIdx.x) - 1] = 0;", "thread 0 writes 4 bytes at byte -4 of an array, which has 128"),
    "dynamic": (
        "DYNAMIC_SHARED(float, s); s[threadIdx.x * 2] = 0;",
        "thread 15 writes 4 bytes at byte 120 of the block's dynamic shared memory, which has 120",
    ),
    "fixed": (
        "__shared__ float s[20], next[20]; s[threadIdx.x] = 0; __syncthreads(); next[2] = 0; out[0] = s[3];",
        "thread 20 writes 4 bytes at byte 80 of the variable s, which has 80",
    ),
    "local": (
        "float s[8]; for (int i = 0; i <= in[0] * 8; ++i) s[i] = in[i]; out[0] = s[int(in[0])];",
        "thread 0 writes 4 bytes",
    ),
    "vector": (
        "reinterpret_cast<float4*>(out)[7].z = 1; reinterpret_cast<float4*>(out + 28)[threadIdx.x].x = 1;",
        "thread 1 writes 4 bytes at byte 128",
    ),
    "misaligned": (
        "*reinterpret_cast<float2*>(out + threadIdx.x) = {1, 1};",
        "thread 1 accesses 'struct float2' at an address that is 4 bytes past a multiple of 8",
    ),
    "zeroed": ("for (int i = 0; i < 33; ++i) out[i] = 0;", "thread 0 writes 4 bytes at byte 128"),
}
if shim.SANITIZED:

    @pytest.mark.parametrize("wrong", [*WRONG, "read"])  # what was found once is found again
    def test_sanitized(run, wrong):
        body, found = WRONG[wrong]
        arrays = {"in": np.ones(32, np.float32), "out": np.zeros(32, np.float32)}
        with pytest.raises(SpdnnError, match=f"^kernel run .*: block 0: {re.escape(found)}"):
            run("const float* in, float* out", body, arrays, shared=120)

    def test_sanitized_freed(define):
        device = shim.ShimDevice()
        table = device.upload(np.array([device.address(device.empty(32, np.float32))], np.uint64))
        body = "*(reinterpret_cast<float*>(table[0]) + threadIdx.x) = 0;"
        with pytest.raises(
            SpdnnError, match="thread 0 writes 4 bytes at byte 0 of a freed array, which has 128 bytes$"
        ):
            device.bind(define("const unsigned long long* table", body), 1, {"table": table})()

else:

    def test_static_and_dynamic_shared_memory_share_a_limit(define):
        # Guarded variables take more than they hold.
        body = "DYNAMIC_SHARED(float, s); __shared__ float held[25]; s[0] = held[threadIdx.x] = 1; out[0] = held[0];"
        kernel = define("float* out", body, threads=25)
        device = shim.ShimDevice(shared_per_block=1000)
        out = device.empty(1, np.float32)
        device.bind(kernel, 1, {"out": out}, shared=900)()
        assert device.read(out) == [1]
        with pytest.raises(SpdnnError, match="904 bytes of dynamic and 100 of static shared memory; .* has 1,000$"):
            device.bind(kernel, 1, {"out": out}, shared=904)

    def test_accesses_out_of_bounds_are_found():
        chosen = "test_sanitized or test_a_scan or test_what_nobody or test_a_barrier or test_shared"
        done = shim.sanitized(__file__, "-k", chosen)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(WRONG) + 2 + 4 + 3} passed" in done.stdout
        assert "AddressSanitizer" not in done.stderr

    @pytest.mark.full("architectures")
    def test_elsewhere_fibers_are_contexts_of_the_system():
        chosen = "test_a_scan or test_a_barrier or test_a_device_goes_on"
        done = shim.pytest_again(__file__, "-k", chosen, SHIM_FLAGS="-DSHIM_UCONTEXT")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "6 passed" in done.stdout
