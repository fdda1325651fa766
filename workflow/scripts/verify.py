"""Rule verify: a result against the official ground truth, a file or the reference."""

from spdnn.pipeline.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.pipeline.stages import verify
    from spdnn.problem.request import RunRequest

    given = snakemake.input
    verify(RunRequest.of(snakemake.params.request), given.result, given.network, given.inputs, snakemake.output[0])
