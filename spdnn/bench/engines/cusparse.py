"""Engine `cusparse`: the vendor's own library on a GPU, reached through CuPy.

Layout: W^T by row (CSR, outputs x inputs, 32-bit indices) times C-ordered (neurons, inputs) float32, all inputs in one
array: a GPU wants large products, so there are blocks only where an array would pass 2^31 values. CuPy's own product
takes column-major features alone, and cuSPARSE is several times as fast by row (its manual; DGL's change 2550 measured
4 times), so cuSPARSE is called here through CuPy's bindings. Which of its algorithms is fastest depends on the device
and the version: each is tried when the engine starts, and those that do not repeat themselves to the bit are left out.
The trial has rows of equal length, as the challenge has. For other matrices the manual promises the same bits of
CSR_ALG3 alone: on an H100, CSR_ALG2 gave two outputs in four runs. The bindings have no cusparseSpMM_preprocess, so it
is not called.

What the clock holds of the host: a step waits for the device, as the contract asks, and the live columns of every layer
(a byte for each input) come to the host, where the session decides which rows stay. Nothing else does until the last
layer's live rows. Bias and clip are one kernel of CuPy's, in place.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from spdnn.bench.engines.columns import Columns
from spdnn.bench.engines.library import WIDEST_BYTES, Weights
from spdnn.core.errors import InputError, MemoryTooSmall, SpdnnError, Unavailable
from spdnn.core.network import Network
from spdnn.engines.base import OnDevices
from spdnn.engines.memory import RunSizes, plan_batches

ALGORITHMS = {"CSR_ALG2": 6, "CSR_ALG3": 12, "CSR_ALG1": 4}  # cusparseSpMMAlg_t; the first is made for rows
UNEVEN = "CSR_ALG3"  # where rows are not of equal length
CUSPARSE_ROW_MAJOR, REAL_32 = 2, 0  # CUSPARSE_ORDER_ROW, CUDA_R_32F
MOST_VALUES = 2**31 - 1  # of one array of features
CUSPARSE_COLUMNS = 65535 * 16  # cuSPARSE before 12.7.20 takes no more (CuPy's issue 9850)
PART_VALUES = 1 << 24  # of features that are turned between rows and columns at a time
INDEX_BYTES = 8  # of a weight: a 32-bit index and a value
RESERVED = 1 << 28  # bytes of the device for a part that is turned, cuSPARSE's workspace and the live columns
TRIAL_NEURONS, TRIAL_EDGES, TRIAL_INPUTS, TRIALS = 16384, 32, 2048, 5
ONE, ZERO = np.array(1, np.float32), np.array(0, np.float32)


class CusparseModules(NamedTuple):
    """What the engine calls: CuPy, its sparse matrices, and `product` below. Tests replace them."""

    array: Any
    sparse: Any
    product: Callable[[Any, Any, Any, int], Callable[[], None]]


class Matrix(NamedTuple):
    """Weights: cupyx.scipy.sparse CSR, and whether all rows have as many nonzeros."""

    rows: Any
    even: bool


def modules() -> CusparseModules:
    """CuPy and what belongs to it, imported here first; Unavailable where it does not find the vendor's libraries."""
    try:
        import cupy
        from cupy_backends.cuda.libs import cusparse  # noqa: F401  loads the library itself
        from cupyx.scipy import sparse
    except (ImportError, OSError) as error:  # of the library, or of the folder of CuPy's cache
        message = " ".join(str(error).split())
        raise Unavailable(f"engine cusparse cannot run here: CuPy does not load cuSPARSE ({message})") from error
    return CusparseModules(cupy, sparse, product)


