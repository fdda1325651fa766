"""`spdnn verify` and `spdnn record check`: whether categories and records hold, and runs give the same once more."""

from __future__ import annotations

from typing import NamedTuple

from spdnn.cli import arguments
from spdnn.cli.terminal import colour_text, show
from spdnn.core import challenge
from spdnn.core.errors import InputError, SpdnnError, fail
from spdnn.core.request import reading
from spdnn.core.safe_open import existing
from spdnn.core.shown import plural, printable
from spdnn.core.table import Column, Styled, Table
from spdnn.runs.records.cases import record_files

DESCRIPTION = """\
Check the fields, stated figures, checksums and digests of run records, and compare official problems with the
official ground truth, without running anything. Report the evidence that a record lacks. With --rerun, repeat
each run here on one rank and compare the categories, the digest of the output and, on the same kind of machine,
the times. The command runs no text of a record and opens no file that a record names; name your own network and
inputs here.
"""
EPILOG = """\
exit status: 0 every record holds (and its run gave the same), 1 one does not
"""


def add_verify(check) -> None:
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
    from spdnn.runs.verify.judging import load_truth
    from spdnn.runs.verify.verdict import judge_categories

    categories = read_categories(existing(args.categories, "list of categories"))
    official = args.truth.startswith("official:")
    truth = load_truth(args.truth, challenge.INPUTS if official else None)
    verdict = judge_categories(categories, truth)
    if not verdict.passed:
        return fail(f"verification failed: {'; '.join(verdict.reasons)}")
    print(f"{colour_text('pass', 'good')}: {verdict.categories:,} categories, {truth.source}")
    return 0


def add(group) -> None:
    group.description = "Check records of runs."
    kinds = group.add_subparsers(metavar="ACTION", required=True)
    check = kinds.add_parser(
        "check", help="check records, or repeat their runs", description=DESCRIPTION, epilog=EPILOG
    )
    check.add_argument(
        "records",
        nargs="+",
        metavar="RECORDS",
        help="record files (.json, or .jsonl with one per line), folders of them, or results/ of a workflow",
    )
    check.add_argument("--rerun", action="store_true", help="repeat each run and compare")
    check.add_argument(
        "--network", metavar="FILE", help="model file of the records, where no formula makes their network"
    )
    check.add_argument("--inputs", metavar="FILE", help="file of their inputs, where no formula makes them")
    arguments.option(check, "mnist")
    arguments.add_reading(check)
    check.set_defaults(run=_check)


class Finding(NamedTuple):
    """What was found of a record: holds, lacks evidence, or of a run that was repeated same, open or WRONG."""

    case: str
    result: str
    what: str


KINDS = {"holds": "good", "same": "good", "WRONG": "bad"}
FINDINGS = Table(
    "Records",
    [
        Column("record", lambda finding: finding.case),
        Column("result", lambda finding: Styled(finding.result, KINDS.get(finding.result, ""))),
        Column("what", lambda finding: finding.what),
    ],
)


def _check(args) -> int:
    from spdnn.runs.records.files import read_all
    from spdnn.runs.verify import judging

    if not args.rerun and (names := [name for name in ("network", "inputs", "mnist") if getattr(args, name)]):
        raise InputError(f"--{names[0]} is for --rerun alone: without it nothing is run")
    failed, count = 0, 0
    for path in (path for name in args.records for path in record_files(name).records):
        findings: list[Finding] = []
        try:
            runs, operations = read_all([path])
        except SpdnnError as error:
            failed += fail(printable(error, 1000))
            continue
        count += len(runs) + len(operations)
        if operations:
            findings.append(Finding(path.name, "holds", f"{plural(len(operations), 'operation record')}: consistent"))
            if unsealed := sum(not record.seal for record in operations):
                lacking = f"{plural(unsealed, 'operation record')} without checksum: an edit would not be seen"
                findings.append(Finding(path.name, "lacks", lacking))
        for record in runs:
            try:
                judging.check(record, f"{path}: {record.case}")
                findings.append(Finding(record.case, "holds", "consistent"))
                findings += [Finding(record.case, "lacks", phrase) for phrase in record.missing_evidence()]
                findings += _rerun(args, record) if args.rerun else []
            except SpdnnError as error:
                failed += fail(printable(error, 1000))
        failed += any(finding.result == "WRONG" for finding in findings)
        if findings:
            show(FINDINGS, findings)
    if not count and not failed:
        print("no record there")
    return 1 if failed else 0


def _rerun(args, record) -> list[Finding]:
    """Repeat a record's run; what came out."""
    from spdnn.formats.readers import open_inputs, open_network
    from spdnn.runs.rerun import rerun

    network = open_network(args.network, **reading(args)) if args.network else None
    inputs = open_inputs(args.inputs, record.problem.neurons) if args.inputs else None
    outcome = rerun(record, network, inputs, args.mnist)
    pairs = zip(("same", "open", "WRONG"), outcome, strict=True)
    return [Finding(record.case, word, sentence) for word, sentences in pairs for sentence in sentences]
