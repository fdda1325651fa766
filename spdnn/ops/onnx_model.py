"""An ONNX model made ready for calls: ONNX Runtime runs it, and our kernels those pruned products that are faster."""

import contextlib
import copy
import math
import os
import sys
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from spdnn.core import arrays, graphs
from spdnn.core.errors import InputError
from spdnn.core.locks import Lock
from spdnn.core.shown import WithRepr, plural
from spdnn.core.signature import Signature
from spdnn.engines.model import CLOSED, check_batch
from spdnn.formats import onnx_files
from spdnn.formats.onnx_files import OnnxGraph
from spdnn.ops import onnx_timing
from spdnn.ops.backends import thread_count
from spdnn.ops.onnx_trial import Trial, all_alike

LEAST = "weights enough of which are zero"
_forks = 0  # since the first process
_sessions_of_parents: list[Any] = []  # to end one is to wait for its threads, which a forked process does not have


def _count_fork() -> None:
    global _forks
    _forks += 1


os.register_at_fork(after_in_child=_count_fork)


class OnnxModel(WithRepr):
    """An ONNX model, ready for calls, which may come from several threads at once.

    Args:
        graph: the model, as OnnxGraph.read gives it.
        threads: of a call; all cores by default.
        example: arrays as the model takes them, one or several, on whose shapes products are timed; by default random
            numbers of the shapes that the model states, zeros where it takes whole numbers.
        batch: the usual size of the first dimension, where there is no example.
        verify: compare our products with ONNX Runtime's, and the whole model where its outputs do not jump.
        again: time the products anew, whatever choice is kept.

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

    compared = ""  # of a PyTorch module: at which numbers of inputs it was compared with it

    def __init__(
        self, graph: OnnxGraph, threads: int | None = None, example: Any = None, batch: int | None = None,
        verify: bool = True, again: bool = False,
    ):  # fmt: skip
        self.name, self.threads, batch = graph.name, thread_count(threads), check_batch(batch)
        trial = Trial(graph, self.threads)
        self._source = _Source.of(graph, (threads, copy.deepcopy(example), batch, verify))
        self.signature: Signature = graph.signature
        self.inputs = self.signature.names
        self._usual = [(each.name, each.dtype or np.dtype(object)) for each in self.signature.inputs]
        self.outputs = [output.name for output in trial.plain.get_outputs()]
        self._session, self.ours = trial.choose(example, batch, verify, again)
        self._before, self._tiles = trial.before, trial.tiles
        self._products, self._reasons, self.jumps = trial.products, trial.reasons, trial.jumps
        self._lock, self._made_in = Lock(), _forks

    def __call__(self, /, *x: Any, **named: Any) -> Any:
        """The model's outputs.

        Args:
            x: arrays as the model takes them, in the order of `inputs`, or by name, also in one mapping or, of several
                inputs, a frame with a column for each: of NumPy, torch, JAX, CuPy or anything with DLPack, or SciPy's
                sparse matrices; other types of numbers are converted where the type that the model states holds them.

        Returns:
            the output, or a tuple of several, of the library of the first input.

        Raises:
            InputError: other inputs, shapes or types than the model takes, a tensor that asks for a gradient, or the
                model is closed.
        """
        if graphs.DYNAMO in sys.modules and graphs.traced():
            return graphs.outside(OnnxModel.__call__, self, *x, **named)
        session = self._session if self._made_in == _forks else self._compiled_again()
        if session is None:
            raise InputError(CLOSED)
        # The usual call passes arrays that fit: it must not pay for checks and conversions.
        feed = {}
        for (name, dtype), value in zip(self._usual, x, strict=False):  # as a session takes them: within 0.5 us
            if type(value) is np.ndarray and value.dtype is dtype:
                feed[name] = value
        if len(feed) != len(self._usual) or len(x) != len(feed) or named:
            x, named = self.signature.arguments(x, named)
            feed = self.signature.feed(x, named)
        # Outputs are of the library of the first input.
        first = x[0] if x else next(iter(named.values()), None)
        try:
            found = session.run(self.outputs, feed)
            if type(first) is not np.ndarray:
                found = [arrays.like(array, first) if isinstance(array, np.ndarray) else array for array in found]
        except Exception as error:  # of many types, none of them public
            raise InputError(f"{self.name}: {onnx_files.reason(error)}") from error
        return found[0] if len(found) == 1 else tuple(found)

    def __reduce__(self):
        """Pickled as its file's content and settings, and compiled on arrival."""
        if self._session is None:
            raise InputError(CLOSED)
        return _arrive, self._source.sent("pickled"), {"compared": self.compared}

    def _compiled_again(self) -> Any:
        """The session of this process, which was forked: ONNX Runtime's threads are not in it, nor whoever held its
        locks. Raises InputError: the file is not what it was."""
        with self._lock:
            if self._session is not None and self._made_in != _forks:
                other = _arrive(*self._source.sent("called in a forked process"))
                _sessions_of_parents.append(self._session)
                self.__dict__.update(other.__dict__, _source=self._source, _lock=self._lock)
            return self._session

    def explain(self) -> str:
        """A line for each product of pruned weights: where it runs, and the times that decided it, if this process took
        them; of a PyTorch module, at which numbers of inputs it was compared with it."""
        compared = [self.compared] if self.compared else []
        if not self._products:
            return "\n".join([f"no product of this model has {LEAST}, so ONNX Runtime runs all of it", *compared])
        width = max(len(product.name) for product in self._products)
        lines = [
            f"{product.name:<{width}}  {'x'.join(map(str, product.matrix.shape)):>11}  "
            f"{100 * product.nonzero:3.0f} % nonzero  {self._reasons.get(product.place, '')}"
            for product in self._products
        ]
        return "\n".join([*lines, *filter(None, [self.choice]), *compared])

    @property
    def choice(self) -> str:
        """What decided which products are ours, in the whole model; of one that was timed again, whether the choice
        that was kept is another; empty: nothing was timed."""
        return "\n".join(filter(None, (self._reasons.get(None), self._before)))

    def profile(self, /, *x: Any, **named: Any) -> dict[str, float]:
        """Seconds that a call takes in all nodes of each operator, by ONNX Runtime's profiler: ours are `Product`.

        Args:
            x: arrays, as of a call.

        Raises:
            InputError: as of a call, or the file is not what it was.
        """
        self(*x, **named)  # what it does not take is refused
        graph = self._source.graph("profiled")
        sample = graph.signature.feed(*graph.signature.arguments(x, named))
        seconds: dict[str, float] = {}
        for event in onnx_timing.profile(Trial(graph, self.threads).models(sample), self._tiles)[0]:
            seconds[event.kind] = seconds.get(event.kind, 0.0) + event.seconds
        return seconds

    def close(self) -> None:
        """Let weights and buffers go. Closing again does nothing."""
        self._session = None

    def __enter__(self) -> "OnnxModel":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self) -> dict[str, str]:
        facts = {"products": f"{len(self.ours)} of {plural(len(self._products), 'pruned product')} by spdnn"}
        return facts | {"threads": plural(self.threads, "thread") if self._session else "closed"}


