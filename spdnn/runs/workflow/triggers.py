"""What makes a job run again besides newer inputs: settings, contents of the user's files, and the code that it runs.

All of it is in a file that the job has among its inputs, `results/triggers/RULE/NAME.json`, which is written only when
it changes. So results are known by what they were made of also where Snakemake has forgotten it (without `.snakemake`),
and where times of files are all that counts (`--rerun-triggers mtime`).
"""

import atexit
import contextlib
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from spdnn.core.config_tables import table
from spdnn.core.errors import Unavailable
from spdnn.core.files import replacing
from spdnn.core.provenance import code_digest
from spdnn.core.request import reading
from spdnn.engines.registry import ENGINES, engine
from spdnn.formats.readers import network_files
from spdnn.runs.records.files import as_text
from spdnn.runs.workflow.lifecycle import held_by_another
from spdnn.runs.workflow.targets import Targets, content

FOLDER = Path("results/triggers")
# The code that the jobs of a rule run: folders of the package in the order of DESIGN.md, each with those below it.
# Modules between them and the rule (runs/run.py, stages.py) hand on what these make.
_SOURCES = ("core", "kernels", "formats")
_ENGINES = (*_SOURCES, "engines")
_RECORDS = (*_ENGINES, "runs/measure.py", "runs/parts.py", "runs/records", "runs/verify/official.py")
CODE = {
    "sources": _SOURCES,
    "prepare": _ENGINES,
    "infer": (*_RECORDS, "runs/world.py", "runs/ranks"),
    "verify": (*_RECORDS, "runs/verify"),
    "benchmark": (*_RECORDS, "runs/verify"),
    "bench": (*_ENGINES, "ops", "runs", "api.py", "bench"),
    "report": (*_ENGINES, "runs", "report"),
}


def code(stage: str, engine_name: str | None = None) -> str:
    """The digest of the code of a stage, and of the engine that it runs: its rules run again when it changes."""
    places, devices = CODE[stage], stage == "bench"
    if stage == "verify":
        places = (*places, table("truth/1024.tsv").parent)
    if engine_name:
        devices = engine(engine_name, usable=False).on_device
        if ENGINES.get(engine_name, "").startswith("spdnn.bench."):
            places = (*places, "bench/engines")
    return code_digest(*places, devices=devices)


class Triggers:
    """The files of triggers; `of` gives a rule its own.

    Args:
        workflow: Snakemake's. alone: no other run is under way in the folder.
        configuration: the names of its files, as a record has them.
        whole: `peers` and `ops` of the configuration; `report`: all of it, and what was decided; `others`: files of
            records of other runs.
    """

    def __init__(self, workflow, alone: bool, targets: Targets, configuration: str, whole: Mapping[str, Any]):
        self.workflow, self.alone, self.targets = workflow, alone, targets
        self.configuration, self.whole = configuration, whole
        self.files: dict[Path, str] = {}
        self.texts: dict[Path, str] = {}  # of the files that this run has made sure of
        self.before: dict[Path, tuple[str, int] | None] = {}  # text and time of each one that it has changed; None: new
        atexit.register(self._put_back, os.getpid())

    def of(self, rule: str) -> Callable[[Any], str]:
        """The file of a job, as an input of its rule. Its name has the wildcards of the outputs."""

        def file(wildcards):
            path = FOLDER / rule / f"{'-'.join(wildcards)}.json" if wildcards else FOLDER / f"{rule}.json"
            if path not in self.files:
                self.files[path] = self._written(path, rule, "-".join(wildcards))
            return self.files[path]

        return file

    def _written(self, path: Path, rule: str, name: str) -> str:
        """The path, which a job only reads; in the main process, of a file that is up to date.

        Where nothing runs, no file changes: for one that would, Snakemake gets another one that is new.
        """
        if not self.workflow.is_main_process:
            return str(path)
        text = as_text(getattr(self, f"_{rule}")(name), path.name, indent=1)
        there = path.read_text("utf-8") if path.is_file() else None
        if there == text:
            self.texts[path] = text
            return str(path)
        self.alone = self.alone and not held_by_another(FOLDER.parent)  # one that began a moment later may be faster
        if self.workflow.executor_plugin is not None and not self.workflow.dryrun and self.alone:
            self.texts[path] = text
            self.before[path] = None if there is None else (there, path.stat().st_mtime_ns)
        else:
            path = Path(tempfile.gettempdir(), f"spdnn-triggers-{os.getpid()}.json")
            atexit.register(path.unlink, missing_ok=True)
        _write(path, text)
        return str(path)

    def settle(self) -> None:
        """Now that the folder is locked: write again what a run that began at the same time has changed.

        Raises:
            Unavailable: another run was under way when this one looked, and has ended since.
        """
        if not self.alone:
            raise Unavailable("another run of the workflow ended here while this one began; start this one again")
        for path, text in self.texts.items():
            if not path.is_file() or path.read_text("utf-8") != text:
                _write(path, text)

    def _put_back(self, number: int) -> None:
        """At the end of a run that made nothing, such as one that is refused: put back what it has changed, so that
        nothing runs again for that.
        """
        scheduler = self.workflow.scheduler
        made_something = scheduler is not None and scheduler.finished_jobs
        if made_something or number != os.getpid():  # a process that was forked
            return
        for path, before in self.before.items():
            with contextlib.suppress(OSError):
                if path.read_text("utf-8") != self.texts[path]:
                    continue  # another run has changed it since
                if before is None:
                    path.unlink()
                else:
                    _write(path, before[0])
                    os.utime(path, ns=(before[1], before[1]))

    def _networks(self, name: str) -> dict[str, Any]:
        own = self.targets.networks.get(name)
        if own is None:
            return {"layers": self.targets.depth_to_store(name), "code": code("sources")}
        return {"reading": reading(own), "files": content(network_files(own.network)), "code": code("sources")}

    def _inputs(self, name: str) -> dict[str, Any]:
        own, of_mnist = self.targets.inputs.get(name), name.startswith("mnist-")
        images = {case.mnist for case in self.targets.cases.values()} if of_mnist and own is None else ()
        return {"files": content([own.inputs] if own else images), "code": code("sources")}

    def _prepared(self, name: str) -> dict[str, Any]:
        case = self.targets.of_prepared(name)
        return {"engine": case.engine, "reductions": case.reductions, "code": code("prepare", case.engine)}

    def _infer(self, name: str) -> dict[str, Any]:
        """With what its network and inputs were made of, which are removed and forgotten."""
        case = self.targets.cases[name]
        return {
            "request": case.values,
            "network": self._networks(case.network_name),
            "inputs": self._inputs(case.inputs_name),
            "prepared": self._prepared(case.prepared_name),
            "code": code("infer", case.engine),
        }

    def _verify(self, name: str) -> dict[str, Any]:
        case = self.targets.cases[name]
        return {"request": case.values, "truth": content([case.truth_file]), "code": code("verify")}

    def _benchmark(self, name: str) -> dict[str, Any]:
        request = self.targets.cases[name].values
        return {"request": request, "configuration": self.configuration, "code": code("benchmark")}

    def _peers(self, name: str) -> dict[str, Any]:
        return {"peers": self.whole["peers"], "code": code("bench")}

    def _ops(self, name: str) -> dict[str, Any]:
        ops = self.whole["ops"]
        return {"ops": ops, "files": content([ops.get("dlmc")]), "code": code("bench")}

    def _report(self, name: str) -> dict[str, Any]:
        return {"configuration": self.whole["report"], "files": content(self.whole["others"]), "code": code("report")}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, durable=False) as temporary:
        temporary.write_text(text, encoding="utf-8")
