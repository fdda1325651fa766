"""What a configuration leaves to the machine: inputs, numbers of threads and ranks, devices, memory; decided once.

The main process of a run decides before requests are made, and writes `results/decisions.json` when the run begins. Its
jobs only read that file, also on nodes without a network or with other cores and devices, and so do later runs in the
same folder: no request holds a word that means another value elsewhere.
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
from spdnn.core.errors import SpdnnError
from spdnn.core.fields import Record
from spdnn.core.files import cache_folder, write_text
from spdnn.core.request import RunRequest
from spdnn.core.resources import available_bytes
from spdnn.core.validation import LONGEST_SENTENCE, parse, shorten
from spdnn.engines.registry import engine
from spdnn.formats.catalog import read_sources
from spdnn.formats.fetch import fetch
from spdnn.formats.mnist import NAME, find_downloaded
from spdnn.runs.records.files import as_text
from spdnn.runs.workflow.lifecycle import PYTHON
from spdnn.runs.workflow.targets import MNIST

FILE = "results/decisions.json"
AUTO, ALL, EACH = "auto", "all", "each"  # inputs: auto; threads: all; threads: each, ranks: each
WORDS = {"inputs": (AUTO,), "threads": (ALL, EACH), "ranks": (EACH,)}  # of a configuration, in place of values
MOST_RANKS = 4  # of `ranks: each` without devices
# Keys that choose what runs: a configuration that has one has its own cases, and none of those of the default.
CHOOSING = ("neurons", "layers", "source", "count", "engine", "reductions", "ladder", "threads", "ranks",
            "inputs_per_rank", "peers", "ops")  # fmt: skip
STALL, SECONDS = 10, 30  # without bytes, and of all attempts to fetch MNIST
MOST_EDGES = 5 * 10**8  # of a network that runs on digits for want of MNIST
NEEDED = 4 * 10**9  # bytes that the largest network takes
SLOW = "there are no official categories of digits, and the float64 reference takes minutes for each"
COUNT = """
import json, sys
from spdnn.engines.registry import engine
from spdnn.core import driver
print(json.dumps([driver.count(), {name: engine(name, usable=False).missing() for name in sys.argv[1:]}]))
"""


class Decisions(Record):
    """What was decided; None where nothing asked for it.

    Attributes:
        inputs: of the challenge's networks; why_inputs: a sentence on them.
        cores: that `threads: all` and `each` and `ranks: each` count.
        devices: that this machine has; missing: for each engine that cannot use them, a sentence that says why.
        memory: limit of every run in bytes, where less than the largest network needs is free.
    """

    schema: Literal["spdnn-decisions"] = "spdnn-decisions"
    version: Literal[1] = 1
    inputs: Literal["mnist", "digits"] | None = None
    why_inputs: str | None = None
    cores: int | None = None
    devices: int | None = None
    missing: dict[str, str] | None = None
    memory: int | None = None

    @property
    def sentences(self) -> list[str]:
        """What was decided, and why, for the page and the terminal."""
        said = [f"inputs: {self.why_inputs}"] if self.why_inputs else []
        if self.devices is not None:
            reasons = "; ".join(sorted(set((self.missing or {}).values())))
            setup = "" if self.devices or "CUDA=auto" in reasons else "; with one, make setup CUDA=auto adds it"
            said.append(f"GPUs: {self.devices or 'none'} used{f' ({reasons})' if reasons else ''}{setup}")
        if self.memory is not None:
            said.append(f"memory: each run is limited to {self.memory:,} bytes, for less than {NEEDED:,} are free")
        return said

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


def decide(config: Mapping, cores: int, elsewhere: bool, executes: Callable[[], bool]) -> Decisions:
    """Decide what a checked configuration asks for and the file has not.

    Args:
        cores: that the run may use.
        elsewhere: jobs run on other machines, so that neither memory nor devices are looked at.
        executes: whether jobs will run; asked only before the network is used.

    Returns:
        those of the file and the new ones; nothing is written.

    Raises:
        InputError: the file is not sound.
    """
    decisions = read()
    asked = [value for part in _parts(config) for value in part.get("inputs", ())]
    if AUTO in asked and (decisions.inputs is None or (config["mnist"][0] and decisions.inputs == "digits")):
        decisions = structs.replace(decisions, **_inputs(config["mnist"][0], config["mirror"], executes))
    if decisions.cores is None:  # the first run in this folder
        free = None if elsewhere else available_bytes()
        limit = free * 3 // 4 if free and free < NEEDED else None
        decisions = structs.replace(decisions, cores=cores, memory=limit)
    engines = sorted({name for item in config["device_cases"] for name in item["engine"]})
    if engines and not elsewhere and decisions.devices is None:
        count, missing = _devices(engines)
        decisions = structs.replace(decisions, devices=count, missing=missing)
    return decisions


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
    words = {word for part in _parts(config) for word in part.get("inputs", ())}
    if AUTO not in words or made.inputs != "digits":
        return list(cases)
    edges = lambda case: challenge.NONZEROS_PER_NEURON * case.neurons * case.layers  # noqa: E731
    return [case for case in cases if case.inputs != "digits" or edges(case) <= MOST_EDGES]


def _values(part: dict, made: Decisions) -> dict:
    """A configuration, or a change of one, with values in place of words."""
    devices = [name for name in part.get("engine", ()) if engine(name, usable=False).on_device]
    ranks = list(range(1, made.devices + 1)) if devices and made.devices else _doubled(min(made.cores, MOST_RANKS))
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


def _inputs(given: str | None, mirror: str | None, executes: Callable[[], bool]) -> dict[str, str]:
    """MNIST where its file is given, at hand or can be fetched; else the digits."""
    source = read_sources()[NAME]
    mirror = mirror or os.environ.get("SPDNN_MIRROR") or (str(cache_folder()) if find_downloaded() else "")
    why = ""
    if not given and executes():
        try:
            row = replace(source, seconds=SECONDS, stall=STALL)
            fetch(NAME, Path(MNIST).parents[1], mirror, 0, sources={NAME: row})
        except SpdnnError as error:
            why = f"MNIST could not be fetched: {shorten(str(error), LONGEST_SENTENCE)}"
    elif not given and not any(path.is_file() for path in (Path(MNIST), Path(mirror, source.path))):
        why = "MNIST is not at hand; a run tries to fetch it"
    if why:
        why = f"digits, for {why}; give its file by `--config mnist=FILE`"
        return {"inputs": "digits", "why_inputs": f"{why} (networks of over {MOST_EDGES:,} edges are left out: {SLOW})"}
    return {"inputs": "mnist", "why_inputs": "the official ones"}


def _devices(engines: Sequence[str]) -> tuple[int, dict[str, str]]:
    """(how many there are, why an engine cannot use them), of another process: this one starts no driver."""
    try:
        answer = subprocess.run([PYTHON, "-P", "-c", COUNT, *engines], capture_output=True, text=True, timeout=60)
        count, missing = json.loads(answer.stdout)
    except (OSError, subprocess.TimeoutExpired, ValueError):
        return 0, dict.fromkeys(engines, "the devices of this machine could not be counted")
    return count, {name: why for name, why in missing.items() if why}
