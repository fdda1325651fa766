"""Rule benchmark: join samples, verdict and stages' times into the run record; refuse a verdict that is not pass."""

import shlex

from spdnn.pipeline.jobs import logged

with logged(snakemake.log[0]):
    from msgspec.structs import replace

    from spdnn.common.errors import SpdnnError
    from spdnn.measure.record import read_samples, record_of
    from spdnn.records.files import read_verdict, write_record
    from spdnn.records.time_to_solution import WORKFLOW, solution, stage_seconds

    case, config = snakemake.params.case, snakemake.config
    measurement, summary = read_samples(snakemake.input.samples)
    if measurement.ranks != case.ranks:
        raise SpdnnError(
            f"{snakemake.input.samples}: measured on {measurement.ranks} ranks, and the case has {case.ranks}; start "
            "as many, with the launcher of the MPI that mpi4py uses (resource mpi of infer_ranks), and remove this file"
        )
    settings = {"engines": case.engine, "reductions": case.reductions, "threads": case.threads, "ranks": case.ranks}
    settings |= {"partition": case.partition} if case.partition else {}
    settings |= {"schedules": case.schedule, "devices": case.devices} if case.schedule else {}
    # Nulls are told as well: a file of --configfile may say otherwise.
    nullable = {key: config[key] for key in ("count", "inputs_per_rank", "memory", "device_memory", "repeats")}
    if config["cases"]:  # the case alone, as whatever item of the list it may be
        nullable |= {"count": case.count, "inputs_per_rank": None, "device_memory": case.device_memory}
        settings |= {"cases": "[]", "ladder": "[]"}
    settings |= {key: "null" if value is None else value for key, value in nullable.items()}
    if not case.inputs.startswith("own-"):
        inputs, neurons = case.inputs.rsplit("-", 1)
        settings |= {"neurons": neurons, "layers": case.layers, "inputs": inputs, "source": case.source}
    command = ["snakemake", "--cores", str(case.ranks * case.threads), f"results/records/{case.name}.json"]
    command += ["--configfile", *snakemake.params.configfiles] if snakemake.params.configfiles else []
    command += ["--config", *(f"{key}={value}" for key, value in settings.items())]
    stages = ("inputs", "network", "prepared", "infer", "verify")
    inputs, network, prepared, run, verify = (stage_seconds(getattr(snakemake.input, stage)) for stage in stages)
    run -= measurement.aside_seconds
    first = measurement.samples.inference_seconds[0]
    parts = {"inputs": inputs, "network": network, "prepare": prepared, "inference": first, "verification": verify}
    parts["startup"] = max(0.0, run - first)  # and opening the stores
    spent = solution(WORKFLOW, sum(parts.values()), **parts)
    measurement = replace(measurement, time_to_solution=spent)
    verdict = read_verdict(snakemake.input.verdict)
    if not verdict.judged:
        raise SpdnnError(f"{snakemake.input.verdict}: it does not tell what it judged; remove it, and it is made anew")
    write_record(snakemake.output[0], record_of(case.name, measurement, summary, verdict, shlex.join(command)))
