"""Records for readers: their JSON Schema and the reference page, both from the classes.

python docs/records_page.py > docs/reference/records.md
python docs/records_page.py --schema run|operation|verdict
"""

import json
import sys

import msgspec
import msgspec.inspect

from spdnn.core import validation
from spdnn.core.fields import descriptions, docstring
from spdnn.core.request import RunRequest
from spdnn.core.validation import allowed_values
from spdnn.runs.records.columns import note_types, value_types
from spdnn.runs.records.notes import NOTES, Notes
from spdnn.runs.records.operation_record import OperationRecord
from spdnn.runs.records.run_record import RunRecord
from spdnn.runs.records.verdict import Verdict

KINDS = {"run": RunRecord, "operation": OperationRecord, "verdict": Verdict}
HEAD = """\
# Records

Made by `python docs/records_page.py > docs/reference/records.md` from the classes, where fields are
defined: `spdnn/runs/records/run_record.py` and the modules that it imports, `operation_record.py`, `notes.py`. A file
holds an object in JSON, or one on each line (.jsonl). Times are in seconds and sizes in bytes. Every field is there;
null says what its description tells. A record holds facts: rates, intervals, imbalance and sums follow from them, and
`load_records` and the table (CSV) have them as columns. How to add a field:
[docs/how-to/add-a-record-field.md](../how-to/add-a-record-field.md).
"""


def schema(kind: str) -> dict:
    """The JSON Schema of KINDS[kind], each field with its description; of runs, also of the notes of every engine.

    Notes are free, so the schema checks none of them; `notes_of` names their type in its `$defs` by engine.
    """
    whole = validation.schema(KINDS[kind])
    classes = {kind_of.__name__: kind_of for kind_of in _classes(KINDS[kind])}
    if kind == "run":
        noted = validation.schema(
            msgspec.defstruct("Noted", [(note_type.__name__, note_type) for note_type in note_types()])
        )["$defs"]
        whole["$defs"] |= {name: node for name, node in noted.items() if name != "Noted"}
        whole["notes_of"] = {engine: f"#/$defs/{notes.__name__}" for engine, notes in sorted(NOTES.items())}
        classes |= {note_type.__name__: note_type for note_type in note_types()}
    for name, node in whole["$defs"].items():
        node["description"] = _introduction(classes[name])
        for field, description in _described(classes[name]).items():
            node["properties"][field] = node["properties"][field] | {"description": description}
    return whole


def page() -> str:
    """The reference page, in Markdown."""
    sections = []
    for title, kinds in (
        ("Run record", [struct for struct in _classes(RunRecord) if struct is not RunRequest]),
        ("What engines note", note_types()),
        ("Operation record", [struct for struct in _classes(OperationRecord) if struct not in _classes(RunRecord)]),
    ):
        sections += [f"## {title}\n", *map(_section, kinds)]
    return "\n".join([HEAD, *sections])


def _classes(kind: type) -> list[type]:
    """The class, then those of its fields and of theirs, in the order of the fields."""
    classes = [kind]
    for field in msgspec.inspect.type_info(kind).fields:
        for value_type in value_types(field.type)[1]:
            value_type = getattr(value_type, "item_type", value_type)
            if isinstance(value_type, msgspec.inspect.StructType):
                classes += [inner for inner in _classes(value_type.cls) if inner not in classes]
    return classes


def _introduction(kind: type) -> str:
    return docstring(kind).partition("\n\nAttributes:")[0]


def _described(kind: type) -> dict[str, str]:
    """The description of each field, by its name in a file."""
    names = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    return {names[field]: text for field, text in descriptions(kind).items() if field in names}


def _section(kind: type) -> str:
    """A class as a heading and a table of its fields."""
    engines = [name for name, notes in NOTES.items() if notes is kind]
    whole, described = validation.schema(kind), _described(kind)
    node, own = whole["$defs"][kind.__name__], set(Notes.__struct_fields__) if kind is not Notes else set()
    rows = [
        f"| `{name}` | {_kind(part)}{'' if name in node['required'] or engines else ', may be absent'} "
        f"| {described.get(name, '')} |"
        for name, part in node["properties"].items()
        if not engines or name not in own
    ]
    title = f"### {kind.__name__}" + (f": {', '.join(engines)}" if engines else "")
    return "\n".join([f"{title}\n", f"{_introduction(kind)}\n", "| field | value | what |", "|---|---|---|", *rows, ""])


def _kind(node: dict) -> str:
    """The values of a field in words; an object by the name of its class."""
    if "anyOf" in node:
        return " or ".join(map(_kind, node["anyOf"]))
    if "$ref" in node:
        name = node["$ref"].rpartition("/")[2]
        return f"[{name}]({'configuration.md' if name == RunRequest.__name__ else f'#{name.lower()}'})"
    if node.get("type") == "array" and isinstance(node.get("items"), dict):
        return f"{allowed_values(node)} of {_kind(node['items'])}"
    return allowed_values(node).replace("|", "\\|")


def main(arguments: list[str]) -> None:
    """Print the page, or the schema of a kind of record."""
    print(json.dumps(schema(arguments[1]), indent=1) if arguments[:1] == ["--schema"] else page(), end="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
