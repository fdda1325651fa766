"""JSON as objects of typed classes (msgspec); an error is one sentence that names the field."""

import contextlib
import json
import math
import re
from collections.abc import Iterable
from functools import cache
from itertools import accumulate
from typing import Any, TypeVar

import msgspec

from spdnn.core import safe_open
from spdnn.core.addresses import hide_secrets
from spdnn.core.errors import InputError

LARGEST_INTEGER = 2**63 - 1  # of any whole number
WHOLE = re.compile(r"\d{1,18}", re.ASCII)  # the text of one, which fits; Python reads no text past 4,300 digits
END = r"(?!\n)"  # after the $ of a pattern, which Python allows before a last line break
DEEPEST_JSON = 500  # lists and objects in one another; Python's own limit is 1,000 up to 3.11 and 10,000 from 3.12 on
LONGEST_VALUE = 60  # characters of a value that an error sentence shows
LONGEST_SENTENCE = 180  # of what is wrong, besides where: a line and a field
# Where any digit is 0, and a comma whatever precedes a number, this is one that may be beyond LARGEST_INTEGER.
DIGITS, LONG_NUMBER = bytes.maketrans(b"123456789 :[\n\t\r-", b"000000000,,,,,,,"), b"," + b"0" * 19
NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
OWN = ("Expected ", "Invalid ", "Number ", "Object ")  # how msgspec's own sentences begin
UNREADABLE = (msgspec.MsgspecError, TypeError, ValueError, RecursionError)
Kind = TypeVar("Kind")
_decoder = cache(msgspec.json.Decoder)


def parse(kind: type[Kind], text: str, where: str, what: str) -> Kind:
    """The object of class `kind` that a text in JSON holds.

    Args:
        where: begins the sentence of an error: a file, and perhaps a line.
        what: the text should be: "run record".

    Raises:
        InputError: no JSON, or a value that the class does not allow; the sentence names its field.
    """
    with contextlib.suppress(*UNREADABLE):
        content = text.encode()
        if LONG_NUMBER not in content.translate(DIGITS) and not _may_be_deep(content):
            return _decoder(kind).decode(text)
    # The value says what is wrong. Free parts, where fields have no limits, may hold a number that is too large, or
    # lists in lists.
    return convert(kind, json_of(text, where, what), where)


def encode(value: Any) -> bytes:
    """An object of typed classes in JSON, the same bytes for the same values: fields in order of their class."""
    return msgspec.json.encode(value, order="deterministic")


def convert(kind: type[Kind], content: Any, where: str) -> Kind:
    """The object of class `kind` that dictionaries, lists, texts and numbers are; InputError as of `parse`."""
    check_numbers(content, where)
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: {_sentence(kind, content, str(error))}") from error
    except UNREADABLE as error:  # a key that is no text, a list within itself, a text that is no Unicode
        raise InputError(f"{where}: it is no JSON ({shorten(str(error))})") from error


def json_of(text: str, where: str, what: str) -> Any:
    """What a text in JSON holds; of a key that is there twice, the last value. InputError where it is none."""
    with safe_open.sound(f"{where}: it is not a {what} in JSON"):
        return msgspec.json.decode(text)


def builtins(value: Any) -> Any:
    """An object of typed classes as dictionaries, lists and numbers, in the order of its fields."""
    return msgspec.to_builtins(value, enc_hook=_number)


def check_numbers(content: Any, where: str) -> None:
    """Raise InputError where there is NaN, an infinity or an absurdly large whole number, or more than DEEPEST_JSON
    lists and objects in one another.
    """
    todo = [("", content, 1)]
    while todo:
        key, value, depth = todo.pop()
        if isinstance(value, dict | list) and depth > DEEPEST_JSON:
            raise InputError(f"{where}: {shorten(key)}: it is nested more than {DEEPEST_JSON} deep")
        if isinstance(value, dict):
            todo += ((f"{key}.{name}" if key else str(name), part, depth + 1) for name, part in value.items())
        elif isinstance(value, list):
            todo += ((f"{key}[{index}]", part, depth + 1) for index, part in enumerate(value))
        elif isinstance(value, float) and not math.isfinite(value):
            raise InputError(f"{where}: {shorten(key)}: {value} is not a finite number")
        elif isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            raise InputError(f"{where}: {shorten(key)}: a whole number beyond 2**63 - 1")


