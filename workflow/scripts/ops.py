"""Rule ops: sparse operations and models beside other libraries, a record for each program and problem."""

import shlex

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.bench.models import compare, products_of
    from spdnn.runs.records.files import write_operations

    params = snakemake.params
    command = ["snakemake", "--cores", str(snakemake.threads), "results/ops/operations.jsonl"]
    command += ["--configfile", *params.configfiles] if params.configfiles else []
    archive = next(iter(snakemake.input.archive), None)
    groups = compare(params.ops, shlex.join(command), products_of(params.ops, archive)[1])
    write_operations(snakemake.output[0], [record for group, _ in groups for record in group])
