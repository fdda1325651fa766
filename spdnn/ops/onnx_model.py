"""An ONNX model made ready for calls: ONNX Runtime runs it, and our kernels the pruned products in it.

Both compute on ONNX Runtime's threads, in one session. Each product is timed both ways on the features that reach it,
then the whole model. The faster way is taken and kept (spdnn/ops/tuning.py). Before the model is given out, what ours
gave is compared with what ONNX Runtime gave, product by product; a product that differs is left to ONNX Runtime.
"""

import contextlib
import hashlib
import math
import os
import statistics
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spdnn.core import arrays
from spdnn.core.errors import InputError
from spdnn.core.provenance import cpu_name
from spdnn.core.shown import WithRepr, with_unit
from spdnn.core.signature import Signature
from spdnn.formats import onnx_files
from spdnn.formats.readers import network_files
from spdnn.ops import tuning
from spdnn.ops.backends import thread_count
from spdnn.ops.cpu import _load
from spdnn.ops.onnx_products import GraphProduct, alone, jumps, products, replace_products

TILES = (64, 32, 128)  # worth trying; see `spmm_settings`
UNKNOWN = 64  # the size of a dimension that neither the model nor an example states
SURE = 0.2  # of the weights: a product with no more nonzeros is ours where it cannot be timed
TURNS, TURN = 4, 0.002  # of a timing, after one that warms up; seconds of a turn, at least one call
ONNX_RUNTIME, OURS = "onnxruntime", "spdnn"


