"""Rule benchmark: join samples and verdict into the run record; refuse a verdict that is not pass."""

import shlex

from spdnn.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.measure import read_samples, record
    from spdnn.records import read_verdict, write_record

    case, config = snakemake.params.case, snakemake.config
    measurement, summary = read_samples(snakemake.input.samples)
    settings = {
        "engines": case.engine,
        "reductions": case.reductions,
        "threads": case.threads,
        "repeats": config["repeats"],
    }
    settings |= {"count": case.count} if case.count else {}
    settings |= {"memory": config["memory"]} if config["memory"] else {}
    target = f"results/records/{case.name}.json"
    if case.network.startswith(("radixnet-", "official-")):
        inputs, neurons = case.inputs.rsplit("-", 1)
        settings = {
            "neurons": neurons,
            "layers": case.layers,
            "inputs": inputs,
            "source": config["source"],
            **settings,
        }
    command = [
        "snakemake",
        "--cores",
        str(case.threads),
        target,
        "--config",
        *(f"{k}={v}" for k, v in settings.items()),
    ]
    write_record(
        snakemake.output[0],
        record(case.name, measurement, summary, read_verdict(snakemake.input.verdict), shlex.join(command)),
    )
