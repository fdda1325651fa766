"""Which parameters of a test are of the default set, and which the full set adds."""

import itertools

import pytest

from spdnn.kernels import dispatch


def rung(*values, default=False):
    """Parameters of one test, of the full set unless it is a default."""
    return pytest.param(*values, marks=() if default else pytest.mark.full("ladder"))


def covering(*choices):
    """Every combination of the choices; by default each of the first ones with one of the others in turn."""
    first, *others = map(list, choices)
    return [
        rung(one, *rest, default=all(value == other[k % len(other)] for value, other in zip(rest, others, strict=True)))
        for k, one in enumerate(first)
        for rest in itertools.product(*others)
    ]


LEVELS = [level.name for level in dispatch.levels()]
# By default the level in use: the one that SPDNN_ISA names, else the best of this processor.
each_level = [rung(name, default=name == dispatch.level().name) for name in LEVELS]
every_level = pytest.mark.parametrize("level", each_level)
