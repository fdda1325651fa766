"""The configuration of the workflow: checked against its closed schema, and expanded into cases."""

import difflib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from spdnn.common.errors import InputError
from spdnn.common.files import check_no_url
from spdnn.common.validation import LONGEST_SENTENCE, shortened
from spdnn.engines.registry import engine
from spdnn.problem import challenge

SOURCES = {"formula": "radixnet", "official": "official", "unstructured": "unstructured"}  # as networks are named


@dataclass(frozen=True)
class Case:
    """One run: a network of some depth, inputs, an engine and its settings.

    Attributes:
        count: inputs of all ranks together, or None for all that there are.
        threads: of each rank.
        partition: how inputs are divided among ranks; None where there is one.
        schedule, devices, device_memory: of engines that cut an inference into tasks, each rank's; None with others.
    """

    network: str
    layers: int
    inputs: str
    count: int | None
    engine: str
    reductions: str
    threads: int
    ranks: int = 1
    partition: str | None = None
    schedule: str | None = None
    devices: int | None = None
    device_memory: int | None = None

    @property
    def name(self) -> str:
        """As files and the report name the case."""
        inputs = self.inputs if self.count is None else f"{self.inputs}-first-{self.count}"
        reductions = self.reductions.replace(",", "+")
        ranks = f".r{self.ranks}-{self.partition}" if self.ranks > 1 else ""
        cut = f".{self.schedule}-d{self.devices}" if self.schedule else ""
        return f"{self.network}-{self.layers}.{inputs}.{self.engine}.{reductions}.t{self.threads}{ranks}{cut}"

    @property
    def official(self) -> bool:
        """Whether it is one of the twelve with its inputs: then the official truth must judge it, and nothing else."""
        kind, _, neurons = self.network.rpartition("-")
        inputs, _, width = self.inputs.rpartition("-")
        known = kind in ("radixnet", "official") and inputs in ("mnist", "official") and neurons == width
        sizes = neurons in map(str, challenge.WIDTHS) and self.layers in challenge.DEPTHS
        return known and sizes

    @property
    def source(self) -> str | None:
        """Where its network comes from, as the configuration's key `source` has it; None for one of the user's own."""
        kind = self.network.rpartition("-")[0]
        return next((source for source, named in SOURCES.items() if named == kind), None)

    @property
    def cut(self) -> dict:
        """Schedule, devices and device_memory, as the command's options are named."""
        return {"schedule": self.schedule, "devices": self.devices, "device_memory": self.device_memory}

    @property
    def prepared(self) -> str:
        """As the file of the prepared network is named; depths share it."""
        return f"{self.network}.{self.engine}.{self.reductions.replace(',', '+')}"


def check(config: dict, schema: str | Path) -> dict:
    """The configuration with lists where the schema allows a value or a list of them, which it does by `anyOf`.

    Raises:
        InputError: a key or value that the schema does not allow, or two that exclude each other; one sentence that
            names it.
    """
    rules, validator = _rules(Path(schema))
    nullable = [key for key, rule in rules["properties"].items() if "null" in rule.get("type", ())]
    # `--config count=null layers=[120]` gives the texts null and 120
    config = dict(config) | {key: None for key in nullable if config.get(key) in ("null", "none", "None")}
    config = {key: _number(value) for key, value in config.items()}
    errors = sorted(validator.iter_errors(config), key=lambda error: [str(part) for part in error.absolute_path])
    if errors:
        raise InputError(f"config: {_sentence(errors[0], rules)}")
    checked = _listed(config, rules) | {"cases": [_listed(item, rules) for item in config["cases"]]}
    for key, path in _paths(checked):
        check_no_url(path)
        if {"{", "}"} <= set(path):
            said = shortened(repr(path))
            raise InputError(
                f"config: {key}: {said} has braces, which are wildcards in Snakemake; rename what it names"
            )
    names = [own["name"] for own in checked["networks"]]
    if len(set(names)) != len(names):
        raise InputError(f"config: networks: the name {max(names, key=names.count)!r} is used twice")
    for item in checked["cases"]:
        if unknown := set(item.get("networks", ())) - set(names):
            raise InputError(f"config: cases: networks: {min(unknown)!r} is not the name of one of your own networks")
    for part in _parts(checked):
        _check_part(part)
    return checked


def _paths(config: dict) -> Iterator[tuple[str, str]]:
    """(key, path) of what a checked configuration names of the user's own files."""
    for own in config["networks"]:
        yield from ((f"networks.{key}", own[key]) for key in ("path", "inputs", "truth") if own.get(key))
    for above, key in (("fetch", "mnist"), ("ops", "dlmc")):
        if path := (config[above] or {}).get(key):
            yield f"{above}.{key}", path


def _listed(config: dict, rules: dict) -> dict:
    """A configuration, or a part of one, with a list wherever the schema allows a value or a list."""
    lists = {key for key, rule in rules["properties"].items() if "anyOf" in rule}
    return {key: [value] if key in lists and not isinstance(value, list) else value for key, value in config.items()}


def _parts(config: dict) -> list[dict]:
    """The configuration without its `cases`, and for each of these the configuration as it changes it."""
    own = {network["name"]: network for network in config["networks"]}
    parts = [config]
    for item in config["cases"]:
        part = config | item | {"networks": [own[name] for name in item.get("networks", ())]}
        if "networks" in item and "neurons" not in item:
            part["neurons"] = []
        if {"engines", "reductions"} & set(item):
            part["ladder"] = []
        for one, other in (("count", "inputs_per_rank"), ("inputs_per_rank", "count")):
            if one in item and other not in item:
                part[other] = None
        parts.append(part)
    return parts


