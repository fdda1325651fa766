"""What the rules of the workflow ask Snakemake for: threads, memory, time, devices, and what makes them run again."""

import re
import shlex
import sys
from functools import cache, partial
from pathlib import Path

from snakemake.resources import Resources

from spdnn.common.provenance import code_digest
from spdnn.common.validation import encode
from spdnn.engines.registry import ENGINES
from spdnn.pipeline import estimates
from spdnn.pipeline.targets import Targets

# What a rank starts. Its output is the log; a sentence of what went wrong, or the last lines, is on the terminal too.
INFER = (
    "{params.launch}{params.python} -m spdnn run {params.request} {params.limits}"
    " --network {input.network} --prepared {input.prepared} --inputs {input.inputs}"
    " --categories {output.categories} --result {output.result} --samples {output.samples}"
    " >{log} 2>&1 </dev/null ||"
    " {{ status=$?; {{ grep '^spdnn: ' {log} | grep -v '^spdnn: warning: ' || tail -n 20 {log}; }} >&2;"
    " exit $status; }}"
)


@cache
def engine_code(name: str, *modules: str) -> str:
    """The digest of the sources that a run of the engine `name` reaches, and of `modules`."""
    module = ENGINES.get(name, "spdnn.engines.registry:").split(":")[0]
    return code_digest("spdnn.pipeline.measure.run", module, *modules)


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

    def needed(self, stage, **more) -> dict:
        """Resources of a rule as `stage` of estimates has them; a job sent again gets twice as much, and so on."""

        def need(wildcards, input):
            case = self.targets.case(wildcards)
            files = sum(Path(file).stat().st_size for file in input) if case.network else 0
            return stage(case, self.targets.cases.values(), files, **more)

        megabytes = lambda wildcards, input, attempt: attempt * need(wildcards, input).megabytes  # noqa: E731
        minutes = lambda wildcards, input, attempt: attempt * need(wildcards, input).minutes  # noqa: E731
        return {"mem_mb": megabytes, "runtime": minutes}

    def nodes(self, rule: str) -> int:
        """Nodes that a profile or the command line gives the rule; 1 without."""
        asked = self.workflow.resource_settings.overwrite_resources.get(rule, {})
        return int(Resources.from_mapping(asked).get("nodes").value or 1)

    def memory(self, wildcards, resources) -> int | None:
        """Bytes that a cluster's job may hold. As a function of resources it is no reason to run again."""
        return estimates.allowed_bytes(resources.mem_mb) if self.workflow.remote_exec else None

    def prepared_memory(self, wildcards, resources) -> int | None:
        """Bytes that rule prepare may hold: the case's, or the job's."""
        return self.targets.case(wildcards).memory or self.memory(wildcards, resources)

    def inference(self, ranks: bool, *modules: str) -> dict:
        """Params of a rule whose shell is INFER; its code is that of its engine and of `modules`."""

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
            "launch": lambda wildcards, resources: f"{launcher(resources)} -n {resources.tasks} " if ranks else "",
            "code": lambda wildcards: engine_code(self.targets.case(wildcards).engine, *modules),
        }

    def add_devices(self, *rules: str) -> None:
        """Let the resource slurm_extra of these rules begin with the devices of a case, for Snakemake takes a site's in
        place of a rule's.
        """
        for resources in (self.workflow.get_rule(name).resources for name in rules):
            given = [resources.get(name) for name in ("gpus_per_task", "gpu_type", "slurm_extra")]
            resources["slurm_extra"] = partial(_extra, given)

    def remove_temporary(self) -> None:
        """Remove temporary files that were not asked for by name. Snakemake does so while it runs, but leaves those
        whose last reader was done when an earlier run was killed.
        """
        asked = {str(file) for job in self.workflow.dag.targetjobs for file in job.output}
        for file in {str(file) for job in self.workflow.dag.jobs for file in job.temp_output} - asked:
            Path(file).unlink(missing_ok=True)

    def not_made(self) -> set[str]:
        """Outputs that this run was to make and has not: what lies under such a name is of an earlier run."""
        return {str(file) for job in self.workflow.dag.needrun_jobs() for file in job.output}


def _extra(given, wildcards, **others) -> str:
    """Devices of a task, of the site's `gpu_type`, then the site's slurm_extra."""
    devices, kind, rest = (resource.evaluate(wildcards, **others).value for resource in given)
    request = f"--gpus-per-task={kind}:{devices}" if kind else f"--gpus-per-task={devices}"
    return " ".join(filter(None, (request if devices else None, rest)))


def launcher(resources) -> str:
    """What starts ranks; srun gives each rank devices of its own only where it is asked itself."""
    request = re.match(r"--gpus-per-task=\S+", resources.get("slurm_extra") or "")
    asked = request and Path(shlex.split(resources.mpi)[0]).name == "srun"
    return f"{resources.mpi} {request[0]}" if asked else resources.mpi
