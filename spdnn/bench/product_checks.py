"""Whether the output of a product is right: compared with the float64 oracle, each entry with its own tolerance."""

import hashlib
from types import SimpleNamespace

import numpy as np

from spdnn.bench.libraries.base import Product
from spdnn.core.errors import SpdnnError
from spdnn.ops import oracle
from spdnn.runs.records.operation_record import Verification

MULTIPLY_ADDS = 4e7  # that the oracle may go through on one problem, in each of two passes
SEED = 0  # of the sample


class ProductTruth:
    """What the output of a product must be, worked out once for all programs.

    Of a product that is too large, whole columns of the output (of sddmm, nonzeros) are drawn with SEED, the first and
    the last among them; all other columns are compared in one sum with random signs for each row.
    """

    def __init__(self, product: Product):
        self.product, part = product, int(MULTIPLY_ADDS // max(1, product.topology.nnz))
        self.of_columns = product.operation == "spmm"
        whole = product.width if self.of_columns else product.topology.nnz
        part = part if self.of_columns else int(MULTIPLY_ADDS // max(1, product.width))
        self.sampled = whole > max(2, part)
        self.kept = _sample(whole, max(2, part)) if self.sampled else np.arange(whole)
        if self.of_columns:
            self._columns()
        else:
            self._nonzeros()

    def judge(self, name: str, out: np.ndarray) -> Verification:
        """The part `verification` of the record of an output of program `name`.

        Raises:
            SpdnnError: an entry is wrong.
        """
        actual = out[:, self.kept] if self.of_columns else out[self.kept]
        worst = _worst(actual, self.right, self.tolerance)
        if self.of_columns and self.sampled:
            worst = max(worst, _worst(out @ self.signs, self.right_sums, self.sums_tolerance))
        if not worst <= 1:
            raise SpdnnError(
                f"program {name} gave a wrong output of {self.product.operation}: an error of {worst:.3g} times its "
                "tolerance"
            )
        checked = actual.size if out.size else 0
        seed = SEED if self.sampled else None
        return Verification(int(out.size), int(checked), seed, self.rule, float(worst), digest(out))

    @property
    def rule(self) -> str:
        rule = "|error| <= (n + 2) u sum|a b| + rounding, n nonzeros of the row"
        if not self.of_columns:
            return rule.replace("nonzeros of the row", "columns of the operands")
        return rule + ("; all columns in one sum with random signs" if self.sampled else "")

    def _columns(self) -> None:
        product = self.product
        topology, values, dense = product.topology, product.values, product.first[:, self.kept]
        self.right = oracle.spmm(topology, values, dense)
        magnitude = oracle.spmm(topology, abs(values), abs(dense))
        self.tolerance = oracle.tolerance(magnitude, topology.lengths[:, None])
        if self.sampled:
            self.signs = np.random.default_rng(SEED).choice((-1.0, 1.0), product.width)
            whole = product.first.astype(np.float64)
            self.right_sums = oracle.spmm(topology, values, (whole @ self.signs)[:, None])[:, 0]
            magnitude = oracle.spmm(topology, abs(values), abs(whole).sum(axis=1)[:, None])[:, 0]
            self.sums_tolerance = oracle.tolerance(magnitude, topology.lengths) * (1 + product.width * 2.0**-50)

    def _nonzeros(self) -> None:
        product, topology = self.product, self.product.topology
        part = SimpleNamespace(row_numbers=topology.row_numbers[self.kept], columns=topology.columns[self.kept])
        self.right = oracle.sddmm(part, product.first, product.second)
        magnitude = oracle.sddmm(part, abs(product.first), abs(product.second))
        self.tolerance = oracle.tolerance(magnitude, product.width)


def digest(out: np.ndarray) -> str:
    """SHA-256 of an output's bytes."""
    return hashlib.sha256(np.ascontiguousarray(out).data).hexdigest()


def _worst(actual: np.ndarray, right: np.ndarray, tolerance: np.ndarray) -> float:
    """The largest error over its tolerance; infinite where a value is not a number."""
    if not actual.size:
        return 0.0
    if not np.isfinite(actual).all():
        return float("inf")
    return float((abs(actual - right) / tolerance).max())


def _sample(whole: int, part: int) -> np.ndarray:
    drawn = np.random.default_rng(SEED).choice(np.arange(1, whole - 1), part - 2, replace=False)
    return np.sort(np.concatenate(([0], drawn, [whole - 1])))
