"""A buffer slot whose batch goes through the stages of a device one by one, and may wait between two of them."""

from collections.abc import Sequence
from typing import Any

from spdnn.engines.cuda.buffers import BufferSlot, DevicePart
from spdnn.engines.cuda.rows import Launch
from spdnn.engines.cuda.schedule import LayerPass
from spdnn.engines.taskgraph.cuda.rows import Pool, TaskDeviceRows


class TaskSlot(BufferSlot):
    """The launches of each task on a batch.

    Args:
        passes: of all layers; stages: (first, last) layers of those that this device has, in order, each of which ends
            with a pass.
        pool, joined_before: where rows wait before that layer, with which a stage but the first begins, to go on as one
            batch; or None, and there is no `park`, `join`, `joined`, `waiting`.

    Attributes:
        arrive: what comes before the first stage's layers, when `rows.batch` or what another device gave is there.
        through, after: of each stage, its layers, and what finds the rows that go on (none after the last layer).
        collect: what finds the rows that are left after it, and their outcome.
        park: what brings the rows that go into layer `joined_before` to the pool, and finds each input's row there.
        join, joined: what makes rows of as many inputs as `rows.batch` says, for that layer: before and after they
            are brought to `waiting`, features, weights and how many there are.
        source: the features that a batch from another device begins with; features: those that it ends with here.
    """

    kind_of_rows = TaskDeviceRows
    rows: TaskDeviceRows

    def __init__(
        self, part: DevicePart, passes: Sequence[LayerPass], stages: Sequence[tuple[int, int]], tiles: int,
        buffers: Sequence[Any], pool: Pool | None = None, joined_before: int | None = None,
    ):  # fmt: skip
        super().__init__(part, tiles, buffers)
        self.source, device, active = self.features, self.device, self.rows.active
        # A batch from another device comes with the state of its rows, but for the marks of active inputs.
        self.arrive: list[Launch] = self.begin() if part.inputs else [lambda: device.fill(active, 0)]
        self.through: list[list[Launch]] = []
        self.after: list[list[Launch]] = []
        self.collect: list[Launch] = []
        for first, last in stages:
            if pool and first == joined_before:
                neurons = self.layers[first - 1].outputs
                self.park = [*self.rows.park(first, self.features, neurons, pool), *self.rows.resolve(first)]
                self.join, count, self.joined = self.rows.join(first, self.features, neurons)
                self.waiting = self.features, self.rows.weight, count
            own = [one for one in passes if first <= one.first < last]
            self.through.append(self.go_through(own))
            if last < self.plan.depth:
                self.after.append(self.boundary(own[-1]))
            else:
                self.collect = self.end(own[-1])
