"""DESIGN.md says what the tree does: its data flow, files, names and interfaces; tests/test_imports.py has the rest."""

import inspect
import re

from test_imports import imports, reachable

from spdnn.core.provenance import PACKAGE
from spdnn.engines import base, execute
from spdnn.report.sections import modules
from spdnn.runs.workflow.rules import INFER

ROOT = PACKAGE.parent
TEXT = (ROOT / "DESIGN.md").read_text()
RULES = {path.stem: path.read_text() for path in ROOT.glob("workflow/rules/*.smk")}
MODULES = {path: path.read_text() for path in PACKAGE.rglob("*.py") if path.stat().st_size}


def said(pattern: str) -> list:
    """What DESIGN.md has of a pattern, whose blanks are any; never nothing."""
    found = re.findall(pattern.replace(" ", r"\s+"), TEXT)
    assert found, pattern
    return found


def test_arrows_are_files_of_rules_and_nouns_are_what_the_rules_write():
    flow = re.search("```(.*?)```", TEXT, re.DOTALL)[1]
    for stem in RULES.keys() - {"common", "ops", "peers"}:
        assert re.search(rf"--{stem}-->|^ +{stem}\b", flow, re.M), stem
    assert set(re.findall(r"--(\w+)-->", flow)) <= set(RULES)
    nouns = re.findall(r"(\w+) \((\.\w+)\)", flow)
    assert len(nouns) == 6
    for noun, suffix in nouns:
        assert re.search(rf'"results/[^"]*\b{noun}s?\b[^"]*{re.escape(suffix)}"', "".join(RULES.values())), noun


def test_a_rule_runs_the_script_of_its_name_which_calls_the_package():
    rules = re.split(r"^ *(?:use )?rule (?:infer as )?(\w+)", "".join(RULES.values()), flags=re.M)
    named = {rule: re.findall(r"/scripts/(\w+)\.py", text) for rule, text in zip(rules[1::2], rules[2::2], strict=True)}
    scripts = {path.stem: path.read_text() for path in ROOT.glob("workflow/scripts/*.py")}
    assert {rule: found for rule, found in named.items() if found != [rule]} == {
        **{"infer": [], "infer_ranks": []},
        "check_devices": [],  # a command of spdnn
    }
    assert set(scripts) == named.keys() - {"check_devices"} - set(
        said("`(infer)` and `infer_ranks`") + said("`infer` and `(infer_ranks)`")
    )
    assert [name for name, text in scripts.items() if re.search("^ *(def|class) ", text, re.M)] == []
    assert "spdnn run" in INFER
    for caller in ("spdnn.cli.run", "spdnn.runs.workflow.stages"):
        assert "spdnn.runs.run" in imports(caller)


def test_files_are_opened_by_one_module():
    (text,) = said(r"\* ([^*]*?) open files through \[")
    reads = re.compile(r'\bopen\([^")]*(, "rb?"|\))|\.read_(text|bytes)\(|np\.load\(')
    folders = [PACKAGE / name for name in re.findall(r"`([\w/]+)`", text)]
    found = [code for path, code in MODULES.items() if {*folders} & {*path.parents} and reads.search(code)]
    assert len(found) > 2
    assert [code[:80] for code in found if not re.search(r"import .*\bsafe_open\b|core\.safe_open import", code)] == []


def test_every_module_says_what_it_holds_and_most_init_files_are_empty():
    assert [path for path, code in MODULES.items() if not code.startswith('"""')] == []
    files = [*PACKAGE.rglob("__init__.py")]
    assert sum(path.stat().st_size == 0 for path in files) > len(files) / 2


def test_engines_have_the_interface_that_is_shown():
    for owner, name, arguments in said(r"(?m)^(engine|session)\.(\w+)(?:\((.*?)\))?"):
        member = getattr({"engine": base.Engine, "session": base.Session}[owner], name)
        if callable(member):
            assert ", ".join([*inspect.signature(member).parameters][1:]) == arguments
    (properties,) = said(r"ask an engine for the reductions([^.]*)\.")
    names = re.findall(r"`(\w+)`", properties)
    assert len(names) == 4
    assert [name for name in names if not hasattr(base.Engine, name)] == []
    (some,) = said(r"What only some engines do is a class of its own there:([^.]*)\.")
    names = re.findall(r"`([A-Z]\w+)`", some)
    assert len(names) == 4
    kinds = [getattr(execute if hasattr(execute, name) else base, name) for name in names]
    assert [kind for kind in kinds if not issubclass(kind, base.Engine | base.Session)] == []
    ((folders, last, files),) = said(r"The folders (.*?) and `(\w+)` name the files of a role alike: (.*?)\.")
    for folder in [*re.findall(r"`(\w+)`", folders), last]:
        for file in re.findall(r"`(\w+)`", files):
            assert (PACKAGE / "engines" / folder / f"{file}.py").exists(), (folder, file)
    assert [path for path, code in MODULES.items() if "engines" in path.parts and "mpi4py" in code] == []


def test_names_are_where_the_links_lead():
    pairs = said(r"`(\w+)` in \[[^]]*\]\((spdnn/[\w/.]+)\)") + said(r"\[([A-Z][a-z]+[A-Z]?\w+)\]\((spdnn/[\w/.]+)\)")
    for name, path in pairs:
        assert re.search(rf"^(class )?{name}\b", (ROOT / path).read_text(), re.M), name
    assert len(pairs) >= 6


def test_a_section_is_a_module_of_its_name_that_runs_nothing():
    data = r"\.(?:reductions|taskgraph\.(?:decomposition|timeline))"  # names, and what records hold
    for section in modules():
        assert section.__name__ == f"spdnn.report.{section.NAME}"
        for name in imports(section.__name__):
            assert not re.match(rf"spdnn\.(engines(?!{data})\b.|kernels|runs\.measure)\b", name)


def test_the_reference_uses_no_kernel_reduction_or_engine():
    said("uses no kernel, reduction or engine")
    reached = {*reachable("spdnn.engines.oracle")} - {"spdnn.engines", "spdnn.engines.oracle"}
    assert not [name for name in reached if name.split(".")[1:2] in (["kernels"], ["engines"])]
