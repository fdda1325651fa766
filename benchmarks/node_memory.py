"""Peak proportional set size of a command and all that it starts: memory that processes share counts once.

    python benchmarks/node_memory.py mpiexec -n 4 spdnn infer --network NET --inputs INPUTS --reductions dead

Pss of /proc/PID/smaps_rollup, added up over the processes, every 20 ms; what is only touched in between is not seen.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time

from spdnn.engines.memory import kernel_bytes

PERIOD = 0.02  # seconds


def descendants(root: int) -> set[int]:
    """The process `root` and all below it, proxies of a launcher included."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as stream:
            parents[int(name)] = int(stream.read().rpartition(b")")[2].split()[1])
    found, todo = set(), [root]
    while todo:
        current = todo.pop()
        found.add(current)
        todo += [process for process, parent in parents.items() if parent == current]
    return found


def proportional(process: int) -> int:
    """Bytes of its proportional set size; 0 when it has ended."""
    with contextlib.suppress(OSError):
        return kernel_bytes(f"/proc/{process}/smaps_rollup", "Pss") or 0
    return 0


def main(command: list[str]) -> int:
    running, peak = subprocess.Popen(command), 0
    while running.poll() is None:
        peak = max(peak, sum(map(proportional, descendants(running.pid))))
        time.sleep(PERIOD)
    print(f"peak of all processes together: {peak / 2**20:,.0f} MiB")
    return running.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
