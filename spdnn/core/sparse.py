"""SciPy's sparse arrays, imported when one is made: the import takes longer than those of all other modules here."""

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from scipy.sparse import coo_array, csc_array, csr_array, diags_array, load_npz  # noqa: F401


def issparse(value: Any) -> bool:
    """Whether `value` is a sparse matrix or array of SciPy; without SciPy's module there is none."""
    library = sys.modules.get("scipy.sparse")
    return library is not None and library.issparse(value)


def __getattr__(name: str) -> Any:
    import scipy.sparse

    return getattr(scipy.sparse, name)
