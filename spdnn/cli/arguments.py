"""Types of arguments, and options that are made of declared fields: those of a RunRequest and of engines' settings."""

import argparse
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec.inspect as inspect
from msgspec import UNSET

from spdnn.core.errors import InputError
from spdnn.core.fields import descriptions
from spdnn.core.files import check_outputs, check_target
from spdnn.core.request import ALL_EDGES, LARGEST_COUNT, ORACLE_EDGES, ORACLE_SPEED, READING, RunRequest
from spdnn.core.threads import threads as threads
from spdnn.engines.registry import nondefault_settings, settings_types

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


def number(text: str, kind: type, fits: Callable[[float], bool], allowed: str) -> float:
    """A number of that kind for which `fits` is true; `allowed` is what the error says it must be."""
    try:
        value = kind(text)
    except ValueError:
        value = math.nan
    if not fits(value):
        raise argparse.ArgumentTypeError(f"{text[:40]!r} must be {allowed}")
    return value


def positive(text: str) -> int:
    """An integer from 1 to LARGEST."""
    return number(text, int, lambda n: 1 <= n <= LARGEST_COUNT, f"an integer from 1 to {LARGEST_COUNT:,}")


def positives(text: str) -> list[int]:
    """Such integers joined by commas, each once."""
    return list(dict.fromkeys(map(positive, text.split(","))))


def size(text: str) -> int:
    """Bytes: a number, or one with k, M, G, T (powers of 1000) or Ki, Mi, Gi, Ti (of 1024), B optional."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([kmgt]?i?)b?", text.strip().lower())
    if not match or match[2] not in _UNITS or not 1 <= float(match[1]) < LARGEST_COUNT**2:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of bytes, such as 8000000000, 8GB or 7.5GiB")
    return int(float(match[1]) * _UNITS[match[2]])


def above_zero(text: str, allowed: str = "a positive number") -> float:
    """A positive number; `allowed` is what the error says it must be."""
    return number(text, float, lambda n: 0 < n < math.inf, allowed)


def verify(command: argparse.ArgumentParser) -> None:
    """Add --verify, which sets the edges that the reference may go through."""
    command.add_argument(
        "--verify",
        dest="oracle_edges",
        type=_edges,
        metavar="all|SECONDS",
        help="where there is no official ground truth: compare all inputs with the float64 reference, or a seeded "
        "sample that takes about this long on one core (at least 32 inputs and 32 active inputs, the same on every "
        f"machine; default: {ORACLE_EDGES / ORACLE_SPEED:.3g})",
    )


def _edges(text: str) -> float:
    if text == "all":
        return ALL_EDGES
    return min(ALL_EDGES, ORACLE_SPEED * above_zero(text, "all, or a positive number of seconds"))


def add_fields(command: Any, kind: type, names: Iterable[str], **changes: dict) -> None:
    """Add an option for each of these fields of a class; it is None unless it is given.

    Args:
        command: a parser or a group of one.
        kind: RunRequest, or the settings of an engine.
        changes: words of `add_argument` that differ for a field, such as another help text.
    """
    declared, described = {field.name: field for field in inspect.type_info(kind).fields}, descriptions(kind)
    for name in names:
        words = _words(declared[name], described.get(name, "")) | changes.get(name, {})
        negation = "no-" if words.get("action") else ""
        command.add_argument(f"--{negation}{name.replace('_', '-')}", dest=name, **words)


def option(command: Any, name: str, **words: Any) -> None:
    """Add the option of one field of RunRequest; `words`: help, default and the like."""
    add_fields(command, RunRequest, [name], **{name: words})


def add_reading(command: argparse.ArgumentParser) -> None:
    """What must be known of a file of weights alone: --last, --bias, --clip...; `reading` has what was set."""
    group = command.add_argument_group("model files that hold weights alone")
    command._negative_number_matcher = re.compile(r"-[\d.]")  # -0.3,-0.4 is a value, too
    add_fields(group, RunRequest, READING)


def add_settings(command: argparse.ArgumentParser, without: tuple[str, ...] = ()) -> None:
    """The options of the engines' settings, a group for each type."""
    for engines, kind in settings_types().items():
        names = " and ".join(f"`{name}`" for name in engines)
        group = command.add_argument_group(f"settings of the engines {names}")
        add_fields(group, kind, [field.name for field in fields(kind) if field.name not in without])


def settings(args: argparse.Namespace) -> dict:
    """The settings that were given, by name."""
    names = [field.name for kind in settings_types().values() for field in fields(kind)]
    return {name: value for name in names if (value := getattr(args, name, None)) is not None}


def request(args: argparse.Namespace, ranks: int = 1) -> RunRequest:
    """The request that the options of a command make, on so many ranks."""
    names = (field for field in RunRequest.__struct_fields__ if field != "settings")
    values = {name: value for name in names if (value := getattr(args, name, None)) is not None}
    own_settings = nondefault_settings(values.get("engine", "cpu"), settings(args))
    return RunRequest.of(values | {"settings": own_settings, "ranks": ranks}, "")


