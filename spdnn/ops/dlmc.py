"""The Deep Learning Matrix Collection (DLMC): matrices of pruned networks as problems of set a, from a copy of it.

A copy is the archive dlmc.tar.gz, the .tar in it, or the folder that it unpacks to. Its matrices are
dlmc/MODEL/METHOD/SPARSITY/NAME.smtx, where SPARSITY is that of the whole pruned model.

Source: Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-A; COUNTS from the
authors' benchmark (google-research/sputnik, sputnik/spmm/dlmc_benchmark.cu.cc). No digest is published.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np

from spdnn.core import safe_open
from spdnn.core.errors import InputError, SpdnnError
from spdnn.core.files import cache_folder
from spdnn.core.safe_open import existing
from spdnn.formats import smtx
from spdnn.formats.archive import TarArchive
from spdnn.formats.fetch import INSTEAD, fetch
from spdnn.ops.problems import ShapeProblem, read_shapes
from spdnn.ops.topology import Topology

NETWORKS = {"transformer": "transformer", "rn50": "resnet-50"}
COUNTS = {"transformer": 2716, "rn50": 1130}  # matrices: 28 models of 97, 17 of 54 and 4 of 53
SAMPLE = 150  # matrices, by default
FETCH = "fetch"  # in place of a path
_MATRIX = re.compile(r"(transformer|rn50)/[a-z0-9_]+/0\.[0-9]{1,6}/[A-Za-z0-9_]{1,120}\.smtx")


@dataclass(frozen=True, kw_only=True)
class StoredProblem(ShapeProblem):
    """A matrix of the collection, with the batch columns that the table has for its shape.

    Attributes:
        sparsity: of the whole pruned model, percent; the matrix has its own.
        stored: the positions.
        matrix: MODEL/METHOD/SPARSITY/NAME.smtx.
        drawn, drawn_from: the sample that it is in: so many matrices of how many.
    """

    stored: Topology
    matrix: str
    drawn: int
    drawn_from: int

    def topology(self) -> Topology:
        return self.stored


class Sample:
    """Matrices of a copy that is whole, drawn so that each model and sparsity has its share of them, to within one.

    Args:
        copy: the archive or the folder, or "fetch": from the mirror ($SPDNN_MIRROR) or its address.
        count: matrices; None: all.
        seed: of the sample, and of the values of its problems.
        sparsities: only models of these, in percent; None: of any.
        networks: only of these, as the table of problems names them; None: of all.

    Attributes:
        names: of the matrices, MODEL/METHOD/SPARSITY/NAME.smtx, by model, sparsity and then in random order.
        drawn_from: matrices of these networks and sparsities in the copy.

    Raises:
        InputError: no copy there, a broken one, one with other counts of matrices, or with none of these networks and
            sparsities. SpdnnError: it could not be fetched.
    """

    @safe_open.releasing()
    def __init__(
        self, copy: str | Path, count: int | None = SAMPLE, seed: int = 0, sparsities: Sequence[float] | None = None,
        networks: Sequence[str] | None = None,
    ):  # fmt: skip
        self.path, self.seed = locate(copy), seed
        self._readers = _readers(self.path)
        # Every k-th of all by model and sparsity, in random order within each: a systematic sample.
        random = np.random.default_rng(seed).random(len(self._readers))
        strata: list[tuple[str, float, float, str]] = []
        for name, place in zip(sorted(self._readers), random, strict=True):
            network, percent = NETWORKS[name.split("/")[0]], _percent(name)
            if (networks is None or network in networks) and (sparsities is None or percent in sparsities):
                strata.append((network, percent, place, name))
        if not strata:
            raise InputError(f"{self.path}: no matrix of the collection is of these networks and sparsities")
        self.drawn_from, drawn = len(strata), min(count or len(strata), len(strata))
        strata.sort()
        self.names = [strata[(2 * k + 1) * len(strata) // (2 * drawn)][-1] for k in range(drawn)]

    def problems(self, phases: Sequence[str]) -> Iterator[StoredProblem]:
        """Read one matrix after the other: its problem for each phase that the table has columns for.

        Raises:
            InputError: a matrix that is no sound .smtx, or of a shape that the table does not have.
        """
        shapes = {(shape.network, shape.rows, shape.columns): shape for shape in read_shapes() if shape.set == "a"}
        for name in self.names:
            where, (model, method, _, file) = f"{self.path}: {name}", name.removesuffix(".smtx").split("/")
            size, offsets, columns = smtx.parse(self._readers[name](), where)
            shape = shapes.get((NETWORKS[model], *size))
            if shape is None:
                raise InputError(f"{where}: {size[0]} x {size[1]}, a shape that {NETWORKS[model]} has not in the table")
            # Short enough for a record, and still different for each matrix of a model.
            layer = re.sub("^body_|_multihead_attention|(_aux)?(_fully_connected)?$", "", file)
            shape = replace(shape, layer=f"{method.split('_')[0]}-{layer}"[:80])
            with safe_open.name_errors(where):
                topology = Topology(size, offsets, columns)
            for phase in (phase for phase in phases if getattr(shape, phase) is not None):
                yield StoredProblem(
                    shape, _percent(name), phase, self.seed, "dlmc", stored=topology, matrix=name,
                    drawn=len(self.names), drawn_from=self.drawn_from,
                )  # fmt: skip


def locate(copy: str | Path) -> Path:
    """The path of a copy; "fetch": of the archive in the folder of downloads, fetched unless it is there.

    Raises:
        InputError: no such copy. SpdnnError: it could not be fetched; the sentence says what was tried, and what helps.
    """
    if copy != FETCH:
        return existing(copy, "DLMC archive or folder")
    try:
        return fetch("dlmc", cache_folder())
    except SpdnnError as error:
        raise SpdnnError(f"{error}{INSTEAD['dlmc']}") from error


def _readers(path: Path) -> dict[str, Callable[[], bytes]]:
    """What reads each matrix of a whole copy, by its name."""
    readers: dict[str, Callable[[], bytes]]
    if path.is_dir():
        base = path / "dlmc" if (path / "dlmc").is_dir() else path
        files = base.glob("*/*/*/*.smtx")
        readers = {file.relative_to(base).as_posix(): partial(safe_open.whole, file) for file in files}
    else:
        with safe_open.name_errors(path, "not a whole tar archive"):
            members = {PurePosixPath(name): content for name, _, content in TarArchive(path).members()}
        readers = {"/".join(name.parts[name.parts[:1] == ("dlmc",) :]): content for name, content in members.items()}
    readers = {name: read for name, read in readers.items() if _MATRIX.fullmatch(name)}
    counts = Counter(name.split("/")[0] for name in readers)
    for model, count in COUNTS.items():
        if counts[model] != count:
            raise InputError(f"{path}: {counts[model]:,} matrices of {model}, and a whole copy of DLMC has {count:,}")
    return readers


def _percent(name: str) -> float:
    return round(100 * float(name.split("/")[2]), 4)
