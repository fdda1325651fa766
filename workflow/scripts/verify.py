"""Rule verify: a result against the official ground truth, a file or the reference."""

from spdnn.pipeline.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.pipeline.stages import verify
    from spdnn.problem.request import RunRequest

    given = snakemake.input
    verify(RunRequest.of(snakemake.params.request), given.result, given.network, given.inputs, snakemake.output[0])
