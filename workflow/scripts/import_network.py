"""Rule import_network: an official archive, or a network of the user's own, into a store."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.formats.readers import import_network

    import_network(snakemake.input[0], snakemake.output[0], **snakemake.params.reading)
