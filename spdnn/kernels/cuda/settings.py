"""Every kernel at every setting of its macros that an engine may choose: what tests compile for every architecture."""

from __future__ import annotations

from typing import NamedTuple

from spdnn.kernels.cuda import Kernel


class Setting(NamedTuple):
    """A kernel in use.

    Attributes:
        kernel: with its macros.
        blocks: how many a multiprocessor must be able to hold at once, by its registers and threads.
    """

    kernel: Kernel
    blocks: int = 1


SETTINGS: tuple[Setting, ...] = ()