def check_files(args: argparse.Namespace, request: RunRequest | None = None) -> None:
    """Refuse outputs of a command that cannot be written, or would replace what it reads, before anything runs.

    A command says which of its arguments are files that it reads and writes: `reads` and `writes` of its defaults. In
    `writes`, `folder/*.json` are such files in the folder that the argument `folder` names.

    Args:
        request: what it names is read too.

    Raises:
        InputError: as files.check_outputs; or what should be a folder is none.
    """
    outputs, inside = [], []
    for name, _, pattern in (name.partition("/") for name in getattr(args, "writes", ())):
        path = getattr(args, name)
        if path and pattern:
            if os.path.exists(path) and not os.path.isdir(path):
                raise InputError(f"{path}: a folder is needed for what is written, and this is none")
            inside += filter(Path.is_file, Path(path).glob(pattern))
        elif path:
            outputs.append(path)
    check_outputs(outputs)
    existing = [*inside, *filter(os.path.exists, outputs)]
    if existing:
        pairs = [(name, getattr(args, name)) for name in args.reads]
        pairs += [(name, getattr(request, name)) for name in ("network", "inputs", "mnist", "truth") if request]
        check_outputs(existing, (file for name, value in pairs for file in _read(name, value)))


def file_in(folder: str | None, name: str) -> Path | None:
    """The file `name` to write in a folder, which is made; None of no folder. Raises as files.check_target."""
    if not folder:
        return None
    target = Path(folder, name)
    target.parent.mkdir(parents=True, exist_ok=True)
    check_target(target)
    return target


def _read(name: str, value: str | Path | list | None) -> Iterator[Path]:
    """The files that are read where the argument `name` has this value."""
    for path in map(Path, value if isinstance(value, list) else [value] if value else []):
        if name == "network":
            from spdnn.formats.readers import network_files

            yield from network_files(path)
        elif name == "records":
            from spdnn.runs.records.cases import record_files

            files = record_files(path)
            yield from (*files.records, *files.verdicts, path / "cases.json")
        else:
            yield from path.rglob("*") if os.path.isdir(path) else [path]


def _words(field: inspect.Field, described: str) -> dict:
    """The words of `add_argument` that a field has."""
    kind, extra = field.type, {}
    if isinstance(kind, inspect.UnionType):
        kinds = [allowed for allowed in kind.types if not isinstance(allowed, inspect.NoneType)]
        kind = kinds[0] if len(kinds) == 1 else inspect.UnionType(tuple(kinds))
        extra = next((kind.extra for kind in kinds if isinstance(kind, inspect.Metadata) and kind.extra), {})
    if isinstance(kind, inspect.Metadata):
        kind, extra = kind.type, kind.extra or {}
    text = described.rstrip(".").replace("%", "%%")
    if isinstance(kind, inspect.BoolType):
        return {"action": "store_const", "const": False, "help": text.partition("; without, ")[2]}
    if field.default not in (None, inspect.NODEFAULT, UNSET) and "(default" not in text:
        text += f" (default: {field.default:g})" if isinstance(field.default, float) else f" (default: {field.default})"
    if isinstance(kind, inspect.LiteralType):
        return {"help": text, "choices": list(kind.values)}
    letter = "BYTES" if extra.get("unit") == "bytes" else "N" if isinstance(kind, inspect.IntType) else "X"
    return {"help": text, "type": _parser(kind, extra), "metavar": extra.get("metavar", letter)}


def _parser(kind: inspect.Type, extra: dict) -> Callable[[str], Any]:
    """What reads the value of an option of a type."""
    if isinstance(kind, inspect.UnionType):
        return lambda text: _either(kind.types, text)
    if extra.get("unit") == "bytes":
        return size
    if isinstance(kind, inspect.IntType):
        low, high = kind.ge, kind.le
        return lambda text: number(text, int, lambda n: low <= n <= high, f"an integer from {low} to {high:,}")
    if isinstance(kind, inspect.FloatType):
        if kind.gt == 0:
            return above_zero
        return lambda text: number(text, float, math.isfinite, "a number")
    return str


def _either(kinds: tuple[inspect.Type, ...], text: str) -> Any:
    """A number, one of some words, or numbers joined by commas, as the types allow."""
    plain = (kind.type if isinstance(kind, inspect.Metadata) else kind for kind in kinds)
    by_type = {type(kind): kind for kind in plain}
    if words := by_type.get(inspect.LiteralType):
        allowed = "a positive number" + "".join(f" or {word}" for word in words.values)
        return text if text in words.values else above_zero(text, allowed)
    parts = text.split(",")
    allowed = "a number, or one for each layer joined by commas"
    numbers = [number(part, float, math.isfinite, allowed) for part in parts]
    return numbers if len(numbers) > 1 else numbers[0]
