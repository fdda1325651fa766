"""Rule infer: all repeats of one case, a digest of each one's output, and its categories."""

from spdnn.pipeline.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.distributed.local import staged
    from spdnn.distributed.world import world
    from spdnn.engines.base import Options
    from spdnn.engines.registry import engine
    from spdnn.formats.categories import write_categories
    from spdnn.formats.inputs import read_inputs
    from spdnn.formats.readers import open_network
    from spdnn.measure.run import measure, stored, timed, write_result, write_samples
    from spdnn.taskgraph.decomposition import Wanted

    case, given = snakemake.params.case, snakemake.input
    with staged(world(), None, given.network, given.prepared, given.inputs) as (network, prepared, inputs):
        source = open_network(network)
        (prepared, spent), opened = timed(stored, prepared, source, case.layers)
        inputs, read = timed(read_inputs, inputs)
        if case.count is not None:
            inputs = inputs.counted(case.count)
        cut = Wanted(case.schedule, case.devices, device_memory=case.device_memory) if case.schedule else None
        measurement, result = measure(
            engine(case.engine),
            prepared,
            inputs,
            Options(case.threads, snakemake.params.memory, wanted=cut),
            snakemake.params.repeats,
            opened + read,
            spent,
        )
    write_categories(snakemake.output.categories, result.categories)
    write_result(snakemake.output.result, result)
    write_samples(snakemake.output.samples, measurement, result)
