"""Rule report: one page from all records of the configuration."""

from pathlib import Path

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.report.rendering import RecordFolder, render
    from spdnn.runs.records.cases import record_files

    given, params = snakemake.input, snakemake.params
    records = [Path(path) for path in (*given.records, *given.ops)]
    records += [path for folder in given.peers for path in sorted(Path(folder).glob("*.json"))]
    render(
        [RecordFolder(records, expected=params.cases, decided=params.decided)],
        Path(snakemake.output.page),
        Path(given.baselines),
        figures=Path(snakemake.output.figures),
        processes=snakemake.threads,
        summary=Path(snakemake.output.summary),
        others={name: record_files(name) for name in params.others},
    )
