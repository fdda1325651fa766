"""Rule prepare: search for reductions and lay the network out for its engine."""

from spdnn.pipeline.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.pipeline.stages import prepare

    params = snakemake.params
    prepare(params.engine, params.reductions, params.memory, snakemake.input[0], snakemake.output[0])
