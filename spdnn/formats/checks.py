"""What all formats check: before they allocate, that a width is not absurd, nor absurd for so small a file."""

from spdnn.core import challenge
from spdnn.core.errors import InputError

WIDE = 1 << 22  # rows or columns of any file; beyond, it must hold an entry for every SPARSE of them
SPARSE = 64
SWAPPED = "; are --network and --inputs swapped?"  # the end of a sentence on a file of the other kind


def check_widths(where, *widths: int, entries: int | None = None) -> None:
    """InputError, beginning with `where`, for rows or columns that would take memory for nothing.

    Args:
        entries: that the file holds, where they are counted already: a file of one entry is not 10^8 wide.
    """
    widest = max(widths, default=0)
    if widest > challenge.MAX_WIDTH:
        raise InputError(f"{where}: a size of {widest}; at most {challenge.MAX_WIDTH} neurons are possible here")
    if entries is not None and widest > max(WIDE, SPARSE * entries):
        raise InputError(f"{where}: a size of {widest} with {entries} entries; beyond {WIDE}, {SPARSE} for each entry")
