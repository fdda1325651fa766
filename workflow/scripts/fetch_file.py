"""Rule fetch_file: one external file of config/data.tsv, verified."""

from spdnn.pipeline.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.sources.catalog import read_sources
    from spdnn.sources.fetch import fetch

    name = next(name for name, source in read_sources().items() if source.path == snakemake.wildcards.file)
    fetch(name, "results/data", mirror=snakemake.params.mirror)