def product(matrix: Any, features: Any, out: Any, algorithm: int) -> Callable[[], None]:
    """out = matrix @ features by cuSPARSE, both row-major, with its workspace: calling it does not wait.

    Args:
        matrix: cupyx.scipy.sparse CSR float32 (outputs, inputs), with nonzeros.
        features, out: C-ordered float32 (inputs, count) and (outputs, count).
        algorithm: cusparseSpMMAlg_t.
    """
    import cupy
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cusparse as bindings
    from cupyx import cusparse

    def dense(array: Any) -> Any:
        (rows, columns), address = array.shape, array.data.ptr
        descriptor = bindings.createDnMat(rows, columns, columns, address, REAL_32, CUSPARSE_ROW_MAJOR)
        return cusparse.BaseDescriptor(descriptor, bindings.dnMatGet, bindings.destroyDnMat)

    # Descriptors of the operands; the workspace is taken once, so that repeated calls allocate nothing.
    weights, source, target = cusparse.SpMatDescriptor.create(matrix), dense(features), dense(out)
    handle, plain = device.get_cusparse_handle(), bindings.CUSPARSE_OPERATION_NON_TRANSPOSE
    one, zero = ONE.ctypes.data, ZERO.ctypes.data
    operands = handle, plain, plain, one, weights.desc, source.desc, zero, target.desc, REAL_32, algorithm
    workspace = cupy.empty(bindings.spMM_bufferSize(*operands), np.int8)

    def multiply(alive: tuple = (weights, source, target, matrix, features, out)) -> None:
        bindings.spMM(*operands, workspace.data.ptr)

    return multiply


