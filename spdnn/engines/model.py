"""A network made ready once and called often: arrays through it, or inferences with their results."""

import math
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from spdnn.core import arrays, graphs
from spdnn.core import sparse as sp
from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.features import Inputs, shape_hint
from spdnn.core.network import MemoryNetwork, Network
from spdnn.core.numbers import whole
from spdnn.core.result import Result
from spdnn.core.shown import WithRepr, plural
from spdnn.core.signature import ModelInput, Signature
from spdnn.core.threads import in_order
from spdnn.engines.base import AnswersCalls, Engine, Options, Prepared, SharesWeights
from spdnn.engines.memory import limit_bytes, resident_bytes

ANY = Signature("this model", (ModelInput("x", None, None),))  # of one that states nothing
HELD_PART = 2  # of the memory that is left, for weights that are held; the rest is for features
MOST_BATCH = 1 << 24
CLOSED = "this model is closed; spdnn.compile makes another one"
FLOAT32 = np.dtype(np.float32)  # an array of another object of this type takes the longer way
DEEP, MANY = 16, 1024  # layers and inputs from which it pays that rows which died or became equal leave


class Model(WithRepr):
    """A network in an engine, ready for calls, which may come from several threads at once.

    `spdnn.compile` makes it. What depends on the network alone happens once, here; how many inputs there are may change
    from call to call. It is released by `close`, or at the end of a `with` block; calls that are on their way end well.

    Args:
        options: of every call.
        batch: inputs of a usual call; one is made with so many zeros, so that memory is there and threads are awake.
        hold: keep the weights in memory where they fit; without, each call to `infer` reads them as a session does.
        softmax: "Softmax" or "LogSoftmax" of the outputs of a call; `infer` is without.
        signature: of calls; None: they take (inputs, neurons) of any real numbers. Inputs of more dimensions are
            flattened.

    Attributes:
        inputs, outputs: the widths of the first layer's inputs and the last layer's outputs.
        depth, edges: layers, and nonzeros of all of them.
        engine: its name; reductions: the names of those that are on.
        threads: of a call.

    Example:
        >>> import numpy as np, spdnn
        >>> with spdnn.compile(spdnn.from_matrices([np.eye(2)], bias=-1, last="relu")) as model:
        ...     model([[3, 0], [0, 5]])
        array([[2., 0.],
               [0., 4.]], dtype=float32)
    """

    jumps = False  # as of an OnnxModel
    compared = ""  # of a PyTorch module: at which numbers of inputs it was compared with it

    def __init__(
        self,
        network: Network,
        engine: Engine,
        reductions: tuple[str, ...],
        options: Options,
        batch: int | None = None,
        hold: bool = True,
        softmax: str | None = None,
        signature: Signature | None = None,
    ):
        if not isinstance(network, Network):
            raise InputError(_no_network(network))
        batch = check_batch(batch)
        self.inputs, self.outputs = network.inputs, network.outputs
        self.depth, self.edges = network.depth, network.edges
        self.engine, self.reductions, self.threads = engine.name, reductions, options.threads
        self.softmax, self.signature = softmax, signature
        self._usual = signature and signature.inputs[0].rest
        self._made = network, engine, reductions, options, batch, hold, softmax, signature
        # Weights that fit are held in the engine's layout; others are read by a session in every call.
        prepared = engine.prepare(network, reductions, options.memory)
        room = max(0, limit_bytes(options.memory) - resident_bytes()) // HELD_PART
        if hold and prepared.network.nbytes <= room:
            prepared = hold_in_memory(prepared, engine)
            self._forward = engine.forward(prepared, options) if isinstance(engine, AnswersCalls) else None
        else:
            self._forward = None
        self._ready: tuple[Engine, Prepared, Options] | None = (engine, prepared, options)
        # Deep networks on many inputs: rows that die or become equal save more than opening a session costs.
        self._sessions_from = MANY if self.depth >= DEEP and prepared.dead_from < self.depth else None
        if batch is not None:
            self._finish(self._rows(np.zeros((batch, self.inputs), np.float32)))

    def __reduce__(self):
        """Pickled as its network and settings, and made ready on arrival."""
        self._open()
        return Model, self._made, {"compared": self.compared}

    def __call__(self, /, *x: Any, **named: Any) -> Any:
        """The last layer's outputs of each row of x.

        Args:
            x: (inputs, neurons), real numbers, of NumPy, torch, JAX, CuPy or anything with DLPack, or a SciPy sparse
                matrix; rounded to float32. Contiguous float32 on the host is read where it lies. Of an ONNX model: of
                the type and shape that it states, and by the name that it gives them, also in one mapping.

        Returns:
            float32 (inputs, outputs), of the library of x and on its device; NumPy's for a sparse x. A row does not
            depend on the others, to the bit.

        Raises:
            InputError: another shape or type, a value of x that is not finite, a tensor that asks for a gradient, or
                the model is closed.
            SpdnnError: a sum passed the range of float32.
        """
        if graphs.DYNAMO in sys.modules and graphs.traced():
            return graphs.outside(Model.__call__, self, *x, **named)
        # The usual call has an array that fits: it must not pay for checks and conversions.
        array = x[0] if len(x) == 1 and not named else None
        if (
            type(array) is np.ndarray
            and array.dtype is FLOAT32
            and (self.signature is None or array.shape[1:] == self._usual)
        ):
            return self._finish(self._rows(array))
        signature = self.signature or ANY
        x, named = signature.arguments(x, named)
        if not x and [*named] == signature.names:
            (array,) = named.values()
        if sp.issparse(array):
            return self._finish(self._sparse(array))
        (value,) = signature.feed(x, named).values()
        return arrays.like(self._finish(self._rows(value)), (*x, *named.values())[0])

    @graphs.outside_graphs
    def infer(self, inputs: Any, values: bool = False) -> Result:
        """One inference.

        Args:
            inputs: Inputs, or what Inputs.from_array takes: (count, neurons).
            values: keep all outputs, for Result.all_values, Result.top and spdnn.score.

        Returns:
            categories, active inputs after each layer, row sums, and the values when asked for.

        Raises:
            InputError: inputs or memory that do not fit, or the model is closed.
            SpdnnError: a sum passed the range of float32.
        """
        engine, prepared, options = self._open()
        inputs = inputs if isinstance(inputs, Inputs) else Inputs.from_array(inputs)
        session = engine.open(prepared, inputs, replace(options, values=values))
        try:
            result = session.run()
        except SpdnnError:
            inputs.check()  # rows that are the caller's may have become NaN, which is a better reason
            raise
        session.tell(result)
        return result

    def explain(self) -> str:
        """What runs, and with what it was compared."""
        return "\n".join(filter(None, [f"spdnn runs all of it: {self!r}", self.compared]))

    def close(self) -> None:
        """Let weights and buffers go. Closing again does nothing."""
        self._ready = self._forward = None

    def __enter__(self) -> "Model":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _facts(self) -> dict[str, str]:
        state = {"engine": f"engine {self.engine}", "threads": plural(self.threads, "thread")}
        return {
            "widths": f"{self.inputs} -> {self.outputs}",
            "depth": plural(self.depth, "layer"),
            "edges": plural(self.edges, "edge"),
            **({"softmax": self.softmax} if self.softmax else {}),
        } | (state if self._ready else {"state": "closed"})

    def _open(self) -> tuple[Engine, Prepared, Options]:
        ready = self._ready
        if ready is None:
            raise InputError(CLOSED)
        return ready

    def _rows(self, x: np.ndarray) -> np.ndarray:
        self._open()
        if self.signature is not None and x.ndim > 2:
            x = x.reshape(len(x), math.prod(x.shape[1:]))
        if x.ndim != 2 or x.shape[1] != self.inputs:
            raise InputError(
                f"x has shape {x.shape}; it must be (inputs, {self.inputs}){shape_hint(x.shape, self.inputs)}"
            )
        if x.dtype.kind not in "fiub":
            raise InputError(f"x is of {x.dtype}; it must be real numbers")
        with np.errstate(over="ignore"):
            x = np.ascontiguousarray(x, np.float32)
        # The local copy keeps the weights alive until this call ends, even if another thread closes the model.
        forward = self._forward
        if forward is not None and (self._sessions_from is None or len(x) < self._sessions_from):
            return forward(x)
        if not len(x):
            return np.empty((0, self.outputs), np.float32)
        return self.infer(x, values=True).all_values()

    def _sparse(self, x: Any) -> np.ndarray:
        if not x.shape[0]:  # no inputs are checked, and give no outputs, as dense ones do
            return self._rows(x.toarray())
        if self.signature is not None:  # every type holds the zeros
            (own,) = self.signature.inputs
            own.check(x.shape)
            x = sp.csr_array(x)
            x = sp.csr_array((own.converted(x.data), x.indices, x.indptr), shape=x.shape)
        return self.infer(x, values=True).all_values()

    def _finish(self, outputs: np.ndarray) -> np.ndarray:
        """The outputs, with the softmax that follows the last layer, if there is one."""
        return outputs if self.softmax is None else softmax(outputs, self.softmax == "LogSoftmax")


