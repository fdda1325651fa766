"""Rule make_inputs: inputs by formula, from MNIST or from the digits that scikit-learn bundles."""

from spdnn.runs.workflow.jobs import log_errors

with log_errors(snakemake.log[0]):
    from spdnn.formats.inputs import write_inputs

    neurons = int(snakemake.wildcards.neurons)
    if snakemake.wildcards.kind == "mnist":
        from spdnn.formats.mnist import mnist_inputs

        made = mnist_inputs(neurons, snakemake.input[0])
    else:
        from spdnn.formats.digits import digits_inputs

        made = digits_inputs(neurons)
    write_inputs(snakemake.output[0], made, durable=False)  # it is removed in a minute
