"""The programs of each operation, by name; a library is one class more in a list here."""

from collections.abc import Iterable, Sequence

from spdnn.bench.contest import usable
from spdnn.bench.libraries.base import OURS, TimedProgram
from spdnn.bench.libraries.deepsparse import DeepSparse
from spdnn.bench.libraries.mkl import MklDenseProduct, MklProduct
from spdnn.bench.libraries.mnn import Mnn
from spdnn.bench.libraries.numpy import BlasModel, BlasProduct, EinsumProduct
from spdnn.bench.libraries.onnx import OnnxRuntime, OpenVino, OpenVinoFloat32
from spdnn.bench.libraries.ours import OurModel, OurProduct, OurProductInOrder
from spdnn.bench.libraries.scipy import ScipyModel, ScipyProduct
from spdnn.bench.libraries.torch import TorchCompiledModel, TorchModel, TorchProduct
from spdnn.core.errors import unknown
from spdnn.runs.records.operation_record import PRODUCTS

_CLASSES = {
    "spmm": (OurProduct, OurProductInOrder, MklProduct, TorchProduct, ScipyProduct, BlasProduct, MklDenseProduct),
    "sddmm": (OurProduct, OurProductInOrder, TorchProduct, EinsumProduct, BlasProduct, MklDenseProduct),
    "network": (
        OurModel, ScipyModel, BlasModel, TorchModel, TorchCompiledModel, OnnxRuntime, OpenVino, OpenVinoFloat32, Mnn,
        DeepSparse,
    ),
}  # fmt: skip
PROGRAMS: dict[str, dict[str, type[TimedProgram]]] = {
    operation: {kind.name: kind for kind in kinds} for operation, kinds in _CLASSES.items()
}


def check_operations(names: Sequence[str]) -> None:
    """Raise InputError for a name that is no product, or for none at all."""
    for name in names or [""]:
        if name not in PRODUCTS:
            raise unknown("operation", name, PRODUCTS)


def libraries_here(
    names: str | Sequence[str] | None = "auto", operations: Iterable[str] = PRODUCTS, kind: str | None = "library"
) -> tuple[list[str], dict[str, str]]:
    """(libraries to run with ours, why each of the others cannot run here); `names`: None or 'auto' for all that are
    installed; `operations`: a library has a program for one of them. `kind`, and what is raised: as contest.usable.
    """
    programs = [program for operation in operations for program in PROGRAMS[operation].values()]
    offered = {program.name: program.missing for program in programs if program.kind != OURS}
    return usable(None if names == "auto" else names, offered, kind)
