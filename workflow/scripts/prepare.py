"""Rule prepare: look for reductions and lay the network out for its engine."""

from spdnn.pipeline.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.engines.registry import engine
    from spdnn.formats.readers import open_network
    from spdnn.formats.store import write_prepared
    from spdnn.measure.run import timed
    from spdnn.reductions.registry import parse_reductions

    params = snakemake.params
    runner = engine(params.engine, usable=False)  # what it runs on may be on other nodes than this one
    network = open_network(snakemake.input[0])
    reductions = parse_reductions(params.reductions, runner.offers)
    prepared, seconds = timed(runner.prepare, network, reductions, params.memory)
    info = {"reductions": list(prepared.reductions), "found": prepared.findings, "prepare_seconds": seconds}
    write_prepared(snakemake.output[0], prepared.network, info)
