"""What the rules of the workflow ask Snakemake for: threads, memory, time and devices."""

import math
import re
import shlex
import sys
from functools import partial
from pathlib import Path

from snakemake.resources import Resources

from spdnn.core.errors import InputError
from spdnn.core.request import RunRequest
from spdnn.core.validation import encode
from spdnn.formats.catalog import read_sources
from spdnn.runs.workflow import estimates
from spdnn.runs.workflow.targets import Targets

# What a rank starts. -P: no random.py in the folder where the workflow runs stands for Python's own.
# Its output is the log; a sentence of what went wrong, or the last lines, is on the terminal too.
LOGGED = (
    " >{log} 2>&1 </dev/null ||"
    " {{ status=$?; {{ grep '^spdnn: ' {log} | grep -v '^spdnn: warning: ' || tail -n 20 {log}; }} >&2;"
    " exit $status; }}"
)
INFER = (
    "{params.launch}{params.python} -P -m spdnn run {params.request} {params.limits}"
    " --network {input.network} --prepared {input.prepared} --inputs {input.inputs}"
    " --categories {output.categories} --result {output.result} --samples {output.samples}" + LOGGED
)
CHECK = (
    "{params.launch}{params.python} -P -m spdnn challenge --engine {wildcards.engine} {params.devices} --neurons 1024"
    " --layers 1 --inputs digits --count 1000 --no-cache --verify all" + LOGGED
)


def content_of_download(path: str) -> str:
    """What a file of config/data.tsv must be, by its path there: its digest, or else where it comes from."""
    source = next(source for source in read_sources().values() if source.path == path)
    return f"{source.digest_of} {source.digest}" if source.digest else " ".join(source.urls)


