"""Rule fetch_file: one external file of config/data.tsv, verified."""

from pathlib import Path

from spdnn.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.sources.fetch import fetch

    target = Path(snakemake.output[0])
    fetch(target.name, target.parent, mirror=snakemake.params.mirror)
