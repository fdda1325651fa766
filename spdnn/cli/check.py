"""`spdnn verify` and `spdnn engines`."""

import sys

from spdnn.common.files import existing
from spdnn.engines.registry import engine, names
from spdnn.measure.judging import named_truth
from spdnn.problem import challenge
from spdnn.verify import verdict as verify


def add_verify(check) -> None:
    check.description = "Compare a list of categories with the official truth or a file: the whole set, not its size."
    check.add_argument("--categories", required=True, metavar="out.txt")
    check.add_argument("--truth", required=True, metavar="official:N|FILE")
    check.set_defaults(run=_verify)


def add_engines(command) -> None:
    command.description = "List the engines: what can run here, and what is missing for the others."
    command.set_defaults(run=_engines)


def _verify(args) -> int:
    from spdnn.formats.categories import read_categories

    categories = read_categories(existing(args.categories, "list of categories"))
    official = args.truth.startswith("official:")
    truth = named_truth(args.truth, challenge.INPUTS if official else None)
    verdict = verify.judge_categories(categories, truth)
    if not verdict.passed:
        print(f"spdnn: verdict fail: {'; '.join(verdict.reasons)}", file=sys.stderr)
        return 1
    print(f"pass: {verdict.categories} categories, {truth.source}")
    return 0


def _engines(args) -> None:
    width = max(map(len, names()))
    for name in names():
        one = engine(name, usable=False)
        reason = one.missing()
        print(f"{name:<{width}} {'can run' if reason is None else 'cannot run'}   {one.summary}")
        print(f"{'':<{width}} reductions: {', '.join(one.offers) or 'none'}")
        if reason:
            print(f"{'':<{width}} {reason}")
