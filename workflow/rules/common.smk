# Tables and targets: the checked configuration, its cases, and what a rule depends on besides its files.
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from spdnn.core.endings import say
from spdnn.core.errors import SpdnnError
from spdnn.core.resources import usable_cores
from spdnn.core.config_tables import table
from spdnn.runs.workflow import config as settings, decisions, estimates, lifecycle, slurm, yaml_files
from spdnn.runs.workflow.rules import CHECK, INFER, Rules, content_of_download, launch
from spdnn.runs.workflow.targets import Targets, configfiles, one_of, stores
from spdnn.runs.workflow.triggers import Triggers, code
from spdnn.runs.records.cases import record_files

# Jobs of a cluster run on its nodes, and only those that run an engine need its device: they ask for it themselves.
ELSEWHERE = workflow.remote_exec or workflow.resource_settings.nodes is not None
CORES = workflow.resource_settings.cores or usable_cores()
MAIN = workflow.is_main_process  # and not a job
try:
    lifecycle.check_module(workflow)
    UNUSED = lifecycle.without_deployment(workflow)
    # The default configuration lies beside the Snakefile; what is asked for, wherever Snakemake runs, changes it.
    default, typed = yaml_files.read(workflow.source_path("../../config/config.yaml")), workflow.config_settings
    if config == typed.overwrite_config:  # else a workflow around this one gave it
        config = yaml_files.read_all(typed.configfiles, typed.config)
    config = settings.check(decisions.own_cases(default, config), workflow.source_path("../schemas/config.schema.yaml"))
    DRY = workflow.output_settings.dryrun
    DECIDED = decisions.decide(config, CORES, ELSEWHERE, lambda: MAIN and lifecycle.executes(DRY), anew=MAIN)
    SAID = DECIDED.sentences(config)
    config = lifecycle.hide_mirror(config, workflow)
    TARGETS = Targets(settings.requests(config, DECIDED))
    TARGETS.check(ELSEWHERE)
    RULES = Rules(workflow, TARGETS, ELSEWHERE, CORES)
    RULES.check_site()
    MNIST = TARGETS.mnist()
    OTHERS = {name: record_files(name) for name in config["other_records"]}
except SpdnnError as error:
    raise WorkflowError(str(error))
OTHER_FILES = [str(path) for files in OTHERS.values() for path in (*files.records, *files.verdicts)]
CASES, case_of = TARGETS.cases, TARGETS.case
CONFIGFILES = configfiles(workflow.overwrite_configfiles)
CONFIGURATION = " + ".join(Path(file).stem for file in CONFIGFILES) or "config"
PEERS = config["peers"] or {}
OPS = config["ops"] or {}
DLMC = "results/data/dlmc/dlmc.tar.gz" if OPS.get("dlmc") == "fetch" else OPS.get("dlmc")
# Hundredths of this machine. A timed job takes all of them: nothing runs beside a clock, whatever --max-threads and
# --set-threads say. Jobs of a cluster have nodes of their own.
if not ELSEWHERE:
    workflow.register_resource("machine", 100)
lifecycle.keep_jobs()
ALONE = not MAIN or lifecycle.unlock_after_kill(Path("results"))
TRIGGERS = Triggers(
    workflow,
    ALONE,
    TARGETS,
    CONFIGURATION,
    {"peers": PEERS, "ops": OPS, "report": config | {"decided": SAID}, "others": OTHER_FILES},
)
if MAIN:
    most, cores = TARGETS.threads(CORES), usable_cores()
    if most > cores and not ELSEWHERE:
        say(f"spdnn: warning: config: {most} threads on {cores} cores run slower than {cores}", "stderr")
    # Also where nothing is to be done; but not where Snakemake only tells.
    notes = [*filter(None, [UNUSED]), *DECIDED.kept(config, CORES, ELSEWHERE)]
    for sentence in notes if notes and (DRY or lifecycle.executes(DRY)) else ():
        say(f"spdnn: {sentence}", "stderr")
# Snakemake 9 puts this into the shell commands of scripts and of cluster jobs as it is. A blank in the path would end it
# there; without -P, `python -m snakemake` takes a random.py in the current folder for Python's own.
sys.executable = f"{shlex.quote(lifecycle.PYTHON)} -P"


def trigger_of_report(wildcards):
    # When the graph is built: only then the lines of a workflow around this one are known.
    if MAIN:
        lifecycle.check_handlers(workflow)
    return TRIGGERS.of("report")(wildcards)


wildcard_constraints:
    case=one_of(CASES),
    prepared=one_of({case.prepared_name for case in CASES.values()}),
    network=rf"(radixnet|official|unstructured)-\d+|{one_of(TARGETS.networks)}",
    source="radixnet|unstructured",
    inputs=rf"(digits|mnist|official)-\d+|{one_of(TARGETS.inputs)}",
    neurons=r"\d+",
