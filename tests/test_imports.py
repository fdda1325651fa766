"""Imports go one way only, and nothing heavy is imported before it is asked for."""

import ast
import re
import shutil
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter

import pytest

from spdnn import cli
from spdnn.core import provenance
from spdnn.core.provenance import PACKAGE
from spdnn.engines.registry import ENGINES
from spdnn.formats.catalog import read_sources
from spdnn.runs.workflow.rules import content_of_download
from spdnn.runs.workflow.triggers import CODE, code

ROOT = PACKAGE.parent

# DESIGN.md has the rule, the lowest line first; a module may import its own line and those below it.
RULE = re.search(r"^core < [\w,< ]+$", (ROOT / "DESIGN.md").read_text(), re.MULTILINE)[0]
RANK = {name: rank for rank, line in enumerate(RULE.split(" < ")) for name in line.split(", ")}
MODULES = sorted(
    ".".join(("spdnn", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
)


TABLES = ("spdnn.engines.reductions.registry", "spdnn.formats.detection", "spdnn.report.sections", "spdnn.runs.world")


def module_file(module):
    """The source file of a module of this package, or None when there is none of that name."""
    base = PACKAGE.parent.joinpath(*module.split("."))
    return next((path for path in (base / "__init__.py", base.with_suffix(".py")) if path.is_file()), None)


@cache
def imports(module):
    """The modules of this package that `module` imports, anywhere in its text (packages above it included)."""
    modules = set()
    for node in ast.walk(ast.parse(module_file(module).read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        modules.update(name for name in names if name.split(".")[0] == "spdnn" and module_file(name))
    parts = module.split(".")
    modules.update(".".join(parts[:n]) for n in range(1, len(parts)))
    return tuple(sorted(modules - {module}))


def named(module):
    """The modules that a table of `module` names by place; not those of engines, which go by the case that has one."""
    text = module_file(module).read_text(encoding="utf-8") if module in TABLES else ""
    return [name for name in re.findall(r'"(spdnn(?:\.\w+)+)(?::\w+)?"', text) if module_file(name)]


def reachable(*modules):
    """`modules` and all that they import within this package, or name by place, sorted."""
    seen, todo = set(), list(modules)
    while todo:
        module = todo.pop()
        if module not in seen:
            seen.add(module)
            todo.extend([*imports(module), *named(module)])
    return sorted(seen)


def unit(module):
    return module.split(".")[1] if "." in module else "spdnn"


INSIDE = [module for module in MODULES if unit(module) not in ("spdnn", "__main__")]


def test_every_module_has_a_line():
    assert {unit(module) for module in INSIDE} == set(RANK)


def test_imports_go_one_way():
    pairs = ((module, other) for module in INSIDE for other in imports(module) if other != "spdnn")
    assert not [f"{module} imports {other}" for module, other in pairs if RANK[unit(other)] > RANK[unit(module)]]


def test_the_wings_do_not_import_each_other():
    scheduling = ("spdnn.engines.taskgraph", "spdnn.engines.costs")

    def wing(module):
        return "ops" if unit(module) in ("ops", "torch") else "scheduling" if module.startswith(scheduling) else None

    pairs = [(wing(module), wing(other)) for module in INSIDE if wing(module) for other in imports(module)]
    assert len(pairs) > 100
    assert not [pair for pair in pairs if pair[1] not in (None, pair[0])]


def test_no_unit_imports_itself_through_another():
    graph = {name: {unit(other) for module in INSIDE if unit(module) == name for other in imports(module)} - {name}
             for name in RANK}  # fmt: skip
    TopologicalSorter(graph).prepare()  # else its CycleError has the units


def test_no_module_imports_itself_through_others():
    graph = {module: {name for name in imports(module) if not module.startswith(f"{name}.")} for module in MODULES}
    TopologicalSorter(graph).prepare()


HEAVY = {"cupy", "mpi4py", "matplotlib", "seaborn", "pandas", "sklearn", "requests", "jsonschema",
         "snakemake", "graphblas", "sparse_dot_mkl", "jax", "onnx", "onnxruntime", "torch",
         "tqdm"}  # fmt: skip
CORE = {"numpy", "scipy", "blake3", "msgspec"}


@pytest.mark.parametrize(
    ("arguments", "unasked"),
    [
        (["info"], HEAVY - {"tqdm"}),  # which shows that the machine is measured
        (["challenge", "--help"], HEAVY | {"scipy"}),  # which takes as long as NumPy and ours together
        *((option, HEAVY | {"numpy", "scipy", "blake3", "msgspec"}) for option in (["--version"], ["--help"])),
    ],
)
def test_nothing_heavy_is_imported_unasked(arguments, unasked):
    code = f"""import contextlib, sys, spdnn.cli
with contextlib.suppress(SystemExit):
    spdnn.cli.main({arguments})
print(sorted({unasked} & sys.modules.keys()), file=sys.stderr)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr.strip() == "[]"


def test_every_command_has_its_arguments_when_they_are_asked_for(capsys):
    for name in cli.COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            cli.parser([name]).parse_args([name, "--help"])
        told = capsys.readouterr().out
        assert told.startswith(f"usage: spdnn {name} ")
        assert len(told.splitlines()) > 5, name  # usage, options, and what it is for


def test_the_code_of_a_stage_has_all_that_its_parts_reach():
    engines = {name: module.split(":")[0] for name, module in ENGINES.items()}
    ours = [module for module in engines.values() if not module.startswith("spdnn.bench.")]
    parts = {
        "sources": [f"spdnn.formats.{name}" for name in ("readers", "unstructured", "mnist", "digits")],
        "prepare": ours,
        "infer": ["spdnn.runs.measure", "spdnn.runs.ranks.run", *ours],
        "verify": ["spdnn.runs.verify.judging"],
        "benchmark": ["spdnn.runs.records.files"],
        "bench": ["spdnn.bench.networks", "spdnn.bench.models", *engines.values()],
        "report": ["spdnn.report.rendering"],
    }
    assert parts.keys() == CODE.keys()
    for stage, modules in parts.items():
        places = [PACKAGE / place for place in CODE[stage]]
        files = [file for module in reachable(*modules) if (file := module_file(module)).stat().st_size]
        assert len(files) > 10
        assert [f"{stage}: {file}" for file in files if not {file, *file.parents} & {*places}] == [
            f"{stage}: {PACKAGE / '__init__.py'}"
        ]
    assert not [place for places in CODE.values() for place in places if not (PACKAGE / place).exists()]


def test_the_code_of_an_inference_has_no_report_command_or_other_library():
    assert not {*CODE["infer"]} & {"report", "cli", "bench", "ops", "runs", "runs/workflow"}
    assert code("infer", "scipy") != code("infer", "cpu")  # which has the adaptor to the library


def test_code_digest_sees_kernels_and_templates(tmp_path, monkeypatch):
    copy = tmp_path / "spdnn"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    monkeypatch.setattr(provenance, "PACKAGE", copy)

    def digests():
        provenance.code_digest.cache_clear()
        return [code("infer", "cpu"), code("report"), code("infer", "cuda")]

    def changed(name):
        before = digests()
        with open(copy / name, "a") as stream:
            stream.write("// changed\n")
        return [old != new for old, new in zip(before, digests(), strict=True)]

    assert changed("kernels/cpu/fused_layers.cpp") == [True, True, True]
    assert changed("report/page.html.j2") == [False, True, False]
    for name in ("gather.cuh", "staged.cu"):
        assert changed(f"kernels/cuda/{name}") == [False, False, True]  # the engines of the processor run as they did
    for name in ("kernels/_cpu.so", "core/__pycache__/files.cpython-311.pyc", "formats/notes.txt"):  # compiled, cached
        (copy / name).parent.mkdir(exist_ok=True)
        assert changed(name) == [False, False, False]
    monkeypatch.undo()
    provenance.code_digest.cache_clear()


def test_a_download_depends_on_what_it_must_be():
    sources = read_sources().values()
    parts = {source.path: content_of_download(source.path) for source in sources}
    assert len(parts) > 10
    assert all(parts.values())
    mnist = next(source for source in sources if source.name == "mnist-train-images")
    assert parts[mnist.path] == f"{mnist.digest_of} {mnist.digest}"
    rules = (ROOT / "workflow/rules/fetch.smk").read_text()
    assert "code" not in re.search(r"rule fetch_file:.*?rule ", rules, re.DOTALL)[0]
