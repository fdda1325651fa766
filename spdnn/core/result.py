"""What comes out of an inference: the inputs that are left, and of each last row its sum, extremes and a hash.

The values of the rows are kept only when they are asked for.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.network import Network
from spdnn.core.numbers import check_whole
from spdnn.core.shown import WithRepr, plural

BLOCK_ROWS = 256  # rows handled at a time where a copy of all would take too much memory
CARRIED_BYTES = 2 << 20  # of the block that carries values of some inputs to their rows, twice for their classes


class RowStatistics(NamedTuple):
    """Of last rows, an entry for each; kept instead of their values.

    Attributes:
        row_sum, row_projection: float64; the projection is on the fixed pseudo-random `projection_weights`, so that it
            knows the positions of values.
        row_min, row_max: float32.
        row_hash: uint64, of the bits of the row; hashes of different engines are not comparable.
    """

    row_sum: np.ndarray
    row_projection: np.ndarray
    row_min: np.ndarray
    row_max: np.ndarray
    row_hash: np.ndarray

    @classmethod
    def empty(cls, count: int) -> "RowStatistics":
        """Of `count` rows, to be written to."""
        return cls(*(np.empty(count, kind) for kind in (np.float64, np.float64, np.float32, np.float32, np.uint64)))

    @classmethod
    def of(cls, rows: np.ndarray) -> "RowStatistics":
        """Of float32 or float64 rows (count, outputs), in NumPy."""
        result, weights = cls.empty(len(rows)), projection_weights(rows.shape[1]).astype(np.float64)
        for start in range(0, len(rows), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            block = rows[part].astype(np.float64)
            result.row_sum[part], result.row_projection[part] = block.sum(axis=1), block @ weights
        result.row_min[:], result.row_max[:] = (rows.min(axis=1, initial=np.inf), rows.max(axis=1, initial=-np.inf))
        result.row_hash[:] = row_hashes(rows)
        return result

    @classmethod
    def join(cls, parts: "Sequence[RowStatistics]") -> "RowStatistics":
        """Of the rows of all parts, one after the other."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    def at(self, rows: np.ndarray) -> "RowStatistics":
        """Of the rows with these numbers (int64)."""
        return RowStatistics(*(column[rows] for column in self))


@dataclass(frozen=True)
class KeptInputs:
    """Which last rows are kept with all their values.

    Attributes:
        of: True, of every input; an array, of the inputs with these numbers (int64, ascending) alone; False, none.
    """

    of: bool | np.ndarray = False

    def __bool__(self) -> bool:
        return self.of is not False

    def rows(self, numbers: np.ndarray, row_of: np.ndarray, count: int) -> np.ndarray:
        """int64, ascending: which of `count` rows are kept, where the inputs `numbers` have the rows `row_of`."""
        if isinstance(self.of, bool):
            return np.arange(count if self.of else 0)
        return np.unique(row_of[np.isin(numbers, self.of)])

    def nbytes(self, inputs: int, outputs: int) -> int:
        """Bytes that the values take at most: those of the batches, of all together, and a block."""
        count = np.size(self.of) if isinstance(self.of, np.ndarray) else inputs
        return 8 * min(count, inputs) * outputs + max(CARRIED_BYTES, 8 * outputs) if self else 0


class LayerWork(NamedTuple):
    """The work of a run, layer by layer, counted where its rows went through: int64 (layers,) each.

    Attributes:
        rows: that had to be computed: all, or where dead ones may leave those with a nonzero; identical ones once.
        edges: of one row, in the network that the engine read, after reductions.
        edges_computed: gone through: rows x edges, those of dead rows and of the padding of a tile included.
        sparse: rows hold their nonzeros alone, and `edges_computed` are the edges of these.
    """

    rows: np.ndarray
    edges: np.ndarray
    edges_computed: np.ndarray
    sparse: bool = False


