"""docs/how-to/add-a-command.md, followed: a command is run, and is in help, completion and reference."""

import ast
import sys

import command_line
import pytest
from how_to import code_blocks, run_tests

from spdnn import cli

PAGE = "add-a-command.md"


@pytest.fixture
def edges(tmp_path, monkeypatch):
    module, entry, _ = code_blocks(PAGE)
    (tmp_path / "edges.py").write_text(module)
    monkeypatch.setattr(cli, "__path__", [*cli.__path__, str(tmp_path)])
    for name, line in ast.literal_eval(f"{{{entry}}}").items():
        monkeypatch.setitem(cli.COMMANDS, name, line)
    yield
    if sys.modules.pop("spdnn.cli.edges", None):
        del cli.edges


def test_the_test_of_the_page_passes(edges, request):
    run_tests(code_blocks(PAGE)[-1], request)


def test_help_errors_completion_and_reference_have_it(edges, capsys):
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    assert "edges print the edges of each layer" in " ".join(capsys.readouterr().out.split())
    assert cli.main(["edges", "none.safetensors"]) == 1
    assert "none.safetensors" in capsys.readouterr().err
    assert cli.main(["completion", "bash"]) == 0
    assert "edges" in capsys.readouterr().out
    page = command_line.page()
    assert "| [`spdnn edges`](#spdnn-edges) | print the edges of each layer |" in page
    assert "## spdnn edges\n\nPrint the edges of each layer of a network.\n" in page
    assert "| `-o`, `--output` `edges.txt` | file to write (default: print) |" in page
