"""The section on networks that are none of the twelve: one's own, and parts of official ones."""

from collections.abc import Sequence
from functools import partial

from spdnn.core.shown import plural, significant, time
from spdnn.core.table import NUMBER, PERCENT, RATIO, Column, Number, Table
from spdnn.report.common import plotting
from spdnn.report.common.blocks import Block, Paragraph, Section
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import MOST_BARS, Figure
from spdnn.report.common.run_rows import RunRow, every_run, latest

NAME, TITLE = "own", "Networks of your own"
MOST_LABELLED, LISTED_CLASSES = 8, 20  # networks with labels, and classes of one, that are shown


def section(collection: Collection) -> Section | None:
    """The section; None without a run of such a network."""
    runs = [run for run in collection.own if not run.official_size]
    if not runs:
        return None
    runs.sort(key=lambda run: (-run.inputs_per_second, run.number))
    best = runs[0]
    blocks: list[Block] = [
        Paragraph((
            f"The fastest, {best.name}, takes" if len(runs) > 1 else f"{best.name} takes",
            f" {time(best.inference_seconds)} for {plural(best.problem.input_count, 'input')}: ",
            Number(best.inputs_per_second, RATIO), " inputs a second.",
        ))
    ]  # fmt: skip
    for run in latest((run for run in runs if run.record.accuracy), lambda run: run.problem_key)[:MOST_LABELLED]:
        blocks += _accuracy(run)
    if len(runs) > 1:  # a figure of one bar says no more than the sentence
        blocks.append(_rates(runs))
    return Section(NAME, TITLE, [*blocks, every_run("Every run of these networks", runs, "own-runs")])


def _accuracy(run: RunRow) -> list[Block]:
    """How many outputs hit their labels, and which classes were taken for which."""
    accuracy, count = run.record.accuracy, run.problem.input_count
    text = f" of the inputs (top-1, {accuracy.top1:,} of {count:,})."
    share = Number(accuracy.top1 / count, PERCENT)
    blocks: list[Block] = [Paragraph((f"{run.short}: the largest output is that of the label for ", share, text))]
    if accuracy.confusion and len(accuracy.confusion) <= LISTED_CLASSES:
        classes = range(len(accuracy.confusion))
        columns = [Column(str(k), lambda row, k=k: accuracy.confusion[row][k], NUMBER) for k in classes]
        table = Table("Confusion matrix", [Column("Label", str), *columns], "Inputs by label (row) and largest output")
        blocks.append(table.of(classes, title=f"Confusion matrix of {run.short}"))
    return blocks


def _rates(runs: Sequence[RunRow]) -> Figure:
    """Inputs a second of the fastest runs."""
    shown = runs[:MOST_BARS]
    more = f" The fastest; {len(runs) - len(shown)} more are in the table." if len(runs) > len(shown) else ""
    return Figure(
        "own-networks",
        "Inputs a second of networks that are none of the twelve",
        f"Inputs ÷ median inference seconds.{more}",
        partial(_plot, shown),
        ("case", "inputs a second", "inference seconds"),
        [(run.case, run.inputs_per_second, run.inference_seconds) for run in shown],
        {run.number: f"{run.case}: {run.inputs_per_second:.4g} inputs/s" for run in shown},
        narrow=True,
    )


def _plot(shown: Sequence[RunRow], narrow: bool):
    colour = plotting.colours()[0]
    bars = [
        plotting.Bar(
            run.short, [(run.inputs_per_second, colour)], f"{significant(run.inference_seconds, 3)} s", run.number
        )
        for run in shown
    ]
    return plotting.bars(bars, "inputs a second; after each bar, its inference seconds", narrow)[0]
