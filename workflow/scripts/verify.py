"""Rule verify: a result against the official truth, a file or the oracle."""

from spdnn.pipeline.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.formats.inputs import read_inputs
    from spdnn.formats.readers import open_network
    from spdnn.measure.judging import judge
    from spdnn.measure.run import read_result
    from spdnn.records.files import write_verdict

    case = snakemake.params.case
    inputs = read_inputs(snakemake.input.inputs)
    if case.count is not None:
        inputs = inputs.counted(case.count)
    network = open_network(snakemake.input.network).first(case.layers)
    result = read_result(snakemake.input.result)
    params = snakemake.params
    # The presets must be worth running; in unstructured networks all inputs survive, and values are what tells.
    telling = not case.inputs.startswith("own-") and not case.network.startswith("unstructured-")
    write_verdict(snakemake.output[0], judge(network, inputs, result, params.truth, params.edges, params.seed, telling))
