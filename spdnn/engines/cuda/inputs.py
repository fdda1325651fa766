"""The inputs on a device, and the launches that make of them what the first layer reads: words of bits, or features."""

from collections.abc import Callable
from typing import Any

import numpy as np

from spdnn.core.errors import MemoryTooSmall
from spdnn.core.features import Inputs
from spdnn.engines.cuda.rows import DeviceRows
from spdnn.kernels.cuda import settings
from spdnn.kernels.cuda.device import Device

TILE = 32


class DeviceInputs:
    """What is stored of the inputs, and which of it is behind each of them, on a device.

    Raises:
        MemoryTooSmall: they do not fit; the sentence says what they take.
    """

    def __init__(self, device: Device, inputs: Inputs):
        self.device, self.kind, self.neurons = device, inputs.kind, inputs.neurons
        arrays = stored_arrays(inputs)
        try:
            *self.data, self.stored = [device.upload(array) for array in arrays]
        except MemoryTooSmall as error:
            total = sum(array.nbytes for array in arrays)
            raise MemoryTooSmall(
                f"the inputs take {total:,} bytes, more than {device.properties.name} has free "
                f"({device.free_bytes():,} of {device.properties.memory_bytes:,}); fewer of them fit (--count)",
                max(total, error.least),
            ) from None

    def launches(self, rows: DeviceRows, words: Any, features: Any) -> list[Callable[[], None]]:
        """What makes words (bits) or features (others) of the batch in `rows.batch`."""
        # Bits stay bits: a word has one bit of each of 32 inputs, and the first layer gathers it in place of 32 floats.
        arguments = {"stored": self.stored, "batch": rows.batch, "neurons": self.neurons}
        blocks = rows.run.blocks(rows.tiles * -(-self.neurons // TILE))
        if self.kind == "bits":
            arguments |= {"bits": self.data[0], "words": words}
            return [self.device.bind(settings.WORDS, blocks, arguments)]
        arguments["features"] = features
        if self.kind == "dense":
            return [self.device.bind(settings.DENSE_TILES, blocks, {"values": self.data[0], **arguments})]
        # CSR is scattered, so the features that it does not name are set to zero before.
        filled = features[: rows.tiles * TILE * self.neurons]
        offsets, columns, values = self.data
        arguments |= {"offsets": offsets, "columns": columns, "values": values}
        device = self.device  # and not `self`, which would keep itself and its memory
        return [lambda: device.fill(filled, 0), self.device.bind(settings.SPARSE_TILES, blocks, arguments)]


def stored_arrays(inputs: Inputs) -> list[np.ndarray]:
    """What a device holds of the inputs: the arrays of what is stored, then int32, which of it is behind each."""
    data = inputs.data
    if inputs.kind == "csr":
        arrays = [data.indptr.astype(np.int64), data.indices.astype(np.int32), data.data]
    else:
        arrays = [np.ascontiguousarray(data).reshape(-1)]
    return [*arrays, inputs.stored_rows(inputs.numbers_of(0, inputs.count)).astype(np.int32)]
