"""The configuration for readers: a page with every key of the workflow's configuration, made from its schema.

python docs/configuration.py > docs/reference/configuration.md
"""

import json
from collections.abc import Iterator
from pathlib import Path

from spdnn.runs.workflow import config

HEAD = """\
# Configuration

Made by `python docs/configuration.py > docs/reference/configuration.md` from the fields of a request
(`spdnn/core/request.py`), the settings of the engines, the schema of the other keys
([config.schema.yaml](../../workflow/schemas/config.schema.yaml)) and the default,
[config.yaml](../../config/config.yaml). A field of a request may be a list: every combination runs. An item of `cases`
or `device_cases` changes any of these fields. Change keys in a file (`--configfile`) or one by one
(`--config neurons=1024 layers=120`).
"""
CASES = ("cases", "device_cases")  # whose items have the other keys
ROOT = Path(__file__).resolve().parents[1]


def page() -> str:
    """docs/reference/configuration.md."""
    import yaml

    schema = config.schema(ROOT / "workflow/schemas/config.schema.yaml")
    default = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    lines = [HEAD, "| key | default | what |", "|---|---|---|"]
    tables = []
    for key, rule in schema["properties"].items():
        lines.append(_row(key, "config.yaml" if key in CASES else json.dumps(default.get(key)), rule))
        if key not in CASES and (inner := list(_inner(rule, schema))):
            tables += ["", f"## {key}", "", "| key | what |", "|---|---|"]
            tables += [_row(name, None, below) for name, below in inner]
    return "\n".join([*lines, *tables])


def _inner(rule: dict, schema: dict, above: str = "") -> Iterator[tuple[str, dict]]:
    """(dotted name, schema) of the keys within a key, or within each item of its list."""
    rule = rule.get("items", rule) if rule.get("type") == "array" else rule
    for name, below in rule.get("properties", {}).items():
        if reference := below.get("$ref"):
            _, place, key = reference.split("/")
            below = schema[place][key]
        yield above + name, below
        yield from _inner(below, schema, f"{above}{name}.")


def _row(key: str, default: str | None, rule: dict) -> str:
    cells = [f"`{key}`", *([] if default is None else [f"`{default}`"]), rule["description"].replace("*", "\\*")]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


if __name__ == "__main__":
    print(page())
