"""The kernels of inference at the settings that engines use: threads of a block, and the values of macros.

`spdnn.kernels.cuda.declarations` says what a kernel is; the heads of the `.cu` files say what the macros mean.
"""

from spdnn.kernels.cuda.declarations import Kernel

TILE = 32  # inputs whose features lie side by side (TILE of common.cuh)
SIMPLE = 256  # threads of kernels that wait for memory
STAGED_HELD = 4  # outputs of a thread
STAGED_THREADS = {False: 512, True: 320}  # without and with values, which take registers
STAGED_BLOCKS = 2  # at once on a multiprocessor at most; one, where two have no room for whole footprints
STAGED_LANES = 8  # threads that share an output, of 32 inputs
RESIDENT = 1024  # threads that a multiprocessor holds at once by the registers that kernels may take: 64 each
PERSISTENT_SHARED = {False: 4, True: 2}  # outputs at most that share a gather: four with values would take registers
PERSISTENT_INPUTS = (1, 4, 8, 16, 32)
PERSISTENT_THREADS = (256, 512, 1024)
INDEX_TYPES = {2: "unsigned short", 4: "unsigned int"}

WORDS = Kernel("inputs.cu", "words", SIMPLE)
DENSE_TILES = Kernel("inputs.cu", "dense_tiles", SIMPLE)
SPARSE_TILES = Kernel("inputs.cu", "sparse_tiles", SIMPLE)
BEGIN = Kernel("rows.cu", "begin", SIMPLE)
NEXT_ROWS = Kernel("rows.cu", "next_rows", 1024)
CUT_ROWS = Kernel("rows.cu", "cut_rows", SIMPLE)
ROW_INDEX = Kernel("rows.cu", "row_index", SIMPLE)
RESOLVE = Kernel("rows.cu", "resolve", SIMPLE)
PARK_ROWS = Kernel("taskgraph.cu", "park_rows", SIMPLE)
HASH_ROWS = Kernel("merge.cu", "hash_rows", SIMPLE)
INSERT_ROWS = Kernel("merge.cu", "insert_rows", SIMPLE)
COMPARE_ROWS = Kernel("merge.cu", "compare_rows", SIMPLE)
ROW_STATISTICS = Kernel("last.cu", "row_statistics", SIMPLE)


def layer(name: str, index_bytes: int, valued: bool) -> Kernel:
    """csr_layer or ell_layer, for indices of so many bytes; `valued`: edges have values of their own."""
    return Kernel("layer.cu", name, SIMPLE, (("INDEX", INDEX_TYPES[index_bytes]), ("VALUED", int(valued))))


def staged_kernel(shared: int, valued: bool, bits: bool = False) -> Kernel:
    """staged_layer, for parts of staged_outputs(valued) outputs, in groups of so many that share their inputs;
    `bits`: of inputs that are words of bits."""
    macros = {"HELD": STAGED_HELD, "SHARED": shared, "VALUED": int(valued)}
    macros["SOURCE"] = "unsigned int" if bits else "float"
    return Kernel("staged.cu", "staged_layer", STAGED_THREADS[valued], tuple(macros.items()))


def staged_outputs(valued: bool) -> int:
    """Outputs that a block of staged_layer computes."""
    return STAGED_HELD * STAGED_THREADS[valued] // STAGED_LANES


def persistent(inputs: int, threads: int, valued: bool) -> Kernel:
    """persistent_layers, with the features of so many inputs in a block."""
    return Kernel("persistent.cu", "persistent_layers", threads, (("INPUTS", inputs), ("VALUED", int(valued))))