class PartOutputs(NamedTuple):
    """Outputs of parts of a network, each run as a network of its own (spdnn/runs/parts.py).

    Attributes:
        shapes: int64 (parts, 4), of each its first layer and the one after its last (0-based), inputs and outputs.
        values: float32, all their last rows, one part after the other.
    """

    shapes: np.ndarray
    values: np.ndarray

    @classmethod
    def of(cls, parts: Sequence[tuple[tuple[int, int, int], np.ndarray]]) -> "PartOutputs":
        """Of (first layer, layer after the last, inputs) and float32 (inputs, outputs) of each part."""
        shapes = [(*part, rows.shape[1]) for part, rows in parts]
        values = [rows.ravel() for _, rows in parts]
        return cls(np.array(shapes, np.int64).reshape(-1, 4), np.concatenate([np.empty(0, np.float32), *values]))

    def each(self) -> Iterator[tuple[tuple[int, int, int], np.ndarray]]:
        """What `of` takes."""
        ends = np.cumsum(self.shapes[:, 2] * self.shapes[:, 3])
        for (start, stop, count, outputs), end in zip(self.shapes.tolist(), ends.tolist(), strict=True):
            yield (start, stop, count), self.values[end - count * outputs : end].reshape(count, outputs)

    def check(self, depth: int) -> None:
        """Raise ValueError where they cannot be of a network of so many layers; AttributeError: of something else."""
        shapes, values = self.shapes, self.values
        if shapes.dtype != np.int64 or shapes.ndim != 2 or shapes.shape[1] != 4 or not shapes.size or shapes.min() < 0:
            raise ValueError(f"part_shapes is {shapes.dtype} of shape {shapes.shape}")
        if (shapes[:, 0] >= shapes[:, 1]).any() or (shapes[:, 1] > depth).any():
            raise ValueError(f"parts beyond the {depth} layers that there are")
        if values.dtype != np.float32 or values.shape != (int((shapes[:, 2] * shapes[:, 3]).sum()),):
            raise ValueError(f"part_values is {values.dtype} of shape {values.shape}")


