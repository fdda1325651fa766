"""Which last rows a run keeps, so that a verdict can compare them value by value: drawn before the run.

It is apart from verdicts, so that a change of their classes makes no inference run again.
"""

import numpy as np

KEPT_BYTES = 16 << 20  # of values that a run keeps


def draw(count: int, outputs: int, seed: int) -> np.ndarray:
    """int64: the inputs (0-based, of `count`) whose last rows a run keeps, in the order in which they are drawn.

    They depend on the seed alone, never on a result, and their values take at most KEPT_BYTES.
    """
    most = max(1, KEPT_BYTES // (4 * outputs))
    return np.random.default_rng([seed, 1]).choice(count, min(count, most), replace=False)