def softmax(outputs: np.ndarray, logarithm: bool = False) -> np.ndarray:
    """The softmax of each row, or its logarithm."""
    # The largest output is taken off first, so that no exponential overflows.
    outputs = outputs - outputs.max(axis=1, keepdims=True)
    shares = np.exp(outputs)
    total = shares.sum(axis=1, keepdims=True)
    return outputs - np.log(total) if logarithm else shares / total


def check_batch(batch: Any) -> int | None:
    """A usual number of inputs as an int, or None. Raises InputError for anything else."""
    number = whole(batch)
    if batch is not None and (number is None or not 1 <= number <= MOST_BATCH):
        raise InputError(f"batch {batch!r}: a number of inputs from 1 to {MOST_BATCH:,}, or None")
    return number


def _no_network(value: Any) -> str:
    """The sentence on what is no Network."""
    name = type(value).__name__
    if isinstance(value, type):
        return f"{value.__name__} is a class; give an object of it"
    if callable(value):
        return f"a {name} is no Network; a torch.nn.Module whose forward calls it is taken"
    return f"a {name} is no Network; spdnn.from_matrices and spdnn.open_network make one"


class _InMemoryNetwork(MemoryNetwork):
    """A network whose layers are all read, and stay in memory. They are sound, and not checked again."""

    def __init__(self, network: Network):
        self._network, self._identity = network, ""
        self._layers = list(in_order(network.layer, range(network.depth)))

    @property
    def description(self) -> dict:
        return self._network.description

    def neuron_classes(self, k: int) -> np.ndarray | None:
        return self._network.neuron_classes(k)


def hold_in_memory(prepared: Prepared, engine: Engine) -> Prepared:
    """The same with its layers in memory, in the engine's layout where it has one."""
    if prepared.layout is not None:
        return prepared
    network = _InMemoryNetwork(prepared.network)
    layout = [engine.layout(layer) for layer in network.layers()] if isinstance(engine, SharesWeights) else [None]
    return replace(prepared, network=network, layout=None if None in layout else layout)