class OnnxModel(WithRepr):
    """An ONNX model, ready for calls, which may come from several threads at once.

    Args:
        path: of the file, None: there is none any more; model: what onnx_files.simplify makes of it; name: of the model
            in messages, by default the path.
        threads: of a call; all cores by default.
        example: arrays as the model takes them, one or several, on whose shapes products are timed; by default random
            numbers of the shapes that the model states, zeros where it takes whole numbers.
        batch: the usual size of the first dimension, where there is no example.
        verify: compare our products with ONNX Runtime's, and the whole model where its outputs do not jump.

    Attributes:
        inputs, outputs: their names.
        ours: the products that our kernels compute.
        jumps: whether one of its operators may make a large difference of a small one.

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
        name: Any = None, verify: bool = True,
    ):  # fmt: skip
        self.path, self.threads = path if name is None else name, thread_count(threads)
        self._kernels, self._level = _load(None)
        # First as it is: a model that ONNX Runtime does not take is refused here.
        plain = self._open(model) if path is None else onnx_files.session(str(path), self._options, self.path)
        self._plain: Any = plain
        self._source = _Source.of(path, model, self.path, (threads, example, batch, verify))
        self.signature: Signature = onnx_files.signature(self.path, model)
        self.inputs = self.signature.names
        self._usual = [(each.name, each.dtype or np.dtype(object)) for each in self.signature.inputs]
        self.outputs = [output.name for output in self._plain.get_outputs()]
        # The pruned products of the graph, and for each one whether ours is faster, and right.
        self._found, self.jumps = list(products(model.graph)), jumps(model.graph)
        self._reasons: dict[Any, str] = {}  # of each product, how it runs and why; of the model: None
        self._session, tiles = self._plain, [0] * len(self._found)
        if self._found:
            sample, reach = self._trial(model, example, batch)
            try:
                tiles = self._choose(model, sample, reach)
                tiles = self._verified(model, sample, reach, tiles) if verify else tiles
                self._session = self._with(model, tiles) if any(tiles) else self._plain
            except Exception as error:  # ONNX Runtime does not take what it simplified, or what ours made of it
                self._reasons, tiles = {None: onnx_files.reason(error)}, [0] * len(self._found)
                self._session = self._plain
        for product, tile in zip(self._found, tiles, strict=True):
            self._reasons.setdefault(product.place, f"{OURS}, tiles of {tile}" if tile else ONNX_RUNTIME)
        self.ours = [product for product, tile in zip(self._found, tiles, strict=True) if tile]
        self._plain = None  # and with it the dense weights of our products

    def __call__(self, /, *x: Any, **named: Any) -> Any:
        """The model's outputs.

        Args:
            x: arrays as the model takes them, in the order of `inputs`, or by name: of NumPy, torch, JAX, CuPy or
                anything with DLPack; other types of numbers are converted where the type that the model states holds
                them.

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
            feed = self.signature.feed(x, named)
        # Outputs are of the library of the first input.
        first = x[0] if x else next(iter(named.values()), None)
        try:
            found = session.run(self.outputs, feed)
            if type(first) is not np.ndarray:
                found = [arrays.like(array, first) if isinstance(array, np.ndarray) else array for array in found]
        except Exception as error:  # of many types, none of them public
            raise InputError(f"{self.path}: {onnx_files.reason(error)}") from error
        return found[0] if len(found) == 1 else tuple(found)

    def __reduce__(self):
        """Pickled as its file's content and settings, and compiled on arrival."""
        return _arrive, self._source.sent()

    def explain(self) -> str:
        """A line for each product of pruned weights: where it runs, and the times that decided it, if this process took
        them."""
        if not self._found:
            return f"no product of this model has {LEAST}, so ONNX Runtime runs all of it"
        width = max(len(product.name) for product in self._found)
        lines = [
            f"{product.name:<{width}}  {'x'.join(map(str, product.matrix.shape)):>11}  "
            f"{100 * product.nonzero:3.0f} % nonzero  {self._reasons.get(product.place, '')}"
            for product in self._found
        ]
        return "\n".join([*lines, self._reasons[None]] if None in self._reasons else lines)

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

    def _trial(self, model: Any, example: Any, batch: int | None) -> tuple[dict | None, dict]:
        """(what products are timed on: the example, or drawn inputs; what of it reaches and leaves them).

        None and nothing where drawn inputs do not suit the model; `explain` says so then.
        """
        if example is not None:
            several = example if isinstance(example, tuple | list) else [example]
            sample = self.signature.feed(several, {})
        else:
            sample = self.signature.draw(batch or 1, UNKNOWN)
        if sample is None:
            why = "its inputs cannot be drawn"
        else:
            try:
                return sample, self._features(model, sample)
            except Exception as error:  # of many types: sizes of our own choice do not fit
                why = onnx_files.reason(error)
                if example is not None:
                    raise InputError(f"{self.path}: example: {why}") from error
        self._reasons[None] = f"nothing was timed ({why}); with an example that the model takes, it is"
        return None, {}

    def _choose(self, model: Any, sample: dict | None, reach: dict) -> Sequence[int]:
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
            key, lambda: self._time(model, sample, reach, usual),
            lambda kept: isinstance(kept, tuple) and len(kept) == len(usual) and set(kept) <= set(allowed),
        )  # fmt: skip
        return usual if tiles is None else tiles

    def _time(self, model: Any, sample: dict, reach: dict, usual: Sequence[int]) -> tuple[int, ...]:
        """The tile that each product is fastest with, or zeros, where the whole model is faster without ours."""
        # Product by product, on the features that really reach it: their zeros and shapes decide.
        tiles, times = [], {}
        for product, tile in zip(self._found, usual, strict=True):
            x = reach.get(product.reads) if product.outside else None
            if x is not None:
                matrix, bounds = product.matrix, (product.low, product.high)
                alike = matrix.shape, product.window, x.shape, round(product.nonzero, 2), *bounds
                if alike not in times:
                    times[alike] = self._times(model, product, x)
                took = times[alike]
                tile = min(took, key=took.__getitem__)
                ours = min(TILES, key=took.__getitem__)
                self._reasons[product.place] = (
                    f"{f'{OURS}, tiles of {tile}' if tile else ONNX_RUNTIME}: {1e3 * took[ours]:.3f} ms, in ONNX "
                    f"Runtime {1e3 * took[0]:.3f}"
                )
            tiles.append(tile)
        if not any(tiles):
            return tuple(tiles)
        # Then the whole model: our products stand between nodes that ONNX Runtime may fuse, so the whole can be slower.
        sessions = {OURS: self._with(model, tiles), ONNX_RUNTIME: self._plain}
        took = _alternating({name: partial(session.run, None, sample) for name, session in sessions.items()})
        self._reasons[None] = (
            f"the whole model: {1e3 * took[OURS]:.3f} ms, in ONNX Runtime {1e3 * took[ONNX_RUNTIME]:.3f}"
        )
        if took[OURS] <= took[ONNX_RUNTIME]:
            return tuple(tiles)
        self._reasons |= {product.place: f"{ONNX_RUNTIME}: the whole model is faster in it" for product in self._found}
        return (0,) * len(tiles)

    def _verified(self, model: Any, sample: dict | None, reach: dict, tiles: Sequence[int]) -> list[int]:
        """The tiles, 0 for a product of ours that differs from ONNX Runtime's by more than rounding, with a warning.

        Each product decides, on what reaches it, or on numbers that are drawn for it. The whole model is compared where
        none of its operators makes a large difference of a small one.
        """
        right = []
        for product, tile in zip(self._found, tiles, strict=True):
            apart = self._apart(model, product, tile, reach) if tile else 0.0
            if not apart <= 1:
                self._reasons[product.place] = f"{ONNX_RUNTIME}: ours gave other numbers"
                warnings.warn(
                    f"{self.path}: {product.name} stays in ONNX Runtime, since our kernel differs by {apart:.3g} times "
                    "what rounding explains; please report it",
                    RuntimeWarning, stacklevel=5,
                )  # fmt: skip
            right.append(tile if apart <= 1 else 0)
        if sample is None or not any(right):
            return right
        found = self._with(model, right).run(None, sample)  # where it does not run, all stays in ONNX Runtime
        if self.jumps:
            return right
        wanted = self._plain.run(None, sample)
        if all(alike(*pair) for pair in zip(found, wanted, strict=True) if isinstance(pair[1], np.ndarray)):
            return right
        self._reasons = {None: f"{ONNX_RUNTIME}: the whole model gave other numbers with ours"}
        warnings.warn(f"{self.path}: {STAYS}", RuntimeWarning, stacklevel=5)
        return [0] * len(right)

    def _apart(self, model: Any, product: GraphProduct, tile: int, reach: dict) -> float:
        """The largest difference of our product from ONNX Runtime's, in parts of what rounding explains."""
        x = reach.get(product.reads) if product.outside else None
        wanted = reach.get(product.gives) if not product.path else None
        if x is None:
            x = np.random.default_rng(0).standard_normal(_features_of(product)).astype(np.float32)
        if wanted is None:
            wanted = self._open(alone(model, product, x, None)).run(None, {product.reads: x})[0]
        found = self._once(model, product, tile, x).run(None, {product.reads: x})[0]
        # Of n products and a bias, each output is off by n + 2 roundings of all that they add up to, in either program.
        sizes = abs(product.matrix).sum(axis=1) * _largest(x) + abs(product.bias)
        roundings = ROUNDINGS * (np.diff(product.matrix.indptr) + 2) * sizes
        return _difference(found, wanted, roundings if product.window is None else roundings[:, None, None])

    def _times(self, model: Any, product: GraphProduct, x: np.ndarray) -> dict[int, float]:
        """Seconds of a product with each tile; 0: in ONNX Runtime."""
        feed = {product.reads: x}
        return _alternating(
            {tile: partial(self._once(model, product, tile, x).run, None, feed) for tile in (*TILES, 0)}
        )

    def _once(self, model: Any, product: GraphProduct, tile: int, x: np.ndarray) -> Any:
        """A session of one product, for features like x; tile 0: in ONNX Runtime."""
        key = self._key(product, tile) if tile else None
        try:
            return self._open(alone(model, product, x, key))
        finally:
            if key is not None:
                self._kernels.drop_product(key)

    def _features(self, model: Any, sample: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What reaches and leaves the products of a sample, as far as the model's own graph has it."""
        from onnx import helper

        # Values inside the graph become outputs of a copy of the model.
        values = {name for node in model.graph.node for name in node.output if name}
        ends = {product.gives for product in self._found if not product.path}
        wanted = sorted(({product.reads for product in self._found if product.outside} | ends) & values)
        copy = type(model)()
        copy.CopyFrom(model)
        there = {output.name for output in copy.graph.output}
        copy.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in wanted if name not in there)
        return sample | dict(zip(wanted, self._open(copy).run(wanted or None, sample), strict=False))

    def _with(self, model: Any, tiles: Sequence[int]) -> Any:
        """A session with our products, those that have a tile."""
        keys = {
            product.place: self._key(product, tile) for product, tile in zip(self._found, tiles, strict=True) if tile
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
            product.low, product.high, matrix.shape[1], product.window, product.nodes[0].op_type == "Gemm", tile,
            self.threads,
        )  # fmt: skip


