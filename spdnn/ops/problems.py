"""Problem sets for the sparse operations: shapes from a table, positions drawn with a seed.

Sets, as the table `ops-problems.csv` has them:
    a   layers of the pruned Transformer and ResNet-50 of the Deep Learning Matrix Collection, with its batch columns
    b   square matrices
    c   rows of very different lengths, which no pruning gives: what the row swizzle is for
A matrix of `lengths` random has that number of nonzeros anywhere, as random pruning leaves them; in one of zipf-s
or rising-s, row lengths fall with the power s of a row's rank, in random order, or with the longest rows last.

Source of set a: Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section VII; the
archive's dlmc.csv and rn50_batchsizes.txt; batch columns of the authors' benchmark (google-research/sputnik,
sputnik/spmm/dlmc_benchmark.cu.cc): 256 and 2048 of the Transformer, an image and 256 images of ResNet-50.
"""

import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from spdnn.core import config_tables
from spdnn.core.errors import InputError, unknown
from spdnn.core.numbers import plain, real
from spdnn.ops.topology import Topology

SETS = ("a", "b", "c")
PHASES = ("inference", "training")
SPARSITIES = {"a": (50, 60, 70, 80, 90, 95, 98), "b": (75, 80, 85, 90, 95), "c": (80, 90, 95)}  # percent
COLUMNS = (
    "set", "network", "layer", "rows", "columns", "inference", "training", "repeats", "lengths", "source",
)  # fmt: skip
_LENGTHS = re.compile(r"random|(zipf|rising)-(\d+(?:\.\d+)?)")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,60}")
LARGEST = 1 << 24  # of a size in the table


@dataclass(frozen=True)
class Shape:
    """One row of the table.

    Attributes:
        rows, columns: of the sparse matrix; outputs and inputs of the layer.
        inference, training: columns of the dense matrix in each phase; None where the table has none.
        repeats: how often the shape is in its network.
        lengths: how nonzeros are spread over rows: random, zipf-s or rising-s.
        source: of the row.
    """

    set: str
    network: str
    layer: str
    rows: int
    columns: int
    inference: int | None
    training: int | None
    repeats: int
    lengths: str
    source: str


@dataclass(frozen=True)
class ShapeProblem:
    """A shape at a sparsity, with so many columns of the dense matrix; `seed` draws positions and values.

    Attributes:
        sparsity: asked for, percent; the topology's own is nearest to it.
        origin: "generated", "dlmc" (the collection) or "file".
    """

    shape: Shape
    sparsity: float
    phase: str
    seed: int
    origin: str = "generated"

    @property
    def batch_columns(self) -> int:
        return getattr(self.shape, self.phase)

    @property
    def name(self) -> str:
        """As records name the problem."""
        return f"{self.shape.set}.{self.shape.network}.{self.shape.layer}.n{self.batch_columns}.s{self.sparsity:g}"

    def topology(self) -> Topology:
        """The positions, drawn: the same for the same shape, sparsity and seed, whatever the batch columns."""
        return draw_topology(
            self.shape.rows, self.shape.columns, self.sparsity, self.shape.lengths, self._generator("positions")
        )

    def values(self, topology: Topology) -> np.ndarray:
        """float32 (nnz,), normal."""
        return self._generator("values").standard_normal(topology.nnz, dtype=np.float32)

    def dense(self, rows: int, name: str) -> np.ndarray:
        """float32 (rows, batch columns), normal: the operand of that name."""
        return self._generator(name).standard_normal((rows, self.batch_columns), dtype=np.float32)

    def _generator(self, purpose: str) -> np.random.Generator:
        text = f"{self.shape.set}.{self.shape.network}.{self.shape.layer}.{self.sparsity:g}.{purpose}"
        return np.random.default_rng([self.seed, zlib.crc32(text.encode())])


def problems(
    sets: dict[str, Sequence[float] | None],
    phases: Sequence[str] = PHASES[:1],
    networks: Sequence[str] | None = None,
    seed: int = 0,
) -> list[ShapeProblem]:
    """The problems of some sets, in the order of the table.

    Args:
        sets: sparsities in percent for each set; None: SPARSITIES.
        phases: which batch columns; those that a shape does not have are left out.
        networks: only these; None: all of the sets.

    Raises:
        InputError: a set, phase or network that is not there, a sparsity out of range, or no problem at all.
    """
    shapes = read_shapes()
    _check_names("set", sets, SETS)
    _check_names("phase", phases, PHASES)
    _check_names("network", networks or (), dict.fromkeys(shape.network for shape in shapes))
    cases = []
    for shape in shapes:
        if shape.set not in sets or (networks is not None and shape.network not in networks):
            continue
        for phase in phases:
            if getattr(shape, phase) is not None:
                sparsities = map(_percent, sets[shape.set] or SPARSITIES[shape.set])
                cases += [ShapeProblem(shape, sparsity, phase, seed) for sparsity in sparsities]
    if not cases:
        raise InputError("no problem is left: the sets, networks and phases chosen have none in common")
    return cases