class _Source(NamedTuple):
    """What a model was made of.

    Attributes:
        path: of its file; content: of a model that has none of its own; stamp: of the file.
        settings: threads, example, batch, verify.
    """

    path: Any
    name: Any
    content: bytes | None
    stamp: tuple | None
    settings: tuple

    @classmethod
    def of(cls, graph: OnnxGraph, settings: tuple) -> "_Source":
        if graph.path is not None and str(graph.path) == str(graph.name):
            whole = graph.path.absolute()
            return cls(whole, graph.name, None, _stamp(whole), settings)
        return cls(None, graph.name, _packed(graph), None, settings)

    def graph(self, what: str) -> OnnxGraph:
        """The model again. Raises as `sent`."""
        content, name, _ = self.sent(what)
        return OnnxGraph.of_content(zlib.decompress(content), name)

    def sent(self, what: str) -> tuple:
        """The arguments of `_arrive`; `what` is done with them. Raises InputError: the file is not what it was."""
        content = self.content
        if content is None:
            if self.stamp is None or _stamp(self.path) != self.stamp:
                raise InputError(f"{self.name}: it changed since it was compiled, so this model cannot be {what}")
            content = _packed(OnnxGraph.read(self.path))
        return content, str(self.name), self.settings


def _packed(graph: OnnxGraph) -> bytes:
    return zlib.compress(graph.model.SerializeToString(), 1)  # most of it is zeros


def _stamp(path: Path) -> tuple | None:
    """Of the file and of those that hold its weights; None: one is gone."""
    from spdnn.formats.readers import network_files

    with contextlib.suppress(OSError, InputError):
        stats = [os.stat(each) for each in network_files(path)]
        return tuple((found.st_size, found.st_mtime_ns, found.st_ino) for found in stats)
    return None


def _arrive(content: bytes, name: str, settings: tuple) -> OnnxModel:
    threads, example, batch, verify = settings
    return OnnxModel(OnnxGraph.of_content(zlib.decompress(content), name), threads, example, batch, verify)


def agrees(model: Any, graph: OnnxGraph) -> bool:
    """Whether a Model of all of an ONNX model gives what ONNX Runtime gives, on drawn inputs."""
    (own,) = model.signature.inputs
    # One input; of its sizes that are free, the first is what the layers leave for it.
    fixed = math.prod(size for size in own.shape[1:] if isinstance(size, int))
    left = iter([model.inputs // max(1, fixed)])
    sizes = [size if isinstance(size, int) else next(left, 1) for size in own.shape[1:]]
    stated = own._replace(shape=(own.shape[0] if isinstance(own.shape[0], int) else 1, *sizes))
    sample = Signature(str(graph.name), (stated,)).draw(1, 1)
    if sample is None:
        return True
    session = graph.session()
    try:
        wanted = session.run(None, sample)
        found = model(*sample.values())
    except Exception:  # of many types: sizes of our own choice do not fit, or a sum passes float32, which ours refuses
        return True
    return all_alike([found], wanted, graph, sample)
