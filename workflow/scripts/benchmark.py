"""Rule benchmark: join samples and verdict into the run record; refuse a verdict that is not pass."""

import shlex

from spdnn.jobs import logged

with logged(snakemake.log[0]):
    from spdnn.measure import read_samples, record
    from spdnn.records import read_verdict, write_record

    case, config = snakemake.params.case, snakemake.config
    measurement, summary = read_samples(snakemake.input.samples)
    settings = {"engines": case.engine, "reductions": case.reductions, "threads": case.threads}
    settings |= {key: config[key] for key in ("count", "memory", "repeats") if config[key] is not None}
    if not case.inputs.startswith("own-"):
        inputs, neurons = case.inputs.rsplit("-", 1)
        settings |= {"neurons": neurons, "layers": case.layers, "inputs": inputs, "source": config["source"]}
    command = ["snakemake", "--cores", str(case.threads), f"results/records/{case.name}.json"]
    command += ["--configfile", *snakemake.params.configfiles] if snakemake.params.configfiles else []
    command += ["--config", *(f"{key}={value}" for key, value in settings.items())]
    verdict = read_verdict(snakemake.input.verdict)
    write_record(snakemake.output[0], record(case.name, measurement, summary, verdict, shlex.join(command)))
