"""What the tests of several ranks share."""

from __future__ import annotations

import pytest
from launched import Launched


@pytest.fixture
def mpiexec():
    """A function (ranks, command...) that runs a program and gives (status, output, errors)."""
    return lambda ranks, *command, **environment: Launched(ranks, *command, **environment).finish()
