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


OPERATIONS = (
    *(
        (ops.spmm(dtype, tile), tile.blocks)
        for dtype, tiles in ops.SPMM_TILES.items()
        for tile in (*tiles, *ops.SPMM_FEW_TILES[dtype])
    ),
    *(
        (ops.sddmm(dtype, vector, unroll), blocks)
        for dtype, vectors in ops.VECTORS.items()
        for vector in vectors
        for unroll, blocks in ((ops.DOT_UNROLL[vector], ops.DOT_BLOCKS[vector]), (ops.DEEP_UNROLL, ops.DEEP_BLOCKS))
    ),
    *(
        (ops.attention(dtype, vector), ops.ATTENTION_BLOCKS[vector])
        for dtype, vectors in ops.VECTORS.items()
        for vector in vectors
    ),
    *((ops.rowwise(name, dtype), ops.BLOCKS) for name in ("sparse_softmax", "gather_values") for dtype in ops.VALUES),
    *(
        (ops.depthwise(dtype, vector, True), ops.DEPTHWISE_BLOCKS[vector])
        for dtype in ops.VALUES
        for vector in ops.CHANNELS
    ),
    *((ops.depthwise(dtype, 1, False), ops.DEPTHWISE_BLOCKS[1]) for dtype in ops.VALUES),
)

SETTINGS = (
    *(
        Setting(kernel, settings.RESIDENT // kernel.threads)
        for kernel in (
            settings.WORDS,
            settings.DENSE_TILES,
            settings.SPARSE_TILES,
            settings.BEGIN,
            settings.NEXT_ROWS,
            settings.CUT_ROWS,
            settings.ROW_INDEX,
            settings.RESOLVE,
            settings.PARK_ROWS,
        )
    ),
    *(
        Setting(kernel, settings.RESIDENT // kernel.threads)
        for kernel in (settings.HASH_ROWS, settings.INSERT_ROWS, settings.COMPARE_ROWS, settings.ROW_STATISTICS)
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
    *(Setting(kernel, ceilings.BLOCKS) for kernel in ceilings.KERNELS),
    *(Setting(kernel, blocks) for kernel, blocks in OPERATIONS),
    *(
        Setting(settings.persistent(inputs, threads, valued), settings.RESIDENT // threads)
        for inputs in settings.PERSISTENT_INPUTS
        for threads in settings.PERSISTENT_THREADS
        for valued in (False, True)
    ),
)
