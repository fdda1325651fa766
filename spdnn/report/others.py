"""Records that were named besides those of the page: a group for each name, and in no other number of the page."""

from copy import copy

from spdnn.core.shown import listed, plural
from spdnn.core.table import bad, code
from spdnn.report.common import words
from spdnn.report.common.blocks import Block, Paragraph, Part, Section
from spdnn.report.common.collection import Collection
from spdnn.report.common.run_rows import every_run

NAME, TITLE = "others", "Other records"


def section(collection: Collection) -> Section | None:
    """The section; None where no other records were named."""
    if not collection.others:
        return None
    first = "These records were added to the page. Its headline, counts and other sections exclude them."
    return Section(NAME, TITLE, [Paragraph(first), *(_group(*pair) for pair in collection.others.items())])


def _group(name: str, other: Collection) -> Part:
    """The runs under one name. Their records are not in the page, so they have no number."""
    runs = list(map(copy, other.runs))
    for run in runs:
        run.number = None  # the page does not have these records
    failed = [case for case, verdict in other.judged if not verdict.passed]
    machines = sorted({words.machine(record.environment) for record in [*other.records, *other.operations]})
    count = plural(len(runs), "run")
    if other.operations:
        count += f" and {plural(len(other.operations), 'record')} of sparse operations (not listed)"
    about = Paragraph(
        (
            f"{count}; {listed(machines, between='; ')}. ",
            bad(f"Failed verification: {listed(failed)}. ") if failed else "",
            code(f"spdnn report {name}"),
            " makes their own page.",
        ),
        "soft",
    )
    blocks: list[Block] = [about, *([every_run(f"Runs of {name}", runs)] if runs else [])]
    return Part(name, blocks)
