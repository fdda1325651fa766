"""Imports go one way only, and nothing heavy is imported before it is asked for."""

import re
import subprocess
import sys

import pytest

from spdnn import cli
from spdnn.core import provenance
from spdnn.engines.registry import ENGINES

# DESIGN.md has the rule, the lowest line first; a module may import its own line and those below it.
RULE = re.search(r"^core < [\w,< ]+$", (provenance.PACKAGE.parent / "DESIGN.md").read_text(), re.MULTILINE)[0]
RANK = {name: rank for rank, line in enumerate(RULE.split(" < ")) for name in line.split(", ")}
MODULES = sorted(
    ".".join(("spdnn", *path.relative_to(provenance.PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
    for path in provenance.PACKAGE.rglob("*.py")
)


def unit(module):
    return module.split(".")[1] if "." in module else "spdnn"


INSIDE = [module for module in MODULES if unit(module) not in ("spdnn", "__main__")]


def test_every_module_has_a_line():
    assert {unit(module) for module in INSIDE} == set(RANK)


def test_imports_go_one_way():
    pairs = ((module, other) for module in INSIDE for other in provenance.imports(module) if other != "spdnn")
    assert not [f"{module} imports {other}" for module, other in pairs if RANK[unit(other)] > RANK[unit(module)]]


def test_the_wings_do_not_import_each_other():
    scheduling = ("spdnn.engines.taskgraph", "spdnn.engines.costs")

    def wing(module):
        return "ops" if unit(module) in ("ops", "torch") else "scheduling" if module.startswith(scheduling) else None

    pairs = [(wing(module), wing(other)) for module in INSIDE if wing(module) for other in provenance.imports(module)]
    assert len(pairs) > 100
    assert not [pair for pair in pairs if pair[1] not in (None, pair[0])]


def test_no_unit_imports_itself_through_another():
    graph = {name: {unit(other) for module in INSIDE if unit(module) == name for other in provenance.imports(module)}
             for name in RANK}  # fmt: skip
    for name in graph:
        seen, todo = set(), list(graph[name] - {name})
        while todo:
            reached = todo.pop()
            if reached not in seen:
                seen.add(reached)
                todo.extend(graph.get(reached, ()))
        assert name not in seen, f"{name} imports itself through another"


def test_no_module_imports_itself_through_others():
    above = {module: {name for name in MODULES if module.startswith(f"{name}.")} for module in MODULES}
    reached = {module: set(provenance.imports(module)) - above[module] for module in MODULES}
    for between in MODULES:  # Warshall's closure
        for module in MODULES:
            if between in reached[module]:
                reached[module] |= reached[between]
    assert not [module for module in MODULES if module in reached[module]]


HEAVY = {"cupy", "mpi4py", "matplotlib", "seaborn", "pandas", "sklearn", "requests", "jsonschema",
         "jinja2", "snakemake", "graphblas", "sparse_dot_mkl", "jax", "onnx", "onnxruntime", "torch"}  # fmt: skip
CORE = {"numpy", "scipy", "blake3", "msgspec"}


@pytest.mark.parametrize(
    ("arguments", "unasked"),
    [
        (["info"], HEAVY),
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


def test_code_digest_follows_what_is_reached():
    reached = provenance.reachable("spdnn.runs.measure.run", "spdnn.engines.cpu.session")
    assert {"spdnn.engines.cpu.session", "spdnn.kernels.dispatch", "spdnn.core.network", "spdnn.core.progress"} <= set(
        reached
    )
    assert not [module for module in reached if unit(module) in ("report", "cli")]
    assert provenance.code_digest("spdnn.runs.measure.run") != provenance.code_digest("spdnn.report.rendering")


def test_inference_depends_on_no_class_of_a_run_record():
    """What records and verdicts hold may change without another inference; the machine's rates are measured with it."""
    engines = {module.split(":")[0] for module in ENGINES.values()}
    reached = provenance.reachable("spdnn.runs.measure.run", "spdnn.runs.ranks.run", *engines)
    assert {module for module in reached if module.startswith("spdnn.runs.records")} == set()
    assert "spdnn.runs.records.run_record" in provenance.reachable("spdnn.runs.measure.record")
    assert "spdnn.runs.records.verdict" in provenance.reachable("spdnn.runs.measure.judging")


def test_code_digest_sees_kernels_and_templates(tmp_path, monkeypatch):
    import shutil

    copy = tmp_path / "spdnn"
    shutil.copytree(provenance.PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    monkeypatch.setattr(provenance, "PACKAGE", copy)

    def digest():
        return [provenance.code_digest(name) for name in ("spdnn.engines.cpu.session", "spdnn.report.rendering")]

    before = digest()
    with open(copy / "kernels/cpu/fused_layers.cpp", "a") as stream:
        stream.write("// changed\n")
    kernel_changed = digest()
    assert before[0] != kernel_changed[0]
    with open(next((copy / "report").glob("*.j2")), "a") as stream:
        stream.write("changed\n")
    assert digest()[0] == kernel_changed[0]
    assert digest()[1] != kernel_changed[1]
    for name in ("gather.cuh", "staged.cu"):
        on_device = provenance.code_digest("spdnn.engines.cuda.engine")
        with open(copy / "kernels/cuda" / name, "a") as stream:
            stream.write("// changed\n")
        assert provenance.code_digest("spdnn.engines.cuda.engine") != on_device
    assert digest()[0] == kernel_changed[0]  # the engines of the processor run as they did
