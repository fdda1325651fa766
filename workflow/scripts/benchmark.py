"""Rule benchmark: join samples, verdict and stages' times into the run record; refuse a verdict that is not pass."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.core.request import RunRequest
    from spdnn.runs.workflow.stages import benchmark

    given, params = snakemake.input, snakemake.params
    stages = {stage: getattr(given, stage) for stage in ("inputs", "network", "prepare", "infer", "verify")}
    request = RunRequest.of(params.request)
    benchmark(request, given.samples, given.verdict, stages, params.configuration, snakemake.output[0])
