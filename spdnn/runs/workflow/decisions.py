"""What a configuration leaves to the machine: inputs, numbers of threads and ranks, devices, memory; decided once.

The main process of a run decides before requests are made, and writes `results/decisions.json` when the run begins. Its
jobs only read that file, also on nodes without a network or with other cores and devices: no request holds a word that
means another value elsewhere. A later run in the folder keeps what is in the file, and says so where the machine has
changed. Only what was missing, MNIST or devices, is decided anew: where what this hung on has changed.
"""

import json
import os
import subprocess
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from msgspec import structs

from spdnn.core import challenge, safe_open
from spdnn.core.addresses import hide_secrets
from spdnn.core.errors import SpdnnError
from spdnn.core.fields import Record
from spdnn.core.files import cache_folder, write_text
from spdnn.core.request import RunRequest
from spdnn.core.resources import WORKFLOW_SHARE, available_bytes
from spdnn.core.validation import LONGEST_SENTENCE, parse, shorten
from spdnn.engines.registry import engine
from spdnn.formats.catalog import read_sources
from spdnn.formats.fetch import fetch, find_mirror
from spdnn.formats.mnist import NAME, find_downloaded
from spdnn.runs.records.files import as_text
from spdnn.runs.workflow.lifecycle import PYTHON
from spdnn.runs.workflow.targets import MNIST

FILE = "results/decisions.json"
AUTO, ALL, EACH = "auto", "all", "each"  # inputs: auto; threads: all; threads: each, ranks: each
WORDS = {"inputs": (AUTO,), "threads": (ALL, EACH), "ranks": (EACH,)}  # of a configuration, in place of values
MOST_EACH = 4  # of `ranks: each` without devices
# Keys that choose what runs: a configuration that has one has its own cases, and none of those of the default.
CHOOSING = ("neurons", "layers", "source", "count", "engine", "reductions", "ladder", "threads", "ranks",
            "inputs_per_rank", "peers", "ops")  # fmt: skip
STALL, FETCH_SECONDS = 10, 30  # without bytes, and of all attempts to fetch MNIST
MOST_EDGES = 5 * 10**8  # of a network that runs on digits for want of MNIST
NEEDED = 4 * 10**9  # bytes that the largest network takes
SLOW = "there are no official categories of digits, and the float64 reference takes minutes for each"
COUNT = """
import json, sys
from spdnn.engines.registry import engine
from spdnn.kernels.cuda import driver
print(json.dumps([driver.count(), {name: engine(name, usable=False).missing() for name in sys.argv[1:]}]))
"""


class Decisions(Record):
    """What was decided; None where nothing asked for it.

    Attributes:
        inputs: of the challenge's networks; why_inputs: a sentence on them.
        cores: that `threads: all` and `each` and `ranks: each` count.
        devices: that this machine has; missing: for each engine that cannot use them, a sentence that says why.
        memory: limit of every run in bytes, where less than the largest network needs is free.
        hung_on: what inputs and devices were decided by: decided again where it has changed.
    """

    schema: Literal["spdnn-decisions"] = "spdnn-decisions"
    version: Literal[1] = 1
    inputs: Literal["mnist", "digits"] | None = None
    why_inputs: str | None = None
    cores: int | None = None
    devices: int | None = None
    missing: dict[str, str] | None = None
    memory: int | None = None
    hung_on: dict[str, str] | None = None

    def sentences(self, config: Mapping) -> list[str]:
        """What was decided for a checked configuration, and why, for the page and the terminal."""
        said, parts = [], _on_auto(config)
        if parts and self.why_inputs:
            sizes = (neurons * layers for part in parts for neurons in part["neurons"] for layers in part["layers"])
            large = self.inputs == "digits" and max(sizes) * challenge.NONZEROS_PER_NEURON > MOST_EDGES
            omitted = f" (networks of over {MOST_EDGES:,} edges are left out: {SLOW})" if large else ""
            said.append(f"inputs: {self.why_inputs}{omitted}")
        if config["device_cases"] and self.devices is not None:
            reasons = "; ".join(sorted(set((self.missing or {}).values())))
            setup = "" if self.devices or "CUDA=auto" in reasons else "; with one, make setup CUDA=auto adds it"
            said.append(f"GPUs: {self.devices or 'none'} used{f' ({reasons})' if reasons else ''}{setup}")
        if self.memory is not None and config["memory"] == [None]:
            said.append(f"memory: each run is limited to {self.memory:,} bytes, for less than {NEEDED:,} were free")
        return said

    def kept(self, config: Mapping, cores: int, elsewhere: bool) -> list[str]:
        """Sentences on decisions of an earlier run that this machine would not take now; for the terminal.

        Args:
            cores: that the run may use; elsewhere: jobs run on other machines.
        """
        before, said = read(), []
        if before.inputs == self.inputs == "digits" and _on_auto(config):
            said.append("inputs: digits are kept")
        words = {value for part in _parts(config) for key in ("threads", "ranks") for value in part.get(key, ())}
        first = before.cores is None or elsewhere
        if not first and before.cores != cores and words & {ALL, EACH}:
            said.append(f"cores: {before.cores} are kept, and this run has {cores}")
        if not first and config["memory"] == [None] and (before.memory is None) != (_limit() is None):
            limit, free = ("no limit", "less") if before.memory is None else ("the limit", "more")
            said.append(f"memory: {limit} is kept, and {free} than {NEEDED:,} bytes are free")
        return [f"{sentence} (remove {FILE} to decide anew)" for sentence in said]

    def write(self) -> None:
        """Write the file, unless it has these decisions."""
        if read() != self:
            write_text(FILE, as_text(structs.asdict(self), FILE, indent=1))


