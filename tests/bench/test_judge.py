"""The judge of calls: what is compared of a program of lower precision, and within what."""

from types import SimpleNamespace

import numpy as np
import pytest

from spdnn.bench.judge import Call, Judge
from spdnn.core.errors import SpdnnError


def judged(precision, outs, *calls):
    """The verification of outputs `outs`, where each call has the right outputs `calls` and tolerates nothing."""
    made = [Call((), [np.asarray(x) for x in right], [np.zeros(np.shape(x)) for x in right]) for right in calls]
    program = SimpleNamespace(arrays=lambda out: out, precision=precision)
    return Judge(made, "a reference", "equal")("name", SimpleNamespace(program=program, digest="0" * 64), outs)


def test_the_largest_value_is_that_of_an_output_in_all_calls():
    right = [[10.0, 0.0], [0.5]], [[0.1, 0.0], [0.25]]
    found = judged("bfloat16", [[10.0, 0.1], [0.5], [0.2, 0.0], [0.2525]], *right)
    assert (found.worst, found.error) == (pytest.approx(0.5), pytest.approx(0.01))
    with pytest.raises(
        SpdnnError, match="off by 1.25 times what rounding of bfloat16 explains, by 2.5 % of the largest value"
    ):
        judged("bfloat16", [[10.0, 0.0], [0.5], [0.1, 0.25], [0.25]], *right)


def test_whole_numbers_alone_must_be_equal():
    right = [[3, 1]], [[2, 2]]
    found = judged("bfloat16", [[3, 1], [2, 2]], *right)
    assert (found.worst, found.error, found.checked) == (0, 0, 4)
    with pytest.raises(SpdnnError, match="what rounding of .* explains"):
        judged("bfloat16", [[3, 1], [2, 1]], *right)


def test_an_unknown_precision_is_judged_as_float32():
    with pytest.raises(SpdnnError, match="what rounding of .* explains"):
        judged("int8", [[1.001]], [[1.0]])
    assert judged("int8", [[1.0]], [[1.0]]).rule == "equal"


def test_a_wrong_program_is_named_with_its_precision_and_error():
    judge = Judge([Call((), [np.float32([1, 2])], [np.zeros(2)])], "a reference", "equal")
    for name, precision, outs in (("a", "bfloat16", [[1, 2.5]]), ("b", "float32", [[1.5, 2]]), ("c", "float32", [[1]])):
        program = SimpleNamespace(arrays=lambda out: out, precision=precision)
        with pytest.raises(SpdnnError, match="outputs (are off by|have other shapes)"):
            judge(name, SimpleNamespace(program=program, digest="0" * 64), outs)
    assert judge.wrong == {"a": ("bfloat16", 0.25), "b": ("float32", 0.25)}
