"""Rule report: one page from all records."""

from pathlib import Path

from spdnn.pipeline.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.report.rendering import Folder, render

    records = [
        *map(Path, snakemake.input.records),
        *map(Path, snakemake.input.measured),
        *(path for folder in snakemake.input.peers for path in sorted(Path(folder).glob("*.json"))),
        *map(Path, snakemake.input.ops),
    ]
    render(
        [Folder(records, expected=snakemake.params.cases)],
        Path(snakemake.output.page),
        Path(snakemake.input.baselines),
        figures=Path(snakemake.output.figures),
    )
