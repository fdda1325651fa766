"""README, DESIGN and docs: every link, path, command and name in them exists, and the README's Python runs."""

import re

from spdnn.cli import COMMANDS
from spdnn.common.provenance import PACKAGE

ROOT = PACKAGE.parent
PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))}
CODE = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
OWN = re.compile(r"(?<![\w/.-])(?:spdnn|docs|config|workflow|tests|benchmarks|envs)/[\w./-]*\w")


def test_what_pages_name_exists_and_the_index_links_every_page():
    for name, text in PAGES.items():
        for path, heading in LINK.findall(text):
            target = (ROOT / name).parent / path if path else ROOT / name
            found = re.findall(r"^#+ (.+)$", target.read_text(), re.M) if heading else [""] * target.exists()
            assert heading in [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in found], (name, path)
        assert [path for path in OWN.findall(text) if not (ROOT / path).exists()] == [], name
        shell = "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL))
        for command, rest in re.findall(r"^(?:mpiexec -n \d+ )?spdnn +([\w-]+)(.*)", shell, re.MULTILINE):
            assert command in COMMANDS, name
            assert all(f'"{option}"' in CODE for option in re.findall(r" (--[a-z-]+)", rest.split("#")[0])), rest
    linked = {(ROOT / "docs" / path).resolve() for path, _ in LINK.findall(PAGES["docs/index.md"])}
    assert {ROOT / name for name in PAGES} - linked == {ROOT / "docs/index.md"}


def test_the_glossary_has_each_term_once_and_names_of_the_code():
    rows = re.findall(r"^\| (?!term|---)(.+?) \| (.+) \|$", PAGES["docs/reference/glossary.md"], re.MULTILINE)
    assert len({term.lower() for term, _ in rows}) == len(rows) > 50
    names = set(re.findall(r"`(?:spdnn\.)?([A-Z]\w+)`", PAGES["docs/reference/glossary.md"]))
    assert names <= set(re.findall(r"^(?:class )?([A-Z]\w+)", CODE, re.MULTILINE))


def test_the_python_of_the_readme_runs():
    exec(re.search(r"```python\n(.*?)```", PAGES["README.md"], re.DOTALL)[1], {})
