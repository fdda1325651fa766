"""make faults: every seeded fault of tests/faults/table, its test and what verification says of small problems.

    python tests/faults/run.py [--write] [WORD ...]

WORDs choose the faults whose table, name and file have all of them. --write puts the table of all faults into
docs/explanation/trust.md. The exit status is 1 where a fault is not found.
"""

import argparse
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.append(str(TESTS))

import seeded  # noqa: E402

from spdnn.core.files import write_text  # noqa: E402


def main(arguments: list[str]) -> int:
    top = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    top.add_argument("--write", action="store_true", help="put the table into docs/explanation/trust.md")
    top.add_argument("words", nargs="*", metavar="WORD", help="of the tables, names or files of faults")
    given = top.parse_args(arguments)
    if given.write and given.words:
        top.error("--write takes the table of all faults")
    chosen = [
        one
        for one in seeded.faults()
        if all(word in one.table + " " + one.name + " " + one.file for word in given.words)
    ]
    print(f"{len(chosen)} faults; building those of C++", flush=True)
    seeded.module()
    wrong, rows, begun = 0, [], time.perf_counter()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        seeded.problems(None)
        for fault, outcome in zip(chosen, pool.map(seeded.outcome, chosen), strict=True):
            states = ", ".join(f"{name} {state}" for name, state in outcome.problems.items() if state != "same")
            right = outcome.found and bool(outcome.blind) == bool(fault.blind)
            wrong += not right
            print(f"{'' if right else 'NOT '}found: {fault.name}: {states or 'no problem differs'}", flush=True)
            if outcome.told:
                print(outcome.told)
            rows.append(seeded.row(fault, outcome))
    seconds = time.perf_counter() - begun
    print(f"{len(chosen) - wrong} of {len(chosen)} faults are found; {seconds:.0f} s")
    if given.write and not wrong:
        write_text(seeded.PAGE, seeded.page(rows))
    return min(1, wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
