"""Rule import_network: an official archive, or a network of the user's own, into a store."""

from spdnn.pipeline.jobs import logged

STATED = ("last", "bias", "clip", "rows")  # of a file that holds weights alone

with logged(snakemake.log[0]):
    from spdnn.formats.readers import import_network

    options = {name: snakemake.params.own[name] for name in STATED if name in snakemake.params.own}
    import_network(snakemake.input[0], snakemake.output[0], **options)
