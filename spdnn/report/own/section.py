"""The section on networks that are none of the twelve: one's own, and parts of official ones."""

from collections.abc import Iterator

from spdnn.report.common import plotting
from spdnn.report.common.collection import Collection
from spdnn.report.common.drawing import MOST_BARS, RECORD, Figure
from spdnn.report.common.run_rows import latest
from spdnn.report.common.words import significant


def values(collection: Collection) -> dict | None:
    """What the section prints: `runs`, the fastest by inputs a second first, and of each network the latest run whose
    outputs were compared with labels (`labelled`); None without a run.
    """
    runs = [run for run in collection.own if not run.official_size]
    runs.sort(key=lambda run: (-run.inputs_per_second, run.number))
    labelled = latest((run for run in runs if run.record.accuracy), lambda run: run.problem_key)
    return {"runs": runs, "labelled": labelled} if runs else None


def figures(values: dict) -> Iterator[Figure]:
    """Inputs a second of the fastest runs; nothing for one run."""
    if len(values["runs"]) == 1:
        return  # a figure of one bar says no more than the sentence
    shown = values["runs"][:MOST_BARS]
    rates = [run.inputs_per_second for run in shown]

    def plot(narrow: bool = False):
        plot, axes = plotting.canvas(0.9 + 0.36 * len(shown), narrow=narrow)
        for row, (run, rate) in enumerate(zip(shown, rates, strict=True)):
            axes.broken_barh([(0, rate)], (row - 0.3, 0.6), facecolors=plotting.colours()[0],
                             gid=f"{RECORD}{run.number}")  # fmt: skip
            plotting.write_after(axes, f"{significant(run.inference_seconds, 3)} s", rate, row, size=9)
        axes.set_xlim(0, 1.2 * max(rates))
        axes.set_xlabel("inputs a second; after each bar, its inference seconds", loc="left")
        plotting.name_rows(plot, axes, [plotting.fold(run.short, 26) for run in shown], fontsize=9)
        return plot

    more = len(values["runs"]) - len(shown)
    yield Figure(
        "own-networks",
        "Inputs a second of networks that are none of the twelve",
        "Inputs ÷ median inference seconds." + (f" The fastest; {more} more are in the table." if more else ""),
        plot(),
        ("case", "inputs a second", "inference seconds"),
        [(run.case, rate, run.inference_seconds) for run, rate in zip(shown, rates, strict=True)],
        {run.number: f"{run.case}: {rate:.4g} inputs/s" for run, rate in zip(shown, rates, strict=True)},
        plot(True),
    )
