"""Rule fetch_file: one external file of config/data.tsv, verified."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.core.errors import SpdnnError
    from spdnn.formats.catalog import read_sources
    from spdnn.formats.fetch import fetch

    INSTEAD = {
        "mnist-train-images": "; give its file (--config mnist=FILE), or take inputs=digits, which need no download",
        "dlmc": "; give a copy of your own, dlmc.tar.gz or the folder that it unpacks to (ops: {dlmc: PATH}), or a "
        "mirror that has dlmc/dlmc.tar.gz",
    }
    name = next(name for name, source in read_sources().items() if source.path == snakemake.wildcards.file)
    try:
        fetch(name, "results/data", mirror=snakemake.params.mirror)
    except SpdnnError as error:
        raise SpdnnError(f"{error}{INSTEAD.get(name, '')}") from error
