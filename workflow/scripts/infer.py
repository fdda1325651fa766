"""Rule infer: all repeats of one case, a digest of each one's output, and its categories."""

from spdnn.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.engines import Options, Prepared, engine
    from spdnn.formats import open_network
    from spdnn.formats.categories import write_categories
    from spdnn.formats.inputs import read_inputs
    from spdnn.formats.store import read_prepared
    from spdnn.measure import measure, timed, write_result, write_samples

    case = snakemake.params.case
    (network, info), opened = timed(read_prepared, snakemake.input.prepared)
    inputs, read = timed(read_inputs, snakemake.input.inputs)
    if case.count is not None:
        inputs = inputs.counted(case.count)
    source = open_network(snakemake.input.network).first(network.depth)
    prepared = Prepared(source, network, tuple(info["reductions"]), info["found"]).first(case.layers)
    measurement, result = measure(
        engine(case.engine),
        prepared,
        inputs,
        Options(case.threads, snakemake.params.memory),
        snakemake.params.repeats,
        opened + read,
        info["prepare_seconds"],
    )
    write_categories(snakemake.output.categories, result.categories)
    write_result(snakemake.output.result, result)
    write_samples(snakemake.output.samples, measurement, result)
