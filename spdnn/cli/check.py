"""`spdnn verify` and `spdnn engines`."""

import sys

from spdnn.cli.colours import GREEN, coloured
from spdnn.common.files import existing
from spdnn.engines.registry import engine, names
from spdnn.measure.judging import named_truth
from spdnn.problem import challenge
from spdnn.verify import verdict as verify


def add_verify(check) -> None:
    check.description = (
        "Compare a list of categories with the official ground truth or with a file. The whole set must be equal."
    )
    check.add_argument("--categories", required=True, metavar="out.txt", help="list of categories to check")
    check.add_argument(
        "--truth", required=True, metavar="official:N|FILE", help="official list for N neurons, or a file"
    )
    check.set_defaults(run=_verify)


def add_engines(command) -> None:
    command.description = "List the engines that can run here, and what the others need."
    command.set_defaults(run=_engines)


def _verify(args) -> int:
    from spdnn.formats.categories import read_categories

    categories = read_categories(existing(args.categories, "list of categories"))
    official = args.truth.startswith("official:")
    truth = named_truth(args.truth, challenge.INPUTS if official else None)
    verdict = verify.judge_categories(categories, truth)
    if not verdict.passed:
        print(f"spdnn: verification failed: {'; '.join(verdict.reasons)}", file=sys.stderr)
        return 1
    print(f"{coloured('pass', GREEN)}: {verdict.categories:,} categories, {truth.source}")
    return 0


def _engines(args) -> None:
    width = max(map(len, names()))
    engines = [(name, engine(name, usable=False)) for name in names()]
    missing = {name: one.missing() for name, one in engines}
    print("These run here, with the reductions that they offer:")
    for name, one in engines:
        if missing[name] is None:
            default, offers = "default: " if name == "cpu" else "", ", ".join(one.offers) or "no reductions"
            print(f"  {name:<{width}}  {default}{one.summary} ({offers})")
    print("These do not run here:")
    for name, _ in engines:
        if missing[name]:
            print(f"  {name:<{width}}  {missing[name]}")
