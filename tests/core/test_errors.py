"""Sentences that many errors share."""

import re
import tomllib

from spdnn.core.errors import install
from spdnn.core.provenance import PACKAGE

ROOT = PACKAGE.parent


def test_an_extra_is_installed_from_a_clone_and_exists():
    """No index has a package of this name, which anybody could take: nothing but pyproject.toml may ask for it."""
    assert install("onnx") == "pip install -e '.[onnx]' in a clone of spdnn"
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    folders = ("spdnn", "benchmarks", "config", "docs", "envs", "tests", "workflow")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*")]
    files = [path for path in paths if path.suffix in (".py", ".md", ".yaml")]
    texts = {path: path.read_text() for path in (*files, *ROOT.glob("*.md"), ROOT / "Makefile")}
    assert [path for path, text in texts.items() if re.search(r"\bspdnn\[[a-z]", text)] == []
    named = {name for text in texts.values() for name in re.findall(r"install\(['\"](\w+)|'\.\[([\w,]+)\]", text)}
    assert {name for pair in named for names in pair for name in names.split(",") if name} <= {*extras}
