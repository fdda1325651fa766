"""The configuration of the workflow: checked against its closed schema, and expanded into requests.

Keys that are fields of a request, or settings of an engine, are declared there (spdnn/core/request.py, and the
engine's settings); the schema's file has the others.
"""

import dataclasses
import difflib
import itertools
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from spdnn.core.errors import InputError
from spdnn.core.fields import descriptions
from spdnn.core.request import FILE_FIELDS, GENERATED, RunRequest
from spdnn.core.safe_open import check_no_url
from spdnn.core.validation import LONGEST_SENTENCE, allowed_values, shorten
from spdnn.engines.registry import engine, nondefault_settings, settings_types
from spdnn.formats.fetch import find_mirror
from spdnn.runs.workflow.decisions import WORDS, Decisions, affordable, resolved

NOT_KEYS = ("settings", "cache", "device")  # of a request: a workflow has files of its own, and takes all devices
FIELDS = [name for name in RunRequest.__struct_fields__ if name not in NOT_KEYS]
TAKEN = re.compile(r"\{.*\}|<[a-z][a-z0-9_]*>", re.DOTALL)  # in a path, by Snakemake
NUMBER = re.compile(r"-?\d{1,18}(\.\d{1,18})?(e[+-]?\d{1,3})?", re.ASCII | re.IGNORECASE)


@cache
def keys_of_cases() -> list[str]:
    """The keys that each case may have: the fields of a request, and the engines' settings."""
    return [*FIELDS, *(field.name for kind in settings_types().values() for field in dataclasses.fields(kind))]


def schema(path: str | Path) -> dict:
    """The JSON Schema of a configuration: that of the file, with the fields of a request and the engines' settings,
    each of which may be a list.
    """
    import yaml

    rules = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    keys: dict[str, dict] = {}
    for kind in (RunRequest, *settings_types().values()):
        whole, described = msgspec.json.schema(kind), descriptions(kind)
        nodes = whole["$defs"][kind.__name__]["properties"]
        for name in filter(nodes.__contains__, keys_of_cases()):
            node = {key: value for key, value in nodes[name].items() if key != "default"}
            words = [{"enum": list(WORDS[name])}] if name in WORDS else []
            several = {"type": "array", "items": {"anyOf": [node, *words]} if words else node}
            text = ", or ".join([f"{described.get(name, '').rstrip('.')}; one or a list", *WORDS.get(name, ())])
            keys[name] = {"description": text, "anyOf": [node, several, *words]}
    rules["required"] = ["neurons", "layers", *rules["properties"]]
    # A network file, and what goes with it, is an item of `cases`.
    rules["properties"] = {name: key for name, key in keys.items() if name not in FILE_FIELDS} | rules["properties"]
    for cases in ("cases", "device_cases"):
        item = rules["properties"][cases]["items"]
        item["properties"] = keys | {"inputs_per_rank": rules["properties"]["inputs_per_rank"]}
    return rules


def check(config: dict, path: str | Path) -> dict:
    """The configuration with a list for each key of a request.

    InputError for a key or value that the schema, the file at `path`, does not allow, or two that exclude each other.
    """
    rules, validator = _rules(Path(path))
    nullable = [key for key, rule in rules["properties"].items() if "null" in str(rule.get("type", rule.get("anyOf")))]
    # `--config count=null layers=[120]` gives the texts null and 120
    config = dict(config) | {key: None for key in nullable if config.get(key) in ("null", "none", "None")}
    config = {key: _plain(value) for key, value in config.items()}
    errors = sorted(validator.iter_errors(config), key=lambda error: [str(part) for part in error.absolute_path])
    if errors:
        raise InputError(f"config: {_sentence(errors[0])}")
    _check_path("ops.dlmc", (config["ops"] or {}).get("dlmc"))
    for path in config["other_records"]:
        _check_path("other_records", path)
    find_mirror(config["mirror"] or "")
    return _with_lists(config) | {key: [_with_lists(item) for item in config[key]] for key in ("cases", "device_cases")}


def _check_path(key: str, path: str | None) -> None:
    """Raise InputError for a file of the user's own whose path Snakemake would not take as it is."""
    if path is None:
        return
    check_no_url(path)
    if found := TAKEN.search(path):
        said = shorten(repr(path))
        raise InputError(
            f"config: {key}: {said} has {found[0]!r}, a wildcard or a variable in Snakemake; rename what it names"
        )


@cache
def _rules(path: Path) -> tuple[dict, Any]:
    """A schema, and what checks a configuration by it."""
    import jsonschema

    rules = schema(path)
    return rules, jsonschema.Draft202012Validator(rules)


def _with_lists(config: dict) -> dict:
    """A configuration, or a change of one, with a list for each key of a request."""
    each = {"bias"}  # a list of it is one value
    return {key: [value] if key in keys_of_cases() and (key in each or not isinstance(value, list)) else value
            for key, value in config.items()}  # fmt: skip