class Rules:
    """Parts of rules. Functions of wildcards and of what Snakemake names are called by it.

    Args:
        workflow: Snakemake's. elsewhere: its jobs run on the nodes of a cluster. cores: that Snakemake has here.
    """

    def __init__(self, workflow, targets: Targets, elsewhere: bool, cores: int):
        self.workflow, self.targets, self.elsewhere, self.cores = workflow, targets, elsewhere, cores

    def program(self, name: str) -> str:
        """How a shell command calls a program: the one beside this Python, if there is one."""
        beside = Path(sys.prefix, "bin", name)
        return shlex.quote(str(beside)) if beside.exists() else name

    def every_core(self, threads: int | None) -> int:
        """All cores that Snakemake has here: nothing runs beside a clock. A cluster's job has `threads`."""
        return threads or self.cores if self.elsewhere else max(threads or 1, self.cores)

    def needed(self, stage, spread: bool = False) -> dict:
        """Resources of a rule as `stage` of estimates has them; a job sent again gets twice as much, and so on.

        Args:
            spread: memory is of one of the nodes that the ranks of a case are on.
        """

        def need(wildcards, input):
            case = self.targets.case(wildcards)
            files = sum(Path(file).stat().st_size for file in input) if case.network else 0
            more = {"together": self.together(case)} if spread else {}
            return stage(case, self.targets.cases.values(), files, **more)

        megabytes = lambda wildcards, input, attempt: attempt * need(wildcards, input).megabytes  # noqa: E731
        minutes = lambda wildcards, input, attempt: attempt * need(wildcards, input).minutes  # noqa: E731
        return {"mem_mb": megabytes, "runtime": minutes}

    def nodes(self, case: RunRequest) -> int | None:
        """Nodes for the ranks of a case: as many as the site asks for, else as its devices take where the site says how
        many a node has; None: Slurm's choice.
        """
        most = self._most_on_a_node(case)
        return self._of_site("nodes") or (most and math.ceil(case.ranks / most))

    def together(self, case: RunRequest) -> int:
        """The most ranks of a case that may be on one node."""
        nodes = self._of_site("nodes")
        return math.ceil(case.ranks / nodes) if nodes else min(case.ranks, self._most_on_a_node(case) or case.ranks)

    def _most_on_a_node(self, case: RunRequest) -> int | None:
        each, devices = self._of_site("devices_per_node"), estimates.devices(case)
        return max(each // devices, 1) if each and devices else None

    def _of_site(self, name: str) -> int | None:
        """A number from 1 that a site gives rule infer_ranks, or all rules; InputError for anything else."""
        settings = self.workflow.resource_settings
        for asked in (settings.overwrite_resources.get("infer_ranks"), settings.default_resources):
            given = asked if isinstance(asked, Resources) else Resources.from_mapping(asked or {})
            if name in given:
                value = None if given[name].is_evaluable() else given[name].value
                if type(value) is not int or value < 1:
                    raise InputError(f"profile: {name}: {value or given[name].raw!r} must be a whole number from 1")
                return value
        return None

    def check_site(self) -> None:
        """Raise InputError where a rank needs more devices than a node has."""
        each = self._of_site("devices_per_node")
        for case in self.targets.cases.values() if each else ():
            if (devices := estimates.devices(case)) > each:
                raise InputError(f"config: devices: {devices}, and a node has {each} (devices_per_node of the profile)")

    def device_check(self, wildcards) -> list[str]:
        """On a cluster: what has to be made before an engine's networks are prepared for devices."""
        case = self.targets.case(wildcards)
        return [f"results/checks/{case.engine}.ok"] if self.elsewhere and estimates.devices(case) else []

    def checked(self, engine: str) -> tuple[int, int]:
        """(ranks, devices of each) of the check of an engine: those of one of its cases, with two ranks of several."""
        return max(
            (min(2, case.ranks), estimates.devices(case))
            for case in self.targets.cases.values()
            if case.engine == engine
        )

    def memory(self, wildcards, resources) -> int | None:
        """Bytes that a cluster's job may hold. As a function of resources it is no reason to run again."""
        return estimates.allowed_bytes(resources.mem_mb) if self.workflow.remote_exec else None

    def prepared_memory(self, wildcards, resources) -> int | None:
        """Bytes that rule prepare may hold: the case's, or the job's."""
        return self.targets.case(wildcards).memory or self.memory(wildcards, resources)

    def inference(self, ranks: bool) -> dict:
        """Params of a rule whose shell is INFER."""

        def limits(wildcards, resources):
            if not self.workflow.remote_exec:
                return ""
            memory, seconds = self.memory(wildcards, resources), estimates.time_limit(resources.runtime)
            return f"--memory {memory} --time-limit {seconds}"

        return {
            "request": lambda wildcards: shlex.quote(encode(self.targets.case(wildcards).values).decode()),
            "limits": limits,
            # A function of resources is no reason to run again: where Python lies changes no result.
            "python": lambda wildcards, resources: self.program("python"),
            "launch": lambda wildcards, resources: launch(resources) if ranks else "",
        }

    def add_devices(self) -> None:
        """Let resources of rules on devices follow the devices of a case, for Snakemake takes a site's in place of a
        rule's: the resource slurm_extra begins with them, and the site's partition of devices is for them alone.
        """
        names = ("gpus_per_task", "gpu_type", "slurm_extra", "gpu_partition", "slurm_partition")
        rules = {name: self.workflow.get_rule(name).resources for name in ("infer", "infer_ranks", "check_devices")}
        # The check goes where cases go, and its ranks start as theirs; Snakemake's plugin takes one rank for no MPI.
        several = any(case.ranks > 1 and estimates.devices(case) for case in self.targets.cases.values())
        for name in (*names[1:], "slurm_account", "qos", "constraint"):
            if (value := rules["infer_ranks" if several else "infer"].get(name)) is not None:
                rules["check_devices"][name] = value
        rules["check_devices"]["mpi"] = partial(self._launcher, rules["infer_ranks"]["mpi"])
        for resources in rules.values():
            site = {name: resources.get(name) for name in names}
            resources["slurm_extra"] = partial(_extra, site)
            if site["gpu_partition"]:
                resources["slurm_partition"] = partial(_partition, site)

    def _launcher(self, of_ranks, wildcards, **others) -> str | None:
        return of_ranks.evaluate(wildcards, **others).value if self.checked(wildcards.engine)[0] > 1 else None

    def remove_temporary(self) -> None:
        """Remove temporary files that were not asked for by name. Snakemake does so while it runs, but leaves those
        whose last reader was done when an earlier run was killed.
        """
        targets = {str(file) for job in self.workflow.dag.targetjobs for file in job.output}
        for file in {str(file) for job in self.workflow.dag.jobs for file in job.temp_output} - targets:
            Path(file).unlink(missing_ok=True)

    def not_made(self) -> set[str]:
        """Outputs that this run was to make and has not: what lies under such a name is of an earlier run."""
        return {str(file) for job in self.workflow.dag.needrun_jobs() for file in job.output}


def _evaluated(given, wildcards, others, *names: str) -> list:
    return [given[name] and given[name].evaluate(wildcards, **others).value for name in names]


def _extra(given, wildcards, **others) -> str:
    """Devices of a task, of the site's `gpu_type`, then the site's slurm_extra."""
    devices, kind, rest = _evaluated(given, wildcards, others, "gpus_per_task", "gpu_type", "slurm_extra")
    request = f"--gpus-per-task={kind}:{devices}" if kind else f"--gpus-per-task={devices}"
    return " ".join(filter(None, (request if devices else None, rest)))


def _partition(given, wildcards, **others) -> str | None:
    """The site's partition of devices, for a case that needs some."""
    devices, on_devices, other = _evaluated(
        given, wildcards, others, "gpus_per_task", "gpu_partition", "slurm_partition"
    )
    return on_devices if devices else other


def launch(resources) -> str:
    """What starts ranks, empty for one without MPI.

    srun gives each rank devices of its own only where it is asked itself, and by their number alone: with their type,
    Slurm 22.05 gives none.
    """
    if not resources.get("mpi"):
        return ""
    request = re.match(r"--gpus-per-task=(?:\S+:)?(\d+)", resources.get("slurm_extra") or "")
    by_srun = request and Path(shlex.split(resources.mpi)[0]).name == "srun"
    return f"{resources.mpi} {f'--gpus-per-task={request[1]} ' if by_srun else ''}-n {resources.tasks} "
