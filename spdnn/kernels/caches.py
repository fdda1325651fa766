"""The data caches of this machine, as Linux lists them in sysfs: their sizes, and how many cores share each."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from spdnn.core.resources import affinity

SYSFS = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class CacheLevel:
    """One level of the data caches: bytes of one, and the number of cores (hardware threads) that share it."""

    level: int
    bytes: int
    shared_by: int


# Where sysfs has nothing: small guesses for what must fit a cache, a large one for what must not.
UNKNOWN = (CacheLevel(1, 32 << 10, 1), CacheLevel(2, 256 << 10, 1), CacheLevel(3, 64 << 20, 1 << 10))


@cache
def caches(folder: Path = SYSFS) -> tuple[CacheLevel, ...]:
    """The data caches of a core, the nearest first, as Linux lists them in sysfs; empty where it does not."""
    # One folder for each cache of the first core that this process may use; what cannot be read is left out.
    levels = []
    for index in sorted(folder.glob(f"cpu{min(affinity())}/cache/index*")):
        sizes = {}
        for name in ("level", "type", "size", "shared_cpu_list"):
            try:
                sizes[name] = (index / name).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError):
                break
        else:
            if sizes["type"] != "Instruction":
                # Sizes are written as 48K or 1M, the cores that share one as a list such as 0-3,8.
                unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(sizes["size"][-1], 1)
                ends = [part.partition("-") for part in sizes["shared_cpu_list"].split(",")]
                shared = sum(int(last or first) - int(first) + 1 for first, _, last in ends)
                levels.append(CacheLevel(int(sizes["level"]), unit * int(sizes["size"].rstrip("KMG")), shared))
    return tuple(sorted(levels, key=lambda cache: cache.level))