def deepest(config: dict) -> int:
    """The most layers that a case of a checked configuration has, of networks that are made."""
    return max((layers for part in _parts(config) for layers in part["layers"]), default=0)


def _check_part(checked: dict) -> None:
    """Raise InputError where two keys of a configuration exclude each other."""
    _check_devices(checked)
    if checked["count"] is not None and checked["inputs_per_rank"] is not None:
        raise InputError(
            f"config: inputs_per_rank: {checked['inputs_per_rank']} is not allowed with count: {checked['count']}; "
            "one of them must be null, for both say how many inputs a case has"
        )
    if "official" in [checked["source"], *checked["inputs"]] and (
        odd := set(checked["neurons"]) - set(challenge.WIDTHS)
    ):
        raise InputError(
            f"config: neurons: {min(odd)} is no official width, so there is nothing official to download for it"
        )


@cache
def _rules(schema: Path) -> tuple[dict, Any]:
    """A schema, and what checks a configuration by it."""
    import jsonschema
    import yaml

    rules = yaml.safe_load(schema.read_text(encoding="utf-8"))
    return rules, jsonschema.Draft202012Validator(rules)


def _check_devices(config: dict) -> None:
    """Raise InputError where the task graph's devices, parts of the threads, would have none."""
    for name in [*config["engines"], *(rung["engine"] for rung in config["ladder"])]:
        one = engine(name, usable=False)
        if one.cuts and not one.on_device and max(config["devices"]) > min(config["threads"]):
            raise InputError(
                f"config: devices: {max(config['devices'])} devices of {min(config['threads'])} threads; each device "
                f"of the engine {name} takes one thread at least"
            )


def cases(config: dict) -> list[Case]:
    """The cases of a checked configuration, each once: every combination, and then those of each item of its `cases`.

    An item is a change of the configuration, and its cases are every combination of what comes out; an own network has
    its own inputs. None at all is allowed where there are sparse operations to run.

    Raises:
        InputError: nothing to run, or two cases that have the same name and differ.
    """
    cases = list(dict.fromkeys(case for part in _parts(config) for case in _combinations(part)))
    if not cases and not config.get("ops"):
        raise InputError("config: nothing to run: neurons and layers are empty and there is no network of your own")
    names = [case.name for case in cases]
    if len(set(names)) != len(names):
        twice = max(names, key=names.count)
        raise InputError(f"config: cases: two cases are named {twice}; they may not differ in device_memory alone")
    return cases


def _combinations(config: dict) -> list[Case]:
    """The cases of every combination of a configuration's lists."""
    problems = [
        (f"{SOURCES[config['source']]}-{neurons}", layers, f"{inputs}-{neurons}")
        for neurons, layers, inputs in itertools.product(config["neurons"], config["layers"], config["inputs"])
    ]
    problems += [(own["name"], own["layers"], f"own-{own['name']}") for own in config["networks"]]
    pairs = [(rung["engine"], rung["reductions"]) for rung in config["ladder"]]
    pairs = pairs or itertools.product(config["engines"], config["reductions"])
    settings = [(*pair, threads) for pair in pairs for threads in config["threads"]]
    return [
        Case(*problem, _count(config, ranks), *setting, ranks, partition if ranks > 1 else None, *cut)
        for problem, setting, ranks, partition in itertools.product(
            problems, settings, config["ranks"], config["partition"]
        )
        for cut in _cuts(setting[0], config)
    ]


def _cuts(name: str, config: dict) -> list[tuple]:
    """(schedule, devices, device_memory) of the cases of the engine of that name."""
    if not engine(name, usable=False).cuts:
        return [(None, None, None)]
    pairs = itertools.product(config["schedules"], config["devices"])
    return [(schedule, devices, config["device_memory"]) for schedule, devices in pairs]


def _count(config: dict, ranks: int) -> int | None:
    """Inputs of a case of so many ranks: as many on each where the configuration says so (weak scaling)."""
    each = config["inputs_per_rank"]
    return config["count"] if each is None else ranks * each


def _number(value):
    """A text of a number as that number, a float without a fraction as an integer; in lists and dictionaries too."""
    if isinstance(value, list):
        return [_number(item) for item in value]
    if isinstance(value, dict):
        return {key: _number(item) for key, item in value.items()}
    if isinstance(value, str) and re.fullmatch(
        r"-?\d{1,18}(\.\d{1,18})?(e[+-]?\d{1,3})?", value, re.ASCII | re.IGNORECASE
    ):
        value = float(value) if set(value.lower()) & set(".e") else int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sentence(error, rules: dict) -> str:
    """A schema error as one sentence: where, the value, what is allowed."""
    where = ".".join(map(str, error.absolute_path)) or "top level"
    if error.validator == "additionalProperties":
        allowed = list(error.schema.get("properties", {}))
        unknown = min(map(str, set(error.instance) - set(allowed)))
        close = difflib.get_close_matches(unknown, allowed, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(allowed)}"
        return f"{where}: the key {shortened(repr(unknown))} is not known{hint}"
    schema = error.schema
    if error.validator == "required":
        absent = [name for name in error.validator_value if name not in error.instance]
        return f"{where}: {absent[0]} is missing; {schema.get('description', 'it is required')}"
    meant = schema.get("description") or shortened(error.message, LONGEST_SENTENCE)
    return f"{where}: {shortened(repr(error.instance))} is not allowed; {meant}"
