"""An ONNX model made ready for calls: ONNX Runtime runs it, and our kernels the pruned products in it.

Both compute on ONNX Runtime's threads, in one session. Each product is timed both ways on the features that reach it,
then the whole model. The faster way is taken and kept (spdnn/ops/tuning.py).
"""

import hashlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spdnn.common import arrays
from spdnn.common.errors import InputError
from spdnn.common.provenance import cpu_name
from spdnn.common.shown import WithRepr, with_unit
from spdnn.ops import tuning
from spdnn.ops.backends import thread_count
from spdnn.ops.cpu import _load
from spdnn.ops.onnx_products import GraphProduct, alone, products, replace_products
from spdnn.sources.formats import onnx_files

TILES = (64, 32, 128)  # worth trying; see `spmm_settings`
UNKNOWN = 64  # the size of a dimension that neither the model nor an example states
SURE = 0.2  # of the weights: a product with no more nonzeros is ours where it cannot be timed
TURNS, TURN = 4, 0.002  # of a timing, after one that warms up; seconds of a turn, at least one call
ONNX_RUNTIME, OURS = "onnxruntime", "spdnn"


class OnnxModel(WithRepr):
    """An ONNX model, ready for calls, which may come from several threads at once.

    Args:
        path: of the file; model: what onnx_files.simplify makes of it; name: of the model in messages, by default the
            path.
        threads: of a call; all cores by default.
        example: arrays as the model takes them, one or several, on whose shapes products are timed; by default random
            numbers of the shapes that the model states, zeros where it takes whole numbers.
        batch: the usual size of the first dimension, where there is no example.

    Attributes:
        inputs, outputs: their names.
        ours: the products that our kernels compute.

    Raises:
        InputError: ONNX Runtime does not run the model, or it does not take the example.
        Unavailable: the compiled kernels, or the packages onnx and onnxruntime, are missing.

    Example:
        >>> import numpy as np, onnx, spdnn
        >>> text = '<ir_version: 8, opset_import: ["": 17]> mean (float[n, k] x) => (float[n] y) '
        >>> graph = "{ y = ReduceMean <axes = [1], keepdims = 0> (x) }"
        >>> onnx.save(onnx.parser.parse_model(text + graph), "model.onnx")
        >>> spdnn.compile("model.onnx")(np.float32([[1, 3], [2, 2], [0, 5]]))
        array([2. , 2. , 2.5], dtype=float32)
    """

    def __init__(
        self, path: Any, model: Any, threads: int | None = None, example: Any = None, batch: int | None = None,
        name: Any = None,
    ):  # fmt: skip
        self.path, self.threads = path if name is None else name, thread_count(threads)
        self._kernels, self._level = _load(None)
        # First as it is: a model that ONNX Runtime does not take is refused here.
        self._plain = onnx_files.session(str(path), self._options, self.path)
        self._ends = self._plain.get_inputs()
        self.inputs = [end.name for end in self._ends]
        self._usual = [(end.name, np.dtype(TYPES.get(end.type, object))) for end in self._ends]
        self.outputs = [output.name for output in self._plain.get_outputs()]
        # The pruned products of the graph, and for each one whether ours is faster.
        self._found = list(products(model.graph))
        self._reasons: dict[str, str] = {}  # of each product, how it runs and why
        self._session = self._plain
        tiles: Sequence[int] = ()
        if self._found:
            sample = self._sample(example, batch)
            try:
                tiles = self._choose(model, sample)
                if any(tiles) and self._session is self._plain:  # a choice that was kept, or made without a trial
                    self._session = self._with(model, tiles)
            except InputError as error:  # ONNX Runtime simplified the model to one that it does not take
                self._reasons, tiles = {"": str(error)}, (0,) * len(self._found)
        for product, tile in zip(self._found, tiles, strict=True):
            self._reasons.setdefault(product.gives, f"{OURS}, tiles of {tile}" if tile else ONNX_RUNTIME)
        self.ours = [product for product, tile in zip(self._found, tiles, strict=True) if tile]
        self._plain = None  # and with it the dense weights of our products

    def __call__(self, *x: Any, **named: Any) -> Any:
        """The model's outputs.

        Args:
            x: arrays as the model takes them, in the order of `inputs`, or by name: of NumPy, torch, JAX, CuPy or
                anything with DLPack; cast to the type that the model states.

        Returns:
            the output, or a tuple of several, of the library of the first input.

        Raises:
            InputError: other inputs, shapes or types than the model takes, a tensor that asks for a gradient, or the
                model is closed.
        """
        session = self._session
        if session is None:
            raise InputError("this model is closed; spdnn.compile makes another one")
        # The usual call passes arrays that fit: it must not pay for checks and conversions.
        feed = {}
        for (name, dtype), value in zip(self._usual, x, strict=False):  # as a session takes them: within 0.5 us
            if type(value) is np.ndarray and value.dtype is dtype:
                feed[name] = value
        if len(feed) != len(self._usual) or len(x) != len(feed) or named:
            feed = self._feed(x, named)
        # Outputs are of the library of the first input.
        first = x[0] if x else next(iter(named.values()), None)
        try:
            found = session.run(self.outputs, feed)
            if type(first) is not np.ndarray:
                found = [arrays.like(array, first) if isinstance(array, np.ndarray) else array for array in found]
        except Exception as error:  # of many types, none of them public
            raise InputError(f"{self.path}: {onnx_files.reason(error)}") from error
        return found[0] if len(found) == 1 else tuple(found)

    def explain(self) -> str:
        """A line for each product of pruned weights: where it runs, and the times that decided it, if this process took
        them."""
        if not self._found:
            return f"no product of this model has {LEAST}, so ONNX Runtime runs all of it"
        width = max(len(product.name) for product in self._found)
        lines = [
            f"{product.name:<{width}}  {'x'.join(map(str, product.matrix.shape)):>11}  "
            f"{100 * product.nonzero:3.0f} % nonzero  {self._reasons.get(product.gives, '')}"
            for product in self._found
        ]
        return "\n".join([*lines, self._reasons[""]] if "" in self._reasons else lines)

    def close(self) -> None:
        """Let weights and buffers go. Closing again does nothing."""
        self._session = None

    def __enter__(self) -> "OnnxModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self) -> dict[str, str]:
        facts = {"products": f"{len(self.ours)} of {with_unit(len(self._found), 'pruned products')} by spdnn"}
        return facts | {"threads": with_unit(self.threads, "threads") if self._session else "closed"}

    def _feed(self, x: Sequence, named: dict[str, Any]) -> dict[str, np.ndarray]:
        given = dict(zip(self.inputs, x, strict=False)) | named
        if len(x) > len(self.inputs):
            raise InputError(f"{self.path}: {with_unit(len(x) + len(named), 'inputs')}; it takes {_list(self.inputs)}")
        return make_feed(self.path, self._ends, given)

    def _open(self, model: Any) -> Any:
        """A session for a model in memory; a large one goes through a file."""
        if model.ByteSize() < LARGE:
            return onnx_files.session(model.SerializeToString(), self._options, self.path)
        import onnx

        with tempfile.TemporaryDirectory(prefix="spdnn-") as folder:
            copy = type(model)()
            copy.CopyFrom(model)  # whose weights onnx.save moves to the file
            onnx.save(copy, file := Path(folder, "model.onnx"), save_as_external_data=True)
            return onnx_files.session(str(file), self._options, self.path)

    def _options(self, options: Any) -> None:
        options.intra_op_num_threads = self.threads
        options.register_custom_ops_library(self._kernels.__file__)

    def _sample(self, example: Any, batch: int | None) -> dict[str, np.ndarray] | None:
        """What products are timed on."""
        if example is not None:
            several = example if isinstance(example, tuple | list) else [example]
            return self._feed(several, {})
        return draw_inputs(self._ends, batch or 1)

    def _choose(self, model: Any, sample: dict[str, np.ndarray] | None) -> Sequence[int]:
        """The tile of each product, kept or timed; 0 where ONNX Runtime runs it."""
        # Without a sample nothing can be timed: sparsity alone decides.
        usual = [TILES[0] if product.nonzero <= SURE else 0 for product in self._found]
        if sample is None:
            return usual
        # Choices are kept between processes, by what they depend on.
        shapes = [f"{name} {array.dtype}{array.shape}" for name, array in sample.items()]
        graph = [f"{each.name} {each.matrix.shape} {each.window} {each.nonzero:.2f}" for each in self._found]
        graph += [node.op_type for node in model.graph.node]
        # A choice holds for this processor, these kernels, this version of ONNX Runtime and this model and sample.
        version, code = onnx_files.runtime().__version__, self._kernels.source_digest[:16]
        digest = hashlib.sha256(repr((shapes, graph)).encode()).hexdigest()[:32]
        key = f"{cpu_name()} {self._level} t{self.threads} {code} onnxruntime {version} model {digest}"
        allowed = (*TILES, 0)
        tiles = tuning.keep(
            key, lambda: self._time(model, sample, usual),
            lambda kept: isinstance(kept, tuple) and len(kept) == len(usual) and set(kept) <= set(allowed),
        )  # fmt: skip
        return usual if tiles is None else tiles

    def _time(self, model: Any, sample: dict[str, np.ndarray], usual: Sequence[int]) -> tuple[int, ...]:
        """The tile that each product is fastest with, or zeros, where the whole model is faster without ours."""
        # Product by product, on the features that really reach it: their zeros and shapes decide.
        reach = self._features(model, sample)
        tiles, times = [], {}
        for product, tile in zip(self._found, usual, strict=True):
            x = reach.get(product.reads)
            if x is not None:
                matrix, bounds = product.matrix, (product.low, product.high)
                alike = matrix.shape, product.window, x.shape, round(product.nonzero, 2), *bounds
                if alike not in times:
                    times[alike] = self._times(model, product, x)
                took = times[alike]
                tile = min(took, key=took.__getitem__)
                ours = min(TILES, key=took.__getitem__)
                self._reasons[product.gives] = (
                    f"{f'{OURS}, tiles of {tile}' if tile else ONNX_RUNTIME}: {1e3 * took[ours]:.3f} ms, in ONNX "
                    f"Runtime {1e3 * took[0]:.3f}"
                )
            tiles.append(tile)
        if not any(tiles) or not reach:
            return tuple(tiles)
        # Then the whole model: our products stand between nodes that ONNX Runtime may fuse, so the whole can be slower.
        sessions = {OURS: self._with(model, tiles), ONNX_RUNTIME: self._plain}
        took = _alternating({name: partial(session.run, None, sample) for name, session in sessions.items()})
        self._reasons[""] = (
            f"the whole model: {1e3 * took[OURS]:.3f} ms, in ONNX Runtime {1e3 * took[ONNX_RUNTIME]:.3f}"
        )
        if took[OURS] <= took[ONNX_RUNTIME]:
            self._session = sessions[OURS]
            return tuple(tiles)
        self._reasons |= {product.gives: f"{ONNX_RUNTIME}: the whole model is faster in it" for product in self._found}
        return (0,) * len(tiles)

    def _times(self, model: Any, product: GraphProduct, x: np.ndarray) -> dict[int, float]:
        """Seconds of a product with each tile; 0: in ONNX Runtime."""
        calls = {}
        for tile in (*TILES, 0):
            key = self._key(product, tile) if tile else None
            session = self._open(alone(model, product, x, key))
            if key is not None:
                self._kernels.drop_product(key)
            calls[tile] = partial(session.run, None, {product.reads: x})
        return _alternating(calls)

    def _features(self, model: Any, sample: dict[str, np.ndarray] | None) -> dict[str, np.ndarray]:
        """What reaches each product, of the sample; nothing where the model does not take it."""
        from onnx import helper

        # Values inside the graph become outputs of a copy of the model.
        wanted = sorted({product.reads for product in self._found if product.inner} - set(self.inputs))
        if sample is None or not self._found:
            return {}
        copy = type(model)()
        copy.CopyFrom(model)
        there = {output.name for output in copy.graph.output}
        copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted if name not in there)
        try:
            found = self._open(copy).run(wanted, sample) if wanted else []
        except Exception:  # of many types: shapes of our own choice do not fit
            return {}
        return sample | dict(zip(wanted, found, strict=True))

    def _with(self, model: Any, tiles: Sequence[int]) -> Any:
        """A session with our products, those that have a tile."""
        keys = {
            product.gives: self._key(product, tile) for product, tile in zip(self._found, tiles, strict=True) if tile
        }
        try:
            return self._open(replace_products(model, keys, self._found))
        # The session holds its kernels now; the keys were only to hand them over.
        finally:
            for key in keys.values():
                self._kernels.drop_product(key)

    def _key(self, product: GraphProduct, tile: int) -> int:
        matrix = product.matrix
        return self._kernels.make_product(
            self._level, matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32), matrix.data, product.bias,
            product.low, product.high, matrix.shape[1], product.window, tile, self.threads,
        )  # fmt: skip


