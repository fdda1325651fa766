"""Configuration files as people write them: a key that stands twice is refused, and 0100 is the number 100.

Snakemake reads the same files before, and of both it keeps one value without a word: YAML 1.1 has 0100 for 64.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from spdnn.core import safe_open
from spdnn.core.errors import InputError
from spdnn.core.validation import shorten

# The scalars of YAML's core schema (1.2.2, section 10.3.2), and yes, no, on and off for true and false as in YAML 1.1.
# What 1.1 has besides stays a text: base 60 (1:30) and dates.
BOOL = re.compile("(?:true|True|TRUE|yes|Yes|YES|on|On|ON|false|False|FALSE|no|No|NO|off|Off|OFF)$")
INT = re.compile(r"[-+]?[0-9]+(_[0-9]+)*$|0o[0-7]+$|0x[0-9a-fA-F]+$", re.ASCII)
FLOAT = re.compile(
    r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$|[-+]?\.(inf|Inf|INF)$|\.(nan|NaN|NAN)$", re.ASCII
)
TEMPLATE = "__use_yte__"  # a file with this key is a template, which Snakemake expands


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = {}  # noqa: RUF012, the name is of PyYAML

    def compose_mapping_node(self, anchor):
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            name, line = (key.tag, key.value), key.start_mark.line + 1
            if name in lines:
                raise _Twice(f"line {line}: the key {key.value!r} stands twice, first in line {lines[name]}")
            lines[name] = line
        return node


class _Twice(Exception):
    """A key that stands twice."""


def _integer(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = loader.construct_scalar(node)
    return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))


for _tag, _pattern, _first in (
    ("bool", BOOL, "tTyYoOfFnN"),
    ("int", INT, "-+0123456789"),
    ("float", FLOAT, "-+.0123456789"),
    ("merge", re.compile("<<$"), "<"),
    ("null", re.compile("(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", _pattern, list(_first))
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)


def read(path: str | Path) -> dict:
    """The keys and values of a configuration file, JSON or YAML.

    Raises:
        InputError: it cannot be read, is neither, has no keys at the top, or has one twice.
    """
    text = safe_open.text(path, "configuration", "UTF-8")
    if TEMPLATE in text:
        from snakemake.common.configfile import load_configfile

        return load_configfile(str(path))
    try:
        try:
            values = json.loads(text, object_pairs_hook=_pairs)
        except ValueError:
            values = yaml.load(text, _Loader)
    except _Twice as error:
        raise InputError(f"{path}: {error}") from error
    except (
        yaml.YAMLError,
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise InputError(f"{path}: neither YAML nor JSON ({safe_open.brief(error)})") from error
    if not isinstance(values, dict):
        raise InputError(f"{path}: {shorten(repr(values))} has no keys; a configuration is lines of KEY: VALUE")
    return values


def read_all(paths: Iterable[str | Path], typed: Mapping[str, Any]) -> dict:
    """The values of these files, the later ones over the earlier ones, and over them what was typed with --config."""
    from snakemake.utils import update_config

    values: dict = {}
    for change in (*map(read, paths), typed):
        update_config(values, change)
    return values


def _pairs(pairs: list[tuple[str, Any]]) -> dict:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(f"the key {max(names, key=names.count)!r} stands twice")
    return values