LARGE = 1 << 30  # bytes of a model that goes through a file: a message holds 2^31
LEAST = "weights enough of which are zero"
STAYS = "it stays in ONNX Runtime, since its outputs differ with our kernels; please report it"
ROUNDINGS = 2 * 2.0**-24  # of two programs
WHOLE = 1e-3  # of the largest output: rounding that a whole model may have made larger


class _Source(NamedTuple):
    """What a model was made of.

    Attributes:
        content: of a model that has no file of its own; stamp: of the file.
        settings: threads, example, batch, verify.
    """

    path: Any
    name: Any
    content: bytes | None
    stamp: tuple | None
    settings: tuple

    @classmethod
    def of(cls, path: Any, model: Any, name: Any, settings: tuple) -> "_Source":
        if path is not None and path == name:
            whole = Path(path).absolute()
            return cls(whole, name, None, _stamp(whole), settings)
        return cls(None, name, zlib.compress(model.SerializeToString(), 1), None, settings)  # most of it is zeros

    def sent(self) -> tuple:
        """The arguments of `_arrive`. Raises InputError: the file is not what it was."""
        content = self.content
        if content is None:
            if self.stamp is None or _stamp(self.path) != self.stamp:
                raise InputError(f"{self.name}: it changed since it was compiled, so this model cannot be pickled")
            content = zlib.compress(onnx_files.simplify(self.path).SerializeToString(), 1)
        return content, str(self.name), self.settings