def read() -> Decisions:
    """Those of the file; none where there is no file. InputError where it is not sound."""
    if not Path(FILE).is_file():
        return Decisions()
    return parse(Decisions, safe_open.text(FILE, "file of decisions"), FILE, "file of decisions")


def own_cases(default: dict, changes: Mapping[str, Any]) -> dict:
    """The default configuration with `changes`, and without its own cases where these choose what runs."""
    chosen = any(key in changes for key in CHOOSING)
    return default | dict(changes) | {key: changes.get(key, []) for key in ("cases", "device_cases") if chosen}


def decide(config: Mapping, cores: int, elsewhere: bool, executes: Callable[[], bool], anew: bool = True) -> Decisions:
    """Decide what a checked configuration asks for and the file has not.

    Args:
        cores: that the run may use.
        elsewhere: jobs run on other machines, so that neither memory nor devices are looked at.
        executes: whether jobs will run; asked only before the network is used.
        anew: decide again what hung on something that has changed; not in a job.

    Returns:
        those of the file and the new ones; nothing is written.

    Raises:
        InputError: the file is not sound.
    """
    decisions = read()
    given = config["mnist"][0]
    mirror = find_mirror(config["mirror"]) or (cache_folder() if find_downloaded() else "")
    at_hand = "MNIST is at hand" if _at_hand(mirror) else "MNIST is not at hand"
    hung_on = {"inputs": f"mirror {hide_secrets(str(mirror)) or 'none'}, {at_hand}", "devices": _device_facts()}
    changed = {name for name, facts in hung_on.items() if anew and (decisions.hung_on or {}).get(name) != facts}
    better = decisions.inputs == "digits" and (given or "inputs" in changed)
    if _on_auto(config) and (decisions.inputs is None or better):
        decisions = _with(decisions, "inputs", hung_on, **_inputs(given, mirror, executes))
    if decisions.cores is None:  # the first run in this folder
        decisions = structs.replace(decisions, cores=cores, memory=None if elsewhere else _limit())
    engines = sorted({name for item in config["device_cases"] for name in item["engine"]})
    better = decisions.devices == 0 or decisions.missing
    if engines and not elsewhere and (decisions.devices is None or ("devices" in changed and better)):
        count, missing = _devices(engines)
        if count >= (decisions.devices or 0):
            decisions = _with(decisions, "devices", hung_on, devices=count, missing=missing)
    return decisions


def _with(decisions: Decisions, name: str, hung_on: Mapping[str, str], **fields: Any) -> Decisions:
    return structs.replace(decisions, **fields, hung_on=(decisions.hung_on or {}) | {name: hung_on[name]})


def _limit() -> int | None:
    """Bytes that a run may hold, where little memory is free."""
    free = available_bytes()
    return int(WORKFLOW_SHARE * free) if free and free < NEEDED else None


