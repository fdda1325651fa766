"""Words that only this project used are gone from what people read: pages, help, messages, public docstrings.

The glossary names those that are fields of records, keys or commands; such names stand in backticks.
"""

import ast
import re
from pathlib import Path

import pytest

import spdnn
import spdnn.ops

ROOT = Path(__file__).resolve().parents[1]
# Each with the field's word, which `pytest` prints.
PRIVATE = {
    r"survivors?": "active inputs",
    r"oracles?": "float64 reference",
    r"(?<!ground )truths?": "ground truth",
    r"verdicts?": "pass or fail; verification",
    r"rungs?|ladders?": "ablation step, ablation",
    r"seal(s|ed)?": "checksum",
    r"ledgers?": "list",
    r"looks": "searches",
    r"tells?|told": "reports, says",
    r"stands? (beside|next)": "is next to",
    r"made here": "run on this machine",
    r"peers?": "other libraries; baselines",
    r"like[ -]for[ -]like": "same work",
    r"claims?": "stated figures; results",
    r"spans?": "what a time includes",
    r"(an?|the|this|no) stores?": "model file",
    r"as near (to|as)": "within",
}
WORDS = re.compile(rf"(?<![\w./`'{{=<-])(?:{'|'.join(PRIVATE)})(?![\w`'=}}(-]|\.\w|/)", re.IGNORECASE)
# Keys, headings of one word, commands, extras, code, links, templates, tags.
NAMES = re.compile(
    r"^[ #]*\w+:|^## \w+$|spdnn \w+|\w+\]'|oracle \(the float64 reference\)|"
    r"`[^`]*`|\]\([^)]*\)|\{[{%].*?[%}]\}|<[^>]*>|^```.*?^```",
    re.MULTILINE | re.DOTALL,
)
READ = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")),
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if path.name not in ("glossary.md", "records.md")),
    *sorted((ROOT / "config").glob("*.yaml")),
    *sorted((ROOT / "workflow").rglob("*.rst")),
]
CODE = [*sorted((ROOT / "spdnn").rglob("*.py")), *sorted((ROOT / "workflow").rglob("*.py"))]


def private(text: str) -> list[str]:
    """The private words of a text, with a line's worth of what is around each."""
    plain = NAMES.sub(lambda found: " " * 3, text)
    return [" ".join(plain[max(0, m.start() - 40) : m.end() + 40].split()) for m in WORDS.finditer(plain)]


def sentences(source: str) -> list[str]:
    """The string constants of a module that are sentences, and no docstrings: messages, help, captions."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs)
    return [text for text in texts if isinstance(text, str) and " " in text.strip()]


@pytest.mark.parametrize("path", READ, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_the_words_of_the_field(path):
    assert private(path.read_text()) == []


@pytest.mark.parametrize("path", CODE, ids=lambda path: str(path.relative_to(ROOT)))
def test_messages_have_the_words_of_the_field(path):
    assert [found for text in sentences(path.read_text()) for found in private(text)] == []


def test_public_docstrings_have_the_words_of_the_field():
    documented = [(name, getattr(module, name)) for module in (spdnn, spdnn.ops) for name in module.__all__]
    found = {name: private(value.__doc__ or "") for name, value in documented}
    for name, value in documented:
        for part, member in vars(value).items() if isinstance(value, type) else ():
            if not part.startswith("_"):
                found[f"{name}.{part}"] = private(getattr(member, "__doc__", None) or "")
    assert {name: words for name, words in found.items() if words} == {}
