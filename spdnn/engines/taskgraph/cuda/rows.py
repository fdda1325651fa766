"""The rows of a batch that stops between stages: to go to another device, or on with others as one batch."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from spdnn.engines.cuda.rows import DeviceRows, Launch, row_counts
from spdnn.engines.cuda.schedule import LayerPass
from spdnn.kernels.cuda import settings


@dataclass(frozen=True)
class Pool:
    """Where the rows that are left of several batches wait on a device, in tiles as features are.

    Attributes:
        features: float32, of so many rows as a batch has; weights: int32, how many inputs each represents.
        next_row: int32 (1,), where the next row goes.
    """

    features: Any
    weights: Any
    next_row: Any


class TaskDeviceRows(DeviceRows):
    """Counters and lists of one batch, which can be handed on between two passes.

    Attributes:
        arrived: where `state` is expected of a batch that comes from another device.
        last_pass: the first layer of the last pass that was bound.
    """

    last_pass = 0

    def __init__(self, *arguments: Any):
        super().__init__(*arguments)
        self.arrived = self.state

    @property
    def state(self) -> list[Any]:
        """A batch between two passes, after the launches bound so far: with its features, all that a device needs."""
        return [self.counters, self.batch, self.list, self.parent, self.weight, self.origins[0]]

    def boundary(self, part: LayerPass, features: Any, neurons: int) -> list[Launch]:
        self.last_pass = part.first
        return super().boundary(part, features, neurons)

    def park(self, k: int, features: Any, neurons: int, pool: Pool) -> list[Launch]:
        """The launch that brings the rows that go into layer k to the pool, from `pool.next_row` on."""
        arguments = {"features": features, "neurons": neurons, "list": self.list, "rows": self.into(k)}
        arguments |= {"origin": self.origins[0], "weight": self.weight, "next": pool.next_row}
        arguments |= {"pool": pool.features, "pool_weight": pool.weights}
        return [self.device.bind(settings.PARK_ROWS, self.run.blocks(self.tiles, 1), arguments)]

    def join(self, k: int, features: Any, neurons: int) -> tuple[list[Launch], Any, list[Launch]]:
        """What makes of rows that waited in a pool those that go into layer k: (launches before their features and
        weights are there, where their number is expected with these, launches after).

        Rows of different batches may be equal, so they are searched for where identical ones merge.
        """
        # Without a search the rows that come are those of the layer; with one they are counted apart, and merged.
        if not self.searching:
            return self.begin(), self.into(k), []
        self.origins.reverse()
        begin, count = self.begin(), self.device.empty(1, np.int32)
        return begin, count, self.merge(k, k, features, neurons, count, 0)

    def rows_into(self, counters: np.ndarray, k: int) -> int:
        """How many rows went into layer k, of `counters` on the host. Those of `last_pass` are in the features that it
        left."""
        return int(row_counts(counters, self.depth)[k])
