"""docs/how-to/add-a-configuration-key.md, followed in a copy: the key is checked, read and described."""

import os
import re
import shutil

import pytest
import yaml
from how_to import BIN, HOW_TO, ROOT, checkout, code_blocks, follow
from refusals import refuses

from spdnn.runs.workflow import config

PAGE = "add-a-configuration-key.md"


@pytest.fixture
def changed(tmp_path, monkeypatch):
    """A checkout in which each change of the page is made, where its lines are and nowhere else."""
    monkeypatch.setenv("PATH", str(BIN), prepend=os.pathsep)
    folder = checkout(tmp_path / "checkout")
    for name in ("config", "workflow", "docs"):
        (folder / name).unlink()
        shutil.copytree(ROOT / name, folder / name)
    changes = re.findall(r"`([\w./]+)`[^`]*?\n\n```diff\n(.*?)^```", (HOW_TO / PAGE).read_text(), re.M | re.S)
    assert len(changes) == len(code_blocks(PAGE, "diff")) == 3
    for name, lines in changes:
        old, new = ("".join(re.findall(rf"^[ {sign}](.*\n)", lines, re.M)) for sign in "-+")
        before = (folder / name).read_text()
        assert f"\n{before}".count(f"\n{old}") == 1, name
        (folder / name).write_text(f"\n{before}".replace(f"\n{old}", f"\n{new}")[1:])
    return folder


def test_a_key_of_your_own_is_checked_read_and_described(changed):
    text = " ".join((HOW_TO / PAGE).read_text().split())
    (command,), (shown,) = re.findall("`(snakemake .*?)`", text), re.findall("`(threads: .*?)`", text)
    assert f"{shown}\n" in follow(command, changed)
    given, schema = yaml.safe_load((changed / "config/config.yaml").read_text()), "workflow/schemas/config.schema.yaml"
    assert config.check(given, changed / schema)["input_threads"] == 2
    sentence = "input_threads: 0 is not allowed; threads of a job that makes inputs, an integer from 1"
    refuses(sentence, config.check, given | {"input_threads": 0}, changed / schema)
    del given["input_threads"]
    refuses("config: top level: input_threads is missing", config.check, given, changed / schema)
    follow("".join(code_blocks(PAGE, "sh")), changed)
    page = (changed / "docs/reference/configuration.md").read_text()
    assert "| `input_threads` | `2` | threads of a job that makes inputs, an integer from 1 |\n" in page
