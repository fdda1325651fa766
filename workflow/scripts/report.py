"""Rule report: one page from all records."""

from pathlib import Path

from spdnn.pipeline.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.pipeline.runs import sound
    from spdnn.report.rendering import Folder, render

    given = snakemake.input
    paths = [Path(path) for path in (*given.records, *sound(given.others), *given.peers, *given.ops)]
    verdicts = [path for path in paths if path.name == "verdict.json"]
    records = [path for path in paths if path not in verdicts and not path.is_dir()]
    records += [file for path in paths if path.is_dir() for file in sorted(path.glob("*.json"))]
    render(
        [Folder(records, verdicts, expected=snakemake.params.cases)],
        Path(snakemake.output.page),
        Path(snakemake.input.baselines),
        figures=Path(snakemake.output.figures),
    )
