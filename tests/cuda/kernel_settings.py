"""Every kernel at every setting that engines and operations use: what is compiled for every architecture."""

from typing import NamedTuple

from spdnn.engines.cuda import ceilings
from spdnn.kernels.cuda import ops, settings, sliced
from spdnn.kernels.cuda.declarations import Kernel


class Setting(NamedTuple):
    """A kernel in use.

    Attributes:
        kernel: with its macros.
        blocks: how many a multiprocessor must be able to hold at once, by its registers and threads.
    """

    kernel: Kernel
    blocks: int = 1


DTYPES = tuple(ops.VALUES)
OPERATIONS = (  # the macro BLOCKS says how many of each
    *(ops.spmm(dtype, tile) for dtype in DTYPES for tile in (*ops.SPMM_TILES[dtype], *ops.SPMM_FEW_TILES[dtype])),
    *(
        ops.sddmm(dtype, vector, unroll)
        for dtype in DTYPES
        for vector in ops.VECTORS[dtype]
        for unroll in (ops.DOT_UNROLL[vector], ops.DEEP_UNROLL)
    ),
    *(ops.attention(dtype, vector) for dtype in DTYPES for vector in ops.VECTORS[dtype]),
    *(ops.rowwise(name, dtype) for name in ("sparse_softmax", "gather_values") for dtype in DTYPES),
    *(ops.depthwise(dtype, vector, True) for dtype in DTYPES for vector in ops.CHANNELS),
    *(ops.depthwise(dtype, 1, False) for dtype in DTYPES),
)

SETTINGS = (
    *(
        Setting(kernel, settings.RESIDENT // kernel.threads)
        for kernel in vars(settings).values()
        if isinstance(kernel, Kernel)
    ),
    *(
        Setting(settings.layer(name, index_bytes, valued), settings.RESIDENT // settings.SIMPLE)
        for name in ("csr_layer", "ell_layer")
        for index_bytes in settings.INDEX_TYPES
        for valued in (False, True)
    ),
    *(
        Setting(settings.staged_kernel(shared, valued, bits=bits), settings.STAGED_BLOCKS)
        for shared in sliced.SHARED
        for valued in (False, True)
        for bits in (False, True)
    ),
    *(Setting(kernel, ceilings.LOAD_BLOCKS) for kernel in ceilings.KERNELS),
    *(Setting(kernel, kernel.defines["BLOCKS"]) for kernel in OPERATIONS),
    *(
        Setting(settings.persistent(inputs, threads, valued), settings.RESIDENT // threads)
        for inputs in settings.PERSISTENT_INPUTS
        for threads in settings.PERSISTENT_THREADS
        for valued in (False, True)
    ),
)
