"""Rule fetch_file: one external file of config/data.tsv, verified."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.core.errors import SpdnnError
    from spdnn.formats.catalog import read_sources
    from spdnn.formats.fetch import INSTEAD, fetch

    digits = "; give its file (--config mnist=FILE), or take inputs=digits, which need no download"
    instead = INSTEAD | {"mnist-train-images": digits}
    name = next(name for name, source in read_sources().items() if source.path == snakemake.wildcards.file)
    try:
        fetch(name, "results/data")
    except SpdnnError as error:
        raise SpdnnError(f"{error}{instead.get(name, '')}") from error
