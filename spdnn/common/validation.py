"""Whether something follows a schema of `schemas/`, those of records and verdicts; if not, a sentence with the key."""

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

from spdnn.common.errors import InputError, Unavailable

SCHEMAS = Path(__file__).resolve().parent / "schemas"
LARGEST = 2**63 - 1  # of any whole number, as in the schemas
PLAIN = {str, bool, type(None)}  # kinds of values that hold no number
LONGEST_VALUE = 60  # characters of a value that an error sentence shows
LONGEST_SENTENCE = 200


def check_schema(name: str, content: Any, where: str) -> None:
    """Raise InputError, one sentence that starts with `where`, unless the content follows the schema of that name.

    Args:
        name: of a file in `schemas/`.
        content: as `json.loads` gives it, or what `json.dumps` takes.

    Raises:
        InputError: the content does not follow the schema; of several reasons, the one whose key comes first.
        Unavailable: the library that checks is absent.
    """
    check_numbers(content, where)
    try:
        errors = _errors(name, content)
    except (TypeError, ValueError, RecursionError) as error:  # a key that is no text, a list within itself
        raise InputError(f"{where}: it is no JSON ({shortened(str(error))})") from error
    first = min(errors, key=lambda error: list(map(str, error.instance_path)), default=None)
    if first is not None:
        value = json.dumps(first.instance, ensure_ascii=False, separators=(",", ":"))  # as the library prints it
        key, told = _key(first.instance_path), first.message.replace(value, shortened(value))
        key, told = shortened(key), shortened(told, LONGEST_SENTENCE)
        raise InputError(f"{where}: {key}: {told}" if key else f"{where}: {told}")


def check_numbers(content: Any, where: str) -> None:
    """Raise InputError where there is NaN, an infinity or an absurdly large whole number; schemas let NaN through."""
    if _sound_numbers(content):
        return
    todo = [("", content)]
    while todo:
        key, value = todo.pop()
        if isinstance(value, dict):
            todo += ((f"{key}.{name}" if key else str(name), part) for name, part in value.items())
        elif isinstance(value, list):
            todo += ((f"{key}[{place}]", part) for place, part in enumerate(value))
        elif isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{where}: {shortened(key)}: {value} is not a finite number")
        elif isinstance(value, int) and abs(value) > LARGEST:
            raise InputError(f"{where}: {shortened(key)}: a whole number beyond 2**63 - 1")


def shortened(text: str, longest: int = LONGEST_VALUE) -> str:
    """The text on one line without control characters, its end left out where it is longer."""
    text = " ".join("".join(sign if sign.isprintable() else " " for sign in text).split())
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _sound_numbers(content: Any) -> bool:
    """Whether all numbers are sound, for sure: quickly, kind by kind, since almost always they are."""
    todo = [[content]]
    while todo:
        values = todo.pop()
        for kind in (kinds := set(map(type, values))) - PLAIN:
            some = values if len(kinds) == 1 else [value for value in values if type(value) is kind]
            if kind is dict:
                todo += [one.values() for one in some]
            elif kind is list:
                todo += some
            elif not (
                (kind is int and min(some) >= -LARGEST and max(some) <= LARGEST)
                or (kind is float and all(map(math.isfinite, some)))
            ):
                return False
    return True


def _key(path: list) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _errors(name: str, content: Any) -> list:
    """What the library finds; of values that it does not know, and of text that is no Unicode, in a likeness."""
    validator = _validator(name)
    try:
        return list(validator.iter_errors(content))
    except ValueError:
        likeness = json.dumps(content, default=repr, ensure_ascii=False).encode(errors="xmlcharrefreplace")
        return list(validator.iter_errors(json.loads(likeness)))


@cache
def _validator(name: str):
    """The validator of one schema; all of them know each other by their names."""
    try:
        import jsonschema_rs
    except ImportError as error:
        raise Unavailable("checking records needs jsonschema-rs: pip install 'spdnn[full]'") from error
    schemas = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in SCHEMAS.glob("*.json")}
    return jsonschema_rs.Draft202012Validator(schemas[name], registry=jsonschema_rs.Registry(list(schemas.items())))