def _at_hand(mirror: str | Path) -> bool:
    return any(path.is_file() for path in (Path(MNIST), Path(mirror, read_sources()[NAME].path)))


def _device_facts() -> str:
    """What the number of devices that can be used hangs on, without the driver."""
    from spdnn.kernels.cuda import driver

    nodes = " ".join(sorted(path.name for path in Path("/dev").glob("nvidia*")))
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "all")
    return f"cupy: {'missing' if driver.missing_package() else 'installed'}, /dev: {nodes or 'none'}, visible: {seen}"


def resolved(config: dict, made: Decisions) -> dict:
    """The configuration with values in place of words, and with the cases on devices that can run."""
    missing = made.missing or {}
    on_devices = [] if not made.devices else [
        item | {"engine": usable} for item in config["device_cases"]
        if (usable := [name for name in item["engine"] if name not in missing])
    ]  # fmt: skip
    config = config | {"cases": config["cases"] + on_devices, "device_cases": []}
    if made.memory is not None and config["memory"] == [None]:
        config["memory"] = [made.memory]
    return _values(config, made) | {"cases": [_values(item, made) for item in config["cases"]]}


def affordable(cases: Collection[RunRequest], config: Mapping, made: Decisions) -> list[RunRequest]:
    """The cases of a checked configuration; of those on digits for want of MNIST, networks that the reference can judge
    in seconds.
    """
    if not _on_auto(config) or made.inputs != "digits":
        return list(cases)
    edges = lambda case: challenge.NONZEROS_PER_NEURON * case.neurons * case.layers  # noqa: E731
    return [case for case in cases if case.inputs != "digits" or edges(case) <= MOST_EDGES]


def _values(part: dict, made: Decisions) -> dict:
    """A configuration, or a change of one, with values in place of words."""
    devices = [name for name in part.get("engine", ()) if engine(name, usable=False).on_device]
    ranks = list(range(1, made.devices + 1)) if devices and made.devices else _doubled(min(made.cores, MOST_EACH))
    means = {
        ("inputs", AUTO): [made.inputs],
        ("threads", ALL): [made.cores],
        ("threads", EACH): _doubled(made.cores),
        ("ranks", EACH): ranks,
    }
    return part | {
        key: list(dict.fromkeys(value for word in part[key] for value in means.get((key, word), [word])))
        for key in WORDS if key in part
    }  # fmt: skip


def _doubled(most: int) -> list[int]:
    """1, 2, 4 ... and `most`."""
    return [*(1 << power for power in range(most.bit_length()) if 1 << power < most), most]


def _parts(config: Mapping) -> list[Mapping]:
    return [config, *config["cases"], *config["device_cases"]]


def _on_auto(config: Mapping) -> list[dict]:
    """The parts of a configuration that run networks of the challenge on `inputs: auto`; files of the user's own have
    inputs of their own.
    """
    parts = [dict(config) | dict(part) for part in _parts(config) if not part.get("network")]
    return [part for part in parts if AUTO in part["inputs"] and part["neurons"] and part["layers"]]


def _inputs(given: str | None, mirror: str | Path, executes: Callable[[], bool]) -> dict[str, str]:
    """MNIST where its file is given, at hand or can be fetched; else the digits."""
    why = ""
    if not given and executes():
        try:
            row = replace(read_sources()[NAME], seconds=FETCH_SECONDS, stall=STALL)
            fetch(NAME, Path(MNIST).parents[1], mirror, 0, sources={NAME: row})
        except SpdnnError as error:
            why = f"MNIST could not be fetched: {shorten(str(error), LONGEST_SENTENCE)}"
    elif not given and not _at_hand(mirror):
        why = "MNIST is not at hand; a run tries to fetch it"
    if why:
        return {"inputs": "digits", "why_inputs": f"digits, for {why}; give its file by `--config mnist=FILE`"}
    return {"inputs": "mnist", "why_inputs": "the official ones"}


def _devices(engines: Sequence[str]) -> tuple[int, dict[str, str]]:
    """(how many there are, why an engine cannot use them), of another process: this one starts no driver."""
    try:
        answer = subprocess.run([PYTHON, "-P", "-c", COUNT, *engines], capture_output=True, text=True, timeout=60)
        count, missing = json.loads(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return 0, dict.fromkeys(engines, "the devices of this machine could not be counted")
    return count, {name: why for name, why in missing.items() if why}