def shorten(text: str, longest: int = LONGEST_VALUE) -> str:
    """The text on one line without control characters and secrets of addresses, its end left out where it is longer."""
    text = hide_secrets(" ".join("".join(sign if sign.isprintable() else " " for sign in text).split()))
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _may_be_deep(content: bytes) -> bool:
    """Whether lists and objects may be nested more than DEEPEST_JSON deep: brackets in texts count here."""
    brackets = content.translate(None, NO_BRACKETS)
    if brackets.count(b"[") + brackets.count(b"{") <= DEEPEST_JSON:
        return False
    return max(accumulate(1 if bracket in b"[{" else -1 for bracket in brackets)) > DEEPEST_JSON


def quote(value: object) -> str:
    """A value in quotes as Python writes it, for the sentence of an error: on one line, its end left out."""
    return shorten(repr(value))


def schema(kind: type) -> dict:
    """The JSON Schema (2020-12) of a class."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(kind)}


def allowed_values(node: dict) -> str:
    """The values that a part of a JSON Schema allows, in words."""
    if "anyOf" in node:
        return _either(allowed_values(schema) for schema in node["anyOf"])
    if "enum" in node:
        return ("one of " if len(node["enum"]) > 1 else "") + _either(map(_json, node["enum"]))
    kind = node.get("type", "object")
    if kind in ("integer", "number"):
        low, high = node.get("minimum"), node.get("maximum")
        if low is not None and low == high:
            return f"the number {low:g}"
        limits = f" above {node['exclusiveMinimum']:g}" if "exclusiveMinimum" in node else ""
        limits += f" from {low:g}" if low is not None and low != -LARGEST_INTEGER else ""
        limits += f" to {high:g}" if high is not None and high < LARGEST_INTEGER else ""
        return f"a {'whole ' if kind == 'integer' else ''}number{limits}"
    if kind == "string":
        least, most, pattern = node.get("minLength"), node.get("maxLength"), node.get("pattern")
        size = f" of {least or 0} to {most} characters" if most else ""
        return f"a text of the form {pattern.removesuffix(END)}" if pattern else f"a text{size}"
    if kind == "array":
        least, most = node.get("minItems"), node.get("maxItems")
        if least and least == most:
            return f"a list of {least}"
        return f"a list{f' of {least} or more' if least else ''}{f' of at most {most}' if most else ''}"
    return {"boolean": "true or false", "null": "null"}.get(kind, "an object")


def _sentence(kind: type, content: Any, error: str) -> str:
    """What msgspec's sentence says, with the value, and what is allowed instead."""
    message, _, path = error.partition(" - at `")
    keys = re.findall(r"\.(\w+)|\[(\d+|\.\.\.)\]", path.removeprefix("key` in `"))
    whole = node = schema(kind)
    key = ""
    for name, entry in keys:
        key += f".{name}" if name else f"[{entry}]"
        node = _part(whole, node, name)
        content = content[name or int(entry)] if entry != "..." and content is not None else None
    key = key.lstrip(".")
    if not message.startswith(OWN):
        return shorten(f"{key}.{message}".lstrip("."), LONGEST_SENTENCE)
    if absent := re.fullmatch(r"Object missing required field `(.*)`", message, re.DOTALL):
        sentence = f'the field "{absent[1]}" is missing'
    elif unknown := re.fullmatch(r"Object contains unknown field `(.*)`", message, re.DOTALL):
        sentence = f'there is no field "{unknown[1]}"'
    else:
        value = "a value" if "[...]" in key or "key` in" in path else shorten(_json(content))
        sentence = f"{value} is not {allowed_values(_resolve(whole, node))}"
    where = f"{shorten(key)}: " if key else ""
    return where + shorten(sentence, LONGEST_SENTENCE - len(where))


def _part(whole: dict, node: dict, name: str) -> dict:
    """The schema of the field `name`; of the entries, where it is empty."""
    node = _resolve(whole, node)
    for part in (_resolve(whole, schema) for schema in node.get("anyOf", [node])):
        schema = part.get("properties", {}).get(name) if name else part.get("items", part.get("additionalProperties"))
        if schema:
            return schema
    return {}


def _resolve(whole: dict, node: dict) -> dict:
    return whole["$defs"][node["$ref"].rpartition("/")[2]] if "$ref" in node else node


def _either(words: Iterable[str]) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=repr)


def _number(value: object) -> float:
    """A number of NumPy that is also one of Python."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"a value of type {type(value).__name__} is nothing that JSON knows")
