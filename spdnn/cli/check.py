"""`spdnn verify`: a list of categories against the truth."""

import sys

from spdnn.cli.colours import GREEN, colour_text
from spdnn.core import challenge
from spdnn.core.files import existing
from spdnn.runs.verify import verdict as verify
from spdnn.runs.verify.judging import load_truth


def add(check) -> None:
    check.description = (
        "Compare a list of categories with the official ground truth or with a file. The whole set must be equal."
    )
    check.add_argument("--categories", required=True, metavar="out.txt", help="list of categories to check")
    check.add_argument(
        "--truth", required=True, metavar="official:N|FILE", help="official list for N neurons, or a file"
    )
    check.set_defaults(run=_verify)


def _verify(args) -> int:
    from spdnn.core.categories import read_categories

    categories = read_categories(existing(args.categories, "list of categories"))
    official = args.truth.startswith("official:")
    truth = load_truth(args.truth, challenge.INPUTS if official else None)
    verdict = verify.judge_categories(categories, truth)
    if not verdict.passed:
        print(f"spdnn: verification failed: {'; '.join(verdict.reasons)}", file=sys.stderr)
        return 1
    print(f"{colour_text('pass', GREEN)}: {verdict.categories:,} categories, {truth.source}")
    return 0
