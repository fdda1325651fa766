"""`spdnn record check`: whether records hold, and whether their runs give the same once more."""

from __future__ import annotations

import sys

from spdnn.cli import arguments
from spdnn.common.errors import InputError, SpdnnError
from spdnn.problem.request import reading
from spdnn.records.record_files import record_files

DESCRIPTION = """\
Check run records: fields, claims, seals and digests, and the official truth of official problems, without
running anything; and say what evidence a record lacks. With --rerun, each run is repeated here, on one rank,
and categories, digest of the output and, on the same kind of machine, times are compared. No text of a record
is run, and no file is opened that it names: networks and inputs of your own are named here.
"""
EPILOG = """\
exit status: 0 every record holds (and its run gave the same), 1 one does not
"""


def add(group) -> None:
    group.description = "Records of runs."
    kinds = group.add_subparsers(metavar="ACTION", required=True)
    check = kinds.add_parser(
        "check", help="check records, and repeat their runs", description=DESCRIPTION, epilog=EPILOG
    )
    check.add_argument(
        "records",
        nargs="+",
        metavar="RECORDS",
        help="record files (.json, or .jsonl: one on each line), folders of them, or a workflow's results/",
    )
    check.add_argument("--rerun", action="store_true", help="run what each record tells of, and compare")
    check.add_argument("--network", metavar="FILE", help="the network of the records, where no formula makes it")
    check.add_argument("--inputs", metavar="FILE", help="their inputs, where no formula makes them")
    arguments.option(check, "mnist")
    arguments.add_reading(check)
    check.set_defaults(run=_check)


def _check(chosen) -> int:
    from spdnn.records.files import read_all
    from spdnn.report.common.words import printable
    from spdnn.verify import evidence

    if not chosen.rerun and (named := [name for name in ("network", "inputs", "mnist") if getattr(chosen, name)]):
        raise InputError(f"--{named[0]} is for --rerun alone: without it nothing is run")
    failed, count = 0, 0
    for path in (path for name in chosen.records for path in record_files(name).records):
        try:
            runs, operations = read_all([path])
        except SpdnnError as error:
            failed += _refused(error)
            continue
        count += len(runs)
        if operations:
            print(f"{path}: {len(operations)} operation records: fields and claims hold")
        for record in runs:
            try:
                evidence.check(record, f"{path}: {record.case}")
                print(f"{printable(record.case)}: fields and claims hold")
                for phrase in evidence.missing(record):
                    print(f"  lacks    {phrase}")
                failed += _rerun(chosen, record) if chosen.rerun else 0
            except SpdnnError as error:
                failed += _refused(error)
    if not count and not failed:
        print("no run record there")
    return 1 if failed else 0


def _refused(error: SpdnnError) -> bool:
    from spdnn.report.common.words import printable

    print(f"spdnn: {printable(error, 1000)}", file=sys.stderr)
    return True


def _rerun(chosen, record) -> bool:
    """Repeat a record's run, and print what came out; whether it contradicts the record."""
    from spdnn.formats.readers import open_inputs, open_network
    from spdnn.pipeline.rerun import rerun

    network = open_network(chosen.network, **reading(chosen)) if chosen.network else None
    inputs = open_inputs(chosen.inputs, record.problem.neurons) if chosen.inputs else None
    outcome = rerun(record, network, inputs, chosen.mnist)
    for word, sentences in zip(("same", "open", "WRONG"), outcome, strict=True):
        for sentence in sentences:
            print(f"  {word:<8} {sentence}")
    return bool(outcome.wrong)