LARGE = 1 << 30  # bytes of a model that goes through a file: a message holds 2^31
LEAST = "weights enough of which are zero"
TYPES = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16, "tensor(bool)": np.bool_,
    **{f"tensor({sign}int{bits})": np.dtype(f"{sign}int{bits}").type for sign in ("", "u") for bits in (8, 16, 32, 64)},
}  # fmt: skip


def make_feed(what: Any, ends: Sequence, given: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays for the inputs of a session, in their order and of their types. Raises InputError, which begins with
    `what`: others than it takes."""
    names = [end.name for end in ends]
    if set(given) != set(names):
        raise InputError(f"{what}: {with_unit(len(given), 'inputs')}; it takes {_list(names)}")
    feed = {}
    for end in ends:
        value, dtype = given[end.name], TYPES.get(end.type)
        if not end.type.startswith("tensor("):  # a list of arrays, or None
            feed[end.name] = value
            continue
        if type(value) is not np.ndarray or value.dtype != dtype:
            arrays.refuse_gradient(value)
            value = _cast(end.name, arrays.host(value, end.name), dtype)
        feed[end.name] = value
    return feed


def _cast(name: str, array: np.ndarray, dtype: Any) -> np.ndarray:
    """Raises InputError: numbers that the type does not hold."""
    if dtype is None or array.dtype == dtype:
        return array
    if not np.can_cast(array.dtype, dtype, "same_kind") and array.dtype.kind not in "iub":
        raise InputError(f"{name} is of {array.dtype}; the model takes {np.dtype(dtype)}")
    return array.astype(dtype)


def draw_inputs(ends: Sequence, batch: int, seed: int = 0) -> dict[str, np.ndarray] | None:
    """Random numbers of the shapes that the inputs of a session state, zeros where they are whole numbers.

    Free first dimensions are `batch`, other free ones UNKNOWN. None: an input is of no type that NumPy has.
    """
    # A free size has one value wherever its name occurs.
    sizes = {end.shape[0]: batch for end in ends if end.shape and isinstance(end.shape[0], str)}
    sample, random = {}, np.random.default_rng(seed)
    for end in ends:
        if (dtype := TYPES.get(end.type)) is None:
            return None
        first = [batch] if end.shape and end.shape[0] is None else []
        shape = first + [
            size if isinstance(size, int) else sizes.get(size, UNKNOWN) for size in end.shape[len(first) :]
        ]
        whole = np.dtype(dtype).kind != "f"
        sample[end.name] = np.zeros(shape, dtype) if whole else random.standard_normal(shape).astype(dtype)
    return sample


def _alternating(calls: dict[Any, Callable[[], Any]]) -> dict[Any, float]:
    """The median of the seconds of each call, in turns."""
    took: dict[Any, list[float]] = {}
    # In turns, so that a disturbance meets all of them; the first turn only warms up.
    for turn in range(1 + TURNS):
        for name, call in calls.items():
            times: list[float] = []
            end = time.perf_counter() + TURN
            while not times or time.perf_counter() < end:
                began = time.perf_counter()
                call()
                times.append(time.perf_counter() - began)
            took[name] = took[name] + times if turn else []
    return {name: statistics.median(times) for name, times in took.items()}


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (" ..." if len(names) > 8 else "")