@dataclass(repr=False)
class Result(WithRepr):
    """What an inference gives.

    Attributes:
        inputs, outputs: the number of inputs, and the width of the last layer.
        alive: int64, ascending 0-based inputs whose last row has a nonzero value.
        row_sum, row_projection, row_min, row_max, row_hash: (alive,), of each such last row as RowStatistics has them.
        `survivors`: int64 (layers,): inputs with a nonzero row after each layer.
        edges_computed: inputs x edges that were really gone through: the sum of those of `counts`.
        sampled: int64, ascending 0-based inputs that verification compares alone, which the engine ran once more;
            sampled_survivors: int64 (layers,), as `survivors`, of these. None: it compares all, or nothing.
        parts: outputs of parts of the network that were run alone; None: none were.
        counts: of each layer; None: an engine that counts none, whose result cannot have a record.
        values: float32 (alive, outputs), the last rows, when they were asked for; or of the inputs `valued` alone.
        valued: int64, ascending 0-based inputs whose last rows `values` are; None: all that are alive.
        notes: what the engine reports (batches, layout, instruction set...), fit for JSON.
        bytes_loaded: that the edges gathered at least, from whichever cache, a load that serves several edges once;
            None: a float32 for each edge and input.
        bytes_moved: read and written past the caches by design: inputs, weights, features between passes; None where
            the engine does not count them.
    """

    inputs: int
    outputs: int
    alive: np.ndarray
    row_sum: np.ndarray
    row_projection: np.ndarray
    row_min: np.ndarray
    row_max: np.ndarray
    row_hash: np.ndarray
    survivors: np.ndarray
    edges_computed: int
    values: np.ndarray | None = None
    valued: np.ndarray | None = None
    notes: dict = field(default_factory=dict)
    bytes_moved: int | None = None
    bytes_loaded: int | None = None
    counts: LayerWork | None = None
    sampled: np.ndarray | None = None
    sampled_survivors: np.ndarray | None = None
    parts: PartOutputs | None = None

    def _facts(self) -> dict[str, str]:
        depth = plural(self.survivors.size, "layer")
        return {
            "survivors": f"{self.alive.size} of {plural(self.inputs, 'input')} active after {depth}",
            "outputs": plural(self.outputs, "output"),
        }

    def check(self, depth: int | None = None, outputs: int | None = None) -> None:
        """Raise ValueError where the parts of a result cannot belong together, or are not of so many layers and
        outputs; TypeError or AttributeError where a part is no array.
        """
        kinds = {"alive": np.int64, "survivors": np.int64}
        kinds |= {name: array.dtype for name, array in RowStatistics.empty(0)._asdict().items()}
        for name, kind in kinds.items():
            array = getattr(self, name)
            if array.dtype != kind or array.ndim != 1 or (name != "survivors" and array.size != self.alive.size):
                raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        sizes = f"{self.inputs} inputs, {self.outputs} outputs, {self.survivors.size} layers"
        if min(self.inputs, self.outputs) < 1 or not self.survivors.size or not self.edges_computed >= 0:
            raise ValueError(sizes)
        if (depth or self.survivors.size, outputs or self.outputs) != (self.survivors.size, self.outputs):
            raise ValueError(f"{sizes}; the network has {outputs} outputs and {depth} layers")
        if self.alive.size and not 0 <= self.alive[0] <= self.alive[-1] < self.inputs:
            raise ValueError(f"inputs beyond the {self.inputs} that there are")
        if (self.alive[1:] <= self.alive[:-1]).any():
            raise ValueError("inputs that do not ascend")
        # Values, of all active inputs or of those that were drawn.
        numbers = self.alive if self.valued is None else self.valued
        if self.values is None:
            if self.valued is not None:
                raise ValueError("it has no values of the inputs that were drawn")
        elif self.values.dtype != np.float32 or self.values.shape != (numbers.size, self.outputs):
            raise ValueError(f"values is {self.values.dtype} of shape {self.values.shape}")
        if numbers.dtype != np.int64 or (numbers[1:] <= numbers[:-1]).any():
            raise ValueError("inputs with values that do not ascend")
        if self.parts is not None:
            self.parts.check(self.survivors.size)
        # Counts by layer.
        counted = {"sampled_survivors": self.sampled_survivors} if self.sampled_survivors is not None else {}
        if self.counts is not None:
            counted |= {f"layer_{name}": getattr(self.counts, name) for name in LayerWork._fields[:-1]}
        for name, array in counted.items():
            if array.dtype != np.int64 or array.shape != self.survivors.shape:
                raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")

    @property
    def digest(self) -> str:
        """SHA-256 over `alive` and the hashes: two runs of one engine with equal digests have equal values to the bit,
        whatever the number of ranks.
        """
        return hashlib.sha256(self.alive.tobytes() + self.row_hash.tobytes()).hexdigest()

    @property
    def sha256(self) -> str:
        """SHA-256 over all that verification reads: sizes, active inputs, statistics, and the values that are kept."""
        digest = hashlib.sha256(f"{self.inputs} {self.outputs} {self.edges_computed}".encode())
        for name, array in self.arrays().items():
            digest.update(f" {name} {array.dtype.str} {array.shape} ".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def arrays(self) -> dict[str, np.ndarray]:
        """By name, active inputs, statistics, and the values of the inputs that were drawn for verification."""
        drawn = () if self.valued is None else ("values", "valued")
        arrays = {name: getattr(self, name) for name in ("alive", *RowStatistics._fields, "survivors", *drawn)}
        if self.sampled is not None and self.sampled_survivors is not None:
            arrays |= {"sampled": self.sampled, "sampled_survivors": self.sampled_survivors}
        if self.parts is not None:
            arrays |= {f"part_{name}": array for name, array in self.parts._asdict().items()}
        counted = {} if self.counts is None else self.counts._asdict()
        return arrays | {f"layer_{name}": np.asarray(array, np.int64) for name, array in counted.items()}

    @property
    def categories(self) -> np.ndarray:
        """The challenge's result: ascending 1-based inputs whose last row has a nonzero sum."""
        return self.alive[self.row_sum != 0] + 1

    def all_values(self) -> np.ndarray:
        """float32 (inputs, outputs): every last row, zeros where nothing survived."""
        return self.rows(0, self.inputs)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """float32 (stop - start, outputs): the last rows of these inputs (0-based), zeros where nothing survived."""
        start, stop = check_whole(start, "start"), check_whole(stop, "stop")
        rows = np.zeros((stop - start, self.outputs), dtype=np.float32)
        first, after = np.searchsorted(self.alive, (start, stop))
        rows[self.alive[first:after] - start] = self._kept_numbers()[first:after]
        return rows

    def top(self, k: int) -> tuple[np.ndarray, np.ndarray]:
        """The k largest outputs of each input, largest first; ties go to the lower neuron.

        Returns:
            (neurons, values): the neurons, int64 (inputs, k), counted from 0; their outputs, float32 (inputs, k).

        Raises:
            InputError: k is no number from 1 to the outputs, or the values were not kept.
        """
        k = check_whole(k, "k")
        if not 1 <= k <= self.outputs:
            raise InputError(f"the {k} largest asked for; the last layer has {self.outputs}")
        neurons = np.tile(np.arange(k), (self.inputs, 1))
        values = np.zeros((self.inputs, k), np.float32)
        for start in range(0, self.alive.size, BLOCK_ROWS):
            rows, part = self.alive[start : start + BLOCK_ROWS], self._kept_numbers()[start : start + BLOCK_ROWS]
            neurons[rows] = np.argsort(-part, axis=1, kind="stable")[:, :k]
            values[rows] = np.take_along_axis(part, neurons[rows], axis=1)
        return neurons, values

    def _kept_numbers(self) -> np.ndarray:
        if self.values is None or self.valued is not None:
            raise InputError(
                "the values were not kept: run model.infer(x, values=True), or spdnn.infer(network, x, values=True)"
            )
        return self.values


def check_sound(result: Result, network: Network) -> None:
    """Raise SpdnnError where the parts of a result do not belong together, or to this network."""
    try:
        result.check(network.depth, network.outputs)
    except (ValueError, TypeError, AttributeError) as error:
        raise SpdnnError(f"the result of this run cannot be: {error}") from error


class LastRows(NamedTuple):
    """What a batch leaves; one row may represent several inputs.

    Attributes:
        alive: int64, the inputs whose last row has a nonzero value; row_of: int64, the row of each of them.
        statistics: of each row.
        kept: int64, ascending, the rows whose values are kept; values: float32 (kept, outputs of the prepared network).
    """

    alive: np.ndarray
    row_of: np.ndarray
    statistics: RowStatistics
    kept: np.ndarray | None = None
    values: np.ndarray | None = None


class LastLayer:
    """The outputs of a prepared network, and those of the original one where identical neurons were merged.

    Attributes:
        outputs: of the original network.
        counts: float64 (outputs here,), how many of the original outputs each represents.
        weights: float64 (outputs here,), for projections: the sum of `projection_weights` over these.
    """

    def __init__(self, network: Network):
        merged = network.neuron_classes(network.depth - 1)
        classes = np.arange(network.outputs) if merged is None else merged
        self._columns = slice(None) if merged is None else merged  # of rows here, those of the original outputs
        self.outputs = classes.size
        self.counts = np.bincount(classes).astype(np.float64)
        self.weights = np.bincount(classes, projection_weights(classes.size).astype(np.float64))

    def rows(self, numbers: np.ndarray, row_of: np.ndarray, rows: np.ndarray, keep: KeptInputs) -> LastRows:
        """What a batch leaves, by NumPy; rows of zeros are left out.

        Args:
            numbers: int64, inputs; row_of: int64, the row of each of them.
            rows: float32 (rows, outputs of the prepared network).
        """
        nonzero = np.asarray(rows.any(axis=1))
        if not nonzero.all():
            alive = nonzero[row_of]
            numbers, row_of, rows = numbers[alive], (np.cumsum(nonzero) - 1)[row_of[alive]], rows[nonzero]
        kept = keep.rows(numbers, row_of, len(rows))
        return LastRows(numbers, row_of, RowStatistics.of(rows[:, self._columns]), kept, rows[kept])

    def result(self, inputs: int, batches: Sequence[LastRows], keep: KeptInputs, **counted: Any) -> Result:
        """The result of all batches.

        Args:
            inputs: of the whole run.
            keep: the values to keep, which every batch with rows has then.
            counted: survivors, edges_computed and what else Result has.
        """
        alive = np.concatenate([batch.alive for batch in batches])
        statistics = RowStatistics.join([batch.statistics.at(batch.row_of) for batch in batches])
        position = None
        if (np.diff(alive) < 0).any():  # rows came from other batches
            order = np.argsort(alive)
            position = np.empty_like(order)
            position[order] = np.arange(order.size)
            alive, statistics = alive[order], statistics.at(order)
        values = valued = None
        if isinstance(keep.of, np.ndarray):
            values, valued = self._select(batches, keep.of)
        elif keep:
            values = self._values(batches, position)
        return Result(inputs, self.outputs, alive, *statistics, values=values, valued=valued, **counted)

    def _select(self, batches: Sequence[LastRows], numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(values, the inputs that they are of, ascending): of those inputs `numbers` that are alive."""
        valued, rows = [np.empty(0, np.int64)], [np.empty((0, self.outputs), np.float32)]
        for batch in batches:
            if (wanted := np.isin(batch.alive, numbers)).any():
                assert batch.kept is not None
                assert batch.values is not None
                valued.append(batch.alive[wanted])
                rows.append(batch.values[np.searchsorted(batch.kept, batch.row_of[wanted])][:, self._columns])
        whole = np.concatenate(valued)
        order = np.argsort(whole, kind="stable")
        return np.concatenate(rows)[order], whole[order]

    def _values(self, batches: Sequence[LastRows], position: np.ndarray | None) -> np.ndarray:
        """float32 (inputs, outputs of the original network); `KeptInputs.nbytes` tells what it takes.

        Args:
            position: int64, where each of the inputs goes; None: they stay in their order.
        """
        values, first = np.empty((sum(batch.alive.size for batch in batches), self.outputs), np.float32), 0
        most = max(1, CARRIED_BYTES // (8 * self.outputs))
        for batch in batches:
            assert batch.values is not None
            for start in range(0, batch.row_of.size, most):
                block = batch.values[batch.row_of[start : start + most]]
                where = slice(first, first + len(block)) if position is None else position[first : first + len(block)]
                values[where] = block[:, self._columns]
                first += len(block)
        return values


def row_hashes(rows: np.ndarray) -> np.ndarray:
    """uint64 (count,): a hash of the bits of each row, any type (count, neurons)."""
    digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows)
    return np.frombuffer(b"".join(digests), np.uint64)


def projection_weights(outputs: int) -> np.ndarray:
    """float32 (outputs,), from -1 to 1: the same on every machine (NumPy's frozen generator, seed 0)."""
    return (2 * np.random.RandomState(0).random_sample(outputs) - 1).astype(np.float32)