def _stamp(path: Path) -> tuple | None:
    """Of the file and of those that hold its weights; None: one is gone."""
    with contextlib.suppress(OSError, InputError):
        stats = [os.stat(each) for each in network_files(path)]
        return tuple((found.st_size, found.st_mtime_ns, found.st_ino) for found in stats)
    return None


def _arrive(content: bytes, name: str, settings: tuple) -> OnnxModel:
    onnx_files.runtime()
    import onnx

    model = onnx.ModelProto.FromString(zlib.decompress(content))
    threads, example, batch, verify = settings
    return OnnxModel(None, model, threads, example, batch, name, verify)


def agrees(model: Any, path: Any, name: Any) -> bool:
    """Whether a Model of all of an ONNX model gives what ONNX Runtime gives, on drawn inputs."""
    (own,) = model.signature.inputs
    # One input; of its sizes that are free, the first is what the layers leave for it.
    fixed = math.prod(size for size in own.shape[1:] if isinstance(size, int))
    left = iter([model.inputs // max(1, fixed)])
    sizes = [size if isinstance(size, int) else next(left, 1) for size in own.shape[1:]]
    stated = own._replace(shape=(own.shape[0] if isinstance(own.shape[0], int) else 1, *sizes))
    sample = Signature(name, (stated,)).draw(1, 1)
    if sample is None:
        return True
    session: Any = onnx_files.session(str(path), lambda options: None, name)
    try:
        (wanted,) = session.run(None, sample)
        found = model(*sample.values())
    except Exception:  # of many types: sizes of our own choice do not fit, or a sum passes float32, which ours refuses
        return True
    return alike(found, wanted)


def alike(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Whether outputs of a whole model are the same but for rounding; whole numbers are not looked at."""
    return wanted.dtype.kind != "f" or _difference(found, wanted, WHOLE * _largest(wanted)) <= 1


def _features_of(product: GraphProduct) -> tuple[int, ...]:
    """A shape of features that a product takes."""
    if product.window is None:
        return 2, product.matrix.shape[1]
    channels, height, width, *_, down, across, _ = product.window
    return 1, channels, max(8, (height - 1) * down + 1), max(8, (width - 1) * across + 1)


def _largest(array: np.ndarray) -> float:
    """Of what is finite."""
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def _difference(found: np.ndarray, wanted: np.ndarray, allowed: Any) -> float:
    """The largest difference over what is allowed; infinite where shapes differ, or one is not finite alone."""
    if found.shape != wanted.shape:
        return np.inf
    with np.errstate(invalid="ignore"):
        apart = np.abs(found.astype(np.float64) - wanted) / (np.asarray(allowed) + np.finfo(np.float32).tiny)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    return float(np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart)).max(initial=0.0))


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
