"""Rule verify: a result against the official ground truth, a file or the reference."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.core.request import RunRequest
    from spdnn.runs.workflow.stages import verify

    given = snakemake.input
    verify(RunRequest.of(snakemake.params.request), given.result, given.network, given.inputs, snakemake.output[0])
