"""How many layers features pass in one go, in the engines `cuda` and `taskgraph`."""

# Layers that features pass without leaving a device's cache: (until layer, layers). Rows leave only between passes, and
# most that die do so early; where nothing leaves, passes only end so that signals are answered.
LENGTHS = ((8, 1), (16, 2), (32, 4), (64, 8), (128, 16))
LONGEST = 64


def pass_length(k: int, leaving: bool) -> int:
    """Layers that features pass in one go from layer k on; `leaving`: rows may leave between two passes."""
    return next((length for until, length in LENGTHS if k < until), LONGEST) if leaving else LONGEST
