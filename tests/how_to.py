"""The code of a page of the documentation, so that a test can follow what the page says."""

import inspect
import re
import subprocess
import sys
import tomllib
from itertools import groupby
from pathlib import Path

from children import SECONDS, ended, executable, started

ROOT = Path(__file__).resolve().parents[1]
HOW_TO = ROOT / "docs" / "how-to"
BIN = Path(sys.executable).parent


def code_blocks(page: str, language: str = "python") -> list[str]:
    """The blocks of docs/how-to/`page` in a language, in order."""
    return re.findall(
        rf"^```{language}\n(.*?)^```", (HOW_TO / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )


def write_engine(folder: Path) -> None:
    """The engine of add-an-engine.md, in a package that is installed, with its entry point as pip writes it."""
    (module,) = code_blocks("add-an-engine.md")
    (folder / "toy.py").write_text(module)
    (folder / "toy-1.dist-info").mkdir()
    (folder / "toy-1.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1\n")
    points = tomllib.loads(code_blocks("add-an-engine.md", "toml")[0])["project"]["entry-points"]
    lines = [f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in named.items())
             for group, named in points.items()]  # fmt: skip
    (folder / "toy-1.dist-info/entry_points.txt").write_text("\n".join(lines))


def run_tests(block: str, request) -> None:
    """Run the tests in a block of Python, each with the fixtures that it names."""
    names: dict = {}
    exec(block, names)
    tests = [test for name, test in names.items() if name.startswith("test_")]
    assert tests
    for test in tests:
        test(**{name: request.getfixturevalue(name) for name in inspect.signature(test).parameters})


def script(page: str, activated: bool = False) -> str:
    """The blocks of docs/`page`.md as a script for bash; where activated, without the line that sets PATH.

    The folder is a clone already: lines that make one, or go into it, are left out.
    Blocks of Python with none of shell between them are one session.
    """
    blocks = re.findall(r"^```(sh|python)\n(.*?)^```", (ROOT / f"docs/{page}.md").read_text(), re.MULTILINE | re.DOTALL)
    if page.startswith("how-to"):
        blocks = [(kind, text) for kind, text in blocks if kind == "sh"]
    blocks = [(kind, re.sub(r"^(git clone URL spdnn|cd spdnn)\n", "", text, flags=re.M)) for kind, text in blocks]
    if activated:
        blocks = [(kind, text.replace(". .venv/bin/activate\n", "")) for kind, text in blocks]
    joined = ((kind, "".join(text for _, text in group)) for kind, group in groupby(blocks, lambda block: block[0]))
    return "".join(
        text if kind == "sh" else f"python - <<'END-OF-BLOCK'\n{text}END-OF-BLOCK\n" for kind, text in joined
    )


def checkout(folder: Path) -> Path:
    """A folder with all that the root of the checkout holds; of results, those that are committed."""
    folder.mkdir()
    for path in ROOT.iterdir():
        if path.name not in ("results", ".snakemake", ".git", "build"):
            (folder / path.name).symlink_to(path)
    (folder / "results").mkdir()
    (folder / "results" / "measured").symlink_to(ROOT / "results" / "measured")
    return folder


def follow(text: str, folder: Path, seconds: float = SECONDS) -> str:
    """What a script prints in `folder`; the test fails where it ends with another status than 0."""
    with started(["bash", "-eu", "-c", text], cwd=folder, stdin=subprocess.DEVNULL,
                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:  # fmt: skip
        status, printed = ended(process, seconds)[:2]
    assert status == 0, printed
    return printed


def replaced(folder: Path, programs: dict[str, str]) -> str:
    """A line of shell after which programs of these names do what is said, in a `folder` that is made."""
    folder.mkdir()
    for name, what in programs.items():
        executable(folder / name, what)
    return f'PATH="{folder}:$PATH"\n'
