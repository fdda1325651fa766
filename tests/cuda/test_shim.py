"""The CUDA shim does what CUDA documents, and finds what is wrong with kernels that are wrong."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import shim

from spdnn.core.errors import SpdnnError
from spdnn.kernels.cuda import declarations as cuda

FULL = "0xffffffffu"


@pytest.fixture
def define(tmp_path, monkeypatch):
    """A function that makes a kernel `run` of its parameters and its body; `before` stands before it in the file."""
    monkeypatch.setattr(cuda, "FOLDER", tmp_path)

    def make(parameters, body, threads=32, before="", macros=()):
        head = f'extern "C" __global__ void __launch_bounds__(THREADS) run({parameters})'
        (tmp_path / "test.cu").write_text(f"{before}\n{head}\n{{\nconst int t = threadIdx.x;\n{body}\n}}\n")
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


# The lane that each shuffle reads, as the CUDA programming guide has it; segments of `width` lanes begin at `low`.
SHUFFLES = {
    "__shfl_sync": lambda lane, by, low, width: low + by % width,
    "__shfl_xor_sync": lambda lane, by, low, width: lane ^ by if lane ^ by < low + width else lane,
}


@pytest.mark.parametrize("kind", ["float", "long long"])
def test_shuffles(run, kind):
    dtype = cuda.TYPES[kind]
    values = (np.arange(64) * 2**20 + 3).astype(dtype)
    calls = (f"out[at + {i}] = {name}({FULL}, values[t], b % 32, 1 << b / 32);" for i, name in enumerate(SHUFFLES))
    body = f"const int b = blockIdx.x, at = 2 * (b * 64 + t);{' '.join(calls)}"
    arrays = {"values": values, "out": np.zeros(6 * 32 * 64 * 2, dtype)}
    out = run(f"const {kind}* values, {kind}* out", body, arrays, blocks=6 * 32, threads=64)["out"]
    for (power, by, thread), found in zip(np.ndindex(6, 32, 64), out.reshape(-1, 2), strict=True):
        lane, width = thread % 32, 1 << power
        sources = [read(lane, by, lane // width * width, width) for read in SHUFFLES.values()]
        assert (found == values[[thread - lane + source for source in sources]]).all(), (width, by, thread)


@pytest.mark.parametrize("order", range(4))
def test_votes_and_barriers_of_the_lanes_in_a_mask(run, order):
    body = """
        const bool some = t % 4 == 1;
        if (some) ballot[t] = __ballot_sync(0x22222222u, t < 16), all[t] = __all_sync(0x22222222u, 7);
        else ballot[t] = __ballot_sync(0xddddddddu, t > 2), all[t] = __all_sync(0xddddddddu, t < 31);
        __shared__ int held[32];
        const int half = t / 16 * 16;
        for (int round = 0; round < 5; ++round) {
            held[t] = t + round;
            if (half) __syncwarp(0xffff0000u); else __syncwarp(0x0000ffffu);
            next[round * 32 + t] = held[half + (t + 1) % 16];
            __syncwarp();
        }"""
    arrays = {"ballot": np.zeros(32, np.uint32), "all": np.zeros(32, np.int32), "next": np.zeros(160, np.int32)}
    out = run("unsigned int* ballot, int* all, int* next", body, arrays, order=order)
    lanes = np.arange(32)
    some = lanes % 4 == 1
    assert set(out["ballot"][some]) == {0x2222}
    assert set(out["ballot"][~some]) == {0xDDDDDDDD & ~0b111}
    assert (out["all"] == some).all()
    assert (out["next"].reshape(5, 32) == (lanes // 16 * 16 + (lanes + 1) % 16) + np.arange(5)[:, None]).all()


def test_integers(run):
    words = np.concatenate([[0, 1, 2**31, 2**32 - 1], np.random.default_rng(1).integers(0, 2**32, 60)])
    body = "out[2 * t] = __popc(words[t]), out[2 * t + 1] = __byte_perm(words[t], words[t ^ 1], words[t] >> 7);"
    arrays = {"words": words.astype(np.uint32), "out": np.zeros((64, 2), np.uint32)}
    found = run("const unsigned int* words, unsigned int* out", body, arrays, threads=64)["out"]
    for place, word in enumerate(map(int, words)):
        both = (word | int(words[place ^ 1]) << 32).to_bytes(8, "little")
        moved = int.from_bytes(bytes(both[word >> 7 >> 4 * i & 7] for i in range(4)), "little")
        assert list(found[place]) == [word.bit_count(), moved]


def test_floats_round_once_and_are_not_contracted(run):
    a, b, c = np.random.default_rng(2).normal(size=(3, 64)).astype(np.float32)
    c[:32] = -(a * b)[:32]  # what is left is the error of the product, which only a fused multiply-add gives
    body = """
        fused[t] = fmaf(a[t], b[t], c[t]), plain[t] = a[t] * b[t] + c[t];
        atomicAdd(differ, plain[t] != __fadd_rn(__fmul_rn(a[t], b[t]), c[t]));"""
    arrays = {"a": a, "b": b, "c": c, "fused": a, "plain": a, "differ": np.zeros(1, np.int32)}
    parameters = "const float* a, const float* b, const float* c, float* fused, float* plain, int* differ"
    out = run(parameters, body, arrays, threads=64)
    exact = [Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)) for x, y, z in zip(a, b, c, strict=True)]
    assert list(out["fused"]) == [np.float32(float(value)) for value in exact]
    assert (out["plain"] == a * b + c).all()
    assert out["differ"] == [0]


def test_minima_maxima_and_bits(run):
    body = """
        out[0] = min(nan, 1.f), out[1] = max(1.f, nan), out[2] = fminf(nan, -2.f), out[3] = fmaxf(3.f, nan);
        out[4] = min(-1, 2), out[5] = max(-1, 1u) == 0xffffffffu, out[6] = min(5ll, 4ll), out[7] = max(2.5, 1.f);
        out[8] = __uint_as_float(__float_as_uint(0.f) ^ 0x80000000u), out[9] = __double_as_longlong(-2.) >> 62;"""
    numbers = {"nan": np.float32(np.nan)}
    out = run("float* out, float nan", body, {"out": np.zeros(10, np.float32)}, threads=1, numbers=numbers)["out"]
    assert list(out) == [1, 1, -2, 3, -1, 1, 4, 2.5, 0, -1]
    assert math.copysign(1, out[8]) == -1


@pytest.mark.parametrize("kind", ["int", "unsigned long long"])
def test_atomics_over_blocks(run, kind):
    body = """
        const unsigned int i = blockIdx.x * THREADS + t;
        tickets[atomicAdd(out, 1)] = i;
        atomicMin(out + 1, 7 + (i ^ 5)), atomicOr(out + 2, 1 << i % 31);
        KIND seen = out[3], old;
        while ((old = atomicCAS(out + 3, seen, seen + 2)) != seen) seen = old;"""
    count = 64 * 100
    arrays = {"out": np.array([0, 1000, 0, 0], cuda.TYPES[kind]), "tickets": np.full(count, -1, np.int32)}
    launch = {"blocks": 100, "threads": 64, "macros": (("KIND", kind),), "workers": 4}
    found = run("KIND* out, int* tickets", body, arrays, **launch)
    assert sorted(found["tickets"]) == list(range(count))
    assert list(found["out"]) == [count, 7, 2**31 - 1, 2 * count]


def test_shared_variables_of_templates_and_of_kernels_of_the_same_name(run):
    before = """template <int N> __device__ __noinline__ int last(int value) {
            __shared__ int held[N];
            if (threadIdx.x < N) held[threadIdx.x] = value;
            __syncthreads();
            return held[N - 1];
        }"""
    for factor in (1, 10):
        body = f"out[t] = last<4>(t * {factor}) + last<7>(t * {factor});"
        assert set(run("int* out", body, {"out": np.zeros(32, np.int32)}, before=before)["out"]) == {9 * factor}


# What thread t reads of its neighbour that writes at the same time; which block was the last.
RACES = {
    "threads": "__shared__ int held[64]; held[t] = 1; {} out[t] = held[(t + 1) % 64];",
    "blocks": "out[t] = blockIdx.x;",
}


@pytest.mark.parametrize(("race", "outcomes"), [("threads", 4), ("threads", 1), ("blocks", 4)])
def test_a_race_shows_as_a_difference_between_orders(run, race, outcomes):
    body = RACES[race].format("" if outcomes > 1 else "__syncthreads();")
    launch = {"threads": 64, "blocks": 50 if race == "blocks" else 1, "workers": 1}
    arrays = {"out": np.zeros(64, np.int32)}
    assert len({tuple(run("int* out", body, arrays, order=order, **launch)["out"]) for order in range(4)}) == outcomes


def test_what_nobody_wrote_or_waited_for_is_not_a_number(run):
    body = """
        DYNAMIC_SHARED(float, dynamic);
        __shared__ float fixed[8];
        __shared__ double wide;
        out[blockIdx.x * 10 + t] = t < 8 ? fixed[t] + dynamic[t] : t < 9 ? float(wide) : dynamic[t];
        __syncthreads();
        if (t < 8) fixed[t] = 0;
        dynamic[t] = wide = 0;"""
    out = run("float* out", body, {"out": np.zeros(60, np.float32)}, blocks=6, threads=10, shared=40, workers=1)["out"]
    assert np.isnan(out).all()
    assert np.isnan(shim.ShimDevice().empty(5, np.float32)).all()
    body = (
        "__shared__ float held[32]; held[t] = 7; copy_async(held + t, in + t); {} out[t] = held[t];  // __CUDA_ARCH__"
    )
    arrays = {"in": np.arange(32, dtype=np.float32), "out": np.zeros(32, np.float32)}
    assert np.isnan(run("const float* in, float* out", body.format(""), arrays)["out"]).all()
    assert (run("const float* in, float* out", body.format("wait_for_copies();"), arrays)["out"] == arrays["in"]).all()


GO_ON = "and none can go on"
LANES = "which is not among the lanes 0x0000ffff that take part"
REFUSED = {  # body, launch, sentence
    "a barrier": (
        "if (t != 70) __syncthreads();", {"threads": 128},
        f"block 0: thread 0 waits at __syncthreads, thread 70 has exited, {GO_ON}",
    ),
    "a barrier of a later block": (
        "if (blockIdx.x != 2 || t == 3) __syncthreads();", {"blocks": 5, "order": 1},
        f"block 2: thread 3 waits at __syncthreads, thread 0 has exited, {GO_ON}",
    ),
    "a lane that has exited": (
        f"if (t != 37) out[t] = __shfl_sync({FULL}, 1.f, 0);", {"threads": 64},
        f"block 0: thread 32 waits at __shfl_sync (mask 0xffffffff), thread 37 has exited, {GO_ON}",
    ),
    "a lane that waits elsewhere": (
        "if (t == 0) __ballot_sync(3u, 1); else __syncthreads();", {"threads": 2},
        f"block 0: thread 0 waits at __ballot_sync (mask 0x00000003), thread 1 waits at __syncthreads, {GO_ON}",
    ),
    "masks that differ": (
        "__all_sync(t ? 7u : 3u, 1);", {"threads": 3},
        "block 0: thread 0 waits at __all_sync (mask 0x00000003), thread 1 waits at __all_sync (mask 0x00000007)"
        f", {GO_ON}",
    ),
    "a lane that takes no part": (
        "if (t < 16) out[t] = __shfl_sync(0xffffu, 1.f, t + 1);", {},
        f"block 0: thread 15 reads lane 16 in __shfl_sync, {LANES}",
    ),
    "a lane that is not there": (
        f"out[t] = __shfl_xor_sync({FULL}, 1.f, 16);", {"threads": 48},
        f"block 0: thread 32 reads lane 16 in __shfl_xor_sync, {LANES}",
    ),
    "a mask without its own lane": (
        "__syncwarp(0x1fu);", {},
        "block 0: thread 5 calls __syncwarp with the mask 0x0000001f, which lacks its own lane 5",
    ),
    "a width": (
        f"out[t] = __shfl_sync({FULL}, 1.f, 0, 12);", {},
        "block 0: thread 0 calls __shfl_sync with the width 12; it must be 1, 2, 4, 8, 16 or 32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("wrong", REFUSED)
def test_refused(run, wrong):
    body, launch, sentence = REFUSED[wrong]
    with pytest.raises(SpdnnError, match=rf"^kernel run \(test.cu; THREADS=\d+\): {re.escape(sentence)}$"):
        run("float* out", body, {"out": np.zeros(128, np.float32)}, **launch)


def test_a_device_goes_on_after_an_error(define):
    device = shim.ShimDevice()
    out = device.upload(np.zeros(64, np.float32))
    kernel = define("float* out, int stop", "if (stop && t == stop) return; __syncthreads(); out[t] += 1;", threads=64)
    launches = [device.bind(kernel, 3 if stop else 1, {"out": out, "stop": stop}) for stop in (0, 9)]
    launches[0]()
    with pytest.raises(SpdnnError, match="thread 9 has exited"):
        launches[1]()
    launches[0]()
    assert (device.read(out) == 2).all()
    assert device.launches == {"run": 3}


@pytest.mark.parametrize(
    ("body", "kernel", "sentence"),
    [
        ("\nnonsense;", {}, r"^kernel run \(test.cu; THREADS=32\) does not compile:.*test.cu:6.*nonsense"),
        ("out[0] = kept;", {"before": "__device__ int kept;"}, "does not compile:.*applies only to functions"),
        ("", {"threads": 2048}, "2048 threads; a block has 1 to 1024"),
    ],
)
def test_a_kernel_that_does_not_compile_shows_the_log(run, body, kernel, sentence):
    with pytest.raises(SpdnnError, match=f"(?s){sentence}"):
        run("float* out", body, {"out": np.zeros(1, np.float32)}, **kernel)


WRONG = {  # body, and what is found
    "read": ("out[t] = in[t + 1];", "thread 31 reads 4 bytes at byte 128 of an array, which has 128"),
    "write": ("out[t - 1] = 0;", "thread 0 writes 4 bytes at byte -4 of an array, which has 128"),
    "dynamic": (
        "DYNAMIC_SHARED(float, s); s[t * 2] = 0;",
        "thread 15 writes 4 bytes at byte 120 of the block's dynamic shared memory, which has 120",
    ),
    "fixed": (
        "__shared__ float s[20], next[20]; s[t] = 0; __syncthreads(); next[2] = 0; out[0] = s[3];",
        "thread 20 writes 4 bytes at byte 80 of the variable s, which has 80",
    ),
    "local": (
        "float s[8]; for (int i = 0; i <= in[0] * 8; ++i) s[i] = in[i]; out[0] = s[int(in[0])];",
        "thread 0 writes 4 bytes",
    ),
    "vector": (
        "reinterpret_cast<float4*>(out)[7].z = 1; reinterpret_cast<float4*>(out + 28)[t].x = 1;",
        "thread 1 writes 4 bytes at byte 128",
    ),
    "misaligned": (
        "*reinterpret_cast<float2*>(out + t) = {1, 1};",
        "thread 1 accesses 'struct float2' at an address that is 4 bytes past a multiple of 8",
    ),
    "zeroed": ("for (int i = 0; i < 33; ++i) out[i] = 0;", "thread 0 writes 4 bytes at byte 128"),
    "prefetched": ("prefetch(in + 32 + t);", "thread 0 reads 1 bytes at byte 128 of an array"),
}
if shim.SANITIZED:

    @pytest.mark.parametrize("wrong", [*WRONG, "read"])  # what was found once is found again
    def test_sanitized(run, wrong):
        body, found = WRONG[wrong]
        arrays = {"in": np.ones(32, np.float32), "out": np.zeros(32, np.float32)}
        with pytest.raises(SpdnnError, match=f"^kernel run .*: block 0: {re.escape(found)}"):
            run("const float* in, float* out", body, arrays, shared=120)

    def test_sanitized_freed(run):
        device = shim.ShimDevice()
        table = [device.address(device.empty(32, np.float32))]
        with pytest.raises(SpdnnError, match="writes 4 bytes at byte 0 of a freed array, which has 128 bytes$"):
            run("const unsigned long long* table", "*(reinterpret_cast<float*>(table[0]) + t) = 0;",
                {"table": np.array(table, np.uint64)})  # fmt: skip

else:

    def test_static_and_dynamic_shared_memory_share_a_limit(define):
        # Guarded variables take more than they hold.
        body = "DYNAMIC_SHARED(float, s); __shared__ float held[25]; s[0] = held[t] = 1; out[0] = held[0];"
        kernel, device = define("float* out", body, threads=25), shim.ShimDevice(shared_per_block=1000)
        out = device.empty(1, np.float32)
        device.bind(kernel, 1, {"out": out}, shared=900)()
        assert device.read(out) == [1]
        with pytest.raises(SpdnnError, match="904 bytes of dynamic and 100 of static shared memory; .* has 1,000$"):
            device.bind(kernel, 1, {"out": out}, shared=904)

    def test_accesses_out_of_bounds_are_found():
        done = shim.sanitized(__file__, "-k", "test_sanitized or test_what_nobody or test_refused or test_shared")
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"{len(WRONG) + 2 + 1 + len(REFUSED) + 1} passed" in done.stdout
        assert "AddressSanitizer" not in done.stderr

    @pytest.mark.full("architectures")
    def test_elsewhere_fibers_are_contexts_of_the_system():
        done = shim.pytest_again(__file__, "-k", "test_a_race or barrier", SHIM_FLAGS="-DSHIM_UCONTEXT")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "passed" in done.stdout
