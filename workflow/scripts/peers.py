"""Rule peers: other libraries and our kernels on the configured problems, a record for each."""

import shlex

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.bench.networks import compare, write_records
    from spdnn.formats.inputs import read_inputs

    params = snakemake.params
    command = ["snakemake", "--cores", str(snakemake.threads), "results/peers"]
    command += ["--configfile", *params.configfiles] if params.configfiles else []
    inputs = read_inputs(snakemake.input.inputs[0]) if snakemake.input.inputs else None
    groups = compare(params.peers, shlex.join(command), inputs)
    write_records(snakemake.output[0], [record for group, _ in groups for record in group])
