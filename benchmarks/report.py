"""How long the report takes with many records: reading alone, and the whole page.

    python benchmarks/report.py [--runs N ...] [--operations N] [--only read|render]

For each N, that many run records of tests/report/many.py are written into a temporary folder (which takes longer than
reading them), and a fifth as many records of sparse operations unless told otherwise; each program below then goes
through them in a process of its own. Its figures are of the whole process, imports included: seconds on the wall,
processor seconds (user and system; on a busy machine these are the ones to compare), and the most memory that it held.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READING = """
import sys, pathlib
from spdnn.runs.records.files import read_all
read_all(sorted(pathlib.Path(sys.argv[1]).iterdir()))
"""
COLUMNS = ("program", "runs", "operations", "MB", "wall s", "processor s", "peak MiB", "page MB")


def timed(command: list[str]) -> tuple[float, float, float]:
    """(seconds on the wall, processor seconds, peak MiB) of a process; it must end well."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{command[:4]} failed")
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def tell(*cells: object) -> None:
    """Print a row of the table."""
    print(*(f"{cell:>11}" for cell in cells), flush=True)


def measure(folder: Path, runs: int, operations: int, only: str | None) -> None:
    """Print a row for reading that many records and one for rendering them, or for one of both."""
    sys.path[:0] = [str(ROOT / "tests" / name) for name in ("report", "engines")]
    import many

    records, page = folder / f"records-{runs}", folder / "page.html"
    records.mkdir()
    megabytes = sum(path.stat().st_size for path in many.write(records, runs, operations)) / 1e6
    programs = {
        "read": [sys.executable, "-P", "-c", READING, str(records)],
        "render": [sys.executable, "-P", "-m", "spdnn", "report", str(records), "-o", str(page)],
    }
    for name in [only] if only else programs:
        wall, processor, peak = timed(programs[name])
        size = f"{page.stat().st_size / 1e6:.2f}" if page.exists() else "-"
        tell(name, runs, operations, f"{megabytes:.1f}", f"{wall:.2f}", f"{processor:.2f}", f"{peak:.0f}", size)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 10_000], help="run records (default: 1000 10000)")
    parser.add_argument("--operations", type=int, help="operation records (default: a fifth of the runs)")
    parser.add_argument("--only", choices=["read", "render"], help="one program (default: both)")
    args = parser.parse_args()
    tell(*COLUMNS)
    for runs in args.runs:
        operations = runs // 5 if args.operations is None else args.operations
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), runs, operations, args.only)


if __name__ == "__main__":
    main()
