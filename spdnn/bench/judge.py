"""The judge of calls of a model: all outputs of a turn, compared with the reference within the program's precision.

A program of float32 must be within the tolerance of each value. One that computes in a type of fewer digits rounds more
than that, and is no wrong program for it: it has a wider tolerance, and its record says the precision and the error.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from spdnn.bench.contest import Entrant
from spdnn.core import closeness
from spdnn.core.errors import SpdnnError
from spdnn.runs.records.operation_record import Verification

# By the type that a program computes in, the part of the largest value of an output by which its values may be off:
# five roundings of the type.
LOWER = MappingProxyType({"bfloat16": 0.02, "float16": 0.0025})


class Call(NamedTuple):
    """The inputs of a call; of each output the reference, and how far from it a value may be."""

    inputs: tuple[np.ndarray, ...]
    right: list[np.ndarray]
    tolerated: list[np.ndarray]


class Judge:
    """Compares the outputs of a turn, as `spdnn.bench.contest.contest` asks for it.

    Args:
        calls: of a turn.
        reference: what the outputs are compared with, in words; rule: what is tolerated of float32, in words.

    Attributes:
        wrong: by name, the precision of each program whose outputs are wrong, and their error.
    """

    def __init__(self, calls: Sequence[Call], reference: str, rule: str):
        self.right = [right for call in calls for right in call.right]
        self.tolerated = [tolerated for call in calls for tolerated in call.tolerated]
        self.outputs, self.reference, self.rule = len(calls[0].right), reference, rule
        self.wrong: dict[str, tuple[str, float]] = {}

    def __call__(self, name: str, entrant: Entrant, out: Any) -> Verification:
        """The verification of a program's outputs; SpdnnError where they are wrong."""
        outs = [np.asarray(array) for array in entrant.program.arrays(out)]
        compared, tolerated, rule = self._rule(entrant.program.precision)
        if [array.shape for array in outs] != [array.shape for array in self.right]:
            raise SpdnnError("outputs have other shapes than those of the reference")
        pairs = ((outs[k], self.right[k], tolerated[k]) for k in compared)
        worst = max((closeness.worst(*pair, nan=True) for pair in pairs), default=np.inf)
        error = max((self._error(outs, k) for k in compared if k < self.outputs), default=np.inf)
        if not worst <= 1:
            precision = entrant.program.precision
            self.wrong[name] = precision, error
            raise SpdnnError(
                f"outputs are off by {worst:.3g} times what rounding of {precision} explains, by {100 * error:.2g} % "
                "of the largest value"
            )
        entries = sum(outs[k].size for k in compared)
        return Verification(entries, entries, None, rule, worst, entrant.digest, error)

    def _rule(self, precision: str) -> tuple[Sequence[int], Sequence[np.ndarray], str]:
        """(the arrays to compare, the tolerance of each, both in words) for a program of this precision."""
        every, part = range(len(self.right)), LOWER.get(precision)
        if part is None:
            return every, self.tolerated, self.rule
        # Rounding can change which of two near values is the larger, and so a whole number altogether.
        real = [k for k in every if self.right[k].dtype.kind == "f"] or every
        tolerated = list(self.tolerated)
        for k in real:
            wider = part * max(closeness.largest(self.right[j]) for j in self._same(k))
            tolerated[k] = np.maximum(self.tolerated[k], wider if self.right[k].dtype.kind == "f" else 0)
        rule = f"{precision}: every value within {100 * part:g} % of the largest of its output"
        rule += f", compared with {self.reference}"
        return real, tolerated, rule + "; whole numbers are not compared" * (len(real) < len(every))

    def _same(self, k: int) -> range:
        """The places of one output of the model in all calls."""
        return range(k % self.outputs, len(self.right), self.outputs)

    def _error(self, outs: Sequence[np.ndarray], k: int) -> float:
        return closeness.relative([outs[j] for j in self._same(k)], [self.right[j] for j in self._same(k)])
