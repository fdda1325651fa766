"""Rule import_inputs: official text, or inputs of the user's own, into a store."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.formats.inputs import write_inputs
    from spdnn.formats.readers import open_inputs

    write_inputs(snakemake.output[0], open_inputs(snakemake.input[0]))