def requests(config: dict, made: Decisions) -> list[RunRequest]:
    """The requests of a checked configuration, each once: every combination, and then those of each of its `cases`.

    A case is a change of the configuration. None at all is allowed where there are sparse operations to run.

    Args:
        made: what the words of the configuration mean here, and which of its cases can run.

    Raises:
        InputError: nothing to run, a request that no run could have, or two that have the same name and differ.
    """
    original, config = config, resolved(config, made)
    parts = [config, *(_apply_case(config, item) for item in config["cases"])]
    requests = {}
    for request in (request for part in parts for request in _combinations(part)):
        if requests.setdefault(request.name, request) != request:
            raise InputError(f"config: cases: two cases are named {request.name}; they may not differ in repeats alone")
    if not requests and not config.get("ops"):
        raise InputError("config: nothing to run: neurons and layers are empty and there is no network file in cases")
    return affordable(requests.values(), original, made)


def _apply_case(config: dict, item: dict) -> dict:
    """The configuration as an item of its `cases` changes it."""
    part = config | item
    if "network" in item:
        part |= {"neurons": [None], "source": ["formula"], "layers": [None]} | item
    if {"engine", "reductions"} & set(item):
        part["ladder"] = []
    for key, other in (("count", "inputs_per_rank"), ("inputs_per_rank", "count")):
        if key in item and other not in item:
            part[other] = None if other == "inputs_per_rank" else [None]
    return part


def _combinations(config: dict) -> list[RunRequest]:
    """The requests of every combination of a configuration's lists."""
    each = config["inputs_per_rank"]
    if each is not None and config.get("count", [None]) != [None]:
        raise InputError(
            f"config: inputs_per_rank: {each} is not allowed with count: {config['count'][0]}; "
            "one of them must be null, for both say how many inputs a case has"
        )
    lists = {key: config[key] for key in keys_of_cases() if key in config}
    if config["ladder"]:
        del lists["engine"], lists["reductions"]
    return [
        _request(dict(zip(lists, values, strict=True)) | step, each)
        for step in config["ladder"] or [{}]
        for values in itertools.product(*lists.values())
    ]


def _request(values: dict, inputs_per_rank: int | None) -> RunRequest:
    """The request of one value for each key; settings that its engine does not have are left out."""
    values = {key: value for key, value in values.items() if value is not None}
    kind, ranks = engine(values.get("engine", "cpu"), usable=False).settings, values.get("ranks", 1)
    known = [field.name for field in dataclasses.fields(kind)] if kind else []
    settings = nondefault_settings(values.get("engine", "cpu"), {key: values[key] for key in known if key in values})
    fields = {key: value for key, value in values.items() if key in FIELDS} | {"settings": settings}
    if inputs_per_rank is not None:
        fields["count"] = ranks * inputs_per_rank
    if ranks == 1:
        fields.pop("partition", None)
    request = RunRequest.of(fields, "config")
    if request.network is not None and request.inputs in GENERATED:
        raise InputError(
            f"config: cases: {request.network}: a network file needs a file of inputs, not {request.inputs}"
        )
    for key in ("network", "inputs", "truth", "mnist"):
        _check_path(key, getattr(request, key))
    runner = engine(request.engine, usable=False)
    devices, threads = settings.get("devices", 1), request.threads
    if kind and not runner.on_device and threads and devices > threads:
        raise InputError(
            f"config: devices: {devices} devices of {threads} threads; each device of the engine {request.engine} "
            "takes one thread at least"
        )
    return request


def _plain(value):
    """A text of a number or a truth value as that, a whole float as an integer, ~ as the home folder; in lists and
    dictionaries too.
    """
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, str) and value.startswith("~"):
        return os.path.expanduser(value)
    if value in ("true", "false"):
        return value == "true"
    if isinstance(value, str) and NUMBER.fullmatch(value):
        value = float(value) if set(value.lower()) & set(".e") else int(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _sentence(error) -> str:
    """A schema error as one sentence: where, the value, what is allowed."""
    where = ".".join(map(str, error.absolute_path)) or "top level"
    if error.validator == "additionalProperties":
        known = list(error.schema.get("properties", {}))
        unknown = min(map(str, set(error.instance) - set(known)))
        close = difflib.get_close_matches(unknown, known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(known)}"
        return f"{where}: the key {shorten(repr(unknown))} is not known{hint}"
    schema = error.schema
    if error.validator == "required":
        absent = [name for name in error.validator_value if name not in error.instance]
        return f"{where}: {absent[0]} is missing; {schema.get('description', 'it is required')}"
    meant = schema.get("description") or shorten(error.message, LONGEST_SENTENCE)
    if "anyOf" in schema and "type" in str(schema["anyOf"][0]):
        meant += f" ({allowed_values(schema['anyOf'][0])})"
    return f"{where}: {shorten(repr(error.instance))} is not allowed; {meant}"
