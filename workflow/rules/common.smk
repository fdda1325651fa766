# Tables and targets: the checked configuration, its cases, and what a rule depends on besides its files.
import re
import shlex
import sys
from pathlib import Path

from snakemake.common.configfile import load_configfile
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import update_config

from spdnn.pipeline import config as settings
from spdnn.pipeline import estimates, runs
from spdnn.reductions.registry import parse_reductions
from spdnn.engines.registry import ENGINES, engine
from spdnn.records.record_files import record_files
from spdnn.common.tables import table
from spdnn.common.errors import SpdnnError
from spdnn.common.resources import usable_cores
from spdnn.common.provenance import code_digest

# The default configuration lies beside the Snakefile; what is asked for, wherever Snakemake runs, changes it.
changes, config = config, load_configfile(workflow.source_path("../../config/config.yaml"))
update_config(config, changes)
try:
    config = settings.check(config, workflow.source_path("../schemas/config.schema.yaml"))
    runs.check_own(config["networks"])
    CASES = {case.name: case for case in settings.cases(config)}
    # Jobs of a cluster run on its nodes, and only those that run an engine need its device: they ask for it themselves.
    ELSEWHERE = workflow.remote_exec or workflow.resource_settings.nodes is not None
    for case in CASES.values():
        known = engine(case.engine, usable=False)
        runner = known if ELSEWHERE and known.on_device else engine(case.engine)
        parse_reductions(case.reductions, runner.offers)
    OTHERS = {name: record_files(name) for name in config["other_records"]}
except SpdnnError as error:
    raise WorkflowError(str(error))
# As a command in the folder of the run names them.
CONFIGFILES = [
    str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
    for path in map(Path, workflow.overwrite_configfiles)
]
runs.keep_jobs(Path(str(workflow.current_basedir)).parents[1])
# Snakemake 9 puts this path into the shell commands of scripts and of cluster jobs as it is; a blank would end it there.
if Path(sys.executable).exists():
    sys.executable = shlex.quote(sys.executable)
if workflow.is_main_process:
    runs.enter(Path("results"))
    if (
        not ELSEWHERE
        and (most := max((case.threads * case.ranks for case in CASES.values()), default=0)) > usable_cores()
    ):
        print(
            f"spdnn: warning: config: {most} threads on {usable_cores()} cores run slower than {usable_cores()}",
            file=sys.stderr,
        )
OWN = {own["name"]: own for own in config["networks"]}
PEERS = config.get("peers") or {}
OPS = config.get("ops") or {}
DLMC = "results/data/dlmc/dlmc.tar.gz" if OPS.get("dlmc") == "fetch" else OPS.get("dlmc")
MNIST = config["fetch"]["mnist"] or "results/data/mnist/train-images-idx3-ubyte.gz"


def one_of(names):
    """A pattern that matches these names and nothing else."""
    return "|".join(map(re.escape, sorted(names))) or "(?!)"


def engine_code(engine, *modules):
    """The digest of the sources that a run of `engine` reaches, and of `modules`."""
    return code_digest("spdnn.measure.run", ENGINES.get(engine, "spdnn.engines.registry:").split(":")[0], *modules)


def program(name):
    """How a shell command calls a program: the one beside this Python, unless conda makes another environment."""
    beside = Path(sys.prefix, "bin", name)
    elsewhere = DeploymentMethod.CONDA in workflow.deployment_settings.deployment_method
    return name if elsewhere or not beside.exists() else shlex.quote(str(beside))


def options(**values):
    """Options of a command, less those that are None: the command has its own default for them."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in values.items() if value is not None)


def gpus(case):
    """GPUs that a case needs: one for each rank of an engine that runs on GPUs, or as many as it has devices."""
    return case.ranks * (case.devices or 1) if engine(case.engine, usable=False).on_device else 0


def every_core(threads):
    """`threads`, or all cores that Snakemake was given here: nothing runs beside a clock. A cluster's job has `threads`."""
    return threads if workflow.remote_exec else max(threads, workflow.resource_settings.cores or 1)


