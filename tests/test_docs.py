"""README, DESIGN and docs: every link, path, command and name in them exists, and the README's Python runs."""

import importlib
import itertools
import re
import runpy
import shlex

import pytest
import yaml

import spdnn
from spdnn.cli import COMMANDS, parser
from spdnn.core.provenance import PACKAGE
from spdnn.runs.workflow import config
from spdnn.runs.workflow.decisions import Decisions, own_cases

ROOT = PACKAGE.parent
MADE = {"command-line": "command_line", "configuration": "configuration"}  # pages of docs/reference
PAGES = {str(page.relative_to(ROOT)): page.read_text() for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))}
CODE = "".join(path.read_text() for path in PACKAGE.rglob("*.py"))
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)")
OWN = re.compile(r"(?<![\w/.-])(?:spdnn|docs|config|workflow|tests|benchmarks|envs)/[\w./-]*\w")


def shell_of(text: str) -> str:
    """The commands of a page, each on one line."""
    return "".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")


def test_what_pages_name_exists_and_the_index_links_every_page():
    for name, text in PAGES.items():
        for path, heading in LINK.findall(text):
            target = (ROOT / name).parent / path if path else ROOT / name
            found = re.findall(r"^#+ (.+)$", target.read_text(), re.M) if heading else [""] * target.exists()
            assert heading in [re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in found], (name, path)
        assert [path for path in OWN.findall(text) if not (ROOT / path).exists()] == [], name
        shell = shell_of(text)
        for command in re.findall(r"^(?:mpiexec -n \d+ )?spdnn +([\w-]+)", shell, re.MULTILINE):
            assert command in COMMANDS, name
    indexes = [name for name in PAGES if name.startswith("docs/") and name.endswith("index.md")]
    linked = {(ROOT / name).parent / path for name in indexes for path, _ in LINK.findall(PAGES[name])}
    assert {ROOT / name for name in PAGES} - {path.resolve() for path in linked} == {ROOT / "docs/index.md"}


@pytest.mark.parametrize("name", MADE)
def test_pages_that_are_made_are_current(name):
    made = importlib.import_module(MADE[name]).page()
    assert PAGES[f"docs/reference/{name}.md"] == f"{made}\n", f"python docs/{MADE[name]}.py > docs/reference/{name}.md"


def test_the_pages_of_the_reference_have_every_key_command_and_name():
    """Whatever makes them: each public name, option of a command, and key of the configuration."""
    commands, keys = PAGES["docs/reference/command-line.md"], PAGES["docs/reference/configuration.md"]
    assert all(f"## spdnn {name}\n" in commands for name in COMMANDS)
    assert all(f"`{option}`" in commands for option in ("--neurons", "--no-cache", "--fail-slower", "--last"))
    assert all(f"| `{key}` |" in keys for key in ("neurons", "cases", "network.repeats", "mirror"))
    parts = {"spdnn.models": "spdnn.ops.models"}
    names = {parts.get(name, name) for name in (f"spdnn.{name}" for name in spdnn.__all__ if name != "__version__")}
    assert names == set(re.findall(r"^\.\. auto\w+:: (\S+)", PAGES["docs/reference/api.md"], re.MULTILINE))


UNTRUE = (  # what pages or messages once said, and nothing shows
    "byte-identical|bit for bit(?= from formulas|;| \\()|leave out dead inputs and nothing else|not measured yet|"
    "as published systems do|work is that of the published systems|every output (of every run|against the truth)|"
    "best published(?!,? (exact|one GPU, (exact|lossy)|up to [0-9]+ GPUs, exact))|store of an earlier version"
)


def test_pages_and_messages_claim_what_was_checked():
    config = {path.name: path.read_text() for path in (ROOT / "config").glob("*.[my]*")}
    code = {str(path): path.read_text() for path in PACKAGE.rglob("*.py") if "report" not in path.parts}
    found = {name: re.search(UNTRUE, text, re.IGNORECASE) for name, text in (PAGES | config | code).items()}
    assert {name: match[0] for name, match in found.items() if match} == {}


def test_every_command_of_the_pages_is_one_that_the_parser_takes():
    for name, text in PAGES.items():
        shell = shell_of(text)
        for line in re.findall(r"^(?:mpiexec -n \d+ )?spdnn +(.*)", shell, re.MULTILINE):
            words = [word for word in shlex.split(line, comments=True) if word not in (">", "...")]
            parser(words[:1]).parse_args(words)  # else it ends this process, which pytest shows as a failure
        blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if name.startswith("docs/") else []
        for block in [*map(yaml.safe_load, blocks), *map(configured, re.findall(r"^snakemake (.*)", shell, re.M))]:
            default = yaml.safe_load((ROOT / "config/config.yaml").read_text())
            checked = config.check(own_cases(default, block), ROOT / "workflow/schemas/config.schema.yaml")
            assert config.requests(checked, Decisions(cores=2)) or checked["ops"], name


def configured(line: str) -> dict:
    """The configuration that the words of a snakemake command name, of the files in config/."""
    words, found = shlex.split(line, comments=True), {}
    for word, file in itertools.pairwise(words):
        if word == "--configfile" and (path := ROOT / file.removeprefix("PATH/")).exists():
            found |= yaml.safe_load(path.read_text())
    after = words[words.index("--config") + 1 :] if "--config" in words else []
    given = itertools.takewhile(lambda word: not word.startswith("--"), after)
    return found | {key: yaml.safe_load(value) for key, value in (word.split("=") for word in given)}


def test_the_glossary_has_each_term_once_and_names_of_the_code():
    rows = re.findall(r"^\| (?!term|---)(.+?) \| (.+) \|$", PAGES["docs/reference/glossary.md"], re.MULTILINE)
    assert len({term.lower() for term, _ in rows}) == len(rows) > 50
    names = set(re.findall(r"`(?:spdnn\.)?([A-Z]\w+)`", PAGES["docs/reference/glossary.md"]))
    assert names <= set(re.findall(r"^(?:class )?([A-Z]\w+)", CODE, re.MULTILINE))


def test_every_file_of_records_has_a_row_that_says_how_to_measure_it():
    import measured

    rows = set(re.findall(r"^\|.*\| `([\w-]+)\.jsonl` \|", PAGES["docs/artifact.md"], re.MULTILINE))
    assert rows == set(measured.RUNS)
    measured_kinds = {path.stem for path in ROOT.glob("results/measured/two-cores-*/*.jsonl")}
    assert measured_kinds == rows


def test_the_python_of_the_readme_runs():
    exec(re.search(r"```python\n(.*?)```", PAGES["README.md"], re.DOTALL)[1], {})


def test_links_of_the_site_that_lead_nowhere_are_found(tmp_path):
    faults = runpy.run_path(ROOT / "docs/check.py")["faults"]
    assert faults(tmp_path) == [f"{tmp_path}: no page there"]
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">b</a><a href="https://x.org">x</a>')
    (tmp_path / "b.html").write_text('<p id="there"><a href="a.html#here">a</a>')
    assert faults(tmp_path) == []
    wrong = ["c.html", "a.html#gone", "https://x.org/font.css", "//x.org/x.js"]
    tags = '<a href="{}">c</a><a href="{}">a</a><link href="{}"><script src="{}"></script>'
    (tmp_path / "b.html").write_text('<p id="there">' + tags.format(*wrong))
    told = faults(tmp_path)
    assert len(told) == 4
    assert all(link in sentence for link, sentence in zip(wrong, told, strict=True))
