"""All layers of the engine `cpu` in one call of the compiled kernels, for Model: rows in, rows out, no statistics."""

import numpy as np

from spdnn.core.errors import InputError, past_float32
from spdnn.engines.base import Options, Prepared
from spdnn.kernels import dispatch
from spdnn.kernels.tiles import bind

MOST_PARTS = 8  # of a layer for one input: with more, threads find too few edges of a neuron in theirs
NOT_FINITE = -2  # of the kernel: so was a value of x


class CpuForward:
    """The layers as the kernels take them. Several threads may call it at once; memory for features is each one's own.

    The first call with one row makes a second copy of the weights, by input neuron.
    """

    def __init__(self, prepared: Prepared, options: Options):
        level = dispatch.level().name
        from spdnn.kernels import _cpu

        network = prepared.network
        self._classes = network.neuron_classes(network.depth - 1)
        self._outputs, self._threads = network.outputs, options.threads
        self._layers = _cpu.Forward(
            level, [bind(layer) for layer in network.layers()], min(options.threads, MOST_PARTS)
        )

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """float32 (count, outputs of the source network) of x, float32 (count, inputs), C-contiguous."""
        y = np.empty((len(x), self._outputs), np.float32)
        failed = self._layers.run(x, y, self._threads)
        if failed == NOT_FINITE:
            raise InputError("x holds a NaN or an infinity; it must be finite numbers of float32")
        if failed >= 0:
            raise past_float32(failed)
        return y if self._classes is None else y[:, self._classes]