def draw_topology(rows: int, columns: int, sparsity: float, lengths: str, random: np.random.Generator) -> Topology:
    """A topology with the nearest number of nonzeros to `sparsity` percent, each row's columns uniform in it.

    Raises:
        InputError: a sparsity or `lengths` that is none.
    """
    match = _LENGTHS.fullmatch(lengths)
    if match is None:
        raise InputError(f"lengths {lengths!r}: they must be random, zipf-S or rising-S with a number S")
    nonzeros = round((1 - _percent(sparsity) / 100) * rows * columns)
    if match[1] is None:  # rows of positions that are uniform in the whole matrix
        counts = random.multivariate_hypergeometric([columns] * rows, nonzeros, method="marginals")
    else:
        counts = _falling(rows, columns, nonzeros, float(match[2]))
        counts = counts[::-1] if match[1] == "rising" else random.permutation(counts)
    positions = [np.sort(random.choice(columns, count, replace=False, shuffle=False)) for count in counts]
    return Topology((rows, columns), np.concatenate(([0], np.cumsum(counts))), np.concatenate(positions))


def _falling(rows: int, columns: int, nonzeros: int, power: float) -> np.ndarray:
    """Lengths in proportion to rank^-power that add up to `nonzeros`, none beyond `columns`, the longest first.

    Where the longest rows are full, the others share what is left in the same proportion.
    """
    weights, counts, full = np.arange(1, rows + 1, dtype=np.float64) ** -power, np.zeros(rows), 0
    while True:
        counts[full:] = weights[full:] * ((nonzeros - full * columns) / weights[full:].sum())
        beyond = full + int((counts[full:] > columns).sum())
        counts[full:beyond] = columns
        if beyond == full:
            break
        full = beyond
    whole = np.floor(counts).astype(np.int64)
    most = np.argsort(whole - counts, kind="stable")[: nonzeros - int(whole.sum())]  # the largest remainders
    whole[most] += 1
    return np.sort(np.minimum(whole, columns))[::-1]


def read_shapes() -> list[Shape]:
    """The rows of the table `ops-problems.csv`.

    Raises:
        InputError: other columns, or a value out of range; one sentence with the line.
        Unavailable: the table is absent.
    """
    shapes: list[Shape] = []
    for cell, where in config_tables.rows(config_tables.table("ops-problems.csv"), COLUMNS):
        shape = _shape(cell, where)
        if any((other.set, other.network, other.layer) == (shape.set, shape.network, shape.layer) for other in shapes):
            raise InputError(f"{where}: {shape.network} {shape.layer} is there twice")
        shapes.append(shape)
    return shapes


def _shape(cell: dict[str, str], where: str) -> Shape:
    if cell["set"] not in SETS:
        raise InputError(f"{where}: set {cell['set']!r} must be one of {', '.join(SETS)}")
    for name in ("network", "layer"):
        if not _NAME.fullmatch(cell[name]):
            raise InputError(f"{where}: {name} {cell[name]!r} must be of small letters, digits, - and _")
    if not _LENGTHS.fullmatch(cell["lengths"]):
        raise InputError(f"{where}: lengths {cell['lengths']!r} must be random, zipf-S or rising-S with a number S")
    config_tables.check_filled(cell, ("source",), where)
    for name in ("rows", "columns", "inference", "training", "repeats"):
        absent = name in PHASES and not cell[name]
        cell[name] = None if absent else config_tables.whole(cell[name], name, where, LARGEST)
    return Shape(**cell)


def _percent(sparsity: float) -> float:
    number = real(sparsity)
    if number is None or not 0 <= number < 100:
        raise InputError(f"sparsity {sparsity!r}: it must be in percent, from 0 to below 100")
    return plain(sparsity)


def _check_names(what: str, names: Iterable[str], allowed: Iterable[str]) -> None:
    for name in names:
        if name not in allowed:
            raise unknown(what, name, allowed)