def block_inputs(neurons: int) -> int:
    """Inputs in a block of features of that many neurons: as many as one array may hold."""
    return max(1, min(CUSPARSE_COLUMNS, MOST_VALUES // neurons))


class CusparseEngine(Columns, OnDevices):
    name = "cusparse"
    summary = "cuSPARSE: the vendor's CSR product with dense features on a GPU, through CuPy"
    holds = "the first and the last features and one layer, the rest on the device"
    compiles = True  # CuPy makes its elementwise kernels when they are first called

    def __init__(self):
        self._modules: CusparseModules | None = None
        self._activation: Any = None
        self._checked: set[int] = set()  # devices that are there
        self._least = 0  # bytes of the device that the last session needs
        self._chosen: dict[int, tuple[str, int]] = {}  # of each device: the algorithm, by name and number

    def missing(self) -> str | None:
        from spdnn.kernels.cuda import cupy_device

        return cupy_device.missing()

    def device_identities(self) -> tuple[str, ...]:
        from spdnn.kernels.cuda import driver

        return driver.identities()

    def devices(self) -> int:
        from spdnn.kernels.cuda import cupy_device

        return cupy_device.count()

    def use(self, device: int | None) -> None:
        number = device or 0
        if number not in self._checked:  # to ask the driver takes time, and every run begins here
            if not 0 <= number < (seen := self.devices()):
                raise InputError(f"device {number}: engine {self.name} sees {seen} here, counted from 0")
            self._modules = modules()
            self._checked.add(number)
        self._modules.array.cuda.Device(number).use()

    def start(self, threads: int) -> dict:
        if self._modules is None:
            self.use(None)
        xp = self._modules.array
        self._activation = xp.ElementwiseKernel(
            "float32 product, float32 bias, float32 low, float32 high",
            "float32 out",
            "out = min(max(product + bias, low), high)",
            "spdnn_activation",
        )
        runtime, number = xp.cuda.runtime, xp.cuda.Device().id
        # Choice of the algorithm by timing, once for each device of this process.
        if number not in self._chosen:
            with self._memory():
                self._chosen[number] = fastest(self._modules)
        properties = runtime.getDeviceProperties(number)
        return {
            "library": f"cuSPARSE through CuPy {xp.__version__}, CUDA runtime {runtime.runtimeGetVersion()}",
            "driver": str(runtime.driverGetVersion()),
            "device": properties["name"].decode(),
            "algorithm": self._chosen[number][0],
            "algorithm_of_uneven_rows": UNEVEN,
            "layout": "columns, row-major, in device memory",
            "threads_used": 1,
        }

    def host_bytes(self, network: Network, count: int) -> int:
        layer = max(network.header(k).edges for k in range(network.depth))
        outputs = network.header(network.depth - 1).outputs
        # A layer is there as it is read and as it is uploaded; the last rows with their copy in the order of inputs.
        return self.value_bytes * count * max(network.inputs, 2 * outputs) + 2 * WIDEST_BYTES * layer

    def check_device(self, network: Network, count: int) -> None:
        xp = self._modules.array
        headers = [network.header(k) for k in range(network.depth)]
        weights = sum(INDEX_BYTES * header.edges + self.value_bytes * (2 * header.outputs + 1) for header in headers)
        # The first features are kept for the next run; a layer has its own besides the ones that it makes, and the
        # signs of these where they may be negative.
        each = (
            self.value_bytes * (network.inputs + max(header.inputs + header.outputs for header in headers))
            + network.width
        )
        free = xp.cuda.runtime.memGetInfo()[0] + xp.get_default_memory_pool().free_bytes()
        fixed = weights + RESERVED
        self._least = fixed + each * count
        fits = (free - fixed) // each
        sentence = (
            f"engine {self.name} needs {self._least:,} bytes of the device's memory for these weights and the features "
            f"of {count:,} inputs, and {max(free, 0):,} are free: "
            + (f"{fits:,} inputs would fit (--count)" if fits > 0 else f"the weights alone need {fixed:,}")
        )
        plan_batches(RunSizes(1, 1, (), each * count, fixed), free, lambda least: sentence)  # one batch of all inputs

    def matrix(self, rows: sp.csr_array) -> Matrix:
        xp = self._modules.array
        with self._memory():
            arrays = rows.data, rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
            matrix = self._modules.sparse.csr_matrix(tuple(xp.asarray(array) for array in arrays), shape=rows.shape)
            return Matrix(matrix, np.unique(np.diff(rows.indptr)).size == 1)

    def native(self, array: np.ndarray) -> Any:
        return self._modules.array.asarray(array) if np.ndim(array) else np.float32(array)

    def features(self, rows: np.ndarray) -> list:
        xp, (count, neurons) = self._modules.array, rows.shape
        # Rows become columns part by part, so that the turned copy takes little of the device.
        blocks = []
        with self._memory():
            for start in range(0, count, size := block_inputs(neurons)):
                block = xp.empty((neurons, min(size, count - start)), np.float32)
                for part in parts(block):
                    block[:, part] = xp.asarray(rows[start + part.start : start + part.stop]).T
                blocks.append(block)
        return blocks

    def step(self, features: list, weights: Weights, spare: list | None = None) -> list:
        xp = self._modules.array
        # All blocks are launched, and waited for once, as the contract of `step` asks.
        shapes = [(weights.outputs, block.shape[1]) for block in features]
        if spare is not None and [block.shape for block in spare] != shapes:
            spare.clear()  # what does not fit is room for what does
            spare = None
        with self._memory():
            outs = spare or [xp.empty(shape, np.float32) for shape in shapes]
            for block, out in zip(features, outs, strict=True):
                self.bind(block, weights, out)()
            xp.cuda.get_current_stream().synchronize()
        return outs

    def bind(self, block: Any, weights: Weights, out: Any) -> Callable[[], None]:
        """The step of a block, to be called any number of times: product, bias and clip are put on the current stream,
        and nothing is waited for or allocated."""
        # The trial had rows of equal length; for uneven ones only one algorithm promises the same bits again.
        multiply = partial(out.fill, 0)
        if weights.edges:
            rows, even = weights.matrix
            algorithm = self._chosen[self._modules.array.cuda.Device().id][1] if even else ALGORITHMS[UNEVEN]
            multiply = self._modules.product(rows, block, out, algorithm)

        def launch() -> None:
            multiply()
            self._activation(out, weights.bias, weights.low, weights.high, out)

        return launch

    def block_step(self, block: Any, weights: Weights, out: Any) -> Any:
        return self.step([block], weights, None if out is None else [out])[0]

    def block_alive(self, block: Any, signed: bool) -> np.ndarray:
        with self._memory():
            return self._modules.array.asnumpy(super().block_alive(block, signed))

    def take(self, features: list, kept: np.ndarray) -> list:
        xp = self._modules.array
        ends = np.cumsum([block.shape[1] for block in features])[:-1]
        pairs = zip(features, np.split(kept, ends), strict=True)
        with self._memory():  # always copies: the argument may be the first features, which are kept
            return [xp.take(block, xp.asarray(np.flatnonzero(part)), axis=1) for block, part in pairs if part.any()]

    def dense(self, features: list) -> np.ndarray:
        xp, neurons = self._modules.array, features[0].shape[0]
        rows, offset = np.empty((sum(block.shape[1] for block in features), neurons), np.float32), 0
        with self._memory():
            for block in features:
                for part in parts(block):
                    turned = xp.asnumpy(xp.ascontiguousarray(block[:, part].T))
                    rows[offset : offset + len(turned)] = turned
                    offset += len(turned)
        return rows

    @contextmanager
    def _memory(self) -> Iterator[None]:
        """Device memory that runs out all the same is one sentence."""
        xp = self._modules.array
        try:
            yield
        except xp.cuda.memory.OutOfMemoryError as error:
            raise MemoryTooSmall(
                f"engine {self.name}: too little of the device is free ({error})", self._least
            ) from None


def parts(block: Any) -> Iterator[slice]:
    """The columns of a block of features, as many at a time as PART_VALUES allow."""
    neurons, columns = block.shape
    size = max(1, PART_VALUES // neurons)
    return (slice(start, min(start + size, columns)) for start in range(0, columns, size))


def fastest(loaded: CusparseModules) -> tuple[str, int]:
    """The algorithm, of those that give the same bits again, that takes least on a layer like the challenge's.

    Raises:
        SpdnnError: none does.
    """
    xp, rng, shape = loaded.array, np.random.default_rng(0), (TRIAL_NEURONS, TRIAL_INPUTS)
    # Trial layer: as wide as a layer of the challenge, with as many edges for each output.
    columns = np.sort(rng.integers(0, TRIAL_NEURONS, (TRIAL_NEURONS, TRIAL_EDGES), np.int32), axis=1).ravel()
    offsets = np.arange(0, columns.size + 1, TRIAL_EDGES, dtype=np.int32)
    values = rng.random(columns.size, np.float32)
    arrays = tuple(xp.asarray(array) for array in (values, columns, offsets))
    matrix = loaded.sparse.csr_matrix(arrays, shape=(TRIAL_NEURONS, TRIAL_NEURONS))
    features = xp.asarray(rng.random(shape, np.float32))
    first, out = (xp.empty(shape, np.float32) for _ in range(2))
    stream, seconds = xp.cuda.get_current_stream(), {}
    for name, algorithm in ALGORITHMS.items():
        # Warm-up, and the bits to repeat: an algorithm that adds in another order each time is left out.
        try:
            loaded.product(matrix, features, first, algorithm)()
            same, times = True, []
            for _ in range(TRIALS):
                stream.synchronize()
                began = time.perf_counter()
                loaded.product(matrix, features, out, algorithm)()
                stream.synchronize()
                times.append(time.perf_counter() - began)
                same = same and bool((first == out).all())
        except RuntimeError:  # CuPy's, for what this version of cuSPARSE cannot do
            continue
        if same:
            seconds[name] = min(times)
    if not seconds:
        raise SpdnnError(f"cuSPARSE repeats itself to the bit with none of {', '.join(ALGORITHMS)} on this device")
    best = min(seconds, key=seconds.get)
    return best, ALGORITHMS[best]
