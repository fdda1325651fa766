# Tables and targets: the checked configuration, its cases, and what a rule depends on besides its files.
import re
import shlex
import sys
from functools import cache
from pathlib import Path

from snakemake.common.configfile import load_configfile
from snakemake.exceptions import WorkflowError
from snakemake.resources import Resources
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import update_config

from spdnn.common.errors import SpdnnError
from spdnn.common.provenance import code_digest
from spdnn.common.resources import usable_cores
from spdnn.common.tables import table
from spdnn.common.validation import encode
from spdnn.engines.registry import ENGINES
from spdnn.pipeline import config as settings, estimates, runs, slurm
from spdnn.pipeline.targets import Targets, configfiles, one_of, stores
from spdnn.problem.request import reading
from spdnn.records.record_files import record_files

# The default configuration lies beside the Snakefile; what is asked for, wherever Snakemake runs, changes it.
changes, config = config, load_configfile(workflow.source_path("../../config/config.yaml"))
update_config(config, changes)
# Jobs of a cluster run on its nodes, and only those that run an engine need its device: they ask for it themselves.
ELSEWHERE = workflow.remote_exec or workflow.resource_settings.nodes is not None
try:
    config = settings.check(config, workflow.source_path("../schemas/config.schema.yaml"))
    TARGETS = Targets(settings.requests(config))
    TARGETS.check(ELSEWHERE)
    MNIST = TARGETS.mnist()
    OTHERS = {name: record_files(name) for name in config["other_records"]}
except SpdnnError as error:
    raise WorkflowError(str(error))
CASES, case_of = TARGETS.cases, TARGETS.case
CORES = workflow.resource_settings.cores or usable_cores()
CONFIGFILES = configfiles(workflow.overwrite_configfiles)
CONFIGURATION = " + ".join(Path(file).stem for file in CONFIGFILES) or "config"
PEERS = config["peers"] or {}
OPS = config["ops"] or {}
DLMC = "results/data/dlmc/dlmc.tar.gz" if OPS.get("dlmc") == "fetch" else OPS.get("dlmc")
runs.keep_jobs(Path(str(workflow.current_basedir)).parents[1])
if workflow.is_main_process:  # and not in a job
    runs.unlock_after_kill(Path("results"))
# Snakemake 9 puts this path into the shell commands of scripts and of cluster jobs as it is; a blank would end it there.
if Path(sys.executable).exists():
    sys.executable = shlex.quote(sys.executable)
if workflow.is_main_process and not ELSEWHERE and (most := TARGETS.threads(CORES)) > (cores := usable_cores()):
    print(f"spdnn: warning: config: {most} threads on {cores} cores run slower than {cores}", file=sys.stderr)


@cache
def engine_code(engine, *modules):
    """The digest of the sources that a run of `engine` reaches, and of `modules`."""
    return code_digest(
        "spdnn.pipeline.measure.run", ENGINES.get(engine, "spdnn.engines.registry:").split(":")[0], *modules
    )


def program(name):
    """How a shell command calls a program: the one beside this Python, unless conda makes another environment."""
    beside = Path(sys.prefix, "bin", name)
    elsewhere = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
    return name if elsewhere or not beside.exists() else shlex.quote(str(beside))


def every_core(threads):
    """`threads`, or all cores that Snakemake has here: nothing runs beside a clock. A cluster's job has `threads`."""
    return threads or CORES if ELSEWHERE else max(threads or 1, CORES)


def needed(stage, **more):
    """Resources of a rule as `stage` of spdnn.pipeline.estimates has them; a job sent again gets twice as much, then three times."""

    def need(wildcards, input):
        case = case_of(wildcards)
        files = sum(Path(file).stat().st_size for file in input) if case.network else 0
        return stage(case, CASES.values(), files, **more)

    megabytes = lambda wildcards, input, attempt: attempt * need(wildcards, input).megabytes
    minutes = lambda wildcards, input, attempt: attempt * need(wildcards, input).minutes
    return {"mem_mb": megabytes, "runtime": minutes}


def of_site(rule, name):
    """A constant resource of a rule that a profile or the command line sets, or None."""
    return Resources.from_mapping(workflow.resource_settings.overwrite_resources.get(rule, {})).get(name).value


def after_devices(resources):
    """The resource slurm_extra of a rule: devices of a task, of the site's `gpu_type`, then the site's slurm_extra."""
    given = [resources.get(name) for name in ("gpus_per_task", "gpu_type", "slurm_extra")]

    def extra(wildcards, **others):
        devices, kind, rest = (resource.evaluate(wildcards, **others).value for resource in given)
        request = f"--gpus-per-task={kind}:{devices}" if kind else f"--gpus-per-task={devices}"
        return " ".join(filter(None, (request if devices else None, rest)))

    return extra


def launcher(resources):
    """What starts ranks; srun gives each rank devices of its own only where it is asked itself."""
    request = re.match(r"--gpus-per-task=\S+", resources.get("slurm_extra") or "")
    asked = request and Path(shlex.split(resources.mpi)[0]).name == "srun"
    return f"{resources.mpi} {request[0]}" if asked else resources.mpi


def given_memory(wildcards, resources):
    """Bytes that a cluster's job may hold. A function of resources is no reason to run again, as a changed key is."""
    return estimates.allowed_bytes(resources.mem_mb) if workflow.remote_exec else None


def inference(*modules):
    """Params of a rule whose shell is INFER, but `launch`, which starts the ranks; its code is an engine's and `modules`."""
    return {
        "request": lambda wildcards: shlex.quote(encode(case_of(wildcards).values).decode()),
        "limits": lambda wildcards, resources: (
            f"--memory {given_memory(wildcards, resources)} --time-limit {estimates.time_limit(resources.runtime)}"
            if workflow.remote_exec
            else ""
        ),
        # A function of resources is no reason to run again: where Python lies changes no result.
        "python": lambda wildcards, resources: program("python"),
        "code": lambda wildcards: engine_code(case_of(wildcards).engine, *modules),
    }


# What a rank starts. Its output is the log; a sentence of what went wrong, or the last lines, is on the terminal too.
INFER = (
    "{params.launch}{params.python} -m spdnn run {params.request} {params.limits}"
    " --network {input.network} --prepared {input.prepared} --inputs {input.inputs}"
    " --categories {output.categories} --result {output.result} --samples {output.samples}"
    " >{log} 2>&1 </dev/null ||"
    " {{ status=$?; {{ grep '^spdnn: ' {log} | grep -v '^spdnn: warning: ' || tail -n 20 {log}; }} >&2; exit $status; }}"
)


def not_made():
    """Outputs that this run was to make and has not: what lies under such a name is of an earlier run."""
    return {str(file) for job in workflow.dag.needrun_jobs() for file in job.output}


wildcard_constraints:
    case=one_of(CASES),
    prepared=one_of({case.prepared_name for case in CASES.values()}),
    network=rf"(radixnet|official|unstructured)-\d+|{one_of(TARGETS.networks)}",
    source="radixnet|unstructured",
    inputs=rf"(digits|mnist|official)-\d+|{one_of(TARGETS.inputs)}",
    neurons=r"\d+",
