"""The Deep Learning Matrix Collection: positions of the nonzeros of pruned networks, from its archive.

The archive is dlmc.tar.gz as config/data.tsv has it, or a folder that it was unpacked to. Matrices are
dlmc/MODEL/METHOD/SPARSITY/NAME.smtx; the names of some methods have an ending that others lack.
Source: Gale, Zaharia, Young, Elsen, "Sparse GPU Kernels for Deep Learning", SC 2020, section VII-A.
"""

from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.core.safe_open import existing
from spdnn.formats import smtx
from spdnn.formats.archive import TarArchive
from spdnn.ops.problems import ShapeProblem
from spdnn.ops.topology import Topology

MODELS = {"transformer": "transformer", "resnet-50": "rn50"}
METHOD = "random_pruning"
ENDINGS = ("", "_fully_connected", "_aux", "_aux_fully_connected")


@safe_open.releasing()
def topologies(archive: str | Path, problems: Iterable[ShapeProblem], method: str = METHOD) -> dict[tuple, Topology]:
    """The matrices of the archive that these problems name, by `key`; those that it does not have are left out.

    The archive is read once; nothing is unpacked to a disk.

    Args:
        method: a folder of each model: random_pruning, magnitude_pruning, variational_dropout, l0_regularization.

    Raises:
        InputError: no archive there, a broken one, a matrix that is no sound .smtx, or not of the table's shape.
    """
    path, members = existing(archive, "DLMC archive or folder"), {}
    for problem in problems:
        if problem.shape.network in MODELS and problem.shape.matrix:
            folder = f"{MODELS[problem.shape.network]}/{method}/{problem.sparsity / 100:g}"
            for ending in ENDINGS:
                members.setdefault(f"{folder}/{problem.shape.matrix}{ending}.smtx", problem)
    result = {}
    for name, content in _contents(path, members):
        problem = members[name]
        where = f"{path}: {name}"
        shape, offsets, columns = smtx.parse(content, where)
        if shape != (problem.shape.rows, problem.shape.columns):
            raise InputError(
                f"{where}: {shape[0]} x {shape[1]}, and the table has {problem.shape.rows} x {problem.shape.columns}"
            )
        with safe_open.name_errors(where):
            result[key(problem)] = Topology(shape, offsets, columns)
    return result


def key(problem: ShapeProblem) -> tuple:
    """Of `topologies`: problems that differ in their batch columns alone share a matrix."""
    return problem.shape.network, problem.shape.layer, problem.sparsity


def _contents(path: Path, problems: dict[str, ShapeProblem]):
    """(name, bytes) of the members in `problems`."""
    if path.is_dir():
        base = path / "dlmc" if (path / "dlmc").is_dir() else path
        for name in problems:
            if (base / name).is_file():
                yield name, safe_open.whole(base / name)
        return
    with safe_open.name_errors(path, "not a whole tar archive"):
        for member, _, content in TarArchive(path).members():
            parts = PurePosixPath(member).parts
            name = "/".join(parts[1:] if parts[:1] == ("dlmc",) else parts)
            if name in problems:
                yield name, content()
