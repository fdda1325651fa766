"""Fuzzing of every reader: python tests/fuzz/run.py [--seconds 600] [--workers N] [TARGET...].

Each target has a process of its own (one.py) and a share of the time. It fails by a crash, by more than 5 s or 1 GB for
one input, by anything that is no sentence of ours, and by taking what its check refuses. Such inputs are kept in
build/fuzz/failed; those that found new ways through the code in build/fuzz/corpus, where the next run begins.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
BUILD = HERE.parents[1] / "build" / "fuzz"
LIMITS = ("-timeout=5", "-rss_limit_mb=1024", "-print_final_stats=1", "-verbosity=0")
SHARED = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # in memory, for a file is written for each input
LEFT = 300  # seconds that a process may take to begin and to end
MOST_FAILURES = 5  # of a target, which is left then


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("targets", nargs="*")
    args = parser.parse_args()
    known = re.findall(r'^    "(.+?)": Target\(', (HERE / "targets.py").read_text(encoding="utf-8"), re.MULTILINE)
    if unknown := set(args.targets) - set(known):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    targets = args.targets or known
    share = args.seconds * args.workers / len(targets)
    with ThreadPoolExecutor(args.workers) as pool:
        results = list(pool.map(lambda name: fuzz(name, share), targets))
    print(f"\n{'format':<20}{'inputs':>12}{'failures':>10}")
    for name, (inputs, failures) in zip(targets, results, strict=True):
        print(f"{name:<20}{inputs:>12,}{failures:>10}")
    inputs, failures = map(sum, zip(*results, strict=True))
    print(f"{'all':<20}{inputs:>12,}{failures:>10}")
    if failures:
        print(f"failing inputs are in {BUILD / 'failed'}; once mended, copy each to tests/fuzz/cases/FORMAT/")
    return 1 if failures else 0


def fuzz(name: str, seconds: float) -> tuple[int, int]:
    """(inputs that were tried, those that failed) in so many seconds."""
    corpus, failed = BUILD / "corpus" / name.replace(" ", "-"), BUILD / "failed" / name.replace(" ", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    failed.mkdir(parents=True, exist_ok=True)
    until, inputs, failures = time.monotonic() + seconds, 0, 0
    while (left := until - time.monotonic()) > 0 and failures < MOST_FAILURES:
        options = [*LIMITS, f"-max_total_time={max(1, round(left))}", f"-artifact_prefix={failed}/"]
        command = [sys.executable, str(HERE / "one.py"), name, str(corpus), *options]
        with tempfile.TemporaryDirectory(prefix="spdnn-fuzz-", dir=SHARED) as folder:
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "SPDNN_FUZZ_FOLDER": folder}
            try:
                done = subprocess.run(command, capture_output=True, env=environment, timeout=left + LEFT)
                status, said = done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")
            except subprocess.TimeoutExpired as error:
                status, said = 1, f"it did not end\n{(error.stderr or b'').decode('utf-8', 'replace')}"
        inputs += sum(map(int, re.findall(r"number_of_executed_units: *(\d+)", said)))
        if status:
            failures += 1
            told = [line for line in said.splitlines() if not line.startswith(("INFO: ", "WARNING: ", "stat::"))]
            print(f"--- {name}", *told[-40:], sep="\n", flush=True)
    print(f"{name}: {inputs:,} inputs, {failures} failures", flush=True)
    return inputs, failures


if __name__ == "__main__":
    sys.exit(main())