def needed(stage):
    """Resources of a rule as `stage` of spdnn.pipeline.estimates has them; a job sent again gets twice as much, then three times."""

    def need(wildcards, input):
        case = CASES[wildcards.case] if "case" in wildcards.keys() else prepared_case(wildcards)
        return stage(case, config, sum(Path(file).stat().st_size for file in input) if case.network in OWN else 0)

    return {
        "mem_mb": lambda wildcards, input, attempt: attempt * need(wildcards, input).megabytes,
        "runtime": lambda wildcards, input, attempt: attempt * need(wildcards, input).minutes,
    }


def given_memory(wildcards, resources):
    """Bytes that a cluster's job may hold. A function of resources is no reason to run again, as a changed key is."""
    return estimates.allowed(resources.mem_mb) if workflow.remote_exec else None


def inference(*modules):
    """Params of a rule whose shell is INFER, but `launch`, which starts the ranks; its code is an engine's and `modules`."""
    return {
        "case": lambda wildcards: CASES[wildcards.case],
        "repeats": config["repeats"],
        "seed": config["verify"]["seed"],
        "limits": lambda wildcards: options(
            count=CASES[wildcards.case].count,
            partition=CASES[wildcards.case].partition,
            memory=config["memory"],
            repeat_if_busy=config["repeat_if_busy"] or None,
            **CASES[wildcards.case].cut,
        ),
        "given": lambda wildcards, resources: (
            "" if config["memory"] else options(memory=given_memory(wildcards, resources))
        ),
        # A function of resources is no reason to run again: where Python lies changes no result.
        "python": lambda wildcards, resources: program("python"),
        "code": lambda wildcards: engine_code(CASES[wildcards.case].engine, *modules),
    }


# What a rank starts. Its output is the log; a sentence of what went wrong, or the last lines, is on the terminal too.
INFER = (
    "{params.launch}{params.python} -m spdnn infer"
    " --network {input.network} --prepared {input.prepared} --inputs {input.inputs}"
    " --layers {params.case.layers} --engine {params.case.engine} --reductions {params.case.reductions}"
    " --threads {params.case.threads} {params.limits} {params.given} --repeats {params.repeats} --seed {params.seed}"
    " --categories {output.categories} --result {output.result} --samples {output.samples}"
    " >{log} 2>&1 </dev/null ||"
    " {{ status=$?; {{ grep '^spdnn: ' {log} | grep -v '^spdnn: warning: ' || tail -n 20 {log}; }} >&2; exit $status; }}"
)


def network_source(wildcards):
    """The file or folder that a network is imported from."""
    if wildcards.network in OWN:
        return OWN[wildcards.network]["path"]
    return f"results/data/dnn/{wildcards.network.replace('official-', 'neuron')}.tar.gz"


def stored_depth(wildcards):
    """Layers of a network that is made: a formula covers every depth, an unstructured network the deepest case."""
    if wildcards.source == "radixnet":
        return None
    return max(case.layers for case in CASES.values() if case.network == f"{wildcards.source}-{wildcards.neurons}")


def inputs_source(wildcards):
    """The file that inputs are imported from."""
    if wildcards.inputs.startswith("own-"):
        return OWN[wildcards.inputs.removeprefix("own-")]["inputs"]
    return f"results/data/mnist/{wildcards.inputs.replace('official-', 'sparse-images-')}.tsv.gz"


def prepared_case(wildcards):
    """A case that runs this prepared network; all of them agree on what is prepared."""
    return next(case for case in CASES.values() if case.prepared == wildcards.prepared)


def not_made():
    """Outputs that this run was to make and has not: what lies under such a name is of an earlier run."""
    return {str(file) for job in workflow.dag.needrun_jobs() for file in job.output}


wildcard_constraints:
    case=one_of(CASES),
    prepared=one_of({case.prepared for case in CASES.values()}),
    network=rf"(radixnet|official|unstructured)-\d+|{one_of(OWN)}",
    source="radixnet|unstructured",
    inputs=rf"(digits|mnist|official)-\d+|{one_of(f'own-{name}' for name in OWN)}",
    neurons=r"\d+",
