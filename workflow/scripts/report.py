"""Rule report: one page from all records."""

from pathlib import Path

from spdnn.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.report import render

    render(
        [Path(path) for path in snakemake.input.records],
        [],
        Path(snakemake.output[0]),
        Path(snakemake.input.baselines),
    )
