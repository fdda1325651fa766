"""Rule prepare: search for reductions and lay the network out for its engine."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.runs.workflow.stages import prepare

    params = snakemake.params
    prepare(params.engine, params.reductions, params.memory, snakemake.input[0], snakemake.output[0])
